"""From an exported module to a neutral program: what is constant is computed once, all else named with its place.

This file and export.py alone touch private parts of torch.
"""
import dataclasses
import operator

import numpy as np
import torch

from ..program import TYPES, Node, Program, Ref, Weight
from ..rows import CaptureError, Refusal
from ..rows.advice import advice_in
from . import export
from .randoms import STILL

_DTYPES = {getattr(torch, each.name): key for key, each in TYPES.items()}
_OF_SHAPE_ALONE = {"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full",
                   "new_empty", "new_empty_strided", "empty_strided"}
_OF_MODE = {torch.nn.Dropout: ("aten.dropout", "train"), torch.nn.LSTM: ("aten.lstm", "train"),
            torch.nn.GRU: ("aten.gru", "train"), **dict.fromkeys(
                (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d), ("aten.batch_norm", "training"))}
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Captured:
    """A program, and what of the module it was made of. modal: by path, the modules that read their mode; None: something
    else read one."""

    def __init__(self, program, refusals, modal=None):
        self.program, self.refusals, self._modal = program, refusals, modal

    def in_evaluation(self):
        """The same in evaluation, of one in training; None where modes decide more than _OF_MODE has."""
        if self._modal is None or self.refusals:
            return None
        nodes, left = list(self.program.nodes), set(self._modal.values())
        for at, node in enumerate(nodes):
            module = self._modal.get(node.path)
            operation, name = _OF_MODE.get(type(module), ("", ""))
            if node.op == operation:
                left.discard(module)
                nodes[at] = dataclasses.replace(node, arguments=dict(node.arguments, **{name: False}))
        return None if left else Captured(dataclasses.replace(self.program, nodes=nodes), [])


