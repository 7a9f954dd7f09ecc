"""Hugging Face's models on padded batches: on the right, on the left, rows of one token, under each policy.

    python python/tests/torch_masks.py [--only WORDS]

Each is trained a step beside eager, whose class is the check's own; its loss and output in evaluation must be eager's
within 2e-5, and a step in BF16 must have the same loss within 1 %.
"""
import argparse
import sys
import warnings

import torch
import transformers

import mantissa
import mantissa.torch
from torch_modules import language

NEAR, NEAR_IN_16_BITS = 2e-5, 0.01
LENGTHS, T = (96, 40, 1, 20), 96  # long enough for attention to be one operation
MODELS = {"LlamaForCausalLM": {}, "Qwen2ForCausalLM": {}, "Qwen3ForCausalLM": {}, "GPT2LMHeadModel": {},
          "Gemma2ForCausalLM": dict(sliding_window=8, head_dim=16, query_pre_attn_scalar=16), "Gemma3ForCausalLM": {},
          "GPTNeoXForCausalLM": {}, "MistralForCausalLM": dict(sliding_window=8), "OPTForCausalLM": {},
          "FalconForCausalLM": {}, "Phi3ForCausalLM": {}, "MptForCausalLM": {}, "CodeGenForCausalLM": {},
          "BertForMaskedLM": {}, "RobertaForMaskedLM": {}, "DistilBertForMaskedLM": {},
          "ModernBertForMaskedLM": dict(local_attention=8, global_attn_every_n_layers=2),
          "BertForSequenceClassification": {}, "DebertaV2ForSequenceClassification": {},
          "T5ForConditionalGeneration": dict(num_decoder_layers=2)}


def batch_of(name, side):
    mask = torch.zeros(len(LENGTHS), T, dtype=torch.long)
    for row, length in enumerate(LENGTHS):
        mask[row, :length] = 1
    mask = mask.flip(1) if side == "left" else mask
    ids = torch.randint(3, 99, mask.shape)
    labels = torch.tensor([0, 1, 2, 0]) if "Sequence" in name else ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask, "labels": labels}


def judged(name, implementation, side):
    """What one model does: words, or an exception."""
    torch.manual_seed(0)
    config = language._config(name, **MODELS[name])
    for positions in ("max_position_embeddings", "n_positions", "max_seq_len"):
        if hasattr(config, positions):
            setattr(config, positions, 2 * T)
    config._attn_implementation = implementation
    model, batch = getattr(transformers, name)(config).train(), batch_of(name, side)
    low = mantissa.torch.trainer(model, None, batch, policy="bf16", check=False, views=False)(batch, lr=1e-3)
    step = mantissa.torch.trainer(model, None, batch)
    result = step(batch, lr=1e-3)
    model.eval()
    with torch.no_grad():
        made = model(**batch)
    far = {"loss": abs(step.evaluate(batch) - made.loss.item()),
           "output": float((step.predict(batch) - made.logits).abs().max() / made.logits.abs().max())}
    for what, distance in far.items():
        if not distance <= NEAR:
            raise AssertionError(f"the {what} in evaluation is {distance:.1e} from eager's")
    if not (result.applied and low.applied and abs(low.loss - result.loss) <= NEAR_IN_16_BITS * result.loss):
        raise AssertionError(f"the loss is {result.loss} in FP32 and {low.loss} in BF16")
    return str(step.distance)


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    wrong = 0
    for name in (name for name in MODELS if any(word in name for word in given.only.split(","))):
        for implementation in ("sdpa", "eager"):
            for side in ("right", "left"):
                try:
                    words = "agrees  " + judged(name, implementation, side)
                except ValueError as error:
                    if isinstance(error, mantissa.Error) or "does not support" not in str(error):
                        wrong, words = wrong + 1, f"wrong   {error}"
                    else:
                        continue  # transformers has no such implementation
                except AssertionError as error:
                    wrong, words = wrong + 1, f"wrong   {error}"
                print(f"{name:36} {implementation:6} {side:6} {words}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
