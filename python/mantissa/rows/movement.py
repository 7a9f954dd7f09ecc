"""Operations that move elements and compute nothing."""
import math

import numpy as np

from .. import layout, nn
from .._native import operations as native
from ..constants import placed
from ..layout import Placed
from .elementwise import _chosen
from .registry import Refused, row


def part(x, axis, start, stop, step=1):
    """Elements start, start + step, ... below stop along an axis."""
    extent = x.shape[axis]
    if (start, stop, step) == (0, extent, 1):
        return x
    place = x.order[axis]
    if step == 1:
        return Placed(nn.slice(x.tensor, place, start, stop), x.order)
    return Placed(native.strided_slice(x.tensor, place, start, stop, step), x.order)


def joined(parts, axis):
    """Parts one behind the other, in the layout of the first."""
    order = max(parts, key=lambda x: math.prod(x.shape)).order
    return Placed(nn.concat([layout.stored_as(x, order) for x in parts], order[axis]), order)


def read(at, tensor, axis, ids, function=native.take):
    """native.take or native.gather of any type."""
    if tensor.dtype in ("f32", "i32"):
        return function(tensor, axis, ids)
    moved = function(tensor.cast("i32"), axis, ids)
    return nn.less(native.constant(at.anchor, 0, "i32"), moved) if tensor.dtype == "bool" else moved.cast(tensor.dtype)


@row("aten.view", "aten.reshape", "aten._unsafe_view", "aten.flatten", "aten.unflatten", "aten.view_as",
     "aten.reshape_as", "aten._reshape_alias", "aten.squeeze", "aten.unsqueeze", "aten.squeeze_copy", "aten.ravel")
def view(at, self, **_):
    return _reshaped(self, at.shape)


def _reshaped(x, shape):
    """Only axes of extent 1 come and go: all others lie as they did."""
    return layout.viewed(x, shape)


@row("aten.permute")
def permute(at, self, dims):
    return layout.permuted(self, [axis % len(self.shape) for axis in dims])


@row("aten.transpose", "aten.swapaxes")
def transpose(at, self, dim0=None, dim1=None, axis0=None, axis1=None):
    axes = list(range(len(self.shape)))
    if not axes:
        return self
    first = (dim0 if dim0 is not None else axis0) % len(axes)
    second = (dim1 if dim1 is not None else axis1) % len(axes)
    axes[first], axes[second] = axes[second], axes[first]
    return layout.permuted(self, axes)


@row("aten.t", "aten.numpy_T", "aten.mT", "aten.adjoint")
def t(at, self):
    axes = list(range(len(self.shape)))
    if len(axes) > 1:
        axes[-1], axes[-2] = axes[-2], axes[-1]
    return layout.permuted(self, axes)


@row("aten.movedim")
def movedim(at, self, source, destination):
    axes = [axis for axis in range(len(self.shape)) if axis not in [s % len(self.shape) for s in source]]
    for to, axis in sorted(zip([d % len(self.shape) for d in destination], [s % len(self.shape) for s in source])):
        axes.insert(to, axis)
    return layout.permuted(self, axes)


@row("aten.expand", "aten.expand_as", "aten.broadcast_to")
def expand(at, self, **_):
    return layout.broadcast(self, at.shape)


@row("aten.broadcast_tensors", "aten.meshgrid")
def broadcast_tensors(at, tensors, indexing="ij"):
    if at.node.op == "aten.meshgrid":
        rank = len(tensors)
        axes = [1, 0] + list(range(2, rank)) if indexing == "xy" and rank > 1 else list(range(rank))
        tensors = [layout.viewed(x, [x.shape[0] if x.shape and axis == axes[i] else 1 for axis in range(rank)])
                   for i, x in enumerate(tensors)]
    return tuple(layout.broadcast(x, at.type(i)[1]) for i, x in enumerate(tensors))


