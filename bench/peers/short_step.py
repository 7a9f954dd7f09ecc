#!/usr/bin/env python3
"""Holds loss and gradients of one training step below sixteen bits against a second hand: GPT-2 in plain PyTorch, whose
linear layers round by torchao's quantisers (fp8, mxfp8) or TransformerEngine's plain-torch reference (nvfp4) and multiply
in FP32. Same weights, same batch.

    bench/peers/short_step.py --transformer-engine CHECKOUT [--model gpt2-tiny]

Distances are root mean squares over those of the second hand's gradients, all weights of linear layers together. Three
are printed: from mantissa to the second hand; from mantissa to the second hand with an error planted (`planted`); and from
the second hand to itself in BF16, which is what the format does. Both round activations to BF16 at their own places, so
that some numbers fall on the other side of a tie. A part f of numbers that do makes sqrt(12 f) of the format's error; BF16's
steps are a sixteenth of E4M3's, which makes f a fiftieth and the first half of the third. Where rounding is random, no two
runs agree, and the distance of two runs of the second hand is added, in squares.

Needs `pip install torch torchao safetensors numpy` and a checkout of TransformerEngine for nvfp4.
"""
import argparse
import math
import pathlib
import sys
import tempfile

import torch

import gpt2_plain
import mantissa_program
import short_operands

E2M1 = short_operands.E2M1


def of_tensor(x, element):
    """FP8 with a scale a tensor, by torchao."""
    from torchao.float8.config import ScalingGranularity
    from torchao.float8.float8_utils import tensor_to_scale, to_fp8_saturated
    dtype = short_operands.TYPES[element]
    scale = tensor_to_scale(x, dtype, scaling_granularity=ScalingGranularity.TENSORWISE)
    return to_fp8_saturated(x.float() * scale, dtype).float() / scale


def of_blocks(x, rule):
    """MXFP8 along rows, by torchao."""
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_dtype, to_mx
    scale, data = to_mx(x.contiguous(), torch.float8_e4m3fn, 32, ScaleCalculationMode[rule])
    return to_dtype(data, scale, torch.float8_e4m3fn, 32, torch.float32)


def at_random(units):
    """To one of E2M1's two neighbours."""
    size = units.abs().clamp(max=6)
    above = torch.searchsorted(E2M1, size.contiguous(), right=True).clamp(max=7)
    low, high = E2M1[above - 1], E2M1[above]
    up = torch.rand_like(size) < (size - low) / (high - low)
    return torch.where(up, high, low).copysign(units)


class Hand:
    """How a policy rounds the operands of the three products; each is a matrix whose rows are the depth's lines."""

    def __init__(self, policy, reference, planted=False):
        self.policy, self.reference, self.planted = policy, reference, planted

    def two_levels(self, x, square=False, turned=False, random=False):
        module = self.reference.nvfp4
        quantizer = module.NVFP4QuantizerRef(dtype=module.reference_utils.Fp4Formats.E2M1,
                                             quant_tile_shape=(16, 16) if square else (1, 16), with_rht=turned)
        if turned:  # it turns the columns of its operand
            _, _, codes, scales, _, largest = quantizer._quantize(x.t().contiguous())
        else:
            codes, scales, _, _, largest, _ = quantizer._quantize(x.contiguous())
        values = module.cast_from_fp4x2(codes, torch.float32)
        scales = scales.float().repeat_interleave(16, 1)
        if square and scales.shape[0] != values.shape[0]:
            scales = scales.repeat_interleave(16, 0)
        scales = scales[: values.shape[0], : values.shape[1]]
        factor = largest.float().view(()) / (448 * 6)
        if random:
            numbers = turned_rows(x) if turned else x
            values = at_random(torch.where(scales > 0, numbers.float() / (scales * factor), torch.zeros(())))
        return values * scales * factor

    def rounded(self, x, role, product):
        """role: x, w or dy; product: y, dx or dw."""
        if self.policy == "bf16":
            return x.bfloat16().float()
        if self.policy == "fp8":
            return of_tensor(x, "e5m2" if role == "dy" or (self.planted and role == "x") else "e4m3")
        if self.policy == "mxfp8":
            return of_blocks(x, "FLOOR" if self.planted else "RCEIL")
        if self.policy == "nvfp4":
            return self.two_levels(x, square=role == "w" and not self.planted, turned=product == "dw",
                                   random=role == "dy")
        raise SystemExit(f"no second hand for {self.policy}")


def turned_rows(x):
    """NVIDIA's transform of each 16 neighbours, rounded to BF16."""
    signs = torch.tensor([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1.])
    matrix = torch.ones(1, 1)
    for _ in range(4):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    blocks = x.float().reshape(x.shape[0], -1, 16) * signs
    return (blocks @ matrix / 4).bfloat16().float().view(x.shape)


class Linear(torch.autograd.Function):
    """x [N, in] of BF16 and w [out, in] of FP32 -> [N, out] of BF16."""

    @staticmethod
    def forward(ctx, x, w, hand):
        ctx.save_for_backward(x, w)
        ctx.hand = hand
        return (hand.rounded(x, "x", "y") @ hand.rounded(w, "w", "y").t()).bfloat16()

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        hand = ctx.hand
        dx = hand.rounded(dy, "dy", "dx") @ hand.rounded(w.t(), "w", "dx").t()
        dw = hand.rounded(dy.t(), "dy", "dw") @ hand.rounded(x.t(), "x", "dw").t()
        return dx.bfloat16(), dw, None


