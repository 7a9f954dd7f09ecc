"""Reductions, softmax, orders and sums along an axis."""
import math

from .. import layout, nn
from .._native import operations as native
from ..layout import Placed
from .elementwise import _chosen, _wide
from .registry import Refused, row


def axes_of(x, dim):
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(len(x.shape)))
    return sorted(axis % max(1, len(x.shape)) for axis in (dim if isinstance(dim, (list, tuple)) else [dim]))


def reduced(x, axes, keep, function):
    """A reduction over axes: the result lies as what is left of x."""
    if not x.shape:
        return x
    left = [axis for axis in range(len(x.shape)) if axis not in axes]
    if x.tensor is not None and axes:
        tensor = function(x.tensor, [x.order[axis] for axis in axes])
    else:
        tensor = x.tensor
    places = sorted(x.order[axis] for axis in left)
    result = Placed(tensor, [places.index(x.order[axis]) for axis in left])
    if keep:
        shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
        return layout.viewed(result, shape)
    return result


def _sum(tensor, axes):
    return tensor.sum(axes)


def summed(at, x, axes, keep=False):
    """Whole numbers and bools are summed in FP32, exact below 2^24."""
    if x.dtype == "f32":
        return reduced(x, axes, keep, _sum)
    return at.cast(reduced(at.cast(x, "f32"), axes, keep, _sum), at.dtype)


@row("aten.sum")
def sum_(at, self, dim=None, keepdim=False, **_):
    x = at.cast(self) if at.dtype == "f32" else self
    return summed(at, x, axes_of(self, dim), keepdim)


@row("aten.mean")
def mean(at, self, dim=None, keepdim=False, **_):
    return reduced(at.cast(self), axes_of(self, dim), keepdim, lambda x, axes: x.mean(axes))


