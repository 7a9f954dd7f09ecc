"""The package as its users have it: models, training, predictions, reports, errors, memory."""
import gc
import json
import os
import pathlib
import resource
import shutil
import tempfile
import threading
import unittest
import weakref

import mantissa
import numpy as np
from mantissa import nn

X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
Y = np.array([[0], [1], [1], [0]], np.float32)


def network(x):
    hidden = nn.tanh(nn.linear(x, "hidden", 8, standard_deviation=1))
    return nn.linear(hidden, "output", 1, standard_deviation=1)


def xor():
    return mantissa.Model("xor", {"x": (2,), "y": (1,)}, lambda x, y: nn.mse_loss(network(x), y), network)


def trained(steps=200, **options):
    trainer = mantissa.Trainer(xor(), batch=4, optimizer=mantissa.adamw(weight_decay=0), **options)
    for _ in range(steps):
        result = trainer.step(X, Y, lr=0.05)
    return trainer, result


class Generating(unittest.TestCase):
    def test_a_prompt_is_continued_and_a_chat_is_answered_through_its_template(self):
        fixture = pathlib.Path(__file__).parents[2] / "tests/fixtures/be3cae47/packed_each"
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(fixture, folder, dirs_exist_ok=True)
            (pathlib.Path(folder) / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
            generator = mantissa.Generator(pathlib.Path(folder), threads=1)
            text = generator.text("the ca", length=4, temperature=0)
            self.assertTrue(text)
            messages = [{"role": "user", "content": "the ca"}]
            self.assertEqual(generator.answer(messages, length=4, temperature=0), text)
            self.assertEqual(generator.answer(json.dumps(messages), length=4, temperature=0), text)
            with self.assertRaisesRegex(mantissa.Error, "temperature"):
                generator.text("the ca", temperature=-1)
            with self.assertRaisesRegex(mantissa.Error, "expected messages"):
                generator.answer([{"content": "the ca"}])


class Training(unittest.TestCase):
    def test_learns_in_every_policy_and_predicts(self):
        for policy in mantissa.policies():
            if policy.startswith(("fp8", "mx", "nv")):  # first and last layer, and there are no others, stay in BF16
                with self.assertRaisesRegex(mantissa.Error, "rounds nothing in xor"):
                    trained(steps=1, policy=policy)
                continue
            trainer, result = trained(policy=policy)
            self.assertLess(result.loss, 1e-2, policy)
            self.assertTrue(result.applied)
            self.assertEqual(trainer.steps, 200)
            predicted = trainer.predict(X)
            self.assertEqual((predicted.dtype, predicted.shape), (np.float32, (4, 1)))
            self.assertLess(abs(predicted - Y).max(), 0.2, policy)
            self.assertAlmostEqual(trainer.evaluate(X, Y).loss, float(((predicted - Y) ** 2).mean()), 4)

    def test_a_step_with_adapters_takes_what_fits(self):
        def output(x):
            for layer in range(8):
                x = nn.gelu(nn.linear(x, f"layer{layer}", 64))
            return x

        def rows(**options):
            return mantissa.Trainer(mantissa.Model("rows", {"x": (65536, 64)}, lambda x: nn.mse_loss(output(x), x)), policy="fp32",
                                    passes="none", lora=mantissa.lora(4), **options)

        status = pathlib.Path("/proc/self/status").read_text().splitlines()
        held = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
        before = resource.getrlimit(resource.RLIMIT_DATA)
        # Examples take 0.34 GB each: two of them are more than there is.
        resource.setrlimit(resource.RLIMIT_DATA, (held + 600_000_000, before[1]))
        try:
            with self.assertWarnsRegex(UserWarning, "does not fit: `batch` 1 `accumulate` 4, which needs "):
                rows()
            with self.assertRaisesRegex(mantissa.Error, "use a smaller `batch`"):
                rows(batch=4)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, before)

    def test_a_decorated_function_is_a_model(self):
        @mantissa.model(x=(3,), label=((), "i32"))
        def classifier(x, label):
            return nn.cross_entropy(nn.linear(nn.dropout(x, 0.1), "classes", 2), label)

        trainer = mantissa.Trainer(classifier, batch=8)
        rows = np.random.default_rng(1).normal(size=(8, 3))  # float64
        labels = (rows[:, 0] > 0).astype(np.int64)
        losses = [trainer.step(rows, labels, lr=0.05).loss for _ in range(60)]
        self.assertLess(losses[-1], 0.5 * losses[0])

    def test_comparisons_are_those_of_numbers(self):
        def output(x):
            other = x * 2 - 1
            both = ((x < other, x <= other, x > other, x >= other), (x < 0.5, x <= 0, x > 0, x >= 0.5))
            return nn.concat([each.cast("f32") for row in both for each in row], 1)

        trainer = mantissa.Trainer(mantissa.Model("compared", {"x": (2,), "y": (1,)},
                                                  lambda x, y: nn.mse_loss(network(x), y), output), batch=4)
        other = X * 2 - 1
        expected = (X < other, X <= other, X > other, X >= other, X < 0.5, X <= 0, X > 0, X >= 0.5)
        self.assertTrue((trainer.predict(X) == np.concatenate(expected, 1)).all())

    def test_floats_of_other_sizes_are_converted(self):
        trainer = trained(1)[0]
        numbers = np.array([[1 / 3, -65504], [6e-8, 0.1]])
        for dtype in (np.float16, np.float64):
            given = numbers.astype(dtype)
            self.assertTrue((trainer.predict(given) == trainer.predict(given.astype(np.float32))).all())

    def test_metrics_are_named_in_the_loss(self):
        def loss(x, y):
            error = network(x) - y
            nn.metric("largest", nn.abs(error))
            nn.metric("same place", nn.equal(nn.argmax(x, 1), nn.argmax(x * 2, -1)))
            return (error * error).mean()

        trainer = mantissa.Trainer(mantissa.Model("xor", {"x": (2,), "y": (1,)}, loss, network), batch=2, accumulate=2)
        before = float(np.abs(trainer.predict(X) - Y).mean())
        metrics = trainer.evaluate(X, Y).metrics
        self.assertAlmostEqual(metrics["largest"], before, 6)
        self.assertEqual(metrics["same place"], 1)
        self.assertAlmostEqual(trainer.step(X, Y, lr=0.1).metrics["largest"], before, 6)
        self.assertEqual(mantissa.Trainer(xor(), batch=4).step(X, Y, lr=0.1).metrics, {})

    def test_results_show_what_they_hold(self):
        _, result = trained(1)
        self.assertRegex(repr(result), r"^StepResult\(loss=\d\.\d+, gradient_norm=\d\.\d+, applied=True, "
                                       r"seconds=[0-9.e-]+, metrics=\{\}\)$")
        self.assertIn(f"loss={result.loss:.6g},", repr(result))
        self.assertRegex(repr(trained(1)[0].evaluate(X, Y)), r"^Evaluation\(loss=\d\.\d+, metrics=\{\}\)$")

    def test_optimizers_show_what_they_hold(self):
        self.assertEqual(repr(mantissa.adamw(clip=1)), "adamw(beta1=0.9, beta2=0.95, epsilon=1e-08, weight_decay=0.1, "
                                                       "decay_matrices_only=True, clip=1.0)")
        self.assertEqual(repr(mantissa.sgd(momentum=0.9)), "sgd(momentum=0.9, dampening=0.0, nesterov=False, "
                                                           "weight_decay=0.0, decay_matrices_only=False, clip=0.0)")
        self.assertRegex(repr(mantissa.muon()), r"^muon\(momentum=0.95, .*adamw_beta2=0.95, .*clip=0.0\)$")

    def test_batches_of_any_shape(self):
        def loss(x, y):
            return nn.mse_loss(nn.linear(x, "line", 1).reshape([x.shape[0], -1]), y)
        model = mantissa.Model("lines", {"x": (5, 2), "y": (5,)}, loss, shapes_vary=True)
        trainer, w, bias = mantissa.Trainer(model, batch=4, optimizer=mantissa.sgd()), None, 0.0
        random = np.random.default_rng(0)
        for rows, length in ((4, 5), (3, 5), (4, 9), (1, 2), (4, 5)):
            if w is None:
                w = np.frombuffer(trainer._trainer.read_state("line.weight"), np.float32).astype(np.float64)
            x, y = random.normal(size=(rows, length, 2)), random.normal(size=(rows, length))
            off = x @ w + bias - y
            self.assertAlmostEqual(trainer.step(x, y, lr=0.1).loss, (off ** 2).mean(), 5)
            w, bias = w - 0.1 * 2 * (off[..., None] * x).mean((0, 1)), bias - 0.1 * 2 * off.mean()
        fixed = mantissa.Trainer(mantissa.Model("lines", {"x": (5, 2), "y": (5,)}, loss), batch=4)
        with self.assertRaisesRegex(mantissa.Error, r"input 'x' takes \[n, ...\] with \[5, 2\] of each example, got"):
            fixed.step(np.zeros((4, 9, 2)), np.zeros((4, 9)), lr=0.1)

    def test_averages_are_judged_where_they_are_asked_for(self):
        def normed(x, y):
            hidden = nn.batch_norm(nn.linear(x, "hidden", 4, standard_deviation=1), "norm")
            return nn.mse_loss(nn.linear(hidden, "output", 1, standard_deviation=1), y)

        trainer = mantissa.Trainer(mantissa.Model("normed", {"x": (2,), "y": (1,)}, normed), batch=4, ema_decay=0.9,
                                   optimizer=mantissa.sgd(momentum=0.9))
        native, averages = trainer._trainer, {}
        names = [name for name in native.states if "ema." + name in native.states]
        self.assertIn("norm.running_var", names)
        numbers = lambda name: np.frombuffer(native.read_state(name), np.float32).astype(np.float64)
        for _ in range(50):
            trainer.step(X, Y, lr=0.05)
            averages = {name: 0.9 * averages.get(name, numbers(name)) + 0.1 * numbers(name) for name in names}
        own = trainer.evaluate(X, Y).loss
        with trainer.averaged():
            for name in names:
                apart = abs(numbers(name) - averages[name]).max() / max(1, abs(averages[name]).max())
                self.assertLess(apart, 1e-6, name)
            self.assertNotEqual(trainer.evaluate(X, Y).loss, own)
            with self.assertRaisesRegex(mantissa.Error, "averages for now"):
                trainer.step(X, Y, lr=0.05)
        self.assertEqual(trainer.evaluate(X, Y).loss, own)

    def test_the_version_is_that_of_the_package(self):
        project = (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text()
        self.assertIn(f'version = "{mantissa.__version__}"', project)

    def test_an_input_without_a_batch_is_given_whole(self):
        @mantissa.model(output=lambda x, table: nn.matmul(x, table), output_inputs=2,
                        x=(2,), table=mantissa.whole((2, 3)), y=(3,))
        def shared(x, table, y):
            return nn.mse_loss(nn.linear(nn.matmul(x, table), "out", 3), y)

        table = np.arange(6, dtype=np.float32).reshape(2, 3)
        trainer = mantissa.Trainer(shared, batch=2, accumulate=2)
        self.assertTrue(trainer.step(X, table, np.zeros((4, 3), np.float32), lr=0.01).applied)
        for rows in (X, X[:3], X[:1]):
            self.assertTrue((trainer.predict(rows, table) == rows @ table).all())
        with self.assertRaises(mantissa.Error) as raised:
            trainer.predict(X, np.stack([table] * 4))
        self.assertEqual(str(raised.exception), "input 'table' takes [2, 3], got [4, 2, 3]")

    def test_goes_on_to_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            trainer, _ = trained(20)
            trainer.save(pathlib.Path(folder) / "run")
            other = mantissa.Trainer(xor(), batch=4, optimizer=mantissa.adamw(weight_decay=0))
            self.assertEqual(other.resume(pathlib.Path(folder) / "run"), "")
            self.assertEqual(other.step(X, Y, lr=0.05).loss, trainer.step(X, Y, lr=0.05).loss)
            trainer.save_weights(pathlib.Path(folder) / "xor.safetensors")
            again = mantissa.Trainer(xor(), batch=4)
            self.assertEqual(again.load_weights(pathlib.Path(folder) / "xor.safetensors"), "")
            self.assertTrue((again.predict(X) == trainer.predict(X)).all())

    def test_a_batch_may_be_one_tuple_or_list(self):
        one, other = trained(1)[0], trained(1)[0]
        self.assertEqual(one.evaluate((X, Y)).loss, other.evaluate(X, Y).loss)
        self.assertEqual([result.loss for result in one.train_on([[X, Y]], lr=0.1)], [other.step((X, Y), lr=0.1).loss])

    def test_gradients_are_those_of_finite_differences(self):
        trainer, _ = trained(5)
        loss, gradients = trainer.gradients(X, Y)
        self.assertEqual(set(gradients), {"hidden.weight", "hidden.bias", "output.weight", "output.bias"})
        self.assertEqual(gradients["hidden.weight"].shape, (8, 2))
        error = 2 * (trainer.predict(X) - Y).mean()
        self.assertAlmostEqual(float(gradients["output.bias"][0]), float(error), 5)
        self.assertAlmostEqual(loss, trainer.evaluate(X, Y).loss, 6)
        self.assertTrue(trainer.update(lr=0.05).applied)


class TrainsOnBatches(unittest.TestCase):
    device = "cpu"

    def setUp(self):
        generator = np.random.default_rng(1)
        self.batches = [(generator.normal(size=(4, 2)).astype(np.float32), Y * scale) for scale in range(1, 7)]

    def trainer(self):
        return mantissa.Trainer(xor(), batch=4, device=self.device)

    def test_as_step_by_step(self):
        one, other = self.trainer(), self.trainer()
        expected = [one.step(*batch, lr=0.01 * (index + 1)).loss for index, batch in enumerate(self.batches)]
        self.assertEqual([result.loss for result in other.train_on(self.batches, lr=lambda step: 0.01 * (step + 1))],
                         expected)
        self.assertEqual(other.steps, 6)
        self.assertEqual(list(other.train_on([], lr=1)), [])

    def test_what_was_read_ahead_is_no_other_steps_batch(self):
        one, other = self.trainer(), self.trainer()
        for _ in one.train_on(self.batches, lr=0.01):
            break
        other.step(*self.batches[0], lr=0.01)
        self.assertEqual(one.step(*self.batches[4], lr=0.01).loss, other.step(*self.batches[4], lr=0.01).loss)
        losses = [result.loss for result in self.between(one)]
        self.assertEqual(losses, [other.step(*self.batches[at], lr=0.01).loss for at in (0, 5, 1, 5)][::2])

    def between(self, trainer):
        """Two steps, and another one after each."""
        for result in trainer.train_on(self.batches[:2], lr=0.01):
            yield result
            trainer.step(*self.batches[5], lr=0.01)

    def test_an_error_of_the_loader_ends_the_step_that_runs(self):
        def loader():
            yield self.batches[0]
            raise KeyError("lost")

        trainer = self.trainer()
        for batches, error in ((loader(), KeyError), ([self.batches[0], (X,)], mantissa.Error)):
            with self.assertRaises(error):
                list(trainer.train_on(batches, lr=0.01))
        self.assertEqual(trainer.steps, 2)
        self.assertTrue(trainer.step(X, Y, lr=0.01).applied)


def gpu_refusal():
    try:
        mantissa.Trainer(xor(), batch=4, device="cuda")
    except mantissa.Error as error:
        return f"{error}; LD_LIBRARY_PATH=build/emulated_gpu brings an emulated one"
    return ""


@unittest.skipIf(gpu_refusal(), gpu_refusal())
class OnAGpu(TrainsOnBatches):
    device = "cuda"

    def test_trains_as_the_cpu_does(self):
        for policy in ("fp32", "bf16"):
            (here, first), (there, second) = (trained(5, policy=policy, device=device) for device in ("cpu", "cuda"))
            near = 1e-5 if policy == "fp32" else 1e-2
            self.assertLess(abs(first.loss - second.loss), near)
            (loss, expected), (same, got) = here.gradients(X, Y), there.gradients(X, Y)
            self.assertLess(abs(loss - same), near)
            self.assertEqual(set(got), set(expected))
            for name in expected:
                self.assertLess(abs(got[name] - expected[name]).max(), near, name)
            self.assertLess(abs(here.predict(X) - there.predict(X)).max(), near)

    def test_reports_are_of_the_device(self):
        self.assertIn("cublasLt", mantissa.explain(xor(), batch=4, device="cuda").json)


class Errors(unittest.TestCase):
    def said(self, call):
        with self.assertRaises(mantissa.Error) as raised:
            call()
        return str(raised.exception)

    def test_of_arrays_name_the_input(self):
        trainer, _ = trained(1)
        self.assertEqual(self.said(lambda: trainer.step(X, lr=1)), "model xor takes 2 arrays here, got 1")
        self.assertEqual(self.said(lambda: trainer.step(X, X, lr=1)),
                         "input 'y' takes [n, ...] with [1] of each example, got [4, 2]")
        for dtype in ("int64", "int32", "uint8", "complex64", "bool"):
            self.assertEqual(self.said(lambda: trainer.step(X.astype(dtype), Y, lr=1)),
                             f"input 'x' takes float32, float64, float16 or bfloat16, and the array is of {dtype}; convert "
                             "it first")
        for call in (trainer.evaluate, trainer.gradients):
            self.assertEqual(self.said(lambda: call(X[:0], Y[:0])), "input 'x' has no examples: give one or more")
        self.assertEqual(self.said(lambda: trainer.step([[0, 1]], Y, lr=1)),
                         "input 'x' takes an array in the CPU's memory, in its byte order, got list; numpy.asarray "
                         "makes one of a list")
        self.assertIn("in its byte order, got ndarray", self.said(lambda: trainer.step(X.astype(">f4"), Y, lr=1)))

    def test_a_rate_that_is_none_is_refused_and_changes_nothing(self):
        trainer, _ = trained(1)
        before = trainer.evaluate(X, Y).loss
        trainer.gradients(X, Y)
        self.assertEqual(self.said(lambda: trainer.step(X, Y, lr="0.1")), "lr is a number, got '0.1'")
        for rate in (float("nan"), float("inf"), -0.1):
            wrong = f"the learning rate of a step must be 0 or more and finite in FP32, got {rate}"
            self.assertEqual(self.said(lambda: trainer.step(X, Y, lr=rate)), wrong)
            self.assertEqual(self.said(lambda: trainer.update(lr=rate)), wrong)
            self.assertEqual(self.said(lambda: list(trainer.train_on([(X, Y)], lr=rate))), wrong)
        self.assertEqual(trainer.evaluate(X, Y).loss, before)

    def test_of_options_name_the_option(self):
        for option, value, takes in (
                ("batch", "a", "a whole number, 0 or more"), ("batch", 2.5, "a whole number, 0 or more"),
                ("optimizer", "adamw", "mantissa.adamw(...), sgd(...) or muon(...)"),
                ("passes", 3, '"all", "none" or a list of passes'), ("policy", 3, "a policy's name")):
            self.assertEqual(self.said(lambda: mantissa.Trainer(xor(), **{option: value})),
                             f"the option '{option}' takes {takes}, got {value!r}")

    def test_of_optimizers_say_what_to_write_instead(self):
        for options, instead in (({"lr": 1e-3}, "no lr: the rate is each step's, as in step(x, y, lr=1e-3)"),
                                 ({"betas": (0.9, 0.999), "eps": 1e-8},
                                  "no betas: write beta1=0.9, beta2=0.999; no eps: write epsilon=1e-8")):
            self.assertIn(f"adamw takes {instead}. It is adamw(weight_decay: float = 0.1, beta1:",
                          self.said(lambda: mantissa.adamw(**options)))
        self.assertRegex(self.said(lambda: mantissa.sgd(momentum="a")), r"sgd is sgd\(.*\), got {'momentum': 'a'}")

    def test_what_is_no_model_is_named(self):
        for call in (mantissa.Trainer, mantissa.explain):
            self.assertIn("got function", self.said(lambda: call(network)))

    def test_a_branch_on_a_tensor_says_what_to_write(self):
        def branching(x, y):
            return nn.mse_loss(network(x) if network(x) > 0 else x, y)

        self.assertIn("choose by nn.select(x > 0, a, b)", self.said(
            lambda: mantissa.Trainer(mantissa.Model("branching", {"x": (2,), "y": (1,)}, branching))))

    def test_what_predicts_nothing_is_given_an_output(self):
        model = mantissa.Model("mute", {"x": (2,), "y": (1,)}, lambda x, y: nn.mse_loss(network(x), y))
        self.assertEqual(self.said(lambda: mantissa.Trainer(model).predict(X)),
                         "model mute predicts nothing: give it an output")

    def test_threads_are_one_or_more(self):
        for threads in (0, -1, "2"):
            for call in (mantissa.Trainer, mantissa.explain):
                self.assertEqual(self.said(lambda: call(xor(), batch=4, threads=threads)),
                                 f"threads must be 1 or more, or None for as many as there are; got {threads!r}")

    def test_a_word_stands_for_a_list(self):
        with self.assertRaisesRegex(mantissa.Error, "there is no optional pass 'some'"):
            mantissa.Trainer(xor(), batch=4, passes="some")
        with self.assertRaisesRegex(mantissa.Error, "'nothing' cannot be recomputed"):
            mantissa.Trainer(xor(), batch=4, recompute="gelu,nothing")
        for word, same in (("all", None), ("none", []), ("simplify,fuse", ["simplify", "fuse"])):
            self.assertEqual(mantissa.explain(xor(), batch=4, passes=word).json,
                             mantissa.explain(xor(), batch=4, passes=same).json)

    def test_a_device_that_is_none_is_named(self):
        self.assertEqual(self.said(lambda: mantissa.Trainer(xor(), batch=4, device="tpu")),
                         "there is no device 'tpu'; there are cpu and cuda")
        self.assertEqual(self.said(lambda: mantissa.Trainer(xor(), batch=4, device=0)),
                         "there is no device '0'; there are cpu and cuda")

    def test_of_models_come_from_where_they_are_recorded(self):
        def wrong(x, y):
            return nn.mse_loss(network(x), x)

        with self.assertRaises(mantissa.Error) as raised:
            mantissa.Trainer(mantissa.Model("wrong", {"x": (2,), "y": (1,)}, wrong), batch=4)
        self.assertEqual(str(raised.exception), "mse_loss: the prediction is f32[4, 1], the target f32[4, 2]; "
                         "expected one shape, reshape one of them")
        self.assertIn("must return a Tensor, got int", self.said(
            lambda: mantissa.Trainer(mantissa.Model("none", {"x": (2,)}, lambda x: 3))))
        self.assertIn("there is no option 'polcy'; there are accumulate, batch, device, ema_decay, frozen, lora, optimizer, passes, plans, "
                      "policy, recompute, seed, threads",
                      self.said(lambda: mantissa.Trainer(xor(), polcy="bf16")))

    def test_of_a_function_are_its_own(self):
        def broken(x, y):
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            mantissa.Trainer(mantissa.Model("broken", {"x": (2,), "y": (1,)}, broken), batch=4)


class Reports(unittest.TestCase):
    def test_each_prints_shows_itself_and_is_data(self):
        model = xor()
        made = {"explain": mantissa.explain(model, batch=4, policy="bf16"),
                "lint": mantissa.lint(model, batch=4, repeats=0),
                "roofline": mantissa.roofline(model, X, Y, batch=4),
                "numerics": mantissa.numerics(model, X, Y, batch=4, steps=2),
                "converge": mantissa.converge(model, X, Y, batch=4, steps=2, policies=["fp32", "bf16"]),
                "ladder": mantissa.ladder(model, X, Y, batch=4, steps=2, repeats=1, rungs=["fp32", "bf16"])}
        for name, report in made.items():
            self.assertIn("xor", str(report) if name != "converge" else report.page, name)
            self.assertTrue(report._repr_html_().startswith("<!doctype html>"), name)
            self.assertIsInstance(json.loads(report.json), dict, name)

    def test_a_trainer_stands_for_its_model(self):
        trainer = mantissa.Trainer(xor(), batch=2, policy="bf16")
        self.assertEqual(mantissa.explain(trainer).json, mantissa.explain(xor(), batch=2, policy="bf16").json)


class Memory(unittest.TestCase):
    def test_models_and_trainers_are_freed_in_whatever_cycle(self):
        class Kept:
            pass

        alive = []
        for _ in range(10):
            kept = Kept()

            def loss(x, y, kept=kept):
                return nn.mse_loss(network(x), y)

            kept.trainer = mantissa.Trainer(mantissa.Model("cycle", {"x": (2,), "y": (1,)}, loss, network), batch=4)
            kept.trainer.step(X, Y, lr=0.01)
            kept.trainer.predict(X)
            alive.append(weakref.ref(kept))
            del kept, loss
        gc.collect()
        self.assertEqual(sum(each() is not None for each in alive), 0)

    def test_a_model_that_is_refused_keeps_nothing(self):
        def loss(x, y):
            return nn.mse_loss(network(x), y)

        kept = weakref.ref(loss)
        with self.assertRaisesRegex(mantissa.Error, "inputs are f32, i32 or u8, got 'i16'"):
            mantissa.Model("refused", {"x": (2,), "y": ((), "i16")}, loss)
        del loss
        gc.collect()
        self.assertIsNone(kept())

    def test_freed_memory_goes_back_to_the_system(self):
        def resident():
            status = pathlib.Path("/proc/self/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0]) / 1024

        blocks = [bytearray(60_000) for _ in range(4000)]  # 240 MB
        last, before = blocks[-1], resident()
        blocks.clear()
        self.assertGreater(resident(), before - 100)  # the last of them keeps all others
        mantissa._native.give_back_memory()
        self.assertLess(resident(), before - 200)
        self.assertEqual(len(last), 60_000)

    def test_the_interpreter_is_free_while_a_step_runs(self):
        trainer, _ = trained(1, threads=1)
        counted, done = [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        for _ in range(50):
            trainer.step(X, Y, lr=0.01)
        done.set()
        thread.join()
        self.assertGreater(counted[0], 0)


if __name__ == "__main__":
    os.chdir(tempfile.gettempdir())
    unittest.main()
