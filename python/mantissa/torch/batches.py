"""Batches as a trainer is given them, as the arrays that it takes: tuples or dictionaries, of any number of examples and,
but for their ranks, any shape; lengths that are rounded up; examples along another axis than the first."""
import numbers

import torch

from .. import _native
from ..program import TYPES
from ..trainer import arrays_of

_HALF = (torch.float16, torch.bfloat16)
FILLS = {"input_ids": 0, "attention_mask": 0, "token_type_ids": 0, "position_ids": 0, "inputs_embeds": 0.0, "labels": -100,
         "decoder_input_ids": 0, "decoder_attention_mask": 0}  # of transformers' modules


def as_given(example):
    """The tensors of an example, and their names where it is a dictionary. Raises Error for what is none."""
    if not isinstance(example, (tuple, list, dict)):
        raise _native.Error(f"example is a batch, a tuple as (x, y) or a dictionary, got {type(example).__name__}")
    values, names = (list(example.values()), list(example)) if isinstance(example, dict) else (list(example), None)
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise _native.Error(f"an example is of tensors, got {type(value).__name__}")
    if not values:
        raise _native.Error("the example has no tensor")
    return [value.detach().cpu() for value in values], names


class Batches:
    """What batches of a trainer are, by its example.

    inputs  how many of a tuple the module takes
    axis    along which examples lie: that of the first input, or a dictionary of inputs, by name or number, in which None
            is one value for all. Of all others it is the axis that has as many examples
    """

    def __init__(self, example, *, inputs=None, axis=None, pad_to=None, fill=None, is_half=False, accumulate=1):
        values, self.names = as_given(example)
        if is_half:
            values = [value.float() if value.dtype in _HALF else value for value in values]
        self.split = len(values) if self.names else (len(values) - 1 if inputs is None else inputs)
        self.examples = values
        said = self._axes_said(axis)
        # The first that is not one for all: it has the number of examples and the length.
        self._first = next((index for index in range(len(values)) if said.get(index, 0) is not None), 0)
        self.is_axis_said, value = self._first in said, values[self._first]
        first = said.setdefault(self._first, 0) or 0
        rows = value.shape[first] if value.dim() else 1
        self.axes = [self._axis_said(index, said[index], rows) if index in said else
                     self._axis_found(index, first, rows, accumulate) for index in range(len(values))]
        self._length_axes = [1 - (first if axis is None else axis) for axis in self.axes]
        self._lengths = self._checked_lengths(pad_to)
        self._fills = self._fills_of(fill or {}) if self._lengths else {}
        self.examples = [self._padded(index, value, self.length(values)) for index, value in enumerate(values)]
        self.rows, (self.per_micro_batch, rest) = rows, divmod(rows, accumulate or 1)
        if rest:
            raise _native.Error(f"{rows} examples are no {accumulate} micro-batches of one size")

    def _axes_said(self, given):
        """What batch_axis says of inputs, by their numbers."""
        keys = self.names or range(len(self.examples))
        given = given if isinstance(given, dict) else {} if given is None else {keys[0]: given}
        made = {}
        for key, axis in given.items():
            if key not in keys:
                raise _native.Error(f"batch_axis names {key!r}, which is no input of the example; there are "
                                    f"{', '.join(map(str, keys))}")
            made[list(keys).index(key)] = axis
        return made

    def _axis_said(self, index, axis, rows):
        shape = self.examples[index].shape
        if axis is None or not shape:
            return None
        if not isinstance(axis, numbers.Integral) or axis not in (0, 1) or axis >= len(shape):
            raise _native.Error(f"batch_axis of {self.name_of(index)} is 0 or 1, an axis of its {list(shape)}, or None for one "
                                f"value for all, got {axis!r}")
        if shape[axis] != rows:
            raise _native.Error(f"batch_axis says that axis {axis} of {self.name_of(index)} has the examples, of its "
                                f"{list(shape)}, and {self.name_of(self._first)} has {rows} examples")
        return int(axis)

    def _axis_found(self, index, first, rows, accumulate):
        """The axis of examples, or None for a value that is one for all of them."""
        shape = self.examples[index].shape
        fit = [axis for axis, extent in enumerate(shape) if extent == rows]
        if fit[:1] == [0] and (first == 0 or fit[:2] != [0, 1]):  # the first is torch's, where nothing says otherwise
            return 0
        if fit[:1] == [1] and first == 1:
            return 1
        if fit[:2] == [0, 1] or (fit and accumulate > 1):
            key = self.names[index] if self.names else index
            raise _native.Error(f"{self.name_of(index)} has the shape {list(shape)}, which leaves open where its {rows} examples "
                                f"are: batch_axis={{{key!r}: 0}} says along its first axis, 1 along its second, None that it is "
                                "one value for all")
        return None

    def name_of(self, index):
        return self.names[index] if self.names else f"number {index} of a batch"

    # Lengths that are rounded up.

    def _checked_lengths(self, pad_to):
        if pad_to is None:
            return ()
        given = pad_to if isinstance(pad_to, (tuple, list)) else (pad_to,)
        if not given or not all(isinstance(each, numbers.Integral) and each > 0 for each in given):
            raise _native.Error(f"pad_to is a length or several, as (64, 128, 256), got {pad_to!r}")
        first, axis = self.examples[self._first], self._length_axes[self._first]
        if first.dim() <= axis:
            raise _native.Error(f"pad_to rounds axis {axis} of {self.name_of(self._first)} up, which has the shape "
                                f"{list(first.shape)}")
        return tuple(sorted(int(each) for each in given))

    def _fills_of(self, given):
        """What each input that has the length is filled with, by its number."""
        fills = {}
        for key in given:
            if key not in (self.names or range(len(self.examples))):
                raise _native.Error(f"fill names {key!r}, which is no input of the example; there are "
                                    f"{', '.join(map(str, self.names or range(len(self.examples))))}")
        for index, value in enumerate(self.examples):
            if not self._has_length(index, value, self.length(self.examples)):
                continue
            key = self.names[index] if self.names else index
            known = FILLS.get(key) if self.names else 0 if index < self.split else \
                -100 if not value.dtype.is_floating_point else None
            if given.get(key, known) is None:
                raise _native.Error(f"pad_to needs a number for {self.name_of(index)}, which has the length of the batch: "
                                    f"fill={{{key!r}: 0}}, say")
            fills[index] = given.get(key, known)
        return fills

    def _has_length(self, index, value, length):
        axis = self._length_axes[index]
        return value.dim() > axis and value.shape[axis] == length

    def length(self, values):
        axis = self._length_axes[self._first]
        return values[self._first].shape[axis] if values[self._first].dim() > axis else 1

    def _padded(self, index, value, length, to=None):
        """The value at the next greater length; one longer than the greatest stays as it is."""
        to = to or next((each for each in self._lengths if each >= length), length)
        if index not in self._fills or to == length or not self._has_length(index, value, length):
            return value
        axis, shape = self._length_axes[index], list(value.shape)
        shape[axis] = to - length
        return torch.cat([value, value.new_full(shape, self._fills[index])], axis)

    def refuse_padding_that_counts(self, loss_of):
        """loss_of(values): eager's. A part of the example must have one loss, padded or not: two of its rows, or all where
        those have none, as where all their targets are ignored."""
        if not self._lengths:
            return
        length = self.length(self.examples)
        for rows in (min(2, self.rows), self.rows):
            part = [value.narrow(self._length_axes[index], 0, max(1, length * 3 // 4)) if index in self._fills else value
                    for index, value in enumerate(self.first(rows))]
            plain = loss_of(part)
            if abs(plain) < float("inf"):
                break
        short = self.length(part)
        padded = loss_of([self._padded(index, value, short, length) for index, value in enumerate(part)])
        if short < length and not abs(plain - padded) <= 1e-4 * max(abs(plain), 1e-3):
            raise _native.Error(f"pad_to would change the loss: of {short} positions of the example it is {plain:.7g}, and "
                                f"filled up to {length} it is {padded:.7g}. A mask must hide what is filled in, and targets "
                                "there count for nothing, as -100 does; fill= says with what")

    # Arrays of a batch.

    def values(self, batch, is_padded=True):
        """The tensors of a batch, in the order of the example's."""
        if len(batch) == 1 and isinstance(batch[0], dict):
            missing = [name for name in self.names or () if name not in batch[0]]
            if missing or not self.names:
                raise _native.Error(f"the batch has no {missing[0]!r}, and the example has" if missing else
                                    "the batch is a dictionary, and the example is none")
            batch = [batch[0][name] for name in self.names]
        values = [torch.as_tensor(value).detach().cpu() for value in arrays_of(batch)]
        for index, value in enumerate(values[:len(self.examples)]):
            meant = self.examples[index]
            if value.dtype.is_floating_point and not meant.dtype.is_floating_point:
                raise _native.Error(f"{self.name_of(index)} is {meant.dtype} in the example, got {value.dtype}")
            if value.dim() != meant.dim():
                raise _native.Error(f"{self.name_of(index)} has {meant.dim()} axes in the example, {list(meant.shape)}, got "
                                    f"{list(value.shape)}")
        if is_padded and self._lengths and values:
            length = self.length(values)
            values = [self._padded(index, value, length) for index, value in enumerate(values)]
        return values

    def arrays(self, batch, is_padded=True):
        """The same as a native trainer takes them: examples along the first axis."""
        arrays = []
        for index, value in enumerate(self.values(batch, is_padded)):
            value = value.to(torch.int32) if value.dtype == torch.bool else value
            axis = self.axes[index] if index < len(self.axes) else None
            arrays.append((value.transpose(0, 1) if axis == 1 else value).contiguous())
        rows = {array.shape[0]: index for index, array in reversed(list(enumerate(arrays[:len(self.axes)])))
                if self.axes[index] is not None}
        if len(rows) > 1:
            (first, at), (other, where) = list(rows.items())[-1], list(rows.items())[0]
            raise _native.Error(f"{self.name_of(where)} has {other} rows, and {self.name_of(at)} has {first}")
        return tuple(arrays)

    def first(self, rows):
        """So many of the example's rows, from the first on."""
        return [value if axis is None else value.narrow(axis, 0, rows) for value, axis in zip(self.examples, self.axes)]

    def last(self, rows):
        return [value if axis is None else value.narrow(axis, value.shape[axis] - rows, rows)
                for value, axis in zip(self.examples, self.axes)]

    # Shapes of traces.

    def of_shapes(self, shapes):
        """Values of the example's numbers in other shapes: those as they are stored."""
        return [value.transpose(0, 1) if axis == 1 else value for value, axis in
                ((_of_shape(_stored(value, axis), shape), axis)
                 for value, axis, shape in zip(self.examples, self.axes, shapes))]

    def shapes(self, rows):
        """The shapes in which so many rows of the example are stored."""
        return tuple((rows,) + tuple(_stored(value, axis).shape[1:]) if axis is not None else tuple(value.shape)
                     for value, axis in zip(self.examples, self.axes))

    def rows_of(self, shapes):
        return next((shape[0] for shape, axis in zip(shapes, self.axes) if axis is not None), 1)

    def inputs(self, types):
        """The native model's inputs: name, type, shape, and whether it is one for all examples."""
        made = []
        for index, (value, axis, dtype) in enumerate(zip(self.examples, self.axes, types)):
            if not TYPES[dtype].given:
                raise _native.Error(f"{self.name_of(index)} is {value.dtype}; give float32, int64, int32, uint8 or bool")
            stored = _stored(value, axis)
            made.append((self.names[index] if self.names else f"input{index}", TYPES[dtype].given,
                         list(stored.shape if axis is None else stored.shape[1:]), axis is None))
        return made


def _stored(value, axis):
    return value.transpose(0, 1) if axis == 1 else value


def _of_shape(value, shape):
    """The value in this shape, its own numbers over again."""
    for axis, extent in enumerate(shape):
        if value.shape[axis] != extent:
            value = value.index_select(axis, torch.arange(extent) % value.shape[axis])
    return value
