"""Reports of one's own model. Each prints, shows itself in a notebook, and writes its page and its JSON.

A trainer may stand for its model: its device, batch, policy and optimizer are those of the report,
unless others are given.
"""
from . import _native
from .models import model_of
from .trainer import options_of, device_of


def _options(steps, lr, repeats, names, trainer):
    options = _native.ReportOptions()
    options.trainer = options_of(**trainer)
    options.steps, options.learning_rate, options.repeats, options.names = steps, lr, repeats, list(names)
    return options


def _taken(model, device, trainer):
    """The model, the device and the options of a trainer that stands for it."""
    if hasattr(model, "native_model"):
        return model.native_model, device or model.device, dict(model.options, **trainer)
    return model_of(model), device or "cpu", trainer


def explain(model, *, device=None, threads=None, **trainer):
    """What each operation of a step is stored, multiplied and summed in, by which rule and which kernel."""
    model, device, trainer = _taken(model, device, trainer)
    return _native.explain(model, _options(1, 0, 1, (), trainer), *device_of(device, threads))


def lint(model, *, repeats=3, device=None, threads=None, **trainer):
    """Ugly sizes of the model, and what nicer ones gain on this machine; repeats=0 measures nothing."""
    model, device, trainer = _taken(model, device, trainer)
    return _native.lint(model, _options(1, 0, repeats, (), trainer), *device_of(device, threads))


def roofline(model, *arrays, device=None, threads=None, **trainer):
    """Each kernel of a step on the arrays: arithmetic, bytes, time, and what bounds it."""
    model, device, trainer = _taken(model, device, trainer)
    return _native.roofline(model, arrays, _options(1, 0, 1, (), trainer), *device_of(device, threads))


def ladder(model, *arrays, rungs=(), steps=10, repeats=3, lr=3e-4, device=None, threads=None, **trainer):
    """The model on each rung from FP32 to the fastest, trained on the arrays and timed."""
    model, device, trainer = _taken(model, device, trainer)
    return _native.ladder(model, arrays, _options(steps, lr, repeats, rungs, trainer), *device_of(device, threads))


def numerics(model, *arrays, steps=10, lr=3e-4, device=None, threads=None, **trainer):
    """Weights, activations and gradients after some steps, under the ranges of formats."""
    model, device, trainer = _taken(model, device, trainer)
    return _native.numerics(model, arrays, _options(steps, lr, 1, (), trainer), *device_of(device, threads))


def converge(model, *arrays, policies=(), steps=20, lr=3e-4, device=None, threads=None, **trainer):
    """The model trained in one precision after another, and whether their losses agree with the first."""
    model, device, trainer = _taken(model, device, trainer)
    return _native.converge(model, arrays, _options(steps, lr, 1, policies, trainer), *device_of(device, threads))
