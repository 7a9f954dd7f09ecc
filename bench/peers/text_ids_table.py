#!/usr/bin/env python3
"""Prints a table: each way in which a command turns text into ids, and for how many of the eight texts of
tests/data/text_ids.json it gives the ids (or, where it prints no ids, as many tokens as there are ids) of Hugging Face's
`tokenizers`, for two tokenizers of each kind; then these ids.

    python bench/peers/text_ids_table.py build/mantissa
"""
import argparse
import json
import pathlib
import re
import struct
import subprocess
import tempfile

FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "tests/data/text_ids.json"
MODEL = ("--model gpt2-tiny --passes none --policy fp32 --threads 1 --layers 1 --heads 1 --channels 8 --context 96 "
         "--vocabulary 320 --batch 1 --sequence 2 --steps 1 --validate-every 1").split()


class Ways:
    def __init__(self, program, folder, tokenizer, option):
        self.program, self.folder, self.option = program, folder, option
        self.tokenizer = ["--tokenizer", tokenizer]

    def run(self, *words):
        return subprocess.run([self.program, *map(str, words)], check=True, capture_output=True, text=True).stdout

    def report(self, *words):
        self.run(*words, "--quiet", "--json", self.folder / "out.json")
        return json.loads((self.folder / "out.json").read_text())

    def of_text(self, text, ids):
        """By way: whether it gives these ids, or as many."""
        file, shard, checkpoint = self.folder / "text.txt", self.folder / "shard.bin", self.folder / "run"
        file.write_bytes(text.encode())
        given = [*self.tokenizer, *self.option]
        found = {"tokenize --encode": self.run("tokenize", "--encode", file, *given).split() == [str(i) for i in ids],
                 "tokenize --count": self.report("tokenize", "--count", file, *given)["tokens"] == len(ids)}
        self.run("tokenize", "--encode", file, *given, "--out", shard, "--quiet")
        stored = shard.read_bytes()[1024:]
        found["tokenize --encode --out"] = list(struct.unpack(f"<{len(stored) // 2}H", stored)) == ids
        header = self.run("train", *MODEL, "--text", file, "--validation", file, *given, "--checkpoint", checkpoint)
        counts = [int(count) for count in re.findall(r" as (\d+) tokens of", header)]
        found["train --text"], found["train --validation"] = (count == len(ids) for count in counts)
        header = self.run("train", *MODEL, "--tokens", shard, "--validation", shard, *self.tokenizer)
        found["train --tokens"] = f"{len(ids)} tokens" in header
        generate = ["generate", "--policy", "fp32", "--length", 1, "--full-context", "slide", "--checkpoint", checkpoint]
        used = self.report(*generate, "--prompt", text, "--validation", file)
        found["generate --prompt"] = used["prompt_tokens"] == len(ids)
        found["generate --validation"] = used["validation"][0]["tokens"] == len(ids) - 1
        if "\n" not in text:
            (self.folder / "prompts").write_text(text + "\n")
            prompts = self.report(*generate, "--prompts", self.folder / "prompts")["texts"]
            found["generate --prompts"] = prompts[0]["prompt_tokens"] == len(ids)
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", type=pathlib.Path)
    options = parser.parse_args()
    fixture = json.loads(FIXTURE.read_text())
    columns, rows, wrong = [], {}, 0
    for name, kind in fixture["tokenizers"].items():
        for word in ("tokens", "text"):
            columns.append(f"{name}, {word}")
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                (folder / "tok").mkdir()
                (folder / "tok/tokenizer.json").write_text(json.dumps(kind["json"]))
                (folder / "tok/tokenizer_config.json").write_text(json.dumps(kind["config"]))
                option = [] if word == "tokens" else ["--special-tokens", "text"]
                ways = Ways(options.program.resolve(), folder, folder / "tok", option)
                for text, ids in zip(fixture["texts"], kind[word]):
                    for way, equal in ways.of_text(text, ids).items():
                        cell = rows.setdefault(way, {}).setdefault(columns[-1], [0, 0])
                        cell[0] += equal
                        cell[1] += 1
                        wrong += not equal
    print(f"texts that give the library's ids ({', '.join(fixture['made_by'])})\n")
    for column in columns:
        print(f"{column}: " + "; ".join(f"{way} {rows[way][column][0]} of {rows[way][column][1]}" for way in rows))
    print()
    for number, text in enumerate(fixture["texts"]):
        print(f"text {number}: {text!r}")
        for name, kind in fixture["tokenizers"].items():
            for word in ("tokens", "text"):
                print(f"  {name}, {word}: {' '.join(map(str, kind[word][number]))}")
    print(f"\n{wrong} different")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
