"""Changes in between: every module of the table trained 30 steps, with something of it changed before each.

    python python/tests/torch_changes.py [--only WORDS] [--steps 30]

A twin of the module is trained by PyTorch, and gets each change, too: modes, requires_grad, attributes, buffers, weights,
sizes of a batch, closures, hooks, layers, exceptions. A change must be followed or refused. Followed: the loss of each
step is PyTorch's within 2e-5 of the first, the same weights move, all together by what PyTorch's do within a tenth, and
the loss in evaluation at the end is PyTorch's, too. Refused: the message names what was changed. Then the change is taken
back on both sides, and the next step must go on.

Each step begins at equal weights, since rounding decides of rectifiers near zero, and AdamW makes much of it: two runs
that are both right part. Norms over few numbers part at once: losses and moves may be 8 times as far apart as PyTorch's are
from its own in FP64, of a third module whose weights are up to 2^-21 of theirs away; moves never by more than half.
"""
import argparse
import copy
import re
import sys
import warnings

import numpy as np
import torch

import mantissa
import mantissa.torch
from torch_modules import cases

NEAR, RATE, DECAY = 2e-5, 1e-4, 0.01  # NEAR: as of a first step, in check.py
MOVED, MOVED_MOST = 0.1, 0.5  # of the move: made at another rate; made twice, or not at all
TIMES_OF_EAGER = 8  # as in torch_table.py


class Silent(AssertionError):
    """A change was neither followed nor refused by name."""


class Side:
    """A module with its loss, and the batch of the next step."""

    def __init__(self, model, loss, example, options):
        self.model, self.options, self.names = model, options, list(example) if isinstance(example, dict) else None
        self.values = list(example.values()) if self.names else list(example)
        self.factor = [1.0]
        factor = self.factor
        if self.names:
            self.loss = lambda made: factor[0] * (made.loss if loss is None else loss(made))
        else:
            self.loss = lambda made, *targets: factor[0] * loss(made, *targets)
        self.split = None if self.names else options.get("inputs", len(self.values) - 1)

    def eager(self, values):
        kind = next(self.model.parameters()).dtype
        values = [each.to(kind) if each.is_floating_point() else each for each in values]
        torch.set_default_dtype(kind)  # of what forward makes itself
        try:
            if self.names:
                return self.loss(self.model(**dict(zip(self.names, values))))
            return self.loss(self.model(*values[:self.split]), *values[self.split:])
        finally:
            torch.set_default_dtype(torch.float32)

    def draws_numbers(self):
        """Whether the module draws numbers itself, so that its losses are others in each run."""
        losses = []
        for seed in range(2):
            torch.manual_seed(seed)
            with torch.no_grad():
                losses.append(float(copy.deepcopy(self).eager(self.values)))
        return losses[0] != losses[1]

    def part(self, rows):
        """So many rows of the batch."""
        whole = self.values[0].shape[0]
        return [value[:rows] if value.dim() and value.shape[0] == whole else value for value in self.values]


# Each change: of one side and a random number below 1, which both sides share. It gives what takes it back, and what a
# refusal names it by; None where the module has nothing of the kind.

def _one_of(found, draw):
    return found[int(draw * len(found))] if found else None


def _mode(side, draw):
    module = _one_of([each for each in side.model.modules()], draw)
    before = {each: each.training for each in module.modules()}
    module.eval()

    def back():
        for each, mode in before.items():
            each.training = mode
    return back, "training"


def _requires_grad(side, draw):
    name, parameter = _one_of([each for each in side.model.named_parameters() if each[1].requires_grad], draw)
    parameter.requires_grad_(False)
    return lambda: parameter.requires_grad_(True), name


def _attribute(side, draw):
    found = [(module, key) for module in side.model.modules() for key, value in vars(module).items()
             if type(value) is float or key in ("p", "eps", "scale")]
    if not found:
        return None
    module, key = _one_of(found, draw)
    before = getattr(module, key)
    setattr(module, key, 0.5 if before is None else before / 2 + 0.25)
    return lambda: setattr(module, key, before), key


