"""AdamW's moments, handed over between a trainer and torch.optim.AdamW: whoever goes on has the same curve."""
import numpy as np
import torch

from .. import _native
from ..rows import to_stored

_MOMENTS = {"exp_avg": "adamw.m.", "exp_avg_sq": "adamw.v."}


def _parameters(trainer, optimizer):
    """Each of the optimizer's parameters that the trainer trains, with its name."""
    if "adamw.step" not in trainer._trainer.states:
        raise _native.Error("the trainer's optimizer is no AdamW: give it optimizer=mantissa.adamw(...)")
    if any(group.get("amsgrad") or "betas" not in group for group in optimizer.param_groups):
        raise _native.Error(f"{type(optimizer).__name__} has other states than AdamW's two moments")
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names.get(id(parameter))
            if name is None:
                raise _native.Error("the optimizer has a parameter that is not the module's")
            if _MOMENTS["exp_avg"] + name in trainer._trainer.states:
                yield name, parameter


def into_optimizer(trainer, optimizer):
    """Gives the moments and the count of steps to an optimizer of the module's own parameters."""
    steps = float(np.frombuffer(trainer._trainer.read_state("adamw.step"), np.float64)[0])
    for name, parameter in _parameters(trainer, optimizer):
        state = optimizer.state[parameter]
        state["step"] = torch.tensor(steps)
        for key, prefix in _MOMENTS.items():
            state[key] = torch.from_numpy(trainer._array(name, prefix + name)).to(parameter.dtype)


def from_optimizer(trainer, optimizer):
    """Takes them over. Where the optimizer has made no step, they are nothing."""
    steps = set()
    for name, parameter in _parameters(trainer, optimizer):
        state = optimizer.state.get(parameter, {})
        steps.add(float(state.get("step", 0.0)))
        for key, prefix in _MOMENTS.items():
            moment = state.get(key, torch.zeros_like(parameter)).detach().to(torch.float32).numpy()
            trainer._trainer.write_state(prefix + name, to_stored(moment, trainer._weights[name][1]).tobytes())
    if len(steps) > 1:
        raise _native.Error(f"the optimizer's parameters have made {sorted(steps)} steps; here all make as many")
    trainer._trainer.write_state("adamw.step", np.array(steps.pop() if steps else 0.0, np.float64).tobytes())
