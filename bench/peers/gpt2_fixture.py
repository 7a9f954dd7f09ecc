#!/usr/bin/python3
"""Writes tests/fixtures/gpt2_tiny.safetensors: a small GPT-2 as PyTorch computes it, the oracle that is not ours.

Contents: every parameter, one batch of tokens and targets, the logits, the loss, every gradient, and what 20
AdamW steps on that batch lead to. All is computed in FP64 from parameters that FP32 holds exactly, and rounded
once, on storing. The same run in FP32 is made beside it and its distance printed: that is what a correct FP32
engine may be expected to reach.

The model is that of gpt2_plain.py, with its names and layouts.

Needs PyTorch (Debian: python3-torch). `--check` compares with the stored file instead of writing it.
"""
import argparse
import math
import pathlib
import random
import sys

import torch

import gpt2_plain
from fixture_file import check, largest_distance, write_safetensors

LAYERS, HEADS, CHANNELS, SEQUENCE, VOCABULARY, BATCH = 2, 3, 36, 37, 211, 2
STEPS, LEARNING_RATE, BETAS, WEIGHT_DECAY = 20, 1e-3, (0.9, 0.95), 0.1
SEED = 20190214
SHAPES = gpt2_plain.parameter_shapes(LAYERS, CHANNELS, VOCABULARY, SEQUENCE)
DEFAULT_PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/gpt2_tiny.safetensors"


def draw_parameters(source):
    """FP64 tensors whose values FP32 holds exactly. Biases and norm weights are drawn too, so that no term of
    a gradient is zero or multiplied by one by accident."""
    parameters = {}
    for name, shape in SHAPES.items():
        mean = 1.0 if ".ln_" in f".{name}" and name.endswith("weight") else 0.0
        residual = name.endswith("c_proj.weight")
        deviation = 0.02 / math.sqrt(2 * LAYERS) if residual else 0.02
        values = [source.gauss(mean, deviation) for _ in range(math.prod(shape))]
        parameters[name] = torch.tensor(values, dtype=torch.float32).double().reshape(shape)
    return parameters


def train(parameters, tokens, targets, dtype):
    """Runs the steps in `dtype` and returns everything that the fixture holds."""
    p = {name: value.to(dtype).clone().requires_grad_() for name, value in parameters.items()}
    optimizer = gpt2_plain.adamw(p, learning_rate=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)
    result, losses = {}, []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = gpt2_plain.logits_of(p, tokens, HEADS)
        loss = gpt2_plain.loss_of(logits, targets)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            result["logits"] = logits.detach().clone()
            result.update({f"grad.{name}": value.grad.clone() for name, value in p.items()})
        optimizer.step()
    result.update({f"after.{name}": value.detach().clone() for name, value in p.items()})
    result["loss"] = torch.tensor(losses[:1], dtype=torch.float64)
    result["losses"] = torch.tensor(losses, dtype=torch.float64)
    return result


def make_fixture():
    """Returns the tensors of the file and the same run in FP32."""
    torch.set_num_threads(1)
    source = random.Random(SEED)
    parameters = draw_parameters(source)
    draw_tokens = lambda: torch.tensor([source.randrange(VOCABULARY) for _ in range(BATCH * SEQUENCE)]).reshape(
        BATCH, SEQUENCE)
    tokens, targets = draw_tokens(), draw_tokens()
    oracle = train(parameters, tokens, targets, torch.float64)
    single = train(parameters, tokens, targets, torch.float32)
    tensors = {"losses": oracle.pop("losses"), "loss": oracle.pop("loss"),
               "tokens": tokens.int(), "targets": targets.int(),
               **{name: value.float() for name, value in parameters.items()},
               **{name: value.float() for name, value in oracle.items()}}
    return tensors, oracle, single


def print_summary(tensors, oracle, single):
    count = sum(math.prod(shape) for shape in SHAPES.values())
    print(f"GPT-2: L={LAYERS} heads={HEADS} C={CHANNELS} T={SEQUENCE} V={VOCABULARY} B={BATCH}, {count} parameters")
    losses = tensors["losses"]
    print(f"loss {losses[0].item():.9f}, after {STEPS - 1} updates {losses[-1].item():.9f}")
    print("largest distance of PyTorch's own FP32 from FP64:")
    for prefix in ("logits", "grad.", "after."):
        value, name = largest_distance(oracle, single, prefix)
        scale = oracle[name].abs().max().item()
        print(f"  {prefix:7} {value:.2e} in {name} (largest element there {scale:.2e})")
    print(f"  losses  {(single['losses'] - losses).abs().max().item():.2e}")


def main():
    parser = argparse.ArgumentParser(description="Makes the GPT-2 fixture with PyTorch.")
    parser.add_argument("--output", type=pathlib.Path, default=DEFAULT_PATH)
    parser.add_argument("--check", action="store_true", help="compare with the stored file, write nothing")
    options = parser.parse_args()
    tensors, oracle, single = make_fixture()
    print_summary(tensors, oracle, single)
    if options.check:
        fault = check(options.output, tensors)
        print(fault or f"{options.output.name}: as computed here")
        return 1 if fault else 0
    metadata = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": CHANNELS, "n_ctx": SEQUENCE, "vocab_size": VOCABULARY,
                "batch": BATCH, "steps": STEPS, "learning_rate": LEARNING_RATE, "beta1": BETAS[0],
                "beta2": BETAS[1], "epsilon": gpt2_plain.ADAMW_EPSILON, "weight_decay": WEIGHT_DECAY, "weight_layout": "[out, in]",
                "made_by": "bench/peers/gpt2_fixture.py"}
    write_safetensors(options.output, tensors, {name: str(value) for name, value in metadata.items()})
    print(f"wrote {options.output} ({options.output.stat().st_size / 1000:.0f} kB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
