"""Optimizers of torch as those of a trainer, and AdamW's moments, handed over between both: whoever goes on has the same
curve."""
import numpy as np
import torch

from .. import _native
from ..rows import to_stored

_NONE = {"amsgrad": False, "maximize": False, "dampening": 0, "differentiable": False, "decoupled_weight_decay": True}
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


def of_torch(optimizer, model, clip):
    """The trainer's optimizer for one of torch, and parameters that it leaves alone. Raises Error for what has no like."""
    kind = type(optimizer)
    named = {id(parameter): name for name, parameter in model.named_parameters()}
    groups, decayed = optimizer.param_groups, {}
    for group in groups:
        for parameter in group["params"]:
            if id(parameter) not in named:
                raise _native.Error("the optimizer has a parameter that is not the module's")
            decayed[named[id(parameter)]] = parameter, float(group.get("weight_decay", 0))
    is_adam = kind in (torch.optim.AdamW, torch.optim.Adam)
    if not is_adam and kind is not torch.optim.SGD:
        raise _instead(f"{kind.__name__} has no like here; there are AdamW, Adam and SGD")
    for group in groups:
        for key, value in _NONE.items():
            of_adam = key == "decoupled_weight_decay" and (kind is torch.optim.AdamW or not group["weight_decay"])
            if key in group and group[key] != value and not of_adam:
                raise _instead(f"{kind.__name__} with {key}={group[key]}")
        for key in ("lr", "betas", "eps", "momentum", "nesterov"):
            if group.get(key) != groups[0].get(key):
                raise _instead(f"groups of parameters with several {key}")
    decay = max(each for _, each in decayed.values())
    matrices_only = bool(decay) and all((each == decay) if p.dim() >= 2 else each == 0 for p, each in decayed.values())
    if not matrices_only and any(each != decay for _, each in decayed.values()):
        raise _instead("groups with several weight_decay, which are not that of matrices and 0")
    if is_adam:
        beta1, beta2 = groups[0]["betas"]
        made = _native.adamw(weight_decay=decay, beta1=beta1, beta2=beta2, epsilon=groups[0]["eps"], clip=clip,
                             decay_matrices_only=matrices_only)
    elif matrices_only and any(p.dim() < 2 for p, _ in decayed.values()):
        raise _instead("SGD whose groups have several weight_decay")
    else:
        made = _native.sgd(momentum=groups[0]["momentum"], nesterov=groups[0]["nesterov"], weight_decay=decay, clip=clip)
    return made, [name for name in named.values() if name not in decayed]


def _instead(what):
    return _native.Error(f"{what}: give optimizer=mantissa.adamw(...) and the like, or train by mantissa.torch.gradients, "
                         "which goes with any optimizer of torch")


def rate_of_torch(optimizer):
    """The rate of the next step, as schedules of torch set it."""
    return float(optimizer.param_groups[0]["lr"])
