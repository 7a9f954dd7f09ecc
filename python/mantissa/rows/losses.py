"""Losses, each as the framework counts it."""
import math

from .. import layout, nn
from .._native import operations as native
from ..layout import Placed
from .elementwise import _chosen
from .reductions import _sum, reduced
from .registry import Refused, row

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def _reduction(at, losses, reduction):
    if reduction == 0:
        return losses
    axes = list(range(len(losses.shape)))
    if not axes:
        return losses
    function = (lambda x, over: x.mean(over)) if reduction == 1 else _sum
    return reduced(losses, axes, False, function)


def _classes_last(x):
    """Logits [N, C, ...] as the tensor [N, ..., C]."""
    rank = len(x.shape)
    if rank < 2:
        return layout.plain(x).reshape([1, x.shape[0]])
    return layout.stored_as(x, (0, rank - 1) + tuple(range(1, rank - 1)))


def _nan_of_none(at, targets, ignored):
    """0, but NaN where all targets are ignored: 0 times their number, over it."""
    kept = native.logical_not(nn.equal(targets, native.constant(at.anchor, ignored, "i32")))
    count = kept.cast("f32").sum()
    return count * 0.0 / count


@row("aten.cross_entropy_loss")
def cross_entropy_loss(at, self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    logits = _classes_last(self)
    if target.dtype == "f32":
        targets = _classes_last(target)
        if reduction == 1 and weight is not None:
            raise Refused("weights of classes with soft targets", "Leave one of both out.")
        ignored = None
    else:
        targets = layout.plain(target)
        if not target.shape:
            targets = targets.reshape([1])
        ignored = ignore_index
    loss = native.cross_entropy(logits, targets, None if weight is None else layout.plain(weight),
                                float(label_smoothing), ignored, _REDUCTIONS[reduction])
    if ignored is not None and reduction == 1:
        loss = loss + _nan_of_none(at, targets, ignored)
    return Placed(loss.reshape(list(at.shape)))


@row("aten.nll_loss", "aten.nll_loss_nd", "aten.nll_loss2d", "aten.nll_loss_forward")
def nll_loss(at, self, target, weight=None, reduction=1, ignore_index=-100):
    if at.node.op == "aten.nll_loss_forward":
        raise Refused("nll_loss_forward")
    x, ids = _classes_last(self), layout.plain(target)
    if not target.shape:
        ids = ids.reshape([1])
    kept = native.logical_not(nn.equal(ids, native.constant(at.anchor, ignore_index, "i32")))
    safe = nn.select(kept, ids, native.constant(at.anchor, 0, "i32"))
    picked = native.gather(x, len(x.shape) - 1, safe.reshape(list(ids.shape) + [1])).reshape(list(ids.shape))
    counts = nn.select(kept, native.constant(at.anchor, 1.0), native.constant(at.anchor, 0.0))
    if weight is not None:
        table = layout.plain(weight).reshape([-1, 1])
        counts = nn.embedding(table, safe).reshape(list(ids.shape)) * counts
    losses = -picked * counts
    if reduction == 0:
        return Placed(losses.reshape(list(at.shape)))
    total = losses.sum()
    return Placed(total if reduction == 2 else total / nn.maximum(counts.sum(), native.constant(at.anchor, 1e-30)))


def _of_difference(op, function):
    @row(op)
    def record(at, self, target, reduction=1, **options):
        losses = at.each(lambda a, b: function(at, a - b, **options), self, target)
        return _reduction(at, losses, reduction)


def _smooth_l1(at, difference, beta=1.0):
    size = nn.abs(difference)
    if beta == 0:
        return size
    return nn.select(nn.less(size, at.number(beta)), difference * difference * (0.5 / beta), size - 0.5 * beta)


def _huber(at, difference, delta=1.0):
    size = nn.abs(difference)
    return nn.select(nn.less_equal(size, at.number(delta)), difference * difference * 0.5,
                     (size - 0.5 * delta) * float(delta))


_of_difference("aten.mse_loss", lambda at, d: d * d)
_of_difference("aten.l1_loss", lambda at, d: nn.abs(d))
_of_difference("aten.smooth_l1_loss", _smooth_l1)
_of_difference("aten.huber_loss", _huber)


@row("aten.binary_cross_entropy_with_logits")
def bce_with_logits(at, self, target, weight=None, pos_weight=None, reduction=1):
    """softplus(x) - t x; with weights of positives, (1 - t) x + (1 + (p - 1) t) softplus(-x)."""
    if pos_weight is None:
        losses = at.each(lambda x, t: nn.softplus(x) - t * x, self, target, dtype="f32")
    else:
        losses = at.each(lambda x, t, p: (1.0 - t) * x + ((p - 1.0) * t + 1.0) * nn.softplus(-x), self, target,
                         pos_weight, dtype="f32")
    if weight is not None:
        losses = at.each(lambda a, w: a * w, losses, weight, dtype="f32")
    return _reduction(at, losses, reduction)


@row("aten.binary_cross_entropy")
def bce(at, self, target, weight=None, reduction=1):
    """Logarithms are not below -100, as there."""
    def loss(p, t):
        low = at.number(-100.0, "f32")
        return -(t * nn.maximum(nn.log(p), low) + (1.0 - t) * nn.maximum(nn.log(1.0 - p), low))
    losses = at.each(loss, self, target, dtype="f32")
    if weight is not None:
        losses = at.each(lambda a, w: a * w, losses, weight, dtype="f32")
    return _reduction(at, losses, reduction)


@row("aten.kl_div")
def kl_div(at, self, target, reduction=1, log_target=False):
    if log_target:
        losses = at.each(lambda x, t: nn.exp(t) * (t - x), self, target)
    else:
        positive = at.each(lambda t: nn.less(at.number(0), t), target)
        safe = _chosen(at, positive, target, 1.0)
        losses = _chosen(at, positive, at.each(lambda x, t, s: t * (nn.log(s) - x), self, target, safe), 0.0,
                         dtype="f32")
    return _reduction(at, losses, reduction)


def _distance(at, a, b, p, eps):
    if p != 2:
        raise Refused(f"a distance of order {p}", "Use 2.")
    axis = len(a.shape) - 1
    square = at.each(lambda x, y: (x - y + float(eps)) * (x - y + float(eps)), a, b, dtype="f32")
    total = reduced(square, [axis], False, _sum)
    is_none = at.each(lambda x: nn.equal(x, at.number(0, "f32")), total, dtype="f32")
    root = at.each(nn.sqrt, _chosen(at, is_none, 1.0, total, "f32"), dtype="f32")
    return _chosen(at, is_none, 0.0, root, "f32")


@row("aten.pairwise_distance")
def pairwise_distance(at, x1, x2, p=2, eps=1e-6, keepdim=False):
    return layout.viewed(_distance(at, x1, x2, p, eps), at.shape)


@row("aten.triplet_margin_loss")
def triplet_margin_loss(at, anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, reduction=1):
    if swap:
        raise Refused("triplet loss with swap")
    near, far = (_distance(at, anchor, x, p, eps) for x in (positive, negative))
    losses = at.each(lambda a, b: native.clamp(a - b + float(margin), 0.0, math.inf), near, far, dtype="f32")
    return _reduction(at, losses, reduction)


@row("aten.cdist", "aten._cdist_forward", "aten._euclidean_dist")
def cdist(at, x1, x2, p=2, compute_mode=None):
    a = layout.viewed(x1, x1.shape[:-1] + (1, x1.shape[-1]))
    b = layout.viewed(x2, x2.shape[:-2] + (1,) + x2.shape[-2:])
    return _distance(at, a, b, p, 0.0)


@row("aten.margin_ranking_loss")
def margin_ranking_loss(at, input1, input2, target, margin=0.0, reduction=1):
    losses = at.each(lambda a, b, t: native.clamp(-t * (a - b) + float(margin), 0.0, math.inf), input1, input2, target,
                     dtype="f32")
    return _reduction(at, losses, reduction)


_LEAST = -1e30  # the logarithm of what cannot be: finite, so that no gradient is NaN


def _log_sum(terms, most):
    """The logarithm of a sum of exponentials."""
    total = nn.exp(terms[0] - most)
    for each in terms[1:]:
        total = total + nn.exp(each - most)
    return nn.log(total) + most


@row("mantissa.ctc_loss")
def ctc_loss(at, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    """Losses [N]: sums over alignments in logarithms, over places [N, 2 S + 1] of blank, target, blank, ... (Graves et al.,
    2006, section 4.1). A step of the loop is one of the inputs, and the state after the last of each example counts."""
    x, ids, T, N, S = layout.plain(log_probs), layout.plain(targets), *log_probs.shape[:2], targets.shape[1]
    places = [N, 2 * S + 1]
    # Numbers are read at lengths, which says that these are lengths: there is an error where one is too large.
    steps, ends = (native.gather(native.iota(at.anchor, [most + 1], 0), 0, layout.plain(each)).reshape(shape)
                   for each, most, shape in ((input_lengths, T, [1, N, 1]), (target_lengths, S, [N, 1])))

    def wide(value, shape, dtype="f32"):
        return native.broadcast_to(native.constant(at.anchor, value, dtype), shape)

    def either(condition, shape, there=0.0, elsewhere=_LEAST):
        return nn.select(condition, wide(there, shape), wide(elsewhere, shape))

    def counted(shape, axis, number):
        return native.iota(at.anchor, shape, axis), native.broadcast_to(number, shape)

    ids = nn.select(nn.less(*counted([N, S], 1, ends)), ids, wide(blank, [N, S], "i32"))
    labels = nn.concat([nn.concat([wide(blank, [N, S, 1], "i32"), ids.reshape([N, S, 1])], 2).reshape([N, 2 * S]),
                        wide(blank, [N, 1], "i32")], 1)
    last_but_one = nn.concat([wide(blank, [N, 2], "i32"), nn.slice(labels, 1, 0, 2 * S - 1)], 1)
    skips = either(nn.equal(labels, last_but_one), places, _LEAST, 0.0)  # no blank is left out, nor one between equals
    of_labels = native.gather(x, 2, native.broadcast_to(labels.reshape([1] + places), [T] + places))

    def step(now, parts, whole):
        a, (may_skip, none) = now[0], whole
        one = nn.concat([nn.slice(none, 1, 0, 1), nn.slice(a, 1, 0, 2 * S)], 1)
        two = nn.concat([none, nn.slice(a, 1, 0, 2 * S - 1)], 1) + may_skip
        most = nn.stop_gradient(nn.maximum(nn.maximum(a, one), two))
        return [_log_sum([a, one, two], most) + parts[0]], []

    begin = either(nn.equal(native.iota(at.anchor, places, 1), wide(0, places, "i32")), places)
    kept = native.scan([begin], [of_labels], [skips, wide(_LEAST, [N, 2])], step, False)[0][0]
    is_last = nn.equal(*counted([T + 1] + places, 0, steps))
    made = nn.select(is_last, kept, wide(0.0, [T + 1] + places)).sum([0])
    place, end = counted(places, 1, ends + ends)
    is_end = nn.equal(place, end)
    is_before = nn.equal(native.iota(at.anchor, places, 1) + wide(1, places, "i32"), end)
    made = made + nn.select(is_end, wide(0.0, places), either(is_before, places))
    most = nn.stop_gradient(made.max([1])).reshape([N, 1])
    losses = -(nn.log(nn.exp(made - most).sum([1])) + most.reshape([N]))
    none = nn.less(wide(-_LEAST / 2, [N]), losses)
    if zero_infinity:
        return Placed(nn.select(none, wide(0.0, [N]), losses))
    return Placed(losses * nn.select(none, wide(math.inf, [N]), wide(1.0, [N])))  # the gradient, too, is no number, as torch's


@row("aten.gaussian_nll_loss", "aten.multilabel_margin_loss", "aten.multi_margin_loss")
def others(at, **_):
    from .advice import advice_for
    raise Refused(at.node.op, advice_for(at.node.op))


