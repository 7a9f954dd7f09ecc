#!/usr/bin/env python3
"""Writes tests/data/text_ids.json: two tokenizers of each kind of tokenizer.json, eight texts, and the ids that Hugging
Face's `tokenizers` and `transformers` make of them, with special tokens found in texts and not. tests/cli/text_ids_test.cpp
holds every way in which text becomes ids to them.

    pip install tokenizers transformers
    python bench/peers/text_ids_fixture.py

`--check` compares with the stored file instead of writing it.
"""
import argparse
import importlib.metadata
import json
import pathlib
import tempfile

import tokenizers
from tokenizers import models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from llama_tokenizer_fixture import LLAMA3, SPACE

FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "tests/data/text_ids.json"
LEARNT = "the cat sat on the mat; the user asks the assistant, and the assistant answers the user.\n" * 4
TEXTS = [
    "The cat sat on the mat.",
    "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n",
    "  two  spaces, then <|im_end|>  two more",
    "<s>the user</s><s> the assistant</s>",
    "half of one: <|im_st and <|im_start|",
    "<|im_end|><|im_end|><|endoftext|>",
    "na\u00efve \u4f60\u597d \U0001f600" + SPACE + "visible\t\ttabs\r\n\r\n",
    "the end<|endoftext|>\nthe next<|begin_of_text|> one\n",
]


def learn(pre_tokenizer, alphabet, size):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator([LEARNT], trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet,
                                                                show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), model["merges"]


def added(specials, first_id):
    return [{"id": first_id + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True} for i, token in enumerate(specials)]


def template(token, token_id):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}}}


def byte_level(specials, begins=None, llama3=False, prefix=False, whole=False):
    words, merges = learn(pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.ByteLevel.alphabet(), 276)
    if whole:
        words = words + ["\u0120two"]  # no merge makes it
    level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": not llama3}
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(specials, len(words)),
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]} if llama3 else level,
            "post_processor": template(begins, len(words) + specials.index(begins)) if begins else
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": whole,
                      "vocab": {token: i for i, token in enumerate(words)}, "merges": merges}}


def byte_fallback(specials, begins=None, metaspace=None):
    words, merges = learn(pre_tokenizers.Metaspace(), [SPACE], 40)
    tokens = specials + [f"<0x{byte:02X}>" for byte in range(256)] + words
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    legacy = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(specials, 0),
            "normalizer": None if metaspace else legacy,
            "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": metaspace[0],
                              "split": metaspace[1]} if metaspace else None,
            "post_processor": template(begins, specials.index(begins)) if begins else None,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": specials[0], "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}


def make_tokenizers():
    """By name: tokenizer.json and tokenizer_config.json."""
    plain = {"tokenizer_class": "PreTrainedTokenizerFast"}
    chat = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    llama = ["<unk>", "<s>", "</s>"]
    return {
        "gpt2": (byte_level(["<|endoftext|>"]), {**plain, "eos_token": "<|endoftext|>"}),
        "gpt2 chat": (byte_level(chat), {**plain, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}),
        "llama3": (byte_level(["<|begin_of_text|>", "<|end_of_text|>"], "<|begin_of_text|>", llama3=True, whole=True),
                   {**plain, "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}),
        "llama3 chat": (byte_level(chat, llama3=True), {**plain, "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": False, "normalized": False,
                                                                "rstrip": False, "single_word": False, "special": True}}),
        "prefix space": (byte_level(["<|endoftext|>"], prefix=True), {**plain, "eos_token": "<|endoftext|>"}),
        "one token begins and ends": (byte_level(["</s>", "<s>"], "</s>", prefix=True),
                                      {**plain, "bos_token": "</s>", "eos_token": "</s>"}),
        "byte fallback": (byte_fallback(llama, "<s>"), {**plain, "bos_token": "<s>", "eos_token": "</s>"}),
        "byte fallback chat": (byte_fallback(llama + chat), {**plain, "eos_token": "<|im_end|>"}),
        "metaspace": (byte_fallback(llama, "<s>", ("first", False)), {**plain, "bos_token": "<s>", "eos_token": "</s>"}),
        "metaspace chat": (byte_fallback(llama + chat, "<s>", ("always", True)),
                           {**plain, "bos_token": "<s>", "eos_token": "<|im_end|>", "add_bos_token": False}),
    }


def ids_of(specification, config):
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(specification))
    found = [tokenizer.encode(text).ids for text in TEXTS]
    tokenizer.encode_special_tokens = True
    spelled = [tokenizer.encode(text).ids for text in TEXTS]
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(specification))
        (pathlib.Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
        auto = AutoTokenizer.from_pretrained(folder)
        auto_ids = [auto(text)["input_ids"] for text in TEXTS]
    # The word of add_bos_token counts for nothing where there is a tokenizer.json.
    if auto_ids != found:
        raise SystemExit(f"transformers and tokenizers disagree: {found} and {auto_ids}")
    return {"json": specification, "config": config, "tokens": found, "text": spelled, "end": auto.eos_token_id}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored file, write nothing")
    options = parser.parse_args()
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("tokenizers", "transformers")]
    fixture = {"made_by": versions, "texts": TEXTS,
               "tokenizers": {name: ids_of(*made) for name, made in make_tokenizers().items()}}
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
