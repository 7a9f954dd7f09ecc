#!/usr/bin/env python3
"""What other work on the machine costs a step, and what more threads than cores do: two programs in turns.

bench/busy.py --text FILE [--program build/mantissa] [--against OLD] [--rounds 9] [--cases idle,threads,busy,ranks]

Prints the median of each case, the programs interleaved run by run, and the spread of each: the middle half of the
rounds. The machine must be idle otherwise. `busy` holds core 0 with a process that never sleeps. `ranks` needs mpirun.
"""
import argparse, json, os, pathlib, statistics, subprocess, sys, tempfile

IMAGES = 32
# One recipe for both programs: defaults differ from 248ad45 on, and a clipped update waits for all gradients.
RECIPE = ["--policy", "bf16", "--passes", "all", "--clip", "1", "--warmup", "20"]
NETWORK = ["--model", "gpt2-tiny", *RECIPE]


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def train_ms(program, options, folder, steps, launcher=()):
    """Median milliseconds of a step, behind the first quarter of them."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    run([*launcher, program, "train", *options, "--steps", str(steps), "--log", str(log), "--quiet"])
    times = [json.loads(line)["ms"] for line in log.read_text().splitlines() if '"ms"' in line]
    return statistics.median(times[len(times) // 4:])


def bench_ms(program, options, folder):
    """Milliseconds of a batch of `bench`, the median of its iterations."""
    report = folder / "bench.json"
    run([program, "bench", *options, "--quiet", "--json", str(report)])
    said = json.loads(report.read_text())["results"][0]
    return 1000 * IMAGES / statistics.median(said["images_per_second"])


def generate_ms(program, checkpoint, length, folder):
    """Milliseconds of a token behind the prompt."""
    report = folder / "generate.json"
    run([program, "generate", "--checkpoint", checkpoint, "--prompt", "The king", "--length", str(length), "--policy",
         "bf16", "--threads", "2", "--quiet", "--json", str(report)])
    return 1000 / json.loads(report.read_text())["tokens_per_second"]


def cases_of(arguments, folder, checkpoints):
    text = ["--text", arguments.text]
    small = lambda threads, steps=80: lambda p: train_ms(p, [*NETWORK, *text, "--threads", str(threads)], folder, steps)
    ranks = lambda count: lambda p: train_ms(
        p, [*NETWORK, *text, "--threads", "1"], folder, 40,
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(count)])
    tokens = lambda name, length: lambda p: generate_ms(p, checkpoints[name], length, folder)
    groups = {
        "idle": {
            "gpt2-tiny, 2 threads": small(2),
            "gpt2-tiny, 1 thread": small(1, 40),
            "gpt2-124m at 1 x 256": lambda p: train_ms(
                p, ["--model", "gpt2-124m", *text, "--batch", "1", "--sequence", "256", *RECIPE,
                    "--vocabulary", "50257", "--threads", "2"], folder, 12),
            "ResNet20, 32 images": lambda p: bench_ms(
                p, ["--model", "ResNet20", "--batch-size", str(IMAGES), "--policy", "bf16", "--num-iters", "8", "--threads",
                    "2"], folder),
            "a token of gpt2-tiny": tokens("gpt2-tiny", 100),
            "a token of gpt2-124m": tokens("gpt2-124m", 60)},
        "threads": {f"gpt2-tiny, {threads} threads": small(threads) for threads in (3, 4, 8)},
        "busy": {"gpt2-tiny, 2 threads, a core busy": small(2), "a token of gpt2-tiny, a core busy": tokens(
            "gpt2-tiny", 100), "gpt2-tiny, 1 thread, a core busy": small(1, 40)},
        "ranks": {f"{count} ranks of 1 thread": ranks(count) for count in (2, 4)}}
    return {(group, name): case for group in arguments.cases.split(",") for name, case in groups[group].items()}


def write_checkpoints(arguments, folder):
    """Folders of models that were trained one step, which is all that timing needs."""
    made = {}
    for name in ("gpt2-tiny", "gpt2-124m"):
        made[name] = folder / name
        run([arguments.against or arguments.program, "train", "--model", name, "--text", arguments.text, "--batch", "1",
             "--sequence", "64", "--steps", "1", "--checkpoint", str(made[name]), "--quiet"])
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, help="a text to train on")
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--against", help="another program, run in turns with the first")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cases", default="idle,threads,busy,ranks")
    arguments = parser.parse_args()
    programs = [arguments.against, arguments.program] if arguments.against else [arguments.program]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cases = cases_of(arguments, folder, write_checkpoints(arguments, folder))
        print("medians of {} runs in ms, beside the middle half of the runs: {}".format(
            arguments.rounds, ", ".join(programs)), flush=True)
        for (group, name), case in cases.items():
            busy = subprocess.Popen(["taskset", "-c", "0", "sh", "-c", "while :; do :; done"]) if group == "busy" else None
            try:
                times = [[] for _ in programs]
                for round_ in range(arguments.rounds):
                    for which in range(len(programs)):
                        which = (which + round_) % len(programs)
                        times[which].append(case(programs[which]))
            finally:
                if busy:
                    busy.kill()
                    busy.wait()
            cells = []
            for of_program in times:
                low, middle, high = statistics.quantiles(of_program, n=4)
                cells.append(f"{middle:9.4g} ({low:.4g}-{high:.4g})")
            ratio = f"  x {statistics.median(times[1]) / statistics.median(times[0]):.3f}" if len(programs) == 2 else ""
            print(f"{name:36}" + " ".join(f"{cell:28}" for cell in cells) + ratio, flush=True)


if __name__ == "__main__":
    main()