class _Reader:
    """Reads an exported program into a neutral one."""

    def __init__(self, exported, wrapper, name, refusals, running=(), sizes=None):
        """sizes: what open axes are, by torch's symbols."""
        self.sizes = sizes or {}
        self.exported, self.wrapper, self.refusals, self.running = exported, wrapper, refusals, running
        self.model = wrapper.model
        self.program = Program(name)
        self.values = {}  # node -> value, or a list of them
        self.folded = {}  # node -> what it is, computed once
        self.unshaped = set()  # nodes whose shape the batch decides
        self.next = 0
        self.names = names_of(wrapper)

    def read(self):
        signature = self.exported.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs if hasattr(spec.arg, "name")}
        self.mutated = dict(signature.buffers_to_mutate)
        self.mutated.update({each.name: specs[each.name].target for each in export.statistics(self.exported) or ()})
        weights = {}
        for node in self.exported.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, specs.get(node.name), weights)
            elif node.op == "get_attr":
                self.folded[node] = getattr(self.exported.graph_module, node.target)
            elif node.op == "call_function" and not self._has_no_shape(node):
                self._call(node)
        if self.unshaped:  # all that follows has no shape either
            raise CaptureError(type(self.model).__name__, self.refusals)
        self._outputs(signature)
        return self.program

    def _has_no_shape(self, node):
        """Whether numbers of the batch decide a shape: refused where that begins."""
        made = node.meta.get("val")
        follows = not self.unshaped.isdisjoint(node.all_input_nodes)
        begins = any(self._size(extent) is None for each in (made if isinstance(made, (list, tuple)) else [made])
                     if isinstance(each, torch.Tensor) for extent in each.shape)
        if begins and not follows:
            name = str(node.target).replace("torch.ops.", "")
            self.refusals.append(export.refusal(
                node, f"{name} makes a shape that the batch decides",
                advice_in(name) or "Multiply by the mask, or choose by torch.where, and divide by the mask's sum."))
        if begins or follows:
            self.unshaped.add(node)
        return begins or follows

    def _size(self, extent):
        """An extent, or another number of sizes, as a number; None where numbers of the batch decide it."""
        if not isinstance(extent, _SYMBOLIC):
            return extent
        made = extent.node.expr.xreplace(self.sizes)
        if made.free_symbols:
            return None
        return (bool if isinstance(extent, torch.SymBool) else int if isinstance(extent, torch.SymInt) else float)(made)

    def _shape(self, meta):
        return tuple(int(self._size(extent)) for extent in meta.shape)

    def _value(self, meta):
        value = self.next
        self.next += 1
        self.program.types[value] = (_DTYPES.get(meta.dtype, str(meta.dtype)), self._shape(meta))
        return value

    def _placeholder(self, node, spec, weights):
        kind = spec.kind.name if spec else "USER_INPUT"
        if kind == "USER_INPUT":
            if isinstance(node.meta.get("val"), torch.Tensor):
                self.values[node] = self._value(node.meta["val"])
                self.program.inputs.append(self.values[node])
            return
        name = self.names.get(spec.target, spec.target)
        is_loss, target = name.startswith(export.LOSS), name.removeprefix(export.MODULE + ".")
        if kind == "PARAMETER" and is_loss:
            parameter = self.wrapper.get_parameter(name)
            self.folded[node] = parameter.detach()
            if parameter.requires_grad:
                self.refusals.append(Refusal(
                    f"{name.removeprefix(export.LOSS)}, a parameter of the loss", "loss", "", "",
                    "Make one module of both, whose forward takes x and y: then loss=lambda made: made, inputs=2."))
        elif kind == "PARAMETER":
            self.values[node] = self._weight(node, target, weights)
        elif kind == "BUFFER":
            tensor = self.wrapper.get_buffer(name)
            if spec.target in self.mutated.values() or target in self.running and not is_loss:
                if tensor.is_floating_point():
                    self.values[node] = self._weight(node, target, weights, running=True)
                else:
                    self.values[node] = None  # a count of batches, which the trainer keeps
            else:
                self.folded[node] = tensor.detach()
        elif kind == "CONSTANT_TENSOR":
            constants = self.exported.constants
            self.folded[node] = constants[spec.target].detach()
        else:
            self.refusals.append(export.refusal(node, f"an input of the kind {kind}"))

    def _weight(self, node, name, weights, running=False):
        if name not in weights:
            weights[name] = self._value(node.meta["val"])
            trained = not running and self.model.get_parameter(name).requires_grad
            self.program.weights.append(Weight(name, weights[name], trained, running))
        return weights[name]

    def _is_random(self, node):
        schema = getattr(node.target, "_schema", None)
        return schema is not None and schema.name.split("::")[1] in STILL

    def _call(self, node):
        if isinstance(made := node.meta.get("val"), _SYMBOLIC) and (size := self._size(made)) is not None:
            self.folded[node] = size
            return
        if node.target is operator.getitem:
            source, index = node.args
            if source in self.folded:
                self.folded[node] = self.folded[source][index]
            elif isinstance(self.values.get(source), list):
                self.values[node] = self.values[source][index]
            return
        schema = getattr(node.target, "_schema", None)
        name = schema.name.split("::")[1] if schema else str(node.target)
        if name in export.ASSERTIONS:
            return
        operands = list(node.all_input_nodes)
        if not self._is_random(node) and all(operand in self.folded for operand in operands):
            if self._fold(node):
                return
        if name in _OF_SHAPE_ALONE and self._fold_of_shape(node):
            return
        self._node(node, schema, name)

    def _fold(self, node):
        def known(x):
            return self.folded[x] if isinstance(x, torch.fx.Node) else x
        try:
            with torch.no_grad():
                self.folded[node] = node.target(*torch.fx.node.map_aggregate(node.args, known),
                                                **torch.fx.node.map_aggregate(dict(node.kwargs), known))
            self.program.folded += 1
            return True
        except Exception:  # what cannot be computed here is recorded or refused as all else
            return False

    def _fold_of_shape(self, node):
        def stand_in(x):
            if not isinstance(x, torch.fx.Node):
                return x
            if x in self.folded:
                return self.folded[x]
            meta = x.meta["val"]
            return torch.zeros(self._shape(meta), dtype=meta.dtype)
        self.folded[node] = node.target(*torch.fx.node.map_aggregate(node.args, stand_in),
                                        **torch.fx.node.map_aggregate(dict(node.kwargs), stand_in))
        if "empty" in str(node.target):
            self.folded[node] = torch.zeros_like(self.folded[node])
        self.program.folded += 1
        return True

    def _argument(self, x):
        if isinstance(x, torch.fx.Node):
            if x in self.folded:
                return self._constant(x)
            value = self.values.get(x)
            if isinstance(value, list):
                return [Ref(each) for each in value]
            return Ref(value) if value is not None else None
        if isinstance(x, (list, tuple)):
            return [self._argument(each) for each in x]
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, torch.dtype):
            return _DTYPES.get(x, str(x))
        return None

    def _constant(self, node):
        """A folded value: a number where the argument is one, else a constant of the program."""
        folded = self.folded[node]
        if isinstance(folded, (list, tuple)):
            return [self._constant_tensor(each) for each in folded]
        if not isinstance(folded, torch.Tensor):
            return folded
        if node not in self.values:
            self.values[node] = self._constant_tensor(folded).value
        return Ref(self.values[node])

    def _constant_tensor(self, tensor):
        value = self._value(tensor)
        tensor = tensor.detach()
        if tensor.dtype in (torch.float16, torch.bfloat16):
            tensor = tensor.float()
            self.program.types[value] = ("f32", tuple(tensor.shape))
        elif tensor.dtype == torch.float64:
            tensor = tensor.float()
            self.program.types[value] = ("f32", tuple(tensor.shape))
        if not tensor.is_complex():
            self.program.constants[value] = np.array(tensor.numpy())
        return Ref(value)

    def _node(self, node, schema, name):
        line, code = export.line_of(node.meta.get("stack_trace"))
        path = export.path_of(node)
        arguments = {}
        if schema is None:
            self.refusals.append(Refusal(f"{name}", path, line, code, ""))
        else:
            for at, argument in enumerate(schema.arguments):
                if argument.name in ("device", "layout", "pin_memory", "memory_format", "generator", "non_blocking",
                                     "dtype"):
                    continue
                if at < len(node.args):
                    given = node.args[at]
                elif argument.name in node.kwargs:
                    given = node.kwargs[argument.name]
                else:
                    given = argument.default_value if argument.has_default_value() else None
                arguments[argument.name] = self._argument(given)
        meta = node.meta.get("val")
        if isinstance(meta, (list, tuple)):
            outputs = [self._value(each) if isinstance(each, torch.Tensor) else self._nothing() for each in meta]
            self.values[node] = outputs
        elif isinstance(meta, torch.Tensor):
            self.values[node] = self._value(meta)
            outputs = [self.values[node]]
        else:
            outputs = []
            if schema is not None:
                self.refusals.append(Refusal(f"{schema.name.replace('::', '.')} makes a number that the batch decides",
                                             path, line, code, "Keep it a tensor, and choose by torch.where."))
        space = schema.name.split("::")[0] if schema else ""
        exact = bool(node.meta.get("custom", {}).get("mantissa_exact"))
        self.program.nodes.append(Node(f"{space}.{name}" if space else name, arguments, outputs, path, line, code, exact))

    def _nothing(self):
        value = self.next
        self.next += 1
        self.program.types[value] = ("f32", ())
        return value

    def _outputs(self, signature):
        results = []
        nodes = {node.name: node for node in self.exported.graph.nodes}
        for spec in signature.output_specs:
            node = nodes.get(getattr(spec.arg, "name", None))
            if spec.kind.name == "USER_OUTPUT":
                results.append(self._argument(node) if node is not None else None)
            elif spec.kind.name == "BUFFER_MUTATION":
                self._mutation(node, spec.target)
            else:
                self.refusals.append(Refusal(f"a result of the kind {spec.kind.name}", "", "", "",
                                             "Leave inputs and parameters as they are in forward."))
        self.results = [each.value if isinstance(each, Ref) else -1 for each in results]

    def _mutation(self, node, target):
        """A batch norm's statistics follow by its row, its count of batches by the trainer, other buffers by what forward
        writes there."""
        buffer, is_loss = self.wrapper.get_buffer(target), target.startswith(export.LOSS)
        if not buffer.is_floating_point():
            is_count = getattr(node.target, "_schema", None) is not None and "add" in node.target._schema.name \
                and buffer.dim() == 0
            if is_count and not is_loss:
                return
        elif not is_loss and node.target is operator.getitem and "batch_norm" in str(node.args[0].target):
            source = node.args[0]
            given = source.args[3:5]
            if any(export.is_buffer(each) for each in given):
                return
            self.refusals.append(export.refusal(source, "a batch norm that runs twice in a step",
                                          "Put both batches together, and run it once."))
            return
        name = target.removeprefix(export.LOSS if is_loss else export.MODULE + ".")
        written = self._argument(node) if buffer.is_floating_point() and not is_loss else None
        if isinstance(written, Ref):
            weight = next(each for each in self.program.weights if each.name == self.names.get(target, target).removeprefix(
                export.MODULE + "."))
            self.program.updates[weight.value] = written.value
            return
        self.refusals.append(Refusal(f"the buffer {name}, which forward changes", "loss" if is_loss else "",
                                     *export.line_of(node.meta.get("stack_trace")), "Change it outside of forward, between steps."))