def _buffer(side, draw):
    found = [each for each in side.model.named_buffers() if each[1].is_floating_point() and each[1].numel()]
    if not found:
        return None
    name, buffer = _one_of(found, draw)
    before = buffer.clone()
    buffer.mul_(1.5).add_(0.25)
    return lambda: buffer.copy_(before), name


def _weight(side, draw):
    name, parameter = _one_of(list(side.model.named_parameters()), draw)
    before = parameter.detach().clone()
    with torch.no_grad():
        parameter.mul_(1.25)

    def back():
        with torch.no_grad():
            parameter.copy_(before)
    return back, name


def _replaced(side, draw):
    name, parameter = _one_of(list(side.model.named_parameters()), draw)
    path, _, key = name.rpartition(".")
    owner = side.model.get_submodule(path)
    setattr(owner, key, torch.nn.Parameter(parameter.detach() * 1.5))
    return lambda: setattr(owner, key, parameter), f"{key}|_flat_weights"  # where an LSTM has it, too


def _closure(side, draw):
    side.factor[0] = 2.0

    def back():
        side.factor[0] = 1.0
    return back, "factor"


def _hook(side, draw):
    module = _one_of([each for each in side.model.modules()], draw)
    handle = module.register_forward_pre_hook(lambda module, given: tuple(
        each * 2 if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in given))
    return handle.remove, "parts"


def _layer(side, draw):
    module = _one_of([each for each in side.model.modules() if isinstance(each, torch.nn.Sequential)], draw)
    if module is None:
        return None
    module.append(torch.nn.Tanh())

    return lambda: delattr(module, str(len(module) - 1)), "parts"  # `del module[-1]` names all layers anew


CHANGES = {"mode": _mode, "requires_grad": _requires_grad, "attribute": _attribute, "buffer": _buffer, "weight": _weight,
           "replaced": _replaced, "closure": _closure, "hook": _hook, "layer": _layer}
KINDS = (*CHANGES, "rows", "exception", "wrong batch", "evaluate", "load")


def _weights_of(side):
    return {name: parameter.detach().clone() for name, parameter in side.model.named_parameters()}


def _far(moves, others):
    """The norm of the difference over that of all moves."""
    squares = [sum(float(each.double().square().sum()) for each in of) for of in (
        [moves[name] - each for name, each in others.items()], others.values())]
    return (squares[0] / max(squares[1], 1e-30)) ** 0.5


