#!/usr/bin/env python3
"""Exchanges models with Hugging Face's transformers, both ways, and holds what they say of the same tokens together.

    bench/peers/check_checkpoint.py [--checkpoint DIR [--tokenizer DIR]]      default: trains tiny ones on bytes

There: a checkpoint of `mantissa train` opens as GPT2LMHeadModel, LlamaForCausalLM or MistralForCausalLM. Back: what
their save_pretrained writes, in FP32, BF16 and FP16, in one file or in shards, and with sizes of no published model,
opens in `mantissa generate`. Each time prompts are continued greedily, and again at a high temperature, which visits
tokens all over the vocabulary; transformers reads the same tokens, and its log-probability of every one must be ours,
and the greedy ones its own choice. Where a checkpoint is trained
here, its loss on the next batch is compared, too.

FP32 on both sides, summed in different orders: log-probabilities may differ by 1e-4 (scores of about 10 in absolute
value, a few hundred roundings of 6e-8 each, relatively), the mean loss by 1e-5. A greedy choice may differ only where
the two scores lie within that distance. Needs `pip install torch transformers numpy`.
"""
import argparse
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers

import mantissa_program

PROMPTS = ["The licence", "First Citizen:\nBefore we proceed", "x", "1234567890 and so on, "]
SCORE_TOLERANCE, LOSS_TOLERANCE = 1e-4, 1e-5
DRAWS = {"greedy": ["--temperature", 0], "spread": ["--temperature", 4, "--seed", 11]}


def continuation(options, model_folder, folder, prompt, draw):
    """The prompt's tokens, those generated, and our log-probability of each."""
    tokenizer = ["--tokenizer", options.tokenizer] if options.tokenizer else []
    report = mantissa_program.generate(options.program, folder, "--checkpoint", model_folder, "--prompt", prompt,
                                       "--length", 24, "--threads", options.threads, *tokenizer, *DRAWS[draw])
    return mantissa_program.encode(options, prompt.encode()), report["tokens"], report["log_probabilities"]


def their_log_probabilities(model, prompt, tokens):
    """transformers' log-probabilities [generated, V] at the positions where `tokens` were drawn."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0].double()
    return logits[len(prompt) - 1:-1].log_softmax(dim=1)


def compare(options, title, model_folder, folder):
    """Whether all scores agree between `mantissa generate` and transformers, both reading `model_folder`."""
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    worst, count, other_choices = 0.0, 0, 0
    for draw in DRAWS:
        for text in PROMPTS:
            prompt, tokens, ours = continuation(options, model_folder, folder, text, draw)
            theirs = their_log_probabilities(model, prompt, tokens)
            chosen = theirs.gather(1, torch.tensor(tokens)[:, None])[:, 0]
            distance = (torch.tensor(ours, dtype=torch.float64) - chosen).abs().max().item()
            worst = distance if not distance <= worst else worst  # NaN stays
            count += len(tokens)
            if draw == "greedy":
                # Ours draws only tokens that the tokenizer has.
                best = theirs[:, :options.drawable].max(dim=1).values
                other_choices += int((chosen < best - SCORE_TOLERANCE).sum())
    good = worst <= SCORE_TOLERANCE and other_choices == 0
    print(f"{title}: {count} tokens, log-probabilities within {worst:.1e} (allowed {SCORE_TOLERANCE:.0e}), "
          f"{other_choices} greedy choices that differ: {'good' if good else 'BAD'}")
    return good


def train_checkpoint(options, folder, name):
    """Ten steps of a tiny model, and the loss that the eleventh begins with."""
    tokens, checkpoint = folder / "tokens.npy", folder / f"checkpoint-{name}"
    mantissa_program.write_tokens(tokens, mantissa_program.tokens_of(options, 4096))
    common = ["--model", name, "--policy", "fp32", "--batch", 2, "--sequence", 64, "--tokens", tokens,
              "--threads", options.threads]
    mantissa_program.train(options.program, folder, *common, "--steps", 10, "--checkpoint", checkpoint)
    resumed = folder / f"resumed-{name}"  # a run that is resumed saves where it came from
    shutil.copytree(checkpoint, resumed)
    report = mantissa_program.train(options.program, folder, *common, "--steps", 11, "--resume", resumed)
    return checkpoint, report["steps"][0]["loss"]


def compare_loss(options, checkpoint, ours):
    tokens = mantissa_program.tokens_of(options, 4096)
    inputs, targets = mantissa_program.batches_of(tokens, 2, 64, 10)
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    with torch.no_grad():
        theirs = torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten()).item()
    good = abs(ours - theirs) <= LOSS_TOLERANCE * abs(theirs)
    print(f"loss of the checkpoint on the next batch: mantissa {ours:.7f}, transformers {theirs:.7f}: "
          f"{'good' if good else 'BAD'}")
    return good


def compare_back(options, folder):
    """Models that transformers draws and saves, with larger weights than usual so that the scores spread."""
    gpt2 = transformers.GPT2Config(n_layer=3, n_head=5, n_embd=80, n_positions=99, vocab_size=301,
                                   initializer_range=0.1, bos_token_id=300, eos_token_id=300)
    llama3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    common = dict(num_hidden_layers=3, hidden_size=78, intermediate_size=131, vocab_size=301,
                  max_position_embeddings=99, initializer_range=0.1)
    llama = lambda **sizes: transformers.LlamaConfig(**common, **sizes)
    models = {"gpt2": gpt2,
              "llama": llama(num_attention_heads=3, num_key_value_heads=1, rope_parameters=llama3),
              "llama, tied": llama(num_attention_heads=6, num_key_value_heads=2, head_dim=10,
                                   tie_word_embeddings=True),
              "mistral": transformers.MistralConfig(**common, num_attention_heads=6, num_key_value_heads=2, head_dim=10,
                                                    sliding_window=7)}
    results = []
    for name, config in models.items():
        for dtype, shards in ((torch.float32, "1GB"), (torch.float32, "100KB"), (torch.bfloat16, "1GB"),
                              (torch.float16, "50KB")):
            torch.manual_seed(3)
            title = f"{name}, saved by transformers in {str(dtype).removeprefix('torch.')}"
            path = folder / f"{title} in shards of {shards}"
            transformers.AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(path, max_shard_size=shards)
            files = len(list(path.glob("*.safetensors")))
            results.append(compare(options, f"{title}, {files} files", path, folder))
    return all(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    mantissa_program.add_options(parser)
    parser.add_argument("--checkpoint", type=pathlib.Path, help="a checkpoint that is there already")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.utils.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # A tokenizer of GPT-2's size reaches the whole vocabulary; bytes are the first 256 tokens.
        options.drawable = 50257 if options.tokenizer else 256
        good = True
        if options.checkpoint:
            good = compare(options, "a checkpoint of mantissa", options.checkpoint, folder)
        options.tokenizer, options.drawable = None, 256
        for name in ("gpt2-tiny", "llama-tiny", "mistral-tiny"):
            checkpoint, loss = train_checkpoint(options, folder, name)
            good = compare(options, f"{name} trained by mantissa", checkpoint, folder) and good
            good = compare_loss(options, checkpoint, loss) and good
        good = compare_back(options, folder) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
