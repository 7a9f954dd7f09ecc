#!/usr/bin/env python3
"""Every rung of the ladder beside the same rung of another build, usually an older one: steps and plans.

    bench/beside_build.py OTHER_PROGRAM [--program build/mantissa] [--rounds 4] [--ladder "--model llama-15m"]

Both programs run `mantissa ladder` with the options given in turns, whoever was first before being second now. The table has
each rung's median of the rounds' steps, and the ratio: the median of the rounds' own ratios, above 1 where this build takes
longer. `itself` is the same of each other round of this build beside the one before it: what the machine alone does.
Plans are those with kept kernels, the least of all rounds; a run before the first round makes the kernels and is not
counted. Fails where a rung takes more than 1.02 of the other's time and more than what the machine alone does.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

MOST = 1.02


def run(program, options):
    """Milliseconds of a step and of a plan, by rung."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ladder.json"
        command = [program, "ladder", *options, "--quiet", "--json", str(path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return {rung["name"]: (rung["ms_per_step"], rung["build_ms"]) for rung in json.loads(path.read_text())["rungs"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("other")
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--ladder", type=shlex.split, default=[])
    options = parser.parse_args()
    programs = {"this": options.program, "other": options.other}
    for program in programs.values():
        run(program, options.ladder)
    found = {who: [] for who in programs}
    for turn in range(options.rounds):
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
