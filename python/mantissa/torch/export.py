"""A module and its loss as torch.export has them, in training or in evaluation, and nothing lost on the way.

The module is exported in the mode it is to run in, functionalised where it writes, and not decomposed: layer norms,
attention, losses stay whole. Two things get lost on that way and are brought along here: regions of torch.no_grad() end in `detach`, and
what stands under autocast(enabled=False) is marked as exact. What would be dropped without a word is found and named:
functions with a backward of their own, and hooks.
"""
import collections
import contextlib
import io
import logging
import operator
import os
import sys
import threading

import torch
import torch.export._trace  # or the first export would wait for it

from ..rows import CaptureError, Refusal
from ..rows.advice import advice_in
from ..rows.registry import row_of

_TORCH, _HERE = (os.path.dirname(file) + os.sep for file in (torch.__file__, __file__))
ONE_AT_A_TIME = threading.RLock()  # what is patched while a module is traced is the process's, and not all by us
ASSERTIONS = {"_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size", "_assert_async"}
MODULE, LOSS = "model", "_loss."  # where the wrapper keeps the module, and what a loss has that is one


# torch's own is nothing that it exports: it reads the lengths as numbers. The reduction is left to torch.
_OPERATIONS = torch.library.Library("mantissa", "FRAGMENT")
_OPERATIONS.define("ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
                   "bool zero_infinity) -> Tensor")
torch.library.register_fake("mantissa::ctc_loss", lambda x, *_: x.new_empty(x.shape[1]), lib=_OPERATIONS)


def _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1, zero_infinity=False):
    """torch.ctc_loss as one operation."""
    if log_probs.dim() != 3 or targets.dim() != 2 or targets.shape[1] == 0:
        raise RuntimeError(f"ctc_loss of log_probs {list(log_probs.shape)} and targets {list(targets.shape)}")
    steps, ends = (torch.as_tensor(each) for each in (input_lengths, target_lengths))
    made = torch.ops.mantissa.ctc_loss(log_probs, targets, steps, ends, blank, zero_infinity)
    if reduction == 1:
        return (made / ends.clamp(min=1)).mean()
    return made.sum() if reduction == 2 else made


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


def _is_own(file):
    """Whether a file is neither torch's nor this package's."""
    return not file.startswith(("<", _TORCH, _HERE))


def line_of(trace):
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


def path_of(node):
    """The path of its module below the model's own, "loss" where it belongs to none."""
    stack = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    first, *below = stack[-1].split(".") if stack else [""]
    return ".".join(below if first == MODULE else ["loss", *below])


@contextlib.contextmanager
def _watched(refusals):
    """While a module is traced: names functions with a backward of their own, and hooks of tensors."""
    import traceback
    apply, hook, grad = torch.autograd.Function.__dict__["apply"], torch.Tensor.register_hook, torch.autograd.grad
    ctc_loss = torch.ctc_loss

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

    def watched_grad(*args, **kwargs):
        refusals.append(Refusal("a gradient that forward takes", "", *place(), advice_in("autograd.grad")))
        return grad(*args, **kwargs)

    torch.autograd.Function.apply, torch.autograd.grad = classmethod(watched_apply), watched_grad
    torch.Tensor.register_hook, torch.ctc_loss = watched_hook, _ctc_loss
    try:
        yield
    finally:
        torch.ctc_loss = ctc_loss
        torch.autograd.Function.apply, torch.autograd.grad = apply, grad
        torch.Tensor.register_hook = hook


@contextlib.contextmanager
def modes_read(modules):
    """Gives the set of those modules that torch's code reads the mode of meanwhile, and None where other code does, or sets
    one."""
    found = set()

    def read(module):
        if module in modules:
            found.add(None if _is_own(sys._getframe(1).f_code.co_filename) else module)
        return vars(module)["training"]

    def write(module, mode):
        if module in modules:
            found.add(None)
        vars(module)["training"] = mode
    torch.nn.Module.training = property(read, write)
    try:
        yield found
    finally:
        del torch.nn.Module.training


def hooks(model):
    """Hooks that take part in a backward pass."""
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            yield Refusal("a backward hook of a module, which would be lost", path, "", "", "Remove it.")
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            yield Refusal("a hook of a parameter, which would be lost", name, "", "",
                          "Remove it; masks and scales of gradients belong into the optimizer.")


