"""The first step beside the one that torch makes, with nothing random: the loss and each gradient.

What differs from FP32's eager step by more than rounding is compared with an eager step in FP64: it may be four times
as far from it as eager FP32 itself is, or 2e-5. One step of FP32 may be near by luck. So where that does not do, others
tell how far each number moves under rounding: steps of FP32 of which each operation's result is off by up to a last place,
and steps that decide otherwise what rounding decides (undecided.py). Distances are norms of differences over norms.
"""
import contextlib
import copy
import itertools

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .. import _native
from . import export, undecided
from .randoms import STILL

ROUNDING = 2e-5
COARSE = 1e-3  # where a module has no FP64: against eager FP32, and of gradients that are more than nothing
TIMES = 4
NOTHING = 1e-6  # of all gradients together: rounding alone
LOSS_TIMES = 8
JITTERS = 5  # steps whose roundings are drawn
LAST_PLACE = 2.0 ** -23  # of FP32, relative
TURNS = 5  # all of them, then halves of each operation's, which part two elements that cancel each other
# Where many elements move one number, another half of them may move it up to twice as far as five did, and here and
# there further: a tenth of the moves may be left unexplained.
TURN_TIMES, LEFT = 2, 0.1
# However far eager FP32 is itself: two of its steps that differ so much are no steps of one function.
MOST_OF_LOSS, MOST_OF_GRADIENT = 1e-3, 0.2


class DifferenceError(_native.Error):
    """The import does not compute what the module does. Names the parameter."""


class Distance:
    """How far the first step is from eager."""

    def __init__(self, loss, gradient, parameter, against):
        self.loss, self.gradient, self.parameter, self.against = loss, gradient, parameter, against

    def __str__(self):
        return (f"against eager {self.against}: loss {self.loss:.1e}, gradients at most {self.gradient:.1e}"
                + (f" ({self.parameter})" if self.parameter else ""))


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
        still = STILL.get(function._schema.name.split("::")[1])
        return still(function, args, kwargs) if still else function(*args, **kwargs)


def eager(model, loss, values, split, names, in_double=False, mode=None):
    """Loss and gradients by name, as torch computes them; the module is left as it was. `mode`: active meanwhile."""
    wrapped = export.WithLoss(model, loss, split, names)
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices=[]):
        # Its other kernels for the CPU lose the gradient where finite numbers hide all keys of a query.
        with Still(in_double), sdpa_kernel(SDPBackend.MATH):
            with mode or contextlib.nullcontext():
                result = wrapped.both(*values)[0]
            # Still, since a checkpoint runs forward once more.
            gradients = torch.autograd.grad(result, [p for _, p in trained], allow_unused=True)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    return float(result.detach()), {
        name: np.zeros(tuple(p.shape)) if g is None else g.detach().double().numpy()
        for (name, p), g in zip(trained, gradients)}


def loss_of(model, loss, values, split, names):
    """The loss alone, as `eager` computes it."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with torch.no_grad(), torch.random.fork_rng(devices=[]), Still(), sdpa_kernel(SDPBackend.MATH):
        result = float(export.WithLoss(model, loss, split, names).both(*values)[0])
        for buffer, before in buffers:
            buffer.copy_(before)
    return result


def output_of(model, loss, values, split, names):
    """What the module predicts in evaluation, with nothing random; None: nothing."""
    wrapped = export.Output(model, names)
    with torch.no_grad(), export.mode(wrapped, False), torch.random.fork_rng(devices=[]), Still():
        return wrapped(*(values if names else values[:split]))


def eager_double(model, loss, values, split, names, mode=None):
    """The same in FP64. Raises what torch raises where the module has none."""
    double, loss = copy.deepcopy((model, loss))
    for module in (double, loss):
        if isinstance(module, torch.nn.Module):
            module.double()
    wide = [v.double() if v.is_floating_point() else v for v in values]
    return eager(double, loss, wide, split, names, in_double=True, mode=mode)


def eager_turned(model, loss, values, split, names):
    """Steps in FP64 whose undecided rectifiers and pools decide the other way: all, then random halves."""
    single, double = undecided.Seen(), undecided.Seen()
    eager(model, loss, values, split, names, mode=single)
    eager_double(model, loss, values, split, names, mode=double)
    near = undecided.near(single.decisions, double.decisions, TIMES)
    del single, double
    for draw in range(TURNS if near else 0):
        yield eager_double(model, loss, values, split, names, undecided.Turned(near, draw))


class Jittered(torch.utils._python_dispatch.TorchDispatchMode):
    """While active, each number that an operation of FP32 makes is off by up to a last place, as in kernels that add up in
    another order."""

    def __init__(self, draw):
        super().__init__()
        self.random = np.random.default_rng(draw)  # numbers of torch are still here

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for each, of in zip(made if isinstance(made, (tuple, list)) else [made], function._schema.returns):
            if isinstance(each, torch.Tensor) and each.dtype is torch.float32 and not of.alias_info:
                off = self.random.uniform(1 - LAST_PLACE, 1 + LAST_PLACE, tuple(each.shape))
                each.mul_(torch.from_numpy(np.asarray(off, np.float32)))
        return made


def eager_jittered(model, loss, values, split, names):
    """Steps of FP32 with other roundings."""
    for draw in range(JITTERS):
        yield eager(model, loss, values, split, names, mode=Jittered(draw))


def relative(a, b, whole):
    """|a - b| over |b|; of what is nothing beside all gradients, as of a bias before a batch norm, over all of them."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    size = np.linalg.norm(b)
    return float(np.linalg.norm(a - b) / max(size if size > NOTHING * whole else whole, 1e-30))


