#!/usr/bin/env python3
"""torch's scaled_dot_product_attention at the shapes of bench/attention.cpp, alternating with that benchmark.

Usage, from the root of the repository after a release build: bench/peers/attention_torch.py [--rounds 3] [--threads 2]
                                                              [--program build/bench_attention]
Where torch has no such function (before 2.0), the eager spelling stands in for it, and the first line says so.
Prints for each shape the median milliseconds of both, forward and forward with backward, by wall time.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch

# heads, positions, head size, causal, type: as in bench/attention.cpp
SHAPES = [(12, 1024, 64, True, "f32"), (12, 1024, 64, False, "f32"), (12, 1023, 80, True, "f32"),
          (1, 4096, 64, True, "f32"), (12, 1024, 64, True, "bf16")]
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def eager_attention(q, k, v, is_causal):
    scores = q @ k.transpose(-2, -1) / q.shape[-1]**0.5
    if is_causal:
        hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ v


ATTENTION = getattr(torch.nn.functional, "scaled_dot_product_attention", eager_attention)


def torch_seconds(shape, backward, calls):
    heads, positions, size, causal, dtype = shape
    q, k, v, grad = (torch.randn(1, heads, positions, size).to(TYPES[dtype]) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_(backward)

    def work():
        out = ATTENTION(q, k, v, is_causal=causal)
        if backward:
            torch.autograd.grad(out, (q, k, v), grad)

    work()
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def mantissa_seconds(program, shape, backward, calls, threads):
    heads, positions, size, causal, dtype = shape
    name = (f"/{'both' if backward else 'forward'}/{dtype}/N:{heads}/T:{positions}/D:{size}/"
            f"{'causal' if causal else 'all'}/")
    run = subprocess.run([program, f"--benchmark_filter={name}", "--benchmark_format=json"],
                         env=dict(os.environ, BENCH_CALLS=str(calls), BENCH_THREADS=str(threads)),
                         check=True, capture_output=True, text=True)
    # The program lists the highest level of this CPU first.
    return [json.loads(run.stdout)["benchmarks"][0]["median_ms"] * 1e-3]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/bench_attention")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {ATTENTION.__name__}, {options.threads} threads, median of {options.rounds} alternating rounds of 3 calls")
    for shape in SHAPES:
        for backward in (False, True):
            theirs, ours = [], []
            for _ in range(options.rounds):
                theirs += torch_seconds(shape, backward, 3)
                ours += mantissa_seconds(options.program, shape, backward, 3, options.threads)
            a, b = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
            heads, positions, size, causal, dtype = shape
            print(f"{'both' if backward else 'forward':7} {dtype:4} N {heads:2} T {positions} D {size} "
                  f"{'causal' if causal else 'all':6}: mantissa {a:7.1f} ms, torch {b:7.1f} ms, ratio {b / a:.2f}",
                  flush=True)


if __name__ == "__main__":
    main()
