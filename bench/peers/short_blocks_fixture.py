#!/usr/bin/env python3
"""Writes tests/fixtures/short_blocks.safetensors: tensors that torchao's quantiser of MX formats rounds, the oracle that
is not ours.

x has rows of blocks of 32: normal numbers, heavy tails, an outlier, zeros, and numbers of all sizes. NAME.RULE has what
they become in a format by a rule of scales (torchao's RCEIL is our `up`), back in FP32. All as bits.

Needs `pip install torch torchao` (0.18 or later). `--check` compares with the stored file instead of writing it.
"""
import argparse
import pathlib
import sys

import torch
from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_dtype, to_mx

from fixture_file import check, write_safetensors

ROWS, COLUMNS, BLOCK = 10, 96, 32
FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e2m1": torch.float4_e2m1fn_x2,
           "e3m2": "fp6_e3m2", "e2m3": "fp6_e2m3"}
RULES = {"floor": ScaleCalculationMode.FLOOR, "up": ScaleCalculationMode.RCEIL}
DEFAULT_PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/short_blocks.safetensors"


def given():
    generator = torch.Generator().manual_seed(20260)
    x = torch.randn(ROWS, COLUMNS, generator=generator)
    x[2:4] = x[2:4] ** 5
    x[4, 7] = 300.0
    x[5, 32:64] = 0.0
    x[6:8] *= torch.exp2(torch.randint(-40, 40, (2, COLUMNS), generator=generator).float())
    x[8] *= 2.0**-100
    x[9] *= 2.0**100
    return x


def tensors():
    x = given()
    made = {"x": x.view(torch.int32)}
    for name, kind in FORMATS.items():
        for rule, mode in RULES.items():
            if (name, rule) == ("e5m2", "up"):
                continue  # no recipe has it
            scale, data = to_mx(x, kind, BLOCK, mode)
            made[f"{name}.{rule}"] = to_dtype(data, scale, kind, BLOCK, torch.float32).contiguous().view(torch.int32)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=pathlib.Path, default=DEFAULT_PATH)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(check(arguments.path, tensors()))
    write_safetensors(arguments.path, tensors(), {"torch": torch.__version__})


if __name__ == "__main__":
    main()