@row("aten.repeat")
def repeat(at, self, repeats):
    """[a, b] repeated along a is [repeats, a, b] with the first two axes as one."""
    x = layout.plain(layout.with_rank(self, len(repeats)))
    for axis, count in enumerate(repeats):
        if count == 0:
            raise Refused("no repetition at all")
        if count > 1:
            shape = list(x.shape)
            if shape[axis] == 1:
                shape[axis] = count
                x = native.broadcast_to(x, shape)
                continue
            wide = x.reshape(shape[:axis] + [1] + shape[axis:])
            wide = native.broadcast_to(wide, shape[:axis] + [count] + shape[axis:])
            shape[axis] *= count
            x = wide.reshape(shape)
    return Placed(x)


@row("aten.repeat_interleave")
def repeat_interleave(at, self, repeats, dim=None, output_size=None):
    if isinstance(repeats, Placed):
        raise Refused("repetitions that the batch decides", "Repeat each element as often.")
    x = layout.plain(self)
    if dim is None:
        x, dim = x.reshape([-1]), 0
    axis = dim % len(x.shape)
    shape = list(x.shape)
    wide = native.broadcast_to(x.reshape(shape[:axis + 1] + [1] + shape[axis + 1:]),
                               shape[:axis + 1] + [repeats] + shape[axis + 1:])
    shape[axis] *= repeats
    return Placed(wide.reshape(shape))


@row("aten.cat", "aten.concat", "aten.concatenate")
def cat(at, tensors, dim=0):
    kept = [at.cast(x) for x in tensors if not (len(x.shape) == 1 and x.shape[0] == 0)]
    return joined(kept, dim % len(at.shape)) if len(kept) > 1 else kept[0]


@row("aten.stack")
def stack(at, tensors, dim=0):
    axis = dim % len(at.shape)
    parts = [layout.viewed(at.cast(x), x.shape[:axis] + (1,) + x.shape[axis:]) for x in tensors]
    return joined(parts, axis) if len(parts) > 1 else parts[0]


@row("aten.slice")
def slice_(at, self, dim=0, start=None, end=None, step=1):
    axis = dim % len(self.shape)
    start, stop, step = slice(start, end, step).indices(self.shape[axis])
    return part(self, axis, start, stop, step)


@row("aten.narrow")
def narrow(at, self, dim, start, length):
    axis = dim % len(self.shape)
    return part(self, axis, start % self.shape[axis] if start < 0 else start, start + length)


@row("aten.select")
def select(at, self, dim, index):
    axis = dim % len(self.shape)
    at_index = index % self.shape[axis]
    return layout.viewed(part(self, axis, at_index, at_index + 1), self.shape[:axis] + self.shape[axis + 1:])


@row("aten.unbind")
def unbind(at, self, dim=0):
    axis = dim % len(self.shape)
    without = self.shape[:axis] + self.shape[axis + 1:]
    return tuple(layout.viewed(part(self, axis, i, i + 1), without) for i in range(self.shape[axis]))


@row("aten.split", "aten.split_with_sizes", "aten.unsafe_split", "aten.tensor_split", "aten.chunk")
def split(at, self, dim=0, **_):
    axis = dim % len(self.shape)
    parts, begin = [], 0
    for index in range(len(at.node.outputs)):
        extent = at.type(index)[1][axis]
        parts.append(part(self, axis, begin, begin + extent))
        begin += extent
    return tuple(parts)


@row("aten.roll")
def roll(at, self, shifts, dims=()):
    if not dims:
        raise Refused("roll without dims", "Name them.")
    x = self.tensor
    for shift, dim in zip(shifts, dims):
        axis = dim % len(self.shape)
        if shift % self.shape[axis]:
            x = native.roll(x, self.order[axis], shift % self.shape[axis])
    return Placed(x, self.order)


@row("aten.flip")
def flip(at, self, dims):
    x = self
    for dim in dims:
        axis = dim % len(self.shape)
        index = native.literal(at.anchor, np.arange(self.shape[axis])[::-1].astype(np.int32).tobytes(), "i32",
                               [self.shape[axis]])
        x = Placed(read(at, x.tensor, x.order[axis], index), x.order)
    return x


def _written(at, x, axis, start, stop, step, src):
    """x with src over its elements start ... along the axis."""
    if step != 1:
        raise Refused("a write of every other element", "Write by torch.where.")
    parts = [part(x, axis, 0, start)] if start > 0 else []
    parts.append(layout.broadcast(at.cast(src), x.shape[:axis] + (stop - start,) + x.shape[axis + 1:]))
    if stop < x.shape[axis]:
        parts.append(part(x, axis, stop, x.shape[axis]))
    return joined(parts, axis) if len(parts) > 1 else parts[0]


