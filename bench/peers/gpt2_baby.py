#!/usr/bin/env python3
"""Trains the small GPT of nanoGPT's README for CPUs to its end in mantissa and in PyTorch, and compares how well both
know the text that was held out.

    bench/peers/gpt2_baby.py --text FILE [--policies fp32,bf16] [--seeds 1,2,3] [--steps 2000] [--without-best]
                              [--torch-in-fp32-only] [--optimizers adamw,muon]

4 layers, 4 heads, 128 channels, a context of 64, no biases, no dropout, 12 sequences a step of bytes cut out of the
first nine tenths of the text at random places; AdamW with betas 0.9 and 0.99, decay 0.1 on matrices, gradients clipped
to 1, a rate of 1e-3 after 100 steps that falls by a cosine to 1e-4. The loss is that of the whole last tenth.

Both draw weights and places by themselves, so only means over seeds can be compared. Each line is one training in a
process of its own, one after another; what a policy has no line of PyTorch's for is held against FP32's, since without
a unit for BF16 PyTorch takes seconds a step there. PyTorch runs as it is by default (eager) and as it is best (torch.compile,
scaled_dot_product_attention, fused AdamW), under autocast for bf16. `--optimizers adamw,muon`: here with Muon, too, at
the same rate: 0.2 times the root of a matrix's longer side makes a step as large as one of AdamW. Needs `pip
install torch safetensors numpy`.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import gpt2_plain
import mantissa_program

LAYERS, HEADS, CHANNELS, CONTEXT, VOCABULARY, BATCH = 4, 4, 128, 64, 256, 12
PEAK, LEAST, WARMUP, BETAS, DECAY, CLIP = 1e-3, 1e-4, 100, (0.9, 0.99), 0.1, 1.0


def learning_rate(step, steps):
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    return LEAST + 0.5 * (PEAK - LEAST) * (1 + math.cos(math.pi * (step - WARMUP) / max(1, steps - 1 - WARMUP)))


def drawn_parameters():
    """Drawn as GPT-2's are: N(0, 0.02), less onto the residual stream; weights of norms are 1."""
    p = {}
    for name, shape in gpt2_plain.parameter_shapes(LAYERS, CHANNELS, VOCABULARY, CONTEXT).items():
        if name.endswith(".bias"):
            continue
        deviation = 0.02 / math.sqrt(2 * LAYERS) if name.endswith("c_proj.weight") else 0.02
        p[name] = torch.ones(shape) if ".ln_" in f".{name}" else torch.randn(shape) * deviation
        p[name].requires_grad_()
    return p


def windows_at(text, places):
    rows = torch.stack([text[place:place + CONTEXT + 1] for place in places])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def train_torch(text, policy, seed, steps, best):
    """The validation loss and the seconds of training."""
    torch.manual_seed(seed)
    cut = len(text) - len(text) // 10
    training, held_out = text[:cut], text[cut:]
    p = drawn_parameters()
    optimizer = gpt2_plain.adamw(p, learning_rate=PEAK, betas=BETAS, weight_decay=DECAY,
                                 **({"fused": True} if best else {}))
    kernels = (gpt2_plain.sdpa, gpt2_plain.fused_gelu_tanh) if best else ()

    def forward(inputs, targets):
        return gpt2_plain.loss_of(gpt2_plain.logits_of(p, inputs, HEADS, *kernels), targets)

    run = torch.compile(forward, dynamic=False) if best else forward
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=policy == "bf16")
    start = time.perf_counter()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        inputs, targets = windows_at(training, torch.randint(len(training) - CONTEXT, (BATCH,)))
        optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = run(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), CLIP)
        optimizer.step()
    seconds = time.perf_counter() - start
    losses = []
    with torch.no_grad(), autocast:
        for first in range(0, len(held_out) - BATCH * CONTEXT, BATCH * CONTEXT):
            losses.append(forward(*windows_at(held_out, range(first, first + BATCH * CONTEXT, CONTEXT))).item())
    return statistics.mean(losses), seconds


def train_mantissa(options, policy, optimizer, seed, folder):
    report = mantissa_program.train(
        options.program, folder, "--model", "gpt2-tiny", "--layers", LAYERS, "--heads", HEADS, "--channels", CHANNELS,
        "--context", CONTEXT, "--vocabulary", VOCABULARY, "--no-bias", "--batch", BATCH, "--text",
        options.text, "--steps", options.steps, "--learning-rate", PEAK, "--min-learning-rate", LEAST, "--warmup",
        WARMUP, "--betas", *BETAS, "--weight-decay", DECAY, "--clip", CLIP, "--validate-every", options.steps,
        "--optimizer", optimizer, "--policy", policy, "--seed", seed, "--threads", options.threads, order="random")
    return report["validation"][-1]["loss"], sum(step["ms"] for step in report["steps"]) / 1e3


def measure_apart(options, policy, seed, best):
    """One training by PyTorch, in a process of its own."""
    command = [sys.executable, __file__, "--text", options.text, "--steps", options.steps, "--threads", options.threads,
               "--measure", f"{policy},{seed},{int(best)}"]
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(ran.stderr)
    return json.loads(ran.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mantissa_program.add_options(parser)
    parser.add_argument("--policies", default="fp32,bf16")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--without-best", action="store_true", help="PyTorch as it is by default alone")
    parser.add_argument("--torch-in-fp32-only", action="store_true", help="run other policies in mantissa alone")
    parser.add_argument("--optimizers", default="adamw", help="of mantissa, separated by commas")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        policy, seed, best = options.measure.split(",")
        text = torch.tensor(list(pathlib.Path(options.text).read_bytes()))
        print(json.dumps(train_torch(text, policy, int(seed), options.steps, best == "1")))
        return
    ours = {"mantissa" if name == "adamw" else f"mantissa {name}": name for name in options.optimizers.split(",")}
    everyone = [*ours, "torch default"] + ([] if options.without_best else ["torch best"])
    print(f"{options.steps} steps; PyTorch {torch.__version__}, {options.threads} threads")
    print(f"{'policy':<7}{'':<14} {'validation loss of each seed':<31} {'mean':>8} {'- torch':>8} {'seconds':>8}")
    for policy in options.policies.split(","):
        contenders = list(ours) if options.torch_in_fp32_only and policy != "fp32" else everyone
        results = {name: [] for name in contenders}
        for seed in map(int, options.seeds.split(",")):
            for name in contenders:
                with tempfile.TemporaryDirectory() as folder:
                    results[name].append(
                        train_mantissa(options, policy, ours[name], seed, pathlib.Path(folder)) if name in ours
                        else measure_apart(options, policy, seed, name == "torch best"))
        if "torch default" in results:
            reference = statistics.mean(loss for loss, _ in results["torch default"])
        for name, all_of in results.items():
            losses = [loss for loss, _ in all_of]
            mean = statistics.mean(losses)
            print(f"{policy:<7}{name:<14} {' '.join(f'{loss:.4f}' for loss in losses):<31} {mean:8.4f} "
                  f"{mean - reference:+8.4f} {statistics.median(seconds for _, seconds in all_of):8.1f}", flush=True)


if __name__ == "__main__":
    main()
