"""From an nn.Module and a loss to a neutral program, by torch.export. No other file touches private parts of torch.

The module is exported in the mode it is to run in, functionalised and not decomposed: layer norms, attention, losses
stay whole. Two things get lost on that way and are brought along here: regions of torch.no_grad() end in `detach`, and
what stands under autocast(enabled=False) is marked as exact. What would be dropped without a word is found and named:
functions with a backward of their own, and hooks.
"""
import contextlib
import io
import logging
import operator
import os

import numpy as np
import torch

from ..program import Node, Program, Ref, Weight
from ..rows import CaptureError, Refusal

_DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
           torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
           torch.bool: "bool", torch.complex64: "c64", torch.complex128: "c128"}
_OF_SHAPE_ALONE = {"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full",
                   "new_empty", "new_empty_strided", "empty_strided"}
_RANDOM = {"bernoulli", "rand", "randn", "rand_like", "randn_like", "native_dropout", "dropout", "normal",
           "normal_functional", "uniform", "randint", "randint_like", "randperm", "multinomial", "exponential"}
_TORCH, _HERE = (os.path.dirname(file) + os.sep for file in (torch.__file__, __file__))
_MODULE = "model"  # where the wrapper keeps the module


class WithLoss(torch.nn.Module):
    """A module and its loss as one: what is exported. `split`: how many of the arguments are the module's."""

    def __init__(self, model, loss, split, names=None):
        super().__init__()
        self.model = model
        self._loss, self._split, self._names = loss, split, names

    def forward(self, *values):
        return self.both(*values)[:2]

    def both(self, *values):
        if self._names:
            given = dict(zip(self._names, values))
            made = self.model(**given)
            loss = made.loss if self._loss is None else self._loss(made)
        else:
            made = self.model(*values[:self._split])
            loss = self._loss(made, *values[self._split:])
        return loss, output_of(made)


class Output(torch.nn.Module):
    """The module alone."""

    def __init__(self, model, names=None):
        super().__init__()
        self.model, self._names = model, names

    def forward(self, *values):
        made = self.model(**dict(zip(self._names, values))) if self._names else self.model(*values)
        return output_of(made)


def output_of(made):
    """What a module predicts: a tensor, its logits, or the first tensor of several. None: nothing."""
    if isinstance(made, torch.Tensor):
        return made
    if hasattr(made, "logits"):
        return made.logits
    values = list(made.values()) if hasattr(made, "values") else made if isinstance(made, (list, tuple)) else []
    for each in values:
        if isinstance(each, torch.Tensor) and each.dim() > 0 and each.is_floating_point():
            return each
    return None


class Captured:
    """A program, and what of the module it was made of."""

    def __init__(self, program, refusals):
        self.program, self.refusals = program, refusals


def _is_own(file):
    """Whether a file is neither torch's nor this package's."""
    return not file.startswith(("<", _TORCH, _HERE))


def _line_of(trace):
    """The last place outside of torch: "model.py:52", and what stands there."""
    places = []
    lines = (trace or "").strip().splitlines()
    for at, line in enumerate(lines):
        if line.strip().startswith("File "):
            file, number = line.strip()[len("File "):].split(", ")[:2]
            code = lines[at + 1].strip() if at + 1 < len(lines) else ""
            places.append((file.strip('"'), number.replace("line ", ""), code))
    own = [place for place in places if _is_own(place[0])]
    if not (own or places):
        return "", ""
    file, number, code = (own or places)[-1]
    return f"{os.path.basename(file)}:{number}", code


def _path_of(node):
    stack = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    return ".".join(stack[-1].split(".")[1:]) if stack else ""


@contextlib.contextmanager
def _watched(refusals):
    """While a module is traced: names functions with a backward of their own, and hooks of tensors."""
    import traceback
    apply, hook = torch.autograd.Function.__dict__["apply"], torch.Tensor.register_hook

    def place():
        for frame in reversed(traceback.extract_stack()[:-2]):
            if _is_own(frame.filename):
                return f"{os.path.basename(frame.filename)}:{frame.lineno}", frame.line or ""
        return "", ""

    def watched_apply(cls, *args, **kwargs):
        if not cls.__module__.startswith("torch."):
            line, code = place()
            refusals.append(Refusal(f"the autograd.Function {cls.__name__}, whose backward would be lost", "", line, code,
                                    "Write its gradient with detach: y = x + (f(x) - x).detach() passes it straight."))
        return apply.__get__(None, cls)(*args, **kwargs)

    def watched_hook(self, function):
        line, code = place()
        refusals.append(Refusal("a hook on a tensor, which would be lost", "", line, code,
                                "Change the loss or the tensor instead."))
        return hook(self, function)

    torch.autograd.Function.apply = classmethod(watched_apply)
    torch.Tensor.register_hook = watched_hook
    try:
        yield
    finally:
        torch.autograd.Function.apply = apply
        torch.Tensor.register_hook = hook