def names_of(model):
    """Each parameter's name -> the first name of the tensor: what is tied has one."""
    first, names = {}, {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[name] = first.setdefault(id(parameter), name)
    return names


class Open:
    """A graph of which some axes are open: programs for several shapes follow from it."""

    def __init__(self, exported, read):
        self._exported, self._read = exported, read
        kinds = {spec.arg.name: spec.kind.name for spec in exported.graph_signature.input_specs
                 if hasattr(spec.arg, "name")}
        self._inputs = [node.meta["val"] for node in exported.graph.nodes
                        if node.op == "placeholder" and kinds.get(node.name) == "USER_INPUT"
                        and isinstance(node.meta.get("val"), torch.Tensor)]
        asked = [extent for each in self._inputs for extent in each.shape if isinstance(extent, torch.SymInt)]
        self._asked = asked[0].node.shape_env if asked else None

    def captured(self, values):
        """The program for values of these shapes; None where the graph is none of theirs."""
        sizes = {}
        extents = [pair for made, value in zip(self._inputs, values) for pair in zip(made.shape, value.shape)]
        for extent, size in extents:
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_Symbol:
                sizes[extent.node.expr] = _number(size)
        for extent, size in extents:
            made = extent.node.expr.xreplace(sizes) if isinstance(extent, torch.SymInt) else extent
            if made != size:
                return None
        # An extent of 1 broadcasts, and torch takes open ones to be more.
        if self._asked is None or any(size < 2 for size in sizes.values()):
            return None
        for guard in self._asked.guards:  # what was asked of sizes on the way
            held = guard.expr.xreplace(sizes)
            if held.free_symbols <= set(sizes) and not bool(held):
                return None
        return self._read(self._exported, sizes)


def _number(size):
    import sympy
    return sympy.Integer(size)


def capture(model, loss, values, split, names, *, purpose, name, running=(), open_axes=None):
    """The program of the module with its loss in training ("train") or in evaluation ("evaluate"), or of the module alone
    ("predict"). Values are those of the example.

    running: buffers that training changes, which are no constants in evaluation. open_axes: of the values, (index, axis)
    each, that are to be open: the result is then an Open, or None where torch makes none.
    """
    is_training = purpose == "train"
    refusals = list(export.hooks(model)) if is_training else []
    wrapper = export.Output(model, names) if purpose == "predict" else export.WithLoss(model, loss, split, names)

    def read(exported, sizes=None):
        found = list(refusals)
        reader = _Reader(exported, wrapper, name, found, running, sizes)
        program = reader.read()
        if purpose == "predict":
            program.output = reader.results[0]
            return Captured(program, found)
        program.loss = reader.results[0]
        program.output = reader.results[1] if len(reader.results) > 1 else -1
        reached = program.differentiated()
        for weight in program.weights:  # one without a gradient stays as it is, as by an optimizer of torch
            weight.trained = weight.trained and weight.value in reached
        paths = {path: each for path, each in model.named_modules(remove_duplicate=False) if each in modal}
        return Captured(program, found, paths if modal <= set(paths.values()) else None)

    with export.mode(wrapper, is_training), export.modes_read(set(wrapper.modules())) as modal:
        if open_axes is None:
            return read(export.exported(wrapper, values, refusals))
        try:
            return Open(export.exported(wrapper, values, refusals, open_axes), read)
        except CaptureError:
            return None
