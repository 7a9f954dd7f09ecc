"""Products of matrices."""
import math

import numpy as np

from .. import _native, layout, nn
from .._native import operations as native
from ..layout import Placed
from .registry import Refused, row


def _matrix(x):
    """The tensor [..., rows, columns], and whether it is stored with its last two axes the other way round."""
    rank = len(x.shape)
    turned = list(range(rank))
    turned[-1], turned[-2] = turned[-2], turned[-1]
    if rank > 1 and not layout.lies_as(x, range(rank)) and layout.lies_as(x, turned):
        return layout.stored_as(x, turned), True
    return layout.plain(x), False


def product(at, a, b):
    """[..., M, K] x [..., K, N] with leading axes that broadcast."""
    lead_a, lead_b = a.shape[:-2], b.shape[:-2]
    if len(lead_b) == 0 and len(lead_a) > 0:  # one matrix for all rows
        rows = layout.plain(a)
        matrix, turned = _matrix(b)
        flat = rows.reshape([math.prod(a.shape[:-1]), a.shape[-1]])
        return Placed(native.matmul(flat, matrix, False, turned).reshape(list(a.shape[:-1]) + [b.shape[-1]]))
    rank = max(len(lead_a), len(lead_b))
    lead = [max(x, y) for x, y in zip((1,) * (rank - len(lead_a)) + lead_a, (1,) * (rank - len(lead_b)) + lead_b)]
    a, b = (layout.broadcast(x, lead + list(x.shape[-2:])) for x in (a, b))
    (left, turned_left), (right, turned_right) = _matrix(a), _matrix(b)
    return Placed(native.matmul(left, right, turned_left, turned_right))


@row("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.vdot",
     "aten.inner")
def matmul(at, self, other=None, mat2=None, vec=None, tensor=None):
    b = next(x for x in (other, mat2, vec, tensor) if x is not None)
    a = self
    if at.dtype != "f32":
        raise Refused("a product of whole numbers", "Convert both to float before.")
    if at.node.op == "aten.inner" and len(b.shape) > 1:
        raise Refused("inner of more than vectors", "Use matmul.")
    if len(a.shape) == 1:
        a = layout.viewed(a, (1,) + a.shape)
    if len(b.shape) == 1:
        b = layout.viewed(b, b.shape + (1,))
    return layout.viewed(product(at, a, b), at.shape)


@row("aten.linear")
def linear(at, input, weight, bias=None):
    x = layout.rows_of(input)  # rows may lie in any order: those of the result lie in the same
    matrix, turned = _matrix(weight)
    if len(weight.shape) == 1:
        raise Refused("linear with a vector")
    flat = x.tensor.reshape([math.prod(input.shape[:-1]), input.shape[-1]]) if len(x.shape) != 2 else x.tensor
    y = native.matmul(flat, matrix, False, not turned, None if bias is None else layout.plain(bias))
    return layout.viewed(Placed(y.reshape(list(x.tensor.shape[:-1]) + [at.shape[-1]]), x.order), at.shape)


@row("aten.addmm", "aten.baddbmm", "aten.addbmm")
def addmm(at, self, mat1=None, mat2=None, beta=1, alpha=1, batch1=None, batch2=None):
    if at.node.op == "aten.addbmm":
        raise Refused("addbmm", "Use baddbmm and a sum.")
    a, b = (mat1, mat2) if mat1 is not None else (batch1, batch2)
    if alpha == 1 and beta == 1 and len(self.shape) == 1 and mat1 is not None:
        matrix, turned = _matrix(b)
        return Placed(native.matmul(layout.plain(a), matrix, False, turned, layout.plain(self)))
    y = product(at, a, b)
    if alpha != 1:
        y = at.each(lambda x: x * float(alpha), y)
    if beta == 0:
        return y
    addend = self if beta == 1 else at.each(lambda x: x * float(beta), self)
    return at.each(lambda x, z: x + z, y, addend)


@row("aten.outer", "aten.ger")
def outer(at, self, vec2=None):
    return at.each(lambda a, b: a * b, layout.viewed(self, self.shape + (1,)), layout.viewed(vec2, (1,) + vec2.shape))


@row("aten.bilinear")
def bilinear(at, input1, input2, weight, bias=None):
    """y_o = sum over i and j of x_i w_oij z_j."""
    rows = math.prod(input1.shape[:-1])
    O, I, J = weight.shape
    x = layout.plain(input1).reshape([rows, I])
    z = layout.plain(input2).reshape([rows, 1, J])
    w = layout.plain(weight).transpose([1, 0, 2]).reshape([I, O * J])
    y = (nn.matmul(x, w).reshape([rows, O, J]) * native.broadcast_to(z, [rows, O, J])).sum([2])
    y = y.reshape(list(at.shape))
    return Placed(y if bias is None else y + layout.plain(bias))


def _letters(equation):
    left, right = equation.replace(" ", "").split("->")
    return left.split(","), right


