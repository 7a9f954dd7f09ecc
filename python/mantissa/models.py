"""Models: what they take, and the functions that record their loss and their output."""
import inspect

from . import _native


class Model(_native.Model):
    """A model as a value.

    inputs   by name, each the shape of one example, or a pair of shape and type: "f32", "i32" (classes, ids), "u8";
             or whole(shape), which has no batch
    loss     function of all inputs, in their order: returns one floating number, a mean over the batch
    output   function of the first `output_inputs` inputs: what the model predicts, [batch, ...]; None: nothing
    shapes_vary   whether a batch may have inputs of other shapes, as sequences of other lengths: the functions then follow
             the shapes of what they are given

    Inputs are given to the functions with the batch in front, but for whole ones. Raises Error for an input of another type.
    """

    def __init__(self, name, inputs, loss, output=None, output_inputs=1, shapes_vary=False):
        super().__init__(name, [_input(key, of) for key, of in inputs.items()], loss, output, output_inputs, shapes_vary)


def model_of(model):
    """The model. Raises Error for what is none."""
    if isinstance(model, _native.Model):
        return model
    is_module = hasattr(model, "named_parameters")
    raise _native.Error(f"expected a mantissa.Model, or a function below @mantissa.model(...), got {type(model).__name__}"
                        + ("; mantissa.torch.trainer trains modules of PyTorch" if is_module else ""))


class whole:
    """An input without a batch axis: one array for all examples, as in mantissa.model(x=(2,), table=whole((8, 2)))."""

    def __init__(self, shape, dtype="f32"):
        self.shape, self.dtype = shape, dtype


def _input(name, of):
    if isinstance(of, whole):
        return name, of.dtype, list(of.shape), True
    shape, dtype = of if len(of) == 2 and isinstance(of[1], str) else (of, "f32")
    return name, dtype, list(shape), False


def model(output=None, output_inputs=1, **inputs):
    """Makes a model of the function below, which records its loss: @mantissa.model(x=(2,), y=((), "i32")).

    The function's parameters are the inputs, by name. Raises Error where they are others.
    """
    def make(loss):
        names = list(inspect.signature(loss).parameters)
        if set(names) != set(inputs):
            raise _native.Error(f"{loss.__name__} takes {', '.join(names)}, and the model's inputs are "
                                f"{', '.join(inputs)}; give each the shape of one example")
        return Model(loss.__name__, {name: inputs[name] for name in names}, loss, output, output_inputs)
    return make