def _hooks(model):
    """Hooks that take part in a backward pass."""
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            yield Refusal("a backward hook of a module, which would be lost", path, "", "", "Remove it.")
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            yield Refusal("a hook of a parameter, which would be lost", name, "", "",
                          "Remove it; masks and scales of gradients belong into the optimizer.")


def _is_buffer(node):
    return node.op == "placeholder" and str(node.target).startswith(("b_", "c_"))


def _inline_regions(graph_module, refusals, is_exact=False, without_gradient=False):
    """Puts what stands in regions of no_grad and autocast into the graph itself."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.HigherOrderOperator):
            continue
        name = node.target.name() if callable(getattr(node.target, "name", None)) else str(node.target)
        if "wrap_with_set_grad_enabled" in name:
            enabled, inner, operands = node.args[0], node.args[1], node.args[2:]
            exact, cut = is_exact, not enabled
            if enabled and without_gradient:
                refusals.append(_refusal(node, "enable_grad within no_grad", "Compute it outside of no_grad."))
        elif "wrap_with_autocast" in name:
            enabled, inner, operands = node.args[2], node.args[4], node.args[5:]
            exact, cut = is_exact or not enabled, False
            if enabled:
                refusals.append(_refusal(node, "autocast(enabled=True) in the module",
                                         "Leave it out: policy= says in which format steps are computed."))
        else:
            continue
        module = getattr(graph_module, inner.target)
        _inline_regions(module, refusals, exact, without_gradient or cut)
        mapped = dict(zip([n for n in module.graph.nodes if n.op == "placeholder"], operands))
        stack = node.meta.get("nn_module_stack", {})
        with graph.inserting_before(node):
            for each in module.graph.nodes:
                if each.op == "placeholder":
                    continue
                if each.op == "output":
                    results = each.args[0]
                    break
                if each.op == "get_attr" and not hasattr(graph_module, each.target):
                    setattr(graph_module, each.target, getattr(module, each.target))
                copied = graph.node_copy(each, lambda n: mapped[n])
                if not copied.meta.get("nn_module_stack"):
                    copied.meta["nn_module_stack"] = stack
                if exact:
                    copied.meta["custom"] = dict(copied.meta.get("custom", {}), mantissa_exact=True)
                if cut and each.op == "call_function" and getattr(getattr(each.target, "_schema", None), "is_mutable",
                                                                  False):
                    written = each.args[0]
                    if not (isinstance(mapped.get(written), torch.fx.Node) and _is_buffer(mapped[written])) \
                            and written in mapped and written.op == "placeholder":
                        refusals.append(_refusal(each, "a write under no_grad into a tensor that has a gradient",
                                                 "Make a new tensor: x.detach() * y."))
                mapped[each] = copied
            single = isinstance(results, torch.fx.Node)
            made = [mapped[r] if isinstance(r, torch.fx.Node) else r for r in ([results] if single else results)]
            if cut:
                made = [_detached(graph, each) for each in made]
        for user in list(node.users):
            if user.target is operator.getitem:
                user.replace_all_uses_with(made[user.args[1]])
                graph.erase_node(user)
        if node.users and single:
            node.replace_all_uses_with(made[0])
        graph.erase_node(node)
        if not inner.users:
            graph.erase_node(inner)
    graph.lint()
    graph_module.recompile()


def _detached(graph, node):
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return node
    cut = graph.call_function(torch.ops.aten.detach.default, (node,))
    cut.meta = dict(node.meta)
    return cut


def _refusal(node, what, instead=""):
    line, code = _line_of(node.meta.get("stack_trace"))
    return Refusal(what, _path_of(node), line, code, instead)


@contextlib.contextmanager
def _quietly():
    """What fails is said in an error: torch would print the whole graph, too."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _hints_left_out():
    """nn.Transformer looks into masks for whether they are causal: a hint, which changes no number."""
    from torch.nn.modules import transformer
    before = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = before


