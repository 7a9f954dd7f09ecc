"""Batches of any length and number of examples beside torch's own steps. Skipped where torch is missing."""
import copy
import math
import sys
import unittest

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("skipped: no torch: pip install torch brings it")
    sys.exit(0)

import mantissa
import mantissa.torch
import numpy as np


class Tagger(nn.Module):
    """Attention over tokens of which some are padding, a class for each sequence."""

    def __init__(self, tokens=50, channels=32, longest=320, classes=5):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.places = nn.Embedding(tokens, channels), nn.Embedding(longest, channels)
        self.inner, self.outer = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.back = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))
        self.head = nn.Linear(channels, classes)

    def forward(self, input_ids, attention_mask):
        (B, T), seen = input_ids.shape, attention_mask.bool()
        x = self.embedding(input_ids) + self.places(torch.arange(T))
        q, k, v = (part.view(B, T, 2, -1).transpose(1, 2) for part in self.qkv(self.inner(x)).chunk(3, -1))
        made = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None, :])
        x = x + self.back(made.transpose(1, 2).reshape(B, T, -1))
        x = x + self.mlp(self.outer(x))
        weight = seen.float()[..., None]
        return self.head((x * weight).sum(1) / weight.sum(1))


def sequences(count, longest=300, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(5, longest + 1, count)
    return [(torch.from_numpy(random.integers(1, 50, n)), int(random.integers(0, 5))) for n in lengths]


def collated(batch):
    longest = max(len(ids) for ids, _ in batch)
    ids, mask = (torch.zeros(len(batch), longest, dtype=torch.long) for _ in range(2))
    for row, (each, _) in enumerate(batch):
        ids[row, :len(each)], mask[row, :len(each)] = each, 1
    return ids, mask, torch.tensor([label for _, label in batch])


def losses_of_torch(model, loss, batches, optimizer, schedule=None, clip=0.0, inputs=1):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        value = loss(model(*batch[:inputs]), *batch[inputs:])
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if schedule:
            schedule.step()
        losses.append(value.item())
    return losses


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def rows(count, seed=1):
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed)), torch.arange(count) % 3