def within(a, b, moves):
    """a, each number of it as much nearer to b as `moves`, but not beyond it."""
    away = np.asarray(a, np.float64) - b
    return b + np.sign(away) * np.maximum(np.abs(away) - moves, 0)


def _norm(gradients):
    return float(np.sqrt(sum(float(np.square(g, dtype=np.float64).sum()) for g in gradients.values())))


def compared(ours, theirs):
    """Distance of the loss and of each gradient: (number, by name)."""
    whole = _norm(theirs[1])
    loss = abs(ours[0] - theirs[0]) / max(abs(theirs[0]), 1e-12)
    return loss, {name: relative(ours[1].get(name, np.zeros_like(g)), g, whole) for name, g in theirs[1].items()}


def check(ours, model, loss, values, split, names):
    """The distance. Raises DifferenceError where it is more than the class of FP32 allows."""
    single = eager(model, loss, values, split, names)
    if not np.isfinite(single[0]):
        raise DifferenceError(f"the module's own first loss is {single[0]:.7g}, so there is nothing to compare with: look "
                              "for NaN, infinity and large numbers in its weights and in the example. check=False goes on.")
    again = loss_of(model, loss, values, split, names)
    if abs(again - single[0]) > COARSE * max(abs(single[0]), 1e-12):
        raise DifferenceError(f"the module's own loss of one batch is {single[0]:.7g}, and then {again:.7g}: forward keeps "
                              "something from one call to the next, which a step would have as it was. Give it as an "
                              "input of the batch. check=False goes on.")
    loss_distance, by_name = compared(ours, single)
    worst = max(by_name, key=by_name.get, default="")
    near = Distance(loss_distance, by_name.get(worst, 0.0), worst, "FP32")
    if near.loss <= ROUNDING and near.gradient <= ROUNDING:
        return near
    try:
        double = eager_double(model, loss, values, split, names)
    except Exception as error:
        whole = _norm(single[1])
        is_noise = {name: np.linalg.norm(g) <= COARSE * whole for name, g in single[1].items()}
        if near.loss <= COARSE and all(d <= COARSE or is_noise[name] for name, d in by_name.items()):
            return near
        raise DifferenceError(_text(near, single[0], ours[0])) from error
    mine, theirs = compared(ours, double), compared(single, double)
    allowed = {name: max(ROUNDING, min(TIMES * d, MOST_OF_GRADIENT)) for name, d in theirs[1].items()}
    bad = {name: d for name, d in mine[1].items() if not d <= allowed[name]}
    of_loss = theirs[0]
    others = itertools.chain(eager_jittered(model, loss, values, split, names),
                             eager_turned(model, loss, values, split, names))
    moves = {name: np.zeros_like(g) for name, g in double[1].items()}
    while (bad or not mine[0] <= _allowed_of_loss(of_loss)) and (other := next(others, None)):
        of_loss = max(of_loss, compared(other, double)[0])
        moves = {name: np.maximum(moves[name], np.abs(other[1][name] - double[1][name])) for name in moves}
        unexplained = compared((ours[0], {name: within(ours[1][name], double[1][name], TURN_TIMES * moves[name])
                                          for name in ours[1]}), double)[1]
        moved = compared((ours[0], {name: double[1][name] + moves[name] for name in moves}), double)[1]
        bad = {name: d for name, d in bad.items()
               if not unexplained[name] <= max(allowed[name], LEFT * moved[name]) or d > MOST_OF_GRADIENT}
    worst = max(mine[1], key=mine[1].get, default="")
    far = Distance(mine[0], mine[1].get(worst, 0.0), worst, "FP64")
    if bad or not mine[0] <= _allowed_of_loss(of_loss):
        named = max(bad, key=bad.get, default="")
        raise DifferenceError(_text(Distance(mine[0], bad.get(named, 0.0), named, "FP64"), double[0], ours[0])
                              + "".join(f"\n  {name}: {d:.1e}, allowed {allowed[name]:.1e}"
                                        for name, d in sorted(bad.items(), key=lambda each: -each[1])[:10]))
    return far


def _allowed_of_loss(of_eager):
    return max(ROUNDING, min(LOSS_TIMES * of_eager, MOST_OF_LOSS))


def _text(distance, theirs, ours):
    return (f"the first step differs from the module's own, {distance}: loss {ours:.7g}, expected {theirs:.7g}. Something "
            f"in the module was not captured: state that forward changes, or a defect here. check=False goes on.")
