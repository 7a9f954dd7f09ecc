#!/usr/bin/env python3
"""A table of how fast a text becomes tokens on one thread: mantissa's program beside Hugging Face's `tokenizers`, in turn,
with GPT-2's tokenizer and with those of tests/data/tokenizer_kinds.json. Each number is the best of some runs.

    pip install tokenizers
    python bench/peers/tokenizer_speed.py TEXT --gpt2 FOLDER        FOLDER: GPT-2's encoder.json and vocab.bpe

`--before PROGRAM` adds the program of an earlier revision, where it reads the tokenizer.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}

import tokenizers  # noqa: E402 (it reads these variables when it is loaded)
from tokenizers import AddedToken, decoders, models, pre_tokenizers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def gpt2(folder):
    vocabulary = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, [tuple(line.split(" ")) for line in lines if line]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    return json.loads(tokenizer.to_str())


def seconds_of_program(program, folder, text):
    """None where it does not read the tokenizer."""
    out = folder / "count.json"
    run = subprocess.run([program, "tokenize", "--count", text, "--tokenizer", folder / "tokenizer.json", "--threads", "1",
                          "--quiet", "--json", out], capture_output=True, check=False)
    return json.loads(out.read_text())["seconds"] if run.returncode == 0 else None


def seconds_of_library(tokenizer, lines):
    start = time.perf_counter()
    tokenizer.encode_batch(lines, add_special_tokens=False)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--gpt2", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/mantissa")
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--only", default="", help="the kinds whose names hold this")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    kinds = {"GPT-2's own": gpt2(options.gpt2)} if options.gpt2 else {}
    stored = json.loads((ROOT / "tests/data/tokenizer_kinds.json").read_text())["tokenizers"]
    kinds |= {name: kind["json"] for name, kind in stored.items()}
    text = options.text.read_text(encoding="utf-8")
    lines, size = text.splitlines(keepends=True), len(text.encode()) / 1e6
    programs = [program for program in (options.program, options.before) if program]
    print(f"tokenizers {tokenizers.__version__}, {options.text.name}, {size:.2f} MB, best of {options.repeats}, MB/s")
    print("| tokenizer | mantissa | tokenizers | ratio |" + (" before | ratio |" if options.before else ""))
    for name, kind in kinds.items():
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "tokenizer.json").write_text(json.dumps(kind))
            library = tokenizers.Tokenizer.from_str(json.dumps(kind))
            runs = [[] for _ in range(len(programs) + 1)]
            for _ in range(options.repeats):
                runs[-1].append(seconds_of_library(library, lines))
                for program, taken in zip(programs, runs):
                    for _ in range(3):  # as a run is a tenth of the library's
                        taken.append(seconds_of_program(program, folder, options.text))
        best = [size / min(taken) if None not in taken else None for taken in runs]
        row = f"| {name} | {best[0]:.1f} | {best[-1]:.1f} | {best[0] / best[-1]:.1f} |"
        if options.before:
            row += f" {best[1]:.1f} | {best[0] / best[1]:.2f} |" if best[1] else " refused | |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
