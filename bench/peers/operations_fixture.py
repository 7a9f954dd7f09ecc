#!/usr/bin/python3
"""Writes tests/fixtures/operations.safetensors: operations and recurrent layers as PyTorch computes them in FP64.

Of each case: the operands, as FP32 numbers; the result y; and the gradient of sum(w y) by each floating operand, w
being given, too. Pictures are turned to [N, H, W, C].

Needs `pip install torch`. `--check` compares with the stored file instead of writing it.
"""
import argparse
import pathlib
import sys

import torch
from torch.nn import functional as F

from fixture_file import check, write_safetensors

PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/operations.safetensors"


def by_channels_last(function):
    """A function of pictures [N, C, H, W] as one of [N, H, W, C]."""
    return lambda x, *others: function(x.permute(0, 3, 1, 2), *others).permute(0, 2, 3, 1)


def by_volumes(function):
    """The same of volumes [N, C, D, H, W]."""
    return lambda x, *others: function(x.permute(0, 4, 1, 2, 3), *others).permute(0, 2, 3, 4, 1)


def resized(extents, **options):
    return by_channels_last(lambda x: F.interpolate(x, extents, **options))


def sampled(mode, padding, corners):
    return by_channels_last(lambda x, grid: F.grid_sample(x, grid, mode, padding, corners))


def bag(mode, padding=None):
    return lambda table, ids: F.embedding_bag(ids.long(), table, mode=mode, padding_idx=padding)


def recurrent(kind, batch, inputs, hidden, layers):
    module = kind(inputs, hidden, layers, batch_first=True).double()
    names = [name for name, _ in module.named_parameters()]

    def run(x, *weights):
        return torch.func.functional_call(module, dict(zip(names, weights)), (x,))[0]
    return run, [value.shape for value in module.parameters()]


def recurrent_case(kind):
    run, shapes = recurrent(kind, 3, 5, 8, 2)
    return run, [(3, 9, 5), *shapes]


def attention_case(queries, keys, values=4):
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            [(2, 3, queries, 4), (2, 3, keys, 4), (2, 3, keys, values)])


