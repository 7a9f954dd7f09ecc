"""A trainer of a PyTorch module: hands its parameters over, makes steps, and gives them back."""
import contextlib
import time

import numpy as np
import torch

from .. import _native
from ..program import refs
from ..rows import CaptureError
from ..trainer import arrays_of, averaged, device_of, native_trainer, options_of, rate_of, train_on, tuple_of
from . import check, export, optimizers
from .batches import Batches
from .parameters import Parameters, refuse_unfit
from .traces import Traces, in_float, is_half


def trainer(model, loss=None, example=None, **options):
    """A trainer of the module, by this loss.

    loss       loss(output, target), as torch.nn.functional.cross_entropy; of several targets, all of them. None: the
               module's output has it, as Hugging Face's modules with labels
    example    a batch: (x, y), or a dictionary for a module that takes names. Others may have more or fewer examples and
               other lengths: a step is planned for each shape when it first comes
    inputs     how many of the example the module takes, the others are targets; None: all but the last
    policy     "fp32", "tf32", "bf16", "fp16", "mxfp8", or another of mantissa.policies()
    optimizer  mantissa.adamw(...), sgd(...) or muon(...); or torch.optim's AdamW, Adam, SGD or Muon of the module's
               parameters, or a list of a Muon and an AdamW: steps then take its rate, which schedules of torch set, and
               into() gives it the moments
    clip       the norm at which gradients are clipped, beside an optimizer of torch; 0: they are not
    device     "cpu", or "cuda" for an NVIDIA GPU. The module stays on the CPU, and its parameters are copied
    check      whether the first step is compared with eager, once: that takes the memory of a step of torch's in FP64
    accumulate micro-batches of a step, cut from a batch along its examples. Each counts by its share of the examples, as
               (loss * rows / all).backward() would; where all have as many, that is loss / accumulate
    pad_to     lengths to which that of a batch (its second axis) is rounded up, as (64, 128, 256), so that there are few
               shapes; longer ones stay as they are. Refused where that changes the loss. fill: what is filled in, by name
               or number of an input; known are the names of transformers, 0 for inputs and -100 for whole targets
    batch_axis the axis of examples of the first input: 1 where time comes first. Others have theirs where they have as many;
               where that may be either, {"labels": 0} or {1: 0} says it, and None that it is one value for all
    plans      shapes for which steps stay planned; the one not used for longest goes first
    views      whether the module's parameters become views of what is trained: they are held once, and follow each
               step. False: the module stays as it is until into(), and has a copy of its own

    Other options are those of mantissa.Trainer. Raises CaptureError, naming all that cannot be trained, each with its
    place; DifferenceError where the first step is not the module's.
    """
    return TorchTrainer(model, loss, example, **options)


class Gradients:
    """In a loop of one's own: `loss = grads(x, y)` stands for a forward and a backward pass.

    Each call takes the parameters as the module has them, and adds gradients to `grad` as backward does. Running
    statistics of batch norms follow into the module. Everything else of the loop stays: optimizer, clipping, schedule.
    """

    def __init__(self, model, loss, example, **options):
        self._trainer = TorchTrainer(model, loss, example, optimizer=_native.sgd(), **options)

    def __call__(self, *batch):
        """The loss of a batch, after which each parameter's `grad` has its gradient."""
        trainer = self._trainer
        trainer.load()
        loss, gradients = trainer.gradients(*batch)
        for name, gradient in gradients.items():
            parameter = trainer.model.get_parameter(name)
            if parameter.grad is None:
                parameter.grad = gradient.to(parameter.dtype)
            else:
                parameter.grad += gradient
        if trainer._parameters.running:
            trainer._trainer.update(0.0)
            trainer._parameters.statistics_into_module(trainer._accumulate)
        else:
            trainer._trainer.continue_after(trainer.steps + 1)  # or the next dropout would be this one
        return loss

    @property
    def distance(self):
        """How far the first step was from eager."""
        return self._trainer.distance


def gradients(model, loss=None, example=None, **options):
    """Losses and gradients of a module for a loop of one's own. Arguments are those of trainer, without an optimizer."""
    return Gradients(model, loss, example, **options)


