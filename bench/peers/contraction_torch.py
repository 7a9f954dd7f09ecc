#!/usr/bin/python3
"""torch.matmul at the shapes of bench/contraction.cpp, alternating with that benchmark, shape by shape.

Usage, from the root of the repository after a release build: bench/peers/contraction_torch.py [--rounds 3] [--threads 2]
                                                [--program build/bench_contraction] [--types f32,bf16] [--large]
Prints for each shape the median GFLOP/s of both, by wall time: mantissa from plain operands and from packed ones. In
BF16 torch's gradient of the weight is BF16 as well, ours FP32. --large adds the shapes with 50,304 columns.
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
CALLS = 3


def torch_seconds(which, dtype, out, inner, calls):
    x = torch.randn(TOKENS, inner).to(dtype)
    w = torch.randn(out, inner).to(dtype)
    dy = torch.randn(TOKENS, out).to(dtype)
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


# The prefix of the benchmark's names; BF16 runs on the unit that this CPU has for it.
UNITS = {"f32": "avx512", "bf16": "[a-z0-9_]+/bf16"}
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def mantissa_seconds(options, which, dtype, out, inner, packed):
    environment = dict(os.environ, BENCH_CALLS=str(CALLS), BENCH_THREADS=str(options.threads))
    name = f"^{UNITS[dtype]}/{which}/N:{out}/K:{inner}{'/packed' if packed else ''}/iterations"
    run = subprocess.run(
        [options.program, f"--benchmark_filter={name}", "--benchmark_format=json"],
        env=environment, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)["benchmarks"][0]["median_ms"] * 1e-3


def compare(options, which, dtype, out, inner):
    theirs, plain, packed = [], [], []
    for _ in range(options.rounds):
        theirs += torch_seconds(which, TYPES[dtype], out, inner, CALLS)
        plain.append(mantissa_seconds(options, which, dtype, out, inner, False))
        packed.append(mantissa_seconds(options, which, dtype, out, inner, True))
    flops = 2e-9 * TOKENS * out * inner
    ours, ready, other = (flops / statistics.median(seconds) for seconds in (plain, packed, theirs))
    print(f"{dtype:4} {which:8} N {out:5} K {inner:5}: mantissa {ours:6.1f} GFLOP/s, packed {ready:6.1f}, torch {other:6.1f}, "
          f"ratio {ours / other:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/bench_contraction")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, median of {options.rounds} alternating rounds of {CALLS} calls")
    for dtype in options.types.split(","):
        for which in PASSES:
            for out, inner in SHAPES + ([(50304, 768)] if options.large else []):
                compare(options, which, dtype, out, inner)


if __name__ == "__main__":
    main()
