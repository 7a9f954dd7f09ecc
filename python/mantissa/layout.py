"""Where a value's axes lie. A value is a stored tensor, and an order: axis i of it is axis order[i] of what is stored.

Permutations cost nothing until somebody needs the axes in a place. So images whose axes a framework counts as
[N, C, H, W] lie as [N, H, W, C] from one convolution to the next.
"""
import math

from ._native import operations as native

NCHW = (0, 3, 1, 2)  # images and their like, stored with channels last
NCW = (0, 2, 1)
NCDHW = (0, 4, 1, 2, 3)


class Placed:
    """A value as it lies: `tensor` is stored, axis i of the value is its axis order[i]."""
    __slots__ = ("tensor", "order")

    def __init__(self, tensor, order=None):
        self.tensor = tensor
        self.order = tuple(range(len(tensor.shape))) if order is None else tuple(order)

    @property
    def shape(self):
        stored = self.tensor.shape
        return tuple(stored[axis] for axis in self.order)

    @property
    def dtype(self):
        return self.tensor.dtype


class Merged(Placed):
    """A value of which some axes are several axes of another one, which do not lie side by side: as [T, B, C] that
    lies as [B, T, C], seen as [T B, C]. Nothing moves until somebody reads the tensor; a view may part them again."""
    __slots__ = ("whole", "_extents", "_moved")

    def __init__(self, whole, extents):
        self.whole, self._extents, self._moved = whole, tuple(extents), None
        self.order = tuple(range(len(self._extents)))

    @property
    def tensor(self):
        if self._moved is None:
            self._moved = plain(self.whole).reshape(list(self._extents))
        return self._moved

    @property
    def shape(self):
        return self._extents

    @property
    def dtype(self):
        return self.whole.dtype


def _stretched(order, shape):
    """The order of axes that are longer than 1: the others lie anywhere."""
    return tuple(axis for axis, extent in zip(order, shape) if extent != 1)


def lies_as(x, order):
    """Whether the tensor is stored in this order, but for axes of extent 1."""
    mine, other = _stretched(x.order, x.shape), _stretched(order, x.shape)
    return sorted(range(len(mine)), key=mine.__getitem__) == sorted(range(len(other)), key=other.__getitem__)


def stored_as(x, order):
    """The tensor whose axis order[i] is axis i of x."""
    order = tuple(order)
    if x.order == order:
        return x.tensor
    shape = [0] * len(order)
    for axis, extent in enumerate(x.shape):
        shape[order[axis]] = extent
    if lies_as(x, order):
        return x.tensor.reshape(shape)
    taken = [0] * len(order)
    for axis, place in enumerate(order):
        taken[place] = x.order[axis]
    return x.tensor.transpose(taken)


def plain(x):
    """The tensor with the axes of x as they are counted."""
    return stored_as(x, range(len(x.order)))


def permuted(x, axes):
    """Axis i of the result is axis axes[i] of x."""
    if isinstance(x, Merged):
        parts = [left for left, _ in _groups(x.whole.shape, x.shape)]
        whole = permuted(x.whole, [axis for to in axes for axis in parts[to]])
        return Merged(whole, [x.shape[axis] for axis in axes])
    return Placed(x.tensor, [x.order[axis] for axis in axes])


def with_rank(x, rank):
    """x with axes of extent 1 in front."""
    missing = rank - len(x.order)
    if missing <= 0:
        return x
    return Placed(x.tensor.reshape([1] * missing + list(x.tensor.shape)),
                  list(range(missing)) + [place + missing for place in x.order])


def together(values):
    """The tensors of values that broadcast, in one order, and that order: the order of the largest."""
    rank = max(len(x.order) for x in values)
    leader = max(values, key=lambda x: (len(x.order), math.prod(x.shape)))
    order = with_rank(leader, rank).order
    return [x.tensor if not x.order else stored_as(with_rank(x, rank), order) for x in values], order


def _groups(before, after):
    """Runs of axes that have as many elements before as after: pairs of lists of axes."""
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = [], []
        product_left = product_right = 1
        if i < len(before):
            left.append(i)
            product_left *= before[i]
            i += 1
        if j < len(after):
            right.append(j)
            product_right *= after[j]
            j += 1
        while product_left != product_right:
            if product_left < product_right:
                left.append(i)
                product_left *= before[i]
                i += 1
            else:
                right.append(j)
                product_right *= after[j]
                j += 1
        yield left, right


def _parted(before, after):
    """The extents that both shapes are made of, as [8, 6, 64] for [8, 384] and [48, 64]; None: there are none."""
    ends = sorted({math.prod(shape[:axis + 1]) for shape in (before, after) for axis in range(len(shape))} - {1})
    extents = [end // start for start, end in zip([1] + ends, ends)]
    return extents if math.prod(extents) == math.prod(after) and 1 not in after else None


def viewed(x, shape):
    """x with its elements, in the order of its axes, under another shape. Moves them only where it must."""
    shape = list(shape)
    if list(x.shape) == shape:
        return x
    if isinstance(x, Merged):
        return viewed(x.whole, shape)
    if x.order == tuple(range(len(x.order))):
        return Placed(x.tensor.reshape(shape))
    before = [(axis, extent) for axis, extent in enumerate(x.shape) if extent != 1]
    after = [(axis, extent) for axis, extent in enumerate(shape) if extent != 1]
    place = {axis: at for at, axis in enumerate(sorted((axis for axis, _ in before), key=lambda a: x.order[a]))}
    runs = []
    for left, right in _groups([extent for _, extent in before], [extent for _, extent in after]):
        places = [place[before[axis][0]] for axis in left]
        if places != list(range(places[0], places[0] + len(places))):
            parts = _parted(x.shape, shape)
            return Merged(viewed(x, parts), shape) if parts else Placed(plain(x).reshape(shape))
        runs.append((places[0], [after[axis][0] for axis in right]))
    stored = [axis for _, axes in sorted(runs) for axis in axes]
    stored += [axis for axis, extent in enumerate(shape) if extent == 1]
    order = [0] * len(shape)
    for at, axis in enumerate(stored):
        order[axis] = at
    return Placed(x.tensor.reshape([shape[axis] for axis in stored]), order)


def rows_of(x, count=1):
    """x with its last `count` axes stored last, and those before in whatever order they lie: what reads rows wants no
    more. Axes before may be more than those of x, whose shape `viewed` gives back."""
    whole = x.whole if isinstance(x, Merged) else x
    last = x.shape[len(x.shape) - count:]
    lead, size = len(whole.shape), 1
    while size < math.prod(last):
        lead -= 1
        size *= whole.shape[lead]
    if size != math.prod(last) or lead < 0:
        return Placed(plain(x))
    rows = sorted(range(lead), key=lambda axis: whole.order[axis])
    order = [rows.index(axis) for axis in range(lead)]
    tensor = stored_as(whole, order + list(range(lead, len(whole.shape))))
    return Placed(tensor.reshape([whole.shape[axis] for axis in rows] + list(last)),
                  order + [lead + i for i in range(count)])


def broadcast(x, shape):
    """x stretched to the shape."""
    x = with_rank(x, len(shape))
    stored = [0] * len(shape)
    for axis, extent in enumerate(shape):
        stored[x.order[axis]] = extent
    if list(x.tensor.shape) == stored:
        return x
    return Placed(native.broadcast_to(x.tensor, stored), x.order)