class TorchTrainer:
    """A module in training. Its parameters are views of those that are trained, where they can be: see `copied`."""

    def __init__(self, model, loss, example, **options):
        with export.ONE_AT_A_TIME:
            self._make(model, loss, example, **options)

    def _make(self, model, loss, example, *, inputs=None, policy="fp32", optimizer=None, clip=0.0, check=True, views=True,
              device="cpu", threads=None, accumulate=1, pad_to=None, fill=None, batch_axis=None, **options):
        began = time.monotonic()
        self.model, self._loss, self.device = model, loss, str(device)
        self._device = device_of(device, threads)
        if "batch" in options:
            raise _native.Error("the example says how many rows a step takes: leave batch out")
        _refuse_no_module(model, loss)
        self.optimizers, made = optimizers.of(optimizer, model, clip)
        self._ratios = made.ratios
        options = dict(options, frozen=_listed(options.get("frozen")) + made.left) if made.left else options
        refuse_unfit(model)
        self._batches = Batches(example, inputs=inputs, axis=batch_axis, pad_to=pad_to, fill=fill,
                                is_half=is_half(model), accumulate=accumulate)
        if loss is None and not self._batches.names:
            raise _native.Error("loss=None is for modules that give it themselves: make the example a dictionary")
        options_of(accumulate=accumulate, policy=policy, **options)  # before the module is exported
        self._accumulate, self._batch = accumulate, self._batches.per_micro_batch
        self._traces = Traces(model, loss, self._batches)
        captured = self._traces.captured(self._batches.shapes(self._batch), "train")
        self.program = captured.program
        self._parameters = Parameters(model, loss, self.program, self._traces.watching)
        self._traces.settle(self._parameters)
        self._refuse_all(captured)
        if accumulate > 1 and self.program.updates:
            changed = next(weight.name for weight in self.program.weights if weight.value in self.program.updates)
            raise _native.Error(f"forward changes the buffer {changed}, so each micro-batch would begin with what the one "
                                "before it left: train without accumulate, or change it outside of forward")
        self._batches.refuse_padding_that_counts(self._loss_of)
        if accumulate > 1 and not self._batches.is_axis_said:
            self._refuse_mixed_examples()
        self.capture_seconds = time.monotonic() - began
        frozen = self._without_gradient()
        self._native_model = self._model_of(False)
        self._options = dict(options, batch=self._batch, policy=policy, accumulate=accumulate,
                             optimizer=made.of(self._parameters.all))
        if frozen:
            self._options["frozen"] = frozen + _listed(options.get("frozen"))
        self.distance = self._checked(frozen) if check else None  # before there is memory for steps
        began = time.monotonic()
        self._trainer = native_trainer(self._native_model, self._options, device, threads)
        self.plan_seconds = time.monotonic() - began
        self._parameters.hold(self._trainer, f"it is trained on {self.device}" if self.device != "cpu" else
                              "" if views else "views=False")
        self._told = False
        optimizers.begin(self)
        _native.give_back_memory()

    @property
    def copied(self):
        """Weights that are no views of what is trained, and why, by name."""
        return self._parameters.copied

    def load(self):
        """Takes parameters and running statistics over from the module, as they were written there."""
        self._parameters.load()

    def step(self, *batch, lr=None):
        """One step on a batch, at the rate of an optimizer of torch where none is given. Returns loss, gradient_norm,
        applied, seconds and metrics. The first of a shape plans it."""
        return self(*batch, lr=lr)

    def _rate_of(self, lr):
        if lr is None and not self.optimizers:
            raise _native.Error("a step takes its rate, as in step(x, y, lr=1e-3), or that of an optimizer of torch")
        return optimizers.rate_of_torch(self.optimizers, self._ratios) if lr is None else rate_of(lr)

    def __call__(self, *batch, lr=None):
        self._parameters.refuse_changed(with_modes=True)
        arrays, lr = self._batches.arrays(batch), self._rate_of(lr)
        try:
            return self._trainer.step(arrays, lr)
        finally:  # Ctrl-C comes when the step has been made
            self._remember_step()

    def _remember_step(self):
        self._parameters.remember_views()
        if self.optimizers and not self._told:  # a schedule asks once whether there was a step: this one does nothing
            self._told = optimizers.tell(self.optimizers)

    def train_on(self, batches, *, lr=None):
        """A step on each batch of a DataLoader, say: yields their results, and reads the next batch while a step runs.

        lr is a rate, or a function that gives it for the count of steps before; None: that of an optimizer of torch.
        """
        lr = lr if lr is not None else lambda steps: self._rate_of(None)
        views = self._parameters.views

        def arrays():
            for batch in batches:
                if not views:  # while a step runs, which changes no tensor of the module
                    self._parameters.refuse_changed(with_modes=True)
                yield self._batches.arrays(tuple_of(batch))

        if views:
            self._parameters.refuse_changed(with_modes=True)
        results = train_on(self._trainer, arrays(), lr)
        while True:
            try:
                result = next(results, None)
            finally:  # a step was made while the loader failed
                self._remember_step()
            if result is None:
                return
            yield result
            if views:
                self._parameters.refuse_changed(with_modes=True)

    def evaluate(self, *batch):
        """The loss of any number of examples, with the module in evaluation."""
        self._parameters.refuse_changed()
        if self._parameters.views:
            self._trainer.note_write()  # a write through .data leaves no trace
        return self._trainer.evaluate(self._batches.arrays(batch)).loss

    def predict(self, *batch):
        """The module's output for any number of examples, with the module in evaluation: a float32 tensor."""
        self._parameters.refuse_changed()
        batch, batches = arrays_of(batch), self._batches
        if not batches.names and len(batch) > batches.split:
            raise _native.Error(f"predict takes the module's own {batches.split} of a batch, got {len(batch)}: targets go to "
                                "evaluate")
        arrays = batches.arrays(batch, is_padded=False)
        made = self._trainer.predict(arrays)
        given = tuple(array.shape for array in arrays[:self._traces.output_inputs])
        shape, is_turned = self._traces.output_shape(given)
        output = torch.from_numpy(made).reshape((-1,) + shape[1:])
        return output.transpose(0, 1) if is_turned else output

    @contextlib.contextmanager
    def averaged(self):
        """For `with`: meanwhile weights and running statistics are their averages (ema_decay), in the module too where
        it has views, so what evaluates, predicts, saves and gives back has these. No step is made."""
        self._parameters.refuse_changed()
        try:
            with averaged(self._trainer):
                self._parameters.remember_views()
                yield self
        finally:
            self._parameters.remember_views()

    def state_dict(self):
        """The module's state_dict with what was learned, copied: torch's own names and layouts."""
        return self._parameters.learned(dict(self.model.state_dict()), self.steps * self._accumulate)

    def into(self, model=None):
        """Copies what was learned into the module's own tensors, or another module's of the same kind."""
        if model is not None and model is not self.model:
            model.load_state_dict(self.state_dict())
            return model
        self._parameters.into_module(self.steps * self._accumulate)
        optimizers.into_optimizers(self)
        return self.model

    def into_optimizer(self, optimizer):
        """Gives AdamW's moments and count of steps to a torch.optim.AdamW of the module's parameters."""
        optimizers.into_optimizer(self, optimizer)

    def from_optimizer(self, optimizer):
        """Takes them over from one: the next step goes on where it was."""
        optimizers.from_optimizer(self, optimizer)

    def save(self, directory):
        """Saves the run, to be resumed to the same bits."""
        self._parameters.refuse_changed()
        self._trainer.save(directory)

    def resume(self, directory):
        """Goes on where a run was saved."""
        said = self._trainer.resume(directory)
        self._parameters.view_again()
        return said

    def gradients(self, *batch):
        """The loss of a batch and the gradient of each parameter, in torch's own layouts; nothing is updated."""
        self._parameters.refuse_changed(with_modes=True)
        loss, stored = self._trainer.gradients(self._batches.arrays(batch))
        return loss, {name: torch.from_numpy(np.ascontiguousarray(self._parameters.as_torch(name, array)))
                      for name, array in stored.items()}

    @property
    def steps(self):
        """Steps that were made."""
        return self._trainer.steps

    @property
    def planned_shapes(self):
        """Shapes of batches for which a step is planned."""
        return self._trainer.planned_shapes

    @property
    def capture(self):
        """What was captured, in words."""
        nodes, weights = len(self.program.used([self.program.loss])), self._parameters.held
        return (f"{self.program.name}: {nodes} operations, {self.program.folded} computed once"
                + (f"; {self.distance}" if self.distance else "")
                + (f"; {len(self.copied)} of {len(weights)} weights are copied" if self.copied else ""))

    @property
    def native_model(self):
        """The model as mantissa's reports have it, which starts from the module's own weights."""
        return self._native_model

    @property
    def options(self):
        """Batch, policy, optimizer and all else that the trainer was made with."""
        return dict(self._options)

    # How it is made.

    def _refuse_all(self, captured):
        """Everything that cannot be trained, at once, before anything is planned."""
        if self.program.loss < 0:
            raise CaptureError(self._traces.name, captured.refusals) if captured.refusals else _native.Error(
                "the loss does not depend on the module")
        if tuple(self.program.types[self.program.loss][1]) != ():
            raise _native.Error(f"the loss must be one number, got {list(self.program.types[self.program.loss][1])}; "
                                "take the mean")

    def _without_gradient(self):
        """Weights of the loss that nothing trains."""
        read = {value for node in self.program.used([self.program.loss]) for value in refs(node.arguments)}
        return [name for name, (weight, _) in self._parameters.all.items()
                if weight.value in read and not weight.trained and not weight.running]

    def _model_of(self, is_still):
        try:
            return self._traces.model_of(self._parameters, self.program, is_still)
        except _native.Error as error:
            if advice := _advice_of_type(self.model):
                raise _native.Error(f"{error}{advice}") from error
            raise

    def _eager(self, function, values):
        """A function of check.py, of the module in FP32."""
        model, loss = in_float(self.model, self._loss)
        with export.attributes_kept(model, loss):
            return function(model, loss, values, self._batches.split, self._batches.names)

    def _loss_of(self, values):
        return self._eager(check.loss_of, values)

    def _refuse_mixed_examples(self):
        """Micro-batches are parts of a batch: what one of them gives must not depend on the others."""
        batches = self._batches
        last = batches.last(self._batch)
        whole, part = (self._eager(check.output_of, values) for values in (batches.examples, last))
        if whole is None or part is None:
            return
        rows = whole.shape[0] if whole.dim() else 0
        same = rows == batches.rows and part.shape == whole[-part.shape[0]:].shape and bool(
            torch.allclose(part, whole[-part.shape[0]:], rtol=1e-3, atol=1e-4))
        if not same:
            raise _native.Error(
                f"accumulate cuts a batch along the first axis of its inputs, and the module's output of the last "
                f"{self._batch} of {batches.rows} there is not that of the same within all: if time comes first, "
                "batch_axis=1 says so; batch_axis=0 says that micro-batches are meant as they are")

    def _checked(self, frozen):
        still = _native.Trainer(self._model_of(True), options_of(**dict(
            self._options, policy="fp32", optimizer=_native.sgd(), accumulate=1, frozen=frozen)), *self._device)
        values = self._batches.first(self._batch)
        loss, stored = still.gradients(self._batches.arrays(values))
        del still  # what it holds is as large as a step
        gradients = {name: self._parameters.as_torch(name, array) for name, array in stored.items()}
        try:
            return self._eager(lambda *given: check.check((loss, gradients), *given), values)
        except RuntimeError as error:
            raise _native.Error(f"the module itself fails on the example: {error}{_advice_of_type(self.model)}") from error
        finally:
            _native.give_back_memory()


def _refuse_no_module(model, loss):
    if not isinstance(model, torch.nn.Module):
        raise _native.Error(f"a torch.nn.Module is trained, got {type(model).__name__}")
    if hasattr(model, "_orig_mod"):
        raise _native.Error("the module is one of torch.compile; give the one it was made of")
    if isinstance(loss, type) or not (loss is None or callable(loss)):
        raise _native.Error("loss is a function of output and target, as F.cross_entropy or nn.CrossEntropyLoss(), got "
                            + (f"the class {loss.__name__}: write {loss.__name__}()" if isinstance(loss, type) else
                               repr(loss)))


def _listed(patterns):
    return patterns.split(",") if isinstance(patterns, str) else list(patterns or ())


def _advice_of_type(model):
    """What to do about a module whose weights are in a format that a policy would choose."""
    other = next((p.dtype for p in model.parameters() if p.dtype != torch.float32), None)
    return f". The module's weights are {other}: call model.float(), and let policy= choose the format" if other else ""
