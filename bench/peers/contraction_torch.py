#!/usr/bin/python3
"""torch.matmul at the shapes of bench/contraction.cpp, alternating with that benchmark, shape by shape.

Usage, from the root of the repository after a release build: bench/peers/contraction_torch.py [--rounds 3] [--threads 2]
                                                              [--program build/bench_contraction] [--large]
Prints for each shape the median GFLOP/s of both, by wall time. --large adds the shapes with 50,304 columns.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch

TOKENS = 4096
SHAPES = [(768, 768), (2304, 768), (3072, 768), (768, 3072)]
PASSES = ("forward", "dX", "dW")


def torch_seconds(which, out, inner, calls):
    x = torch.randn(TOKENS, inner)
    w = torch.randn(out, inner)
    dy = torch.randn(TOKENS, out)
    work = {
        "forward": lambda: torch.matmul(x, w.t()),
        "dX": lambda: torch.matmul(dy, w),
        "dW": lambda: torch.matmul(dy.t(), x),
    }[which]
    work()
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def mantissa_seconds(program, which, out, inner, calls, threads):
    environment = dict(os.environ, BENCH_CALLS=str(calls), BENCH_THREADS=str(threads))
    name = f"avx512/{which}/N:{out}/K:{inner}/"
    run = subprocess.run(
        [program, f"--benchmark_filter=^{name}", "--benchmark_format=json"],
        env=environment, check=True, capture_output=True, text=True)
    return [json.loads(run.stdout)["benchmarks"][0]["median_ms"] * 1e-3]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/bench_contraction")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, median of {options.rounds} alternating rounds of 3 calls")
    for which in PASSES:
        for out, inner in SHAPES + ([(50304, 768)] if options.large else []):
            theirs, ours = [], []
            for _ in range(options.rounds):
                theirs += torch_seconds(which, out, inner, 3)
                ours += mantissa_seconds(options.program, which, out, inner, 3, options.threads)
            flops = 2e-9 * TOKENS * out * inner
            a, b = flops / statistics.median(ours), flops / statistics.median(theirs)
            print(f"{which:8} N {out:5} K {inner:5}: mantissa {a:6.1f} GFLOP/s, torch {b:6.1f}, ratio {a / b:.2f}", flush=True)


if __name__ == "__main__":
    main()
