#!/usr/bin/env python3
"""Writes tests/data/llama_tokenizers.json: small tokenizers of each kind that LLaMAs have, as tokenizer.json spells
them, and hashes of what Hugging Face's `tokenizers` makes of 10,000 random and awkward strings, and of the text that it
makes of these tokens again. tests/data/llama_tokenizers_test.cpp compares them with ours.

    pip install tokenizers
    python bench/peers/llama_tokenizer_fixture.py TEXT        TEXT: what the merges are learnt from

`--check` compares with the stored file instead of writing it.
"""
import argparse
import importlib.metadata
import json
import pathlib

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from awkward_strings import FRAGMENTS, RANGES, fnv, hash_of_ids, string_number

STRINGS, VOCABULARY, SPACE = 10_000, 600, "\u2581"
SPECIALS = ["<unk>", "<s>", "</s>"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "tests/data/llama_tokenizers.json"


def learn(text, pre_tokenizer, alphabet, limit):
    """Vocabulary and merges, without special tokens."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=VOCABULARY, limit_alphabet=limit,
                                                              initial_alphabet=alphabet, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), model["merges"]


def added(first_id):
    return [{"id": first_id + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True} for i, token in enumerate(SPECIALS)]


def template(first_id):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [first_id + 1], "tokens": ["<s>"]}}}


def sentencepiece(words, merges, normalizer, pre_tokenizer):
    """As LLaMA 2's: specials, then the bytes, then what was learnt."""
    tokens = SPECIALS + [f"<0x{byte:02X}>" for byte in range(256)] + words
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(0), "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": template(0),
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}


def byte_level(words, merges):
    """As LLaMA 3's: bytes and what was learnt, then specials."""
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    # A token that is there as a whole only: no merge makes it.
    words = words + ["\u0120Capulet"]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(len(words)),
            "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_]},
            "post_processor": {"type": "Sequence", "processors": [
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                template(len(words))]},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                      "vocab": {token: i for i, token in enumerate(words)}, "merges": merges}}


def make_tokenizers(text):
    metaspace = lambda scheme, split: {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme,
                                       "split": split}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    legacy = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]}
    # Fewer characters than the text has: even some of its own fall back to bytes.
    words, merges = learn(text, pre_tokenizers.Metaspace(), [SPACE], 50)
    # Merges across spaces, as a vocabulary learnt without cuts has them.
    lines = text.replace(" ", SPACE)[:200_000]
    across, across_merges = learn(lines, pre_tokenizers.Split("\n", "isolated"), [SPACE], 50)
    spelled, spelled_merges = learn(text, pre_tokenizers.ByteLevel(add_prefix_space=False),
                                    pre_tokenizers.ByteLevel.alphabet(), 1000)
    return {"sentencepiece": sentencepiece(words, merges, legacy, None),
            "metaspace at the start": sentencepiece(words, merges, None, metaspace("first", False)),
            "metaspace, split": sentencepiece(words, merges, None, metaspace("always", True)),
            "tokens across spaces": sentencepiece(across, across_merges, legacy, None),
            "byte level": byte_level(spelled, spelled_merges)}


def text_number(i):
    """Every third string has special tokens and visible spaces in it."""
    text = string_number(i)
    return text if i % 3 else f"{text}</s>{SPACE}{string_number(i + 1)}<s> {SPACE}"


def hashes(specification):
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(specification))
    encoded, decoded = "", ""
    for i in range(STRINGS):
        ids = tokenizer.encode(text_number(i), add_special_tokens=False).ids
        encoded += f"{hash_of_ids(ids) >> 48:04x}"
        decoded += f"{fnv(tokenizer.decode(ids, skip_special_tokens=False).encode()) >> 48:04x}"
    return {"json": specification, "first": tokenizer.encode("a").ids, "encoded": encoded, "decoded": decoded}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="compare with the stored file, write nothing")
    options = parser.parse_args()
    made = make_tokenizers(options.text.read_text(encoding="utf-8"))
    fixture = {"made_by": f"tokenizers {importlib.metadata.version('tokenizers')}", "fragments": FRAGMENTS,
               "ranges": RANGES, "tokenizers": {name: hashes(specification) for name, specification in made.items()}}
    text = json.dumps(fixture, separators=(",", ":")) + "\n"
    if options.check:
        same = json.loads(FIXTURE.read_text())["tokenizers"] == json.loads(text)["tokenizers"]
        print(f"{FIXTURE.name}: {'as computed here' if same else 'DIFFERS'}")
        return 0 if same else 1
    FIXTURE.write_text(text)
    print(f"{FIXTURE.name}: {FIXTURE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
