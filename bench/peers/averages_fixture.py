#!/usr/bin/python3
"""Writes tests/fixtures/averages.safetensors: 50 steps of a small network with batch norms by PyTorch in FP64, and the
averages of its weights and running statistics as timm's ModelEmaV3 has them after steps 1, 2, ...

The network is the one of tests/train/averages_test.cpp: linear, batch norm, relu, linear, batch norm, linear, and
mean((output - y)^2); SGD with momentum. torch.optim.swa_utils.AveragedModel with use_buffers is fed beside it, and both
must agree.

Needs PyTorch and timm (`pip install torch timm`). `--check` compares with the stored file instead of writing it.
"""
import argparse
import pathlib
import random
import sys

import timm.utils
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fixture_file import check, largest_distance, write_safetensors

STEPS, BATCH, RATE, DECAY, SEED = 50, 8, 0.05, 0.9, 20261128
PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/averages.safetensors"


def draw(source, *shape, scale=1.0):
    """FP64 numbers that FP32 holds exactly."""
    values = [scale * source.gauss(0, 1) for _ in range(torch.Size(shape).numel())]
    return torch.tensor(values, dtype=torch.float32).double().reshape(shape)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm1 = torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8, momentum=0.25)
        self.second, self.norm2 = torch.nn.Linear(8, 7), torch.nn.BatchNorm1d(7, momentum=0.5)
        self.head = torch.nn.Linear(7, 3)

    def forward(self, x):
        return self.head(self.norm2(self.second(torch.relu(self.norm1(self.first(x))))))


def train(start):
    """Weights and statistics after the last step, and their averages."""
    network = Network().double()
    network.load_state_dict({name: start[name] for name in network.state_dict() if name in start}, strict=False)
    averages = timm.utils.ModelEmaV3(network, decay=DECAY)
    averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(DECAY), use_buffers=True)
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9)
    for step, (x, y) in enumerate(zip(start["x"], start["y"]), 1):
        loss = ((network(x) - y)**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averages.update(network, step=step)
        averaged.update_parameters(network)

    def numbers(prefix, module):
        return {prefix + name: value.detach() for name, value in module.state_dict().items() if value.is_floating_point()}

    by_timm, by_torch = numbers("average.", averages.module), numbers("average.", averaged.module)
    print(f"timm and torch are {largest_distance(by_timm, by_torch, '')[0]:.1e} apart")
    return {**numbers("trained.", network), **by_timm}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true")
    only_check = arguments.parse_args().check
    torch.set_num_threads(1)
    source = random.Random(SEED)
    start = {"x": draw(source, STEPS, BATCH, 5) + torch.arange(5), "y": draw(source, STEPS, BATCH, 3, scale=0.5)}
    for name, shape in {"first": (8, 5), "second": (7, 8), "head": (3, 7)}.items():
        start[f"{name}.weight"], start[f"{name}.bias"] = draw(source, *shape, scale=0.5), draw(source, shape[0], scale=0.5)
    start = {name: value.float().double() for name, value in start.items()}
    tensors = {name: value.float() for name, value in {**start, **train(start)}.items()}
    if only_check:
        wrong = check(PATH, tensors)
        print(wrong or f"{PATH} is what PyTorch {torch.__version__} and timm {timm.__version__} compute")
        return wrong is not None
    write_safetensors(PATH, tensors, {"torch": torch.__version__, "timm": timm.__version__, "steps": str(STEPS)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
