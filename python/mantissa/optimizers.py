"""Optimizers and adapters by their options, and what to write instead of other libraries' options."""
from . import _native

_INSTEAD = {"lr": "the rate is each step's, as in step(x, y, lr=1e-3)", "betas": "write beta1=0.9, beta2=0.999",
            "eps": "write epsilon=1e-8", "params": "a trainer knows its parameters"}


def _checked(make):
    """The function, which raises Error that shows its options where others are given."""
    options = make.__doc__.split(" -> ")[0]

    def optimizer(*given, **named):
        try:
            return make(*given, **named)
        except TypeError:
            wrong = [f"no {name}: {_INSTEAD[name]}" for name in named if name in _INSTEAD]
            raise _native.Error(f"{make.__name__} takes {'; '.join(wrong)}. It is {options}" if wrong else
                                f"{make.__name__} is {options}, got {given or named}") from None

    optimizer.__name__ = optimizer.__qualname__ = make.__name__
    optimizer.__doc__ = make.__doc__
    return optimizer


adamw, muon, sgd, lora = (_checked(make) for make in (_native.adamw, _native.muon, _native.sgd, _native.lora))
