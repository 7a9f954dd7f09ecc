#!/usr/bin/env python3
"""Writes tests/fixtures/lora_*.safetensors: small models of three families, and a ResNet, with adapters as PEFT
computes them, the oracle that is not ours.

Contents of each: one batch of tokens and targets (images follow from their name), the adapters under PEFT's names, their
gradients, the loss of each of 50 AdamW steps on that batch, and every merged weight's sum with drawn numbers before the
steps. All is computed in FP64 from parameters that follow from their names and that FP32 holds exactly
(family_cases.py). The metadata have the shapes of the model's own weights, config.json and adapter_config.json as
transformers and PEFT write them.

Needs `pip install torch transformers peft`. `--check` compares with the stored files instead of writing them.
"""
import argparse
import json
import pathlib
import sys

import peft
import torch

import family_cases as families
import lora_cases
from fixture_file import check, write_safetensors

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures"
STEPS = 50
# At 1e-2, PyTorch's own FP32 comes apart from FP64, by 5.6e-3 within 50 steps; at this rate by 3.9e-6 at most.
LEARNING_RATE = 2e-3


def make_fixture(name):
    if name in lora_cases.IMAGE_CASES:
        batch, loss_of = lora_cases.image_batch(name), lora_cases.image_loss
        base, config = lora_cases.image_base(torch.float64), {}
        shapes = {key: list(value.shape) for key, value in base.state_dict().items() if value.is_floating_point()}
    else:
        batch, loss_of = tuple(lora_cases.batch_of(name)), lora_cases.text_loss
        base = lora_cases.base_of(name, torch.float64)
        config = json.loads(base.config.to_json_string(use_diff=True))
        shapes = {key: list(value.shape) for key, value in base.state_dict().items() if key != "lm_head.weight"
                  or not base.config.tie_word_embeddings}
    model = lora_cases.adapted(base, name)
    for parameter in lora_cases.adapters_of(model).values():
        parameter.data = parameter.data.double()
    with families.Exactly(model):
        adapters = {key: value.detach().clone() for key, value in lora_cases.adapters_of(model).items()}
        losses, gradients = lora_cases.train(model, lambda _: batch, STEPS, loss_of=loss_of,
                                             learning_rate=LEARNING_RATE)
    adapter_config = lora_cases.saved_config(model)
    with torch.no_grad():
        for key, value in lora_cases.adapters_of(model).items():
            value.copy_(adapters[key])
        merged = model.merge_and_unload().state_dict()
    sums = {key: (merged[key].flatten() * families.uniform("probe " + key, merged[key].numel())).sum()
            for key in sorted(shapes)}
    print(f"{name:11} loss {losses[0]:.4f} to {losses[-1]:.4f}, {len(adapters)} tensors of adapters")
    tensors = {"losses": torch.tensor(losses, dtype=torch.float64), "merged": torch.stack(list(sums.values())),
               **({} if name in lora_cases.IMAGE_CASES else {"tokens": batch[0].int()}), "targets": batch[1].int(),
               **{key: value.float() for key, value in adapters.items()},
               **{"grad." + key: value.float() for key, value in gradients.items()}}
    metadata = {"config.json": json.dumps(config), "adapter_config.json": json.dumps(adapter_config),
                "shapes": json.dumps(shapes), "learning_rate": LEARNING_RATE,
                "beta1": lora_cases.BETAS[0], "beta2": lora_cases.BETAS[1], "epsilon": lora_cases.EPSILON,
                "weight_decay": lora_cases.WEIGHT_DECAY,
                "made_by": f"bench/peers/lora_fixture.py, peft {peft.__version__}"}
    return tensors, {key: str(value) for key, value in metadata.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored files, write nothing")
    options = parser.parse_args()
    lora_cases.quiet()
    faults = 0
    for name in (*lora_cases.CASES, *lora_cases.IMAGE_CASES):
        tensors, metadata = make_fixture(name)
        path = FOLDER / f"lora_{name}.safetensors"
        if not options.check:
            write_safetensors(path, tensors, metadata)
        elif fault := check(path, tensors):
            faults += 1
            print(fault)
    sys.exit(faults)


if __name__ == "__main__":
    main()
