"""Modules as people write them, at tiny sizes: each a function that gives module, loss and example.

A case is `name -> (make, note)`; make() returns (model, loss, example) or (model, loss, example, options).
"""
from . import by_hand, language, vision


def cases():
    """All of them, by name: "torchvision resnet18", "transformers GPT2LMHeadModel", "plain vae"."""
    return {f"{library} {name}": make for library, made in (
        ("torchvision", vision.cases()), ("transformers", language.cases()), ("plain", by_hand.cases()))
        for name, make in made.items()}