@row("aten.slice_scatter")
def slice_scatter(at, self, src, dim=0, start=None, end=None, step=1):
    axis = dim % len(self.shape)
    start, stop, step = slice(start, end, step).indices(self.shape[axis])
    return _written(at, self, axis, start, stop, step, src)


@row("aten.select_scatter")
def select_scatter(at, self, src, dim, index):
    axis = dim % len(self.shape)
    begin = index % self.shape[axis]
    wide = layout.viewed(src, self.shape[:axis] + (1,) + self.shape[axis + 1:])
    return _written(at, self, axis, begin, begin + 1, 1, wide)


@row("aten.constant_pad_nd", "aten.pad")
def pad(at, self, pad, value=0, mode="constant"):
    return _padded(at, self, pad, value, mode)


def _padded(at, self, pad, value=0, mode="constant"):
    x = self
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise Refused(f"padding by '{mode}'", "Pad by constants, reflect, replicate or circular.")
    for i in range(len(pad) // 2):
        axis = len(self.shape) - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        if before < 0 or after < 0:
            x = part(x, axis, max(0, -before), x.shape[axis] - max(0, -after))
            before, after = max(0, before), max(0, after)
        if before == 0 and after == 0:
            continue
        if mode == "circular":
            end = x.shape[axis]
            sides = [part(x, axis, end - before, end), x, part(x, axis, 0, after)]
            x = joined([each for each in sides if each.shape[axis]], axis)
        elif mode != "constant":
            edges = "reflected" if mode == "reflect" else "replicated"
            x = Placed(native.pad_edges(x.tensor, x.order[axis], before, after, edges), x.order)
        elif value in (0, None) and x.dtype == "f32":
            x = Placed(nn.pad(x.tensor, x.order[axis], before, after), x.order)
        else:
            sides = [at.full(value or 0, x.shape[:axis] + (extent,) + x.shape[axis + 1:]) for extent in (before, after)]
            x = joined([each for each in (sides[0], x, sides[1]) if each.shape[axis]], axis)
    return x


@row("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d")
def reflection_pad(at, self, padding):
    return pad(at, self, padding, mode="reflect")


@row("aten._pad_circular")
def circular_pad(at, self, pad):
    return _padded(at, self, pad, mode="circular")


@row("aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d")
def replication_pad(at, self, padding):
    return pad(at, self, padding, mode="replicate")


@row("aten.embedding")
def embedding(at, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if scale_grad_by_freq or sparse:
        raise Refused("sparse or scaled gradients", "Leave sparse and scale_grad_by_freq off.")
    table, ids = layout.plain(weight), layout.plain(indices)
    rows = nn.embedding(table, ids)
    if padding_idx >= 0:
        # The row of padding is read, and gets no gradient.
        keep = nn.equal(ids.reshape(list(ids.shape) + [1]), native.constant(at.anchor, padding_idx, "i32"))
        rows = nn.select(native.broadcast_to(keep, list(rows.shape)), nn.stop_gradient(rows), rows)
    return Placed(rows)


@row("aten.index_select")
def index_select(at, self, dim, index):
    axis = dim % len(self.shape)
    return Placed(read(at, self.tensor, self.order[axis], layout.plain(index)), self.order)


def _in_range(at, index, extent):
    """Indices from the end, as in x[-1], counted from the start."""
    x = layout.plain(index)
    below = nn.less(x, native.constant(at.anchor, 0, "i32"))
    return nn.select(below, x + native.constant(at.anchor, extent, "i32"), x)


@row("aten.gather")
def gather(at, self, dim, index, sparse_grad=False):
    if not self.shape:
        return self
    axis = dim % len(self.shape)
    x, ids = self, layout.plain(index)
    for other, extent in enumerate(index.shape):  # only as far as the index goes
        if other != axis and extent != x.shape[other]:
            x = part(x, other, 0, extent)
    return Placed(read(at, layout.plain(x), axis, ids, native.gather))


@row("aten.take_along_dim")
def take_along_dim(at, self, indices, dim=None):
    return gather(at, self, dim, indices)


def _scattered(at, onto, dim, ids, parts):
    """onto with parts added where ids say; both as they are counted."""
    axis = dim % len(onto.shape)
    if any(i != x for other, (i, x) in enumerate(zip(ids.shape, onto.shape)) if other != axis):
        raise Refused("an index shorter than what it writes to", "Give it the other axes whole.")
    for other, extent in enumerate(ids.shape):
        parts = part(parts, other, 0, extent)
    return Placed(native.scatter_add(layout.plain(onto), axis, ids, layout.plain(parts)))


@row("aten.scatter_add")
def scatter_add(at, self, dim, index, src):
    return _scattered(at, self, dim, layout.plain(index), src)


def _counted(at, self, dim, ids):
    """How often each place of self is written."""
    return _scattered(at, at.full(0.0, self.shape, "f32"), dim, ids, at.full(1.0, tuple(ids.shape), "f32"))


def _written_once(at, self, dim, index, src):
    """self with src at the places of the index. A place that is named twice is an error, since either may stay."""
    ids = layout.plain(index)
    counts = _counted(at, self, dim, ids)
    is_again = nn.less(at.number(1, "f32"), native.gather(nn.stop_gradient(layout.plain(counts)), dim % len(self.shape), ids))
    ids = nn.select(is_again, at.number(-1, "i32"), ids)
    made = _scattered(at, at.full(0.0, self.shape, "f32"), dim, ids, at.cast(src, "f32"))
    return _where_written(at, self, counts, at.cast(made))


def _where_written(at, self, counts, made):
    is_written = at.each(lambda count: nn.less(at.number(0, "f32"), count), counts, dtype="f32")
    return layout.broadcast(_chosen(at, is_written, made, self), at.shape)


@row("aten.scatter")
def scatter(at, self, dim, index, src=None, value=None, reduce=None):
    if reduce is not None:
        raise Refused(f"scatter that reduces by '{reduce}'", "Use scatter_add, or scatter_reduce by sum or mean.")
    if isinstance(src, Placed):
        return _written_once(at, self, dim, index, src)
    value = src if value is None else value  # one number, wherever it is written
    return _where_written(at, self, _counted(at, self, dim, layout.plain(index)), value)


@row("aten.scatter_reduce")
def scatter_reduce(at, self, dim, index, src, reduce, include_self=True):
    if reduce in ("amax", "amin", "prod"):
        return _reduced_by_mask(at, self, dim % max(1, len(self.shape)), index, src, reduce, include_self)
    ids, zeros = layout.plain(index), at.full(0.0, self.shape)
    counts = _counted(at, self, dim, ids)
    total = _scattered(at, self if include_self else zeros, dim, ids, src)
    if reduce == "mean":
        more = 1.0 if include_self else 0.0
        total = at.each(lambda x, count: x / nn.maximum(count + more, at.number(1)), total, counts)
    return total if include_self else _where_written(at, self, counts, total)


_MOST_PAIRS, _MOST_FACTORS = 2**24, 64


def _reduced_by_mask(at, self, axis, index, src, reduce, include_self):
    """Extremes and products: each place of self beside all that an index may bring there. Equals share the gradient."""
    from .elementwise import _chosen
    if at.dtype != "f32":
        raise Refused(f"scatter_reduce by '{reduce}' of whole numbers", "Convert them to float before.")
    x, ids = (layout.plain(along_the_last(each, axis)) for each in (self, index))
    rows, places, count = list(x.shape[:-1]), x.shape[-1], ids.shape[-1]
    if list(ids.shape[:-1]) != rows:
        raise Refused("an index shorter than what it writes to", "Give it the other axes whole.")
    if math.prod(rows) * places * count > _MOST_PAIRS or (reduce == "prod" and count > _MOST_FACTORS):
        raise Refused(f"scatter_reduce by '{reduce}' of {count} numbers onto {places} places",
                      "Reduce fewer at a time, or sum: logarithms where it is a product.")
    parts = layout.plain(along_the_last(part(src, axis, 0, count), axis))
    for other, extent in enumerate(rows):
        parts = nn.slice(parts, other, 0, extent) if parts.shape[other] != extent else parts
    wide = rows + [places, count]
    named = nn.equal(native.broadcast_to(ids.reshape(rows + [1, count]), wide), native.iota(at.anchor, wide, len(wide) - 2))
    sign = -1.0 if reduce == "amin" else 1.0
    neutral = 1.0 if reduce == "prod" else -math.inf
    given = nn.select(named, native.broadcast_to(parts.reshape(rows + [1, count]) * sign, wide), at.number(neutral))
    # Counting looks whether there is a place for each index.
    counts = layout.plain(along_the_last(_counted(at, self, axis, layout.plain(index)), axis))
    own = nn.select(nn.less(counts, at.number(math.inf if include_self else 0.5)), x * sign, at.number(neutral))
    each = nn.concat([own.reshape(rows + [places, 1]), given], len(wide) - 1)
    if reduce == "prod":
        made = nn.slice(each, len(wide) - 1, 0, 1)
        for at_factor in range(1, count + 1):
            made = made * nn.slice(each, len(wide) - 1, at_factor, at_factor + 1)
    else:
        made = each.max([len(wide) - 1])
    return along_the_last(Placed(made.reshape(rows + [places]) * sign), axis)


def along_the_last(x, axis):
    """The same with this axis and the last one exchanged."""
    axes = list(range(len(x.shape)))
    axes[axis], axes[-1] = axes[-1], axes[axis]
    return layout.permuted(x, axes)


@row("aten.index_copy")
def index_copy(at, self, dim, index, source):
    axis = dim % len(self.shape)
    ids = layout.plain(index).reshape([-1 if i == axis else 1 for i in range(len(self.shape))])
    return _written_once(at, self, dim, Placed(native.broadcast_to(ids, list(source.shape))), source)


@row("aten.index_add")
def index_add(at, self, dim, index, source, alpha=1):
    axis = dim % len(self.shape)
    ids = layout.plain(index)
    wide = native.broadcast_to(ids.reshape([-1 if i == axis else 1 for i in range(len(self.shape))]),
                               list(source.shape))
    parts = layout.plain(source)
    return Placed(native.scatter_add(layout.plain(self), axis, wide, parts if alpha == 1 else parts * float(alpha)))


@row("aten.index_put", "aten._unsafe_index_put")
def index_put(at, self, indices, values, accumulate=False):
    """Sums at places along the first axis; writes where the places are a permutation, so that none is written twice."""
    if len(indices) != 1 or indices[0] is None or indices[0].dtype == "bool":
        raise Refused("writes at more than one index, or by a mask", "Write by torch.where, or by index_add.")
    ids = layout.plain(_checked_range(at, indices[0], self.shape[0]))
    parts = layout.plain(layout.broadcast(at.cast(values), tuple(indices[0].shape) + self.shape[1:]))
    if accumulate:
        if at.dtype != "f32" or len(indices[0].shape) != 1:
            raise Refused("sums of whole numbers at places", "Convert them to float before.")
        wide = native.broadcast_to(ids.reshape([-1] + [1] * (len(self.shape) - 1)), list(parts.shape))
        return Placed(native.scatter_add(layout.plain(self), 0, wide, parts))
    if not (at.is_permutation("indices") and indices[0].shape == self.shape[:1]):
        raise Refused("writes at places that may be the same", "Sum them by index_add, or write by torch.where.")
    inverse = native.argsort(ids, 0, False)
    return Placed(read(at, parts, 0, inverse))


def _checked_range(at, index, extent):
    return Placed(_in_range(at, index, extent))


@row("aten.masked_scatter")
def writes_by_data(at, **_):
    raise Refused(f"{at.node.op}", "Write it by torch.where, by scatter_add, or as a product with a one-hot mask.")


@row("aten.index", "aten._unsafe_index")
def index(at, self, indices):
    """Indices of the batch along axes next to each other, and constant ones: rows of a flat table."""
    named = [axis for axis, each in enumerate(indices) if each is not None]
    values = [indices[axis] for axis in named]
    if any(each.dtype == "bool" for each in values):
        raise Refused("a choice of rows by a mask, whose number the batch decides",
                      "Multiply by the mask, or choose by torch.where.")
    if named != list(range(named[0], named[0] + len(named))):
        raise Refused("indices of axes that do not lie side by side", "Move the axes together before.")
    shape, first = self.shape, named[0]
    ids, flat, there = None, 1, None
    for axis in reversed(named):
        each = _in_range(at, indices[axis], shape[axis])
        term = each if flat == 1 else each * at.number(flat, "i32")
        ids = term if ids is None else ids + term
        if len(named) > 1:  # a wrong column is none of the next row
            holds = native.logical_and(nn.less_equal(at.number(0, "i32"), each), nn.less(each, at.number(shape[axis], "i32")))
            there = holds if there is None else native.logical_and(there, holds)
        flat *= shape[axis]
    if there is not None:
        ids = nn.select(there, ids, at.number(-1, "i32"))
    x = layout.plain(self)
    if len(named) > 1:
        x = x.reshape(list(shape[:first]) + [flat] + list(shape[first + len(named):]))
    return Placed(read(at, x, first, ids))


@row("aten.tril", "aten.triu")
def triangle(at, self, diagonal=0):
    rows, columns = self.shape[-2:]
    make = np.tril if at.node.op == "aten.tril" else np.triu
    mask = placed(at.anchor, make(np.ones((rows, columns), bool), diagonal))
    return _chosen(at, layout.broadcast(mask, self.shape), self, 0.0)


@row("aten.diagonal", "aten.diag")
def diagonal(at, self, offset=0, dim1=0, dim2=1, diagonal=None):
    rank = len(self.shape)
    offset = offset if diagonal is None else diagonal
    if rank < 2:
        raise Refused("a diagonal of one axis")
    dim1, dim2 = dim1 % rank, dim2 % rank
    axes = [axis for axis in range(rank) if axis not in (dim1, dim2)] + [dim1, dim2]
    x = layout.permuted(self, axes)
    rows, columns = x.shape[-2:]
    length = at.shape[-1]
    start = offset if offset >= 0 else -offset * columns
    flat = layout.plain(x).reshape(list(x.shape[:-2]) + [rows * columns])
    ids = (start + np.arange(length) * (columns + 1)).astype(np.int32)
    return Placed(read(at, flat, len(flat.shape) - 1, native.literal(at.anchor, ids.tobytes(), "i32", [length])))


@row("aten.unfold")
def unfold(at, self, dimension, size, step):
    axis = dimension % len(self.shape)
    count = (self.shape[axis] - size) // step + 1
    ids = (np.arange(count)[:, None] * step + np.arange(size)[None, :]).astype(np.int32)
    x = read(at, layout.plain(self), axis, native.literal(at.anchor, ids.tobytes(), "i32", [count, size]))
    axes = list(range(len(x.shape)))
    return layout.permuted(Placed(x), axes[:axis + 1] + axes[axis + 2:] + [axis + 1])


@row("getitem")
def getitem(at, **_):
    raise Refused("getitem")


@row("aten.im2col", "aten.col2im")
def im2col(at, **_):
    raise Refused(f"{at.node.op}", "Write the product as a convolution.")


@row("aten.pixel_shuffle")
def pixel_shuffle(at, self, upscale_factor):
    N, C, H, W = self.shape
    r = upscale_factor
    x = layout.viewed(self, [N, C // (r * r), r, r, H, W])
    return layout.viewed(layout.permuted(x, [0, 1, 4, 2, 5, 3]), at.shape)


@row("aten.channel_shuffle", "aten.native_channel_shuffle")
def channel_shuffle(at, self, groups):
    N, C, H, W = self.shape
    x = layout.viewed(self, [N, groups, C // groups, H, W])
    return layout.viewed(layout.permuted(x, [0, 2, 1, 3, 4]), at.shape)


@row("aten.glu")
def glu(at, self, dim=-1):
    axis = dim % len(self.shape)
    half = self.shape[axis] // 2
    return at.each(lambda a, b: a * nn.sigmoid(b), part(self, axis, 0, half), part(self, axis, half, 2 * half))
