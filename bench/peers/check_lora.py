#!/usr/bin/env python3
"""Checks adapters beside PEFT, through files alone: three small families (lora_cases.py), each with LoRA
and DoRA, the same adapters in both.

    pip install torch transformers peft safetensors numpy
    python bench/peers/check_lora.py --program build/mantissa

For each: the losses of 50 steps of AdamW; PEFT's folder read by `train --adapter`, and the checkpoint that `train` wrote
read by PEFT, which goes on to the same loss; the adapters after the steps; `--merge` beside `merge_and_unload`.
"""
import argparse
import pathlib
import sys
import tempfile

import numpy
import peft
import safetensors.torch
import torch
import transformers

import lora_cases
import mantissa_program

STEPS = 50
# FP32 on both sides: sums in another order, which steps amplify.
LOSS, WEIGHTS = 2e-5, 2e-3


def far(left, right):
    return (left.double() - right.double()).abs().max().item() / max(right.abs().max().item(), 1e-3)


def check(options, name, folder):
    count = STEPS * lora_cases.BATCH * lora_cases.SEQUENCE + 1
    tokens = lora_cases.ids(f"{name} text", count)
    numpy.save(folder / "tokens.npy", tokens.numpy().astype(numpy.uint16))
    base = lora_cases.base_of(name)
    base.save_pretrained(folder / "base")
    model = lora_cases.adapted(base, name)
    model.save_pretrained(folder / "theirs")
    batches = lambda step: mantissa_program.batches_of(tokens, lora_cases.BATCH, lora_cases.SEQUENCE, step)
    losses, _ = lora_cases.train(model, batches, STEPS, epsilon=1e-8)  # that of `train`
    report = mantissa_program.train(
        options.program, folder, "--from", folder / "base", "--adapter", folder / "theirs", "--tokens",
        folder / "tokens.npy", "--tokenizer", "bytes", "--batch", lora_cases.BATCH, "--sequence", lora_cases.SEQUENCE,
        "--policy", "fp32", "--steps", STEPS, "--learning-rate", lora_cases.LEARNING_RATE, "--betas", *lora_cases.BETAS,
        "--weight-decay", lora_cases.WEIGHT_DECAY, "--checkpoint", folder / "ours", "--merge", folder / "merged")
    found = {"losses": max(abs(step["loss"] - loss) / loss
                           for step, loss in zip(report["steps"], losses, strict=True))}
    ours = safetensors.torch.load_file(folder / "ours/adapter_model.safetensors")
    theirs = lora_cases.adapters_of(model)
    if set(ours) != set(theirs):
        raise SystemExit(f"{name}: other tensors than PEFT's: {sorted(set(ours) ^ set(theirs))[:4]}")
    found["adapters"] = max(far(ours[key], value.detach()) for key, value in theirs.items())
    again = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(folder / "base"), folder / "ours")
    inputs, targets = batches(0)
    loss_of = lambda one: lora_cases.text_loss(one, inputs, targets).item()
    with torch.no_grad():
        found["read by PEFT"] = abs(loss_of(again) - loss_of(model)) / loss_of(model)
        merged = transformers.AutoModelForCausalLM.from_pretrained(folder / "merged").state_dict()
        unloaded = again.merge_and_unload().state_dict()
        found["merged"] = max(far(merged[key], value) for key, value in unloaded.items())
    limits = {"losses": LOSS, "adapters": WEIGHTS, "read by PEFT": LOSS, "merged": 1e-6}
    faults = [key for key, value in found.items() if not value <= limits[key]]
    print(f"{name:10}", *(f"{key} {value:.1e} (allowed {limits[key]:.0e})" for key, value in found.items()),
          "FAILED" if faults else "")
    return len(faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default="build/mantissa")
    options = parser.parse_args()
    lora_cases.quiet()
    faults = 0
    for name in lora_cases.CASES:
        with tempfile.TemporaryDirectory() as folder:
            faults += check(options, name, pathlib.Path(folder))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
