#!/usr/bin/env python3
"""How the cost of training grows: tokens a second, MFU and memory over the model, the tokens of a step, the sequence and
the threads. Each row is a run of `train` by itself: the median of its steps after the first.

Usage: bench/growth.py [PART ...]      parts: models, tokens, sequence, threads; all of them if none is named
GROWTH_SECONDS (6): steps are added until a run is about so long.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build" / "mantissa"
SECONDS = float(os.environ.get("GROWTH_SECONDS", "6"))
MODELS = ("gpt2-tiny", "gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1558m")


def train(options, steps):
    """What a run wrote for machines, and its last line of errors where it ended with one."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "run.json"
        command = [str(PROGRAM), "train", "--quiet", "--learning-rate", "1e-4", "--steps", str(steps), "--json",
                   str(file)] + [str(option) for option in options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return None, (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return json.loads(file.read_text()), ""


def row(name, options):
    report, error = train(options, 2)
    if report:
        seconds = report["steps"][1]["ms"] / 1e3
        if SECONDS > 3 * seconds:
            report, error = train(options, 1 + max(3, min(200, round(SECONDS / seconds))))
    if not report:
        print(f"{name:>28}  {error.removeprefix('mantissa: ')}", flush=True)
        return
    steps = report["steps"][1:]
    median = {key: statistics.median(step[key] for step in steps) for key in ("ms", "tokens_per_second", "mfu")}
    print(f"{name:>28} {median['ms']:10.1f} ms {median['tokens_per_second']:9.0f} tokens/s  MFU {100 * median['mfu']:5.1f} %"
          f" {report['peak_resident_bytes'] / 1e6:9.0f} MB", flush=True)


def models():
    for model in MODELS:
        sequence = 256 if model == "gpt2-tiny" else 1024
        row(f"{model} 1 x {sequence}", ["--model", model, "--batch", 1, "--sequence", sequence])


def tokens():
    for batch, sequence, accumulate in ((1, 128, 1), (1, 256, 1), (1, 512, 1), (1, 1024, 1), (2, 1024, 1), (4, 1024, 1),
                                        (4, 1024, 2), (4, 1024, 4), (4, 1024, 16)):
        row(f"{accumulate} x {batch} x {sequence}", ["--model", "gpt2-124m", "--batch", batch, "--sequence", sequence,
                                                     "--accumulate", accumulate])


def sequence():
    for length in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384):
        batch = max(1, 4096 // length)
        row(f"{batch} x {length}", ["--model", "gpt2-124m", "--context", 16384, "--batch", batch, "--sequence", length])


def threads():
    for model, batch, length in (("gpt2-tiny", 8, 256), ("gpt2-124m", 1, 128), ("gpt2-124m", 4, 1024)):
        for count in (1, 2):
            row(f"{model} {batch} x {length}, {count}", ["--model", model, "--batch", batch, "--sequence", length,
                                                         "--threads", count])


PARTS = {"models": (models, "over the model, one sequence a step"),
         "tokens": (tokens, "gpt2-124m over the tokens of a step: micro-batches x sequences x tokens"),
         "sequence": (sequence, "gpt2-124m over the sequence, 4096 tokens a step or one sequence"),
         "threads": (threads, "over threads: model, sequences x tokens, threads")}


def main():
    names = sys.argv[1:] or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"there is no part {unknown[0]}; parts are: {', '.join(PARTS)}")
    for name in names:
        part, title = PARTS[name]
        print(f"== {title}", flush=True)
        part()


main()
