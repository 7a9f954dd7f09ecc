#!/usr/bin/env python3
"""Writes tests/data/text_patterns.json: random expressions, texts, and what Oniguruma finds in these, asked through
Hugging Face's `tokenizers`. tests/data/text_pattern_test.cpp compares it with ours.

    pip install tokenizers
    python bench/peers/text_pattern_fixture.py

`--check` compares with the stored file instead of writing it.
"""
import argparse
import importlib.metadata
import json
import pathlib

from tokenizers import Regex, pre_tokenizers

from awkward_strings import Random

FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "tests/data/text_patterns.json"
EXPRESSIONS, TEXTS = 800, 3
CHARACTERS = ["a", "a", "b", "B", "c", "'", "s", "1", "2", " ", " ", "\n", "\r", "!", "/", "\u00e9", "\u0301", "\u0416",
              "\u4e00", "\u3000", "\u00b2", "\U0001f600", "\u017f"]
SETS = ["a", "b", "c", "'", " ", "!", "\\n", "\u00e9", "\u4e00", ".", "[ab]", "[^a]", "[^\\s]", "[a-c1]", "[\\r\\n]", "\\s", "\\S",
        "\\d", "\\p{L}", "\\p{N}", "\\P{L}", "\\p{Lu}", "[^\\s\\p{L}\\p{N}]", "[\\p{L}\\p{M}]", "[\u0400-\u9fff]",
        "[^\\r\\n\u00e0-\u00ff]", "[\\p{L}&&[^ab]]"]
NUMBERS = ["", "", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "{0,2}", "?+", "*+", "++"]


class Expression:
    """Each part with whether it may match nothing."""

    def __init__(self, seed):
        self.random = Random(seed)

    def one_of(self, those):
        return those[self.random.below(len(those))]

    def item(self, depth):
        kind = self.random.below(12)
        if kind < 2:
            return f"(?{self.one_of('!=')}{self.one_of(SETS)}{'|$' * kind})", True
        if kind == 2 and depth > 0:
            (inside, empty), number = self.choices(depth - 1), self.one_of(["", "?"])
            return f"(?:{inside}){number}", empty or number == "?"
        if kind == 3:
            return self.one_of([("(?i:a)", False), ("(?i:'s|b)", False), ("$", True)])
        number = self.one_of(NUMBERS)
        return self.one_of(SETS) + number, number[:1] in ("?", "*") or number == "{0,2}"

    def sequence(self, depth):
        items = [self.item(depth) for _ in range(1 + self.random.below(3))]
        return "".join(item for item, _ in items), all(empty for _, empty in items)

    def choices(self, depth):
        sequences = [self.sequence(depth) for _ in range(1 + self.random.below(3))]
        return "|".join(sequence for sequence, _ in sequences), any(empty for _, empty in sequences)


def found(expression, text):
    """The matches, each as the place of its first character and of the one behind."""
    split = pre_tokenizers.Split(Regex(expression), "removed", invert=True)
    return [list(place) for _, place in split.pre_tokenize_str(text)]


def case(seed):
    """Nothing where the expression may match nothing, which is no cut of a text, or is none of Oniguruma's."""
    expression, empty = Expression(seed).choices(2)
    try:
        Regex(expression)
    except Exception:  # the binding has no class of its own for it
        return None
    random = Random(~seed & 0xFFFFFFFF)
    texts = ["".join(CHARACTERS[random.below(len(CHARACTERS))] for _ in range(24)) for _ in range(TEXTS)]
    return None if empty else [expression, [[text, found(expression, text)] for text in texts]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored file, write nothing")
    options = parser.parse_args()
    cases = [made for made in map(case, range(EXPRESSIONS)) if made]
    fixture = {"made_by": f"tokenizers {importlib.metadata.version('tokenizers')}", "cases": cases}
    text = json.dumps(fixture, separators=(",", ":")) + "\n"
    if options.check:
        same = FIXTURE.read_text() == text
        print(f"{FIXTURE.name}: {'as computed here' if same else 'DIFFERS'}")
        return 0 if same else 1
    FIXTURE.write_text(text)
    print(f"{FIXTURE.name}: {len(cases)} expressions, {FIXTURE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
