#!/usr/bin/env python3
"""Checks that a model is judged as it was trained: a LLaMA that learns from nothing with a tokenizer which puts <s> before
each text. The loss of held-out documents by `train`, by `generate --validation` and by Hugging Face's `transformers`,
which tokenizes the documents itself, must agree; so must the loss of joined texts.

    pip install torch transformers tokenizers
    python bench/peers/check_text_loss.py build/mantissa TEXT        TEXT: what is learnt, in paragraphs
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from llama_tokenizer_fixture import SPACE, learn, sentencepiece
from tokenizers import pre_tokenizers

TOLERANCE, CONTEXT = 1e-4, 64


def make_tokenizer(text, folder):
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    legacy = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]}
    words, merges = learn(text, pre_tokenizers.Metaspace(), [SPACE], 50)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(sentencepiece(words, merges, legacy, None)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>",
                                                              "tokenizer_class": "PreTrainedTokenizerFast"}))
    return AutoTokenizer.from_pretrained(folder)


def peer_loss(model, stream, end):
    """As training cuts the stream: windows of the context, in which documents do not see each other."""
    total, counted = 0.0, 0
    for first in range(0, len(stream) - 1, CONTEXT):
        tokens, targets = stream[first:first + CONTEXT], stream[first + 1:first + CONTEXT + 1]
        tokens = tokens[:len(targets)]
        begin = 0
        for place, token in enumerate(tokens):
            if token != end and place + 1 < len(tokens):
                continue
            piece = tokens[begin:place + 1]
            wanted = targets[begin:place + 1]
            if end is not None and token == end:
                wanted = wanted[:-1]  # nothing follows on the end of a document
            if wanted:
                logits = model(torch.tensor([piece])).logits[0][:len(wanted)].double()
                total += torch.nn.functional.cross_entropy(logits, torch.tensor(wanted), reduction="sum").item()
                counted += len(wanted)
            begin = place + 1
    return total / counted, counted


def check(program, folder, documents, tokenizer, texts):
    def run(*words):
        subprocess.run([program, *map(str, words), "--quiet", "--json", folder / "out.json"], check=True,
                       stdout=subprocess.DEVNULL)
        return json.loads((folder / "out.json").read_text())["validation"][-1]

    run_folder = folder / documents
    trained = run("train", "--model", "llama-tiny", "--vocabulary", len(tokenizer), "--context", CONTEXT, "--layers", 2,
                  "--steps", 100, "--validate-every", 100, "--policy", "fp32", "--documents", documents,
                  "--text", folder / "text", "--validation", folder / "held", "--tokenizer", folder / "tok",
                  "--checkpoint", run_folder)
    used = run("generate", "--policy", "fp32", "--checkpoint", run_folder, "--validation", folder / "held")
    end = tokenizer.eos_token_id
    stream = []
    for text in texts:
        stream += tokenizer(text)["input_ids"] + ([end] if documents == "packed" else [])
    with torch.no_grad():
        peer, counted = peer_loss(AutoModelForCausalLM.from_pretrained(run_folder, dtype=torch.float32), stream,
                                  end if documents == "packed" else None)
    worst = max(abs(trained["loss"] - peer), abs(used["loss"] - peer))
    print(f"{documents}: train {trained['loss']:.6f}, generate --validation {used['loss']:.6f} over {used['tokens']} "
          f"targets, transformers {peer:.6f} over {counted}; at most {worst:.1e} apart")
    return worst <= TOLERANCE and used["tokens"] == counted


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    paragraphs = options.text.read_text(encoding="utf-8").split("\n\n")[:600]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokenizer = make_tokenizer("\n\n".join(paragraphs), folder / "tok")
        for part, texts in (("text", paragraphs[:540]), ("held", paragraphs[540:])):
            (folder / part).mkdir()
            for i, text in enumerate(texts):
                (folder / part / f"{i:03}.txt").write_text(text, encoding="utf-8")
        held = [text for text in paragraphs[540:] if text]
        agrees = [check(options.program.resolve(), folder, documents, tokenizer, held)
                  for documents in ("packed", "joined")]
    return 0 if all(agrees) else 1


if __name__ == "__main__":
    raise SystemExit(main())
