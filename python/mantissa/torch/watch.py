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
            self._look_into_owner(value.__self__, f"{name}.__self__", (value.__name__,), look)
            look(value.__func__, f"{name}.__func__")
        elif isinstance(value, types.FunctionType):
            self._look_into_function(value, name, look)
        elif not isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)) and _is_users(kind):
            if callable(value):
                self._look_into_owner(value, name, ("__call__",), look)
            else:
                look(getattr(value, "__dict__", None) or {}, name)

    def _look_into_module(self, module, name, found, look):
        look(module.training, name + MODE)
        found[name + " (its parts)"] = tuple(module._modules), tuple(id(each) for hooks in (
            module._forward_hooks, module._forward_pre_hooks) for each in hooks.values())
        reached = _reached(type(module), ("forward",))
        for key, each in vars(module).items():
            if key not in _OF_MODULES and reached.reads(key):
                look(each, f"{name}.{key}")
        for parts in (module._parameters, module._buffers):
            for key, each in parts.items():
                look(each, f"{name}.{key}")
        for key, each in module._modules.items():
            look(each, f"{name}.{key}")
        for key, function in reached.functions.items():  # which read globals
            look(function, f"{type(module).__name__}.{key}")
        for key, each in vars(type(module)).items() if _is_users(type(module)) else ():
            if isinstance(each, _PLAIN) and not key.startswith("__") and reached.reads(key):
                look(each, f"{type(module).__name__}.{key}")

    def _look_into_owner(self, owner, name, methods, look):
        """Of an object whose method is called, what the method reads: a loop may count in the rest."""
        if isinstance(owner, torch.nn.Module):
            look(owner, name)
            return
        reached = _reached(type(owner), methods)
        for key, each in (getattr(owner, "__dict__", None) or {}).items():
            if reached.reads(key):
                look(each, f"{name}.{key}")
        for key, function in reached.functions.items():
            look(function, f"{type(owner).__name__}.{key}")

    def _look_into_function(self, function, name, look):
        if not _is_users(function):
            return
        for cell, each in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                held = each.cell_contents
            except ValueError:  # nothing is in it yet
                continue
            if cell == "self" and not isinstance(held, torch.nn.Module):
                self._look_into_owner(held, f"self of {name}", tuple(_names_of(function.__code__)), look)
            else:
                look(held, f"{cell} of {name}")
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


class _Reached:
    """What a class's methods read of it, by name; all of it where names are made as they run, or nothing is known."""

    def __init__(self, names, functions):
        self._names, self.functions = names, functions

    def reads(self, name):
        return self._names is None or name in self._names


@functools.lru_cache(maxsize=None)
def _reached(kind, methods):
    known = {}
    for base in reversed(kind.__mro__):
        for key, each in vars(base).items() if _is_users(base) else ():
            each = each.fget if isinstance(each, property) else each
            if isinstance(each, types.FunctionType):
                known[key] = each
    names, functions, left = set(methods), {}, [key for key in methods if key in known]
    if not left:
        return _Reached(None, {})
    while left:
        key = left.pop()
        functions[key] = known[key]
        new = set().union(*map(_names_of, _codes_of(known[key]))) - names
        names |= new
        left += [key for key in new if key in known and key not in functions]
    return _Reached(None if names & {"getattr", "vars", "__dict__", "eval", "exec"} else names, functions)


def _codes_of(function):
    """Its code, and that of functions which it holds: those that it decorates."""
    met, left = {}, [function]
    while left:
        each = left.pop()
        if each not in met:
            met[each] = each.__code__
            left += [cell.cell_contents for cell in each.__closure__ or () if not _is_empty(cell)
                     and isinstance(cell.cell_contents, types.FunctionType)]
    return met.values()


def _is_empty(cell):
    return cell == types.CellType()


def _names_of(code):
    """The names that a function, and those within it, read."""
    return {*code.co_names}.union(*(_names_of(each) for each in code.co_consts if isinstance(each, types.CodeType)))
