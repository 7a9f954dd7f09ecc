"""PyTorch modules as people use them: what a batch, a loop or Python itself changes. Skipped where torch is missing."""
import logging
import sys
import threading
import unittest
import warnings

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    import torch.utils.checkpoint
except ImportError:
    print("skipped: no torch: pip install torch brings it")
    sys.exit(0)

import mantissa
import mantissa.torch
import numpy as np
import torch_changes
from test_torch import ADAMW, X, Y, OneLayer, small


SETTINGS, SCALE = {"factor": 1.0}, 1.0


def agrees(model, loss=F.cross_entropy, example=(X, Y), **options):
    return mantissa.torch.trainer(model, loss, example, optimizer=ADAMW, **options)


class Masks(unittest.TestCase):
    """Padding on both sides, so that queries see no key: 0 under minus infinity, equal weights under finite numbers."""

    class Attention(nn.Module):
        def __init__(self, kind):
            super().__init__()
            torch.manual_seed(0)
            self.q, self.k, self.v, self.kind = *(nn.Linear(32, 32) for _ in range(3)), kind

        def forward(self, x, mask):
            (B, T, _), least = x.shape, torch.finfo(torch.float32).min
            q, k, v = (f(x).view(B, T, 2, 16).transpose(1, 2) for f in (self.q, self.k, self.v))
            spelled = q @ k.transpose(-1, -2) / 4
            if self.kind.startswith("given"):
                seen = mask
            else:
                seen = mask[:, None, None, :] & torch.ones(T, T, dtype=torch.bool).tril()
            made = {"booleans": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=seen),
                    "infinity": lambda: F.scaled_dot_product_attention(
                        q, k, v, attn_mask=torch.where(seen, 0.0, float("-inf"))),
                    "dropout": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=0.3),
                    "least": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.where(seen, 0.0, least)),
                    "times": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=(1.0 - seen.float()) * least),
                    "filled": lambda: spelled.masked_fill(~seen, least).softmax(-1) @ v,
                    "filled a little": lambda: spelled.masked_fill(~seen, -1e4).softmax(-1) @ v,
                    "given": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=seen),
                    "given and spelled": lambda: (spelled + seen).softmax(-1) @ v}[self.kind]()
            return made.transpose(1, 2).reshape(B, T, 32)

    def test_queries_that_see_no_key(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        for T in (12, 100):  # in lines, and as one operation
            x, y = (torch.randn(3, T, 32, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
            padded = torch.ones(3, T, dtype=torch.bool)
            padded[0, :5], padded[1, -4:] = False, False
            for kind in ("booleans", "infinity", "dropout", "least", "times", "filled", "filled a little", "given",
                         "given and spelled"):
                model, mask, hidden = self.Attention(kind), torch.ones_like(padded), padded
                if kind.startswith("given"):
                    hidden = padded[:, None, None, :] & torch.ones(T, T, dtype=torch.bool).tril()
                    hidden = torch.where(hidden, 0.0, torch.finfo(torch.float32).min)
                    mask = torch.zeros_like(hidden)
                # The example hides nothing, so its first step tells nothing of what hides all.
                step = mantissa.torch.trainer(model, F.mse_loss, (x, mask, y), inputs=2)
                loss, gradients = step.gradients(x, hidden, y)
                if kind == "dropout":
                    self.assertTrue(all(bool(torch.isfinite(g).all()) for g in gradients.values()))
                    continue
                with sdpa_kernel(SDPBackend.MATH):  # its others lose the gradient under finite numbers
                    theirs = F.mse_loss(model(x, hidden), y)
                    theirs.backward()
                self.assertAlmostEqual(loss, theirs.item(), 5, (kind, T))
                for name, parameter in model.named_parameters():
                    far = (gradients[name] - parameter.grad).norm() / max(parameter.grad.norm(), 1e-3)
                    self.assertLess(far.item(), 2e-5, (kind, T, name))

    def test_finite_masks_stay_finite_in_bf16(self):
        x, y = torch.randn(3, 12, 32), torch.randn(3, 12, 32)
        padded = torch.ones(3, 12, dtype=torch.bool)
        padded[0, :5] = False
        for kind in ("least", "filled", "booleans"):
            step = agrees(self.Attention(kind), F.mse_loss, (x, padded, y), inputs=2, policy="bf16")
            self.assertTrue(step(x, padded, y, lr=1e-3).applied, kind)

    def test_constant_masks_that_hide_all(self):
        class Module(OneLayer):
            def forward(self, x):
                q = self.layer(x)[None]
                return F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(8, 8, dtype=torch.bool).tril(-1))[0]
        mantissa.torch.trainer(Module(), F.cross_entropy, (X, Y))


class Use(unittest.TestCase):
    def test_parameters_of_one_memory_are_refused(self):
        def said(change):
            model = small(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3))
            change(model)
            with self.assertRaises(mantissa.Error) as raised:
                mantissa.torch.trainer(model, F.cross_entropy, (X, Y))
            return str(raised.exception)

        def tied(model):
            model[1].weight.data = model[0].weight.data

        def overlapping(model):
            flat = torch.randn(60)
            model[0].weight.data, model[1].weight.data = flat[:36].view(6, 6), flat[24:].view(6, 6)

        def buffered(model):
            model.register_buffer("copy", model[0].weight.data)
        for change, names in ((tied, "0.weight and 1.weight"), (overlapping, "0.weight and 1.weight"),
                              (buffered, "0.weight and copy|copy and 0.weight")):
            self.assertRegex(said(change), f"({names}) of the module lie in one memory: make them one parameter")
        flat, model = torch.randn(72), small(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3))
        model[0].weight.data, model[1].weight.data = flat[:36].view(6, 6), flat[36:].view(6, 6)
        agrees(model)  # beside one another

    def test_changes_in_between_are_followed_or_refused_by_name(self):
        from unittest import mock
        from torch_modules import by_hand
        for name in ("table_mlp", "lstm_language"):
            words = torch_changes.swept(by_hand.cases()[name], len(torch_changes.KINDS))
            self.assertRegex(words, "followed: .*rows, exception, evaluate, load; refused: mode, requires_grad")
        planted = {"mode": 0, "requires_grad": 0.99, "attribute": 0, "replaced": 0.99, "closure": 0, "hook": 0.99, "layer": 0}
        with mock.patch("mantissa.torch.parameters.Parameters.refuse_changed"):  # nothing is watched
            for kind, draw in planted.items():
                run = torch_changes.Run(by_hand.cases()["table_mlp"])
                run.stepped("the first step", run.ours.values)
                with self.assertRaises(torch_changes.Silent, msg=kind):
                    run.changed(kind, draw)

    def test_attributes_that_a_decorated_forward_reads(self):
        def decorated(function):  # as transformers' forwards are
            def wrapper(self, *given):
                return function(self, *given)
            return wrapper

        class Module(OneLayer):
            factor, unread = 1.0, 0

            @decorated
            def forward(self, x):
                return self.layer(x) * self.factor
        model = Module()
        model.factor, model.unread = 1.0, 0
        step = agrees(model)
        model.unread = 1
        step(X, Y, lr=0.1)
        model.factor = 2.0
        with self.assertRaisesRegex(mantissa.Error, "factor was changed"):
            step(X, Y, lr=0.1)

    def test_after_an_exception_a_step_goes_on(self):
        for views in (True, False):
            step = agrees(small(), views=views)

            def failing():
                yield X, Y
                yield X, Y
                raise OSError("no such file")
            for call, error in ((lambda: list(step.train_on(failing(), lr=0.1)), OSError),
                                (lambda: list(step.train_on([(X, Y), (X[:5], Y)], lr=0.1)), mantissa.Error),
                                (lambda: step(X[:5], Y, lr=0.1), mantissa.Error),
                                (lambda: step(X, Y, lr="fast"), mantissa.Error)):
                with self.assertRaises(error):
                    call()
                self.assertTrue(step(X, Y, lr=0.1).applied)

    def test_what_has_no_gradient_is_not_decayed(self):
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.trunk, self.gate, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
                self.unused, self.like = nn.Linear(6, 3), nn.Parameter(torch.ones(8, 6))

            def forward(self, x):
                with torch.no_grad():
                    x = torch.tanh(self.trunk(x))
                return self.head((x * (self.gate(x) > 0)).expand_as(self.like) + self.gate(x).detach())

        model, twin = Module(), Module()
        optimizer = mantissa.adamw(weight_decay=0.5, beta2=0.999, decay_matrices_only=False)
        step = mantissa.torch.trainer(model, F.cross_entropy, (X, Y), optimizer=optimizer)
        theirs = torch.optim.AdamW(twin.parameters(), lr=1e-2, weight_decay=0.5)
        for _ in range(10):
            theirs.zero_grad()
            F.cross_entropy(twin(X), Y).backward()
            theirs.step()
            step(X, Y, lr=1e-2)
        for (name, mine), other in zip(model.named_parameters(), twin.parameters()):
            self.assertLess(float((mine - other).detach().abs().max()), 1e-5, name)
        self.assertEqual(set(step.gradients(X, Y)[1]), {"head.weight", "head.bias"})
        grads = mantissa.torch.gradients(Module(), F.cross_entropy, (X, Y))
        grads(X, Y)
        self.assertIsNone(grads._trainer.model.trunk.weight.grad)
        model.trunk.weight.requires_grad_(False)
        with self.assertRaisesRegex(mantissa.Error, "trunk.weight of the module was changed"):
            step(X, Y, lr=1e-2)

    def test_a_frozen_parameter_that_the_loss_does_not_use(self):
        class Module(OneLayer):
            def __init__(self):
                super().__init__()
                self.unused = nn.Linear(6, 3).requires_grad_(False)

            def forward(self, x):
                return self.layer(x)
        agrees(Module())

    def test_indices_are_checked_by_axis(self):
        class Module(OneLayer):
            def forward(self, x, rows, columns):
                return self.layer(x)[rows, columns]

        class Middle(OneLayer):
            def forward(self, x, rows, columns):
                return self.layer(x).reshape(2, 2, 2, 3)[:, rows, columns].sum((0, 2))
        for module, most in ((Module, (8, 3)), (Middle, (2, 2))):
            step = agrees(module(), F.mse_loss, (X, Y % 2, Y % 2, torch.zeros(8)), inputs=3)
            for axis in (0, 1):
                for wrong in (most[axis], -most[axis] - 1, most[axis] + 7):
                    indices = [Y % 2, Y % 2]
                    indices[axis] = torch.tensor([0, 0, 0, wrong, 0, 0, 0, 0])
                    with self.assertRaisesRegex(mantissa.Error, "-1"):
                        step(X, *indices, torch.zeros(8), lr=0.1)
                    with self.assertRaises(IndexError):
                        step.model(X, *indices)
            self.assertTrue(step(X, -Y % 2 - 1, Y % 2, torch.zeros(8), lr=0.1).applied)

    def test_a_module_in_sixteen_bits_is_trained_on_weights_in_fp32(self):
        for dtype in (torch.bfloat16, torch.float16):
            model, twin = small().to(dtype), small().to(dtype).float()
            step, other = agrees(model, example=(X.to(dtype), Y)), agrees(twin)
            self.assertEqual(set(step.copied.values()), {f"it is {str(dtype).removeprefix('torch.')}"})
            for _ in range(3):
                self.assertEqual(step(X, Y, lr=1e-3).loss, other(X, Y, lr=1e-3).loss)
            step.into(model)
            self.assertEqual(model[0].weight.dtype, dtype)
            self.assertTrue(torch.equal(model[0].weight, twin[0].weight.to(dtype)))
            self.assertEqual(step.evaluate(X, Y), other.evaluate(X, Y))
            self.assertTrue(torch.equal(step.predict(X[:3]), other.predict(X[:3])))

    def test_what_torch_does_not_export_is_said_with_its_place(self):
        def said(forward, loss=F.cross_entropy, y=Y):
            class Module(OneLayer):
                def forward(self, x):
                    return forward(self, x)
            with self.assertRaises(mantissa.torch.CaptureError) as raised:
                mantissa.torch.trainer(Module(), loss, (X, y))
            return str(raised.exception)
        for forward in (lambda m, x: m.layer(x)[x[:, 0] > 0], lambda m, x: m.layer(x).masked_select(x[:, :3] > 0),
                        lambda m, x: m.layer(x)[torch.where(x[:, 0] > 0)], lambda m, x: m.layer(x) + x.unique().sum()):
            text = said(forward, lambda out, y: out.sum())
            self.assertRegex(text, r"makes a shape that the batch decides \(1 time\)\n    first in .* at test_torch_use.py:\d+: ")
            self.assertRegex(text, r"Multiply by the mask|Count by a one-hot sum|Use torch.where")

        def ctc(out, y):
            return F.ctc_loss(out.log_softmax(-1)[:, None], y[:2], torch.tensor([8]), torch.tensor([2]))
        self.assertIn("Give log_probs as [T, N, C], targets padded as [N, S], and lengths as tensors.", said(lambda m, x: m.layer(x), ctc, Y + 0))

        def penalty(m, x):
            x = x.detach().requires_grad_()
            y = m.layer(x).tanh()
            return y * torch.autograd.grad(y.sum(), x, create_graph=True)[0].square().sum()
        self.assertIn("There are no second derivatives.", said(penalty))

    def test_a_checkpoint_over_a_dropout(self):
        class Module(OneLayer):
            def forward(self, x):
                return torch.utils.checkpoint.checkpoint(lambda x: F.dropout(self.layer(x), 0.5), x, use_reentrant=False)
        self.assertTrue(agrees(Module())(X, Y, lr=0.1).applied)

    def test_trainers_made_in_several_threads(self):
        made, out = [], sys.stdout
        threads = [threading.Thread(target=lambda model: made.append(agrees(model)(X, Y, lr=0.1).loss), args=(small(),))
                   for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(made), 3)
        self.assertEqual(len(set(made)), 1)
        self.assertIs(sys.stdout, out)
        self.assertEqual(logging.root.manager.disable, 0)

    def test_optimizers_and_schedules_of_torch(self):
        def groups_of(model):
            return [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.3},
                    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
        kinds = {
            "AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.1),
            "groups": lambda m: torch.optim.AdamW(groups_of(m), lr=1e-2, betas=(0.8, 0.95), eps=1e-6),
            "Adam": lambda m: torch.optim.Adam(m.parameters(), lr=1e-2),
            "a part": lambda m: torch.optim.AdamW(m[2].parameters(), lr=1e-2),
            "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)}
        for name, make in kinds.items():
            model, twin, losses = small(), small(), [[], []]
            mine, theirs = make(model), make(twin)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of schedules that see no step
                schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, 10) for each in (mine, theirs)]
                step = mantissa.torch.trainer(model, F.cross_entropy, (X, Y), optimizer=mine, clip=0.5)
                for at in range(10):
                    losses[0].append((step(X, Y) if at < 5 else next(step.train_on([(X, Y)]))).loss)
                    theirs.zero_grad()
                    loss = F.cross_entropy(twin(X), Y)
                    loss.backward()
                    nn.utils.clip_grad_norm_([p for group in theirs.param_groups for p in group["params"]], 0.5)
                    theirs.step()
                    losses[1].append(loss.item())
                    for schedule in schedules:
                        schedule.step()
            np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4, err_msg=name)
            step.into()
            for (path, p), other in zip(model.named_parameters(), twin.parameters()):
                self.assertLess(float((p - other).detach().abs().max()), 1e-4, (name, path))
                if "exp_avg" in theirs.state.get(other, {}):
                    self.assertLess(float((mine.state[p]["exp_avg"] - theirs.state[other]["exp_avg"]).abs().max()), 1e-4)
                    self.assertEqual(mine.state[p]["step"], theirs.state[other]["step"])
            again = mantissa.torch.trainer(model, F.cross_entropy, (X, Y), optimizer=mine)  # goes on where it was
            if name not in ("SGD", "a part"):
                self.assertEqual(again.state_dict()["0.bias"].tolist(), model[0].bias.tolist())
                self.assertEqual(np.frombuffer(again._trainer.read_state("adamw.step"), np.float64)[0], 10)

        def said(make, **options):
            model = small()
            with self.assertRaises(mantissa.Error) as raised:
                mantissa.torch.trainer(model, F.cross_entropy, (X, Y), optimizer=make(model), **options)
            return str(raised.exception)
        rest = ": give optimizer=mantissa.adamw(...) and the like, or train by mantissa.torch.gradients"
        self.assertIn("RMSprop has no like here; there are AdamW, Adam, SGD and Muon" + rest,
                      said(lambda m: torch.optim.RMSprop(m.parameters())))
        self.assertIn("AdamW with amsgrad=True" + rest, said(lambda m: torch.optim.AdamW(m.parameters(), amsgrad=True)))
        self.assertIn("groups of parameters with several betas" + rest, said(lambda m: torch.optim.AdamW(
            [{"params": m[0].parameters(), "betas": (0.8, 0.9)}, {"params": m[2].parameters()}])))
        self.assertIn("several optimizers, which are not one Muon and one AdamW", said(lambda m: [
            torch.optim.SGD(m[0].parameters()), torch.optim.SGD(m[2].parameters())]))
        self.assertIn("Adam with decoupled_weight_decay=False" + rest,
                      said(lambda m: torch.optim.Adam(m.parameters(), weight_decay=0.1)))
        self.assertIn("a parameter that is not the module's", said(lambda m: torch.optim.AdamW(small().parameters())))
        self.assertIn("write mantissa.adamw(clip=1.0)", said(lambda m: ADAMW, clip=1.0))

    def test_rows_that_were_missing(self):
        places, ones = torch.tensor([[0, 2, 1]] * 8), torch.tensor([[0], [2], [1], [0], [0], [1], [2], [2]])
        rows = torch.tensor([3, 0, 5])
        made = {
            "scatter of a number": lambda h, x: h + h.scatter(1, ones, 2.0).square(),
            "scatter": lambda h, x: h.scatter(1, places, h * x[:, :3]),
            "scatter of some": lambda h, x: h.scatter(1, ones, x[:, :1] * h[:, 1:2]),
            "scatter_reduce by sum": lambda h, x: h.scatter_reduce(1, ones.expand(8, 2), h[:, :2] * 2, "sum"),
            "scatter_reduce by mean": lambda h, x: h.scatter_reduce(1, ones.expand(8, 2), h[:, :2] * 2, "mean"),
            "scatter_reduce alone": lambda h, x: h.scatter_reduce(1, ones, h[:, :1] * 2, "mean", include_self=False),
            "index_copy": lambda h, x: h.index_copy(0, rows, h[:3] * 2),
            "norms": lambda h, x: h / torch.linalg.norm(h) + torch.linalg.norm(h, dim=1, keepdim=True)
            + torch.linalg.matrix_norm(h) + torch.linalg.norm(h, 1, dim=0),
            "vdot": lambda h, x: h * torch.vdot(h[0], h[1]),
            "circular": lambda h, x: F.pad(h[None], (2, 1), mode="circular")[0][:, 1:4] * x[:, :3],
            "gumbel": lambda h, x: F.gumbel_softmax(h, tau=0.7, hard=True) * h}

        class Module(OneLayer):
            def __init__(self, function):
                super().__init__()
                torch.manual_seed(0)
                self.layer, self.function = nn.Linear(6, 3), function

            def forward(self, x):
                return self.function(self.layer(x), x)
        for name, function in made.items():
            with self.subTest(name):
                self.assertLess(agrees(Module(function)).distance.gradient, 2e-5)

        class Twice(OneLayer):
            def forward(self, x, index):
                return self.layer(x).scatter(1, index, x[:, :3])
        step = agrees(Twice(), example=(X, places, Y), inputs=2)
        with self.assertRaisesRegex(mantissa.Error, "-1"):  # either number might stay
            step(X, places * 0, Y, lr=0.1)

    def test_what_the_trace_read_is_remembered(self):
        scale, weights, teacher, listed = [2.0], torch.ones(3), nn.Linear(6, 3), np.ones(3)

        class Module(OneLayer):
            rate, seen = 0.5, None

            def __init__(self):
                super().__init__()
                self.annealed, self.drop, self.more = 1.0, nn.Dropout(0.0), nn.ModuleList([nn.Identity()])
                self.options, self.table = {"power": 2}, torch.ones(3)

            @property
            def twice(self):
                return SETTINGS["factor"] * 2

            def forward(self, x):
                self.seen = x  # written and not read
                x = self.layer(self.drop(x)) * self.annealed * self.rate * self.twice * self.table * SCALE
                for part in self.more:
                    x = part(x)
                return x ** self.options["power"]

        def loss(out, y, at=1):
            return F.cross_entropy(out * weights * scale[0] * torch.tensor(listed).float(), y) + teacher.weight.square().mean() * at

        changes = {
            "annealed": lambda m: setattr(m, "annealed", 0.5), "drop.p": lambda m: setattr(m.drop, "p", 0.3),
            "options": lambda m: m.options.update(power=3), "table": lambda m: m.table.mul_(2),
            "(its parts)": lambda m: m.more.append(nn.Tanh()), "scale of": lambda m: scale.__setitem__(0, 3.0),
            "weights of": lambda m: weights.mul_(2), "listed of": lambda m: listed.__imul__(2),
            "teacher of": lambda m: teacher.weight.data.mul_(1) is teacher.weight.add_(1),
            "SETTINGS of": lambda m: SETTINGS.update(factor=3.0), "SCALE of": lambda m: globals().update(SCALE=2.0),
            "rate": lambda m: setattr(type(m), "rate", 0.25), "hooks": lambda m: m.layer.register_forward_hook(lambda *a: None),
            "drop.training": lambda m: m.drop.eval()}
        teacher.requires_grad_(False)
        for name, change in changes.items():
            model = Module()
            step = agrees(model, loss, check=False)
            self.assertTrue(step(X, Y, lr=0.1).applied)
            model(X), model.eval(), model(X), step.evaluate(X, Y), step.predict(X[:3]), model.train()
            model.epoch = 3  # nothing has read it
            self.assertTrue(step(X, Y, lr=0.1).applied, name)
            change(model)
            for call in (lambda: step(X, Y, lr=0.1), lambda: step.gradients(X, Y),
                         lambda: list(step.train_on([(X, Y)], lr=0.1))):
                with self.assertRaises(mantissa.Error) as raised:
                    call()
                expected = "parts" if name == "hooks" else name
                self.assertRegex(str(raised.exception), r"was changed since the trainer was made, and a step is the one")
                self.assertIn(expected, str(raised.exception))
            if name == "drop.training":
                self.assertIn("by train() or eval()", str(raised.exception))
                step.evaluate(X, Y)
            else:
                self.assertRaises(mantissa.Error, lambda: step.evaluate(X, Y))
            SETTINGS.update(factor=1.0), globals().update(SCALE=1.0)

    def test_what_a_loop_counts_beside_the_loss_is_no_change(self):
        class Experiment(OneLayer):
            def __init__(self):
                super().__init__()
                self.count, self.scale = 0, 2.0

            def forward(self, x):
                return self.layer(x) * self.scale

            def validated(self):
                return self.count

        class Loop:
            def __init__(self):
                self.count, self.weight = 0, 1.5

            def loss(self, out, y):
                return self.weighted(F.cross_entropy(out, y))

            def weighted(self, loss):
                return loss * self.weight

            def made(self, model):
                return agrees(model, lambda out, y: self.loss(out, y), check=False)
        for make in (lambda loop, model: loop.made(model), lambda loop, model: agrees(model, loop.loss, check=False)):
            model, loop = Experiment(), Loop()
            step = make(loop, model)
            for _ in range(3):
                step(X, Y, lr=0.1)
                model.count, loop.count = model.count + 1, loop.count + 1
            loop.weight = 2.0
            with self.assertRaisesRegex(mantissa.Error, "weight was changed since the trainer was made"):
                step(X, Y, lr=0.1)
            loop.weight, model.scale = 1.5, 3.0
            with self.assertRaisesRegex(mantissa.Error, "scale was changed since the trainer was made"):
                step(X, Y, lr=0.1)

    def test_a_state_that_forward_keeps_is_found_by_the_first_step(self):
        class Module(OneLayer):
            state = None

            def forward(self, x):
                h = self.layer(x)
                h = h if self.state is None else h + self.state
                self.state = h.detach()
                return h
        with self.assertRaisesRegex(mantissa.torch.DifferenceError, "forward keeps something from one call to the next"):
            agrees(Module())

    def test_hooks_that_the_first_forward_installs(self):
        class Module(OneLayer):  # as transformers collects hidden states
            installed = False

            def forward(self, x):
                if not self.installed:
                    self.layer.register_forward_hook(lambda module, given, made: made * 2)
                    self.installed = True
                return self.layer(x)
        model = Module()
        expected = (model.layer(X) * 2).detach()
        agrees(model, views=False)
        self.assertEqual(len(model.layer._forward_hooks), 0)
        torch.testing.assert_close(model(X), expected)

    def test_rows_are_predicted_as_they_stand(self):
        class Made(OneLayer):
            def __init__(self, made, whole=False):
                super().__init__()
                torch.manual_seed(0)
                self.made, self.norm = made, nn.BatchNorm1d(3, track_running_stats=False)
                self.conv, self.up, self.inner = nn.Conv2d(1, 2, 2, padding=1), nn.ConvTranspose2d(2, 2, 2), nn.LayerNorm(6)
                self.embedding = nn.Embedding(9, 6)

            def forward(self, x):
                return self.made(self, x)

        def attended(m, x):
            h = m.embedding((x.abs() * 2).long().clamp(max=8)) + m.inner(x)[:, None]
            q = h.reshape(-1, 6, 2, 3).transpose(1, 2)
            h = F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(-1, 6, 6)
            return m.layer(h).softmax(-1).amax(1) + torch.cat([x[:, :1], x[:, 3:5]], 1).cumsum(1)

        alone = {"plain": lambda m, x: m.layer(x), "attended": attended,
                 "images": lambda m, x: m.up(m.conv(F.max_pool2d(x.reshape(-1, 1, 2, 3), 1))).flatten(1),
                 "folded": lambda m, x: m.layer(x.repeat(1, 4).reshape(-1, 6)).reshape(-1, 12).tanh(),
                 "heads": lambda m, x: (m.inner(x).reshape(-1, 2, 3) @ x.reshape(-1, 3, 2)).flatten(1)}
        mixed = {"gram": lambda m, x: m.layer(x) @ m.layer(x).T, "softmax": lambda m, x: m.layer(x).softmax(0),
                 "norm": lambda m, x: m.norm(m.layer(x)), "turned": lambda m, x: m.layer(x).flip(0),
                 "place": lambda m, x: m.layer(x) * torch.arange(x.shape[0])[:, None],
                 "mean": lambda m, x: m.layer(x) - m.layer(x).mean(0), "sum": lambda m, x: m.layer(x).cumsum(0)}
        for kinds, is_whole in ((alone, False), (mixed, True)):
            for name, made in kinds.items():
                model = Made(made)
                step = agrees(model, lambda out, y: out.square().mean(), check=False)
                model.eval()
                for rows in (6, 17, 8, 17) if name == "norm" else (6, 17, 8, 1, 17):
                    x = torch.randn(rows, 6, generator=torch.Generator().manual_seed(rows))
                    with torch.no_grad():
                        theirs = model(x)
                    mine = step.predict(x)
                    self.assertEqual(mine.shape, theirs.shape, name)
                    self.assertLess(float((mine - theirs).abs().max()), 1e-5, (name, rows))
                self.assertEqual((((17, 6),), "predict") in step._traces._programs, is_whole, name)


if __name__ == "__main__":
    unittest.main()