@row("aten.einsum")
def einsum(at, equation, tensors, path=None):
    """Two operands: axes of both, of the first, of the second, and those that are summed make one product."""
    if "..." in equation or "->" not in equation:
        raise Refused(f"einsum '{equation}'", "Name every axis, and what is left: 'bij,bjk->bik'.")
    words, result = _letters(equation)
    if any(len(set(word)) != len(word) for word in words) or len(words) > 2:
        raise Refused(f"einsum '{equation}'", "Use two operands, each with axes of its own.")
    if len(words) == 1:
        from .reductions import reduced
        summed = [axis for axis, letter in enumerate(words[0]) if letter not in result]
        x = reduced(tensors[0], summed, False, lambda t, axes: t.sum(axes)) if summed else tensors[0]
        left = [letter for letter in words[0] if letter in result]
        return layout.permuted(x, [left.index(letter) for letter in result])
    from .reductions import reduced
    alone = [[axis for axis, letter in enumerate(word) if letter not in result and letter not in words[1 - i]]
             for i, word in enumerate(words)]
    tensors = [reduced(x, axes, False, lambda t, over: t.sum(over)) if axes else x for x, axes in zip(tensors, alone)]
    words = ["".join(letter for axis, letter in enumerate(word) if axis not in axes)
             for word, axes in zip(words, alone)]
    extents = {letter: extent for word, x in zip(words, tensors) for letter, extent in zip(word, x.shape)}
    both = [letter for letter in words[0] if letter in words[1] and letter in result]
    inner = [letter for letter in words[0] if letter in words[1] and letter not in result]
    first = [letter for letter in words[0] if letter not in words[1]]
    second = [letter for letter in words[1] if letter not in words[0]]

    def size(letters):
        return math.prod(extents[letter] for letter in letters)

    def arranged(x, word, rows, columns):
        moved = layout.permuted(x, [word.index(letter) for letter in both + rows + columns])
        return layout.viewed(moved, [size(both), size(rows), size(columns)])

    y = product(at, arranged(tensors[0], words[0], first, inner), arranged(tensors[1], words[1], inner, second))
    letters = both + first + second
    y = layout.viewed(y, [extents[letter] for letter in letters])
    return layout.permuted(y, [letters.index(letter) for letter in result])


@row("aten._grouped_mm", "aten.grouped_mm", "transformers.grouped_mm_fallback")
def grouped_mm(at, self=None, mat2=None, offs=None, bias=None, mat_a=None, mat_b=None, out_dtype=None, input=None,
               weight=None):
    a = next(x for x in (self, mat_a, input) if x is not None)
    b = next(x for x in (mat2, mat_b, weight) if x is not None)
    if len(a.shape) != 2 or len(b.shape) != 3 or offs is None or bias is not None:
        raise Refused("a grouped product of other than rows [R, K] and matrices [E, K, N]")
    ends = layout.plain(offs)
    experts = ends.shape[0]
    begins = nn.concat([native.constant(at.anchor, 0, "i32", [1]), nn.slice(ends, 0, 0, experts - 1)], 0) \
        if experts > 1 else native.constant(at.anchor, 0, "i32", [1])
    matrix, turned = _matrix(b)
    return Placed(native.grouped_matmul(layout.plain(a), matrix, ends - begins, turned))


_DEGREE, _SQUARINGS = 8, 12


@row("aten.matrix_exp", "aten.linalg_matrix_exp")
def matrix_exp(at, self):
    """Taylor's series of a part of at most a half by the 1-norm, squared again: as often as each matrix needs, at most
    so many times (Moler and Van Loan 2003, "Nineteen dubious ways", method 3). In FP32 under any policy."""
    lead, n = list(self.shape[:-2]), self.shape[-1]
    with _native.Place(at.anchor, at.node.path, *at.builder.line, True):
        x = layout.plain(self).reshape([math.prod(lead), n, n])
        batch = x.shape[0]
        norm = nn.stop_gradient(nn.abs(x)).sum([1]).max([1]).reshape([batch, 1, 1])

        def wide(condition):
            return native.broadcast_to(condition, [batch, n, n])
        is_larger = [nn.less(at.number(2.0**(i - 1)), norm) for i in range(_SQUARINGS)]
        scale = None
        for each in is_larger:
            half = nn.select(each, at.number(0.5), at.number(1.0))
            scale = half if scale is None else scale * half
        x = x * wide(scale)
        one = native.literal(at.anchor, np.eye(n, dtype=np.float32).tobytes(), "f32", [1, n, n])
        one = wide(one)
        made = one + x * (1 / _DEGREE)
        for k in range(_DEGREE - 1, 0, -1):
            made = one + native.matmul(x, made) * (1 / k)
        for each in is_larger:
            made = nn.select(wide(each), native.matmul(made, made), made)
        return Placed(made.reshape(list(at.shape)))


@row("aten.cosine_similarity")
def cosine_similarity(at, x1, x2, dim=1, eps=1e-8):
    from .reductions import reduced
    axis = dim % len(x1.shape)
    total = lambda x: reduced(x, [axis], False, lambda t, axes: t.sum(axes))
    dot = total(at.each(lambda a, b: a * b, x1, x2))
    # As there: each length, but at least eps.
    lengths = [at.each(lambda s: nn.sqrt(nn.maximum(s, at.number(eps * eps))), total(at.each(lambda a: a * a, x)))
               for x in (x1, x2)]
    return at.each(lambda d, a, b: d / (a * b), dot, *lengths)
