"""The weights that a trainer trains: whose memory they are, how they lie, and whether somebody else wrote there.

Each is a view of what is trained, where it can be: `copied` names the others, and why. What the trace read besides is
watched by watch.py.
"""
import collections
import hashlib
import itertools

import numpy as np
import torch

from .. import _native
from ..rows import from_stored, to_stored
from ..rows.build import Weights
from . import capture, watch


class Parameters:
    """Weights of a module, by name: the program's, in which memory they lie, and what they were when last seen."""

    def __init__(self, model, loss, program, watching):
        """The weights of the program, which `hold` gives their memory. watching: a Watch of module and loss."""
        self.model, self._loss, self._program = model, loss, program
        self.all = self.held = Weights(program).by_name  # name -> (weight, order)
        self.running = {name for name, (weight, _) in self.all.items() if weight.running}
        self.views, self.copied = {}, {}
        self._seen, self._required = {}, {name: p.requires_grad for name, p in model.named_parameters()}
        self._counts = {name: int(buffer) for name, buffer in model.named_buffers()
                        if name.endswith("num_batches_tracked")}
        shared = {id(tensor) for _, tensor in tensors_of(model)}
        self._loss_own = {name for name, tensor in tensors_of(loss) if id(tensor) not in shared}
        # One object: what the native model is given is borrowed.
        self.starting = self._value
        self._watching = watching

    def hold(self, trainer, why_copied):
        """Gives the states of a native trainer the module's values, and the module views of them. why_copied: a reason
        that holds for all, or nothing."""
        self._trainer = trainer
        kept = set(trainer.states)  # what the loss depends on: all else stays as it is
        self.held = {name: each for name, each in self.all.items() if name in kept}
        self._constants = {name: _digest(tensor) for name, tensor in self._watched() if name not in self.held}
        owners = collections.Counter(tensor.untyped_storage().data_ptr() for tensor in
                                     {id(tensor): tensor for _, tensor in tensors_of(self.model)}.values())
        reasons = {name: why_copied or _no_view(self.tensor(name), owners) for name in self.held}
        self.copied = {name: reason for name, reason in reasons.items() if reason}
        for name in self.held:  # states begin with the module's own values
            self._make_view(name)
        self.remember()

    def load(self):
        """Takes the module's values over, as they were written there."""
        self.refuse_changed(are_weights_taken=True)
        for name in self.held:
            if not self._is_view(name, self.tensor(name)):
                self._trainer.write_state(name, self._value(name).tobytes())
                self._make_view(name)
        self._trainer.note_write()
        self.remember()

    def view_again(self):
        """After the states came to lie elsewhere."""
        for name in self.views:
            self._make_view(name)
        self.remember()

    def _make_view(self, name):
        """The module's tensor is what is trained, where it can be."""
        if name not in self.copied:
            stored = self._trainer.view_of_state(name)
            self.tensor(name).data = torch.from_numpy(from_stored(stored, self.held[name][1]))
            self.views[name] = stored.reshape(-1)

    def tensor(self, name):
        weight = self.all[name][0]
        return self.model.get_buffer(name) if weight.running else self.model.get_parameter(name)

    def _value(self, name):
        """A weight of the module as it is stored."""
        return to_stored(self.tensor(name).detach().to(torch.float32).numpy(), self.all[name][1])

    def stored(self, name, array):
        """An array of the axes of torch, as bytes of a state that lies as the weight does."""
        return to_stored(array, self.held[name][1]).tobytes()

    def as_torch(self, name, stored):
        """The other way."""
        return from_stored(stored, self.held[name][1])

    def array(self, name, state=None):
        """What was learned of a weight, or a state that lies as it does, as torch has it."""
        weight, order = self.held[name]
        extents = tuple(self._program.types[weight.value][1])
        stored = [0] * len(extents)
        for axis, extent in enumerate(extents):
            stored[order[axis]] = extent
        array = np.frombuffer(self._trainer.read_state(state or name), np.float32).reshape(stored)
        return np.array(from_stored(array, order), order="C")

    # Back to the module.

    def learned(self, result, batches):
        """A state_dict with what was learned in it. batches: how many batch norms have seen."""
        first = capture.names_of(self.model)
        for key, before in list(result.items()):
            name = first.get(key, key)
            if name in self.held:
                result[key] = torch.from_numpy(self.array(name)).to(before.dtype)
            elif key in self._counts and key.removesuffix("num_batches_tracked") + "running_mean" in self.held:
                result[key] = torch.tensor(self._counts[key] + batches, dtype=before.dtype)
        return result

    def into_module(self, batches):
        """Copies what was learned into the module's own tensors."""
        first = capture.names_of(self.model)
        views = {name for name in self.views if self._is_view(name, self.tensor(name))}
        others = {key: value for key, value in self.model.state_dict().items() if first.get(key, key) not in views}
        self.model.load_state_dict(self.learned(others, batches), strict=False)
        self._trainer.note_write()
        self.remember()

    def statistics_into_module(self, batches):
        """Running statistics alone, and so many more batches counted."""
        with torch.no_grad():
            for name in self.running - set(self.views):
                self.model.get_buffer(name).copy_(torch.from_numpy(self.array(name)))
            for name in self._counts:
                self.model.get_buffer(name).add_(batches)

    # Changes from outside.

    def remember(self):
        """The module is as it should be."""
        self._seen.update((name, self._trace(name, tensor)) for name, tensor in self._watched() if name in self.held)

    def remember_views(self):
        """What a step wrote is no change from outside."""
        for name, view in self.views.items():
            if name in self._seen and self._is_view(name, self.tensor(name)):
                self._seen[name] = self._seen[name][:-1] + (_some(view),)

    def _is_view(self, name, tensor):
        """Whether the module's tensor still is what is trained: another trainer may have taken it over."""
        return name in self.views and tensor.data_ptr() == self.views[name].ctypes.data

    def _trace(self, name, tensor):
        """What tells that a tensor was written: its count of writes, and some of its numbers."""
        if self._is_view(name, tensor):
            numbers = self.views[name]
        else:
            numbers = tensor.detach().float().numpy()
            numbers = (to_stored(numbers, self.held[name][1]) if name in self.views else numbers).reshape(-1)
        return tensor._version, _some(numbers)

    def _watched(self):
        """What the program took over from the module: parameters, and buffers that are its constants."""
        for name, parameter in self.model.named_parameters():
            if name in self.held:
                yield name, parameter
        for name, buffer in self.model.named_buffers():
            if name not in self.running and name not in self._counts:
                yield name, buffer
        for name, constant in tensors_of(self._loss):
            if name in self._loss_own:
                yield "loss." + name, constant

    def refuse_changed(self, are_weights_taken=False, with_modes=False):
        """Whatever reads weights begins here: the module's may be others, and BF16 copies of them out of date.

        with_modes: of what trains, which was traced in the modes that the modules had.
        """
        if name := self._watching.changed(with_modes):
            raise _native.Error(f"{name} was changed since the trainer was made, and a step is the one that was traced then: "
                                + ("set the mode that it had, by train() or eval(), or make another trainer"
                                   if name.endswith(watch.MODE) else "set it as it was, or make another trainer"))
        for name, tensor in self._watched():
            instead = "make another trainer"
            if not are_weights_taken and name in self.views and not self._is_view(name, tensor):
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


