#!/usr/bin/env python3
"""Writes tests/data/tokenizer_fixture.json: what tiktoken makes of 10,000 random and awkward strings, which
tests/data/tokenizer_peer_test.cpp compares with ours.

    pip install tiktoken tokenizers
    python bench/peers/tokenizer_fixture.py GPT2_DIR TEXT

GPT2_DIR holds encoder.json and vocab.bpe, TEXT is tinyshakespeare.txt. The strings are not stored: both sides make
them from the same generator (awkward_strings.py, tests/data/awkward_strings.h), and a hash of the token ids of each is
kept. The file also holds a hash of the character class of every Unicode scalar as tiktoken's regular expression sees it, and
one of the merges that Hugging Face's trainer learns from TEXT.
"""
import argparse
import importlib.metadata
import json
import pathlib

import tiktoken
import tokenizers

from awkward_strings import FRAGMENTS, RANGES, fnv, hash_of_ids, string_number

SPLIT = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
STRINGS = 10_000
TRAINED_VOCABULARY = 4_000


def gpt2(directory):
    def spelled():
        own = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = [b for b in range(256) if b not in own]
        return {chr(b): b for b in own} | {chr(256 + i): b for i, b in enumerate(rest)}

    to_byte = spelled()
    entries = json.loads((directory / "encoder.json").read_text(encoding="utf-8"))
    ranks = {bytes(to_byte[c] for c in token): i for token, i in entries.items() if token != "<|endoftext|>"}
    return tiktoken.Encoding("gpt2", pat_str=SPLIT, mergeable_ranks=ranks,
                             special_tokens={"<|endoftext|>": entries["<|endoftext|>"]})


def hash_of_classes():
    """tiktoken says in which class a character is by what it joins: a letter, a number or a punctuation mark."""
    ranks = {bytes([b]): b for b in range(256)}
    for before in b"a1!":
        for byte in range(256):
            ranks[bytes([before, byte])] = len(ranks)
    probe = tiktoken.Encoding("probe", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={})
    classes = bytearray()
    for code_point in [*range(0xD800), *range(0xE000, 0x110000)]:
        joins = [probe.encode_ordinary(before + chr(code_point))[0] >= 256 for before in "!a1"]
        classes.append(joins.index(True) if any(joins) else 3)  # other, letter, number, space
    return fnv(classes)


def hash_of_trained_merges(text):
    trainer = tokenizers.ByteLevelBPETokenizer()
    trainer.train_from_iterator([text], vocab_size=TRAINED_VOCABULARY, min_frequency=2,
                                special_tokens=["<|endoftext|>"], show_progress=False)
    merges = json.loads(trainer.to_str())["model"]["merges"]
    return fnv("".join(f"{left} {right}\n" for left, right in merges).encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, help="with encoder.json and vocab.bpe")
    parser.add_argument("text", type=pathlib.Path, help="tinyshakespeare.txt")
    given = parser.parse_args()
    directory, text = given.directory, given.text
    encoding = gpt2(directory)
    other = tokenizers.ByteLevelBPETokenizer(str(directory / "encoder.json"), str(directory / "vocab.bpe"))
    hashes, disagreements = [], 0
    for i in range(STRINGS):
        ids = encoding.encode_ordinary(string_number(i))
        hashes.append(f"{hash_of_ids(ids) >> 32:08x}")
        disagreements += ids != other.encode(string_number(i)).ids
    shakespeare = text.read_text(encoding="utf-8")
    fixture = {
        "made_by": {name: importlib.metadata.version(name) for name in ("tiktoken", "tokenizers")},
        "fragments": FRAGMENTS,
        "ranges": RANGES,
        "hashes": "".join(hashes),
        "text_hash": f"{hash_of_ids(encoding.encode_ordinary(shakespeare)):016x}",
        "classes_hash": f"{hash_of_classes():016x}",
        "trained_vocabulary": TRAINED_VOCABULARY,
        "trained_merges_hash": f"{hash_of_trained_merges(shakespeare):016x}",
    }
    out = pathlib.Path(__file__).resolve().parents[2] / "tests/data/tokenizer_fixture.json"
    out.write_text(json.dumps(fixture, indent=1) + "\n")
    print(f"{out.name}: {out.stat().st_size} bytes; tiktoken and tokenizers differ on {disagreements} strings")


if __name__ == "__main__":
    main()