class Lengths(unittest.TestCase):
    def test_a_loader_of_sequences_is_trained_as_it_is(self):
        loader = torch.utils.data.DataLoader(sequences(60), batch_size=8, collate_fn=collated)
        batches = list(loader)
        self.assertEqual(len(batches[-1][0]), 60 % 8)
        for pad_to in (None, (64, 128, 256)):
            model, losses = Tagger(), [[], []]
            twin = copy.deepcopy(model)
            mine, theirs = (torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.1) for m in (model, twin))
            schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, len(batches)) for each in (mine, theirs)]
            used = batches if pad_to else batches[:3] + batches[-1:]
            losses[0] = losses_of_torch(twin, F.cross_entropy, used, theirs, schedules[1], clip=1.0, inputs=2)
            step = mantissa.torch.trainer(model, F.cross_entropy, used[0], inputs=2, optimizer=mine, clip=1.0,
                                          pad_to=pad_to, fill={1: 0})
            for result in step.train_on(iter(used)):
                schedules[0].step()
                losses[1].append(result.loss)
            np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
            shapes = {(len(ids), next((n for n in pad_to or () if n >= ids.shape[1]), ids.shape[1])) for ids, _, _ in used}
            self.assertEqual(step.planned_shapes, len(shapes))
            self.assertEqual(step._traces.exports, min(6, len(shapes)))  # four, one with open axes, and one beyond
            for (name, p), other in zip(model.named_parameters(), twin.parameters()):
                self.assertLess(float((p - other).detach().abs().max()), 2e-4, name)
            step.into()
            twin.eval()
            for ids, mask, y in used[:3]:
                with torch.no_grad():
                    self.assertLess(float((step.predict(ids, mask) - twin(ids, mask)).abs().max()), 5e-3)
                    self.assertAlmostEqual(step.evaluate(ids, mask, y), F.cross_entropy(twin(ids, mask), y).item(), 2)

    def test_short_batches_are_trained(self):
        for accumulate in (1, 4):
            model = small()
            twin = copy.deepcopy(model)
            step = mantissa.torch.trainer(model, F.cross_entropy, rows(8), optimizer=mantissa.sgd(), accumulate=accumulate)
            batches = [rows(n, n) for n in (8, 5, 8, 1, 7, 12, 2, 8)]
            losses = losses_of_torch(twin, F.cross_entropy, batches, torch.optim.SGD(twin.parameters(), lr=0.1))
            np.testing.assert_allclose([step(*batch, lr=0.1).loss for batch in batches], losses, rtol=2e-6)
            for p, other in zip(model.parameters(), twin.parameters()):
                self.assertLess(float((p - other).detach().abs().max()), 1e-6)
            x, y = rows(5, 5)
            loss, gradients = step.gradients(x, y)
            twin.zero_grad()
            F.cross_entropy(twin(x), y).backward()
            self.assertLess(float((gradients["0.weight"] - twin[0].weight.grad).abs().max()), 1e-6)

    def test_micro_batches_count_by_their_rows_and_targets_in_them_as_the_loss_has_it(self):
        """A mean over targets that are not -100 is one of each micro-batch, as of backward() on each in turn."""
        model, x, y = small(), *rows(7)
        y[2:4] = -100
        step = mantissa.torch.trainer(model, F.cross_entropy, rows(8), optimizer=mantissa.sgd(), accumulate=2)
        twin = copy.deepcopy(model)
        for part in (slice(0, 4), slice(4, 7)):
            (F.cross_entropy(twin(x[part]), y[part]) * len(x[part]) / 7).backward()
        loss, gradients = step.gradients(x, y)
        self.assertLess(float((gradients["2.bias"] - twin[2].bias.grad).abs().max()), 1e-6)

    def test_plans_are_shared_and_let_go(self):
        step = mantissa.torch.trainer(small(), F.cross_entropy, rows(8), policy="bf16", plans=3)
        losses = [step(*rows(n), lr=1e-2).loss for n in (8, 5, 6, 7, 5, 8, 9, 10)]
        self.assertTrue(all(math.isfinite(loss) for loss in losses))
        self.assertEqual(step.planned_shapes, 3)
        self.assertEqual(step._traces.exports, 5)  # four shapes, and one graph with open axes
        for n in (8, 4, 3, 9, 33):
            step.evaluate(*rows(n))
            step.predict(rows(n)[0])
        self.assertEqual(step._traces.exports, 6)  # and one of one row, the last of nine that are predicted

    def test_evaluation_follows_from_training_where_only_dropouts_and_batch_norms_differ(self):
        class Module(nn.Module):
            def __init__(self, kind):
                super().__init__()
                torch.manual_seed(0)
                self.layer, self.drop, self.kind = nn.Linear(6, 3), nn.Dropout(0.3), kind
                self.norm = nn.BatchNorm1d(3, track_running_stats=kind != "no statistics")
                self.lstm = nn.LSTM(3, 3, 2, dropout=0.4)
                self.drop.train(kind != "frozen")

            def forward(self, x):
                y = self.norm(self.layer(x))
                if self.kind == "reads" and self.training or self.kind == "reads a part's" and self.drop.training:
                    y = y * 2
                if self.kind == "function":
                    y = F.dropout(y, 0.3, self.training)
                return self.drop(self.lstm(y[None])[0][0] if self.kind == "recurrent" else y)
        for kind, exports in (("plain", 1), ("recurrent", 1), ("no statistics", 2), ("frozen", 1), ("reads", 2), ("reads a part's", 2),
                              ("function", 2)):
            model = Module(kind)
            modes = [each.training for each in model.modules()]
            step = mantissa.torch.trainer(model, F.cross_entropy, rows(8), optimizer=mantissa.sgd())
            step(*rows(8), lr=0.1)
            self.assertEqual([each.training for each in model.modules()], modes)
            evaluated, predicted = step.evaluate(*rows(8)), step.predict(rows(8)[0])
            self.assertEqual(step._traces.exports, exports, kind)
            made = step.into().eval()(rows(8)[0])
            self.assertLess(float((predicted - made).detach().abs().max()), 1e-5, kind)
            self.assertAlmostEqual(evaluated, F.cross_entropy(made, rows(8)[1]).item(), 5, kind)
            if kind != "no statistics":  # torch takes no single row there
                self.assertEqual(step.predict(rows(1)[0]).shape, (1, 3), kind)

    def test_a_branch_on_the_length_is_another_program(self):
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.layer, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

            def forward(self, x):
                made = self.layer(x) if x.shape[1] > 10 else self.other(x) * x.shape[1]
                if x.shape[1] % 4 == 0:
                    made = made.tanh()
                return (made + self.layer(x) * 0.1).mean(1)
        model = Module()
        twin = copy.deepcopy(model)
        batches = [(torch.randn(4, n, 6, generator=torch.Generator().manual_seed(n)), torch.arange(4) % 3)
                   for n in (6, 7, 12, 20, 5, 1, 8, 11, 6)]
        step = mantissa.torch.trainer(model, F.cross_entropy, batches[0], optimizer=mantissa.sgd())
        losses = losses_of_torch(twin, F.cross_entropy, batches, torch.optim.SGD(twin.parameters(), lr=0.1))
        np.testing.assert_allclose([step(*batch, lr=0.1).loss for batch in batches], losses, rtol=1e-5)

    def test_a_weight_that_only_some_lengths_have(self):
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

            def forward(self, x):
                return (self.layer(x) if x.shape[1] < 10 else self.other(x)).mean(1)
        step = mantissa.torch.trainer(Module(), F.cross_entropy, (torch.randn(4, 6, 6), torch.arange(4) % 3))
        with self.assertRaisesRegex(mantissa.Error, "other.weight is a weight on batches of this shape, and none on the ex"):
            step(torch.randn(4, 12, 6), torch.arange(4) % 3, lr=0.1)
        self.assertTrue(step(torch.randn(4, 9, 6), torch.arange(4) % 3, lr=0.1).applied)

    def test_random_numbers_go_on_over_shapes(self):
        model = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 3))
        step = mantissa.torch.trainer(model, F.cross_entropy, rows(8))
        drawn = {step(*rows(n), lr=0.0).loss for n in (8, 5, 8, 5, 8, 5)}
        self.assertEqual(len(drawn), 6)

    def test_rows_of_random_numbers_are_known_where_nothing_is_to_be_random(self):
        from mantissa.rows import registry
        from mantissa.torch.randoms import STILL
        names = {op.removeprefix("aten.") for op in registry.known()
                 if registry.row_of(op).__module__ == "mantissa.rows.randoms"}
        self.assertTrue(names)
        self.assertLessEqual(names, set(STILL))

    def test_statistics_of_batch_norms_are_of_all_shapes(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        twin = copy.deepcopy(model)
        batches = [rows(n, n) for n in (8, 5, 8, 3)]
        step = mantissa.torch.trainer(model, F.cross_entropy, batches[0], optimizer=mantissa.sgd())
        losses = losses_of_torch(twin, F.cross_entropy, batches, torch.optim.SGD(twin.parameters(), lr=0.1))
        np.testing.assert_allclose([step(*batch, lr=0.1).loss for batch in batches], losses, rtol=1e-4)
        step.into()
        for key in ("running_mean", "running_var", "num_batches_tracked"):
            np.testing.assert_allclose(getattr(model[1], key), getattr(twin[1], key), rtol=1e-4, atol=1e-6)

    def test_padding_that_counts_is_refused(self):
        class Mean(Tagger):
            def forward(self, input_ids, attention_mask):
                return self.head(self.embedding(input_ids).mean(1))
        batch = collated(sequences(4, 40))

        def said(model=None, **options):
            with self.assertRaises(mantissa.Error) as raised:
                mantissa.torch.trainer(model or Tagger(), F.cross_entropy, batch, inputs=2, **options)
            return str(raised.exception)
        self.assertRegex(said(Mean(), pad_to=64), r"pad_to would change the loss: of \d+ positions of the example it is [\d.]+, "
                                                  r"and filled up to \d+ it is [\d.]+\. A mask must hide")
        self.assertIn("pad_to would change the loss", said(pad_to=64, fill={1: 1}))
        self.assertIn("pad_to is a length or several, as (64, 128, 256), got 0", said(pad_to=0))
        self.assertIn("fill names 'mask', which is no input of the example; there are 0, 1, 2",
                      said(pad_to=64, fill={"mask": 0}))
        x, y = torch.randn(4, 9, 6), torch.randn(4, 9, 3)
        with self.assertRaisesRegex(mantissa.Error, "pad_to needs a number for number 1 of a batch"):
            mantissa.torch.trainer(nn.Linear(6, 3), F.mse_loss, (x, y), pad_to=16)
        step = mantissa.torch.trainer(Tagger(), F.cross_entropy, batch, inputs=2, pad_to=(16, 64))
        longer = collated(sequences(4, 200, seed=3))
        self.assertTrue(step(*longer, lr=1e-3).applied)  # as it is

    def test_where_time_comes_first(self):
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.rnn, self.head = nn.LSTM(6, 8), nn.Linear(8, 3)

            def forward(self, x):
                return self.head(self.rnn(x)[0])

        def loss(out, y):
            return F.cross_entropy(out.flatten(0, 1), y.flatten())
        batches = [(torch.randn(T, B, 6, generator=torch.Generator().manual_seed(T)), torch.arange(T * B).view(T, B) % 3)
                   for T, B in ((10, 4), (7, 4), (10, 3))]
        with self.assertRaisesRegex(mantissa.Error, "if time comes first, batch_axis=1 says so"):
            mantissa.torch.trainer(Module(), loss, batches[0], accumulate=2)
        for accumulate in (1, 2):
            model = Module()
            twin = copy.deepcopy(model)
            step = mantissa.torch.trainer(model, loss, batches[0], accumulate=accumulate, batch_axis=1,
                                          optimizer=mantissa.sgd())
            losses = losses_of_torch(twin, loss, batches, torch.optim.SGD(twin.parameters(), lr=0.1))
            np.testing.assert_allclose([step(*batch, lr=0.1).loss for batch in batches], losses, rtol=1e-5)
            with torch.no_grad():
                for x, y in batches:
                    self.assertLess(float((step.predict(x) - twin(x)).abs().max()), 1e-5)
                    self.assertAlmostEqual(step.evaluate(x, y), loss(twin(x), y).item(), 5)

    def test_each_input_has_an_axis_of_examples(self):
        class TimeFirst(nn.Linear):
            def forward(self, x):
                return super().forward(x.sum(0))

        def loss(out, y):
            return (out - y).square().mean()  # in which one example spreads over several

        def of_rows(out, y):
            return loss(out.T, y)

        def batch(*shapes):
            drawn = torch.Generator().manual_seed(1)
            return tuple(torch.randn(*shape, generator=drawn) for shape in shapes)

        def trained(x, y, axis, loss=loss, accumulate=2, kind=TimeFirst, **options):
            torch.manual_seed(0)
            model, example = kind(6, 1 if loss is of_rows else y[-1]), batch(x, y)
            twin = copy.deepcopy(model)
            step = mantissa.torch.trainer(model, loss, example, batch_axis=axis, accumulate=accumulate,
                                          optimizer=mantissa.sgd(), **options)
            losses = losses_of_torch(twin, loss, [example] * 3, torch.optim.SGD(twin.parameters(), lr=0.01))
            np.testing.assert_allclose([step(*example, lr=0.01).loss for _ in range(3)], losses, rtol=1e-5)
            return step

        def refused(said, *given, **options):
            with self.assertRaisesRegex(mantissa.Error, said):
                trained(*given, **options)
        trained((5, 2, 6), (2, 3), 1)  # targets [N, S] beside a time-first input [T, N, C]
        trained((5, 2, 6), (2, 2), {0: 1, 1: 0})
        for axis in (1, {0: 1}):
            refused(r"number 1 of a batch has the shape \[2, 2\], which leaves open where its 2 examples are: "
                    r"batch_axis=\{1: 0\} says along its first axis", (5, 2, 6), (2, 2), axis)
        trained((2, 6), (1, 2), {1: 1}, of_rows, kind=nn.Linear)
        refused(r"has the shape \[1, 2\], which leaves open", (2, 6), (1, 2), None, of_rows, kind=nn.Linear)
        step = trained((5, 2, 6), (2, 3), 1, accumulate=1)
        x = batch((5, 7, 6))[0]
        with torch.no_grad():
            self.assertLess(float((step.predict(x) - step.model(x)).abs().max()), 1e-5)
        # As many targets as positions are no positions.
        trained((4, 4, 6), (4, 1), 1, accumulate=1, pad_to=8)
        for axis, said in (({2: 0}, "names 2, which is no input of the example; there are 0, 1"),
                           ({1: 2}, r"of number 1 of a batch is 0 or 1, an axis of its \[2, 3\], or None .* got 2"),
                           ({1: 1}, r"says that axis 1 of number 1 .* of its \[2, 3\], and number 0 of a batch has 5 examples")):
            refused(f"batch_axis {said}", (5, 2, 6), (2, 3), axis)

    def test_batches_that_fit_none(self):
        step = mantissa.torch.trainer(small(), F.cross_entropy, rows(8))
        x, y = rows(8)

        def said(*batch):
            with self.assertRaises(mantissa.Error) as raised:
                step(*batch, lr=0.1)
            return str(raised.exception)
        self.assertIn("number 1 of a batch has 8 rows, and number 0 of a batch has 5", said(x[:5], y))
        self.assertIn("number 0 of a batch has 2 axes in the example, [8, 6], got [8]", said(x[:, 0], y))
        self.assertIn("must have same reduction dim", said(x[:, :4], y))
        self.assertIn("no examples", said(x[:0], y[:0]))
        self.assertTrue(step(x, y, lr=0.1).applied)

    def test_muon_of_torch(self):
        def made(model, **options):
            matrices = [p for p in model.parameters() if p.dim() == 2]
            rest = [p for p in model.parameters() if p.dim() != 2]
            return [torch.optim.Muon(matrices, lr=0.02, weight_decay=0.05, **options),
                    torch.optim.AdamW(rest, lr=0.01, weight_decay=0.02)]
        for options in ({}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "momentum": 0.8}):
            model = small()
            twin = copy.deepcopy(model)
            mine, theirs, (x, y), losses = made(model, **options), made(twin, **options), rows(8), [[], []]
            schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, 20) for each in mine + theirs]
            step = mantissa.torch.trainer(model, F.cross_entropy, (x, y), optimizer=mine)
            for _ in range(10):
                losses[0].append(step(x, y).loss)
                twin.zero_grad()
                value = F.cross_entropy(twin(x), y)
                value.backward()
                losses[1].append(value.item())
                for each in theirs + schedules:
                    each.step()
            np.testing.assert_allclose(losses[0], losses[1], rtol=2e-2)  # torch's iterations are in BF16, as these
            step.into()
            buffer = mine[0].state[model[0].weight]["momentum_buffer"]
            other = theirs[0].state[twin[0].weight]["momentum_buffer"]
            self.assertLess(float((buffer - other).norm() / other.norm()), 0.05)
            self.assertEqual(float(mine[1].state[model[0].bias]["step"]), 10)
            again = mantissa.torch.trainer(model, F.cross_entropy, (x, y), optimizer=mine)
            self.assertLess(abs(again(x, y).loss - F.cross_entropy(twin(x), y).item()), 2e-2)
        model = small()
        mine = made(model)
        step = mantissa.torch.trainer(model, F.cross_entropy, rows(8), optimizer=mine)
        mine[1].param_groups[0]["lr"] = 0.5
        with self.assertRaisesRegex(mantissa.Error, "here rates of groups keep their ratio"):
            step(*rows(8))
        model = small()
        with self.assertRaisesRegex(mantissa.Error, "Muon with adjust_lr_fn='spectral_unclamped'"):
            mantissa.torch.trainer(model, F.cross_entropy, rows(8), optimizer=torch.optim.Muon(
                [model[0].weight], adjust_lr_fn="spectral_unclamped"))

    def test_groups_of_torch_with_rates_and_decays_of_their_own(self):
        def made(model):
            return torch.optim.AdamW([{"params": [model[0].weight], "lr": 1e-2, "weight_decay": 0.5},
                                      {"params": [model[0].bias], "lr": 1e-3, "weight_decay": 0.0},
                                      {"params": model[2].parameters(), "lr": 3e-3, "weight_decay": 0.2}], lr=1e-2)
        model = small()
        twin = copy.deepcopy(model)
        mine, theirs, batch = made(model), made(twin), rows(8)
        schedules = [torch.optim.lr_scheduler.LambdaLR(each, lambda at: min(1, at / 4)) for each in (mine, theirs)]
        step = mantissa.torch.trainer(model, F.cross_entropy, batch, optimizer=mine)
        losses = []
        for _ in range(10):
            losses.append(step(*batch).loss)
            schedules[0].step()
        expected = losses_of_torch(twin, F.cross_entropy, [batch] * 10, theirs, schedules[1])
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        for p, other in zip(model.parameters(), twin.parameters()):
            self.assertLess(float((p - other).detach().abs().max()), 1e-5)


if __name__ == "__main__":
    unittest.main()
