#!/usr/bin/env python3
"""Writes tests/fixtures/short_formats.safetensors: the formats below sixteen bits by ml_dtypes, the oracle that is not
ours.

NAME.values has the FP32 number of each code, as bits. NAME.inputs and NAME.codes have FP32 numbers, as bits, and the
codes that they become: every tie between neighbouring values and the FP32 numbers beside it, every value, and numbers
beyond the largest, clamped first because ml_dtypes does not saturate. MXINT8, which ml_dtypes lacks, is whole numbers
of 1/64 as OCP's document has it. NAME.largest, NAME.floor and NAME.up have the largest magnitude of a block, as bits,
and the E8M0 code of its scale by both rules, from exact fractions.

Needs `pip install torch ml_dtypes`. `--check` compares with the stored file instead of writing it.
"""
import argparse
import fractions
import pathlib
import sys

import ml_dtypes
import numpy
import torch

from fixture_file import check, write_safetensors

FORMATS = {  # the ml_dtypes type, and the exponent of the largest value
    "e4m3": (ml_dtypes.float8_e4m3fn, 8), "e5m2": (ml_dtypes.float8_e5m2, 15), "e3m2": (ml_dtypes.float6_e3m2fn, 4),
    "e2m3": (ml_dtypes.float6_e2m3fn, 2), "e2m1": (ml_dtypes.float4_e2m1fn, 2), "int8": (None, 0)}
DEFAULT_PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/short_formats.safetensors"


def values_of(name):
    kind, _ = FORMATS[name]
    if kind is None:
        return numpy.arange(256, dtype=numpy.uint8).view(numpy.int8).astype(numpy.float32) / numpy.float32(64)
    codes = 2 ** ml_dtypes.finfo(kind).bits
    return numpy.arange(codes, dtype=numpy.uint8).view(kind).astype(numpy.float32)


def finite_magnitudes(name):
    values = values_of(name)
    values = numpy.unique(numpy.abs(values[numpy.isfinite(values)]))
    return values[values < 2] if name == "int8" else values  # -2 is left unused


def codes_of(name, inputs):
    kind, _ = FORMATS[name]
    largest = finite_magnitudes(name)[-1]
    clamped = numpy.clip(inputs, -largest, largest)
    if kind is None:
        return numpy.rint(clamped * 64).astype(numpy.int8).view(numpy.uint8)
    return clamped.astype(kind).view(numpy.uint8) & numpy.uint8(2 ** ml_dtypes.finfo(kind).bits - 1)


def inputs_of(name):
    values = finite_magnitudes(name)
    ties = (values[:-1] + values[1:]) / 2
    infinity = numpy.float32(numpy.inf)
    beyond = values[-1] * numpy.array([1, 1.03, 1.0625, 1.25, 1e3, 1e30, numpy.inf], dtype=numpy.float32)
    tiny = numpy.array([2.0**-126, 1e-30, 1e-9], dtype=numpy.float32)
    some = [values, ties, numpy.nextafter(ties, -infinity), numpy.nextafter(ties, infinity), beyond, tiny]
    inputs = numpy.concatenate(some).astype(numpy.float32)
    return numpy.concatenate([inputs, -inputs])


def largest_magnitudes(name):
    """Zero, FP32's limits, and around each fraction where a rule turns, in some binades of all sizes."""
    top = finite_magnitudes(name)[-1]
    turn = top / 2.0**numpy.floor(numpy.log2(top))
    near = numpy.array([1, turn, 1.5, 1.999], dtype=numpy.float32)
    near = numpy.concatenate([near, numpy.nextafter(near, numpy.float32(0)), numpy.nextafter(near, numpy.float32(4))])
    some = [near * numpy.float32(2.0**exponent) for exponent in (-125, -119, -60, -9, -1, 0, 1, 8, 60, 119, 126)]
    limits = numpy.array([0, 2.0**-126, numpy.finfo(numpy.float32).max], dtype=numpy.float32)
    return numpy.concatenate([limits, *some]).astype(numpy.float32)


def floor_of_log2(exact):
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    return exponent if exact >= fractions.Fraction(2)**exponent else exponent - 1


def scale_codes(name, largest):
    _, exponent_of_top = FORMATS[name]
    reciprocal = numpy.float32(1) / finite_magnitudes(name)[-1]
    floor, up = [], []
    for magnitude in largest:
        if magnitude == 0:
            floor.append(0)
            up.append(0)
            continue
        exponent = floor_of_log2(fractions.Fraction(float(magnitude))) - exponent_of_top
        # The product is FP32's, of the fraction alone: one that is subnormal would be rounded twice.
        fraction, scale = numpy.frexp(magnitude)
        share = fractions.Fraction(float(numpy.float32(fraction * reciprocal)))
        above = floor_of_log2(share)
        above += int(scale) + (share > fractions.Fraction(2)**above)
        floor.append(min(max(exponent + 127, 0), 254))
        up.append(min(max(above + 127, 0), 254))
    return floor, up


def bits(values):
    return torch.from_numpy(numpy.ascontiguousarray(values, dtype=numpy.float32).view(numpy.int32))


def tensors():
    made = {}
    for name in FORMATS:
        inputs, largest = inputs_of(name), largest_magnitudes(name)
        made[f"{name}.values"] = bits(values_of(name))
        made[f"{name}.inputs"] = bits(inputs)
        made[f"{name}.codes"] = torch.from_numpy(codes_of(name, inputs).astype(numpy.int32))
        made[f"{name}.largest"] = bits(largest)
        for rule, codes in zip(("floor", "up"), scale_codes(name, largest)):
            made[f"{name}.{rule}"] = torch.tensor(codes, dtype=torch.int32)
    scales = numpy.arange(256, dtype=numpy.uint8).view(ml_dtypes.float8_e8m0fnu).astype(numpy.float32)
    made["e8m0.values"] = bits(scales)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=pathlib.Path, default=DEFAULT_PATH)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(check(arguments.path, tensors()))
    write_safetensors(arguments.path, tensors(), {"ml_dtypes": ml_dtypes.__version__, "numpy": numpy.__version__})


if __name__ == "__main__":
    main()
