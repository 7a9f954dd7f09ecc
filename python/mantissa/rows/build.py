"""Records a program in a graph: its weights, its constants, and each node by its row."""
import numpy as np

from .. import _native, constants, layout
from .._native import operations as native
from ..layout import Placed
from ..program import TYPES, Ref, refs
from . import rotations
from .advice import advice_for
from .registry import Refused, row_of


class CaptureError(_native.Error):
    """What a module has that cannot be trained, all of it, each with its place, how often, and what to write instead."""

    def __init__(self, module, refusals):
        # A row may fail over what stands in for something refused: that is no defect of its own.
        own = [refusal for refusal in refusals if not refusal.is_defect]
        self.refusals = own or list(refusals)
        counted = {}
        for refusal in self.refusals:
            counted.setdefault((refusal.what, refusal.instead), []).append(refusal)
        lines = [f"{module}: {len(counted)} thing{'s' if len(counted) > 1 else ''} in it cannot be trained here:"]
        for (what, instead), each in counted.items():
            first = each[0]
            lines.append(f"  {what} ({len(each)} time{'s' if len(each) > 1 else ''})")
            lines.append(f"    first in {first.path or 'the module'} at {first.line or 'a place unknown'}"
                         + (f": {first.code}" if first.code else ""))
            if instead:
                lines.append(f"    {instead}")
        super().__init__("\n".join(lines))


class Refusal:
    """One thing that is refused: what it is, where it stands, what to write instead."""

    def __init__(self, what, path="", line="", code="", instead="", is_defect=False):
        self.what, self.path, self.line, self.code, self.instead = what, path, line, code, instead
        self.is_defect = is_defect  # a row fails

    @staticmethod
    def at(node, what, instead="", is_defect=False):
        return Refusal(what, node.path, node.line, node.code, instead, is_defect)


class Place:
    """Where a row records: the node, its types, and how the values of it lie."""

    def __init__(self, builder, node):
        self.builder, self.node = builder, node
        self.anchor = builder.anchor  # a tensor of the graph
        self.is_training = builder.is_training
        self.is_still = builder.is_still

    def type(self, index=0):
        """dtype and shape of an output, as the framework counts them."""
        return self.builder.program.types[self.node.outputs[index]]

    @property
    def dtype(self):
        """The stored type of the first output."""
        return stored_type(self.type()[0])

    @property
    def shape(self):
        return tuple(self.type()[1])

    def array(self, name):
        """The numpy array of an argument that is constant, or None."""
        return self.constant_of(self.node.arguments.get(name))

    def constant_of(self, argument):
        if isinstance(argument, Ref):
            return self.builder.program.constants.get(argument.value)
        return None

    def is_permutation(self, name):
        """Whether an argument, or the first of a list, names each place of an axis once: what a sort gives."""
        argument = self.node.arguments[name]
        argument = argument[0] if isinstance(argument, list) else argument
        return isinstance(argument, Ref) and argument.value in self.builder.permutations

    def number(self, value, dtype=None):
        """A number as a tensor without axes."""
        dtype = dtype or self.dtype
        return native.constant(self.anchor, float(constants.still_finite(value) if dtype == "f32" else value), dtype)

    def full(self, value, shape=None, dtype=None):
        """A tensor of equal values."""
        shape = self.shape if shape is None else shape
        return layout.broadcast(Placed(self.number(value, dtype)), shape)

    def table(self, array):
        """A numpy array of float32 as a tensor, one however often it is asked for."""
        tables = self.builder.tables
        if id(array) not in tables:
            tables[id(array)] = array, native.literal(self.anchor, array.tobytes(), "f32", list(array.shape))
        return tables[id(array)][1]

    def cast(self, x, dtype=None):
        """x in another type; of numbers to bool, whether they are not 0."""
        dtype = dtype or self.dtype
        if x.dtype == dtype:
            return x
        if dtype == "bool":
            wide = x.tensor if x.dtype in ("f32", "i32") else x.tensor.cast("i32")
            zero = native.constant(self.anchor, 0, wide.dtype)
            return Placed(native.logical_not(_native.equal(wide, zero)), x.order)
        return Placed(x.tensor.cast(dtype), x.order)

    def value(self, x, dtype=None):
        """An argument that is a value or a number, as a value of this type."""
        return self.cast(x, dtype) if isinstance(x, Placed) else Placed(self.number(x, dtype))

    def each(self, function, *values, dtype=None):
        """A function of elements, over values and numbers that broadcast, each in the type of the result."""
        dtype = dtype or self.dtype
        tensors, order = layout.together([self.value(x, dtype) for x in values])
        return Placed(function(*tensors), order)

    def refuse(self, what, instead=""):
        raise Refused(what, instead)


def stored_type(dtype):
    """The type in which values of a framework's type are stored."""
    if dtype not in TYPES or not TYPES[dtype].stored:
        raise Refused(f"numbers of type {dtype}", "Write it in float32; policy= says in which format steps are computed.")
    return TYPES[dtype].stored


class Weights:
    """How each weight of a program is stored: the order of its first use."""

    def __init__(self, program):
        self.orders = {}
        values = {weight.value: weight for weight in program.weights}
        for node in program.nodes:
            use = _FILTERS.get(node.op)
            argument = node.arguments.get("weight")
            if use and isinstance(argument, Ref) and argument.value in values and argument.value not in self.orders:
                self.orders[argument.value] = use(len(program.types[argument.value][1]))
        self.by_name = {weight.name: (weight, self.order(program, weight.value)) for weight in program.weights}

    def order(self, program, value):
        return self.orders.get(value, tuple(range(len(program.types[value][1]))))


