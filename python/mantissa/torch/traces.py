"""Programs of a module for batches of any shape, in training, in evaluation and of its output, and the native model that
records them.

A shape is captured when it first comes. Its program in evaluation follows from that in training where modes decide no
more than dropouts and batch norms, and the output from the former. The first shapes of a purpose are exported each by
itself: with the axes that differ left open an export takes torch three to four times as long. The next one is exported
so (capture.Open), and further ones follow from that graph, as long as all holds that torch asked of sizes while it was
made. A shape for which it does not is exported by itself.
"""
import collections
import copy

import torch

from .. import _native, layout
from ..layout import Placed
from ..program import refs
from ..rows import Builder, CaptureError
from . import capture, export, watch
from .parameters import tensors_of

_HALF = (torch.float16, torch.bfloat16)
_MOST = 64  # programs that are kept
_ALONE = 4  # shapes before axes are left open: as many exports as one with open axes takes


class Traces:
    """Captured programs of one module and its loss."""

    def __init__(self, model, loss, batches):
        self.model, self._loss, self._batches = model, loss, batches
        self.name = type(model).__name__
        self.watching = watch.Watch(model, loss, {id(each) for of in (model, loss) for _, each in tensors_of(of)})
        self._programs, self._open, self._first, self._tried = collections.OrderedDict(), {}, {}, set()
        self._alone = collections.Counter()  # shapes of a purpose that were exported by themselves
        self.exports = 0  # that were made
        self.output_shapes = {}  # by the shapes of inputs
        self._running, self._known = (), None

    def settle(self, parameters):
        """Whose weights programs have from now on."""
        self._running, self._known = parameters.running, parameters

    def captured(self, shapes, purpose):
        """The program for inputs that are stored in these shapes."""
        key = (shapes, purpose)
        if purpose == "predict":  # a program of the loss in evaluation has the output, too
            key = next((each for each, made in self._programs.items() if each[1] == "evaluate" and not made.refusals
                        and each[0][:len(shapes)] == shapes and made.program.output >= 0), key)
        if key not in self._programs:
            self._programs[key] = self._capture(*key)
            while len(self._programs) > _MOST:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return self._programs[key]

    def _capture(self, shapes, purpose):
        if purpose == "evaluate" and (made := self._in_evaluation(shapes)):
            return made
        values = self._batches.of_shapes(shapes)
        first, axes = self._first.setdefault(purpose, (values, set()))
        differ = {(index, axis) for index, (x, y) in enumerate(zip(first, values))
                  for axis, (a, b) in enumerate(zip(x.shape, y.shape)) if a != b}
        wanted = frozenset(axes | differ)
        if not differ <= axes and (purpose, wanted) not in self._tried and self._alone[purpose] >= _ALONE:
            # An extent of 1 is another program to torch: it broadcasts.
            example = next((each for each in (first, values)
                            if all(each[index].shape[axis] > 1 for index, axis in wanted)), None)
            if example and (graph := self._exported(example, purpose, wanted)):
                self._open[purpose] = graph
                axes |= differ
            if example:
                self._tried.add((purpose, wanted))
        graph = self._open.get(purpose)
        if made := graph and graph.captured(values):
            return made
        self._alone[purpose] += 1
        return self._exported(values, purpose)

    def _in_evaluation(self, shapes):
        """The program of training in evaluation, where that can be known."""
        trained = next((made for (_, purpose), made in self._programs.items() if purpose == "train"), None)
        if trained is None or trained.in_evaluation() is None:
            return None
        try:
            return self.captured(shapes, "train").in_evaluation()
        except CaptureError:  # a batch norm of one example, say
            return None

    def _exported(self, values, purpose, open_axes=None):
        """Module and loss, exported and read; with open axes a graph for several shapes, or None where there is none."""
        self.exports += 1
        model, loss = in_float(self.model, self._loss)
        with export.ONE_AT_A_TIME, export.attributes_kept(model, loss):
            try:
                return capture.capture(model, loss, values, self._batches.split, self._batches.names, purpose=purpose,
                                       name=self.name, running=self._running, open_axes=open_axes)
            finally:
                self.watching.forward_has_run()

    # Recording.

    def model_of(self, parameters, program, is_still=False):
        """The native model, which begins with the module's weights. is_still: nothing in it is random."""
        def loss(*tensors):
            if is_still or _native.operations.is_training():
                return self._recorded(tensors, "train", is_still)
            return self._recorded(tensors, "evaluate", False)

        def output(*tensors):
            return self._recorded(tensors, "predict", False)

        inputs = self._batches.inputs([program.types[value][0] for value in program.inputs])
        self._starting = parameters.starting
        return _native.Model(self.name, inputs, loss, output, self.output_inputs, True)

    def output_shape(self, given):
        """The output's shape for inputs that are stored in these shapes, examples first, as it was recorded for as many or
        fewer of them; and whether they are torch's second axis."""
        if given in self.output_shapes:
            return self.output_shapes[given]
        leading = [axis is not None for axis in self._batches.axes]

        def apart(shapes):
            return tuple(shape[1:] if is_leading else shape for shape, is_leading in zip(shapes, leading))
        return next(made for shapes, made in self.output_shapes.items() if apart(shapes) == apart(given))

    @property
    def output_inputs(self):
        return len(self._batches.examples) if self._batches.names else self._batches.split

    def _recorded(self, tensors, purpose, is_still):
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        captured = self.captured(shapes, purpose)
        program = captured.program
        root = program.output if purpose == "predict" else program.loss
        used = {value for node in program.used([root]) for value in refs(node.arguments)}
        missing = [weight.name for weight in program.weights
                   if weight.value in used and weight.name not in self._known.held]
        if missing:
            raise _native.Error(f"{missing[0]} is a weight " + (
                "on batches of this shape, and none on the example's: give an example that uses all weights"
                if purpose == "train" else "in evaluation and none in training"))
        placed = [self._placed(index, tensor, program.types[value][0])
                  for index, (value, tensor) in enumerate(zip(program.inputs, tensors))]
        builder = Builder(program, placed, values=self._starting, is_training=purpose == "train", is_still=is_still,
                          module=self.name)
        builder.refusals += captured.refusals
        if root < 0:
            raise _native.Error("the module's output is no tensor to predict")
        made = builder.build([root])[0]
        if purpose == "predict":
            rows, shape = self._batches.rows_of(shapes), tuple(made.shape)
            is_turned = 1 in self._batches.axes and len(shape) > 1 and shape[1] == rows and (shape[0] != rows or len(shape) > 2)
            if is_turned:
                made = Placed(made.tensor, (made.order[1], made.order[0], *made.order[2:]))
            self.output_shapes[shapes] = tuple(made.shape), is_turned
        return layout.plain(made)

    def _placed(self, index, tensor, dtype):
        tensor = tensor.cast("bool") if dtype == "bool" else tensor
        if self._batches.axes[index] != 1:
            return Placed(tensor)
        return Placed(tensor, (1, 0, *range(2, len(tensor.shape))))


def in_float(model, loss):
    """Module and loss as they are trained, from copies in FP32 where they are in 16 bits."""
    if not is_half(model):
        return model, loss
    return tuple(each.float() if isinstance(each, torch.nn.Module) else each for each in copy.deepcopy((model, loss)))


def is_half(model):
    return any(tensor.dtype in _HALF for _, tensor in tensors_of(model))
