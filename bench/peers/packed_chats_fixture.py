#!/usr/bin/env python3
"""Writes tests/data/chat/packed_chats_fixture.json: chats of three families as transformers tokenizes them, with the
masks of its generation marks, and packed as TRL's collator does it. tests/data/chat/chat_encoder_test.cpp holds
mantissa to them, whose template has no marks.

    pip download --no-deps trl==1.16.*
    python bench/peers/packed_chats_fixture.py trl-1.16.0-py3-none-any.whl

`--check` compares with the stored file instead of writing it. The collator is taken out of the wheel, so that nothing
else of TRL need be installed. Which chats share a sequence is mantissa's choice (best fit decreasing, computed here by
hand); TRL's collator then joins these.
"""
import argparse
import ast
import json
import pathlib
import tempfile
import typing
import zipfile
from dataclasses import dataclass

import numpy
import torch
from transformers import AutoTokenizer
from transformers.data.data_collator import DataCollatorMixin
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "tests/data/chat/packed_chats_fixture.json"
SEQUENCE = 400

# MARK and END stand for generation marks, which the twin has and the plain template has not.
TEMPLATES = {
    "gpt2 chat":
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}MARK{{ m.content + "
        "'<|im_end|>' }}END{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "llama3 chat":
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|endoftext|>\\n\\n' }}{% if m.role == 'assistant' %}MARK"
        "{{ m.content|trim + '<|im_end|>' }}END{% else %}{{ m.content|trim + '<|im_end|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|endoftext|>\\n\\n' }}{% endif %}",
    "byte fallback chat":
        "{% for m in messages %}{% if m.role == 'assistant' %}MARK{{ ' ' + m.content + ' </s>' }}END{% else %}"
        "{{ '<s>[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}",
}
TURNS = ["The cat sat on the mat.", "  two  spaces ", "na\u00efve \u4f60\u597d \U0001f600", "", "a\nb\n", "the user asks",
         "x" * 40, "2 + 2 = 4"]


def chats():
    for first in range(len(TURNS)):
        pairs = 1 + first % 3
        messages = [{"role": "system", "content": "the cat"}] if first % 4 == 1 else []
        for turn in range(pairs):
            messages.append({"role": "user", "content": TURNS[(first + 3 * turn + 1) % len(TURNS)]})
            messages.append({"role": "assistant", "content": TURNS[(first + 2 * turn) % len(TURNS)]})
        yield messages


def collator_of(wheel):
    """TRL's collator and the function that it pads with, and nothing else of the wheel."""
    names = {"torch": torch, "np": numpy, "numpy": numpy, "dataclass": dataclass, "Any": typing.Any,
             "DataCollatorMixin": DataCollatorMixin}
    with zipfile.ZipFile(wheel) as files:
        for path, name in [("trl/trainer/utils.py", "pad"), ("trl/trainer/sft_trainer.py", "DataCollatorForLanguageModeling")]:
            tree = ast.parse(files.read(path))
            tree.body = [node for node in tree.body if getattr(node, "name", None) == name]
            exec(compile(tree, path, "exec"), names)
    return names["DataCollatorForLanguageModeling"](pad_token_id=0, padding_free=True)


def packed(sizes):
    """Places of chats by sequences: the longest first, each into the fullest that has room."""
    packs, room = [], []
    for chat in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        fits = [i for i in range(len(packs)) if room[i] >= sizes[chat]]
        place = min(fits, key=lambda i: (room[i], i), default=None)
        if place is None:
            packs.append([])
            room.append(SEQUENCE)
            place = len(packs) - 1
        packs[place].append(chat)
        room[place] -= sizes[chat]
    return packs


def family_of(name, kind, collator):
    template = TEMPLATES[name]
    marked = template.replace("MARK", "{% generation %}").replace("END", "{% endgeneration %}")
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(kind["json"]))
        (pathlib.Path(folder) / "tokenizer_config.json").write_text(json.dumps(kind["config"]))
        tokenizer = AutoTokenizer.from_pretrained(folder)
    plain = template.replace("MARK", "").replace("END", "")
    lines, crossing = [], 0
    for messages in chats():
        made = tokenizer.apply_chat_template(messages, chat_template=marked, return_dict=True,
                                             return_assistant_tokens_mask=True)
        ids, mask = list(made["input_ids"]), list(made["assistant_masks"])
        text = tokenizer.apply_chat_template(messages, chat_template=plain, tokenize=False)
        told = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        assert ids == told["input_ids"]
        # A token that begins before an answer and ends in it counts by its first character, transformers' by its last.
        _, marks = chat_template_utils._render_with_assistant_indices(
            chat_template_utils._compile_jinja_template(marked), messages=messages, tools=None, documents=None,
            add_generation_prompt=False)
        for begin, _ in marks:
            for i, (first, end) in enumerate(told["offset_mapping"]):
                if first < begin < end and mask[i]:
                    mask[i] = 0
                    crossing += 1
        assert len(ids) <= SEQUENCE, len(ids)
        lines.append({"record": json.dumps({"messages": messages}, ensure_ascii=False), "ids": ids, "mask": mask})
    packs = packed([len(line["ids"]) for line in lines])
    collated = []
    for pack in packs:
        batch = collator([{"input_ids": lines[i]["ids"],
                           "labels": [t if m else -100 for t, m in zip(lines[i]["ids"], lines[i]["mask"])]}
                          for i in pack])
        collated.append({key: batch[key][0].tolist() for key in ("input_ids", "labels", "position_ids")})
    print(f"{name}: {crossing} tokens across the border of an answer")
    return {"tokenizer": name, "template": plain, "chats": lines, "packs": packs, "collated": collated}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    kinds = json.loads((ROOT / "tests/data/text_ids.json").read_text())["tokenizers"]
    collator = collator_of(arguments.wheel)
    families = [family_of(name, kinds[name], collator) for name in TEMPLATES]
    text = json.dumps({"made_by": "bench/peers/packed_chats_fixture.py", "sequence": SEQUENCE, "families": families},
                      ensure_ascii=False, separators=(",", ":")) + "\n"
    if arguments.check:
        assert FIXTURE.read_text() == text, f"{FIXTURE}: another file would be written"
    else:
        FIXTURE.write_text(text)


main()