def step_of(hand, checkpoint, batch):
    """Loss, and gradients by name."""
    p = {name: value.requires_grad_() for name, value in mantissa_program.parameters_of(checkpoint).items()}
    layers = [name for name in p if mantissa_program.is_linear(name)]
    layers.sort(key=lambda name: (int(name.split(".")[1]), ("c_attn", "attn.c_proj", "c_fc", "mlp.c_proj").index(
        next(part for part in ("c_attn", "attn.c_proj", "c_fc", "mlp.c_proj") if part in name))))
    kept = set()
    if hand.policy == "nvfp4":  # arXiv 2509.25149: of 62 blocks the first 2 and the last 8
        kept = {*layers[: round(2 / 62 * len(layers))], *layers[len(layers) - round(8 / 62 * len(layers)):]}
    plain = Hand("bf16", None)

    def linear(p, layer, x):
        name = f"{layer}.weight"
        rows = x.bfloat16().reshape(-1, x.shape[-1])
        made = Linear.apply(rows, p[name], plain if name in kept else hand)
        return (made.float() + p[f"{layer}.bias"]).bfloat16().view(*x.shape[:-1], -1)

    before, gpt2_plain.linear = gpt2_plain.linear, linear
    try:
        logits = gpt2_plain.logits_of(p, batch[0], mantissa_program.heads_of(checkpoint), gpt2_plain.sdpa,
                                      gpt2_plain.fused_gelu_tanh)
    finally:
        gpt2_plain.linear = before
    loss = gpt2_plain.loss_of(logits.float(), batch[1])
    loss.backward()
    return loss.item(), {name: p[name].grad for name in layers}


def step_of_mantissa(options, policy, folder):
    """Loss and gradients: after one step with beta1 = 0 the first moments are the gradients."""
    report = mantissa_program.train(
        options.program, folder, "--model", options.model, "--tokens", folder / "tokens.npy", "--batch", options.batch,
        "--sequence", options.sequence, "--policy", policy, "--steps", 1, "--betas", 0, 0.95, "--learning-rate", 1e-6,
        "--checkpoint", folder / policy)
    gradients = {}
    for name, moment in mantissa_program.first_moments_of(folder / policy).items():
        name = name.removeprefix("transformer.")
        gradients[name] = moment
    return report["steps"][0]["loss"], gradients


def distance(a, b):
    return (sum((a[name].float() - b[name].float()).square().sum() for name in b)
            / sum(b[name].float().square().sum() for name in b)).sqrt().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformer-engine", type=pathlib.Path, metavar="CHECKOUT")
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--model", default="gpt2-tiny")
    parser.add_argument("--text", default=mantissa_program.TEXT)
    parser.add_argument("--tokenizer")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--policies", nargs="+", default=["bf16", "fp8", "mxfp8", "nvfp4"])
    options = parser.parse_args()
    reference = None
    if "nvfp4" in options.policies:
        if not options.transformer_engine:
            parser.error("nvfp4 needs --transformer-engine CHECKOUT")
        reference = short_operands.references(options.transformer_engine)
    torch.manual_seed(1)
    good = True
    print(f"{options.model}, {options.batch} x {options.sequence} tokens, one step\n")
    print(f"{'policy':8} {'loss':>9} {'second hand':>12} {'gradients':>10} {'planted':>9} {'format':>9} {'allowed':>9}")
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        tokens = mantissa_program.tokens_of(options, options.batch * options.sequence + 1)
        mantissa_program.write_tokens(folder / "tokens.npy", tokens)
        mantissa_program.train(options.program, folder, "--model", options.model, "--tokens", folder / "tokens.npy",
                               "--batch", options.batch, "--sequence", options.sequence, "--policy", "fp32", "--steps", 1,
                               "--learning-rate", 0, "--checkpoint", folder / "start")
        batch = mantissa_program.batches_of(tokens, options.batch, options.sequence, 0)
        start = folder / "start"
        _, in_bf16 = step_of(Hand("bf16", None), start, batch)
        for policy in options.policies:
            loss, ours = step_of_mantissa(options, policy, folder)
            their_loss, theirs = step_of(Hand(policy, reference), start, batch)
            got, of_format = distance(ours, theirs), distance(in_bf16, theirs)
            line = f"{policy:8} {loss:9.5f} {their_loss:12.5f} {got:10.4f}"
            if policy == "bf16":
                print(f"{line} {'':9} {'':9} {2 ** -6:9.4f}")
                good = good and got <= 2 ** -6
                continue
            _, planted = step_of(Hand(policy, reference, planted=True), start, batch)
            allowed = of_format / 2
            if policy == "nvfp4":
                allowed = math.hypot(allowed, distance(step_of(Hand(policy, reference), start, batch)[1], theirs))
            wrong = distance(ours, planted)
            good = good and got <= allowed < wrong and abs(loss - their_loss) <= 2 ** -8 * their_loss
            print(f"{line} {wrong:9.4f} {of_format:9.4f} {allowed:9.4f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
