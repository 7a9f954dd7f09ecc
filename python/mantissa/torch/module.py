"""A trainer of a PyTorch module: hands its parameters over, makes steps, and gives them back."""
import collections
import contextlib
import copy
import hashlib
import itertools
import time

import numpy as np
import torch

from .. import _native, layout
from ..program import refs
from ..rows import Builder, CaptureError, from_stored, to_stored
from ..rows.build import Weights
from ..trainer import arrays_of, averaged, options_of, place_of, rate_of, train_on, tuple_of
from . import capture, check, export, optimizers, watch

_HALF = (torch.float16, torch.bfloat16)
_INPUTS = {"f32": "f32", "i64": "i32", "i32": "i32", "u8": "u8", "bool": "i32"}


def trainer(model, loss=None, example=None, **options):
    """A trainer of the module, by this loss.

    loss       loss(output, target), as torch.nn.functional.cross_entropy; of several targets, all of them. None: the
               module's output has it, as Hugging Face's modules with labels
    example    a batch, whose shapes all steps have: (x, y), or a dictionary for a module that takes names
    inputs     how many of the example the module takes, the others are targets; None: all but the last
    policy     "fp32", "tf32", "bf16" or "fp16"
    optimizer  mantissa.adamw(...), sgd(...) or muon(...); or torch.optim's AdamW, Adam or SGD of the module's parameters:
               steps then take its rate, which schedules of torch set, and into() gives it the moments
    clip       the norm at which gradients are clipped, beside an optimizer of torch; 0: they are not
    device     "cpu", or "cuda" for an NVIDIA GPU. The module stays on the CPU, and its parameters are copied
    check      whether the first step is compared with eager, once: that takes the memory of a step of torch's in FP64
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
        if trainer._running:
            trainer._trainer.update(0.0)
            trainer._statistics_into_module()
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
                 device="cpu", threads=None, accumulate=1, **options):
        began = time.monotonic()
        self.model, self._loss, self.device = model, loss, str(device)
        self._place = place_of(device, threads)
        if "batch" in options:
            raise _native.Error("the example says how many rows a step takes: leave batch out")
        if not isinstance(model, torch.nn.Module):
            raise _native.Error(f"a torch.nn.Module is trained, got {type(model).__name__}")
        self.optimizer = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        if self.optimizer:
            optimizer, left = optimizers.of_torch(optimizer, model, clip)
            options = dict(options, frozen=list(options.get("frozen", [])) + left) if left else options
        elif clip:
            raise _native.Error("clip goes with an optimizer of torch: write mantissa.adamw(clip=1.0)")
        if optimizer is not None and not isinstance(optimizer, _native.Optimizer):
            raise _native.Error("optimizer is mantissa.adamw(...), sgd(...) or muon(...), or torch.optim's AdamW, Adam or "
                                f"SGD, got {type(optimizer).__name__}; mantissa.torch.gradients goes with any of torch")
        if hasattr(model, "_orig_mod"):
            raise _native.Error("the module is one of torch.compile; give the one it was made of")
        for name, tensor in _tensors_of(model):
            if tensor.device.type != "cpu":
                raise _native.Error(f"{name} of the module is on {tensor.device}; call model.cpu() first: device=\"cuda\" "
                                    "says where it is trained")
        _refuse_shared_memory(model)
        if not isinstance(example, (tuple, list, dict)):
            raise _native.Error("example is a batch, a tuple as (x, y) or a dictionary, got "
                                f"{type(example).__name__}")
        values, self._names = capture.flat(example)
        for value in values:
            if not isinstance(value, torch.Tensor):
                raise _native.Error(f"an example is of tensors, got {type(value).__name__}")
        if not values:
            raise _native.Error("the example has no tensor")
        self._split = len(values) if self._names else (len(values) - 1 if inputs is None else inputs)
        if isinstance(loss, type) or not (loss is None or callable(loss)):
            raise _native.Error("loss is a function of output and target, as F.cross_entropy or nn.CrossEntropyLoss(), got "
                                + (f"the class {loss.__name__}: write {loss.__name__}()" if isinstance(loss, type) else
                                   repr(loss)))
        if loss is None and not self._names:
            raise _native.Error("loss=None is for modules that give it themselves: make the example a dictionary")
        self._example = [value.detach().cpu() for value in values]
        if _is_half(model):
            self._example = [value.float() if value.dtype in _HALF else value for value in self._example]
        options_of(accumulate=accumulate, policy=policy, **options)  # before the module is exported
        self._batch, rest = divmod(values[0].shape[0], accumulate or 1) if values[0].dim() else (1, 0)
        if rest:
            raise _native.Error(f"{values[0].shape[0]} examples are no {accumulate} micro-batches of one size")
        self._accumulate = accumulate
        self._rows = values[0].shape[0] if values[0].dim() else 1
        self._is_whole = [value.dim() == 0 or value.shape[0] != self._rows for value in values]
        self._programs, self._running, self._told = {}, (), False
        self._watch = watch.Watch(model, loss, {id(each) for of in (model, loss) for _, each in _tensors_of(of)})
        captured = self._captured(self._batch, "train")
        self.program = captured.program
        self._weights = self._known = Weights(self.program).by_name
        self._values = self._value  # one object: what the model is given is borrowed
        self._running = {name for name, (weight, _) in self._weights.items() if weight.running}
        self._refuse_all(captured)
        if (accumulate or 1) > 1 and self.program.updates:
            changed = next(weight.name for weight in self.program.weights if weight.value in self.program.updates)
            raise _native.Error(f"forward changes the buffer {changed}, so each micro-batch would begin with what the one "
                                "before it left: train without accumulate, or change it outside of forward")
        self.capture_seconds = time.monotonic() - began
        read = {value for node in self.program.used([self.program.loss]) for value in refs(node.arguments)}
        frozen = [name for name, (weight, _) in self._weights.items()
                  if weight.value in read and not weight.trained and not weight.running]
        self._native_model = self._model_of(False)
        self._options = dict(options, batch=self._batch, policy=policy, accumulate=accumulate, optimizer=optimizer)
        self._without_gradient = frozen
        if frozen:
            given = options.get("frozen", [])
            self._options["frozen"] = frozen + (given.split(",") if isinstance(given, str) else list(given))
        self.distance = self._checked() if check else None  # before there is memory for steps
        began = time.monotonic()
        self._trainer = _native.Trainer(self._native_model, options_of(**self._options), *self._place)
        kept = set(self._trainer.states)  # what the loss depends on: all else stays as it is
        self._weights = {name: each for name, each in self._weights.items() if name in kept}
        self.plan_seconds = time.monotonic() - began
        self._counts = {name: int(buffer) for name, buffer in model.named_buffers()
                        if name.endswith("num_batches_tracked")}
        shared = {id(tensor) for _, tensor in _tensors_of(model)}
        self._loss_own = {name for name, tensor in _tensors_of(loss) if id(tensor) not in shared}
        self._seen, self._required = {}, {name: p.requires_grad for name, p in model.named_parameters()}
        self._constants = {name: _digest(tensor) for name, tensor in self._watched() if name not in self._weights}
        self._views = {}
        self.copied = self._reasons_to_copy(views)
        self._predicted_shapes = {}  # by the number of examples
        for name in self._weights:  # states begin with the module's own values
            self._make_view(name)
        self._remember()
        if self.optimizer and "adamw.step" in self._trainer.states and self.optimizer.state:
            self.from_optimizer(self.optimizer)
        _native.give_back_memory()

    def _reasons_to_copy(self, views):
        """Weights that are no views of what is trained, and why, by name."""
        tensors = {id(tensor): tensor for _, tensor in _tensors_of(self.model)}
        owners = collections.Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())
        whole = "" if views else "views=False"
        if self.device != "cpu":
            whole = f"it is trained on {self.device}"
        reasons = {name: whole or _no_view(self._tensor(name, weight), owners)
                   for name, (weight, _) in self._weights.items()}
        return {name: reason for name, reason in reasons.items() if reason}

    def load(self):
        """Takes parameters and running statistics over from the module, as they were written there."""
        self._refuse_changed(are_weights_taken=True)
        for name, (weight, order) in self._weights.items():
            tensor = self._tensor(name, weight)
            if self._is_view(name, tensor):
                continue
            self._trainer.write_state(name, self._value(name).tobytes())
            self._make_view(name)
        self._trainer.note_write()
        self._remember()

    def _make_view(self, name):
        """The module's tensor is what is trained, where it can be."""
        if name not in self.copied:
            weight, order = self._weights[name]
            stored = self._trainer.view_of_state(name)
            self._tensor(name, weight).data = torch.from_numpy(from_stored(stored, order))
            self._views[name] = stored.reshape(-1)

    def _value(self, name):
        """A weight of the module as it is stored."""
        weight, order = self._known[name]
        return to_stored(self._tensor(name, weight).detach().to(torch.float32).numpy(), order)

    def step(self, *batch, lr=None):
        """One step on a batch, at the rate of an optimizer of torch where none is given. Returns loss, gradient_norm,
        applied, seconds and metrics."""
        return self(*batch, lr=lr)

    def _rate_of(self, lr):
        if lr is None and self.optimizer is None:
            raise _native.Error("a step takes its rate, as in step(x, y, lr=1e-3), or that of an optimizer of torch")
        return optimizers.rate_of_torch(self.optimizer) if lr is None else rate_of(lr)

    def __call__(self, *batch, lr=None):
        self._refuse_changed(with_modes=True)
        arrays, lr = self._step_arrays(batch), self._rate_of(lr)
        try:
            return self._trainer.step(arrays, lr)
        finally:  # Ctrl-C comes when the step has been made
            self._remember_step()

    def _remember_step(self):
        self._remember_views()
        if self.optimizer and not self._told:  # a schedule asks once whether there was a step: this one does nothing
            self._told = all(p.grad is None for group in self.optimizer.param_groups for p in group["params"])
            if self._told:
                self.optimizer.step()

    def train_on(self, batches, *, lr=None):
        """A step on each batch of a DataLoader, say: yields their results, and reads the next batch while a step runs.

        lr is a rate, or a function that gives it for the count of steps before; None: that of an optimizer of torch.
        """
        lr = lr if lr is not None else lambda steps: self._rate_of(None)

        def arrays():
            for batch in batches:
                if not self._views:  # while a step runs, which changes no tensor of the module
                    self._refuse_changed(with_modes=True)
                yield self._step_arrays(tuple_of(batch))

        if self._views:
            self._refuse_changed(with_modes=True)
        results = train_on(self._trainer, arrays(), lr)
        while True:
            try:
                result = next(results, None)
            finally:  # a step was made while the loader failed
                self._remember_step()
            if result is None:
                return
            yield result
            if self._views:
                self._refuse_changed(with_modes=True)

    def evaluate(self, *batch):
        """The loss of any number of examples, with the module in evaluation."""
        self._refuse_changed()
        if self._views:
            self._trainer.note_write()  # a write through .data leaves no trace
        return self._trainer.evaluate(self._arrays(batch)).loss

    def predict(self, *batch):
        """The module's output for any number of examples, with the module in evaluation: a float32 tensor."""
        self._refuse_changed()
        batch = arrays_of(batch)
        if not self._names and len(batch) > self._split:
            raise _native.Error(f"predict takes the module's own {self._split} of a batch, got {len(batch)}: targets go to "
                                "evaluate")
        arrays = self._arrays(batch)
        made = self._trainer.predict(arrays)
        shapes = self._predicted_shapes
        shape = shapes.get(self._rows_of(arrays)) or shapes[self._batch]
        return torch.from_numpy(made).reshape((-1,) + tuple(shape[1:]))

    @contextlib.contextmanager
    def averaged(self):
        """For `with`: meanwhile weights and running statistics are their averages (ema_decay), in the module too where
        it has views, so what evaluates, predicts, saves and gives back has these. No step is made."""
        self._refuse_changed()
        try:
            with averaged(self._trainer):
                self._remember_views()
                yield self
        finally:
            self._remember_views()

    def state_dict(self):
        """The module's state_dict with what was learned, copied: torch's own names and layouts."""
        return self._learned(dict(self.model.state_dict()))

    def _learned(self, result):
        first = capture.names_of(self.model)
        steps = self._trainer.steps * self._accumulate
        for key, before in list(result.items()):
            name = first.get(key, key)
            if name in self._weights:
                result[key] = torch.from_numpy(self._array(name)).to(before.dtype)
            elif key in self._counts and key.removesuffix("num_batches_tracked") + "running_mean" in self._weights:
                result[key] = torch.tensor(self._counts[key] + steps, dtype=before.dtype)
        return result

    def into(self, model=None):
        """Copies what was learned into the module's own tensors, or another module's of the same kind."""
        if model is not None and model is not self.model:
            model.load_state_dict(self.state_dict())
            return model
        first = capture.names_of(self.model)
        views = {name for name in self._views if self._is_view(name, self._tensor(name, self._weights[name][0]))}
        others = {key: value for key, value in self.model.state_dict().items() if first.get(key, key) not in views}
        self.model.load_state_dict(self._learned(others), strict=False)
        self._trainer.note_write()
        self._remember()
        if self.optimizer and "adamw.step" in self._trainer.states:
            self.into_optimizer(self.optimizer)
        return self.model

    def into_optimizer(self, optimizer):
        """Gives AdamW's moments and count of steps to a torch.optim.AdamW of the module's parameters."""
        optimizers.into_optimizer(self, optimizer)

    def from_optimizer(self, optimizer):
        """Takes them over from one: the next step goes on where it was."""
        optimizers.from_optimizer(self, optimizer)

    def _statistics_into_module(self):
        """Running statistics alone, and one more batch counted."""
        with torch.no_grad():
            for name in self._running - set(self._views):
                self.model.get_buffer(name).copy_(torch.from_numpy(self._array(name)))
            for name in self._counts:
                self.model.get_buffer(name).add_(self._accumulate)

    def save(self, directory):
        """Saves the run, to be resumed to the same bits."""
        self._refuse_changed()
        self._trainer.save(directory)

    def resume(self, directory):
        """Goes on where a run was saved."""
        said = self._trainer.resume(directory)
        for name in self._views:  # states lie elsewhere now
            self._make_view(name)
        self._remember()
        return said

    def gradients(self, *batch):
        """The loss of a batch and the gradient of each parameter, in torch's own layouts; nothing is updated."""
        self._refuse_changed(with_modes=True)
        loss, stored = self._trainer.gradients(self._step_arrays(batch))
        return loss, {name: torch.from_numpy(np.ascontiguousarray(from_stored(array, self._weights[name][1])))
                      for name, array in stored.items()}

    @property
    def steps(self):
        """Steps that were made."""
        return self._trainer.steps

    @property
    def capture(self):
        """What was captured, in words."""
        nodes = len(self.program.used([self.program.loss]))
        return (f"{self.program.name}: {nodes} operations, {self.program.folded} computed once"
                + (f"; {self.distance}" if self.distance else "")
                + (f"; {len(self.copied)} of {len(self._weights)} weights are copied" if self.copied else ""))

    @property
    def native_model(self):
        """The model as mantissa's reports have it, which starts from the module's own weights."""
        return self._native_model

    @property
    def options(self):
        """Batch, policy, optimizer and all else that the trainer was made with."""
        return dict(self._options)

    def _tensor(self, name, weight):
        return self.model.get_buffer(name) if weight.running else self.model.get_parameter(name)

    def _array(self, name, state=None):
        """A weight, or a state that lies as it does, as torch has it."""
        weight, order = self._weights[name]
        shape = tuple(self.program.types[weight.value][1])
        stored = [0] * len(shape)
        for axis, extent in enumerate(shape):
            stored[order[axis]] = extent
        array = np.frombuffer(self._trainer.read_state(state or name), np.float32).reshape(stored)
        return np.array(from_stored(array, order), order="C")

    def _arrays(self, batch):
        if len(batch) == 1 and isinstance(batch[0], dict):
            missing = [name for name in self._names or () if name not in batch[0]]
            if missing or not self._names:
                raise _native.Error(f"the batch has no {missing[0]!r}, and the example has" if missing else
                                    "the batch is a dictionary, and the example is none")
            batch = [batch[0][name] for name in self._names]
        arrays = []
        for index, value in enumerate(arrays_of(batch)):
            value = torch.as_tensor(value).detach().cpu()
            meant = self._example[index].dtype if index < len(self._example) else value.dtype
            if value.dtype.is_floating_point and not meant.is_floating_point:
                raise _native.Error(f"{self._name_of(index)} is {meant} in the example, got {value.dtype}")
            if value.dtype == torch.bool:
                value = value.to(torch.int32)
            arrays.append(value.contiguous())
        return tuple(arrays)

    def _name_of(self, index):
        return self._names[index] if self._names else f"number {index} of a batch"

    def _step_arrays(self, batch):
        """The arrays of a step, which takes as many examples as the example has."""
        arrays = self._arrays(batch)
        for index, (value, whole) in enumerate(zip(arrays, self._is_whole)):
            if not whole and (value.dim() == 0 or value.shape[0] != self._rows):
                rows = value.shape[0] if value.dim() else "none"
                raise _native.Error(f"{self._name_of(index)} has {rows} rows, and a step takes {self._rows}, as the "
                                    "example has: a DataLoader leaves a short last batch out by drop_last=True; "
                                    "evaluate and predict take any number")
        return arrays

    def _outputs_take(self):
        return len(self._example) if self._names else self._split

    # Programs and the model that records them.

    def _captured(self, rows, purpose):
        """The program for so many examples. A trace with another number of them is captured when it is asked for."""
        if (rows, purpose) not in self._programs:
            values = [value if whole else _of_rows(value, rows)
                      for value, whole in zip(self._example, self._is_whole)]
            name = type(self.model).__name__
            model, loss = _in_float(self.model, self._loss)
            with export.ONE_AT_A_TIME, export.attributes_kept(model, loss):
                if purpose == "predict":
                    captured = capture.capture_output(model, values[:self._outputs_take()], self._names, name=name,
                                                      running=self._running)
                else:
                    captured = capture.capture(model, loss, values, self._split, self._names,
                                               training=purpose == "train", name=name, running=self._running)
                self._watch.forward_has_run()
            self._programs[rows, purpose] = captured
        return self._programs[rows, purpose]

    def _rows_of(self, tensors):
        at = self._is_whole.index(False) if False in self._is_whole else None
        return self._batch if at is None else tensors[at].shape[0]

    def _recorded(self, tensors, purpose, is_still):
        captured = self._captured(self._rows_of(tensors), purpose)
        program = captured.program
        root = program.output if purpose == "predict" else program.loss
        used = {value for node in program.used([root]) for value in refs(node.arguments)}
        missing = [weight.name for weight in program.weights
                   if weight.value in used and weight.name not in self._weights]
        if missing:
            raise _native.Error(f"{missing[0]} is a weight in evaluation and none in training")
        given = [tensor.cast("bool") if program.types[value][0] == "bool" else tensor
                 for value, tensor in zip(program.inputs, tensors)]
        builder = Builder(program, given, values=self._values, is_training=purpose == "train", is_still=is_still,
                          module=type(self.model).__name__)
        builder.refusals += captured.refusals
        if root < 0:
            raise _native.Error("the module's output is no tensor to predict")
        made = builder.build([root])[0]
        if purpose == "predict":
            self._predicted_shapes[self._rows_of(tensors)] = made.shape
        return layout.plain(made)

    def _model_of(self, is_still):
        def loss(*tensors):
            if is_still or _native.operations.is_training():
                return self._recorded(tensors, "train", is_still)
            return self._recorded(tensors, "evaluate", False)

        def output(*tensors):
            return self._recorded(tensors, "predict", False)

        specs = []
        for index, (value, whole) in enumerate(zip(self._example, self._is_whole)):
            dtype = _INPUTS.get(self.program.types[self.program.inputs[index]][0])
            if dtype is None:
                raise _native.Error(f"{self._name_of(index)} is {value.dtype}; give float32, int64, int32, uint8 or bool"
                                    + _advice_of_type(self.model))
            specs.append((f"input{index}" if not self._names else self._names[index], dtype,
                          list(value.shape if whole else value.shape[1:]), whole))
        return _native.Model(type(self.model).__name__, specs, loss, output, self._outputs_take())

    def _refuse_all(self, captured):
        """Everything that cannot be trained, at once, before anything is planned."""
        if self.program.loss < 0:
            raise CaptureError(type(self.model).__name__, captured.refusals) if captured.refusals else _native.Error(
                "the loss does not depend on the module")
        if tuple(self.program.types[self.program.loss][1]) != ():
            raise _native.Error(f"the loss must be one number, got {list(self.program.types[self.program.loss][1])}; "
                                "take the mean")

    # Changes from outside.

    def _remember(self):
        self._seen.update((name, self._trace(name, tensor)) for name, tensor in self._watched() if name in self._weights)

    def _remember_views(self):
        """What a step wrote is no change from outside."""
        for name, view in self._views.items():
            if name in self._seen and self._is_view(name, self._tensor(name, self._weights[name][0])):
                self._seen[name] = self._seen[name][:-1] + (_some(view),)

    def _is_view(self, name, tensor):
        """Whether the module's tensor still is what is trained: another trainer may have taken it over."""
        return name in self._views and tensor.data_ptr() == self._views[name].ctypes.data

    def _trace(self, name, tensor):
        """What tells that a tensor was written: its count of writes, and some of its numbers."""
        if self._is_view(name, tensor):
            numbers = self._views[name]
        else:
            numbers = tensor.detach().float().numpy()
            numbers = (to_stored(numbers, self._weights[name][1]) if name in self._views else numbers).reshape(-1)
        return tensor._version, _some(numbers)

    def _watched(self):
        """What the program took over from the module: parameters, and buffers that are its constants."""
        for name, parameter in self.model.named_parameters():
            if name in self._weights:
                yield name, parameter
        for name, buffer in self.model.named_buffers():
            if name not in self._running and name not in self._counts:
                yield name, buffer
        for name, constant in _tensors_of(self._loss):
            if name in self._loss_own:
                yield "loss." + name, constant

    def _refuse_changed(self, are_weights_taken=False, with_modes=False):
        """Whatever reads weights begins here: the module's may be others, and BF16 copies of them out of date.

        with_modes: of what trains, which was traced in the modes that the modules had.
        """
        if name := self._watch.changed(with_modes):
            raise _native.Error(f"{name} was changed since the trainer was made, and a step is the one that was traced then: "
                                + ("set the mode that it had, by train() or eval(), or make another trainer"
                                   if name.endswith(watch.MODE) else "set it as it was, or make another trainer"))
        for name, tensor in self._watched():
            instead = "make another trainer"
            if not are_weights_taken and name in self._views and not self._is_view(name, tensor):
                raise _native.Error(f"{name} of the module lies elsewhere than what this trainer trains: another trainer took "
                                    "it over, or it was given other memory; load() takes it back as it is, into(model) "
                                    "writes there what was learned here")
            now = self._trace(name, tensor)
            if name in self._constants:
                if now == self._seen.get(name):
                    continue
                if _digest(tensor) == self._constants[name]:
                    self._seen[name] = now
                    continue
            elif tensor.requires_grad == self._required[name]:
                if are_weights_taken or now == self._seen[name]:
                    continue
                instead = "load() takes it over again"
                if not self._is_view(name, tensor):
                    instead += ", into(model) gives it back"
            raise _native.Error(f"{name} of the module was changed from outside since the trainer took it over; {instead}")

    def _checked(self):
        still = _native.Trainer(self._model_of(True), options_of(**dict(
            self._options, policy="fp32", optimizer=_native.sgd(), accumulate=1, frozen=self._without_gradient)),
            *self._place)
        values = [value if whole else value[:self._batch] for value, whole in zip(self._example, self._is_whole)]
        loss, stored = still.gradients(self._arrays(values))
        del still  # what it holds is as large as a step
        gradients = {name: from_stored(array, self._weights[name][1]) for name, array in stored.items()}
        try:
            model, of = _in_float(self.model, self._loss)
            with export.attributes_kept(model, of):
                return check.check((loss, gradients), model, of, values, self._split, self._names)
        except RuntimeError as error:
            raise _native.Error(f"the module itself fails on the example: {error}{_advice_of_type(self.model)}") from error
        finally:
            _native.give_back_memory()


