#!/usr/bin/env python3
"""Writes tests/data/tokenizer_kinds.json: small tokenizers of the kinds that published models have, as tokenizer.json
spells them, and hashes of what Hugging Face's `tokenizers` makes of 100,000 awkward strings with added tokens in them,
and of the text that it makes of these tokens again. tests/data/tokenizer_kinds_test.cpp compares them with ours.

    pip install tokenizers sentencepiece
    python bench/peers/tokenizer_kinds_fixture.py TEXT        TEXT: what the merges are learnt from

`--check` compares with the stored file instead of writing it.
"""
import argparse
import importlib.metadata
import io
import json
import math
import pathlib
import struct
import tempfile
import unicodedata

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from awkward_strings import FRAGMENTS, RANGES, Random, fnv, hash_of_ids, string_number

STRINGS, BLOCK, VOCABULARY, SPACE = 100_000, 100, 600, "\u2581"
FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "tests/data/tokenizer_kinds.json"
# Combining marks, Hangul in all its forms, digits of many scripts, compatibility forms, kinds of spaces, cases.
MORE = ["\u0301", "\u0323\u0307", "\u0307\u0323", "a\u0328\u0301", "\u1e9b\u0323", "\u0344", "\u0345", "\u1100\u1161",
        "\u1100\u1161\u11a8", "\uac00\u11a8", "\u1161", "\u11a8", "\ud55c\uae00", "\u3131", "\uffa1", "\u0660\u0661", "\u06f5",
        "\u0967\u0968\u0969", "\u0e51\u0e52", "\uff11\uff12\uff13\uff14", "\U0001d7d8\U0001d7d9", "\u2460", "\u3007", "\u00bc",
        "\U00011de0", "\u0f2a", "\u1372", "\ufb01", "\ufb00t", "\u212b", "\u2126", "\u00c5", "A\u030a", "\uff21\uff22", "\ufdfa",
        "\u2002", "\u2009", "\u202f", "\u205f", "\u2028", "\u2029", "\u1680", "\u00a0\u00a0", "\x0b\x0c", "\r", "\r\n\r\n",
        "\u2581", "\u2581\u2581", " \u2581", "camelCase", "HTTPServer", "iPhone", "\u01c5", "\u02b0", "\u00aa", "\u00df", "\u017f",
        "'\u017f", "\u212a", "I'M", "'RE", "/", "//\n", "!\n\n", "?/\r\n", "\u0915\u093c", "\u0958", "\u05e9\u05c1", "\ufb2a",
        "\u0cca\u0cd5", "\u1b05\u1b35", "\U000110a5", "\U0001d15e", "\uf900", "\U0002f800", "\u0374", "\u037e", "\u1fef",
        "\u0340", "\u200b", "\u00ad", "1st", "x2y", "3,141.59", "0x1F", "\u216b", "\u0bf0"]
MORE_RANGES = [[0x300, 0x36F], [0x1100, 0x11FF], [0xAC00, 0xD7A3], [0x1E00, 0x1FFF], [0xFB00, 0xFDFF], [0xFE70, 0xFFEF],
               [0x2000, 0x200F], [0x660, 0x669], [0x1D7CE, 0x1D7FF], [0x2460, 0x24FF], [0xF900, 0xFAFF], [0x2F800, 0x2FA1D]]
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
QWEN2 = ANY_CASE + "|" + LETTERS + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
QWEN35 = (ANY_CASE + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES)
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ANY_CASE}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ANY_CASE}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES)


