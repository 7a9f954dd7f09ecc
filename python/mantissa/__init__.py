"""Mixed-precision training of neural networks: models in Python, steps in C++.

    import mantissa
    from mantissa import nn

    @mantissa.model(x=(2,), y=(1,))
    def xor(x, y):
        hidden = nn.tanh(nn.linear(x, "hidden", 8, standard_deviation=1))
        return nn.mse_loss(nn.linear(hidden, "output", 1, standard_deviation=1), y)

    trainer = mantissa.Trainer(xor, batch=4, policy="bf16")
    print(trainer.step(x, y, lr=0.05).loss)

A model is traced: its function records what a step does, on symbolic tensors, and never runs on numbers.
"""
from . import nn
from ._native import (Error, Evaluation, Generator, InternalError, Optimizer, Report, StepResult, Tensor, __version__,
                      policies)
from .models import Model, model, whole
from .optimizers import adamw, lora, muon, sgd
from .reports import converge, explain, ladder, lint, numerics, roofline
from .trainer import Trainer

__all__ = ["Error", "Evaluation", "Generator", "InternalError", "Model", "Optimizer", "Report", "StepResult", "Tensor",
           "Trainer", "__version__", "adamw", "converge", "explain", "ladder", "lint", "lora", "model", "muon", "nn",
           "numerics", "policies", "roofline", "sgd", "whole"]