def _exported(module, values, refusals):
    """Raises CaptureError with all that was found where torch cannot export the module."""
    try:
        with _watched(refusals), _hints_left_out(), _quietly():
            program = torch.export.export(module, tuple(values), strict=False)
        _inline_regions(program.graph_module, refusals)
        return program.run_decompositions({})
    except Exception as error:
        raise CaptureError(type(module.model).__name__, refusals + [_export_refusal(error)]) from error


def _export_refusal(error):
    """The line of the module at which the export ended, and why."""
    import traceback
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    line, code = (f"{os.path.basename(places[-1].filename)}:{places[-1].lineno}", places[-1].line) if places else ("", "")
    if "data-dependent" in str(error) or "DataDependent" in type(error).__name__:
        return Refusal("a branch or a shape that numbers of the batch decide", "", line, code,
                       "Choose by torch.where, or decide by shapes and settings alone.")
    first = (str(error).strip().splitlines() or [""])[0]
    return Refusal(f"torch.export ended with {type(error).__name__}: {first[:200]}", "", line, code,
                   "See what torch.export.export says of the module alone.")


class _Reader:
    """Reads an exported program into a neutral one."""

    def __init__(self, exported, model, name, refusals, running=()):
        self.exported, self.model, self.refusals, self.running = exported, model, refusals, running
        self.program = Program(name)
        self.values = {}  # node -> value, or a list of them
        self.folded = {}  # node -> what it is, computed once
        self.next = 0
        self.names = _names_of(model)

    def read(self):
        signature = self.exported.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs if hasattr(spec.arg, "name")}
        self.mutated = dict(signature.buffers_to_mutate)
        weights = {}
        for node in self.exported.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, specs.get(node.name), weights)
            elif node.op == "get_attr":
                self.folded[node] = getattr(self.exported.graph_module, node.target)
            elif node.op == "call_function":
                self._call(node)
        self._outputs(signature)
        return self.program

    def _value(self, meta):
        value = self.next
        self.next += 1
        self.program.types[value] = (_DTYPES.get(meta.dtype, str(meta.dtype)), tuple(int(e) for e in meta.shape))
        return value

    def _placeholder(self, node, spec, weights):
        kind = spec.kind.name if spec else "USER_INPUT"
        if kind == "USER_INPUT":
            if isinstance(node.meta.get("val"), torch.Tensor):
                self.values[node] = self._value(node.meta["val"])
                self.program.inputs.append(self.values[node])
            return
        target = spec.target.removeprefix(_MODULE + ".")
        if kind == "PARAMETER":
            self.values[node] = self._weight(node, self.names[target], weights)
        elif kind == "BUFFER":
            if spec.target in self.mutated.values() or target in self.running:
                tensor = self.model.get_buffer(target)
                if tensor.is_floating_point():
                    self.values[node] = self._weight(node, target, weights, running=True)
                else:
                    self.values[node] = None  # a count of batches, which the trainer keeps
            else:
                self.folded[node] = self.model.get_buffer(target).detach()
        elif kind == "CONSTANT_TENSOR":
            constants = self.exported.constants
            self.folded[node] = constants[spec.target].detach()
        else:
            self.refusals.append(_refusal(node, f"an input of the kind {kind}"))

    def _weight(self, node, name, weights, running=False):
        if name not in weights:
            weights[name] = self._value(node.meta["val"])
            trained = not running and self.model.get_parameter(name).requires_grad
            self.program.weights.append(Weight(name, weights[name], trained, running))
        return weights[name]

    def _is_random(self, node):
        schema = getattr(node.target, "_schema", None)
        return schema is not None and schema.name.split("::")[1] in _RANDOM

    def _call(self, node):
        if node.target is operator.getitem:
            source, index = node.args
            if source in self.folded:
                self.folded[node] = self.folded[source][index]
            elif isinstance(self.values.get(source), list):
                self.values[node] = self.values[source][index]
            return
        schema = getattr(node.target, "_schema", None)
        name = schema.name.split("::")[1] if schema else str(node.target)
        if name in ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size", "_assert_async"):
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
            return torch.zeros(tuple(int(e) for e in meta.shape), dtype=meta.dtype)
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
        line, code = _line_of(node.meta.get("stack_trace"))
        path = _path_of(node)
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
                self._mutation(node, spec.target.removeprefix(_MODULE + "."))
            else:
                self.refusals.append(Refusal(f"a result of the kind {spec.kind.name}", "", "", "",
                                             "Leave inputs and parameters as they are in forward."))
        self.results = [each.value if isinstance(each, Ref) else -1 for each in results]

    def _mutation(self, node, target):
        """A batch norm's statistics follow by its row, and its count of batches by the trainer. All else is refused."""
        buffer = self.model.get_buffer(target)
        if not buffer.is_floating_point():
            is_count = getattr(node.target, "_schema", None) is not None and "add" in node.target._schema.name \
                and buffer.dim() == 0
            if is_count:
                return
        elif node.target is operator.getitem and "batch_norm" in str(node.args[0].target):
            source = node.args[0]
            given = source.args[3:5]
            if any(_is_buffer(each) for each in given):
                return
            self.refusals.append(_refusal(source, "a batch norm that runs twice in a step",
                                          "Put both batches together, and run it once."))
            return
        self.refusals.append(Refusal(f"the buffer {target}, which forward changes", "", *_line_of(
            node.meta.get("stack_trace")), "Change it outside of forward, between steps."))