def character_map():
    """A table of SentencePiece's for a part of what its models map: NFKC of some ranges, pairs that compose, white space."""
    rules = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u200b": "", "\u00ad": "", "\u0640": " "}
    for first, last in [(0xA0, 0x24F), (0x2000, 0x206F), (0x2100, 0x218F), (0x1E00, 0x1EFF), (0xFF00, 0xFFDC), (0xFB00, 0xFB4F)]:
        for character in map(chr, range(first, last + 1)):
            into, apart = unicodedata.normalize("NFKC", character), unicodedata.normalize("NFD", character)
            if into != character:
                rules.setdefault(character, into)
            if len(apart) > 1 and unicodedata.normalize("NFC", apart) == character:
                rules.setdefault(apart, character)
    with tempfile.TemporaryDirectory() as folder:
        table, model = pathlib.Path(folder) / "rules.tsv", io.BytesIO()
        spelled = lambda text: " ".join(f"{ord(character):X}" for character in text)
        table.write_text("".join(f"{spelled(text)}\t{spelled(into)}\n" for text, into in rules.items()))
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["some words of a text"] * 20), model_writer=model, vocab_size=40, minloglevel=2,
            hard_vocab_limit=False, normalization_rule_tsv=str(table))
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def learn(text, pre_tokenizer, alphabet, limit):
    """The vocabulary in order and the merges."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=VOCABULARY, limit_alphabet=limit,
                                                              initial_alphabet=alphabet, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(merge) for merge in model["merges"]]


class Kinds:
    def __init__(self, text):
        self.spelled = learn(text, pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.ByteLevel.alphabet(),
                             1000)
        # Fewer characters than the text has: even some of its own fall back to bytes.
        self.words = learn(text, pre_tokenizers.Metaspace(), [SPACE], 50)

    def byte_level(self, steps, added, normalizer=None, processor=None, prefix=False, use_regex=True, whole=False):
        words, merges = self.spelled
        # A token that is there as a whole only: no merge makes it.
        vocabulary = {token: i for i, token in enumerate(["<|endoftext|>", *words, "\u0120Capulet", "\u0120\u0120\u0120"])}
        tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=whole))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [*steps, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)])
        tokenizer.decoder = decoders.ByteLevel()
        return finished(tokenizer, added, normalizer, processor or processors.ByteLevel(trim_offsets=False))

    def fallback(self, added, normalizer, pre_tokenizer, decoder, processor=None):
        words, merges = self.words
        tokens = ["<pad>", "<s>", "</s>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["\n", SPACE * 2, *words]
        merges = [*merges, (SPACE, SPACE)]
        tokenizer = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(dict.fromkeys(tokens))}, merges,
                                                    unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        if pre_tokenizer:
            tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoder
        return finished(tokenizer, added, normalizer, processor)

    def unigram(self, added, normalizer, pre_tokenizer, decoder, processor=None, falls_back=False):
        """Scores of a published model's kind: log-probabilities rounded to FP32, 0 for special tokens and bytes."""
        kept = ["<pad>", "<s>", "</s>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256) if falls_back]
        scores = {token: 0.0 for token in kept}
        for rank, word in enumerate([SPACE, "e", SPACE * 2, *self.words[0]]):
            scores.setdefault(word, struct.unpack("f", struct.pack("f", -math.log(rank + 3) - len(word) / 7))[0])
        tokenizer = tokenizers.Tokenizer(models.Unigram(list(scores.items()), 3, falls_back))
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoder
        return finished(tokenizer, added, normalizer, processor)

    def all(self):
        special = [AddedToken("<|endoftext|>", special=True, normalized=False)]
        chat = special + [AddedToken(text, special=True, normalized=False) for text in ("<|im_start|>", "<|im_end|>")]
        tools = chat + [AddedToken(text, special=False, normalized=False) for text in ("<tool_call>", "</tool_call>")]
        spaces = special + [AddedToken(" " * n, normalized=True) for n in range(2, 6)]
        strips = [AddedToken("<s>", special=True, normalized=False), AddedToken("<unk>", special=True, normalized=False),
                  AddedToken("</s>", special=True, normalized=False, rstrip=True),
                  AddedToken("<|user|>", special=True, normalized=False, rstrip=True)]
        gemma = [AddedToken(text, special=True, normalized=False) for text in ("<pad>", "<s>", "</s>", "<unk>")] + [
            AddedToken(text, special=False, normalized=False) for text in ("<unused0>", "<unused1>", "\n", "\n\n", SPACE * 2,
                                                                           "<h1>", "<h")]
        every = special + [AddedToken("<mask>", special=True, normalized=False, lstrip=True),
                           AddedToken("word", normalized=True, single_word=True),
                           AddedToken("both", normalized=False, lstrip=True, rstrip=True, single_word=True),
                           AddedToken("\u00c5ngstr\u00f6m", normalized=True), AddedToken("e\u0301", normalized=True),
                           AddedToken("  ", normalized=False), AddedToken(".\n", normalized=False, rstrip=True)]
        isolated = lambda expression: pre_tokenizers.Split(Regex(expression), "isolated")
        legacy = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
        metaspace = lambda scheme, split: pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
        text = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
        stripped = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
        meta = lambda scheme: decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)])
        metaspace_again = lambda scheme: decoders.Metaspace(prepend_scheme=scheme)
        runs = normalizers.Sequence([normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), SPACE)])
        begin = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
        around = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A $B", special_tokens=[("<s>", 1), ("</s>", 2)])
        ending = processors.TemplateProcessing(single="$A </s>", pair="$A $B", special_tokens=[("</s>", 2)])
        of_text = processors.TemplateProcessing(single="<|endoftext|> $A", pair="$A $B", special_tokens=[("<|endoftext|>", 0)])
        twice = processors.Sequence([processors.ByteLevel(trim_offsets=False), of_text])
        llama = lambda expression, added, **more: self.byte_level([isolated(expression)], added, use_regex=False, **more)
        return {
            "gpt2, opt": self.byte_level([], special, processor=of_text),
            "llama3, smollm3": llama(LLAMA3, chat, whole=True, processor=twice),
            "qwen2, qwen3": llama(QWEN2, tools, normalizer=normalizers.NFC()),
            "qwen3.5": llama(QWEN35, tools, normalizer=normalizers.NFC()),
            "smollm2, starcoder2": self.byte_level([pre_tokenizers.Digits(individual_digits=True)], chat),
            "cohere": self.byte_level([pre_tokenizers.Digits(individual_digits=True)], chat, normalizer=normalizers.NFC(),
                                      processor=of_text),
            "gpt_neox, olmo": self.byte_level([], spaces, normalizer=normalizers.NFC()),
            "phi4, olmo2: cl100k": llama(CL100K, chat),
            "o200k": llama(O200K, chat, whole=True),
            "llama2, tinyllama": self.fallback(strips[:2], legacy, None, stripped, begin),
            "mistral": self.fallback(strips[:2], None, metaspace("first", False), stripped, around),
            "phi3": self.fallback(strips, legacy, None, stripped, begin),
            "gemma": self.fallback(gemma, normalizers.Replace(" ", SPACE), pre_tokenizers.Split(" ", "merged_with_previous"),
                                   text, begin),
            "metaspace always": self.fallback(strips, normalizers.NFKC(), metaspace("always", True), meta("always")),
            "metaspace never": self.fallback(gemma, normalizers.NFD(), metaspace("never", True), meta("never")),
            "roberta, each flag": self.byte_level([], every, normalizer=normalizers.NFKD(), prefix=True,
                                                  processor=processors.RobertaProcessing(("<mask>", 1), ("<|endoftext|>", 0))),
            "t5, xlm-r: unigram": self.unigram(
                strips + [AddedToken("<extra_id_0>", special=True, normalized=False)],
                normalizers.Precompiled(character_map()),
                pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace("always", True)]),
                metaspace_again("always"), ending),
            "unigram with bytes": self.unigram(gemma, runs, metaspace("first", True), meta("first"), around, falls_back=True),
            "unigram of whole texts": self.unigram(strips, normalizers.NFKC(), metaspace("never", False), meta("never"),
                                                   falls_back=True),
            "bert's cuts": self.byte_level([pre_tokenizers.BertPreTokenizer()], chat, use_regex=False),
            "words": self.byte_level([pre_tokenizers.Whitespace()], chat, use_regex=False),
            "punctuation": self.byte_level([pre_tokenizers.Punctuation("merged_with_previous"),
                                            pre_tokenizers.CharDelimiterSplit("e")], chat),
            "each behaviour": self.byte_level(
                [pre_tokenizers.Split(Regex(r"[A-Z]+|\p{Mn}"), "merged_with_next"),
                 pre_tokenizers.Split(Regex(r"\p{P}|\s{2}"), "merged_with_previous"),
                 pre_tokenizers.Split("the", "removed"), pre_tokenizers.Digits(individual_digits=False),
                 pre_tokenizers.Split(Regex(r"[\p{L}&&[^a-z]]"), "contiguous"),
                 pre_tokenizers.Split(Regex("[^a-m]+"), "removed", invert=True)], special, prefix=True,
                normalizer=normalizers.Sequence([normalizers.Strip(), normalizers.Replace(Regex(r"\.{3}|\u2026"), "etc"),
                                                 normalizers.Prepend("x ")]))}


