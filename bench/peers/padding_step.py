#!/usr/bin/env python3
"""Times a training step of Hugging Face's models on a batch padded to half beside one of whole rows, by one trainer.

    bench/peers/padding_step.py [--only WORDS] [--tokens 512] [--batch 4] [--channels 64] [--layers 2] [--steps 5]
                                [--policy fp32] [--attention sdpa] [--side right]
    bench/peers/padding_step.py --targets 0.333 [--policy fp32] [--tokens 512] [--batch 4]

Both batches have the same shape, so the plan is one; the mask alone tells them apart. Steps alternate. The table has
the median milliseconds of each and their ratio. With --targets, rows are whole and a LLaMA has SmolLM2 135M's sizes: a
share of the second batch's labels is trained, as the answers of a chat, and the last column says how much of a step that
saves beside what multiply-adds of the head say. Needs `pip install torch transformers` and mantissa itself.
"""
import argparse
import pathlib
import statistics
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "tests"))
MODELS = ("BertForMaskedLM", "RobertaForMaskedLM", "DistilBertForMaskedLM", "ModernBertForMaskedLM", "GPT2LMHeadModel",
          "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM", "GPTNeoXForCausalLM",
          "OPTForCausalLM", "Phi3ForCausalLM")


SMOLLM2 = dict(hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
               head_dim=64, vocab_size=49152, tie_word_embeddings=True)


def batch_of(options, length):
    import torch
    mask = (torch.arange(options.tokens) < length).long().expand(options.batch, options.tokens)
    mask = mask.flip(1) if options.side == "left" else mask
    ids = torch.randint(3, 99, mask.shape)
    if options.targets:
        trained = torch.arange(options.tokens) % 64 < 64 * (options.targets if length < options.tokens else 1)
        return {"input_ids": ids, "labels": ids.masked_fill(~trained, -100)}
    return {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask.contiguous(),
            "labels": ids.masked_fill(mask == 0, -100)}


def measured(name, options):
    import mantissa.torch
    import torch
    import transformers
    from torch_modules import language
    torch.manual_seed(0)
    C = options.channels
    config = language._config(name)
    sizes = dict(hidden_size=C, n_embd=C, dim=C, intermediate_size=4 * C, n_inner=4 * C, hidden_dim=4 * C, ffn_dim=4 * C,
                 word_embed_proj_dim=C, num_hidden_layers=options.layers, n_layer=options.layers,
                 n_layers=options.layers, max_position_embeddings=options.tokens + 8, n_positions=options.tokens + 8)
    sizes.update(SMOLLM2 if options.targets else {})
    config = type(config)(**dict(config.to_dict(), **{key: x for key, x in sizes.items() if key in config.to_dict()}))
    config._attn_implementation = options.attention
    model = getattr(transformers, name)(config).train()
    batches = [batch_of(options, options.tokens), batch_of(options, options.tokens // 2)]
    step = mantissa.torch.trainer(model, None, batches[0], policy=options.policy, check=False, threads=2)
    seconds = [[], []]
    for at in range(options.steps + 1):
        for batch, times in zip(batches, seconds):
            began = time.monotonic()
            step(batch, lr=1e-4)
            if at:
                times.append(time.monotonic() - began)
    return [statistics.median(times) for times in seconds]


def head_share(options):
    """The head's share of a step's multiply-adds; causal attention meets half of the pairs, in two products."""
    channels, vocabulary = SMOLLM2["hidden_size"], SMOLLM2["vocab_size"]
    of_keys = channels // SMOLLM2["num_attention_heads"] * SMOLLM2["num_key_value_heads"]
    layer = 2 * channels * (channels + of_keys) + 3 * channels * SMOLLM2["intermediate_size"] + channels * options.tokens
    head = channels * vocabulary
    return head / (head + SMOLLM2["num_hidden_layers"] * layer)


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--policy", default="fp32")
    parser.add_argument("--attention", default="sdpa", choices=("sdpa", "eager"))
    parser.add_argument("--side", default="right", choices=("right", "left"))
    parser.add_argument("--targets", type=float, default=0.0, help="share of the labels that is trained")
    options = parser.parse_args()
    if options.targets:
        options.only = "LlamaForCausalLM"
    for name in (name for name in MODELS if any(word in name for word in options.only.split(","))):
        whole, half = measured(name, options)
        words = f"{name:26} whole {whole * 1e3:8.1f} ms  {'some' if options.targets else 'half'} {half * 1e3:8.1f} ms  "
        if options.targets:
            saved, said = 1 - half / whole, head_share(options) * (1 - options.targets)
            words += f"saved {saved:.3f} of {said:.3f}: {saved / said:.2f}"
        else:
            words += f"ratio {half / whole:.2f}"
        print(words, flush=True)


if __name__ == "__main__":
    main()
