#!/usr/bin/env python3
"""Prediction of one row by networks of 1 M parameters, fully connected layers, few and wide or many and narrow: eager
PyTorch beside `bench_prediction`, alternating.

Usage, from the root of the repository after a release build: bench/peers/prediction.py [--rounds 5] [--threads 1]
Prints the median microseconds of both, and the milliseconds from a file of weights to the first row's output. Needs
`pip install torch`, a build with benchmarks.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch

NETWORKS = {"wide": [512, 1024, 512, 10], "narrow": [256] * 17}  # as in bench/prediction.cpp


def network_of(widths):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).eval()


def torch_microseconds(network, row, calls):
    seconds = []
    with torch.inference_mode():
        network(row)
        for _ in range(calls):
            start = time.perf_counter()
            network(row)
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/bench_prediction")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    networks = {name: network_of(widths) for name, widths in NETWORKS.items()}
    environment = dict(os.environ, BENCH_CALLS=str(options.calls), BENCH_THREADS=str(options.threads))
    theirs, ours = {name: [] for name in NETWORKS}, []
    for _ in range(options.rounds):
        for name, network in networks.items():
            theirs[name].append(torch_microseconds(network, torch.full((1, NETWORKS[name][0]), 0.5), options.calls))
        ran = subprocess.run([options.program], env=environment, check=True, capture_output=True, text=True)
        ours.append(json.loads(ran.stdout))
    print(f"torch {torch.__version__}, {options.threads} threads, medians of {options.rounds} alternating rounds of "
          f"{options.calls} rows")
    for name, widths in NETWORKS.items():
        mine, first, start = (statistics.median(each[name][what] for each in ours) for what in
                              ("us_a_row", "first_start_ms", "start_ms"))
        other = statistics.median(theirs[name])
        print(f"{name:6} {len(widths) - 1:2} layers: one row {mine:6.1f} us, torch {other:6.1f} us, ratio "
              f"{mine / other:.2f}; from a file of weights to the first output {first:.1f} ms, again {start:.1f} ms")


if __name__ == "__main__":
    main()
