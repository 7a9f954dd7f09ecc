"""Optimizers of torch as those of a trainer, with their rates and groups, and their states, handed over between both:
whoever goes on has the same curve."""
import numpy as np
import torch

from .. import _native

_NONE = {"amsgrad": False, "maximize": False, "dampening": 0, "differentiable": False, "decoupled_weight_decay": True,
         "ns_coefficients": (3.4445, -4.775, 2.0315)}
_ALIKE = ("betas", "eps", "momentum", "nesterov", "ns_steps", "adjust_lr_fn")  # in all groups
_MUON = getattr(torch.optim, "Muon", None)  # since torch 2.9
_ADAM = (torch.optim.AdamW, torch.optim.Adam)
_TAKEN = "AdamW, Adam, SGD and Muon"


def _states_of(optimizer):
    """Where a trainer keeps the optimizer's states of a parameter, by their names in torch."""
    if isinstance(optimizer, _ADAM):
        return {"exp_avg": "adamw.m.", "exp_avg_sq": "adamw.v."}
    return {"momentum_buffer": "muon.buffer." if _MUON and isinstance(optimizer, _MUON) else "sgd.momentum."}


class Made:
    """An optimizer for a trainer. left: parameters of the module that it leaves alone. ratios: of the rates of all groups
    to the first one's."""

    def __init__(self, make, left=(), groups=(), ratios=()):
        self._make, self.left, self._groups, self.ratios = make, list(left), groups, ratios

    def of(self, names):
        """The native one, for a program with these weights."""
        made = self._make(names)
        groups = [(name, factor, decay) for name, factor, decay in self._groups if name in names]
        return _native.grouped(made, groups) if groups else made


def of(optimizer, model, clip):
    """The optimizers of torch that were given, a tuple, and what a trainer makes of them. Raises Error for what has no
    like."""
    several = tuple(optimizer) if isinstance(optimizer, (list, tuple)) else (optimizer,)
    if not several or not all(isinstance(each, torch.optim.Optimizer) for each in several):
        if clip:
            raise _native.Error("clip goes with an optimizer of torch: write mantissa.adamw(clip=1.0)")
        if optimizer is not None and not isinstance(optimizer, _native.Optimizer):
            raise _native.Error("optimizer is mantissa.adamw(...), sgd(...) or muon(...), or torch.optim's AdamW, Adam, SGD "
                                f"or Muon, got {type(optimizer).__name__}; mantissa.torch.gradients goes with any of torch")
        return (), Made(lambda names: optimizer if optimizer is not None else _native.adamw())
    kinds = [_kind_of(each) for each in several]
    if len(several) > 1 and sorted(kinds) != ["adamw", "muon"]:
        raise _instead("several optimizers, which are not one Muon and one AdamW")
    named, taken = {id(parameter): name for name, parameter in model.named_parameters()}, {}
    for at, each in enumerate(several):
        for group in each.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in named:
                    raise _native.Error("the optimizer has a parameter that is not the module's")
                if named[id(parameter)] in taken:
                    raise _native.Error(f"two optimizers have {named[id(parameter)]}: leave it out of one")
                taken[named[id(parameter)]] = at, group
    base = several[0].param_groups[0]
    decays = [float(each.param_groups[0].get("weight_decay", 0)) for each in several]
    groups = [(name, factor, decay) for name, (at, group) in taken.items()
              for factor, decay in [(_ratio(group, base), float(group.get("weight_decay", 0)))]
              if factor != 1 or decay != decays[at]]
    muon_names = [name for name, (at, _) in taken.items() if kinds[at] == "muon"]
    made = Made(lambda names: _native_of(dict(zip(kinds, several)), clip, [name for name in muon_names if name in names]),
                [name for name in named.values() if name not in taken], groups,
                [_ratio(group, base) for each in several for group in each.param_groups])
    made.of(())  # refuses what it must before the module is exported
    return several, made


def _kind_of(optimizer):
    kind = type(optimizer)
    if kind not in _ADAM and kind is not torch.optim.SGD and (_MUON is None or kind is not _MUON):
        raise _instead(f"{kind.__name__} has no like here; there are {_TAKEN}")
    first = optimizer.param_groups[0]
    for group in optimizer.param_groups:
        for key, value in _NONE.items():
            of_adam = key == "decoupled_weight_decay" and (kind is torch.optim.AdamW or not group["weight_decay"])
            if key in group and group[key] != value and not of_adam:
                raise _instead(f"{kind.__name__} with {key}={group[key]}")
        for key in _ALIKE:
            if group.get(key) != first.get(key):
                raise _instead(f"groups of parameters with several {key}")
    if first.get("adjust_lr_fn") not in (None, "original", "match_rms_adamw"):
        raise _instead(f"Muon with adjust_lr_fn={first['adjust_lr_fn']!r}")
    return "adamw" if kind in _ADAM else "sgd" if kind is torch.optim.SGD else "muon"


