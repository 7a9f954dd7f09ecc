"""Decisions that rounding makes: rectifiers near zero, greatest elements near the second.

A rectifier's gradient jumps where its operand changes sign. Where the operand is as near to zero as FP32's own error
there, a step of FP32 may decide either way, and both are right. In a deep network of few images that is some elements
in 40,000, and one of them changes a bias's gradient by 1e-3: whether eager FP32 happens to decide as FP64 does says
nothing of how far another step of FP32 may be away. A step that is `times` as far from FP64 as eager's is turns some
of what is nearer than that. So steps of FP64 that turn all of it, or a random half, show which numbers move, and how
far.
"""
import numpy as np
import torch

# Operations by where they jump: at places of the operand that follow from the arguments.
_AT = {
    "relu": lambda args: [0.0], "leaky_relu": lambda args: [0.0], "abs": lambda args: [0.0],
    "hardswish": lambda args: [-3.0, 3.0], "hardsigmoid": lambda args: [-3.0, 3.0],
    "hardtanh": lambda args: [args[1] if len(args) > 1 else -1.0, args[2] if len(args) > 2 else 1.0],
    "clamp": lambda args: args[1:3], "clamp_min": lambda args: args[1:2], "clamp_max": lambda args: args[1:2]}
_POOLS = ("max_pool2d_with_indices", "max_pool3d_with_indices")


def _operand(function, args):
    """What an operation decides by, or None: no such operation, or one whose operand several elements share."""
    name = function._schema.name.split("::")[1].rstrip("_")
    x = args[0] if args else None
    if name not in _AT and name not in _POOLS or not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return name, None
    shared = any(stride == 0 and extent > 1 for stride, extent in zip(x.stride(), x.shape))
    return name, None if shared else x


class Seen(torch.utils._python_dispatch.TorchDispatchMode):
    """While active, keeps what is decided by, in order."""

    def __init__(self):
        super().__init__()
        self.operands = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        _, x = _operand(function, args)
        if x is not None:
            self.operands.append(x.detach().clone())
        return function(*args, **(kwargs or {}))


def errors(single, double):
    """For each operand its error in FP32: the root of the mean square, of all of it or of its channel where that is
    more, since a norm has an error of its own in each. None where the two did not do the same."""
    if [x.shape for x in single] != [x.shape for x in double]:
        return None
    return [_error((a.double() - b.double()).square()) for a, b in zip(single, double)]


def _error(squares):
    if not squares.numel() or squares.dim() < 3:
        return squares.mean().sqrt() if squares.numel() else squares.sum()
    others = [axis for axis in range(squares.dim()) if axis != 1]
    return squares.mean(others, keepdim=True).clamp(min=squares.mean()).sqrt()


class Turned(torch.utils._python_dispatch.TorchDispatchMode):
    """While active, each element within `times` its error of where it is decided goes to the other side, as far.

    draw: 0 turns all of them, another number a random half. Two elements of a channel may move its bias in opposite
    directions, and together not at all.
    """

    def __init__(self, errors, times, draw=0):
        super().__init__()
        self.errors, self.times, self.at = errors, times, 0
        self.random = np.random.default_rng(draw) if draw else None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, x = _operand(function, args)
        if x is not None:
            near = self.times * self.errors[self.at]
            self.at += 1
            # In place: a backward pass decides by the operand that the forward pass saw.
            if name in _POOLS:
                self._turn_greatest(function, x, args, kwargs, near)
            else:
                for place in _AT[name](args):
                    if isinstance(place, (int, float)):
                        x.copy_(torch.where(self._drawn((x - place).abs() < near), 2 * place - x, x))
        return function(*args, **kwargs)

    def _drawn(self, near):
        return near if self.random is None else near & torch.from_numpy(self.random.random(near.shape) < 0.5)

    def _turn_greatest(self, function, x, args, kwargs, near):
        """Where the second of a window is that near, the first falls behind it."""
        plane = len(args[1])
        greatest, where = function(*args, **kwargs)
        lowered = x.clone().flatten(-plane)
        lowered.scatter_(-1, where.flatten(-plane), (greatest - 2 * near).flatten(-plane))
        second, other = function(lowered.reshape(x.shape), *args[1:], **kwargs)
        is_near = self._drawn((other != where).flatten(-plane))
        fallen = (2 * second - greatest).flatten(-plane)
        flat = x.flatten(-plane)
        kept = flat.gather(-1, where.flatten(-plane))
        x.copy_(flat.scatter(-1, where.flatten(-plane), torch.where(is_near, fallen, kept)).reshape(x.shape))
