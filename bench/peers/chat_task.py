#!/usr/bin/env python3
"""Teaches a model of 10 M parameters a rule by chats, from nothing, in mantissa and in PyTorch, and counts the answers to
chats that were kept apart.

    bench/peers/chat_task.py [--seeds 1,2,3] [--steps 500] [--threads 2] [--only mantissa]

A system message is the rule, `=`, `+` or `-`; the user says four letters; the answer is these, or each one's successor,
or the letter before each. Each chat has two turns, and no word that is asked in a kept chat is asked in training.
mantissa trains with `train --chats` and answers through `generate --chat`. PyTorch trains transformers' LLaMA of the
same config.json on the ids and masks that `tokenize --chats` shows, packed as we pack, by the same recipe, and answers
through transformers' own reading of the template. Both draw weights and order by themselves, so only seeds as a whole
can be compared. A chat counts as right where the whole answer is. The status is 1 if an answer of mantissa's seeds is
right in less than 95 %, or their mean lies outside of PyTorch's seeds, widened by a standard error of the count. Needs
`pip install torch transformers numpy`.
"""
import argparse
import json
import math
import pathlib
import random
import statistics
import string
import tempfile
import time

import tokenizers
import torch
import transformers

import mantissa_program

SEQUENCE, BATCH, CHATS, ASKED, LETTERS = 112, 4, 6000, 400, 4
PEAK, LEAST, WARMUP, BETAS, DECAY, CLIP = 2e-3, 1e-4, 30, (0.9, 0.95), 0.1, 1.0
SIZES = ["--model", "llama-tiny", "--layers", 3, "--heads", 8, "--channels", 544, "--context", SEQUENCE]
RULES = {"=": 0, "+": 1, "-": -1}
SPECIALS = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = ("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def answer_to(rule, word):
    return "".join(chr((ord(x) - ord("a") + RULES[rule]) % 26 + ord("a")) for x in word)


def chats_of(words, draw):
    """Chats with two turns, of two words each."""
    for first, second in zip(words[::2], words[1::2]):
        rule = draw.choice(list(RULES))
        messages = [{"role": "system", "content": rule}]
        for word in (first, second):
            messages += [{"role": "user", "content": word}, {"role": "assistant", "content": answer_to(rule, word)}]
        yield messages


def write_data(folder):
    """Chats for training, chats that end with a question, and the answers to these."""
    draw = random.Random(1)
    places = draw.sample(range(26 ** LETTERS), 2 * (CHATS + ASKED))
    words = ["".join(string.ascii_lowercase[place // 26 ** i % 26] for i in range(LETTERS)) for place in places]
    chats = list(chats_of(words, draw))
    lines = [json.dumps({"messages": chat}) + "\n" for chat in chats[:CHATS]]
    (folder / "train.jsonl").write_text("".join(lines))
    kept = chats[CHATS:]
    (folder / "asked.jsonl").write_text("".join(json.dumps({"messages": chat[:-1]}) + "\n" for chat in kept))
    return [chat[:-1] for chat in kept], [chat[-1]["content"] for chat in kept]


def write_tokenizer(folder):
    """Bytes and the special tokens, as a BPE without merges."""
    folder.mkdir()
    vocabulary = {letter: i for i, letter in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}
    added = [{"id": len(vocabulary) + i, "content": text, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False} for i, text in enumerate(SPECIALS)]
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": split, "post_processor": None, "decoder": split,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIALS[0], "chat_template": TEMPLATE}))


def by_mantissa(options, folder, seed):
    """The answers, and the folder of the model."""
    made = folder / f"mantissa-{seed}"
    mantissa_program.train(
        options.program, folder, *SIZES, "--tokenizer", folder / "tokenizer", "--chats", folder / "train.jsonl",
        "--sequence", SEQUENCE, "--batch", BATCH, "--steps", options.steps, "--learning-rate", PEAK,
        "--min-learning-rate", LEAST, "--warmup", WARMUP, "--betas", *BETAS, "--weight-decay", DECAY, "--clip", CLIP,
        "--policy", "fp32", "--seed", seed, "--threads", options.threads, "--checkpoint", made, order="random")
    report = mantissa_program.generate(options.program, folder, "--checkpoint", made, "--chat", folder / "asked.jsonl",
                                       "--temperature", 0, "--batch", 64, "--threads", options.threads)
    return [text["text"] for text in report["texts"]]


def packed(chats):
    """Inputs, targets, documents and positions [sequences, T]: the longest chat first, each into the fullest sequence
    that has room."""
    rows, room = [], []
    for chat in sorted(chats, key=lambda chat: -len(chat["tokens"])):
        size = len(chat["tokens"])
        place = min((i for i in range(max(0, len(rows) - 64), len(rows)) if room[i] >= size), key=lambda i: room[i],
                    default=len(rows))
        if place == len(rows):
            rows.append([])
            room.append(SEQUENCE)
        rows[place].append(chat)
        room[place] -= size
    tensors = torch.zeros(4, len(rows), SEQUENCE, dtype=torch.long)
    tensors[1] = -100
    tensors[2] = torch.arange(SEQUENCE) + SEQUENCE  # what is left over sees itself alone
    for row, chats_of_row in enumerate(rows):
        at = 0
        for document, chat in enumerate(chats_of_row):
            size, ids = len(chat["tokens"]), torch.tensor(chat["tokens"])
            trained = torch.tensor(chat["trained"], dtype=torch.bool)
            tensors[0, row, at:at + size] = ids
            tensors[1, row, at:at + size - 1] = ids.masked_fill(~trained, -100)[1:]
            tensors[2, row, at:at + size] = document
            tensors[3, row, at:at + size] = torch.arange(size)
            at += size
    return tensors


def rate_at(step, steps):
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    return LEAST + 0.5 * (PEAK - LEAST) * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP)))


def by_torch(options, folder, seed, rows, asked):
    """The answers."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig.from_pretrained(folder / "sizes", attn_implementation="sdpa", use_cache=False)
    model = transformers.LlamaForCausalLM(config).train()
    matrices = [value for value in model.parameters() if value.dim() > 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY},
                                   {"params": [value for value in model.parameters() if value.dim() == 1],
                                    "weight_decay": 0.0}], lr=PEAK, betas=BETAS)
    order = torch.cat([torch.randperm(rows.shape[1]) for _ in range(1 + options.steps * BATCH // rows.shape[1])])
    earlier = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).tril()
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, options.steps)
        inputs, targets, documents, positions = rows[:, order[step * BATCH:(step + 1) * BATCH]]
        seen = (documents[:, :, None] == documents[:, None, :]) & earlier
        optimizer.zero_grad(set_to_none=True)
        logits = model(input_ids=inputs, attention_mask=seen[:, None], position_ids=positions).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer")
    prompts = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
    ids = torch.tensor(prompts)  # all have as many tokens
    model.eval()
    with torch.no_grad():
        for _ in range(LETTERS + 1):
            ids = torch.cat([ids, model(input_ids=ids).logits[:, -1:].argmax(-1)], 1)
    texts = [tokenizer.decode(row[len(prompts[0]):]) for row in ids]
    return [text.split(SPECIALS[0])[0] if SPECIALS[0] in text else "" for text in texts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("mantissa", "torch"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    shares = {name: [] for name in ("mantissa", "torch") if options.only in (None, name)}
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        asked, answers = write_data(folder)
        write_tokenizer(folder / "tokenizer")
        data = ["--chats", folder / "train.jsonl", "--tokenizer", folder / "tokenizer"]
        mantissa_program.train(options.program, folder, *SIZES, *data, "--steps", 1, "--checkpoint", folder / "sizes")
        mantissa_program.run(options.program, "tokenize", *data, "--show", CHATS, "--json", folder / "chats.json")
        rows = packed(json.loads((folder / "chats.json").read_text())["shown"])
        parameters = transformers.LlamaForCausalLM(
            transformers.LlamaConfig.from_pretrained(folder / "sizes")).num_parameters()
        print(f"{parameters / 1e6:.2f} M parameters, {CHATS} chats in {rows.shape[1]} sequences of {SEQUENCE}, "
              f"{options.steps} steps of {BATCH}; {ASKED} chats asked; FP32, PyTorch {torch.__version__}, transformers "
              f"{transformers.__version__}", flush=True)
        for seed in map(int, options.seeds.split(",")):
            for name, all_of in shares.items():
                began = time.monotonic()
                given = by_mantissa(options, folder, seed) if name == "mantissa" else \
                    by_torch(options, folder, seed, rows, asked)
                right = sum(a == b for a, b in zip(given, answers, strict=True))
                all_of.append(right / ASKED)
                print(f"seed {seed}: {name:8} {right} of {ASKED} answered right ({right / ASKED:.1%}), "
                      f"{time.monotonic() - began:.0f} s", flush=True)
    for name, all_of in shares.items():
        print(f"{name:8} mean {statistics.mean(all_of):.2%}, {min(all_of):.2%} to {max(all_of):.2%}")
    if len(shares) < 2:
        return 0
    mean = statistics.mean(shares["mantissa"])
    error = math.sqrt(max(mean * (1 - mean), 1 / ASKED) / ASKED)
    near = min(shares["torch"]) - error <= mean <= max(shares["torch"]) + error
    return 0 if near and min(shares["mantissa"]) >= 0.95 else 1


if __name__ == "__main__":
    raise SystemExit(main())
