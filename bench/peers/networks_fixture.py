#!/usr/bin/env python3
"""Writes what PyTorch computes of the three networks for pictures, the oracle that is not ours.

    bench/peers/networks_fixture.py            writes the small ones again: tests/fixtures/NETWORK.safetensors
    bench/peers/networks_fixture.py --check    recomputes and compares with the stored files
    bench/peers/networks_fixture.py --full     writes the networks in their own sizes into build/peers/, where the slow
                                               test of tests/train/networks_fixture_test.cpp finds them; gigabytes

Contents: weights and running statistics under the names and in the layout of torchvision's state dicts, a batch of
2 x 64 x 64 x 3 pictures and their classes, the logits, the loss, every gradient, and the losses, weights and running
statistics of 20 steps of SGD with momentum. All is computed in FP64 from numbers that FP32 holds exactly, and
rounded once, on storing. The same in FP32 is made beside it and its distance printed: what a correct FP32 engine may be
expected to reach. Needs PyTorch.
"""
import argparse
import pathlib
import sys

import torch

import networks_plain
from fixture_file import check, write_safetensors

BATCH, IMAGE = 2, 64
STEPS, MOMENTUM = 20, 0.9
PERTURBED = (20, 20, 1, 1, 1)  # steps of more runs in FP32
# With statistics of 2 x 2 x 2 pixels in the last stages these networks amplify every rounding. At these rates the
# loss falls by a tenth or more in 20 steps, and PyTorch's own FP32 stays near its FP64.
LEARNING_RATES = {"ResNet50": 1e-4, "ResNet50v1.5": 3e-5, "VGG19": 1e-3, "DenseNet121": 1e-6}
SEED = 20151210
SMALL = {"classes": 5, "width": 4, "hidden": 4}
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER, FULL_FOLDER = ROOT / "tests/fixtures", ROOT / "build/peers"


def draw_state(model):
    """Weights that keep the size of what flows; and biases, norms and running statistics that no zero or one hides."""
    generator = torch.Generator().manual_seed(SEED)
    normal = lambda like, mean, deviation: (mean + deviation * torch.randn(like.shape, generator=generator)).to(like)
    state = {}
    for name, value in model.state_dict().items():
        if not value.is_floating_point():
            continue
        if value.dim() > 1:
            state[name] = normal(value, 0, (2 / value[0].numel()) ** 0.5)
        elif name.endswith("running_var"):
            state[name] = normal(value, 1, 0.1).abs() + 0.1
        elif name.endswith("bn3.weight"):  # near 0, as Goyal et al. 2017 start them
            state[name] = normal(value, 0.1, 0.01)
        else:
            state[name] = normal(value, 1 if name.endswith("weight") else 0, 0.1)
    return state


def named_state(model, prefix):
    return {prefix + name: value.detach().clone() for name, value in model.state_dict().items() if value.is_floating_point()}


def train(model, images, targets, learning_rate, steps=STEPS):
    """Everything of the file that is computed, in the dtype of the model."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=MOMENTUM)
    result, losses = {}, []
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        logits = model(images)
        loss = torch.nn.functional.cross_entropy(logits, targets)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            result["logits"] = logits.detach().clone()
            result.update({f"grad.{name}": value.grad.clone() for name, value in model.named_parameters()})
        optimizer.step()
    result.update(named_state(model, "after."))
    result["losses"] = torch.tensor(losses, dtype=torch.float64)
    return result


def largest_share(oracle, single, prefix):
    """The largest distance as a share of the largest element of its tensor, and the tensor where it is. What is zero
    but for rounding, as the gradient of a bias before a batch norm, is held against a thousandth of the largest."""
    names = [name for name in oracle if name.startswith(prefix)]
    largest = {name: oracle[name].abs().max().item() for name in names}
    floor = max(largest.values()) / 1000
    share = lambda name: (single[name].double() - oracle[name]).abs().max().item() / max(largest[name], floor)
    return max((share(name), name) for name in names)


def make_fixture(name, sizes):
    """The tensors of the file, and the distances of FP32 from FP64."""
    model = networks_plain.network(name, **sizes)
    start = draw_state(model)
    images, targets = networks_plain.synthetic_batch(BATCH, IMAGE, sizes["classes"], SEED)

    def run(dtype, pictures, **how):
        model = networks_plain.network(name, **sizes).to(dtype)
        model.load_state_dict(start, strict=False)
        return train(model, pictures.to(dtype), targets, LEARNING_RATES[name], **how)

    oracle, single = run(torch.float64, images), run(torch.float32, images)
    distances = {prefix: largest_share(oracle, single, prefix) for prefix in ("logits", "grad.", "after.", "losses")}
    # A rectifier whose operand is zero but for rounding opens or shuts by it, which one run may not show: so pictures
    # that differ in their last bit are run, too.
    for steps in PERTURBED:
        moved = run(torch.float32, images * (1 + 2.0**-23 * torch.randint(-1, 2, images.shape)), steps=steps)
        for prefix in distances if steps == STEPS else ("logits", "grad."):
            distances[prefix] = max(distances[prefix], largest_share(oracle, moved, prefix))
    tensors = {"losses": oracle.pop("losses"), "images": images.permute(0, 2, 3, 1).contiguous(),
               "targets": targets.int(), **start, **{key: value.float() for key, value in oracle.items()}}
    return tensors, distances


def main():
    parser = argparse.ArgumentParser(description="Makes the fixtures of networks for pictures with PyTorch.")
    parser.add_argument("--check", action="store_true", help="compare with the stored files, write nothing")
    parser.add_argument("--full", action="store_true", help="the networks in their own sizes, into build/peers/")
    parser.add_argument("--only", choices=networks_plain.NAMES)
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(1 if not options.full else torch.get_num_threads())
    sizes = {"classes": 1000, "width": 64, "hidden": 64} if options.full else SMALL
    status = 0
    for name in [options.only] if options.only else networks_plain.NAMES:
        path = (FULL_FOLDER if options.full else FOLDER) / f"{name.lower()}.safetensors"
        tensors, distances = make_fixture(name, sizes)
        print(f"{name}: losses {' '.join(f'{loss:.6f}' for loss in tensors['losses'].tolist())}")
        for prefix, (distance, where) in distances.items():
            print(f"  {prefix:7} FP32 is within {distance:.2e} of FP64, worst in {where}")
        if options.check:
            fault = check(path, tensors)
            print(fault or f"{path.name}: as computed here")
            status = status or int(bool(fault))
            continue
        reached = {f"fp32.{prefix}": distance for prefix, (distance, _) in distances.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {**sizes, **reached, "network": name, "batch": BATCH, "image": IMAGE, "steps": STEPS, "momentum": MOMENTUM,
                    "learning_rate": LEARNING_RATES[name], "made_by": "bench/peers/networks_fixture.py"}
        write_safetensors(path, tensors, {key: str(value) for key, value in metadata.items()})
        print(f"wrote {path} ({path.stat().st_size / 1000:.0f} kB)")
    return status


if __name__ == "__main__":
    sys.exit(main())