def _advice_of_type(model):
    """What to do about a module whose weights are in a format that a policy would choose."""
    other = next((p.dtype for p in model.parameters() if p.dtype != torch.float32), None)
    return f". The module's weights are {other}: call model.float(), and let policy= choose the format" if other else ""


def _is_half(model):
    return any(tensor.dtype in _HALF for _, tensor in _tensors_of(model))


def _in_float(model, loss):
    """Module and loss as they are trained, from copies in FP32 where they are in 16 bits."""
    if not _is_half(model):
        return model, loss
    return tuple(each.float() if isinstance(each, torch.nn.Module) else each for each in copy.deepcopy((model, loss)))


def _tensors_of(module):
    """Parameters and buffers by name; none of a loss that is a function."""
    return itertools.chain(module.named_parameters(), module.named_buffers()) if isinstance(module, torch.nn.Module) else ()


def _refuse_shared_memory(model):
    """Two parameters in one memory are one to torch, whose optimizer writes both steps there."""
    last = None
    places = {id(tensor): (tensor.data_ptr(), name, tensor) for name, tensor in _tensors_of(model)
              if not torch.nn.parameter.is_lazy(tensor) and tensor.numel() > 0}
    for begin, name, tensor in sorted(places.values(), key=lambda place: place[:2]):
        if last and begin < last[0] and (tensor.requires_grad or last[2].requires_grad):
            raise _native.Error(f"{last[1]} and {name} of the module lie in one memory: make them one parameter, or give "
                                "one a copy of its own, as by p.data = p.data.clone()")
        end = begin + (sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride())) + 1) * tensor.element_size()
        if not last or end > last[0]:
            last = (end, name, tensor)


def _of_rows(value, rows):
    """The value with so many rows, its own over again."""
    if value.shape[0] >= rows:
        return value[:rows]
    return value[torch.arange(rows) % value.shape[0]]


def _digest(tensor):
    return hashlib.blake2b(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()).digest()


def _some(numbers):
    """Some of the numbers, to the bit."""
    return numbers[:: max(1, numbers.size // 3)].tobytes()


def _no_view(tensor, owners):
    """Why a parameter cannot be a view of what is trained, or nothing. owners: how many tensors lie in a storage."""
    if tensor.dtype != torch.float32:
        return f"it is {str(tensor.dtype).removeprefix('torch.')}"
    if type(tensor) not in (torch.nn.Parameter, torch.Tensor):
        return f"it is a {type(tensor).__name__}"
    storage = tensor.untyped_storage()
    if owners[storage.data_ptr()] > 1 or storage.nbytes() != tensor.numel() * 4:
        return "it shares its memory with another tensor"
    return ""