def is_buffer(node):
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
                refusals.append(refusal(node, "enable_grad within no_grad", "Compute it outside of no_grad."))
        elif "wrap_with_autocast" in name:
            enabled, inner, operands = node.args[2], node.args[4], node.args[5:]
            exact, cut = is_exact or not enabled, False
            if enabled:
                refusals.append(refusal(node, "autocast(enabled=True) in the module",
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
                    if not (isinstance(mapped.get(written), torch.fx.Node) and is_buffer(mapped[written])) \
                            and written in mapped and written.op == "placeholder":
                        refusals.append(refusal(each, "a write under no_grad into a tensor that has a gradient",
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


def refusal(node, what, instead=""):
    line, code = line_of(node.meta.get("stack_trace"))
    return Refusal(what, path_of(node), line, code, instead)


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


def statistics(program):
    """Placeholders of buffers of the module that batch norms write, each by one, and of counts that nothing reads; None
    where more is written."""
    buffers, found = program.graph_signature.inputs_to_buffers, set()
    for node in program.graph.nodes:
        is_count = node.target is torch.ops.aten.add_.Tensor
        if is_count or node.target is torch.ops.aten.batch_norm.default and node.args[5]:
            for each in node.args[:1] if is_count else node.args[3:5]:
                name = buffers.get(getattr(each, "name", None), LOSS)
                if name.startswith(LOSS) or len(each.users) > 1 or each.meta["val"].is_floating_point() == is_count:
                    return None
                if is_count and (node.users or each.meta["val"].dim() > 0):
                    return None
                found.add(each)
    return found


# Operations that make a tensor of their own: what one of them made and nothing else reads may be written in place.
_MAKERS = {"conv1d", "conv2d", "conv3d", "batch_norm", "linear", "matmul", "add", "mul", "relu", "silu", "hardswish"}


def _without_writes(graph):
    """Makes x.relu_() what x.relu() is, of any such operation, where x is new and read by nothing else."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable or not schema.name.endswith("_"):
            continue
        written, name = node.args[0], schema.name.removeprefix("aten::")
        maker = getattr(getattr(written, "target", None), "_schema", None)
        is_own = maker is not None and maker.name.removeprefix("aten::") in _MAKERS and len(written.users) == 1
        pure = getattr(getattr(torch.ops.aten, name[:-1], None), schema.overload_name or "default", None)
        if is_own and pure is not None and written.meta["val"].dtype == node.meta["val"].dtype:
            node.target = pure


def _is_read_as_it_is(program):
    """Whether nothing in a traced program but statistics is written in place, and each operation has a row or is computed
    once."""
    constant, written = set(), statistics(program)
    for node in program.graph_module.graph.nodes:
        if node.op == "get_attr" or node.op == "call_function" and constant.issuperset(node.all_input_nodes):
            constant.add(node)
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is None or written is None or schema.is_mutable and node.args[0] not in written:
            return False
        space, name = schema.name.split("::")
        if not (schema.is_mutable or node in constant or name in ASSERTIONS) and row_of(f"{space}.{name}") is None:
            return False
        if "norm" in name and name != "batch_norm" and any(each.name == "running_mean" for each in schema.arguments):
            return False
    return True


def exported(module, values, refusals, open_axes=()):
    """The exported module, with the axes (index of a value, axis) that are open as symbols. Raises CaptureError with all
    that was found where torch cannot export it."""
    shapes = tuple({axis: torch.export.Dim.AUTO for at, axis in open_axes if at == index} for index in range(len(values)))
    try:
        with _watched(refusals), _hints_left_out(), _quietly():
            program = torch.export.export(module, tuple(values), strict=False,
                                          dynamic_shapes=(shapes,) if open_axes else None)
        _inline_regions(program.graph_module, refusals)
        _without_writes(program.graph_module.graph)
        program.graph_module.graph.eliminate_dead_code()
        # Made functional it is traced once more, which takes longer than the first time.
        return program if _is_read_as_it_is(program) else program.run_decompositions({})
    except Exception as error:
        raise CaptureError(type(module.model).__name__, refusals or [_export_refusal(error)]) from error


def _export_refusal(error):
    """The line of the module at which the export ended, and why."""
    import traceback
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    line, code = (f"{os.path.basename(places[-1].filename)}:{places[-1].lineno}", places[-1].line) if places else ("", "")
    if "data-dependent" in str(error) or "DataDependent" in type(error).__name__:
        return Refusal("a branch or a shape that numbers of the batch decide", "", line, code,
                       "Choose by torch.where, or decide by shapes and settings alone.")
    if instead := advice_in(code):
        return Refusal("an operation that torch.export does not take", "", line, code, instead)
    first = (str(error).strip().splitlines() or [""])[0]
    ours = [frame.line or "" for frame in traceback.extract_tb(error.__traceback__) if frame.name == "both"]
    is_loss = any("_loss(" in each for each in ours)
    return Refusal(f"torch.export ended with {type(error).__name__}: {first[:200]}", "the loss" if is_loss else "", line, code,
                   "Call the loss on the module's output and the example's targets: do their types and shapes fit?"
                   if is_loss else "See what torch.export.export says of the module alone.")


@contextlib.contextmanager
def mode(model, training):
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


@contextlib.contextmanager
def attributes_kept(*roots):
    """What forward writes into attributes of modules meanwhile is taken back: a trace leaves tensors there without numbers.
    So are hooks and all else in dictionaries: a flag that says they are there is taken back, too."""
    modules = {module for root in roots if isinstance(root, torch.nn.Module) for module in root.modules()}
    before = {module: dict(vars(module)) for module in modules}
    held = [(each, list(each.items())) for attributes in before.values() for each in attributes.values()
            if type(each) in (dict, collections.OrderedDict)]
    try:
        yield
    finally:
        for module, attributes in before.items():
            vars(module).clear()
            vars(module).update(attributes)
        for each, items in held:
            each.clear()
            each.update(items)
