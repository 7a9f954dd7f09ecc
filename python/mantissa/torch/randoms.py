"""The operations of torch that draw numbers, and what each gives where nothing is random: mostly the mean of its
distribution. rows/randoms.py has the same of mantissa's."""
import torch

from ..rows.randoms import STILL_NORMAL


def _given(args, kwargs, at, name, otherwise):
    return args[at] if len(args) > at else kwargs.get(name, otherwise)


def _bernoulli(function, args, kwargs):
    p = _given(args, kwargs, 1, "p", None)
    p = None if isinstance(p, torch.Generator) else p
    return args[0].clone() if p is None else torch.full_like(args[0], p)


def _bernoulli_in_place(function, args, kwargs):
    p = _given(args, kwargs, 1, "p", None)
    p = None if isinstance(p, torch.Generator) else p
    return args[0].copy_(p) if isinstance(p, torch.Tensor) else args[0].fill_(0.5 if p is None else p)


def _dropout(function, args, kwargs):
    return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)


def _half(function, args, kwargs):
    return function(*args, **kwargs).fill_(0.5)


def _uniform(function, args, kwargs):
    return args[0].fill_((_given(args, kwargs, 1, "from", 0.0) + _given(args, kwargs, 2, "to", 1.0)) / 2)


def _exponential(function, args, kwargs):
    return args[0].fill_(1 / _given(args, kwargs, 1, "lambd", 1.0))


def _normal(function, args, kwargs):
    return args[0].fill_(STILL_NORMAL * _given(args, kwargs, 2, "std", 1.0) + _given(args, kwargs, 1, "mean", 0.0))


# By name; None: an operation that no row records.
STILL = {"bernoulli": _bernoulli, "bernoulli_": _bernoulli_in_place, "native_dropout": _dropout, "dropout": None,
         "rand": _half, "rand_like": _half, "randn": _half, "randn_like": _half, "uniform": None, "uniform_": _uniform,
         "exponential": None, "exponential_": _exponential, "normal": None, "normal_": _normal, "normal_functional": None,
         "randint": None, "randint_like": None, "randperm": None, "multinomial": None, "poisson": None, "geometric": None,
         "rrelu_with_noise": None, "rrelu_with_noise_functional": None, "feature_dropout": None, "alpha_dropout": None}
