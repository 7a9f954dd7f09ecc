"""The rows of imported programs, on programs that were captured before (make_programs.py): no framework is needed.

Loss, gradients and running statistics are those of FP64. That these notice what an importer gets wrong is shown by
mutants: faults that are planted one by one, each of which a program must catch.
"""
import base64
import contextlib
import functools
import json
import math
import pathlib
import unittest

import mantissa
import numpy as np
from mantissa import _native, constants, layout, nn, rows
from mantissa.layout import Placed
from mantissa.program import Node, Program, Ref, Weight
from mantissa.rows import (attention, build, contractions, elementwise, images, movement, norms, reductions, registry,
                           rotations)

FOLDER = pathlib.Path(__file__).parent / "programs"
CLASS = 4e-5  # of FP32: these programs are short


def _array(packed):
    return np.frombuffer(base64.b64decode(packed["bytes"]), packed["dtype"]).reshape(packed["shape"])


@functools.cache
def stored(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def names():
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def trainer_of(name):
    """The program in training, with its weights; how each weight lies; and its inputs."""
    fixture = stored(name)
    program = Program.from_json(json.dumps(fixture["program"]))
    inputs = [np.array(_array(packed)) for packed in fixture["inputs"]]
    lies = build.Weights(program).by_name

    def values(weight):
        return rows.to_stored(_array(fixture["weights"][weight]), lies[weight][1])

    def loss(*tensors):
        is_training = _native.operations.is_training()
        builder = rows.Builder(program, tensors, values=values, is_training=is_training, is_still=not is_training)
        return layout.plain(builder.build([program.loss])[0])

    kinds = {"float32": "f32", "int64": "i32"}
    model = mantissa.Model(name, {f"input{i}": mantissa.whole(value.shape, kinds[str(value.dtype)])
                                  for i, value in enumerate(inputs)}, loss)
    trainer = mantissa.Trainer(model, batch=1, optimizer=mantissa.sgd())
    return trainer, lies, inputs


def distance(a, b):
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-6))


def worst(name):
    """The greatest distance of a program from FP64, and of what."""
    fixture = stored(name)
    trainer, lies, inputs = trainer_of(name)
    loss, gradients = trainer.gradients(*inputs)
    found = [(abs(loss - fixture["loss"]) / abs(fixture["loss"]), "loss")]
    for weight, packed in fixture["gradients"].items():
        expected = _array(packed)
        given = rows.from_stored(gradients[weight], lies[weight][1]) if weight in gradients else np.zeros(expected.shape)
        found.append((distance(given, expected), weight))
    trainer.update(lr=0.0)
    for weight, packed in fixture["running"].items():
        given = np.frombuffer(trainer._trainer.read_state(weight), np.float32)
        found.append((distance(given, _array(packed)), weight))
    return max(found)


class Programs(unittest.TestCase):
    def test_have_the_numbers_of_fp64(self):
        self.assertGreaterEqual(len(names()), 6)
        for name in names():
            with self.subTest(name):
                far, what = worst(name)
                self.assertLess(far, CLASS, what)

    def test_go_through_json(self):
        for name in names():
            program = Program.from_json(json.dumps(stored(name)["program"]))
            self.assertEqual(Program.from_json(program.to_json()).to_json(), program.to_json())

    def test_what_has_no_row_is_refused_all_at_once(self):
        program = Program.from_json(json.dumps(stored("losses")["program"]))
        for node in program.nodes[:3]:
            node.op = "aten.no_such_thing"
        program.nodes[4].op = "aten._fft_r2c"

        def loss(*tensors):
            return layout.plain(rows.Builder(program, tensors, values=len, is_training=False).build([program.loss])[0])
        model = mantissa.Model("losses", {f"input{i}": mantissa.whole(program.types[value][1], kind) for i, (value, kind)
                                          in enumerate(zip(program.inputs, ("f32", "i32", "f32")))}, loss)
        with self.assertRaises(mantissa.rows.CaptureError) as raised:
            mantissa.Trainer(model, batch=1)
        self.assertIn("losses: 2 things in it cannot be trained here:", str(raised.exception))
        self.assertIn("aten.no_such_thing (3 times)", str(raised.exception))
        self.assertIn("There are no complex numbers.", str(raised.exception))


