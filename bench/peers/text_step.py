#!/usr/bin/env python3
"""Times the same training step of a GPT-2 or a LLaMA in mantissa and in PyTorch: same weights, tokens, batch and AdamW,
interleaved.

    bench/peers/text_step.py [--model gpt2-124m] [--batch 4] [--sequence 1024] [--repeats 3] [--steps 3] [--policies fp32,bf16]

Contenders: mantissa in each policy; PyTorch's default (FP32, eager, attention and GELU written out, gpt2_plain.py) and
its best documented setting (CPU autocast to BF16, scaled_dot_product_attention, its own GELU, torch.compile,
fused AdamW, as many threads as mantissa), the same in FP32, and either without torch.compile. For a GPT-2 also torchao's
emulations of FP8 and MXFP8 ("torchao fp8", "torchao mxfp8"), as the best but eager, which run only if --only names them. A LLaMA is transformers' LlamaForCausalLM in PyTorch, with eager attention by
default and scaled_dot_product_attention as its best. --only NAME,... leaves the others out.

Each repeat runs every contender once, one after another, each in a process of its own: steps that are not counted
(first touch of memory, compilation) and then --steps that are. The table has the median over all counted steps, its
spread (median absolute deviation), and the most memory that a process held. The losses must agree, or the table is
worth nothing: within 1e-4 relatively in FP32, within 0.02 in BF16. Needs `pip install torch safetensors numpy
transformers`, and a C++ compiler for torch.compile.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import gpt2_plain
import mantissa_program

LEARNING_RATE, BETAS, WEIGHT_DECAY = 3e-4, (0.9, 0.95), 0.1
UNCOUNTED = 2  # the first compiles and touches memory, the second makes what the optimizer allocates late
# By name: its own attention and GELU, compiled, in BF16.
TORCH = {"torch default": (False, False, False), "torch best": (True, True, True),
         "torch best fp32": (True, True, False), "torch eager": (True, False, True), "torch eager fp32": (True, False, False),
         "torchao fp8": (True, False, True), "torchao mxfp8": (True, False, True)}


def linear_of_torchao(name):
    """A linear layer whose three products are FP8's or MXFP8's, emulated."""
    from torchao.float8.config import Float8LinearConfig
    from torchao.float8.float8_linear import matmul_with_hp_or_float8_args
    from torchao.float8.float8_training_tensor import LinearMMConfig, ScaledMMConfig
    from torchao.prototype.moe_training.mxfp8_linear import _to_mxfp8_then_scaled_mm
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    emulated = ScaledMMConfig(True, False, False, False)

    def product(x, weight):
        if name == "torchao fp8":
            return matmul_with_hp_or_float8_args.apply(x, weight.t(), LinearMMConfig(emulated, emulated, emulated),
                                                       Float8LinearConfig(emulate=True))
        return _to_mxfp8_then_scaled_mm(x, weight, KernelPreference.EMULATED, ScaleCalculationMode.RCEIL)

    def linear(p, layer, x):
        made = product(x.bfloat16(), p[f"{layer}.weight"].bfloat16())
        return made + p[f"{layer}.bias"].bfloat16()

    return linear


def gpt2(checkpoint, best):
    """Parameters by name, and the loss as a function of inputs and targets."""
    p = {name: value.requires_grad_() for name, value in mantissa_program.parameters_of(checkpoint).items()}
    heads = mantissa_program.heads_of(checkpoint)
    kernels = (gpt2_plain.sdpa, gpt2_plain.fused_gelu_tanh) if best else ()
    return p, lambda inputs, targets: gpt2_plain.loss_of(gpt2_plain.logits_of(p, inputs, heads, *kernels), targets)


def llama(checkpoint, best):
    """The same."""
    import transformers  # only here: GPT-2 does without it

    model = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="sdpa" if best else "eager")
    return dict(model.named_parameters()), lambda inputs, targets: gpt2_plain.loss_of(
        model(inputs, use_cache=False).logits, targets)


def torch_step(name, checkpoint):
    """A function of inputs and targets that makes one step and returns its loss."""
    best, is_compiled, is_bf16 = TORCH[name]
    if name.startswith("torchao"):
        gpt2_plain.linear = linear_of_torchao(name)
    family = json.loads((checkpoint / "config.json").read_text())["model_type"]
    p, forward = (gpt2 if family == "gpt2" else llama)(checkpoint, best)
    optimizer = gpt2_plain.adamw(p, learning_rate=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY,
                                 **({"fused": True} if best else {}))
    run_forward = torch.compile(forward, dynamic=False) if is_compiled else forward

    def step(inputs, targets):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
            loss = run_forward(inputs, targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def peak_resident_bytes():
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def measure_torch(options):
    """Runs as a process of its own and prints what the parent reads."""
    torch.set_num_threads(options.threads)
    checkpoint = pathlib.Path(options.start)
    step = torch_step(options.measure, checkpoint)
    tokens = mantissa_program.read_tokens(checkpoint.parent / "tokens.npy")
    milliseconds, losses = [], []
    for index in range(UNCOUNTED + options.steps):
        batch = mantissa_program.batches_of(tokens, options.batch, options.sequence, index)
        begin = time.perf_counter()
        losses.append(step(*batch))
        milliseconds.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps({"ms": milliseconds[UNCOUNTED:], "losses": losses, "bytes": peak_resident_bytes()}))


def ask_torch(options, name, checkpoint):
    command = [sys.executable, __file__, "--measure", name, "--start", checkpoint, "--batch", options.batch, "--sequence",
               options.sequence, "--steps", options.steps, "--threads", options.threads]
    ran = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def train_options(options, tokens):
    return ["--model", options.model, "--tokens", tokens, "--batch", options.batch, "--sequence", options.sequence,
            "--threads", options.threads, "--betas", *BETAS, "--weight-decay", WEIGHT_DECAY]


def ask_mantissa(options, policy, folder):
    report = mantissa_program.train(options.program, folder, *train_options(options, folder / "tokens.npy"), "--policy",
                                    policy, "--steps", UNCOUNTED + options.steps, "--learning-rate", LEARNING_RATE)
    return {"ms": [step["ms"] for step in report["steps"][UNCOUNTED:]],
            "losses": [step["loss"] for step in report["steps"]], "bytes": report["peak_resident_bytes"]}


def prepare(options, folder):
    """Tokens, and the weights that mantissa draws: a run with learning rate 0 saves them."""
    steps = UNCOUNTED + options.steps
    tokens = mantissa_program.tokens_of(options, steps * options.batch * options.sequence + 1)
    mantissa_program.write_tokens(folder / "tokens.npy", tokens)
    mantissa_program.train(options.program, folder, *train_options(options, folder / "tokens.npy"), "--policy",
                           "fp32", "--steps", 1, "--learning-rate", 0, "--checkpoint", folder / "start")
    return folder / "start"


def measure_all(options, names, folder):
    """Name -> the answers of its repeats."""
    start = prepare(options, folder)
    answers = {name: [] for name in names}
    for repeat in range(options.repeats):
        for name in names:
            answer = (ask_torch(options, name, start) if name in TORCH
                      else ask_mantissa(options, name.split()[1], folder))
            answers[name].append(answer)
            print(f"repeat {repeat}: {name:14} {' '.join(f'{ms:.0f}' for ms in answer['ms'])} ms", flush=True)
    return answers


def losses_agree(answers):
    """Against the first contender's; prints the distances."""
    first, *others = answers
    reference = answers[first][0]["losses"]
    good = True
    for name in others:
        allowed = 1e-4 * reference[0] if "fp32" in name or name == "torch default" else 0.02
        distance = max(abs(a - b) for answer in answers[name] for a, b in zip(answer["losses"], reference, strict=True))
        good = good and distance <= allowed
        print(f"losses of {name}: within {distance:.1e} of those of {first} (allowed {allowed:.0e})")
    return good


