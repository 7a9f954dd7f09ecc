"""Fixtures that PyTorch computes: written as safetensors, read back, and compared with what is computed anew."""
import json
import math
import struct

import torch

NAMES = {torch.float64: "F64", torch.float32: "F32", torch.int32: "I32"}
TYPES = {name: dtype for dtype, name in NAMES.items()}


def write_safetensors(path, tensors, metadata):
    """Eight-byte tensors must come first: then every tensor lies at a multiple of its element's size."""
    header, parts, end = {"__metadata__": metadata}, [], 0
    for name, value in tensors.items():
        parts.append(value.contiguous().numpy().tobytes())
        header[name] = {"dtype": NAMES[value.dtype], "shape": list(value.shape),
                        "data_offsets": [end, end + len(parts[-1])]}
        end += len(parts[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(b"".join([struct.pack("<Q", len(text)), text, *parts]))


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            flat = torch.frombuffer(bytearray(raw[begin:end]), dtype=TYPES[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def largest_distance(left, right, prefix):
    """The tensor under `prefix` where left and right differ most, and by how much; NaN counts as infinite."""
    def distance(name):
        value = (left[name].double() - right[name].double()).abs().max().item()
        return math.inf if math.isnan(value) else value
    return max((distance(name), name) for name in left if name.startswith(prefix))


def check(path, tensors):
    stored = read_safetensors(path)
    if {name: tuple(value.shape) for name, value in stored.items()} != {
            name: tuple(value.shape) for name, value in tensors.items()}:
        return f"{path}: other tensors or shapes than this script makes"
    value, name = largest_distance(tensors, stored, "")
    # FP64 sums in another order, then one rounding to FP32: at most one unit in the last place of a number
    # below 4.
    return None if value <= 2.0**-22 else f"{path}: {name} differs by {value:.2e}"