def cases():
    picture, grid, table = (2, 4, 5, 3), (2, 3, 4, 2), (7, 5)
    yield "resize_more", resized((7, 9), mode="bilinear"), [picture]
    yield "resize_fewer", resized((3, 2), mode="bilinear"), [picture]
    yield "resize_corners", resized((7, 9), mode="bilinear", align_corners=True), [picture]
    yield "resize_nearest", resized((7, 9), mode="nearest"), [picture]
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border"):
            for corners in (False, True):
                name = f"grid_{mode}_{padding}_{'corners' if corners else 'edges'}"
                yield name, sampled(mode, padding, corners), [picture, grid]
    for mode in ("sum", "mean", "max"):
        yield f"bag_{mode}", bag(mode), [table, ("ids", 6, 3)]
        yield f"bag_{mode}_ignoring", bag(mode, 2), [table, ("ids", 6, 3)]
    yield "group_norm", by_channels_last(lambda x, g, b: F.group_norm(x, 2, g, b)), [(2, 3, 5, 6), (6,), (6,)]
    yield ("instance_norm", by_channels_last(lambda x, g, b: F.instance_norm(x, weight=g, bias=b)),
           [(2, 3, 5, 6), (6,), (6,)])
    yield "weight_norm", lambda v, g: torch._weight_norm(v, g.reshape(1, 3, 1), 1), [(4, 3, 5), (3,)]
    yield "sort", lambda x: torch.sort(x, dim=1, descending=True, stable=True)[0], [(4, 9)]
    yield "top_k", lambda x: torch.topk(x, 3, dim=0)[0], [(9, 4)]
    yield "attention_more_keys", *attention_case(4, 7)
    yield "attention_fewer_keys", *attention_case(7, 4, 6)
    yield ("soft_cross_entropy",
           lambda x, t, w: F.cross_entropy(x, torch.softmax(t, 1), w.abs(), label_smoothing=0.1),
           [(6, 11), (6, 11), (11,)])
    yield "lstm", *recurrent_case(torch.nn.LSTM)
    yield "gru", *recurrent_case(torch.nn.GRU)
    yield ("conv1d", lambda x, f, b: F.conv1d(x.permute(0, 2, 1), f.permute(2, 1, 0), b, 2, 3, 2, 3).permute(0, 2, 1),
           [(2, 11, 6), (4, 2, 9), (9,)])
    yield ("conv_transpose2d",
           by_channels_last(lambda x, f, b: F.conv_transpose2d(x, f.permute(3, 2, 0, 1), b, (2, 3), (1, 0), (1, 2), 2, (1, 2))),
           [(2, 4, 5, 6), (3, 2, 2, 6), (4,)])
    yield "max_pool_ceil", by_channels_last(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True)), [(2, 6, 8, 3)]
    yield "average_pool_ceil", by_channels_last(lambda x: F.avg_pool2d(x, 3, 2, 1, True, False)), [(2, 6, 8, 3)]
    yield ("average_pool_ceil_padding", by_channels_last(lambda x: F.avg_pool2d(x, (3, 2), (4, 3), 1, True, True)),
           [(2, 8, 5, 3)])
    volume = (2, 6, 5, 7, 3)
    yield ("conv3d",
           by_volumes(lambda x, f, b: F.conv3d(x, f.permute(4, 3, 0, 1, 2), b, (2, 1, 2), (2, 0, 1), (3, 1, 2), 2)),
           [(2, 6, 4, 7, 6), (3, 2, 3, 3, 4), (4,)])
    yield ("conv3d_beyond", by_volumes(lambda x, f: F.conv3d(x, f.permute(4, 3, 0, 1, 2), None, 1, (2, 0, 0), (3, 1, 1))),
           [(2, 2, 2, 3, 2), (2, 1, 2, 2, 3)])
    yield ("conv_transpose3d",
           by_volumes(lambda x, f, b: F.conv_transpose3d(x, f.permute(4, 3, 0, 1, 2), b, (2, 1, 2), (1, 0, 1), (1, 0, 0),
                                                         2, (2, 1, 1))),
           [(2, 3, 4, 3, 6), (3, 2, 2, 2, 6), (4,)])
    yield "max_pool3d", by_volumes(lambda x: F.max_pool3d(x, 3, 2, 1, ceil_mode=True)), [volume]
    yield "average_pool3d", by_volumes(lambda x: F.avg_pool3d(x, 3, 2, 1, True, False)), [volume]
    yield "average_pool3d_padding", by_volumes(lambda x: F.avg_pool3d(x, (3, 2, 3), 2, 1, True, True)), [volume]
    yield "adaptive_average_pool3d", by_volumes(lambda x: F.adaptive_avg_pool3d(x, (4, 3, 2))), [volume]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(20261126)
    doubles, rest = {}, {}
    for name, function, shapes in cases():
        operands = []
        for i, shape in enumerate(shapes):
            if shape[0] == "ids":
                operands.append(torch.randint(0, 7, shape[1:], dtype=torch.int32))
            else:
                scale = 0.5 if name in ("lstm", "gru") else 1.0
                operands.append((scale * torch.randn(shape)).double().requires_grad_())
            rest[f"{name}.x{i}"] = operands[-1].detach().to(
                torch.int32 if shape[0] == "ids" else torch.float32)
        y = function(*operands)
        w = torch.randn(y.shape).double()
        (y * w).sum().backward()
        rest[f"{name}.w"] = w.float()
        doubles[f"{name}.y"] = y.detach()
        for i, operand in enumerate(operands):
            if operand.requires_grad:
                doubles[f"{name}.d{i}"] = operand.grad
    tensors = {**doubles, **rest}
    if arguments.check:
        reason = check(PATH, tensors)
        print(reason or f"{PATH}: as stored")
        sys.exit(1 if reason else 0)
    write_safetensors(PATH, tensors, {"torch": torch.__version__})
    print(f"{PATH}: {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    main()