def finished(tokenizer, added, normalizer, processor):
    if normalizer:
        tokenizer.normalizer = normalizer
    if processor:
        tokenizer.post_processor = processor
    tokenizer.add_tokens(added)
    return tokenizer


def text_number(i, added):
    """A string with added tokens in it, with or without spaces around, every second one."""
    text = string_number(i, FRAGMENTS + MORE, RANGES + MORE_RANGES)
    random = Random(i ^ 0x5DEECE66D)
    for _ in range(random.below(4) if i % 2 else 0):
        place = random.below(len(text) + 1)
        spaces = ["", " ", "  ", "\n", "a"]
        text = (text[:place] + spaces[random.below(len(spaces))] + added[random.below(len(added))]
                + spaces[random.below(len(spaces))] + text[place:])
    return text


def hashes(tokenizer, name):
    specification = json.loads(tokenizer.to_str())
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    added = [token["content"] for token in specification["added_tokens"]]
    encoded, decoded = "", ""
    for first in range(0, STRINGS, BLOCK):
        texts = [text_number(i, added) for i in range(first, first + BLOCK)]
        ids = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        back = tokenizer.decode_batch(ids, skip_special_tokens=False)
        encoded += f"{fnv(b''.join(hash_of_ids(each).to_bytes(8, 'little') for each in ids)) >> 48:04x}"
        decoded += f"{fnv(b''.join(fnv(each.encode()).to_bytes(8, 'little') for each in back)) >> 48:04x}"
    print(name, flush=True)
    return {"json": specification, "whole": tokenizer.encode("a").ids, "encoded": encoded, "decoded": decoded}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="compare with the stored file, write nothing")
    options = parser.parse_args()
    made = Kinds(options.text.read_text(encoding="utf-8")).all()
    fixture = {"made_by": f"tokenizers {importlib.metadata.version('tokenizers')}", "fragments": FRAGMENTS + MORE,
               "ranges": RANGES + MORE_RANGES, "tokenizers": {name: hashes(kind, name) for name, kind in made.items()}}
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
