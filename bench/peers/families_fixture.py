#!/usr/bin/env python3
"""Writes tests/fixtures/families/*.safetensors: small models of each family as transformers computes them, the oracle
that is not ours. The models: family_cases.py.

Contents of each: one batch of tokens and targets, the logits of the last tokens, the loss of each of 20 AdamW steps on
that batch, a sample of every gradient and of every parameter after the steps, and 64 tokens that continue a prompt
greedily. All is computed in FP64 from parameters that follow from their names and that FP32 holds exactly; only the
cosines and sines of positions are FP32, as transformers has them in every precision. The same run in FP32 and under
BF16 autocast is made beside it and its distance stored. config.json as transformers writes it is in the metadata.

Needs `pip install torch transformers`. `--check` compares with the stored files instead of writing them.
"""
import argparse
import json
import math
import pathlib
import sys

import torch
import transformers

import family_cases as families
from fixture_file import check, write_safetensors

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/families"
SEQUENCE, BATCH, PROMPT, GENERATED = 29, 2, 5, 64
STEPS, LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY = 20, 1e-3, (0.9, 0.95), 1e-6, 0.1


def ids(name, count):
    drawn = ((families.uniform(name, count) + 1) / 2 * families.VOCABULARY).long()
    return drawn.clamp(0, families.VOCABULARY - 1)


def train(model, tokens, targets, autocast=False):
    parameters = {families.published_name(model, name): value for name, value in sorted(model.named_parameters())}
    groups = [{"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
              {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON)
    names = sorted(parameters)
    samples = lambda of: torch.stack([families.sample(name, of(parameters[name])) for name in names])
    result, losses = {}, []
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            logits = model(tokens, use_cache=False).logits
        loss = families.loss_of(logits.float() if autocast else logits, targets)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            result["logits"] = logits[:, -1].detach().double()
            result["grads"] = samples(lambda value: value.grad)
        optimizer.step()
    result["after"] = samples(lambda value: value)
    result["losses"] = torch.tensor(losses, dtype=torch.float64)
    return result, names, [parameters[name].numel() for name in names]


def continue_greedily(model, prompt):
    """The tokens after the prompt, and the least distance between a best score and the next."""
    tokens, closest = list(prompt), math.inf
    with torch.no_grad():
        for _ in range(GENERATED):
            best = model(torch.tensor([tokens]), use_cache=False).logits[0, -1].topk(2)
            closest = min(closest, (best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
    return tokens[len(prompt):], closest


def make_fixture(name):
    config = families.make_config(*families.CASES[name])
    tokens, targets = (ids(f"{name} {what}", BATCH * SEQUENCE).reshape(BATCH, SEQUENCE)
                       for what in ("tokens", "targets"))
    model = families.make_model(config, torch.float64)
    with families.Exactly(model):
        # The first prompt without a choice that FP32 could make otherwise, and that leads somewhere.
        for number in range(100):
            prompt = ids(f"{name} prompt {number}", PROMPT).tolist()
            generated, closest = continue_greedily(model, prompt)
            if closest > 1e-3 and len(set(generated)) >= 8:
                break
        oracle, names, counts = train(model, tokens, targets)
    half, _, _ = train(families.make_model(config), tokens, targets, autocast=True)
    single, _, _ = train(families.make_model(config), tokens, targets)

    def far(run, floor_of_parameters=0.0):
        off = (run["losses"] - oracle["losses"]) / oracle["losses"]
        # Gradients of keys' biases are zero but for rounding.
        floor = {what: oracle[what][:, -2].max().item() / 100 for what in ("grads", "after")}
        floor["after"] = max(floor["after"], floor_of_parameters)
        rows = {what: max(families.distance(left, right, count, floor[what]) for left, right, count
                          in zip(run[what], oracle[what], counts)) for what in ("grads", "after")}
        return {"losses": off.square().mean().sqrt().item(), **rows}

    print(f"{name:18} loss {oracle['losses'][0]:.4f} to {oracle['losses'][-1]:.4f}; {len(set(generated))} different "
          f"tokens, closest choice {closest:.0e}; FP32", *(f"{k} {v:.1e}" for k, v in far(single).items()), "; BF16",
          *(f"{k} {v:.1e}" for k, v in far(half).items()))
    assert closest > 1e-3 and len(set(generated)) >= 8, "every prompt has a choice that FP32 could make otherwise"
    assert single["losses"].isfinite().all()
    tensors = {"losses": oracle["losses"], "tokens": tokens.int(), "targets": targets.int(),
               "prompt": torch.tensor(prompt).int(), "generated": torch.tensor(generated).int(),
               **{what: oracle[what].float() for what in ("logits", "grads", "after")}}
    metadata = {"config.json": json.dumps(json.loads(config.to_json_string(use_diff=True))), "names": " ".join(names),
                "learning_rate": LEARNING_RATE, "beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPSILON,
                "weight_decay": WEIGHT_DECAY, "made_by": f"bench/peers/families_fixture.py, transformers "
                                                         f"{transformers.__version__}",
                **{f"bf16_{what}": value for what, value in far(half).items()},
                **{f"fp32_{what}": value for what, value in far(single, 1.0).items()}}
    return tensors, {key: str(value) for key, value in metadata.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", choices=families.CASES, help="this one alone")
    parser.add_argument("--check", action="store_true", help="compare with the stored files, write nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    faults = 0
    for name in families.CASES:
        if options.only not in (None, name):
            continue
        tensors, metadata = make_fixture(name)
        path = FOLDER / f"{name}.safetensors"
        if options.check:
            fault = check(path, tensors)
            faults += fault is not None
            print(fault or f"{path.name}: as computed here")
            continue
        FOLDER.mkdir(exist_ok=True)
        write_safetensors(path, tensors, metadata)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
