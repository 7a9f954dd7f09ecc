#!/usr/bin/env python3
"""Holds what `mantissa numerics --policy P --tensors FILE` rounded in a training step against other quantisers, to the
bit: TransformerEngine's plain-torch references (current scaling, blocks of 128, NVFP4) and torchao's (FP8, MXFP8).

TransformerEngine's files are read from a checkout (`git clone https://github.com/NVIDIA/TransformerEngine`), each loaded
alone, with stand-ins for the package around it. Where rounding is random, each number must be one of its two neighbours
under the reference's scale.

Needs `pip install torch torchao safetensors`. usage: short_operands.py --transformer-engine CHECKOUT
"""
import argparse
import importlib.util
import pathlib
import sys
import tempfile
import types

import torch
from safetensors import safe_open

import mantissa_program

POLICIES = ("fp8", "fp8-block", "mxfp8", "nvfp4")
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def stand_in(name, **members):
    module = types.ModuleType(name)
    module.__path__ = []
    for member, value in members.items():
        setattr(module, member, value)
    sys.modules[name] = module
    return module


class Quantizer:
    """What the references ask of the class that they derive from."""

    def __init__(self, rowwise=True, columnwise=True):
        self.rowwise_usage, self.columnwise_usage = rowwise, columnwise


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def references(checkout):
    recipes = checkout / "transformer_engine/pytorch/custom_recipes"
    package = "transformer_engine.pytorch"
    for name in ("transformer_engine", package, "references"):
        stand_in(name)
    holder = stand_in(f"{package}.custom_recipes")
    stand_in(f"{package}.quantized_tensor", Quantizer=Quantizer, QuantizedTensorStorage=object)
    kinds = types.SimpleNamespace(FPROP=0, DGRAD=1, WGRAD=2)
    holder.gemm = stand_in(f"{package}.custom_recipes.gemm", GEMMType=kinds, MMParams=object)
    holder.reference_utils = load(f"{package}.custom_recipes.reference_utils", recipes / "reference_utils.py")
    tests = checkout / "tests/pytorch/references"
    load("references.quantize_scale_calc", tests / "quantize_scale_calc.py")
    return types.SimpleNamespace(
        current=load("current", recipes / "reference_current_scaling.py"),
        nvfp4=load("nvfp4", recipes / "reference_nvfp4.py"),
        blocks=load("blocks", tests / "blockwise_quantizer_reference.py"))


def along_rows(tensor, axis):
    return tensor.t().contiguous() if axis == 0 else tensor.contiguous()


def by_tensor(of, x, attributes):
    quantizer = of.current.CurrentScalingQuantizerRef(dtype=TYPES[attributes["element"]])
    made = quantizer.quantize(x)
    return made.data.float(), made.scale.float().view(())


def by_blocks(of, x, attributes):
    square = "square" in attributes
    x = x if square else along_rows(x, int(attributes["axis"]))
    made = of.blocks.BlockwiseQuantizerReference().quantize(
        x, torch.float8_e4m3fn, pow_2_scales=True, quant_tile_shape=(128 if square else 1, 128), munge_scale_shapes=False)
    rows, columns = x.shape
    scale = made.scale.repeat_interleave(128, 1)[:, :columns]
    if square:
        scale = scale.repeat_interleave(128, 0)[:rows]
    y = made.data.float() * scale
    return (y if square else along_rows(y, int(attributes["axis"]))), None


def by_two_levels(of, x, attributes, y):
    """The reference's values, and the largest magnitude that they are scaled by."""
    square, turned, axis = "square" in attributes, "hadamard" in attributes, int(attributes["axis"])
    quantizer = of.nvfp4.NVFP4QuantizerRef(dtype=of.nvfp4.reference_utils.Fp4Formats.E2M1,
                                           quant_tile_shape=(16, 16) if square else (1, 16), with_rht=turned)
    if turned:  # it turns the columns of its operand
        operand = x if axis == 0 else x.t().contiguous()
        _, _, codes, scales, _, largest = quantizer._quantize(operand)
    else:
        operand = x if square else along_rows(x, axis)
        codes, scales, _, _, largest, _ = quantizer._quantize(operand)
    scales = scales.float().repeat_interleave(16, 1)
    if square and scales.shape[0] != codes.shape[0]:
        scales = scales.repeat_interleave(16, 0)
    values = of.nvfp4.cast_from_fp4x2(codes, torch.float32)
    scales = scales[: values.shape[0], : values.shape[1]]
    ours = y if square else along_rows(y, axis)
    if "random" not in attributes:
        return ours, values * scales, largest
    # One of the neighbours of what the reference divides: at most one step of E2M1 from the nearest.
    position = {float(value): index for index, value in enumerate(E2M1)}
    units = torch.where(scales > 0, ours / scales, torch.zeros(()))
    steps = torch.tensor([abs(position.get(abs(a), -9) - position[abs(b)]) for a, b in
                          zip(units.flatten().tolist(), values.flatten().tolist())]).view(units.shape)
    return torch.where(steps <= 1, values * scales, ours), values * scales, largest


