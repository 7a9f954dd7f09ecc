"""Rotary positions, spelled out as PyTorch's models have them, found before a program is recorded.

    x * cos + cat([-x[..., D/2:], x[..., :D/2]], -1) * sin

on heads x [B, H, T, D], by constants whose halves are equal, is one operation here.
"""
import collections

import numpy as np

from .. import constants, layout
from .._native import operations as native
from ..layout import Placed
from ..program import Node, Ref, refs
from .registry import row


def joined(program, nodes, roots):
    """The nodes with each rotation as one of "mantissa.rotary"."""
    return _Rotations(program, nodes, roots).nodes()


class _Rotations:
    def __init__(self, program, nodes, roots):
        self._program, self._nodes, self._tables = program, nodes, {}
        self._maker = {value: node for node in nodes for value in node.outputs}
        self._uses = collections.Counter(value for node in nodes for value in refs(node.arguments))
        self._uses.update(roots)

    def nodes(self):
        """Those that a rotation stands for are gone: nobody else reads what they make."""
        made, gone = {}, set()
        for node in self._nodes:
            found = self._rotation(node)
            if found:
                made[id(node)], parts = found
                gone.update(id(part) for part in parts)
        return [made.get(id(node), node) for node in self._nodes if id(node) not in gone]

    def _rotation(self, node):
        """The node that an addition becomes, and those that it stands for besides; nothing where it is another."""
        if node.op != "aten.add" or node.arguments.get("alpha", 1) != 1:
            return None
        products = [self._only(node.arguments[name], "aten.mul") for name in ("self", "other")]
        if None in products:
            return None
        for plain, turned in (products, products[::-1]):
            x, cosine = self._factors(plain)
            halves, sine = self._factors(turned)
            parts = self._turned_from(halves, x) if cosine and sine else None
            tables = parts and [self._table(each, x) for each in (cosine, sine)]
            if parts and all(table is not None for table in tables):
                arguments = {"self": x, "cosine": tables[0], "sine": tables[1]}
                return (Node("mantissa.rotary", arguments, node.outputs, node.path, node.line, node.code, node.exact),
                        [plain, turned] + parts)
        return None

    def _only(self, argument, op):
        """The node that makes an argument, where it is of this operation and nobody else reads it."""
        node = self._maker.get(argument.value) if isinstance(argument, Ref) else None
        return node if node and node.op == op and self._uses[argument.value] == 1 else None

    def _factors(self, product):
        """What a product multiplies by a constant, and that constant; nothing where there is none."""
        for of, by in (("self", "other"), ("other", "self")):
            x, constant = product.arguments[of], product.arguments[by]
            if isinstance(x, Ref) and isinstance(constant, Ref) and constant.value in self._program.constants:
                return x, constant
        return None, None

    def _turned_from(self, halves, x):
        """The nodes of cat([-x[..., D/2:], x[..., :D/2]], -1), where it is that."""
        shape = self._program.types[x.value][1]
        last, half = len(shape) - 1, shape[-1] // 2 if shape else 0
        cat = self._only(halves, "aten.cat")
        if len(shape) != 4 or shape[-1] % 2 or not cat or cat.arguments.get("dim", 0) % 4 != last:
            return None
        tensors = cat.arguments["tensors"]
        negated = self._only(tensors[0], "aten.neg") if len(tensors) == 2 else None
        slices = [self._only(each, "aten.slice") for each in (negated.arguments["self"], tensors[1])] if negated else []
        for part, begin in zip(slices, (half, 0)):
            if (part is None or part.arguments["self"] != x or part.arguments.get("dim", 0) % 4 != last
                    or part.arguments.get("step", 1) != 1 or (part.arguments.get("start") or 0) != begin
                    or min(part.arguments.get("end") or shape[-1], shape[-1]) != begin + half):
                return None
        return [cat, negated] + slices if slices else None

    def _table(self, constant, x):
        """[T, D/2] of a constant that has two equal halves for each position, the same for all heads; or nothing."""
        key = (constant.value, self._program.types[x.value][1])
        if key not in self._tables:
            self._tables[key] = _half_of(self._program.constants[constant.value], key[1])
        return self._tables[key]


def _half_of(array, shape):
    positions, extent = shape[-2:]
    cut = constants.without_repeats(array)
    if array.dtype != np.float32 or cut.ndim < 2 or cut.size != cut.shape[-1] * cut.shape[-2]:
        return None
    table = np.broadcast_to(cut.reshape(cut.shape[-2:]), (positions, extent)) if cut.shape[-1] in (1, extent) \
        and cut.shape[-2] in (1, positions) else np.zeros((0, 0))
    half = extent // 2
    return np.ascontiguousarray(table[:, :half]) if table.size and np.array_equal(table[:, :half], table[:, half:]) \
        else None


@row("mantissa.rotary")
def rotary(at, self, cosine, sine):
    heads = layout.plain(layout.permuted(self, [0, 2, 1, 3]))
    return layout.permuted(Placed(native.rotary(heads, at.table(cosine), at.table(sine))), [0, 2, 1, 3])
