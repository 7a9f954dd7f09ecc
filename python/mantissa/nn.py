"""Layers, losses and operations on symbolic tensors. Layers create their parameters under the name they are given.

Images are [batch, height, width, channels]. Axes may be negative: they count from the end.
"""
from ._native import (Scope, Tensor, abs, argmax, attention, batch_norm, binary_cross_entropy, concat, conv2d, cos,
                      cross_entropy, dropout, embedding, equal, erf, exp, gelu, huber_loss, l1_loss, layer_norm, less,
                      less_equal, linear, log, matmul, max_pool2d, maximum, metric, minimum, mse_loss, pad, parameter,
                      relu, rms_norm, select, sigmoid, sin, slice, softmax, softplus, split, sqrt, stop_gradient,
                      swish, tanh)


def scope(x, name):
    """`with nn.scope(x, "block1"):` what is recorded in it, and its parameters, stand under this name."""
    return Scope(x, name)


__all__ = ["Tensor", "abs", "argmax", "attention", "batch_norm", "binary_cross_entropy", "concat", "conv2d", "cos",
           "cross_entropy", "dropout", "embedding", "equal", "erf", "exp", "gelu", "huber_loss", "l1_loss",
           "layer_norm", "less", "less_equal", "linear", "log", "matmul", "max_pool2d", "maximum", "metric",
           "minimum", "mse_loss", "pad", "parameter", "relu", "rms_norm", "scope", "select", "sigmoid", "sin",
           "slice", "softmax", "softplus", "split", "sqrt", "stop_gradient", "swish", "tanh"]
