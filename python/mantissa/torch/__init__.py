"""PyTorch modules, trained by mantissa as they are.

    step = mantissa.torch.trainer(model, F.cross_entropy, example=(x, y), policy="bf16",
                                  optimizer=mantissa.adamw(weight_decay=0.1, clip=1.0))
    for x, y in loader:
        loss = step(x, y, lr=1e-3).loss
    step.into(model)

In a loop of one's own, grads = mantissa.torch.gradients(model, F.cross_entropy, example=(x, y)) makes of

    loss = F.cross_entropy(model(x), y); loss.backward()

the line `loss = grads(x, y)`.

The module is captured by torch.export in the mode it is in, and its first step compared with the one that torch makes.
Needs torch; nothing else of the package does.
"""
import torch

_OLDEST = (2, 6)
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _OLDEST:
    raise ImportError(f"mantissa.torch needs torch {_OLDEST[0]}.{_OLDEST[1]} or later, and this is {torch.__version__}")

from ..rows import CaptureError, row
from .check import Distance, DifferenceError
from .module import Gradients, TorchTrainer, gradients, trainer

__all__ = ["CaptureError", "DifferenceError", "Distance", "Gradients", "TorchTrainer", "gradients", "row",
           "trainer"]
