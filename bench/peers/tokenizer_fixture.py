#!/usr/bin/env python3
"""Writes tests/data/tokenizer_fixture.json: what tiktoken makes of 10,000 random and awkward strings, which
tests/data/tokenizer_peer_test.cpp compares with ours.

    pip install tiktoken tokenizers
    python bench/peers/tokenizer_fixture.py GPT2_DIR TEXT

GPT2_DIR holds encoder.json and vocab.bpe, TEXT is tinyshakespeare.txt. The strings are not stored: both sides make
them from the same generator (string_number below and in the test), and a hash of the token ids of each is kept. The
file also holds a hash of the character class of every Unicode scalar as tiktoken's regular expression sees it, and
one of the merges that Hugging Face's trainer learns from TEXT.
"""
import importlib.metadata
import json
import pathlib
import sys

import tiktoken
import tokenizers

SPLIT = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
STRINGS = 10_000
TRAINED_VOCABULARY = 4_000
MASK = (1 << 64) - 1

FRAGMENTS = [
    " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u0085", "\u2003", "\u3000", "\u180e",
    "\u200b", "\u200d", "\ufeff", "\u0000", "\u001c", "\u001f", "\u000b", "'", "''", "'s", "'S", "'t", "'re", "'ve",
    "'m", "'ll", "'d", "'LL", "' s", " 's", "\u2019s", "don't", "we've", "I'm", "they'll", "he'd", "the", " the", "The",
    "hello", " world", "Hello world", "a", " a", "aaaa", "1", " 1", "12", "2024", "3.14", "1,000", "\u00b2", "\u00bd",
    "\u2167", "\u0664", "\u4e09", ".", "...", "!", "?!", "--", "(", ")", "[]", "{};", "/*", "*/", "//", "http://x.y/z?q=1",
    "_", "__init__", "#include <x>", "<|endoftext|>", "<|end", "|>", "\u00e9", "e\u0301", "na\u00efve", "stra\u00dfe",
    "\u0130", "\u03a3\u03c2", "\u043f\u0440\u0438\u0432\u0435\u0442", " \u043c\u0438\u0440", "\u05e9\u05dc\u05d5\u05dd",
    "\u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u4f60\u597d\u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f", "\uc548\ub155", "\U0001f600", "\U0001f468\u200d\U0001f469",
    "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001d49c", "\U00020000", "\ufffd", "\uffff", "\U0010ffff", "\ue000",
]
RANGES = [[0x00, 0x7F], [0x20, 0x7E], [0x80, 0x24F], [0x370, 0x52F], [0x590, 0x6FF], [0x900, 0x97F], [0x2000, 0x206F],
          [0x2150, 0x218F], [0x3000, 0x30FF], [0x4E00, 0x9FFF], [0xA000, 0xABFF], [0x1F300, 0x1FAFF], [0x10000, 0x1FFFF],
          [0x0, 0xD7FF], [0xE000, 0x10FFFF]]


class Random:
    """splitmix64 (Steele, Lea and Flood 2014)."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % bound


def string_number(i):
    random = Random(i)
    text = ""
    for _ in range(1 + random.below(12)):
        kind = random.below(4)
        if kind < 2:
            text += FRAGMENTS[random.below(len(FRAGMENTS))]
        elif kind == 2:
            first, last = RANGES[random.below(len(RANGES))]
            for _ in range(1 + random.below(6)):
                text += chr(first + random.below(last - first + 1))
        else:
            fragment = FRAGMENTS[random.below(len(FRAGMENTS))]
            text += fragment * (1 + random.below(40))
    return text


def fnv(data, start=0xCBF29CE484222325):
    for byte in data:
        start = ((start ^ byte) * 0x100000001B3) & MASK
    return start


def hash_of_ids(ids):
    return fnv(b"".join(i.to_bytes(4, "little") for i in ids))


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
    directory, text = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
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
