#!/usr/bin/env python3
"""torch.matmul and oneDNN's matmul at the shapes of bench/contraction.cpp, alternating with that benchmark, shape by shape.

Usage, from the root of the repository after a release build:
    bench/peers/contraction.py [--rounds 3] [--calls 3] [--threads 2] [--types f32,bf16] [--isa avx512] [--no-large]
                               [--program build/bench_contraction]
Prints for each shape the median GFLOP/s of each, by wall time: mantissa and oneDNN from plain operands and from operands
in the layout that each prefers, torch from plain ones; last the FLOP-weighted means. In BF16 torch's gradient of the weight
is BF16 as well, the others' FP32. Without libdnnl-dev oneDNN's columns stay empty. --no-large leaves out 50,304 columns.
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import torch

TOKENS = 4096
SHAPES = [(768, 768), (2304, 768), (3072, 768), (768, 3072)]
LARGE = (50304, 768)
PASSES = ("forward", "dX", "dW")
CONTENDERS = ("mantissa", "torch", "oneDNN", "own layout")
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


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


def mantissa_seconds(options, which, dtype, out, inner):
    environment = dict(os.environ, BENCH_CALLS=str(options.calls), BENCH_THREADS=str(options.threads))
    # The prefix of the benchmark's names; BF16 runs on the unit that this CPU has for it.
    unit = options.isa if dtype == "f32" else "[a-z0-9_]+/bf16"
    name = f"^{unit}/{which}/N:{out}/K:{inner}/iterations"
    run = subprocess.run(
        [options.program, f"--benchmark_filter={name}", "--benchmark_format=json"],
        env=environment, check=True, capture_output=True, text=True)
    measured = json.loads(run.stdout)["benchmarks"][0]
    return measured["median_ms"] * 1e-3, measured["peak_GF"]


def compile_onednn(folder):
    """The program beside this script, or None without oneDNN's headers."""
    source = pathlib.Path(__file__).with_name("contraction_onednn.cpp")
    program = folder / "contraction_onednn"
    if not pathlib.Path("/usr/include/dnnl.hpp").exists() or not shutil.which("g++"):
        return None
    subprocess.run(["g++", "-std=c++20", "-O2", str(source), "-ldnnl", "-o", str(program)], check=True)
    return program


def onednn_seconds(options, program, which, dtype, out, inner):
    """Lists of seconds by name of the layout, `plain` and `own`, and the implementation that oneDNN named."""
    run = subprocess.run([program, which, dtype, str(out), str(inner), str(options.calls)], check=True, capture_output=True,
                         text=True, env=dict(os.environ, OMP_NUM_THREADS=str(options.threads)))
    lines = [line.split() for line in run.stdout.splitlines()]
    return {line[0]: [float(value) for value in line[2:]] for line in lines}, lines[0][1]


def compare(options, program, which, dtype, out, inner):
    """GFLOP/s of each contender, and what oneDNN and mantissa said of themselves."""
    seconds, peaks, chosen = collections.defaultdict(list), [], "-"
    for _ in range(options.rounds):
        seconds["torch"] += torch_seconds(which, TYPES[dtype], out, inner, options.calls)
        median, peak = mantissa_seconds(options, which, dtype, out, inner)
        seconds["mantissa"].append(median)
        peaks.append(peak)
        if program:
            theirs, chosen = onednn_seconds(options, program, which, dtype, out, inner)
            seconds["oneDNN"] += theirs["plain"]
            seconds["own layout"] += theirs["own"]
    flops = 2e-9 * TOKENS * out * inner
    rates = {name: flops / statistics.median(values) for name, values in seconds.items()}
    return flops, rates, max(peaks), chosen


def line(name, rates, peak, note=""):
    cells = "".join(f"{rates[c]:11.1f}" if c in rates else "          -" for c in CONTENDERS)
    share = rates["mantissa"] / peak
    ratio = rates["mantissa"] / max(rate for c, rate in rates.items() if c != "mantissa")
    print(f"{name:26}{cells}{peak:9.1f} {share:7.1%} {ratio:7.2f}  {note}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default="build/bench_contraction")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--isa", default="avx512", help="level of the FP32 kernels (default: %(default)s)")
    parser.add_argument("--no-large", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shapes = SHAPES if options.no_large else SHAPES + [LARGE]
    with tempfile.TemporaryDirectory() as folder:
        program = compile_onednn(pathlib.Path(folder))
        print(f"torch {torch.__version__}, {options.threads} threads, GFLOP/s, medians of {options.rounds} alternating rounds of "
              f"{options.calls} calls; share: ours over the peak measured beside it; "
              "ratio: ours over the best of theirs")
        print(f"{'':26}" + "".join(f"{c:>11}" for c in CONTENDERS) + f"{'peak':>9} {'share':>7} {'ratio':>7}  oneDNN ran")
        for dtype in options.types.split(","):
            spent, work, peaks = collections.defaultdict(float), 0.0, []
            for which in PASSES:
                for out, inner in shapes:
                    flops, rates, peak, chosen = compare(options, program, which, dtype, out, inner)
                    line(f"{dtype:4} {which:8} {out:5} x {inner:4}", rates, peak, chosen)
                    work += flops
                    peaks.append(peak)
                    for name, rate in rates.items():
                        spent[name] += flops / rate
            line(f"{dtype:4} FLOP-weighted mean", {name: work / seconds for name, seconds in spent.items()}, statistics.median(peaks))


if __name__ == "__main__":
    main()
