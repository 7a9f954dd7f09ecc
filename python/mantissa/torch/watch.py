"""What a trace read beside weights: attributes, closures, globals. A step is the one that was traced, so whoever changes
what it was made of is told by name.

Numbers, words and types are remembered as they are, tensors by identity and count of writes, arrays by some of their
numbers, all else by identity. Lists, dictionaries, modules, functions and objects of the user's own are looked into.
"""
import functools
import types

import numpy as np
import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_OF_MODULES = frozenset(vars(torch.nn.Module()))  # what each has, and torch keeps
_MOST = 2000  # of a list: a longer one is remembered by its length
_DEPTH = 6
MODE = ".training"


class Watch:
    """What modules and functions are made of. taken: tensors that are watched elsewhere."""

    def __init__(self, model, loss, taken):
        self._roots, self._taken = (("the module", model), ("the loss", loss)), taken
        self._ignored = set()
        self._kept = self._read()

    def _read(self):
        found, self._met = {}, {}
        for name, root in self._roots:
            self._look(root, name, found, 0)
        del self._met  # which kept alive whatever was met, so that no identity came twice
        return found

    def forward_has_run(self):
        """What forward wrote itself is no change from outside: check.py tells whether it is read, too."""
        now = self._read()
        for key in (*self._kept, *(key for key in now if key not in self._kept)):
            if now.get(key) != self._kept.get(key) and not key.endswith(MODE):
                self._ignored.add(key)

    def changed(self, with_modes):
        """The name of the first thing that is other than it was, or nothing. What is new cannot have been read."""
        now = self._read()
        for key, before in self._kept.items():
            if now.get(key) == before or (key.endswith(MODE) and not with_modes):
                continue
            if not any(key == each or key.startswith((each + ".", each + "[")) for each in self._ignored):
                return key
        return ""

    def _look(self, value, name, found, depth):
        if isinstance(value, _PLAIN):
            found[name] = "nan" if value != value else (type(value), value)
            return
        kind = type(value)
        if isinstance(value, torch.Tensor):
            found[name] = id(value), None if id(value) in self._taken else value._version
            return
        found[name] = id(value)
        if id(value) in self._met or depth > _DEPTH:
            return
        self._met[id(value)] = value
        look = functools.partial(self._look, found=found, depth=depth + 1)
        if kind in (list, tuple, set, frozenset, dict) or isinstance(value, (list, dict)):
            found[name] = kind, len(value)
            if len(value) <= _MOST and not isinstance(value, (set, frozenset)):
                for key, each in value.items() if isinstance(value, dict) else enumerate(value):
                    look(each, f"{name}[{key!r}]")
        elif isinstance(value, np.ndarray):
            found[name] = id(value), value.shape, value.reshape(-1)[:: max(1, value.size // 64)].tobytes()
        elif isinstance(value, torch.nn.Module):
            self._look_into_module(value, name, found, look)
        elif isinstance(value, functools.partial):
            look([value.func, value.args, value.keywords], f"{name}(partial)")
        elif isinstance(value, types.MethodType):
            look(value.__self__, f"{name}.__self__")
            look(value.__func__, f"{name}.__func__")
        elif isinstance(value, types.FunctionType):
            self._look_into_function(value, name, look)
        elif not isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)) and _is_users(kind):
            look(getattr(value, "__dict__", None) or {}, name)
            look(kind.__dict__.get("__call__"), f"{name}.__call__")

    def _look_into_module(self, module, name, found, look):
        look(module.training, name + MODE)
        found[name + " (its parts)"] = tuple(module._modules), tuple(id(each) for hooks in (
            module._forward_hooks, module._forward_pre_hooks) for each in hooks.values())
        for key, each in vars(module).items():
            if key not in _OF_MODULES:
                look(each, f"{name}.{key}")
        for parts in (module._parameters, module._buffers):
            for key, each in parts.items():
                look(each, f"{name}.{key}")
        for key, each in module._modules.items():
            look(each, f"{name}.{key}")
        kind = type(module)
        if _is_users(kind):  # which its globals are read by, too
            for key, each in vars(kind).items():
                if isinstance(each, (types.FunctionType, property)) and key != "__init__":
                    look(each.fget if isinstance(each, property) else each, f"{kind.__name__}.{key}")
                elif isinstance(each, _PLAIN) and not key.startswith("__"):
                    look(each, f"{kind.__name__}.{key}")

    def _look_into_function(self, function, name, look):
        if not _is_users(function):
            return
        for cell, each in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                look(each.cell_contents, f"{cell} of {name}")
            except ValueError:  # nothing is in it yet
                pass
        for defaults in (function.__defaults__, function.__kwdefaults__):
            if defaults:
                look(defaults, f"{name}(defaults)")
        for key in function.__code__.co_names:
            each = function.__globals__.get(key)
            if isinstance(each, _PLAIN + (torch.Tensor, torch.nn.Module, list, dict, np.ndarray)) and each is not None:
                look(each, f"{key} of {name}")


def _is_users(what):
    """Whether a type or a function is neither Python's nor of a library that changes nothing by itself."""
    place = (getattr(what, "__module__", None) or "builtins").partition(".")[0]
    return place not in ("builtins", "torch", "numpy", "functools", "collections", "typing", "enum", "abc", "mantissa",
                         "threading", "logging", "_thread", "io")
