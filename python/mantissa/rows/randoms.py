"""Random numbers: dropout and its like. Masks are mantissa's own, never those of the framework.

Where nothing is to be random, to be compared, each number is the mean of its distribution: dropout is off then, and a
normal number is 0.5, so that what it is multiplied with has a gradient.
"""
import math

from .. import nn
from .._native import operations as native
from ..layout import Placed
from .registry import Refused, row

STILL_NORMAL = 0.5


@row("aten.native_dropout", "aten.dropout", "aten.feature_dropout", "aten.alpha_dropout")
def dropout(at, input, p, train=True):
    if at.node.op in ("aten.feature_dropout", "aten.alpha_dropout") and train and p and not at.is_still:
        raise Refused(at.node.op, "Use dropout.")
    several = len(at.node.outputs) > 1
    if several and at.builder.is_used(at.node.outputs[1]):
        raise Refused("the mask of a dropout")
    if not train or p == 0 or at.is_still or not at.is_training:
        y = input
    elif p >= 1:
        y = at.full(0.0)
    else:
        y = Placed(native.dropout(input.tensor, p), input.order)
    return (y, None) if several else y


def _uniform(at, shape):
    if not at.is_training:
        raise Refused("random numbers while evaluating", "Draw them while training alone (self.training).")
    return native.random_uniform([math.prod(shape)]).reshape(list(shape))


@row("aten.bernoulli")
def bernoulli(at, self, p=None, generator=None):
    """1 with the probability of the element, or of p."""
    if at.is_still:
        return at.full(p) if p is not None else self
    random = Placed(_uniform(at, at.shape))
    chance = Placed(at.number(p, "f32")) if p is not None else Placed(nn.stop_gradient(self.tensor), self.order)
    return at.cast(at.each(nn.less, random, chance, dtype="f32"))


@row("aten.rand", "aten.rand_like", "aten.uniform")
def rand(at, self=None, size=None, **kwargs):
    low, high = kwargs.get("from", 0.0), kwargs.get("to", 1.0)
    if at.is_still:
        return at.full((low + high) / 2)
    x = _uniform(at, at.shape)
    return Placed(x if (low, high) == (0.0, 1.0) else x * float(high - low) + float(low))


@row("aten.randn", "aten.randn_like", "aten.normal_functional")
def randn(at, self=None, size=None, mean=0.0, std=1.0, **_):
    """Box and Muller 1958: from two uniform numbers."""
    if at.is_still:
        return at.full(STILL_NORMAL * std + mean)
    first, second = _uniform(at, at.shape), _uniform(at, at.shape)
    length = nn.sqrt(nn.log(1.0 - first) * -2.0)
    x = length * nn.cos(second * (2 * math.pi))
    return Placed(x if (mean, std) == (0.0, 1.0) else x * float(std) + float(mean))


@row("aten.exponential")
def exponential(at, self, lambd=1.0, generator=None):
    if at.is_still:
        return at.full(1 / lambd)
    return Placed(nn.log(1.0 - _uniform(at, at.shape)) * (-1 / lambd))


@row("aten.multinomial", "aten.randint", "aten.randperm", "aten.rrelu_with_noise",
     "aten.rrelu_with_noise_functional", "aten.poisson", "aten.randint_like", "aten.geometric")
def others(at, **_):
    raise Refused(at.node.op, "Draw such numbers outside of the module, and give them as an input.")
