#!/usr/bin/env python3
"""Every rung of the ladder beside the same rung of another build, usually an older one: steps and plans.

    bench/beside_build.py OTHER_PROGRAM [--program build/mantissa] [--rounds 4] [--ladder "--model llama-15m"]
    bench/beside_build.py OTHER_BENCH --program build/bench_kernels --kernels [--rounds 9]

Both programs run `mantissa ladder` with the options given in turns, whoever was first before being second now. The table has
each rung's median of the rounds' steps, and the ratio: the median of the rounds' own ratios, above 1 where this build takes
longer. `itself` is the same of each other round of this build beside the one before it: what the machine alone does.
Plans are those with kept kernels, the least of all rounds; a run before the first round makes the kernels and is not
counted. Fails where a rung takes more than 1.02 of the other's time and more than what the machine alone does.

With --kernels both are `bench_kernels`, this one's source built beside the other's library. Each row is then an operation
on shapes, with the kernel that plans of either build take first. Fails where the geometric mean of the speeds, the other's
being 1, is under 1, or one of them under 0.93.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

MOST = 1.02
LEAST = 0.93
KERNEL = re.compile(r"(.{81}) (.*) [0-9.]+ ms, ([0-9.]+) GB/s, again ")


def run(program, options):
    """Milliseconds of a step and of a plan, by rung."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ladder.json"
        command = [program, "ladder", *options, "--quiet", "--json", str(path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return {rung["name"]: (rung["ms_per_step"], rung["build_ms"]) for rung in json.loads(path.read_text())["rungs"]}


def speeds(program):
    """The rows of one turn of bench_kernels: the operation with its shapes, the kernel that plans take, its GB/s."""
    done = subprocess.run([program], check=True, capture_output=True, text=True, env={**os.environ, "BENCH_TURNS": "1"})
    return [(row[1], row[2], float(row[3])) for row in map(KERNEL.match, done.stdout.splitlines()) if row]


def compare_kernels(programs, rounds):
    found = {who: [] for who in programs}
    for turn in range(rounds):
        for who in list(programs) if turn % 2 == 0 else list(programs)[::-1]:
            found[who].append(speeds(programs[who]))
    print(f"{'operation':81}  this, GB/s  other, GB/s  speed  itself  kernels")
    all_speeds = []
    for runs in zip(*found["this"], *found["other"], strict=True):
        this, other = ([row[2] for row in part] for part in (runs[:rounds], runs[rounds:]))
        speed = statistics.median(ours / theirs for ours, theirs in zip(this, other))
        itself = statistics.median(max(pair) / min(pair) for pair in zip(this, this[1:]))
        all_speeds.append(speed)
        print(f"{runs[0][0]}  {statistics.median(this):10.2f}  {statistics.median(other):11.2f}  {speed:5.2f}  {itself:6.2f}"
              f"  {runs[0][1]} beside {runs[-1][1]}")
    mean = statistics.geometric_mean(all_speeds)
    print(f"geometric mean {mean:.3f}, least {min(all_speeds):.2f}")
    if mean < 1 or min(all_speeds) < LEAST:
        sys.exit("slower")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("other")
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--ladder", type=shlex.split, default=[])
    options = parser.parse_args()
    programs = {"this": options.program, "other": options.other}
    if options.kernels:
        compare_kernels(programs, options.rounds or 9)
        return
    for program in programs.values():
        run(program, options.ladder)
    found = {who: [] for who in programs}
    for turn in range(options.rounds or 4):
        for who in list(programs) if turn % 2 == 0 else list(programs)[::-1]:
            found[who].append(run(programs[who], options.ladder))
    print("rung          this ms   other ms  ratio  itself   plan, this ms  plan, other ms")
    slower = []
    for rung in (name for name in found["this"][0] if name in found["other"][0]):
        steps = {who: [each[rung][0] for each in runs] for who, runs in found.items()}
        plans = {who: min(each[rung][1] for each in runs) for who, runs in found.items()}
        ratio = statistics.median(this / other for this, other in zip(steps["this"], steps["other"]))
        itself = max((max(pair) / min(pair) for pair in zip(steps["this"], steps["this"][1:])), default=1)
        print(f"{rung:12} {statistics.median(steps['this']):9.1f}  {statistics.median(steps['other']):9.1f}  {ratio:5.3f}"
              f"   {itself:5.3f} {plans['this']:15.0f} {plans['other']:15.0f}")
        if ratio > max(MOST, itself):
            slower.append(rung)
    if slower:
        sys.exit(f"slower: {', '.join(slower)}")


if __name__ == "__main__":
    main()
