#!/usr/bin/env python3
"""GPT-2 124M as mantissa trains it, held against PyTorch: every gradient, and the losses of 20 AdamW steps.

    bench/peers/gpt2_124m.py [--policy fp32|bf16] [--sequence 64] [--steps 20] [--text FILE --tokenizer DIR]

Both sides start from the weights that `train` draws (a run with learning rate 0 saves them) and read the same tokens.
The same run saves the gradients: with beta1 = 0 AdamW's first moment after one step is the gradient itself. The oracle
of the gradients is gpt2_plain.py in FP64; PyTorch in the policy's own formats (FP32, or FP32 with CPU autocast to BF16)
stands beside it and makes the losses to compare with. Demanded: losses within 1e-5 in FP32, relatively, and within 0.02
in BF16; gradients, tensor by tensor by the norm of the difference over the norm of the oracle's, within 1e-5 in FP32
(the class of the losses) and within twice the error of autocast in BF16. Needs `pip install torch safetensors numpy`
and 8 GB of memory.
"""
import argparse
import contextlib
import pathlib
import sys
import tempfile

import torch

import gpt2_plain
import mantissa_program

BETAS, WEIGHT_DECAY, LEARNING_RATE = (0.9, 0.95), 0.1, 3e-4
LOSS_TOLERANCE = {"fp32": 1e-5, "bf16": 0.02}


def formats(policy):
    return torch.autocast("cpu", dtype=torch.bfloat16) if policy == "bf16" else contextlib.nullcontext()


def torch_run(options, start, heads, tokens, dtype, policy, steps):
    """Gradients of step 0 and the losses before each update."""
    p = {name: value.to(dtype).clone().requires_grad_() for name, value in start.items()}
    optimizer = gpt2_plain.adamw(p, learning_rate=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)
    losses, gradients = [], {}
    for step in range(steps):
        inputs, targets = mantissa_program.batches_of(tokens, 1, options.sequence, step)
        optimizer.zero_grad()
        with formats(policy):
            loss = gpt2_plain.loss_of(gpt2_plain.logits_of(p, inputs, heads), targets)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: value.grad.clone() for name, value in p.items()}
        if step + 1 < steps:
            optimizer.step()
    return gradients, losses


def our_run(options, folder, tokens):
    """The weights that both start from, their heads, our gradients and losses."""
    path, checkpoint = folder / "tokens.npy", folder / "start"
    mantissa_program.write_tokens(path, tokens)
    common = ["--model", options.model, "--policy", options.policy, "--tokens", path, "--batch", 1, "--sequence",
              options.sequence, "--threads", options.threads]
    mantissa_program.train(options.program, folder, *common, "--steps", 1, "--learning-rate", 0, "--betas", 0,
                           BETAS[1], "--checkpoint", checkpoint)
    report = mantissa_program.train(options.program, folder, *common, "--steps", options.steps, "--learning-rate",
                                    LEARNING_RATE, "--betas", *BETAS, "--weight-decay", WEIGHT_DECAY)
    return (mantissa_program.parameters_of(checkpoint), mantissa_program.heads_of(checkpoint),
            mantissa_program.first_moments_of(checkpoint), [step["loss"] for step in report["steps"]])


def relative_error(gradient, oracle):
    return ((gradient.double() - oracle).norm() / oracle.norm()).item()


def compare_gradients(policy, ours, theirs, oracle):
    """Whether every gradient is within its class; prints the five worst."""
    if ours.keys() != oracle.keys():
        raise SystemExit(f"other parameters than PyTorch's: {sorted(ours.keys() ^ oracle.keys())}")
    rows = sorted(((relative_error(ours[name], oracle[name]), relative_error(theirs[name], oracle[name]), name)
                   for name in oracle), reverse=True)
    print(f"gradients of {len(rows)} parameters, error relative to PyTorch in FP64 (mantissa, PyTorch in {policy}); the worst:")
    for our, their, name in rows[:5]:
        print(f"  {our:.2e}  {their:.2e}  {name}")
    allowed = lambda their: 1e-5 if policy == "fp32" else 2 * their
    # `not <=` and not `>`: NaN is a failure.
    return all(our <= allowed(their) for our, their, _ in rows)


def compare_losses(policy, ours, theirs):
    """Whether every loss is within its class; prints first, last and worst."""
    unit = (lambda loss: abs(loss)) if policy == "fp32" else (lambda loss: 1.0)
    distances = [abs(a - b) / unit(b) for a, b in zip(ours, theirs, strict=True)]
    print(f"losses of {len(ours)} steps: mantissa {ours[0]:.7f} ... {ours[-1]:.7f}, PyTorch in {policy} {theirs[0]:.7f} ... "
          f"{theirs[-1]:.7f}")
    print(f"  largest {'relative ' if policy == 'fp32' else ''}distance {max(distances):.2e}, "
          f"allowed {LOSS_TOLERANCE[policy]:.0e}")
    return all(distance <= LOSS_TOLERANCE[policy] for distance in distances)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    mantissa_program.add_options(parser)
    parser.add_argument("--policy", choices=LOSS_TOLERANCE, default="fp32")
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokens = mantissa_program.tokens_of(options, options.steps * options.sequence + 1)
    with tempfile.TemporaryDirectory() as folder:
        start, heads, gradients, losses = our_run(options, pathlib.Path(folder), tokens)
    print(f"{options.model}, 1 x {options.sequence}, {options.policy}; PyTorch {torch.__version__}")
    oracle, _ = torch_run(options, start, heads, tokens, torch.float64, "fp32", steps=1)
    theirs = torch_run(options, start, heads, tokens, torch.float32, options.policy, options.steps)
    good = [compare_gradients(options.policy, gradients, theirs[0], oracle),
            compare_losses(options.policy, losses, theirs[1])]
    print("all within the classes" if all(good) else "NOT within the classes")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
