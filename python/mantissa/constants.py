"""Constants as graphs like them: numbers, counts and triangles by their rule, tables without what repeats."""
import numpy as np

from . import layout
from ._native import operations as native
from ._native import less_equal
from .program import TYPES

STORED = {**{each.name: each.stored for each in TYPES.values() if each.stored}, "float64": "f32"}
MOST_OF_BF16 = (2 - 2.0**-7) * 2.0**127
_NUMPY = {"f32": np.float32, "i32": np.int32, "u8": np.uint8, "bool": np.bool_}


def without_repeats(array):
    """The array with each axis along which nothing changes cut to 1."""
    for axis in range(array.ndim):
        if array.shape[axis] > 1:
            first = np.take(array, [0], axis)
            if np.array_equal(np.broadcast_to(first, array.shape), array, equal_nan=array.dtype.kind == "f"):
                array = first
    return array


def band_of(mask):
    """(least, most) where a boolean [T, S] is least <= key - query <= most, None: no bound. None where it is no band."""
    queries, keys = mask.shape
    if queries < 2 or keys < 2 or not mask.any():
        return None
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    least, most = int(distance[mask].min()), int(distance[mask].max())
    if not np.array_equal(mask, (distance >= least) & (distance <= most)):
        return None
    return (least if least > 1 - queries else None, most if most < keys - 1 else None)


def _band(x, band, shape):
    """The band as comparisons of positions."""
    keys, queries = (native.iota(x, shape, len(shape) - back) for back in (1, 2))
    least, most = band
    parts = []
    if most is not None:
        parts.append(less_equal(keys, queries if most == 0 else queries + native.constant(x, most, "i32")))
    if least is not None:
        parts.append(less_equal(queries + native.constant(x, least, "i32"), keys))
    return parts[0] if len(parts) == 1 else native.logical_and(*parts)


def placed(x, array, order=None):
    """The array as a value in the graph of x. `order`: how it is to lie."""
    shape = array.shape
    dtype = STORED[str(array.dtype)]
    cut = without_repeats(array)
    if cut.size == 1:
        return layout.broadcast(layout.Placed(native.constant(x, _number(cut.reshape(())[()], dtype), dtype)), shape)
    if dtype == "bool" and cut.ndim >= 2 and cut.size == cut.shape[-1] * cut.shape[-2]:
        band = band_of(cut.reshape(cut.shape[-2:]))
        if band is not None and band != (None, None):
            return layout.broadcast(layout.Placed(_band(x, band, list(cut.shape))), shape)
    if dtype == "i32":
        for axis in range(cut.ndim):
            if cut.size == cut.shape[axis] and np.array_equal(cut.reshape(-1), np.arange(cut.size)):
                return layout.broadcast(layout.Placed(native.iota(x, list(cut.shape), axis)), shape)
    order = tuple(range(cut.ndim)) if order is None else order
    taken = sorted(range(cut.ndim), key=lambda axis: order[axis])
    cut = still_finite(cut) if dtype == "f32" else cut
    stored = np.ascontiguousarray(cut.transpose(taken).astype(_checked(cut, dtype)))
    return layout.broadcast(layout.Placed(native.literal(x, stored.tobytes(), dtype, list(stored.shape)), order), shape)


def still_finite(numbers):
    """Numbers of FP32 as BF16 still holds them: the least of FP32, with which masks hide scores, would be -infinity."""
    numbers = np.asarray(numbers)
    return np.where(np.isinf(numbers), numbers, np.clip(numbers, -MOST_OF_BF16, MOST_OF_BF16))


def _number(number, dtype):
    _checked(np.asarray(number), dtype)
    return float(still_finite(number)) if dtype == "f32" else float(number)


def _checked(array, dtype):
    """The type in which the array is stored; ids beyond 32 bits would become others."""
    if array.dtype == np.int64 and array.size and not (-2**31 <= array.min() and array.max() < 2**31):
        raise OverflowError("a constant has whole numbers beyond 32 bits")
    return _NUMPY[dtype]