def of_torchao(policy, x, attributes):
    """FP8 with a scale a tensor and MXFP8; None: it has no such quantiser."""
    if policy == "fp8":
        from torchao.float8.config import ScalingGranularity
        from torchao.float8.float8_utils import tensor_to_scale, to_fp8_saturated
        dtype = TYPES[attributes["element"]]
        scale = tensor_to_scale(x, dtype, scaling_granularity=ScalingGranularity.TENSORWISE)
        return to_fp8_saturated(x.float() * scale, dtype).float()
    axis = int(attributes["axis"])
    rows = along_rows(x, axis)
    if policy != "mxfp8" or rows.shape[1] % 32 != 0:
        return None
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_dtype, to_mx
    scale, data = to_mx(rows, torch.float8_e4m3fn, 32, ScaleCalculationMode.RCEIL)
    return along_rows(to_dtype(data, scale, torch.float8_e4m3fn, 32, torch.float32), axis)


def attributes_of(text):
    """`scope role {axis=1, ...}` as the metadata say it."""
    pairs = text[text.index("{") + 1:text.rindex("}")].split(", ")
    return dict(pair.split("=", 1) for pair in pairs)


def differing(a, b):
    return int((a.float().contiguous().view(torch.int32) != b.float().contiguous().view(torch.int32)).logical_and(
        (a != 0) | (b != 0)).sum())


def compare(options, of, policy, directory):
    path = directory / f"{policy}.safetensors"
    mantissa_program.run(options.program, "numerics", "--model", options.model, "--batch", options.batch, "--sequence",
                         options.sequence, "--steps", options.steps, "--policy", policy, "--tensors", path, "--quiet")
    counts = {}
    with safe_open(path, "pt") as file:
        for name, text in sorted(file.metadata().items()):
            if "{" not in text:
                continue
            attributes = attributes_of(text)
            x, y = file.get_tensor(f"{name}.x"), file.get_tensor(f"{name}.y").float()
            factor = file.get_tensor(f"{name}.factor") if f"{name}.factor" in file.keys() else None
            made, theirs = {}, y
            if policy == "fp8":
                theirs, scale = by_tensor(of, x, attributes)
                made["TransformerEngine"] = differing(y, theirs) + differing(factor, scale)
            elif policy == "fp8-block":
                made["TransformerEngine"] = differing(y, by_blocks(of, x, attributes)[0])
            elif policy == "nvfp4":
                ours, theirs, largest = by_two_levels(of, x, attributes, y)
                kind = "".join(f" {key}" for key in ("square", "hadamard", "random") if key in attributes)
                made[f"TransformerEngine{kind}"] = differing(ours, theirs)
            other = of_torchao(policy, x, attributes)
            if other is not None:
                made["torchao"] = differing(y, other)
            for who, count in made.items():
                tensors, numbers, bad = counts.get(who, (0, 0, 0))
                counts[who] = (tensors + 1, numbers + y.numel(), bad + count)
    for who, (tensors, numbers, bad) in counts.items():
        print(f"{policy:10} {who:35} {tensors:4} tensors {numbers:10} numbers {bad:6} differ")
    return sum(bad for _, _, bad in counts.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformer-engine", type=pathlib.Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--model", default="gpt2-tiny")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    options = parser.parse_args()
    of = references(options.transformer_engine)
    with tempfile.TemporaryDirectory() as directory:
        bad = sum([compare(options, of, policy, pathlib.Path(directory)) for policy in options.policies])
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
