#!/usr/bin/env python3
"""Writes tests/fixtures/nf4.safetensors: weights in NF4 as bitsandbytes makes them on the CPU, the oracle that is not ours.

Contents: the 16 numbers of codes and the 256 of scales; weights (normal, with outliers, a block of zeros, ties, a short
last block), and for them codes, scales, ranges and the weights again, with scales that are quantised, too.

Needs `pip install torch bitsandbytes numpy`. `--check` compares with the stored file instead of writing it.
"""
import argparse
import pathlib
import sys

import bitsandbytes.functional as bits
import torch

import family_cases as families
from fixture_file import check, write_safetensors

PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/nf4.safetensors"
COUNT = 64 * 300 + 34


def weights():
    values = sum(families.uniform(f"nf4 {i}", COUNT) for i in range(6)).float() * 0.03
    values[::997] *= 9
    values[640:704] = 0
    codes = bits.get_4bit_type("nf4", device="cpu")
    values[704:719] = (codes[:-1] + codes[1:]) / 2  # ties, with 1 as the largest of the block
    values[719] = 1
    values[720:768] *= 0.5
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored file, write nothing")
    options = parser.parse_args()
    values = weights()
    packed, state = bits.quantize_4bit(values, blocksize=64, compress_statistics=True, quant_type="nf4")
    flat = packed.flatten().int()
    codes = torch.stack([flat >> 4, flat & 15], 1).flatten()[:COUNT]
    again = bits.dequantize_4bit(packed, state).float()
    tensors = {"weights": values, "codes": codes, "scales": state.absmax.int(), "ranges": state.state2.absmax.float(),
               "mean": state.offset.reshape(1).float(), "again": again.flatten(),
               "numbers": state.code.float(), "scale_numbers": state.state2.code.float()}
    import bitsandbytes
    if not options.check:
        write_safetensors(PATH, tensors, {"made_by": f"bench/peers/nf4_fixture.py, bitsandbytes {bitsandbytes.__version__}"})
        return 0
    fault = check(PATH, tensors)
    print(fault or "the same")
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