def rotation(**other):
    """x cos + cat([-x[..., 3:], x[..., :3]]) sin of a weight [2, 2, 4, 6], times numbers, added up; `other`: arguments."""
    random = np.random.default_rng(7)
    angles = random.normal(size=(1, 1, 4, 3)).astype(np.float32)
    shape, half = (2, 2, 4, 6), (2, 2, 4, 3)
    tables = {value: np.concatenate([make(angles)] * 2, -1) for value, make in ((1, np.cos), (2, np.sin))}
    constants = {**tables, 3: random.normal(size=shape).astype(np.float32), **other.get("constants", {})}
    nodes = [("mul", dict(self=4, other=1), 5, shape), ("slice", dict(self=4, dim=3, start=0, end=3, step=1), 6, half),
             ("slice", dict(self=4, dim=3, start=3, end=2**63 - 1, step=1), 7, half), ("neg", dict(self=7), 8, half),
             ("cat", dict(tensors=[8, 6], dim=-1), 9, shape), ("mul", dict(self=9, other=2), 10, shape),
             ("add", dict(self=5, other=10, alpha=1), 11, shape), ("mul", dict(self=11, other=3), 12, shape),
             ("sum", dict(self=12), 13, ())]

    def named(name, x):
        is_value = name in ("self", "tensors") or name == "other"
        return [Ref(each) for each in x] if isinstance(x, list) else Ref(x) if is_value else x

    program = Program("rotation", {0: ("f32", (1,)), 4: ("f32", shape), **{made: ("f32", of) for *_, made, of in nodes},
                                   **{value: ("f32", array.shape) for value, array in constants.items()}},
                      inputs=[0], weights=[Weight("w", 4)], constants=constants, loss=13)
    for index, (op, arguments, made, _) in enumerate(nodes):
        arguments = {**arguments, **other.get(f"{op}{made}", {})}
        program.nodes.append(Node(f"aten.{op}", {name: named(name, x) for name, x in arguments.items()}, [made]))
    return program


class Rotations(unittest.TestCase):
    def joined(self, **other):
        program = rotation(**other)
        return [node.op for node in rotations.joined(program, program.used([13]), [13])]

    def test_are_one_operation(self):
        whole = ["mantissa.rotary", "aten.mul", "aten.sum"]
        self.assertEqual(self.joined(), whole)
        self.assertEqual(self.joined(add11=dict(self=10, other=5)), whole)
        self.assertEqual(self.joined(mul5=dict(self=1, other=4)), whole)
        self.assertEqual(self.joined(cat9=dict(dim=3), slice6=dict(dim=-1, start=None)), whole)

    def test_near_misses_stay_as_they_are(self):
        different = np.ones((1, 1, 4, 6), np.float32)
        different[..., 5] = 2
        by_head = np.ones((1, 2, 4, 6), np.float32) * np.array([1, 2], np.float32).reshape(1, 2, 1, 1)
        for other in (dict(constants={1: different}), dict(constants={2: by_head}), dict(add11=dict(alpha=2)),
                      dict(cat9=dict(tensors=[6, 8])), dict(cat9=dict(dim=2)), dict(slice6=dict(start=1, end=4)),
                      dict(slice7=dict(self=3)), dict(mul10=dict(other=4)), dict(mul12=dict(self=11, other=9)),
                      dict(slice7=dict(dim=2, end=6))):
            self.assertNotIn("mantissa.rotary", self.joined(**other), other)

    def test_turn_each_position_by_its_angle(self):
        program = rotation()
        w = np.random.default_rng(8).normal(size=(2, 2, 4, 6)).astype(np.float32)

        def values(name):
            return w

        def loss(*tensors):
            return layout.plain(rows.Builder(program, tensors, values=values, is_training=True).build([13])[0])

        trainer = mantissa.Trainer(mantissa.Model("rotation", {"x": mantissa.whole((1,))}, loss), batch=1)
        got, gradients = trainer.gradients(np.zeros(1, np.float32))
        cosine, sine, weights = (program.constants[value].astype(np.float64) for value in (1, 2, 3))
        turned = w * cosine + np.concatenate([-w[..., 3:], w[..., :3]], -1) * sine
        self.assertAlmostEqual(got, float((turned * weights).sum()), 4)
        back = weights * sine
        expected = weights * cosine + np.concatenate([back[..., 3:], -back[..., :3]], -1)
        self.assertLess(abs(gradients["w"] - expected).max(), 1e-6)
        self.assertIn("rotary", mantissa.explain(trainer.model, batch=1).json)


