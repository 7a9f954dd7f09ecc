#!/usr/bin/env python3
"""Trains in every policy below sixteen bits beside BF16, from several initial weights, by `mantissa numerics converge`.
Prints how far the mean of the last losses ends from BF16's, with its spread over the seeds, ordered, and beside it
what `mantissa numerics --policy` says of a short training: the share of numbers that become zero and saturate.

    bench/peers/short_converge.py [--text TEXT] [--parts tiny ten pictures]

Parts: `tiny` is gpt2-tiny for 2,000 steps under all policies, `ten` a GPT-2 of ten million parameters for 1,000 steps
under five: hours on two cores. `pictures` is a ResNet20 for 300 steps on pictures that bench/generate_images.py draws,
under all: less than a minute a policy and seed on one core. It reads no text, and says how many of 1,000 pictures that
were kept are named right.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ALL = "bf16,fp8,fp8-delayed,fp8-block,mxfp8,mxfp6,mxfp6-e2m3,mxfp4,mxfp4-up,nvfp4"
GENERATE = pathlib.Path(__file__).resolve().parents[1] / "generate_images.py"
PARTS = {"tiny": (["--model", "gpt2-tiny", "--batch", "4"], 2000, ALL),
         "ten": (["--model", "gpt2-tiny", "--layers", "6", "--heads", "6", "--channels", "384", "--batch", "4",
                  "--sequence", "256"], 1000, "bf16,fp8,mxfp8,nvfp4,mxfp4"),
         "pictures": (["--model", "ResNet20", "--batch", "32", "--learning-rate", "3e-3"], 300, ALL)}


def report(options, *arguments):
    """What the program writes with --json, whatever it concludes from it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        command = [options.program, "numerics", *arguments, "--quiet", "--json", path]
        ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if not path.exists():
            raise SystemExit(f"{' '.join(map(str, command))}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return json.loads(path.read_text())


def losses_of_rounding(options, model, policy):
    rounded = report(options, *model, "--policy", policy, "--steps", 50)["rounded"]
    numbers = sum(each["numbers"] for each in rounded)
    return [sum(each["numbers"] * each[what] for each in rounded) / numbers for what in ("flushed", "saturated")]


def run_part(options, name, pictures):
    model, steps, policies = PARTS[name]
    steps = options.steps or steps
    ends, recipe = {}, []
    if name == "pictures":
        subprocess.run([sys.executable, GENERATE, pictures], check=True)
        model = [*model, "--images", pictures]
        recipe = ["--min-learning-rate", 0, "--validate-every", steps]
    else:
        model = [*model, "--text", options.text]
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        made = report(options, "converge", *model, "--policies", policies, "--steps", steps, "--seed", seed,
                      "--seeds", 1, *recipe)
        for run in made["runs"]:
            gave_up = run["gave_up"] is not None
            ends.setdefault(run["policy"], []).append(None if gave_up else run["mean_of_last"])
            right = f", {100 * run['accuracies'][-1]:.1f} % right" if run.get("accuracies") else ""
            print(f"{name} seed {seed}: {run['policy']:12} "
                  f"{'gave up' if gave_up else format(run['mean_of_last'], '.4f') + right}", flush=True)
    rows = []
    for policy, means in ends.items():
        gaps = [mean - base for mean, base in zip(means, ends["bf16"]) if mean is not None]
        shares = losses_of_rounding(options, model, policy) if policy != "bf16" else [0, 0]
        rows.append((statistics.mean(gaps) if len(gaps) == len(means) else float("inf"),
                     statistics.stdev(gaps) if len(gaps) > 1 else 0.0, policy, shares))
    of_base = statistics.stdev(ends["bf16"]) if options.seeds > 1 else 0.0
    print(f"\n{name}: {steps} steps, {options.seeds} seeds; bf16 ends at {statistics.mean(ends['bf16']):.4f} +- {of_base:.4f}")
    print(f"{'policy':12} {'from bf16':>10} {'+-':>8} {'become zero':>12} {'saturate':>9}")
    for gap, spread, policy, (flushed, saturated) in sorted(rows):
        print(f"{policy:12} {gap:10.4f} {spread:8.4f} {100 * flushed:10.2f} % {100 * saturated:7.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--text", help="what tiny and ten learn")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1337)
    parser.add_argument("--steps", type=int, help="in place of the part's own")
    options = parser.parse_args()
    if not options.text and set(options.parts) != {"pictures"}:
        parser.error("tiny and ten learn a text: give --text, or --parts pictures")
    with tempfile.TemporaryDirectory() as pictures:
        for name in options.parts:
            run_part(options, name, pictures)


if __name__ == "__main__":
    main()
