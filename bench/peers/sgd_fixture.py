#!/usr/bin/python3
"""Writes tests/fixtures/sgd.safetensors: 50 steps of a small network by torch.optim.SGD, the oracle that is not ours.

Contents: the parameters, a batch for each step, and for each set of options the losses and the parameters after the
last step. All is computed in FP64 from numbers that FP32 holds exactly, and rounded once, on storing. The same run in
FP32 is made beside it and its distance printed: that is what a correct FP32 engine may be expected to reach.

The network is mean((tanh(x W^T + b) - y)^2): W, a matrix, and b, a vector, which some options do not let decay.

Needs PyTorch (Debian: python3-torch). `--check` compares with the stored file instead of writing it.
"""
import argparse
import json
import pathlib
import random
import sys

import torch

from fixture_file import check, largest_distance, write_safetensors

STEPS, BATCH, INPUTS, OUTPUTS, LEARNING_RATE, SEED = 50, 4, 7, 5, 0.1, 20190214
# decay_matrices_only is mantissa's: weight decay is 0 for vectors. All else is torch.optim.SGD's.
CASES = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "dampening": {"momentum": 0.9, "dampening": 0.4},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "weight_decay": {"weight_decay": 0.1},
    "decay_of_matrices": {"momentum": 0.9, "weight_decay": 0.1, "decay_matrices_only": True},
    "all_dampened": {"momentum": 0.9, "dampening": 0.4, "weight_decay": 0.1},
    "all_nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
}
DEFAULT_PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/sgd.safetensors"


def draw(source, *shape):
    """FP64 numbers that FP32 holds exactly."""
    values = [source.gauss(0, 1) for _ in range(torch.Size(shape).numel())]
    return torch.tensor(values, dtype=torch.float32).double().reshape(shape)


def optimizer_of(parameters, options):
    """PyTorch's SGD, with a group for what decays and one for what does not."""
    options = dict(options)
    matrices_only = options.pop("decay_matrices_only", False)
    decay = options.pop("weight_decay", 0.0)
    groups = [{"params": [p], "weight_decay": 0.0 if matrices_only and p.dim() < 2 else decay} for p in parameters]
    return torch.optim.SGD(groups, lr=LEARNING_RATE, **options)


def train(start, options, dtype):
    """Losses, and the parameters after the last step."""
    weight, bias, x, y = (start[name].to(dtype).clone() for name in ("weight", "bias", "x", "y"))
    weight.requires_grad_()
    bias.requires_grad_()
    optimizer = optimizer_of([weight, bias], options)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = ((torch.tanh(x[step] @ weight.T + bias) - y[step])**2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), weight.detach(), bias.detach()


def make_fixture():
    """Returns the tensors of the file, and the trained parameters of the same runs in FP64 and FP32."""
    torch.set_num_threads(1)
    source = random.Random(SEED)
    start = {"weight": draw(source, OUTPUTS, INPUTS), "bias": draw(source, OUTPUTS),
             "x": draw(source, STEPS, BATCH, INPUTS), "y": draw(source, STEPS, BATCH, OUTPUTS) / 2}
    losses, oracle, single = {}, {}, {}
    for name, options in CASES.items():
        losses[f"losses.{name}"], *trained = train(start, options, torch.float64)
        _, *in_single = train(start, options, torch.float32)
        oracle.update({f"weight.{name}": trained[0], f"bias.{name}": trained[1]})
        single.update({f"weight.{name}": in_single[0], f"bias.{name}": in_single[1]})
    tensors = {**losses, **{name: value.float() for name, value in {**start, **oracle}.items()}}
    return tensors, oracle, single


def main():
    parser = argparse.ArgumentParser(description="Makes the SGD fixture with PyTorch.")
    parser.add_argument("--output", type=pathlib.Path, default=DEFAULT_PATH)
    parser.add_argument("--check", action="store_true", help="compare with the stored file, write nothing")
    options = parser.parse_args()
    tensors, oracle, single = make_fixture()
    for name in CASES:
        losses = tensors[f"losses.{name}"]
        distance = max(largest_distance(oracle, single, f"{kind}.{name}")[0] for kind in ("weight", "bias"))
        print(f"{name:18} loss {losses[0].item():.6f} to {losses[-1].item():.6f}, "
              f"PyTorch's own FP32 within {distance:.1e} of FP64")
    if options.check:
        fault = check(options.output, tensors)
        print(fault or f"{options.output.name}: as computed here")
        return 1 if fault else 0
    metadata = {"steps": STEPS, "learning_rate": LEARNING_RATE, "made_by": "bench/peers/sgd_fixture.py",
                **{name: json.dumps(settings) for name, settings in CASES.items()}}
    write_safetensors(options.output, tensors, {name: str(value) for name, value in metadata.items()})
    print(f"wrote {options.output.name} ({options.output.stat().st_size / 1000:.0f} kB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