class Stored:
    """A tensor as layout sees it, of NumPy's."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, "f32"

    def reshape(self, shape):
        return Stored(self.array.reshape(shape))

    def transpose(self, order):
        return Stored(self.array.transpose(order))


class Layouts(unittest.TestCase):
    def test_any_chain_of_views_and_permutations_keeps_the_elements_in_their_places(self):
        random = np.random.default_rng(5)
        merged = 0
        for _ in range(3000):
            array = np.arange(48).reshape(self.extents(random))
            order = [int(axis) for axis in random.permutation(array.ndim)]
            x = Placed(Stored(array.transpose(np.argsort(order))), order)
            for _ in range(4):
                if random.random() < 0.5:
                    axes = [int(axis) for axis in random.permutation(array.ndim)]
                    x, array = layout.permuted(x, axes), array.transpose(axes)
                else:
                    shape = self.extents(random)
                    x, array = layout.viewed(x, shape), array.reshape(shape)
                merged += isinstance(x, layout.Merged)
                self.assertEqual(tuple(x.shape), array.shape)
                rows_of = layout.rows_of(x, int(random.integers(1, array.ndim + 1)))
                np.testing.assert_array_equal(layout.plain(layout.viewed(rows_of, array.shape)).array, array)
                self.assertEqual(rows_of.order[-1], len(rows_of.order) - 1)
            np.testing.assert_array_equal(layout.plain(x).array, array)
        self.assertGreater(merged, 100)

    @staticmethod
    def extents(random):
        factors = list(random.permutation([2, 2, 2, 2, 3]))
        cuts = sorted(random.choice(range(1, 5), size=int(random.integers(0, 4)), replace=False))
        extents = [int(np.prod(part)) for part in np.split(factors, cuts)]
        return extents + [1] * int(random.random() < 0.2)

    def test_rows_that_a_module_has_in_another_order_are_not_moved(self):
        """As torch.nn.MultiheadAttention: [B, T, C] -> [T, B, C] -> a product -> [T B, C] -> a product -> [B, T, C]."""
        moved = []

        class Counted(Stored):
            def reshape(self, shape):
                return Counted(self.array.reshape(shape))

            def transpose(self, order):
                moved.append(order)
                return Counted(self.array.transpose(order))

        x = layout.permuted(Placed(Counted(np.zeros((4, 6, 8)))), [1, 0, 2])
        for shape in ([6, 4, 8], [24, 8], [6, 4, 8]):
            rows_of = layout.rows_of(layout.viewed(x, shape))
            x = layout.viewed(Placed(rows_of.tensor, rows_of.order), shape)
        heads = layout.permuted(layout.viewed(x, [6, 8, 4]), [1, 0, 2])  # [B H, T, D]
        self.assertEqual(layout.viewed(heads, [4, 2, 6, 4]).order, (0, 2, 1, 3))
        self.assertEqual(layout.plain(layout.permuted(x, [1, 0, 2])).shape, (4, 6, 8))
        self.assertEqual(moved, [])


@contextlib.contextmanager
def instead(of, name, value):
    before = getattr(of, name)
    setattr(of, name, value)
    try:
        yield
    finally:
        setattr(of, name, before)


@contextlib.contextmanager
def row_instead(op, make):
    """`make` is given the row that there is."""
    before = registry._rows[op]
    registry._rows[op] = make(before)
    try:
        yield
    finally:
        registry._rows[op] = before


def changed(op, **arguments):
    """The row is given other arguments than the node has."""
    return row_instead(op, lambda record: lambda at, **given: record(at, **dict(given, **{
        name: change(given.get(name)) for name, change in arguments.items()})))


def same(at, self, **_):
    return self


def _swapped(record):
    def made(at, **given):
        i, f, g, o = [given["params"][k] for k in range(4)]
        return record(at, **dict(given, params=[f, i, g, o] + given["params"][4:]))
    return made


MUTANTS = {
    "a detach is dropped": lambda: row_instead("aten.detach", lambda _: same),
    "strides are swapped": lambda: changed("aten.conv2d", stride=lambda s: s[::-1]),
    "paddings are swapped": lambda: changed("aten.conv2d", padding=lambda p: p[::-1]),
    "a dilation is swapped": lambda: changed("aten.conv2d", dilation=lambda d: d[::-1]),
    "filters are turned by a quarter": lambda: instead(images, "_filter", lambda w: layout.stored_as(w, (3, 2, 1, 0))),
    "filters of a transposed convolution lie as of another": lambda: changed(
        "aten.conv_transpose2d", weight=lambda w: Placed(w.tensor, (2, 3, 0, 1))),
    "padding of a transposed convolution is left out": lambda: changed("aten.conv_transpose2d", padding=lambda _: [0, 0]),
    "whole numbers are divided toward zero": lambda: row_instead("aten.floor_divide", lambda _: lambda at, self, other:
                                                                 at.each(lambda a, b: a - a + b, self, other)),
    "a promotion is forgotten": lambda: row_instead("aten.div", lambda _: lambda at, self, other, **_o: at.cast(
        Placed(_native.operations.floor(at.value(self).tensor * 0.5), self.order)) if self.dtype == "i32" else
        at.each(lambda a, b: a / b, self, other)),
    "softmax runs along another axis": lambda: changed("aten.softmax", dim=lambda d: -1 - (d % 2)),
    "a mean runs along another axis": lambda: changed("aten.mean", dim=lambda d: [0] if d == [-1] else d),
    "axes are reduced where they lie": lambda: instead(reductions, "axes_of", lambda x, dim: [0] if dim else list(
        range(len(x.shape)))),
    "a permutation is the inverse one": lambda: instead(layout, "permuted", lambda x, axes: Placed(
        x.tensor, [x.order[list(axes).index(i)] for i in range(len(axes))])),
    "a view forgets how its value lies": lambda: instead(layout, "viewed", lambda x, shape: Placed(
        x.tensor.reshape(list(shape)))),
    "a causal mask is forgotten": lambda: changed("aten.scaled_dot_product_attention", is_causal=lambda _: False),
    "the scale of attention is forgotten": lambda: changed("aten.scaled_dot_product_attention", scale=lambda _: None),
    "a constant mask is taken for a causal one": lambda: instead(attention, "_mask_kind", lambda mask: "causal"),
    "a band is one longer": lambda: instead(constants, "band_of", lambda mask, of=constants.band_of: (
        lambda b: b and (b[0], b[1] + 1 if b[1] is not None else None))(of(mask))),
    "ignore_index is dropped": lambda: changed("aten.cross_entropy_loss", ignore_index=lambda _: -100),
    "label smoothing is dropped": lambda: changed("aten.cross_entropy_loss", label_smoothing=lambda _: 0.0),
    "weights of classes are dropped": lambda: changed("aten.cross_entropy_loss", weight=lambda _: None),
    "a sum is a mean": lambda: changed("aten.cross_entropy_loss", reduction=lambda _: 1),
    "padding_idx is dropped": lambda: changed("aten.embedding", padding_idx=lambda _: -1),
    "epsilon of a batch norm is the usual one": lambda: changed("aten._native_batch_norm_legit_functional",
                                                               eps=lambda _: 1e-5),
    "momentum is the other part": lambda: changed("aten._native_batch_norm_legit_functional", momentum=lambda m: 1 - m),
    "a running variance is biased": lambda: instead(_native, "follow", lambda r, s, m, of=_native.follow: of(
        r, s * (1 - 1 / 80), m)),
    "epsilon of a layer norm is the usual one": lambda: changed("aten.layer_norm", eps=lambda _: 1e-5),
    "groups of a norm are one": lambda: changed("aten.group_norm", num_groups=lambda _: 1),
    "corners are not aligned": lambda: changed("aten.upsample_bilinear2d", align_corners=lambda _: False),
    "padding of an average counts": lambda: changed("aten.avg_pool2d", count_include_pad=lambda _: True),
    "gates are in another order": lambda: row_instead("aten.lstm", lambda record: lambda at, **given: record(
        at, **dict(given, params=given["params"][4:8] + given["params"][:4] + given["params"][8:]))),
    "both directions go forward": lambda: instead(rows.recurrences, "_lstm_layer", lambda x, s, p, b, of=rows.recurrences.
                                                  _lstm_layer: of(x, s, p, False)),
    "a roll goes the other way": lambda: changed("aten.roll", shifts=lambda s: [-each for each in s]),
    "the gradient at a bound is 1": lambda: row_instead("aten.clamp", lambda _: lambda at, self, min=None, max=None: at.each(
        lambda x: _native.operations.clamp(x, -math.inf if min is None else min, math.inf if max is None else max),
        self)),
    "alpha is dropped": lambda: changed("aten.add", alpha=lambda _: 1),
    "alpha of rsub scales the other": lambda: row_instead("aten.rsub", lambda _: lambda at, self, other, alpha=1: at.each(
        lambda a, b: b * alpha - a, self, other)),
    "an index is one off": lambda: changed("aten.select", index=lambda i: max(0, i - 1)),
    "a slice begins one later": lambda: row_instead("aten.slice_scatter", lambda record: lambda at, **given: record(
        at, **dict(given, start=(given.get("start") or 0) - 1 if given.get("start") == 1 else given.get("start"),
                   end=given["end"] - 1 if given.get("start") == 1 else given["end"]))),
    "equals share a maximum along an axis": lambda: row_instead("aten.max", lambda record: lambda at, self, dim=None, **o: (
        reductions.reduced(self, [0], False, lambda x, axes: x.max(axes) * 1.5), None) if dim is not None else record(
            at, self=self, dim=dim, **o)),
    "a gather runs along another axis": lambda: changed("aten.gather", dim=lambda _: 1),
    "erf's gelu is the other": lambda: changed("aten.gelu", approximate=lambda _: "tanh"),
    "a diagonal begins one later": lambda: changed("aten.diagonal", offset=lambda _: 1),
    "a constant is turned": lambda: instead(constants, "without_repeats", lambda array, of=constants.without_repeats: (
        lambda cut: np.ascontiguousarray(cut[..., ::-1]) if cut.size > 1 else cut)(of(array))),
}


class Mutants(unittest.TestCase):
    def test_are_caught_each(self):
        self.assertGreaterEqual(len(MUTANTS), 20)
        for fault, plant in MUTANTS.items():
            with self.subTest(fault), plant():
                self.assertTrue(any(self.is_caught(name) for name in names()), fault)

    def is_caught(self, name):
        try:
            return not worst(name)[0] < CLASS
        except mantissa.Error:
            return True


if __name__ == "__main__":
    unittest.main()
