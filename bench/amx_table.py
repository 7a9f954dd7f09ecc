#!/usr/bin/env python3
"""The short table of bench/amx.sh, from the logs in a folder: what was asked of an AMX machine beside what was measured.

Usage: bench/amx_table.py FOLDER
A part whose log is not there, or that broke off, is a line that says so. Shares are of the peak measured around each
call; means are weighted by FLOPs.
"""
import json
import pathlib
import sys

PASSES = ("forward", "dX", "dW")
TOKENS = 4096


def benchmarks(folder, name):
    """The runs in a Google Benchmark file, by name without its endings, or None where there is no whole file."""
    try:
        runs = json.loads((folder / f"{name}.json").read_text())["benchmarks"]
    except (OSError, ValueError):
        return None
    return {run["name"].split("/iterations")[0]: run for run in runs}


def flops(run_name):
    sizes = dict(part.split(":") for part in run_name.split("/") if ":" in part)
    return 2 * TOKENS * int(sizes["N"]) * int(sizes["K"])


def linears(runs, unit, which):
    return {name.removeprefix(f"{unit}/"): run for name, run in runs.items() if name.startswith(f"{unit}/{which}/")}


def ladder_rows(folder):
    try:
        report = json.loads((folder / "ladder.json").read_text())
    except (OSError, ValueError):
        yield "ladder", "no result", ""
        return
    rungs = {rung["name"]: rung for rung in report["rungs"]}
    yield ("machine", f"{report['machine']['cpu']}, {report['machine']['isa']}", "")
    peaks = report["machine"]["peaks"]
    tile = peaks["bf16_tile_tflops"]
    yield ("peaks", f"FP32 {peaks['f32_fma_tflops'] * 1e3:.0f} GFLOP/s, BF16 "
           f"{'none' if tile is None else f'{tile:.2f} TFLOP/s'}, copy {peaks['copy_gbs']:.0f} GB/s", "")
    asked = {"tf32": "2.5 times", "fp16": "2.0 times", "loss": "7.5 times"}
    for name, rung in rungs.items():
        yield (f"ladder {name}", f"{rung['ms_per_step']:.0f} ms, {rung['speedup']:.2f} times the first, "
               f"{rung['step_speedup']:.2f} the one before, MFU {100 * rung['mfu']:.1f} %, of unit "
               f"{100 * rung['share_of_unit_peak']:.1f} %, {rung['peak_bytes'] / 1e6:.0f} MB, loss {rung['losses'][-1]:.4f}",
               asked.get(name, ""))


def contraction_rows(folder):
    runs = benchmarks(folder, "contraction")
    if not runs:
        yield "contraction", "no result", ""
        return
    asked = {("amx/bf16", "forward"): "0.53 to 0.60", ("amx/bf16", "dW"): "0.50"}
    for unit in ("amx/bf16", "avx512"):
        for which in PASSES:
            rows = linears(runs, unit, which)
            if not rows:
                continue
            # FLOPs over the time that they would take at the peak, over the time that they took.
            total = sum(flops(name) for name in rows)
            mean = total / sum(flops(name) / run["share"] for name, run in rows.items())
            least = min(rows, key=lambda name: rows[name]["share"])
            yield (f"{unit} {which}",
                   f"mean {mean:.2f} of peak, least {rows[least]['share']:.2f} ({least.split('/', 1)[1]})",
                   asked.get((unit, which), ""))
    product = linears(runs, "amx/bf16", "forward").get("forward/N:3072/K:768")
    if product:
        yield f"{TOKENS} x 3072 x 768", f"{product['median_ms']:.2f} ms, {product['share']:.2f} of peak", "5.5 ms, 0.60"
    varied = linears(runs, "amx/bf16", "varied")
    plain = varied.pop("varied/N:3072/K:768/plain", None)
    if plain:
        ratios = (f"{name.rsplit('/', 1)[1]} {run['median_ms'] / plain['median_ms']:.2f}" for name, run in varied.items())
        yield (f"{TOKENS} x 3072 x 768, varied", f"of {plain['median_ms']:.2f} ms: {', '.join(ratios)}",
               "bias at most 1.03, docs/cpu-kernels.md")
    for unit, times in (("amx/bf16", ""), ("amx/bf16x3", "3.5 times"), ("amx/f16", "3 times")):
        ratios = []
        for which in PASSES:
            ours, vectors = linears(runs, unit, which), linears(runs, "avx512", which)
            both = [name for name in ours if name in vectors]
            if both:
                ratios.append(sum(vectors[name]["median_ms"] for name in both) / sum(ours[name]["median_ms"] for name in both))
        if ratios:
            yield f"{unit} over FP32", ", ".join(f"{which} {ratio:.2f}" for which, ratio in zip(PASSES, ratios)), times


def single_rows(folder):
    runs = benchmarks(folder, "attention")
    for name, run in (runs or {}).items():
        if name.startswith("amx/"):
            yield (f"attention {name.removeprefix('amx/')}", f"{run['median_ms']:.2f} ms, {run['share']:.2f} of peak",
                   "6.7 ms" if "forward" in name else "16 ms")
    runs = benchmarks(folder, "rows")
    if runs:
        shares = {name.split("/2/")[1]: run["of_reading"] or run["of_copy"] for name, run in runs.items() if "/2/" in name}
        low = {name: share for name, share in shares.items() if share < 0.8}
        yield ("row kernels", f"{len(shares) - len(low)} of {len(shares)} at 0.80 of copy or reading or above",
               "; ".join(f"{name} {share:.2f}" for name, share in low.items()))
    runs = benchmarks(folder, "long_attention")
    for name, run in (runs or {}).items():
        if "speedup" in run:
            yield f"long attention {name}", f"two threads {run['speedup']:.2f} times one", "1.8 at T = 4,096"


def convolution_rows(folder):
    try:
        lines = (folder / "convolution.log").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if ": share of peak " in line:
            network, shares = line.split(": ", 1)
            yield f"convolutions of {network}", shares, ""


def peer_rows(folder):
    asked = {"peer_step": "3.0 times PyTorch's best", "peer_networks": "2.2, VGG19 2.2, DenseNet121 2.0 times"}
    for name in ("peer_step", "peer_networks", "peer_contraction", "peer_attention"):
        try:
            lines = (folder / f"{name}.log").read_text().splitlines()
        except OSError:
            continue
        yield name, f"{len(lines)} lines in {name}.log", asked.get(name, "")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    for rows in (ladder_rows, contraction_rows, convolution_rows, single_rows, peer_rows):
        for name, measured, asked in rows(folder):
            print(f"{name:38} {measured}" + (f"   [{asked}]" if asked else ""))


main()
