"""Attention: one operation where its mask is none or causal, else spelled out, where the engine finds it again."""
import math

import numpy as np

from .. import constants, layout
from .._native import operations as native
from ..layout import Placed
from .contractions import product
from .elementwise import _chosen
from .reductions import safe_softmax
from .registry import Refused, row


def _mask_kind(mask):
    """'full' or 'causal' where a constant mask is that; else None."""
    held = mask if mask.dtype == bool else None
    if held is None:
        if (mask == 0).all():
            return "full"
        least = mask.min()
        if not np.isin(mask, [0, least]).all() or least > -1e9:
            return None
        held = mask == 0
    cut = constants.without_repeats(held)
    if cut.size == 1:
        return "full" if cut.all() else None
    if cut.ndim < 2 or cut.size != cut.shape[-1] * cut.shape[-2]:
        return None
    band = constants.band_of(cut.reshape(cut.shape[-2:]))
    return "causal" if band == (None, 0) else None


def _repeated(at, x, heads):
    """Keys and values of fewer heads, each for as many heads of queries."""
    B, G, S, D = x.shape
    if G == heads:
        return x
    t = layout.plain(x).reshape([B, G, 1, S, D])
    return Placed(native.broadcast_to(t, [B, G, heads // G, S, D]).reshape([B, heads, S, D]))


@row("aten.scaled_dot_product_attention")
def scaled_dot_product_attention(at, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    drops = dropout_p > 0 and at.is_training and not at.is_still
    mask = at.array("attn_mask")
    if mask is not None:
        kind = _mask_kind(mask)
        if kind == "causal":
            is_causal = True
        if kind:
            attn_mask = None
    rank = len(query.shape)
    if attn_mask is None and not drops and rank in (3, 4):
        tensors = [layout.plain(x) for x in (query, key, value)]
        if rank == 3:
            tensors = [x.reshape([x.shape[0], 1] + list(x.shape[1:])) for x in tensors]
        y = native.attention(*tensors, bool(is_causal), factor)
        return Placed(y.reshape(list(at.shape)))
    if rank == 4 and enable_gqa:
        key, value = (_repeated(at, x, query.shape[1]) for x in (key, value))
    return _spelled_out(at, query, key, value, attn_mask, dropout_p if drops else 0.0, is_causal, factor)


def _spelled_out(at, query, key, value, attn_mask, rate, is_causal, factor):
    scores = product(at, query, layout.permuted(key, list(range(len(key.shape) - 2)) + [-1 % len(key.shape),
                                                                                       -2 % len(key.shape)]))
    scores = at.each(lambda x: x * float(factor), scores, dtype="f32")
    T, S = scores.shape[-2:]
    if is_causal:
        visible = constants.placed(at.anchor, np.tril(np.ones((T, S), bool)))
        scores = _chosen(at, layout.broadcast(visible, scores.shape), scores, -math.inf, "f32")
    if attn_mask is not None:
        if attn_mask.dtype == "bool":
            scores = _chosen(at, layout.broadcast(attn_mask, scores.shape), scores, -math.inf, "f32")
        else:
            scores = at.each(lambda x, m: x + m, scores, attn_mask, dtype="f32")
    weights = safe_softmax(at, scores, -1)  # a query that sees no key gives zeros
    if rate:
        weights = Placed(native.dropout(weights.tensor, rate), weights.order)
    return product(at, weights, value)


@row("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(at, weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=-1):
    """Bags of one size: offsets are constant and evenly spaced, as the module makes them of ids [B, N]."""
    begins = at.array("offsets")
    if begins is None:
        raise Refused("bags whose sizes the batch decides", "Give ids as [bags, ids of each], without offsets.")
    if scale_grad_by_freq or sparse:
        raise Refused("sparse or scaled gradients", "Leave sparse and scale_grad_by_freq off.")
    count = indices.shape[0]
    bags = begins.shape[0] - (1 if include_last_offset else 0)
    each = count // max(1, bags)
    if bags * each != count or not np.array_equal(begins[:bags], np.arange(bags) * each):
        raise Refused("bags of different sizes", "Fill them up with padding_idx, and give ids as [bags, ids of each].")
    ids = layout.plain(indices).reshape([bags, each])
    weights = None if per_sample_weights is None else layout.plain(per_sample_weights).reshape([bags, each])
    y = native.embedding_bag(layout.plain(weight), ids, ["sum", "mean", "max"][mode], weights,
                             None if padding_idx is None or padding_idx < 0 else padding_idx)
    return (Placed(y), None, None, None)


