#!/usr/bin/python3
"""Writes tests/fixtures/npy/: small arrays by NumPy itself, which `NpyFile` reads or refuses.

Element i of each that is to be read is i - 2, halved where it is floating, and i + 250 modulo 256 of unsigned bytes.
Needs NumPy (`pip install numpy`). `--check` compares with the stored files instead of writing them.
"""
import argparse
import io
import pathlib
import sys

import numpy

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/npy"


def numbers(dtype, shape=(3, 4)):
    whole = numpy.arange(numpy.prod(shape, dtype=int))
    if dtype == "u1":
        return ((whole + 250) % 256).astype(dtype).reshape(shape)
    return ((whole - 2) * (0.5 if dtype.startswith("f") else 1)).astype(dtype).reshape(shape)


def files():
    """The bytes of each file."""
    def written(array, version=(1, 0)):
        file = io.BytesIO()
        numpy.lib.format.write_array(file, array, version=version)
        return file.getvalue()
    made = {dtype: written(numbers(dtype)) for dtype in ("f4", "f8", "i4", "i8", "u1")}
    made["f4_version2"] = written(numbers("f4"), (2, 0))
    made["f4_version3"] = written(numbers("f4"), (3, 0))
    made["i8_of_one_axis"] = written(numbers("i8", (5,)))
    made["i8_large"] = written(numpy.array([1, 2**31], dtype="i8"))
    made["f4_fortran"] = written(numpy.asfortranarray(numbers("f4")))
    made["f2"] = written(numbers("f2"))
    made["f4_big_endian"] = written(numbers("f4").astype(">f4"))
    return {f"{name}.npy": data for name, data in made.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the stored files")
    given, wrong = parser.parse_args(), 0
    for name, data in files().items():
        if not given.check:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_bytes(data)
        elif (FOLDER / name).read_bytes() != data:
            print(f"{name} is not what NumPy {numpy.__version__} writes")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
