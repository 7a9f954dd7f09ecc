"""Rows that modules of PyTorch seldom need, and buffers that forward changes. Skipped where torch is missing."""
import copy
import math
import sys
import unittest
import unittest.mock

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("skipped: no torch: pip install torch brings it")
    sys.exit(0)

import mantissa
import mantissa.torch
from test_torch import ADAMW, X, Y, OneLayer, trained_by_torch


class Rows(unittest.TestCase):
    """Each beside torch in FP64, forward and gradient: the first step's check."""

    class Module(OneLayer):
        def __init__(self, function):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.function = nn.Linear(6, 3), function

        def forward(self, x):
            return self.function(self.layer(x), x)

    def distance(self, function):
        return mantissa.torch.trainer(self.Module(function), F.cross_entropy, (X, Y)).distance

    def test_extremes_and_products_by_an_index(self):
        ones = torch.tensor([[0], [2], [1], [0], [0], [1], [2], [2]])
        twice, wide = torch.tensor([[0, 0]] * 8), torch.tensor([[0, 2, 1], [3, 3, 3], [0, 1, 1]])
        for reduce in ("amax", "amin", "prod"):
            for whole in (True, False):
                for name, function in {
                        "one": lambda h, x: h.scatter_reduce(1, ones, x[:, :1] * h[:, 1:2], reduce, include_self=whole),
                        "two": lambda h, x: h.scatter_reduce(1, twice, h[:, :2] * x[:, 1:3], reduce, include_self=whole),
                        "rows": lambda h, x: h.scatter_reduce(0, wide, x[:3, :3] * h[:3], reduce, include_self=whole),
                        "equals": lambda h, x: h.scatter_reduce(1, twice, h[:, 1:2].expand(8, 2), reduce,
                                                                include_self=whole)}.items():
                    with self.subTest(reduce=reduce, include_self=whole, name=name):
                        self.assertLess(self.distance(function).gradient, 2e-5)

        class Given(OneLayer):
            def forward(self, x, index):
                return self.layer(x).scatter_reduce(1, index, x[:, :1], "amax")
        step = mantissa.torch.trainer(Given(), F.cross_entropy, (X, ones, Y), inputs=2)
        with self.assertRaisesRegex(mantissa.Error, "3"):  # there is no such place
            step(X, ones + 1, Y, lr=0.1)
        with self.assertRaisesRegex(mantissa.Error, "scatter_reduce by 'prod' of 100 numbers onto 3 places"):
            self.distance(lambda h, x: h.scatter_reduce(1, torch.zeros(8, 100, dtype=torch.long), h[:, :1].expand(8, 100),
                                                        "prod"))

    def test_alignments_of_any_lengths(self):
        class Sequence(OneLayer):
            def forward(self, x):
                return self.layer(x).log_softmax(-1).transpose(0, 1)
        torch.manual_seed(0)
        x, y = torch.randn(4, 9, 6), torch.tensor([[1, 1, 2], [2, 0, 77], [1, 1, 1], [2, 2, 77]])  # 77: nothing reads it
        batch = x, y, torch.tensor([9, 7, 5, 2]), torch.tensor([3, 1, 3, 2])  # the last one has no alignment
        possible = tuple(part[:3] for part in batch)

        def trainer(example, loss):
            return mantissa.torch.trainer(Sequence(), loss, example, inputs=1)

        def ctc(**options):
            return lambda out, y, steps, ends: F.ctc_loss(out, y, steps, ends, **options)
        for reduction in ("mean", "sum"):
            step = trainer(possible, ctc(reduction=reduction))
            self.assertLess(step.distance.gradient, 2e-5)
            none = trainer(batch, ctc(reduction=reduction, zero_infinity=True))
            self.assertLess(none.distance.gradient, 2e-5)
            self.assertGreater(none.evaluate(*batch[:3], torch.tensor([3, 1, 3, 1])), none.evaluate(*batch))
        def each(out, y, steps, ends):
            made = F.ctc_loss(out, torch.where(y == 2, 0, y), steps, ends, blank=2, reduction="none")
            return (made * torch.tensor([1.0, 3.0, 2.0])).sum()
        self.assertLess(trainer(possible, each).distance.gradient, 2e-5)
        self.assertLess(trainer(possible, lambda out, y, *_: ctc()(out, y, [9, 7, 5], (3, 1, 3))).distance.gradient, 2e-5)
        none = trainer(possible, ctc())
        self.assertEqual(none.evaluate(*batch), math.inf)  # and no gradient, as there
        self.assertTrue(all(bool(gradient.isnan().all()) for gradient in none.gradients(*batch)[1].values()))
        self.assertFalse(none(*batch, lr=0.1).applied)
        x, y, steps, ends = possible
        for beyond in ((x, y, steps + 1, ends), (x, y, steps - 6, ends), (x, y, steps, ends + 1), (x, y, steps, ends - 2)):
            with self.assertRaisesRegex(mantissa.Error, "out of range, expected 0 to [93];"):
                none.evaluate(*beyond)

        from mantissa.rows import registry
        row = registry.row_of("mantissa.ctc_loss")
        for planted in (dict(blank=1), dict(input_lengths=None)):
            def other(at, **given):
                return row(at, **dict(given, **{key: given["target_lengths"] if each is None else each
                                                for key, each in planted.items()}))
            with unittest.mock.patch.dict(registry._rows, {"mantissa.ctc_loss": other}), \
                    self.assertRaises(mantissa.torch.DifferenceError):
                trainer(possible, ctc())

    def test_exponentials_of_matrices(self):
        for scale in (0.0, 0.01, 1.0, 20.0):
            def of_one(h, x):
                a = (h.T @ x)[:, :3] * scale
                return h @ torch.matrix_exp(a - a.T)

            def of_several(h, x):
                return (torch.linalg.matrix_exp(h[:, :, None] * x[:, None, :3] * min(scale, 1.0)) @ h[:, :, None])[..., 0]
            for function in (of_one, of_several):
                with self.subTest(scale=scale, function=function.__name__):
                    self.assertLess(self.distance(function).gradient, 1e-4)
        model = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="matrix_exp"),
                              nn.Linear(6, 3))
        self.assertLess(mantissa.torch.trainer(model, F.cross_entropy, (X, Y)).distance.gradient, 2e-5)