@row("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def variance(at, self, dim=None, correction=1, keepdim=False, unbiased=None, **_):
    axes = axes_of(self, dim)
    if unbiased is not None:
        correction = 1 if unbiased else 0
    correction = 1 if correction is None else correction
    count = math.prod(self.shape[axis] for axis in axes)
    middle = reduced(self, axes, True, lambda x, axes: x.mean(axes))
    away = at.each(lambda a, b: a - b, self, middle, dtype="f32")
    square = at.each(lambda a: a * a, away, dtype="f32")
    result = reduced(square, axes, keepdim, _sum)
    result = at.each(lambda a: a * (1 / (count - correction)), result, dtype="f32")
    if "std" in at.node.op:
        result = at.each(nn.sqrt, result, dtype="f32")
    if at.node.op.endswith("_mean"):
        return result, reduced(self, axes, keepdim, lambda x, axes: x.mean(axes))
    return result


def _shared_extremum(at, x, axes, keep, sign):
    """amax and amin: equals share the gradient."""
    taken = x if sign > 0 else at.each(lambda a: -a, x, dtype=x.dtype)
    result = reduced(taken, axes, keep, lambda a, axes: a.max(axes))
    return result if sign > 0 else at.each(lambda a: -a, result)


@row("aten.amax", "aten.amin")
def amax(at, self, dim=None, keepdim=False):
    if self.dtype != "f32":
        raise Refused("an extremum of whole numbers", "Convert it to float before.")
    return _shared_extremum(at, self, axes_of(self, dim), keepdim, 1 if at.node.op == "aten.amax" else -1)


@row("aten.max", "aten.min")
def max_(at, self, dim=None, keepdim=False, other=None):
    """Along an axis the gradient goes to the one that is named; over all, equals share it."""
    if other is not None:
        return at.each(nn.maximum if at.node.op == "aten.max" else nn.minimum, self, other)
    sign = 1 if at.node.op == "aten.max" else -1
    if self.dtype != "f32":
        raise Refused("an extremum of whole numbers", "Convert it to float before.")
    if dim is None:
        return _shared_extremum(at, self, axes_of(self, None), False, sign)
    axis = dim % len(self.shape)
    place = self.order[axis]
    ids = nn.argmax(self.tensor if sign > 0 else -self.tensor, place)
    shape = [1 if i == place else extent for i, extent in enumerate(self.tensor.shape)]
    values = native.gather(self.tensor, place, ids.reshape(shape))
    both = Placed(values, self.order), Placed(ids.reshape(shape), self.order)
    if keepdim:
        return both
    return tuple(layout.viewed(x, at.shape) for x in both)


@row("aten.argmax", "aten.argmin")
def argmax(at, self, dim=None, keepdim=False):
    x = layout.plain(at.cast(self, "f32")) if self.dtype != "f32" else layout.plain(self)
    if dim is None:
        x, axis = x.reshape([-1]), 0
    else:
        axis = dim % len(self.shape)
    ids = nn.argmax(x if at.node.op == "aten.argmax" else -x, axis)
    return Placed(ids.reshape(list(at.shape)))


@row("aten.all", "aten.any")
def all_any(at, self, dim=None, keepdim=False):
    axes = axes_of(self, dim)
    x = at.cast(at.cast(self, "bool"), "f32")
    if at.node.op == "aten.any":
        most = reduced(x, axes, keepdim, lambda a, axes: a.max(axes))
        return Placed(nn.less(at.number(0, "f32"), most.tensor), most.order)
    least = reduced(at.each(lambda a: -a, x, dtype="f32"), axes, keepdim, lambda a, axes: a.max(axes))
    return Placed(nn.less(least.tensor, at.number(0, "f32")), least.order)


@row("aten.prod")
def product(at, self, dim=None, keepdim=False, **_):
    axes = axes_of(self, dim)
    if math.prod(self.shape[axis] for axis in axes) > 16 or at.dtype != "f32":
        raise Refused("a product of more than 16 numbers", "Sum logarithms.")
    from .movement import part
    x = at.cast(self)
    for axis in axes:
        factors = [part(x, axis, i, i + 1) for i in range(x.shape[axis])]
        x = factors[0]
        for each in factors[1:]:
            x = at.each(lambda a, b: a * b, x, each)
    return layout.viewed(x, at.shape)


@row("aten.logsumexp")
def logsumexp(at, self, dim, keepdim=False):
    axes = axes_of(self, dim)
    most = reduced(self, axes, True, lambda a, axes: a.max(axes))
    most = Placed(nn.stop_gradient(most.tensor), most.order)
    away = at.each(lambda a, m: nn.exp(a - m), self, most)
    total = at.each(lambda s, m: nn.log(s) + m, reduced(away, axes, True, _sum), most)
    return total if keepdim else layout.viewed(total, at.shape)


def along_last(x, axis, function):
    """A function over the last axis, on another one."""
    axis %= max(1, len(x.shape))
    rank = len(x.shape)
    if rank and x.order[axis] != rank - 1:
        order = [0] * rank
        for at, other in enumerate(sorted((i for i in range(rank) if i != axis), key=lambda i: x.order[i])):
            order[other] = at
        order[axis] = rank - 1
        x = Placed(layout.stored_as(x, order), order)
    return Placed(function(x.tensor), x.order)


@row("aten.softmax", "aten._softmax")
def softmax(at, self, dim, **_):
    return along_last(at.cast(self), dim, nn.softmax)


@row("aten._safe_softmax")
def safe_softmax(at, self, dim, **_):
    """Zeros where a row is -infinity only."""
    return along_last(at.cast(self), dim, native.softmax_or_zero)


@row("aten.log_softmax", "aten._log_softmax")
def log_softmax(at, self, dim, **_):
    x = at.cast(self)
    axis = dim % max(1, len(x.shape))
    most = reduced(x, [axis], True, lambda a, axes: a.max(axes))
    most = Placed(nn.stop_gradient(most.tensor), most.order)
    away = at.each(lambda a, m: a - m, x, most)
    total = reduced(at.each(nn.exp, away), [axis], True, _sum)
    return at.each(lambda a, s: a - nn.log(s), away, total)


@row("aten.cumsum")
def cumsum(at, self, dim, **_):
    x = at.cast(self)
    if not x.shape:
        return x
    return Placed(native.cumsum(x.tensor, x.order[dim % len(x.shape)]), x.order)


@row("aten.cumprod")
def cumprod(at, self, dim, **_):
    from .movement import joined, part
    axis = dim % len(self.shape)
    if self.shape[axis] > 64:
        raise Refused("a running product of more than 64 numbers", "Sum logarithms by cumsum.")
    parts = [part(self, axis, 0, 1)]
    for i in range(1, self.shape[axis]):
        parts.append(at.each(lambda a, b: a * b, parts[-1], part(self, axis, i, i + 1)))
    return joined(parts, axis)


@row("aten.norm", "aten.linalg_vector_norm", "aten.frobenius_norm")
def norm(at, self, p=2, dim=None, keepdim=False, ord=None, **_):
    p = ord if ord is not None else (2 if p is None else p)
    axes = axes_of(self, dim)
    if p == 1:
        return reduced(at.each(nn.abs, self), axes, keepdim, _sum)
    if p == math.inf:
        return reduced(at.each(nn.abs, self), axes, keepdim, lambda a, axes: a.max(axes))
    if p != 2:
        raise Refused(f"a norm of order {p}", "Use 1, 2 or infinity.")
    total = reduced(at.each(lambda a: a * a, self), axes, keepdim, _sum)
    # The gradient of a norm of 0 is 0.
    is_none = at.each(lambda a: nn.equal(a, at.number(0)), total)
    root = at.each(nn.sqrt, _chosen(at, is_none, 1.0, total))
    return _chosen(at, is_none, 0.0, root)


@row("aten.linalg_norm", "aten.linalg_matrix_norm")
def linalg_norm(at, self, ord=None, dim=None, keepdim=False, **_):
    is_of_vectors = at.node.op == "aten.linalg_norm" and (
        len(self.shape) == 1 if dim is None else not isinstance(dim, (list, tuple)) or len(dim) == 1)
    if not is_of_vectors and ord not in (None, "fro"):
        raise Refused(f"a norm of matrices of order {ord!r}", "Use the norm of Frobenius, 'fro'.")
    return norm(at, self, 2 if ord in (None, "fro") else ord, dim, keepdim)


@row("aten.topk")
def topk(at, self, k, dim=-1, largest=True, sorted=True):
    if not largest:
        raise Refused("the least of all", "Negate it and take the greatest.")
    values, ids = native.top_k(self.tensor, k, self.order[dim % len(self.shape)])
    return Placed(values, self.order), Placed(ids, self.order)


@row("aten.sort")
def sort(at, self, dim=-1, descending=False, stable=None):
    axis = self.order[dim % len(self.shape)]
    if self.dtype == "i32":
        from .movement import read
        ids = native.argsort(self.tensor, axis, descending)
        return Placed(read(at, self.tensor, axis, ids, native.gather), self.order), Placed(ids, self.order)
    values, ids = native.sort(self.tensor, axis, descending)
    return Placed(values, self.order), Placed(ids, self.order)


@row("aten.argsort")
def argsort(at, self, dim=-1, descending=False, stable=None):
    return Placed(native.argsort(self.tensor, self.order[dim % len(self.shape)], descending), self.order)


@row("aten.histc")
def histc(at, self, bins=100, min=0, max=0):
    """How often each whole number comes: one bin a number."""
    if bins != max - min + 1 or min != int(min):
        raise Refused("bins that are not one for each whole number", "Count by a one-hot sum.")
    x = native.floor(layout.plain(at.cast(self, "f32")).reshape([-1]) - float(min))
    wide = native.broadcast_to(x.reshape([x.shape[0], 1]), [x.shape[0], bins])
    return Placed(nn.equal(wide, native.iota(at.anchor, [x.shape[0], bins], 1, "f32")).cast("f32").sum([0]))


@row("aten.one_hot")
def one_hot(at, self, num_classes=-1):
    count = at.shape[-1]
    ids = layout.plain(self)
    wide = native.broadcast_to(ids.reshape(list(ids.shape) + [1]), list(ids.shape) + [count])
    classes = native.iota(at.anchor, list(ids.shape) + [count], len(ids.shape))
    return Placed(nn.equal(wide, classes).cast("i32"))