def _names_of(model):
    """Each parameter's name -> the first name of the tensor: what is tied has one."""
    first, names = {}, {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[name] = first.setdefault(id(parameter), name)
    return names


def names_of(model):
    return _names_of(model)


def flat(example):
    """The tensors of an example, and their names where it is a dictionary."""
    if isinstance(example, dict):
        return list(example.values()), list(example)
    return list(example), None


def capture(model, loss, values, split, names, *, training, name, running=()):
    """The program of the module with its loss, in training or in evaluation. Values are those of the example.

    running: buffers that training changes, which are no constants in evaluation.
    """
    refusals = list(_hooks(model)) if training else []
    with _mode(model, training):
        exported = _exported(WithLoss(model, loss, split, names), values, refusals)
    reader = _Reader(exported, model, name, refusals, running)
    program = reader.read()
    program.loss = reader.results[0]
    program.output = reader.results[1] if len(reader.results) > 1 else -1
    return Captured(program, refusals)


def capture_output(model, values, names, *, name, running=()):
    """The program of the module alone, in evaluation."""
    refusals = []
    with _mode(model, False):
        exported = _exported(Output(model, names), values, refusals)
    reader = _Reader(exported, model, name, refusals, running)
    program = reader.read()
    program.output = reader.results[0]
    return Captured(program, refusals)


@contextlib.contextmanager
def _mode(model, training):
    """The module in evaluation, or as it is: what of it is frozen by eval() stays so while training."""
    before = {module: module.training for module in model.modules()}
    if not training:
        model.eval()
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for module, mode in before.items():
            module.training = mode
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in buffers and not torch.equal(buffer, buffers[name]):
                    buffer.copy_(buffers[name])


class Still(torch.utils._python_dispatch.TorchDispatchMode):
    """While active, random numbers are the means of their distributions, and a normal number is 0.5.

    in_double: what asks for float32 gets float64, so that a module that does so by itself runs in FP64, too.
    """

    def __init__(self, in_double=False):
        super().__init__()
        self.in_double = in_double

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if self.in_double:
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
            args = tuple(torch.float64 if each is torch.float32 else each for each in args)
        name = function._schema.name.split("::")[1]
        if name in ("bernoulli_", "bernoulli"):
            p = args[1] if len(args) > 1 and not isinstance(args[1], torch.Generator) else kwargs.get("p", None)
            if name == "bernoulli":
                return args[0].clone() if p is None else torch.full_like(args[0], p)
            return args[0].fill_(0.5 if p is None else p) if not isinstance(p, torch.Tensor) else args[0].copy_(p)
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if name in ("rand", "rand_like", "randn", "randn_like"):
            return function(*args, **kwargs).fill_(0.5)
        if name == "uniform_":
            low = args[1] if len(args) > 1 else kwargs.get("from", 0.0)
            high = args[2] if len(args) > 2 else kwargs.get("to", 1.0)
            return args[0].fill_((low + high) / 2)
        if name == "normal_":
            mean = args[1] if len(args) > 1 else kwargs.get("mean", 0.0)
            std = args[2] if len(args) > 2 else kwargs.get("std", 1.0)
            return args[0].fill_(0.5 * std + mean)
        return function(*args, **kwargs)
