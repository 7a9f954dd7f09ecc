#!/usr/bin/env python3
"""Two ranks of one core beside one process of two cores: the same step of GPT-2, the same tokens, in turns.

    bench/ranks_beside_one.py [--model gpt2-124m] [--sequence 1024] [--rounds 4] [--steps 5] [--policy bf16]

Two ranks make a sequence each; one process makes both, as two micro-batches. So the numbers are the same, and a run that
prints other losses ends this one. Each round runs both, whoever was first before being second now; the first two steps of
a run are not counted. Prints tokens a second by the median of a run's steps, the median of the rounds' ratios, and what
states a process holds. Needs Open MPI, a build with its plug-in, and a machine that does nothing else.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

UNCOUNTED = 2


def run(command):
    """Losses as printed, seconds of a step, MB of states."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    text = done.stdout + done.stderr
    steps = re.findall(r"^step +\d+ \| loss ([0-9.]+) .*\| +([0-9.]+) (ms|s) \|", text, re.MULTILINE)
    states = re.search(r"= ([0-9.]+) state", text)
    if done.returncode != 0 or len(steps) <= UNCOUNTED or not states:
        sys.exit(f"{' '.join(command)}\n{text}")
    seconds = [float(time) * (1e-3 if unit == "ms" else 1) for _, time, unit in steps[UNCOUNTED:]]
    return [loss for loss, _, _ in steps], statistics.median(seconds), float(states[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--mpirun", default="mpirun.openmpi --allow-run-as-root --bind-to none")
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--policy", default="bf16")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        text = pathlib.Path(name) / "text"
        text.write_text("".join(f"the cat sat on the mat and saw the dog number {i}\n" for i in range(3000)))
        train = [options.program, "train", "--text", str(text), "--model", options.model, "--policy", options.policy,
                 "--sequence", str(options.sequence), "--batch", "1", "--steps", str(options.steps)]
        commands = {"two ranks": [*options.mpirun.split(), "-n", "2", *train],
                    "one process": [*train, "--accumulate", "2"]}
        ratios = []
        for turn in range(options.rounds):
            order = list(commands) if turn % 2 == 0 else list(commands)[::-1]
            found = {who: run(commands[who]) for who in order}
            if found["two ranks"][0] != found["one process"][0]:
                sys.exit(f"other losses: {found}")
            rates = {who: 2 * options.sequence / found[who][1] for who in commands}
            ratios.append(rates["two ranks"] / rates["one process"])
            print(f"round {turn}: " + ", ".join(f"{who} {rates[who]:.0f} tokens/s, {found[who][2]:.0f} MB of states"
                                                for who in commands) + f"; ratio {ratios[-1]:.3f}", flush=True)
        print(f"{options.model}, {options.policy}, 2 x {options.sequence}: two ranks over one process "
              f"{statistics.median(ratios):.3f} (least {min(ratios):.3f}, most {max(ratios):.3f}); the same losses")
    return 0


if __name__ == "__main__":
    sys.exit(main())
