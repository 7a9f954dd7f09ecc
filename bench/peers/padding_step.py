#!/usr/bin/env python3
"""Times a training step of Hugging Face's models on a batch padded to half beside one of whole rows, by one trainer.

    bench/peers/padding_step.py [--only WORDS] [--tokens 512] [--batch 4] [--channels 64] [--layers 2] [--steps 5]
                                [--policy fp32] [--attention sdpa] [--side right]

Both batches have the same shape, so the plan is one; the mask alone tells them apart. Steps alternate. The table has
the median milliseconds of each and their ratio. Needs `pip install torch transformers` and mantissa itself.
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


def batch_of(options, length):
    import torch
    mask = (torch.arange(options.tokens) < length).long().expand(options.batch, options.tokens)
    mask = mask.flip(1) if options.side == "left" else mask
    ids = torch.randint(3, 99, mask.shape)
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
    options = parser.parse_args()
    for name in (name for name in MODELS if any(word in name for word in options.only.split(","))):
        whole, half = measured(name, options)
        print(f"{name:26} whole {whole * 1e3:8.1f} ms  half {half * 1e3:8.1f} ms  ratio {half / whole:.2f}", flush=True)


if __name__ == "__main__":
    main()
