"""Normalisations, and the running statistics of batch norms."""
import math

from .. import _native, layout, nn
from .._native import operations as native
from ..layout import Placed
from .reductions import reduced
from .registry import Refused, row


def _ones(at, count):
    return native.constant(at.anchor, 1, "f32", [count])


def _zeros(at, count):
    return native.constant(at.anchor, 0, "f32", [count])


def _channels(at, x, count, otherwise):
    return otherwise(at, count) if x is None else layout.plain(x).reshape([count])


@row("aten.layer_norm", "aten.native_layer_norm")
def layer_norm(at, input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    count = math.prod(normalized_shape)
    x = layout.rows_of(input, len(normalized_shape))
    flat = x.tensor.reshape(list(x.tensor.shape[:len(x.shape) - len(normalized_shape)]) + [count])
    y = native.layer_norm(flat, _channels(at, weight, count, _ones), _channels(at, bias, count, _zeros), eps)
    y = layout.viewed(Placed(y.reshape(list(x.tensor.shape)), x.order), input.shape)
    return (y, None, None) if at.node.op == "aten.native_layer_norm" else y


@row("aten.rms_norm")
def rms_norm(at, input, normalized_shape, weight=None, eps=None):
    count = math.prod(normalized_shape)
    flat = layout.plain(input).reshape(list(input.shape[:len(input.shape) - len(normalized_shape)]) + [count])
    y = native.rms_norm(flat, _channels(at, weight, count, _ones), 1.1920928955078125e-07 if eps is None else eps)
    return Placed(y.reshape(list(input.shape)))


def _channels_last(x):
    """x [N, C, ...] stored [N, ..., C]."""
    rank = len(x.shape)
    order = (0, rank - 1) + tuple(range(1, rank - 1))
    return layout.stored_as(x, order), order


@row("aten._native_batch_norm_legit_functional", "aten._batch_norm_with_update_functional", "aten.batch_norm",
     "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_no_training", "aten.native_batch_norm")
def batch_norm(at, input, weight=None, bias=None, running_mean=None, running_var=None, training=False, momentum=0.1,
               eps=1e-5, cudnn_enabled=True):
    """Training blends the batch's statistics into the states; all else normalises by these."""
    C = input.shape[1]
    x, order = _channels_last(input)
    gamma, beta = _channels(at, weight, C, _ones), _channels(at, bias, C, _zeros)
    several = len(at.node.outputs) > 1
    if not training:
        y = native.normalize(x, gamma, beta, layout.plain(running_mean), layout.plain(running_var), eps)
        return (Placed(y, order),) if several else Placed(y, order)
    y, mean, variance = native.batch_norm(x, gamma, beta, eps)
    count = math.prod(input.shape) // C
    if running_mean is not None and at.is_training and not at.is_still:
        if count < 2:
            raise Refused("a batch norm of one element a channel", "Train on more, or call eval() on it.")
        _native.follow(running_mean.tensor, mean, momentum)
        _native.follow(running_var.tensor, variance * (count / (count - 1)), momentum)
    return (Placed(y, order),) if several else Placed(y, order)


@row("aten.group_norm", "aten.native_group_norm")
def group_norm(at, input=None, num_groups=None, weight=None, bias=None, eps=1e-5, cudnn_enabled=True, N=None, C=None,
               HxW=None, group=None):
    channels = input.shape[1]
    x, order = _channels_last(input)
    y = native.group_norm(x, num_groups or group, _channels(at, weight, channels, _ones),
                          _channels(at, bias, channels, _zeros), eps)
    y = Placed(y, order)
    return (y, None, None) if at.node.op == "aten.native_group_norm" else y


@row("aten.instance_norm")
def instance_norm(at, input, weight=None, bias=None, running_mean=None, running_var=None, use_input_stats=True,
                  momentum=0.1, eps=1e-5, cudnn_enabled=True):
    if running_mean is not None or not use_input_stats:
        raise Refused("instance norm with running statistics", "Leave track_running_stats off.")
    channels = input.shape[1]
    x, order = _channels_last(input)
    y = native.group_norm(x, channels, _channels(at, weight, channels, _ones),
                          _channels(at, bias, channels, _zeros), eps)
    return Placed(y, order)


@row("aten._weight_norm", "aten._weight_norm_interface")
def weight_norm(at, v, g, dim=0):
    axis = dim % len(v.shape)
    length = native.weight_norm(v.tensor, layout.plain(g).reshape([v.shape[axis]]), v.order[axis])
    y = Placed(length, v.order)
    return (y, None) if at.node.op.endswith("interface") else y


@row("aten.local_response_norm")
def local_response_norm(at, **_):
    raise Refused("local response norm", "Use a batch norm.")


@row("aten.normalize")
def normalize(at, self, p=2, dim=1, eps=1e-12):
    from .reductions import norm
    length = norm(at, self, p, [dim], True)
    return at.each(lambda x, n: x / nn.maximum(n, at.number(eps)), self, length)


