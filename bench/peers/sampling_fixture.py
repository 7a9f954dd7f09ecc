#!/usr/bin/python3
"""Writes tests/fixtures/sampling.safetensors: what transformers' processors make of scores that are drawn at random.

For each set of options: the scores [V], the text so far, the scores after RepetitionPenaltyLogitsProcessor, and the
probabilities after the warpers of temperature, top-k, top-p and min-p, in the order in which `generate` has them.

Needs `pip install torch transformers`. `--check` compares with the stored file instead of writing it.
"""
import argparse
import pathlib
import random
import sys

import torch
import transformers
from transformers.generation import logits_process as processors

from fixture_file import check, write_safetensors

VOCABULARY, LENGTH, SEED = 32, 12, 20240711
PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/sampling.safetensors"
# penalty, temperature, top_k (0: all), top_p, min_p
CASES = [
    (1.0, 1.0, 0, 1.0, 0.1), (1.0, 1.0, 0, 1.0, 0.5), (1.0, 1.0, 0, 1.0, 1.0), (1.0, 2.0, 0, 1.0, 0.2),
    (1.0, 0.5, 0, 1.0, 0.05), (1.3, 1.0, 0, 1.0, 0.0), (0.7, 1.0, 0, 1.0, 0.0), (5.0, 0.8, 0, 1.0, 0.1),
    (1.2, 1.0, 5, 1.0, 0.3), (1.0, 1.3, 0, 0.8, 0.15), (1.1, 0.9, 12, 0.9, 0.08), (2.0, 1.5, 20, 0.7, 0.25),
]


def processed(scores, text, penalty, temperature, top_k, top_p, min_p):
    """The scores after the penalty, and the probabilities of a draw."""
    penalized = scores
    if penalty != 1:
        penalized = processors.RepetitionPenaltyLogitsProcessor(penalty)(text, scores)
    warped = processors.TemperatureLogitsWarper(temperature)(text, penalized) if temperature != 1 else penalized
    if top_k:
        warped = processors.TopKLogitsWarper(top_k)(text, warped)
    if top_p < 1:
        warped = processors.TopPLogitsWarper(top_p)(text, warped)
    if min_p:
        warped = processors.MinPLogitsWarper(min_p)(text, warped)
    return penalized, torch.softmax(warped, dim=-1)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true")
    only_check = arguments.parse_args().check
    source = random.Random(SEED)
    tensors = {}
    for number, options in enumerate(CASES):
        scores = torch.tensor([[source.gauss(0, 2) for _ in range(VOCABULARY)]])
        text = torch.tensor([[source.randrange(VOCABULARY) for _ in range(LENGTH)]])
        penalized, probabilities = processed(scores, text, *options)
        for name, value in (("scores", scores), ("text", text.int()), ("penalized", penalized),
                            ("probabilities", probabilities), ("options", torch.tensor(options))):
            tensors[f"{name}.{number}"] = value.flatten()
    if only_check:
        wrong = check(PATH, tensors)
        print(wrong or f"{PATH} is what transformers {transformers.__version__} computes")
        return wrong is not None
    write_safetensors(PATH, tensors, {"transformers": transformers.__version__, "cases": str(len(CASES))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