def print_table(options, answers):
    tokens = options.batch * options.sequence
    print(f"\n{'contender':16} {'ms a step':>10} {'spread':>8} {'tokens/s':>9} {'memory MB':>10}")
    for name, runs in answers.items():
        times = [ms for run in runs for ms in run["ms"]]
        median = statistics.median(times)
        spread = statistics.median(abs(ms - median) for ms in times)
        memory = max(run["bytes"] for run in runs) / 1e6
        print(f"{name:16} {median:10.1f} {spread:8.1f} {1e3 * tokens / median:9.1f} {memory:10.0f}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    mantissa_program.add_options(parser)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="counted steps of a contender in a repeat")
    parser.add_argument("--policies", default="fp32,bf16", help="of mantissa")
    parser.add_argument("--only", help="contenders, by name: 'mantissa bf16,torch best'")
    parser.add_argument("--measure", choices=TORCH, help=argparse.SUPPRESS)
    parser.add_argument("--start", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.measure:
        measure_torch(options)
        return 0
    names = [f"mantissa {policy}" for policy in options.policies.split(",")]
    names += [name for name in TORCH if not name.startswith("torchao")]
    if options.only:
        names = options.only.split(",")
    print(f"{options.model}, {options.batch} x {options.sequence} tokens, {options.threads} threads, PyTorch {torch.__version__}, "
          f"{options.repeats} interleaved repeats of {options.steps} steps")
    with tempfile.TemporaryDirectory() as folder:
        answers = measure_all(options, names, pathlib.Path(folder))
    good = losses_agree(answers)
    print_table(options, answers)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
