"""Training, evaluation and prediction."""
import contextlib
import numbers
import warnings

from . import _native
from .models import model_of


_LISTS = {"passes": '"all", "none" or a list of passes', "recompute": "a list of what is computed again",
          "frozen": "a list of patterns"}
_TAKES = {**_LISTS, "optimizer": "mantissa.adamw(...), sgd(...) or muon(...)", "policy": "a policy's name",
          "ema_decay": "a number", "lora": "mantissa.lora(rank=16, ...)"}


def _value_of(name, value):
    """As the option holds it: a word stands for a list, with commas between several, as on the command line."""
    if name == "passes" and value in ("all", "none"):
        return None if value == "all" else []
    return value.split(",") if name in _LISTS and isinstance(value, str) else value


def options_of(policy="fp32", optimizer=None, **others):
    """TrainerOptions with these fields. Raises Error, naming those there are, for one that is none."""
    options = _native.TrainerOptions()
    given = {"policy": policy, **({} if optimizer is None else {"optimizer": optimizer}), **others}
    for name, value in given.items():
        if name.startswith("_") or not hasattr(options, name):
            known = sorted([field for field in dir(options) if not field.startswith("_")] + ["device", "threads"])
            raise _native.Error(f"there is no option '{name}'; there are {', '.join(known)}")
        try:
            setattr(options, name, _value_of(name, value))
        except TypeError:
            takes = _TAKES.get(name, "a whole number, 0 or more")
            raise _native.Error(f"the option '{name}' takes {takes}, got {value!r}") from None
    return options


def native_trainer(model, given, device, threads):
    """A trainer with the options that were given. A line says which others were chosen so that a step with adapters fits."""
    options = options_of(**given)
    options._leave_open(batch=not {"batch", "accumulate"} & given.keys(), recompute="recompute" not in given)
    trainer = _native.Trainer(model, options, *device_of(device, threads))
    if trainer.choice:
        warnings.warn(trainer.choice, stacklevel=3)
    return trainer


def device_of(device, threads):
    """Device and threads as the library takes them: 0 for as many as there are."""
    if threads is not None and not (isinstance(threads, numbers.Integral) and threads > 0):
        raise _native.Error(f"threads must be 1 or more, or None for as many as there are; got {threads!r}")
    return str(device), int(threads or 0)


def rate_of(lr):
    """A learning rate as a number, which a tensor of one element may be."""
    try:
        if not isinstance(lr, str):
            return float(lr)
    except (TypeError, ValueError):
        pass
    raise _native.Error(f"lr is a number, got {lr!r}")


def tuple_of(batch):
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def arrays_of(batch):
    """The arrays of a batch that was given one by one, or as one tuple or list of them."""
    is_one = len(batch) == 1 and isinstance(batch[0], (tuple, list)) and all(hasattr(each, "shape") for each in batch[0])
    return tuple(batch[0] if is_one else batch)


def train_on(trainer, batches, rate):
    """A generator of steps of a native trainer on tuples of arrays: reads the next one while a step runs."""
    batches = iter(batches)
    arrays = following = next(batches, None)
    while following is not None:
        trainer.start(arrays, rate_of(rate(trainer.steps) if callable(rate) else rate))
        arrays = None  # the following ones are brought
        try:
            following = next(batches, None)
            if following is not None:
                trainer.bring(following)
        finally:
            result = trainer.finish()
        yield result


@contextlib.contextmanager
def averaged(trainer):
    """While it lasts, weights and running statistics of a native trainer are their averages."""
    trainer.average()
    try:
        yield
    finally:
        trainer.stop_averaging()


class Trainer:
    """A model in training.

    batch      examples of a step, which may have fewer or more: a step of as many is planned when they first come
    policy     "fp32", "tf32", "bf16", "fp16", "mxfp8", or another of mantissa.policies()
    optimizer  mantissa.adamw(...), sgd(...) or muon(...); None: AdamW
    device     "cpu", or "cuda" for an NVIDIA GPU, where the weights then lie
    threads    of the CPU; None: as many as there are

    Other options: accumulate, seed, passes, recompute, frozen, ema_decay, lora. With lora, a step that does not fit the
    memory takes smaller micro-batches, computes blocks again or keeps its trunk in fewer bits: what was given stays. Arrays are those of numpy, torch or any
    library that knows DLPack: [n, ...] for each input, or a whole one, in the order of the model's. The interpreter is free while a
    step runs.
    """

    def __init__(self, model, *, device="cpu", threads=None, **options):
        self.model = self.native_model = model_of(model)
        self.device, self.options = str(device), options  # of reports
        self._trainer = native_trainer(model, options, device, threads)

    def step(self, *arrays, lr):
        """One step on a batch, by this learning rate. Returns loss, gradient_norm, applied, seconds and metrics."""
        return self._trainer.step(arrays_of(arrays), rate_of(lr))

    def train_on(self, batches, *, lr):
        """A step on each batch, a tuple or list of arrays: yields their results, and reads the next batch while a step runs.

        lr is a rate, or a function that gives it for the count of steps before.
        """
        return train_on(self._trainer, map(tuple_of, batches), lr)

    def evaluate(self, *arrays):
        """Loss and metrics of any number of examples; nothing random, and nothing changes."""
        return self._trainer.evaluate(arrays_of(arrays))

    def predict(self, *arrays):
        """The model's output for any number of examples: float32 [n, numbers of each]."""
        return self._trainer.predict(arrays_of(arrays))

    def averaged(self):
        """For `with`: meanwhile the weights and running statistics are their averages (ema_decay), so what evaluates,
        predicts and saves has these. No step is made. A checkpoint has the averages as its model in any case."""
        return averaged(self._trainer)

    def gradients(self, *arrays):
        """A step that stops at its gradients: the loss, and an array for each parameter. update() goes on."""
        return self._trainer.gradients(arrays_of(arrays))

    def update(self, *, lr):
        """The update by the gradients at which a step stopped."""
        return self._trainer.update(rate_of(lr))

    def save(self, directory):
        """Saves the run, to be resumed to the same bits."""
        self._trainer.save(directory)

    def resume(self, directory):
        """Goes on where a run was saved. Returns what to know, in words, or nothing."""
        return self._trainer.resume(directory)

    def save_weights(self, file):
        """Writes the weights as a safetensors file."""
        self._trainer.save_weights(file)

    def load_weights(self, file, strict=True):
        """Reads weights by their names. Returns in words what was left out; strict: that is an Error."""
        return self._trainer.load_weights(file, strict)

    @property
    def steps(self):
        """Steps that were made, those before a resume included."""
        return self._trainer.steps
