#!/usr/bin/python3
"""Writes tests/fixtures/groups.safetensors: 50 steps of a small network by PyTorch in FP64, with frozen parameters,
groups with their own rate and decay, and averaged weights (`torch.optim.swa_utils.AveragedModel`).

The network is mean((W3 tanh(W2 tanh(W1 x)) - y)^2) with biases, as in tests/train/parameter_groups_test.cpp: `first`
is frozen, `head` has three times the rate and a decay of 0.05, other biases half the rate and no decay, what is left
a decay of 0.1. By AdamW, and by SGD with Nesterov's momentum. All starts from numbers that FP32 holds exactly and is
rounded to FP32 once, on storing; the same in FP32 is made beside it and its distance printed.

Needs PyTorch (`pip install torch`). `--check` compares with the stored file instead of writing it.
"""
import argparse
import pathlib
import random
import sys

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fixture_file import check, largest_distance, write_safetensors

STEPS, BATCH, SIZES, RATE, SEED = 50, 6, {"first": (5, 8), "second": (8, 7), "head": (7, 3)}, 0.02, 20190508
PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/groups.safetensors"
OPTIMIZERS = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=RATE, momentum=0.9, nesterov=True),
}


def draw(source, *shape, scale=1.0):
    """FP64 numbers that FP32 holds exactly."""
    values = [scale * source.gauss(0, 1) for _ in range(torch.Size(shape).numel())]
    return torch.tensor(values, dtype=torch.float32).double().reshape(shape)


class Network(torch.nn.Module):
    def __init__(self, start, dtype):
        super().__init__()
        for name, (inputs, outputs) in SIZES.items():
            layer = torch.nn.Linear(inputs, outputs, dtype=dtype)
            layer.load_state_dict({part: start[f"{name}.{part}"].to(dtype) for part in ("weight", "bias")})
            self.add_module(name, layer)

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def groups_of(network):
    network.first.requires_grad_(False)
    return [{"params": network.head.parameters(), "lr": 3 * RATE, "weight_decay": 0.05},
            {"params": [network.second.bias], "lr": 0.5 * RATE, "weight_decay": 0.0},
            {"params": [network.second.weight], "weight_decay": 0.1}]


def train(optimizer_of, start, dtype):
    """Losses of the steps; the parameters, and their averages, after the last."""
    network = Network(start, dtype)
    averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    optimizer = optimizer_of(groups_of(network))
    losses = []
    for x, y in zip(start["x"].to(dtype), start["y"].to(dtype)):
        loss = ((network(x) - y)**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update_parameters(network)
        losses.append(loss.item())
    return (torch.tensor(losses, dtype=torch.float64),
            {**{name: value.detach() for name, value in network.named_parameters()},
             **{f"average.{name}": value.detach() for name, value in averaged.module.named_parameters()}})


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true")
    only_check = arguments.parse_args().check
    torch.set_num_threads(1)
    source = random.Random(SEED)
    start = {"x": draw(source, STEPS, BATCH, 5), "y": draw(source, STEPS, BATCH, 3, scale=0.5)}
    for name, (inputs, outputs) in SIZES.items():
        start[f"{name}.weight"] = draw(source, outputs, inputs, scale=0.5)
        start[f"{name}.bias"] = draw(source, outputs, scale=0.5)
    losses, oracle, single = {}, {}, {}
    for case, optimizer_of in OPTIMIZERS.items():
        losses[f"losses.{case}"], trained = train(optimizer_of, start, torch.float64)
        in_single = train(optimizer_of, start, torch.float32)[1]
        oracle.update({f"{case}.{name}": value for name, value in trained.items()})
        single.update({f"{case}.{name}": value for name, value in in_single.items()})
    tensors = {**losses, **{name: value.float() for name, value in {**start, **oracle}.items()}}
    for case in OPTIMIZERS:
        distance, name = largest_distance(oracle, single, case)
        print(f"{case}: FP32 lands {distance:.1e} from FP64, at {name}")
    if only_check:
        wrong = check(PATH, tensors)
        print(wrong or f"{PATH} is what PyTorch {torch.__version__} computes")
        return wrong is not None
    write_safetensors(PATH, tensors, {"torch": torch.__version__, "steps": str(STEPS)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