def tensors_of(module):
    """Parameters and buffers by name; none of a loss that is a function."""
    return itertools.chain(module.named_parameters(), module.named_buffers()) if isinstance(module, torch.nn.Module) else ()


def refuse_unfit(model):
    """Weights that cannot be trained from here: elsewhere than on the CPU, or several in one memory."""
    for name, tensor in tensors_of(model):
        if tensor.device.type != "cpu":
            raise _native.Error(f"{name} of the module is on {tensor.device}; call model.cpu() first: device=\"cuda\" "
                                "says where it is trained")
    last = None  # two parameters in one memory are one to torch, whose optimizer writes both steps there
    places = {id(tensor): (tensor.data_ptr(), name, tensor) for name, tensor in tensors_of(model)
              if not torch.nn.parameter.is_lazy(tensor) and tensor.numel() > 0}
    for begin, name, tensor in sorted(places.values(), key=lambda place: place[:2]):
        if last and begin < last[0] and (tensor.requires_grad or last[2].requires_grad):
            raise _native.Error(f"{last[1]} and {name} of the module lie in one memory: make them one parameter, or give "
                                "one a copy of its own, as by p.data = p.data.clone()")
        end = begin + (sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride())) + 1) * tensor.element_size()
        if not last or end > last[0]:
            last = (end, name, tensor)


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