def _native_of(by_kind, clip, muon_names):
    """The native optimizer. Groups are laid over it by whoever asks."""
    first = {kind: each.param_groups[0] for kind, each in by_kind.items()}
    adam = first.get("adamw")
    if "sgd" in first:
        return _native.sgd(momentum=first["sgd"]["momentum"], nesterov=first["sgd"]["nesterov"],
                           weight_decay=float(first["sgd"]["weight_decay"]), clip=clip)
    of_adam = {} if adam is None else {"beta1": adam["betas"][0], "beta2": adam["betas"][1], "decay_matrices_only": False}
    if "muon" not in first:
        return _native.adamw(weight_decay=float(adam["weight_decay"]), epsilon=adam["eps"], clip=clip, **of_adam)
    muon = first["muon"]
    if adam is not None:
        of_adam.update(other_epsilon=adam["eps"], other_weight_decay=float(adam["weight_decay"]))
    return _native.muon(momentum=muon["momentum"], weight_decay=float(muon["weight_decay"]), clip=clip,
                        nesterov=muon["nesterov"], epsilon=muon["eps"], iterations=muon["ns_steps"],
                        original_rates=muon["adjust_lr_fn"] != "match_rms_adamw", matrices=muon_names, **of_adam)


def _ratio(group, base):
    """How many times the base's rate a group's is: that of the rates before a schedule came."""
    rate, of_base = (float(each.get("initial_lr", each["lr"])) for each in (group, base))
    if rate == of_base:
        return 1.0
    if of_base == 0:
        raise _instead("groups with several lr, the first of which is 0")
    return rate / of_base


def _instead(what):
    return _native.Error(f"{what}: give optimizer=mantissa.adamw(...) and the like, or train by mantissa.torch.gradients, "
                         "which goes with any optimizer of torch")


def rate_of_torch(optimizers, ratios):
    """The rate of the next step, as schedules of torch set it. Raises Error where those of groups went apart."""
    rate = float(optimizers[0].param_groups[0]["lr"])
    for ratio, group in zip(ratios, (group for each in optimizers for group in each.param_groups)):
        expected = rate * ratio
        if abs(float(group["lr"]) - expected) > 1e-6 * max(abs(expected), abs(rate)):
            raise _native.Error(f"a group of the optimizer has lr={float(group['lr']):.6g} now, where the first has {rate:.6g}: "
                                f"here rates of groups keep their ratio, which would make it {expected:.6g}")
    return rate


def tell(optimizers):
    """Makes the step that schedules ask for, which changes nothing. Returns whether it could."""
    if any(p.grad is not None for each in optimizers for group in each.param_groups for p in group["params"]):
        return False
    for each in optimizers:
        each.step()
    return True


# States.

def _count_of(trainer):
    """The name of the state that counts steps, or nothing."""
    return next((name for name in ("adamw.step", "muon.step", "sgd.step") if name in trainer._trainer.states), "")


def _parameters(trainer, optimizer):
    """Each of the optimizer's parameters that the trainer trains, with its name."""
    if any(group.get("amsgrad") or not ("betas" in group or "momentum" in group) for group in optimizer.param_groups):
        raise _native.Error(f"{type(optimizer).__name__} has other states than a trainer's optimizer")
    prefix = next(iter(_states_of(optimizer).values()))
    if not any(name.startswith(prefix) for name in trainer._trainer.states):
        like = prefix.partition(".")[0]
        word = {"adamw": "AdamW", "sgd": "SGD with momentum", "muon": "Muon"}[like]
        raise _native.Error(f"the trainer's optimizer is no {word}: give it optimizer=mantissa.{like}(...)")
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names.get(id(parameter))
            if name is None:
                raise _native.Error("the optimizer has a parameter that is not the module's")
            if prefix + name in trainer._trainer.states:
                yield name, parameter


def _has_states(trainer, optimizer):
    prefix = next(iter(_states_of(optimizer).values()))
    return any(name.startswith(prefix) for name in trainer._trainer.states)


def begin(trainer):
    """A trainer goes on where its optimizers of torch are."""
    for each in trainer.optimizers:
        if each.state and _has_states(trainer, each):
            from_optimizer(trainer, each)


def into_optimizers(trainer):
    for each in trainer.optimizers:
        if _has_states(trainer, each):
            into_optimizer(trainer, each)


def into_optimizer(trainer, optimizer):
    """Gives the states and the count of steps to an optimizer of the module's own parameters."""
    parameters = list(_parameters(trainer, optimizer))
    steps = float(np.frombuffer(trainer._trainer.read_state(_count_of(trainer)), np.float64)[0])
    for name, parameter in parameters:
        state = optimizer.state[parameter]
        if isinstance(optimizer, _ADAM):
            state["step"] = torch.tensor(steps)
        for key, prefix in _states_of(optimizer).items():
            state[key] = torch.from_numpy(trainer._parameters.array(name, prefix + name)).to(parameter.dtype)


def from_optimizer(trainer, optimizer):
    """Takes them over. Where the optimizer has made no step, they are nothing."""
    steps = set()
    for name, parameter in _parameters(trainer, optimizer):
        state = optimizer.state.get(parameter, {})
        has = any(state.get(key) is not None for key in _states_of(optimizer))
        steps.add(float(state.get("step", 1.0 if has else 0.0)))  # those of momentum ask whether there was one
        for key, prefix in _states_of(optimizer).items():
            moment = state.get(key)
            moment = (torch.zeros_like(parameter) if moment is None else moment).detach().to(torch.float32).numpy()
            trainer._trainer.write_state(prefix + name, trainer._parameters.stored(name, moment))
    if len(steps) > 1:
        raise _native.Error(f"the optimizer's parameters have made {sorted(steps)} steps; here all make as many")
    count, made = _count_of(trainer), steps.pop() if steps else 0.0
    if isinstance(optimizer, _ADAM) or made > float(np.frombuffer(trainer._trainer.read_state(count), np.float64)[0]):
        trainer._trainer.write_state(count, np.array(made, np.float64).tobytes())
