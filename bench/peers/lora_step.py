#!/usr/bin/env python3
"""A step of LoRA beside PEFT and torch: tokens a second and memory, interleaved, on weights of a published size that are
drawn at random. Both train the same adapters on the same tokens; losses are compared.

    pip install torch transformers peft safetensors numpy
    python bench/peers/lora_step.py --model qwen2.5-0.5b --batch 1 --sequence 1024

Contenders: `mantissa bf16`, and `mantissa nf4`, int4 or int8: the same with the trunk in that format; with `lean` behind
it, as in `mantissa nf4 lean`: a block's values are computed again in the backward pass; `peft quick`: the trunk in BF16,
torch.compile; `peft plain`: the same without compiling; `peft lean`: the same with checkpointed activations; `peft nf4`:
the trunk in bitsandbytes' NF4; `mantissa fp32` and `peft fp32`: the same weights in FP32. By --only any of them run,
else all but int4, int8, fp32 and PEFT's nf4. Losses are compared with those of the first contender of the same trunk.
Memory is the peak that is resident, less what the process had before the model in PEFT, and all of the process in
mantissa.
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

import mantissa_program

LEARNING_RATE, RANK = 1e-4, 16
CONTENDERS = ("peft quick", "peft plain", "peft lean", "peft nf4", "peft fp32")
TRUNKS = ("nf4", "int4", "int8")
UNCOUNTED = 2  # steps that compile, touch memory and fill caches


def status_bytes(key):
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(key))


def measure_torch(options):
    """Runs as a process of its own and prints what the parent reads."""
    import peft
    import transformers

    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    folder = pathlib.Path(options.start)
    before = status_bytes("VmRSS")
    stored = {}
    if options.measure == "peft nf4":
        stored["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16)
    in_bf16 = options.measure != "peft fp32"
    base = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "base", dtype=torch.bfloat16 if in_bf16 else torch.float32, attn_implementation="sdpa", **stored)
    model = peft.PeftModel.from_pretrained(base, folder / "adapters", is_trainable=True)
    for value in model.parameters():
        if value.requires_grad:
            value.data = value.data.float()
    if options.measure == "peft lean":
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=LEARNING_RATE,
                                  betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model, dynamic=False) if options.measure == "peft quick" else model
    tokens = mantissa_program.read_tokens(folder / "tokens.npy")
    milliseconds, losses = [], []
    for index in range(UNCOUNTED + options.steps):
        inputs, targets = mantissa_program.batches_of(tokens, options.batch, options.sequence, index)
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_bf16):
            logits = forward(input_ids=inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        milliseconds.append(1e3 * (time.perf_counter() - begin))
    print(json.dumps({"ms": milliseconds[UNCOUNTED:], "losses": losses, "bytes": status_bytes("VmHWM") - before}))


def ask_torch(options, name, folder):
    command = [sys.executable, __file__, "--measure", name, "--start", folder, "--batch", options.batch, "--sequence",
               options.sequence, "--steps", options.steps, "--threads", options.threads]
    ran = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def common(options, folder):
    return ["--tokens", folder / "tokens.npy", "--tokenizer", "bytes", "--batch", options.batch, "--sequence",
            options.sequence, "--threads", options.threads]


def trunk_of(name):
    """The format of the trunk where it is none of 16 bits."""
    return next((trunk for trunk in TRUNKS if trunk in name.split()), "")


def ask_mantissa(options, name, folder):
    trunk = trunk_of(name)
    report = mantissa_program.train(options.program, folder, "--from", folder / "base", "--adapter",
                                    folder / "adapters", *common(options, folder), "--policy",
                                    "fp32" if "fp32" in name else "bf16", *(["--trunk", trunk] if trunk else []),
                                    *(["--recompute", "block"] if name.endswith("lean") else []),
                                    "--steps", UNCOUNTED + options.steps, "--learning-rate", LEARNING_RATE)
    return {"ms": [step["ms"] for step in report["steps"][UNCOUNTED:]],
            "losses": [step["loss"] for step in report["steps"]], "bytes": report["peak_resident_bytes"]}


def prepare(options, folder):
    """Tokens, a model of the size that is drawn at random, and adapters as they begin: a run with learning rate 0."""
    count = (UNCOUNTED + options.steps) * options.batch * options.sequence + 1
    mantissa_program.write_tokens(folder / "tokens.npy", mantissa_program.tokens_of(options, count))
    mantissa_program.train(options.program, folder, "--model", options.model, "--lora", RANK,
                           *common(options, folder), "--policy", "bf16", "--steps", 1, "--learning-rate", 0,
                           "--checkpoint", folder / "adapters", "--merge", folder / "base")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    mantissa_program.add_options(parser)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="counted steps of a contender in a repeat")
    parser.add_argument("--only", help="contenders, by name: 'mantissa bf16,peft lean'")
    parser.add_argument("--measure", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--start", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure_torch(options)
        return 0
    names = options.only.split(",") if options.only else [
        "mantissa bf16", "mantissa nf4", "mantissa bf16 lean", "mantissa nf4 lean", *CONTENDERS[:3]]
    print(f"{options.model}, LoRA {RANK}, {options.batch} x {options.sequence} tokens, {options.threads} threads, "
          f"PyTorch {torch.__version__}, {options.repeats} interleaved repeats of {options.steps} steps")
    answers = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        prepare(options, folder)
        for repeat in range(options.repeats):
            for name in names:
                answer = (ask_torch(options, name, folder) if name in CONTENDERS
                          else ask_mantissa(options, name, folder))
                answers[name].append(answer)
                print(f"repeat {repeat}: {name:18} {' '.join(f'{ms:.0f}' for ms in answer['ms'])} ms", flush=True)
    tokens = options.batch * options.sequence
    first = {trunk_of(name): answers[name][0]["losses"] for name in reversed(names)}
    print(f"\n{'contender':18} {'ms a step':>10} {'tokens/s':>9} {'memory MB':>10} {'loss within':>12}")
    apart = 0
    for name, runs in answers.items():
        median = statistics.median(ms for run in runs for ms in run["ms"])
        distance = max(abs(a - b) for run in runs for a, b in zip(run["losses"], first[trunk_of(name)], strict=True))
        apart = max(apart, distance)
        print(f"{name:18} {median:10.1f} {1e3 * tokens / median:9.1f} {max(run['bytes'] for run in runs) / 1e6:10.0f} "
              f"{distance:12.1e}")
    return 0 if apart <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
