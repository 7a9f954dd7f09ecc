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


class Decision:
    """What one operation decides by: its first operand, as it was."""

    def __init__(self, function, args, kwargs):
        self.function, self.x, self.args, self.kwargs = function, args[0].detach().clone(), args[1:], kwargs

    def near(self, error, times):
        """Elements that FP32 may decide otherwise: their flat indices, what they are, what turns the decision."""
        index = torch.arange(self.x.numel()).reshape(self.x.shape)
        name = _name(self.function)
        if name in _POOLS:
            return self._near_greatest(index, times * error)
        found = []
        for place in _AT[name]((self.x,) + self.args):
            if isinstance(place, (int, float)):
                away = self.x - place
                is_near = (away.abs() < times * error) & (away != 0)
                found.append((index[is_near], self.x[is_near], place - away[is_near]))
        return tuple(torch.cat(each) for each in zip(*found)) if found else (index[:0].flatten(),) * 3

    def _near_greatest(self, index, near):
        """Where the second of a window is near the first: both, as they are, and the first behind the second."""
        plane = len(self.args[0])
        greatest, where = self.function(self.x, *self.args, **self.kwargs)
        lowered = self.x.clone().flatten(-plane)
        lowered.scatter_(-1, where.flatten(-plane), (greatest - 2 * near).flatten(-plane))
        second, other = self.function(lowered.reshape(self.x.shape), *self.args, **self.kwargs)
        is_near = (other != where) & (greatest > second)
        first_at, second_at = (index.flatten(-plane).gather(-1, at.flatten(-plane)).reshape(at.shape)[is_near]
                               for at in (where, other))
        first, second = greatest[is_near], second[is_near]
        return torch.cat([second_at, first_at]), torch.cat([second, first]), torch.cat([second, 2 * second - first])


def _name(function):
    return function._schema.name.split("::")[1].rstrip("_")


def _decides(function, args):
    """Whether an operation decides, by an operand whose elements are each one of its own."""
    if _name(function) not in _AT and _name(function) not in _POOLS:
        return False
    x = args[0] if args else None
    return (isinstance(x, torch.Tensor) and x.is_floating_point()
            and not any(stride == 0 and extent > 1 for stride, extent in zip(x.stride(), x.shape)))


class Seen(torch.utils._python_dispatch.TorchDispatchMode):
    """While active, keeps what is decided by, in order."""

    def __init__(self):
        super().__init__()
        self.decisions = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if _decides(function, args):
            self.decisions.append(Decision(function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))


def near(single, double, times):
    """For each decision of FP64 the elements within `times` FP32's error, as Decision.near gives them. None where the
    two did not do the same."""
    if [a.x.shape for a in single] != [b.x.shape for b in double]:
        return None
    return [b.near(error(a.x, b.x), times) for a, b in zip(single, double)]


def error(single, double):
    """The error of FP32: the root of the mean square, of all of it or of its channel where that is more, since a norm
    has an error of its own in each."""
    squares = (single.double() - double.double()).square()
    if not squares.numel() or squares.dim() < 3:
        return squares.mean().sqrt() if squares.numel() else squares.sum()
    others = [axis for axis in range(squares.dim()) if axis != 1]
    return squares.mean(others, keepdim=True).clamp(min=squares.mean()).sqrt()


class Turned(torch.utils._python_dispatch.TorchDispatchMode):
    """While active, each element that is near goes to the other side, as far.

    near: of a step in which nothing was turned. What is turned before an element moves it, perhaps across already: so
    elements that are not drawn are put where they were.
    draw: 0 turns all of them, another number a random half of each operation's. Two elements of a channel may move its
    bias in opposite directions, and together not at all.
    """

    def __init__(self, near, draw=0):
        super().__init__()
        self.near, self.at = near, 0
        self.random = np.random.default_rng(draw) if draw else None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if _decides(function, args):
            index, as_it_was, turned = self.near[self.at]
            self.at += 1
            if self.random is not None:
                count = index.numel()
                stays = self.random.permutation(count)[(count + self.random.integers(2)) // 2:]
                turned = turned.clone()
                turned[stays] = as_it_was[stays]
            # In place: a backward pass decides by the operand that the forward pass saw.
            flat = args[0].flatten()
            flat[index] = turned.to(flat.dtype)
            args[0].copy_(flat.reshape(args[0].shape))
        return function(*args, **(kwargs or {}))