def _filter_order(rank):
    """Filters [K, C, R, S] lie as [R, S, C, K]."""
    return (rank - 1, rank - 2) + tuple(range(rank - 2))


_FILTERS = {f"aten.{kind}{axes}d": _filter_order for kind in ("conv", "conv_transpose") for axes in (1, 2, 3)}


def to_stored(array, order):
    """An array of a weight as it is stored."""
    return np.ascontiguousarray(array.transpose(sorted(range(array.ndim), key=lambda axis: order[axis])))


def from_stored(array, order):
    """The other way."""
    return array.transpose(order)


class Builder:
    """Records one program in the graph of its inputs."""

    def __init__(self, program, inputs, *, values, is_training, is_still=False, module=""):
        """inputs: tensors, or values that lie otherwise than their axes. values(name): a weight's array as it is stored,
        from which it starts; whoever has the model keeps it."""
        self.program, self.is_training, self.is_still, self.module = program, is_training, is_still, module
        self.values_of = values
        self.line = ("", 0)  # that was recorded last: what has none follows from it
        placed = [x if isinstance(x, Placed) else Placed(x) for x in inputs]
        self.anchor = placed[0].tensor
        self.values = dict(zip(program.inputs, placed))
        self.refusals = []
        self.permutations = {node.outputs[-1] for node in program.nodes if node.op in ("aten.argsort", "aten.sort")
                             and len(program.types[node.outputs[-1]][1]) == 1}
        self.weights = Weights(program)
        self.states, self.tables = {}, {}

    def build(self, roots):
        """Records what the roots follow from, and returns them. Raises CaptureError with all that is refused.

        A training step leaves in running weights what forward wrote there.
        """
        updates = self.program.updates if self.is_training and not self.is_still else {}
        wanted = [*roots, *updates.values()]
        nodes = rotations.joined(self.program, self.program.used(wanted), wanted)
        self.used = {value for node in nodes for value in refs(node.arguments)} | set(wanted) | set(updates)
        for weight in self.program.weights:
            if weight.value in self.used:
                self._add_weight(weight)
        for node in nodes:
            self._record(node)
        if self.refusals:
            raise CaptureError(self.module or self.program.name, self.refusals)
        for weight, value in updates.items():
            order = self.values[weight].order
            _native.follow(self.states[weight], layout.stored_as(self.get(value), order), 1.0)
        return [self.get(root) for root in roots]

    def is_used(self, value):
        """Whether a node or a root reads this value."""
        return value in self.used

    def get(self, value):
        if value not in self.values:
            if value not in self.program.constants:
                raise Refused("a result that its row does not make", "Do without it.")
            self.values[value] = constants.placed(self.anchor, self.program.constants[value])
        return self.values[value]

    def _add_weight(self, weight):
        order = self.weights.order(self.program, weight.value)
        shape = self.program.types[weight.value][1]
        stored = [0] * len(shape)
        for axis, extent in enumerate(shape):
            stored[order[axis]] = extent
        make = _native.running if weight.running else _native.weight
        state = make(self.anchor, weight.name, stored, self.values_of)
        self.states[weight.value] = state
        self.values[weight.value] = Placed(state, order)

    def _argument(self, x):
        if isinstance(x, Ref):
            return self.get(x.value)
        if isinstance(x, (list, tuple)):
            return [self._argument(each) for each in x]
        return x

    def _record(self, node):
        function = row_of(node.op)
        try:
            if function is None:
                raise Refused(node.op, advice_for(node.op))
            place = Place(self, node)
            file, _, number = node.line.rpartition(":")
            self.line = (file, int(number)) if number.isdigit() else self.line
            with _native.Place(self.anchor, node.path, *self.line, node.exact):
                arguments = {name: self._argument(x) for name, x in node.arguments.items()}
                made = function(place, **arguments)
            made = made if isinstance(made, tuple) else (made,)
            for index, (value, x) in enumerate(zip(node.outputs, made)):
                if x is not None and self.is_used(value):
                    self._check(place, index, x)
                    self.values[value] = x
        except Refused as refused:
            what, instead = (refused.args + ("",))[:2]
            name = what if what.startswith(node.op) else f"{node.op}: {what}"
            self.refusals.append(Refusal.at(node, name, instead))
            self._stand_in(node)
        except (OverflowError, _native.Error) as error:
            self.refusals.append(Refusal.at(node, f"{node.op}: {error}"))
            self._stand_in(node)
        except (TypeError, KeyError, AttributeError, IndexError, StopIteration) as error:
            self.refusals.append(Refusal.at(node, f"{node.op}: its row fails with {type(error).__name__}: {error}",
                                            "This is a defect of mantissa, or of a row of one's own.",
                                            is_defect=True))
            self._stand_in(node)

    def _check(self, place, index, x):
        """A row that makes another type or shape than the framework is a defect, and never goes unseen."""
        dtype, shape = place.type(index)
        if tuple(x.shape) != tuple(shape) or x.dtype != stored_type(dtype):
            raise Refused(f"its row made {x.dtype}{list(x.shape)}, expected {dtype}{list(shape)}",
                          "This is a defect of mantissa: report it.")

    def _stand_in(self, node):
        """Values of the right types, so that all else is looked at, too."""
        for value in node.outputs:
            dtype, shape = self.program.types.get(value, ("f32", ()))
            self.values[value] = layout.broadcast(
                Placed(native.constant(self.anchor, 0, (dtype in TYPES and TYPES[dtype].stored) or "f32")), shape)
