#!/usr/bin/env python3
"""Writes tests/fixtures/smollm2/: a folder as transformers saves one of SmolLM2's kind, a tied LLaMA with the tokenizer
of that family, small and random, and expected.json: the loss of a text and the text that follows a prompt greedily, as
transformers computes them in FP64. tests/cli/smollm2_test.cpp compares them with ours.

Needs `pip install torch transformers`, and tests/data/tokenizer_kinds.json (bench/peers/tokenizer_kinds_fixture.py).
"""
import argparse
import json
import pathlib

import tokenizers
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests/fixtures/smollm2"
KIND, CONTEXT, GENERATED, SEED = "smollm2, starcoder2", 48, 40, 20241101
PROMPT = "In 1999, the king's 12 ships"
TEXT = ("KING: What 2 say'st thou, 1st and 22nd? \u00bd of it, na\u00efve \u4f60\u597d!\n\n  Then they go.\n" * 5)


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    specification = json.loads((ROOT / "tests/data/tokenizer_kinds.json").read_text())["tokenizers"][KIND]["json"]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(specification)), bos_token="<|im_start|>",
        eos_token="<|im_end|>", unk_token="<|endoftext|>")
    torch.manual_seed(SEED)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer) + 5, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_theta=100000.0, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=None)
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.3)
    FOLDER.mkdir(exist_ok=True)
    model.save_pretrained(FOLDER)
    tokenizer.save_pretrained(FOLDER)
    model = model.double().eval()
    ids = tokenizer(TEXT, add_special_tokens=True).input_ids
    windows = [ids[at:at + CONTEXT + 1] for at in range(0, len(ids) - 1, CONTEXT)]
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(model(torch.tensor([window[:-1]])).logits[0], torch.tensor(window[1:]),
                                                    reduction="sum") for window in windows]
        tokens = tokenizer(PROMPT).input_ids
        prompt = len(tokens)
        while len(tokens) < min(prompt + GENERATED, CONTEXT):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    (FOLDER / "expected.json").write_text(json.dumps(
        {"text": TEXT, "predicted": len(ids) - 1, "loss": float(torch.stack(losses).sum()) / (len(ids) - 1), "prompt": PROMPT,
         "prompt_tokens": prompt, "ids": tokens,
         "continued": tokenizer.decode(tokens[prompt:], clean_up_tokenization_spaces=False)}, indent=1) + "\n")
    print((FOLDER / "expected.json").read_text())


if __name__ == "__main__":
    main()
