#!/usr/bin/env python3
"""Writes tests/fixtures/muon.safetensors: 50 steps of a small network by Muon, the oracle that is not ours.

Contents: the parameters, a batch for each step, and for each set of options the losses and the parameters after the
last step. Matrices are stepped by a copy of torch.optim.Muon's algorithm that runs in any format (PyTorch's own is
BF16 always), vectors by torch.optim.AdamW. All is computed in FP64 from numbers that FP32 holds exactly, and rounded
once, on storing. The same run in FP32 is made beside it and its distance printed: that is what a correct FP32 engine
may be expected to reach. So is torch.optim.Muon itself, whose distance is kept in the metadata.

The network is mean((tanh(x A^T + b) B^T - y)^2): A is wider than high, B higher than wide.

Needs `pip install torch` (2.9 or later). `--check` compares with the stored file instead of writing it.
"""
import argparse
import math
import pathlib
import random
import sys

import torch

from fixture_file import check, write_safetensors

STEPS, BATCH, INPUTS, HIDDEN, OUTPUTS, LEARNING_RATE, SEED = 50, 24, 11, 6, 9, 0.02, 20190214
COEFFICIENTS, EPSILON, ITERATIONS = (3.4445, -4.7750, 2.0315), 1e-7, 5
ADAMW = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0}
CASES = {
    "plain": {"momentum": 0.95, "nesterov": True, "weight_decay": 0.0, "adjust_lr_fn": "original"},
    "without_nesterov": {"momentum": 0.9, "nesterov": False, "weight_decay": 0.0, "adjust_lr_fn": "original"},
    "matching": {"momentum": 0.95, "nesterov": True, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"},
}
MATRICES, VECTORS = ("a", "b"), ("bias",)
DEFAULT_PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/muon.safetensors"


def orthogonal(gradient):
    """Newton and Schulz's iteration, as torch.optim._muon has it, in the format of the gradient."""
    a, b, c = COEFFICIENTS
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / x.norm().clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if gradient.size(0) > gradient.size(1) else x


class Muon:
    """torch.optim.Muon in the format of its parameters."""

    def __init__(self, parameters, options):
        self.parameters, self.options = parameters, options
        self.buffers = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self):
        momentum = self.options["momentum"]
        for p, buffer in zip(self.parameters, self.buffers):
            buffer.lerp_(p.grad, 1 - momentum)
            update = orthogonal(p.grad.lerp(buffer, momentum) if self.options["nesterov"] else buffer)
            rows, columns = p.shape
            factor = (math.sqrt(max(1, rows / columns)) if self.options["adjust_lr_fn"] == "original" else
                      0.2 * math.sqrt(max(rows, columns)))
            p.mul_(1 - LEARNING_RATE * self.options["weight_decay"])
            p.add_(update, alpha=-LEARNING_RATE * factor)


def draw(source, *shape):
    """FP64 numbers that FP32 holds exactly."""
    values = [source.gauss(0, 1) for _ in range(torch.Size(shape).numel())]
    return torch.tensor(values, dtype=torch.float32).double().reshape(shape)


def train(start, options, dtype, muon):
    """Losses, and the parameters after the last step."""
    p = {name: start[name].to(dtype).clone().requires_grad_() for name in (*MATRICES, *VECTORS)}
    x, y = start["x"].to(dtype), start["y"].to(dtype)
    optimizers = [muon([p[name] for name in MATRICES], options),
                  torch.optim.AdamW([p[name] for name in VECTORS], lr=LEARNING_RATE, **ADAMW)]
    losses = []
    for step in range(STEPS):
        for value in p.values():
            value.grad = None
        loss = ((torch.tanh(x[step] @ p["a"].T + p["bias"]) @ p["b"].T - y[step])**2).mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), {name: value.detach() for name, value in p.items()}


def of_pytorch(parameters, options):
    return torch.optim.Muon(parameters, lr=LEARNING_RATE, ns_coefficients=COEFFICIENTS, eps=EPSILON,
                            ns_steps=ITERATIONS, **options)


def distance(left, right):
    return max((left[name].double() - right[name].double()).abs().max().item() for name in left)


def make_fixture():
    """Returns the tensors of the file, and the distances of FP32 and of torch.optim.Muon from FP64."""
    torch.set_num_threads(1)
    source = random.Random(SEED)
    start = {"a": draw(source, HIDDEN, INPUTS) / 2, "b": draw(source, OUTPUTS, HIDDEN) / 2,
             "bias": draw(source, HIDDEN), "x": draw(source, STEPS, BATCH, INPUTS),
             "y": draw(source, STEPS, BATCH, OUTPUTS) / 2}
    tensors, apart = {}, {}
    for name, options in CASES.items():
        tensors[f"losses.{name}"], oracle = train(start, options, torch.float64, Muon)
        _, single = train(start, options, torch.float32, Muon)
        _, half = train(start, options, torch.float32, of_pytorch)
        start.update({f"{parameter}.{name}": value for parameter, value in oracle.items()})
        apart[name] = distance(oracle, single), distance(oracle, half)
    return {**tensors, **{name: value.float() for name, value in start.items()}}, apart


def main():
    parser = argparse.ArgumentParser(description="Makes the Muon fixture with PyTorch.")
    parser.add_argument("--output", type=pathlib.Path, default=DEFAULT_PATH)
    parser.add_argument("--check", action="store_true", help="compare with the stored file, write nothing")
    options = parser.parse_args()
    tensors, apart = make_fixture()
    for name, (single, half) in apart.items():
        losses = tensors[f"losses.{name}"]
        print(f"{name:18} loss {losses[0].item():.6f} to {losses[-1].item():.6f}; from FP64: the copy in FP32 "
              f"{single:.1e}, torch.optim.Muon {half:.1e}")
    if options.check:
        fault = check(options.output, tensors)
        print(fault or f"{options.output.name}: as computed here")
        return 1 if fault else 0
    metadata = {"steps": STEPS, "learning_rate": LEARNING_RATE, "made_by": "bench/peers/muon_fixture.py",
                **{f"pytorch.{name}": half for name, (_, half) in apart.items()}}
    write_safetensors(options.output, tensors, {name: str(value) for name, value in metadata.items()})
    print(f"wrote {options.output.name} ({options.output.stat().st_size / 1000:.0f} kB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
