#!/usr/bin/env python3
"""Prediction of one row by networks of 1 M parameters, fully connected layers, few and wide or many and narrow: eager
PyTorch beside `bench_prediction`, alternating. With --images, of one image of 224 x 224 pixels by ResNet50 v1.5, VGG19
and DenseNet121, in FP32 and in BF16 by autocast, channels-last: eager and compiled.

Usage, from the root of the repository after a release build: bench/peers/prediction.py [--images] [--rounds 5]
[--threads 1] [--calls 2000, or 20 images]
Prints the median microseconds of each, and the milliseconds from a file of weights to the first row's output. Needs
`pip install torch`, a build with benchmarks.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch

import networks_plain

NETWORKS = {"wide": [512, 1024, 512, 10], "narrow": [256] * 17}  # as in bench/prediction.cpp


def network_of(widths):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).eval()


def torch_microseconds(network, row, calls, autocast=False):
    seconds = []
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for _ in range(3):
            network(row)
        for _ in range(calls):
            start = time.perf_counter()
            network(row)
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1e6


def layers(options):
    """Name -> PyTorch's sides of a network, by name: a function of the number of calls gives microseconds."""
    networks = {name: network_of(widths) for name, widths in NETWORKS.items()}
    return {name: {"torch": lambda calls, name=name: torch_microseconds(
        networks[name], torch.full((1, NETWORKS[name][0]), 0.5), calls)} for name in NETWORKS}


def images(options):
    image = torch.full((1, 3, 224, 224), 0.5).contiguous(memory_format=torch.channels_last)
    found = {}
    for name in ("ResNet50v1.5", "VGG19", "DenseNet121"):
        network = networks_plain.draw(networks_plain.network(name), 1).eval().to(memory_format=torch.channels_last)
        for policy in ("fp32", "bf16"):
            compiled = torch.compile(network, dynamic=False)
            found[f"{name} {policy}"] = {
                side: lambda calls, of=of, bf16=policy == "bf16": torch_microseconds(of, image, calls, bf16)
                for side, of in (("torch", network), ("compiled", compiled))}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/bench_prediction")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--images", action="store_true")
    options = parser.parse_args()
    options.calls = options.calls or (20 if options.images else 2000)
    torch.set_num_threads(options.threads)
    networks = images(options) if options.images else layers(options)
    environment = dict(os.environ, BENCH_CALLS=str(options.calls), BENCH_THREADS=str(options.threads),
                       BENCH_IMAGES=str(int(options.images)), BENCH_STARTS="2" if options.images else "9")
    theirs, ours = {name: {side: [] for side in sides} for name, sides in networks.items()}, []
    for _ in range(options.rounds):
        for name, sides in networks.items():
            for side, microseconds in sides.items():
                theirs[name][side].append(microseconds(options.calls))
        ran = subprocess.run([options.program], env=environment, check=True, capture_output=True, text=True)
        ours.append(json.loads(ran.stdout))
    print(f"torch {torch.__version__}, {options.threads} threads, medians of {options.rounds} alternating rounds of "
          f"{options.calls} rows")
    for name, sides in theirs.items():
        mine, first, start = (statistics.median(each[name][what] for each in ours) for what in
                              ("us_a_row", "first_start_ms", "start_ms"))
        others = ", ".join(f"{side} {statistics.median(found):.1f} us (ratio {statistics.median(found) / mine:.2f})"
                           for side, found in sides.items())
        print(f"{name:17} one row {mine:.1f} us, {others}; from a file of weights to the first output {first:.1f} ms, "
              f"again {start:.1f} ms")


if __name__ == "__main__":
    main()