class Run:
    """A module and its twin, step by step."""

    def __init__(self, make):
        torch.manual_seed(0)
        model, loss, example, *options = make()
        options = options[0] if options else {}
        model.train()
        self.sides = [Side(each, loss, example, options)
                      for each in (model, copy.deepcopy(model), copy.deepcopy(model).double())]
        self.ours, self.theirs = self.sides[:2]
        adamw = mantissa.adamw(weight_decay=DECAY, beta2=0.999, decay_matrices_only=False)
        self.step = mantissa.torch.trainer(self.ours.model, self.ours.loss, example, optimizer=adamw, check=False, threads=1,
                                           **options)
        self.optimizers = [torch.optim.AdamW([p for p in side.model.parameters() if p.requires_grad], lr=RATE,
                                             weight_decay=DECAY) for side in self.sides[1:]]
        self.first, self.became = None, {}  # became: of each kind of change, what it was
        self.begin_equal(self.step.state_dict())

    def begin_equal(self, learned):
        """Weights of all sides are ours, and those in FP64 beside them."""
        for side, beside in zip(self.sides[1:], (0.0, 2**-20)):
            with torch.no_grad():
                for name, parameter in side.model.named_parameters():
                    parameter.copy_(learned[name] * (1 + (torch.rand(parameter.shape, dtype=parameter.dtype) - 0.5) * beside))

    def stepped(self, what, values, is_loader=False):
        """A step of both sides. Raises mantissa.Error where ours refuses, before the twin makes one; Silent where they part."""
        before = [_weights_of(side) for side in self.sides[1:]]
        made = next(self.step.train_on([tuple(values)], lr=RATE)) if is_loader else self.step(*values, lr=RATE)
        losses = []
        for side, optimizer in zip(self.sides[1:], self.optimizers):
            optimizer.zero_grad(set_to_none=True)
            loss = side.eager(values)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.first = self.first or abs(losses[0])
        self._near(what, made.loss, *losses)
        learned = self.step.state_dict()
        mine, other, exact = ({name: after[name] - each for name, each in weights.items()} for after, weights in zip(
            (learned, *map(_weights_of, self.sides[1:])), (before[0], *before)))
        alone = [name for name in other if bool(mine[name].any()) != bool(other[name].any())]
        if alone:
            raise Silent(f"{what}: {alone[0]} moved on one side alone")
        far, of_eager = _far(mine, other), _far(other, exact)
        if not far <= min(max(MOVED, TIMES_OF_EAGER * of_eager), MOVED_MOST):
            raise Silent(f"{what}: weights moved {far:.1e} away from PyTorch's move, {of_eager:.1e} in FP64")
        self.begin_equal(learned)

    def _near(self, what, mine, theirs, exact):
        if not abs(mine - theirs) <= max(NEAR * self.first, TIMES_OF_EAGER * abs(exact - theirs)):
            raise Silent(f"{what}: loss {mine:.7f}, PyTorch's {theirs:.7f}")

    def changed(self, kind, draw):
        """One change before a step."""
        if kind in CHANGES:
            backs = [CHANGES[kind](side, draw) for side in self.sides]
            if backs[0] is None:
                return
            try:
                self.stepped(f"{kind} ({backs[0][1]})", self.ours.values)
                self.became[kind] = "followed"
            except mantissa.Error as error:
                self.became[kind] = "refused"
                if not re.search(backs[0][1], str(error)):
                    raise Silent(f"{kind}: refused without the name {backs[0][1]}: {error}") from error
            for back, _ in backs:
                back()
            if kind in ("weight", "buffer", "replaced"):
                self.step.load()  # writes that are taken back are writes
        elif kind == "rows":
            try:
                self.stepped(kind, self.ours.part(max(1, self.ours.values[0].shape[0] - 1)))
                self.became[kind] = "followed"
            except mantissa.Error:
                self.became[kind] = "refused"
        elif kind == "exception":
            def failing():
                raise OSError("no such file")
                yield
            try:
                list(self.step.train_on(failing(), lr=RATE))
                raise Silent("an exception of a loader was lost")
            except OSError:
                self.became[kind] = "followed"
        elif kind == "wrong batch":
            try:
                self.step(*self.ours.values, self.ours.values[0], lr=RATE)
                raise Silent("a batch of more tensors than the example's was taken")
            except mantissa.Error:
                self.became[kind] = "refused"
        elif kind == "evaluate":
            self.evaluated()
            self.became[kind] = "followed"
        elif kind == "load":
            for side in self.sides:
                _weight(side, draw)
            self.step.load()
            self.became[kind] = "followed"
        self.stepped(f"after {kind}", self.ours.values, is_loader=draw < 0.5)

    def evaluated(self):
        """The loss in evaluation, of both."""
        losses = []
        for side in self.sides[1:]:
            modes = {each: each.training for each in side.model.modules()}
            side.model.eval()
            with torch.no_grad():
                losses.append(float(side.eager(side.values)))
            for each, mode in modes.items():
                each.training = mode
        self._near("evaluate", self.step.evaluate(*self.ours.values), *losses)


def swept(make, steps):
    """What became of each change, in words. Raises Silent."""
    run, random = Run(make), np.random.default_rng(0)
    if run.theirs.draws_numbers():
        return "draws numbers itself"
    run.stepped("the first step", run.ours.values)
    kinds = []
    for _ in range(steps):
        kinds = kinds or list(random.permutation(KINDS))
        run.changed(str(kinds.pop()), float(random.random()))
    run.evaluated()
    return "; ".join(f"{became}: " + ", ".join(kind for kind in KINDS if run.became.get(kind) == became)
                     for became in ("followed", "refused"))


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for name, make in cases().items():
        if not any(word in name for word in given.only.split(",")):
            continue
        try:
            words = "right   " + swept(make, given.steps)
        except mantissa.torch.CaptureError as error:
            words = f"refused {str(error).splitlines()[0]}"
        except Exception as error:
            wrong, words = wrong + 1, f"wrong   {type(error).__name__}: {str(error)[:300]}"
        print(f"{name:52} {words}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
