#!/usr/bin/env python3
"""Checks modules that PEFT has wrapped, trained as they are by mantissa.torch, beside PyTorch: the families and the ResNet
of lora_cases.py, with LoRA, rsLoRA and DoRA. And the losses of the same adapters by `train --adapter`, from files.

    pip install torch transformers peft safetensors numpy
    PYTHONPATH=python python bench/peers/check_lora_torch.py --program build/mantissa
"""
import argparse
import copy
import pathlib
import sys
import tempfile

import mantissa
import mantissa.torch
import numpy
import torch

import lora_cases
import mantissa_program

STEPS = 20
LOSS = 2e-5  # FP32 on both sides, as in check_lora.py
ADAMW = dict(beta1=lora_cases.BETAS[0], beta2=lora_cases.BETAS[1], epsilon=1e-8, weight_decay=lora_cases.WEIGHT_DECAY)


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits


def by_module(module, loss, batches):
    trainer = mantissa.torch.trainer(module, loss, batches(0), policy="fp32", optimizer=mantissa.adamw(**ADAMW, clip=0.0))
    return [trainer(*batches(step), lr=lora_cases.LEARNING_RATE).loss for step in range(STEPS)]


def by_program(program, base, model, tokens):
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        numpy.save(folder / "tokens.npy", tokens.numpy().astype(numpy.uint16))
        base.save_pretrained(folder / "base")
        model.save_pretrained(folder / "theirs")
        report = mantissa_program.train(
            program, folder, "--from", folder / "base", "--adapter", folder / "theirs", "--tokens", folder / "tokens.npy",
            "--tokenizer", "bytes", "--batch", lora_cases.BATCH, "--sequence", lora_cases.SEQUENCE, "--policy", "fp32",
            "--steps", STEPS, "--learning-rate", lora_cases.LEARNING_RATE, "--betas", *lora_cases.BETAS,
            "--weight-decay", lora_cases.WEIGHT_DECAY)
    return [step["loss"] for step in report["steps"]]


def losses_of(name, program):
    """The losses of PyTorch, then those of others by their names."""
    found = {}
    if name in lora_cases.IMAGE_CASES:
        model = lora_cases.adapted(lora_cases.image_base(torch.float32), name)
        images, targets = lora_cases.image_batch(name)
        batches, loss = lambda _: (images.float(), targets), lora_cases.image_loss
        module, of_logits = copy.deepcopy(model), torch.nn.functional.cross_entropy
    else:
        tokens = lora_cases.ids(f"{name} text", STEPS * lora_cases.BATCH * lora_cases.SEQUENCE + 1)
        base = lora_cases.base_of(name)
        found["train"] = lambda: by_program(program, base, model, tokens)
        model = lora_cases.adapted(copy.deepcopy(base), name)
        batches = lambda step: mantissa_program.batches_of(tokens, lora_cases.BATCH, lora_cases.SEQUENCE, step)
        module, loss, of_logits = Logits(copy.deepcopy(model)), lora_cases.text_loss, lora_cases.families.loss_of
    found["module"] = lambda: by_module(module, of_logits, batches)
    others = {by: losses() for by, losses in found.items()}
    return lora_cases.train(model, batches, STEPS, epsilon=1e-8, loss_of=loss)[0], others


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default="build/mantissa")
    options = parser.parse_args()
    lora_cases.quiet()
    faults = 0
    for name in (*lora_cases.CASES, *lora_cases.IMAGE_CASES):
        theirs, others = losses_of(name, options.program)
        for by, losses in others.items():
            worst = max(abs(ours - loss) / loss for ours, loss in zip(losses, theirs, strict=True))
            faults += not worst <= LOSS
            print(f"{name:11} {by:7} losses {worst:.1e} (allowed {LOSS:.0e})", "" if worst <= LOSS else "FAILED", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
