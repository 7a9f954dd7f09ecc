#!/usr/bin/env python3
"""Compares our safetensors files with the reference implementation's, both ways: it reads ours, writes one for us, and
judges damaged files. What it makes lies in tests/fixtures/safetensors/, where tests/formats/safetensors_peer_test.cpp
holds our side to it. Needs `pip install 'safetensors>=0.8' numpy`.

    bench/peers/check_safetensors.py             reads ours.safetensors, writes theirs.safetensors and mutants.bin
    bench/peers/check_safetensors.py 20000       the same with so many damaged files; default: 1000
"""
import argparse
import ctypes
import pathlib
import random
import struct

import safetensors

BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "U8": 8, "BOOL": 8}
# The tensors that tests/formats/safetensors_peer_test.cpp writes and expects; all hold the first bytes of one pattern.
TENSORS = {"f64": ("F64", [3]), "f32": ("F32", [2, 3]), "f16": ("F16", [5, 1]), "bf16": ("BF16", [3]), "i64": ("I64", [2]),
           "i32": ("I32", [1, 1, 2]), "u8": ("U8", [7]), "bool": ("BOOL", [3]), "scalar": ("F32", []), "empty": ("F32", [4, 0]),
           'a "name" é': ("U8", [1])}
LONG_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
              "U8": "uint8", "BOOL": "bool"}


def pattern(dtype, shape):
    count = BITS[dtype] // 8
    for size in shape:
        count *= size
    return bytes(i * 37 % 251 % 2 for i in range(count))


def check_ours(path):
    found = dict(safetensors.deserialize(path.read_bytes()))
    assert found.keys() == TENSORS.keys(), found.keys() ^ TENSORS.keys()
    for name, (dtype, shape) in TENSORS.items():
        tensor = found[name]
        assert (tensor["dtype"], tensor["shape"]) == (dtype, shape), (name, tensor["dtype"], tensor["shape"])
        assert bytes(tensor["data"]) == pattern(dtype, shape), name
    with safetensors.safe_open(path, framework="numpy") as file:
        assert file.metadata() == {"format": "pt", "made by": "us"}
        assert file.get_tensor("f32").tobytes() == pattern("F32", [2, 3])


def mutants(seed, count):
    """Damaged headers and files: by byte, and by exchanging one piece of text for another of the same kind."""
    pick = random.Random(seed)
    header = ('{"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},'
              '"b":{"dtype":"U8","shape":[0,7],"data_offsets":[8,8]},"c":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}')
    pieces = ["0", "1", "2", "8", "10", "[0,8]", "[8,10]", "[8,8]", "[]", "[0]", "null", "1.0", "1e0", "-0", "-1", '"a"', '"c"',
              '"dtype"', '"shape"', '"F32"', '"I32"', '"U8"', '"F4"', '"F6_E2M3"', '"C64"', '"F8_E8M0"', "{", "}", "[", "]", ",", ":", " ",
              "\n", "\\u0061", "18446744073709551615", "18446744073709551616", "9223372036854775808", "4294967296", "\x00", "true",
              '"x":1,', '"x":{"y":[null]},', "é", "\t", "//"]
    for _ in range(count):
        text = header
        for _ in range(pick.choice([1, 1, 1, 2, 3])):
            old = pick.choice([p for p in pieces if p in text])
            places = [i for i in range(len(text)) if text.startswith(old, i)]
            at = pick.choice(places)
            text = text[:at] + pick.choice(pieces + [old, ""]) + text[at + (len(old) if pick.random() < 0.7 else 0):]
        raw = text.encode()
        raw = struct.pack("<Q", len(raw) + pick.choice([0] * 20 + [1, -1])) + raw + bytes(10 + pick.choice([0] * 20 + [1, -1, -2, 5]))
        if pick.random() < 0.2:
            at = pick.randrange(len(raw))
            raw = raw[:at] + bytes([pick.randrange(256)]) + raw[at + 1:]
        yield raw


def their_verdict(raw):
    try:
        safetensors.deserialize(raw)
        return 1
    except Exception:  # whatever it raises is a refusal
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("damaged", nargs="?", type=int, default=1000, help="number of damaged files")
    given = parser.parse_args()
    peers = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/safetensors"
    check_ours(peers / "ours.safetensors")
    print("they read ours: equal")
    # The raw interface, since NumPy has no BF16. The buffers must live until the file is written.
    data = {name: ctypes.create_string_buffer(pattern(*kind), max(1, len(pattern(*kind)))) for name, kind in TENSORS.items()}
    tensors = {name: safetensors.TensorSpec(dtype=LONG_NAMES[dtype], shape=shape, data_ptr=ctypes.addressof(data[name]),
                                            data_len=len(pattern(dtype, shape)))
               for name, (dtype, shape) in TENSORS.items()}
    safetensors.serialize_file(tensors, peers / "theirs.safetensors", {"made by": "them"})
    with open(peers / "mutants.bin", "wb") as file:
        for raw in mutants(1, given.damaged):
            file.write(struct.pack("<IB", len(raw), their_verdict(raw)) + raw)
    print("written for us: build/test_formats --gtest_filter=SafetensorsPeer.*")


if __name__ == "__main__":
    main()
