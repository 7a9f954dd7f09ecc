#!/usr/bin/env python3
"""Checks adapters beside PEFT, through files alone: three small families (lora_cases.py), each with LoRA
and DoRA, the same adapters in both.

    pip install torch transformers peft bitsandbytes safetensors numpy
    python bench/peers/check_lora.py --program build/mantissa

For each: the losses of 50 steps of AdamW; PEFT's folder read by `train --adapter`, and the checkpoint that `train` wrote
read by PEFT, which goes on to the same loss; the adapters after the steps; `--merge` beside `merge_and_unload`. Then the
same losses with `--trunk nf4`, beside PEFT on the weights that its codes stand for; these beside bitsandbytes'.
"""
import argparse
import pathlib
import sys
import tempfile

import bitsandbytes
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
# Our scales go to the nearest of 256 numbers, bitsandbytes' to the next but one in less than one case of a hundred.
OTHER_SCALES = 0.02


def far(left, right):
    return (left.double() - right.double()).abs().max().item() / max(right.abs().max().item(), 1e-3)


def run_ours(options, folder, *arguments, steps=STEPS, rate=lora_cases.LEARNING_RATE):
    return mantissa_program.train(
        options.program, folder, "--from", folder / "base", "--tokens", folder / "tokens.npy", "--tokenizer", "bytes",
        "--batch", lora_cases.BATCH, "--sequence", lora_cases.SEQUENCE, "--policy", "fp32", "--steps", steps,
        "--learning-rate", rate, "--betas", *lora_cases.BETAS, "--weight-decay", lora_cases.WEIGHT_DECAY, *arguments)


def losses_apart(report, losses):
    return max(abs(step["loss"] - loss) / loss for step, loss in zip(report["steps"], losses, strict=True))


def check_trunk(options, name, folder, batches):
    """The trunk in NF4: what a merged model without trained adapters holds is what its codes stand for."""
    run_ours(options, folder, "--lora", 2, "--trunk", "nf4", "--merge", folder / "widened", steps=1, rate=0)
    widened = transformers.AutoModelForCausalLM.from_pretrained(folder / "widened")
    given = transformers.AutoModelForCausalLM.from_pretrained(folder / "base").state_dict()
    others = numbers = 0
    for key, value in widened.state_dict().items():
        if value.equal(given[key]):
            continue
        # GPT-2's files hold matrices the other way round. Flat: rows of 144 numbers, two blocks and a part, come back from
        # bitsandbytes on a CPU under other scales than it gave them.
        turn = (lambda one: one.t().flatten()) if name == "gpt2" else torch.flatten
        theirs = bitsandbytes.functional.dequantize_4bit(*bitsandbytes.functional.quantize_4bit(
            turn(given[key]), quant_type="nf4", compress_statistics=True))
        # A mean of some 60 scales, which they add in FP32, and we in FP64.
        others += ((turn(value) - theirs).abs() > 60 * 2**-24 * theirs.abs() + 1e-9).sum().item()
        numbers += value.numel()
    model = peft.PeftModel.from_pretrained(widened, folder / "theirs", is_trainable=True)
    losses, _ = lora_cases.train(model, batches, STEPS, epsilon=1e-8)
    report = run_ours(options, folder, "--adapter", folder / "theirs", "--trunk", "nf4")
    return {"losses in nf4": losses_apart(report, losses), "other weights": others / max(1, numbers)}


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
    report = run_ours(options, folder, "--adapter", folder / "theirs", "--checkpoint", folder / "ours", "--merge",
                      folder / "merged")
    found = {"losses": losses_apart(report, losses)}
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
    found |= check_trunk(options, name, folder, batches)
    limits = {"losses": LOSS, "adapters": WEIGHTS, "read by PEFT": LOSS, "merged": 1e-6, "losses in nf4": LOSS,
              "other weights": OTHER_SCALES}
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
