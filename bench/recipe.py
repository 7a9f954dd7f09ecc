#!/usr/bin/env python3
"""What the recipe of `train` does to a first curve: the default model from several seeds on several texts, under each
recipe. A rise is how far the mean of ten losses in a row comes to lie above its least so far; the loss is that of the
validation behind the last step.

Usage: bench/recipe.py [--program FILE] [--steps N] [--seeds N,N] [--texts FILE,FILE] RECIPE ...
A RECIPE is one word of options as typed to train, "" the defaults; a FILE "-" is the text that train has by itself.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOGETHER = 10


def run(program, steps, seed, text, recipe):
    """The losses of all steps, and the last validation loss."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "run.json"
        command = [program, "train", "--quiet", "--threads", "1", "--seed", str(seed), "--steps", str(steps),
                   "--validate-every", str(steps), "--json", str(report)]
        command += ([] if text == "-" else ["--text", text]) + shlex.split(recipe)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{shlex.join(command)}: {done.stderr.strip()}")
        found = json.loads(report.read_text())
        return [step["loss"] for step in found["steps"]], found["validation"][-1]["loss"]


def rise_of(losses):
    """The most that the mean of ten losses in a row lies above its least so far."""
    least, most = float("inf"), 0.0
    for end in range(TOGETHER, len(losses) + 1):
        mean = statistics.fmean(losses[end - TOGETHER:end])
        least = min(least, mean)
        most = max(most, mean - least)
    return most


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", default=str(ROOT / "build" / "mantissa"))
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--seeds", default="1337,1,2,3,4")
    arguments.add_argument("--texts", default="-")
    arguments.add_argument("recipes", nargs="+", metavar="RECIPE")
    given = arguments.parse_args()
    seeds, texts = given.seeds.split(","), given.texts.split(",")
    print(f"{given.steps} steps, seeds {', '.join(seeds)}; of each text: the rise of each seed; the mean of the last "
          "validation losses (each)")
    for recipe in given.recipes:
        print(f"\nrecipe: {recipe or '(none)'}")
        rises, means = [], []
        for text in texts:
            runs = [run(given.program, given.steps, seed, text, recipe) for seed in seeds]
            of_text, losses = [rise_of(steps) for steps, _ in runs], [loss for _, loss in runs]
            rises += of_text
            means.append(statistics.fmean(losses))
            name = "(default text)" if text == "-" else pathlib.Path(text).name
            print(f"  {name:<20} rises {' '.join(f'{rise:.2f}' for rise in of_text)}   loss {means[-1]:.4f} "
                  f"({' '.join(f'{loss:.4f}' for loss in losses)})", flush=True)
        print(f"  {'all':<20} greatest rise {max(rises):.2f}   mean loss {statistics.fmean(means):.4f}", flush=True)


if __name__ == "__main__":
    main()