class Average(OneLayer):
    """A running mean of what the layer makes, which forward takes away."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(3))

    def forward(self, x):
        y = self.layer(x)
        if self.training:
            with torch.no_grad():
                self.average.mul_(0.9).add_(0.1 * y.mean(0))
        return y - self.average


class Codebook(OneLayer):
    """Codes that follow the mean of what they are nearest to, as of VQ-VAE; the gradient passes them by."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(5, 3))
        self.register_buffer("counts", torch.ones(5))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        y = self.layer(x)
        nearest = F.one_hot(torch.cdist(y.detach(), self.codes).argmin(-1), 5).float()
        if self.training:
            with torch.no_grad():
                self.counts.mul_(0.8).add_(nearest.sum(0), alpha=0.2)
                self.sums.mul_(0.8).add_(nearest.T @ y, alpha=0.2)
                self.codes.copy_(self.sums / (self.counts[:, None] + 1e-5))
        code = nearest @ self.codes
        return y + (code - y).detach() + 0.1 * (y - code.detach())


class Buffers(unittest.TestCase):
    """What forward writes into buffers is there in the next step, in evaluation, in the module and in a checkpoint."""

    MODULES = {"average": Average, "codebook": Codebook,
               "batch norm": lambda: nn.Sequential(nn.Linear(6, 3, bias=False), nn.BatchNorm1d(3)),
               "spectral norm": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3)))}

    def test_steps_are_those_of_torch(self):
        for name, make in self.MODULES.items():
            for views in (True, False):
                with self.subTest(name, views=views):
                    torch.manual_seed(0)
                    model = make().train()
                    theirs = copy.deepcopy(model)
                    step = mantissa.torch.trainer(model, F.cross_entropy, (X, Y), optimizer=ADAMW, views=views)
                    ours = [step(X, Y, lr=1e-2).loss for _ in range(10)]
                    for a, b in zip(ours, trained_by_torch(theirs, F.cross_entropy, [(X, Y)] * 10)):
                        self.assertAlmostEqual(a, b, 5)
                    step.into(model)
                    for key, value in theirs.state_dict().items():
                        torch.testing.assert_close(model.state_dict()[key], value, rtol=1e-4, atol=1e-5, msg=key)
                    theirs.eval()
                    with torch.no_grad():
                        self.assertAlmostEqual(step.evaluate(X, Y), F.cross_entropy(theirs(X), Y).item(), 4)
                        torch.testing.assert_close(torch.as_tensor(step.predict(X)), theirs(X), rtol=1e-4, atol=1e-4)

    def test_what_writes_nothing_else_is_traced_once(self):
        made = torch.export.ExportedProgram.run_decompositions
        for times, name in ((0, "batch norm"), (1, "average")):
            with unittest.mock.patch.object(torch.export.ExportedProgram, "run_decompositions", autospec=True,
                                            side_effect=made) as again:
                mantissa.torch.trainer(self.MODULES[name]().train(), F.cross_entropy, (X, Y), check=False)
            self.assertEqual(again.call_count, times, name)

    def test_micro_batches_are_refused(self):
        with self.assertRaisesRegex(mantissa.Error, "forward changes the buffer average"):
            mantissa.torch.trainer(Average(), F.cross_entropy, (X, Y), accumulate=2)


if __name__ == "__main__":
    unittest.main()
