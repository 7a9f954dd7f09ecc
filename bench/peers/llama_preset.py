#!/usr/bin/env python3
"""A LLaMA of a published size as mantissa trains it, held against transformers: every gradient, and the losses of 20
AdamW steps.

    bench/peers/llama_preset.py [--model llama-15m] [--policy fp32|bf16] [--sequence 64] [--steps 20]

As gpt2_124m.py does it, and within the same classes: both sides start from the weights that `train` draws, which
transformers reads from its checkpoint, and read the same tokens; with beta1 = 0 AdamW's first moment after one step is
the gradient itself. The oracle of the gradients is transformers in FP64. Needs `pip install torch transformers
safetensors numpy`.
"""
import argparse
import pathlib
import sys
import tempfile

import safetensors.torch
import torch
import transformers

import mantissa_program
from gpt2_124m import (BETAS, LEARNING_RATE, LOSS_TOLERANCE, WEIGHT_DECAY, compare_gradients, compare_losses, formats)


def load(checkpoint, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    frequencies = model.model.rotary_emb.inv_freq.clone()
    model = model.to(dtype)
    model.model.rotary_emb.inv_freq = frequencies  # FP32 always
    return model


def torch_run(options, checkpoint, tokens, dtype, policy, steps):
    """Gradients of step 0 and the losses before each update."""
    model = load(checkpoint, dtype)
    p = dict(model.named_parameters())
    groups = [{"params": [x for x in p.values() if (x.dim() >= 2) == decays],
               "weight_decay": WEIGHT_DECAY if decays else 0.0} for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=1e-8)
    losses, gradients = [], {}
    for step in range(steps):
        inputs, targets = mantissa_program.batches_of(tokens, 1, options.sequence, step)
        optimizer.zero_grad()
        with formats(policy):
            logits = model(inputs, use_cache=False).logits
        logits = logits if dtype == torch.float64 else logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: value.grad.clone() for name, value in p.items()}
        if step + 1 < steps:
            optimizer.step()
    return gradients, losses


def our_run(options, checkpoint, folder, tokens):
    """Our gradients and losses; the checkpoint holds the weights that both start from."""
    path = folder / "tokens.npy"
    mantissa_program.write_tokens(path, tokens)
    common = ["--model", options.model, "--policy", options.policy, "--tokens", path, "--batch", 1, "--sequence",
              options.sequence, "--threads", options.threads]
    mantissa_program.train(options.program, folder, *common, "--steps", 1, "--learning-rate", 0, "--betas", 0,
                           BETAS[1], "--checkpoint", checkpoint)
    report = mantissa_program.train(options.program, folder, *common, "--steps", options.steps, "--learning-rate",
                                    LEARNING_RATE, "--betas", *BETAS, "--weight-decay", WEIGHT_DECAY)
    stored = safetensors.torch.load_file(checkpoint / "optimizer.safetensors")
    gradients = {name.removeprefix("adamw.m."): value for name, value in stored.items() if name.startswith("adamw.m.")}
    return gradients, [step["loss"] for step in report["steps"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    mantissa_program.add_options(parser)
    parser.set_defaults(model="llama-15m")
    parser.add_argument("--policy", choices=LOSS_TOLERANCE, default="fp32")
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.utils.logging.disable_progress_bar()
    tokens = mantissa_program.tokens_of(options, options.steps * options.sequence + 1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        gradients, losses = our_run(options, folder / "start", folder, tokens)
        oracle, _ = torch_run(options, folder / "start", tokens, torch.float64, "fp32", steps=1)
        theirs = torch_run(options, folder / "start", tokens, torch.float32, options.policy, options.steps)
    print(f"{options.model}, 1 x {options.sequence}, {options.policy}; PyTorch {torch.__version__}, "
          f"transformers {transformers.__version__}")
    good = [compare_gradients(options.policy, gradients, theirs[0], oracle),
            compare_losses(options.policy, losses, theirs[1])]
    print("all within the classes" if all(good) else "NOT within the classes")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
