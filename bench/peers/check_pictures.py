#!/usr/bin/env python3
"""Trains a ResNet50 on generated pictures by `mantissa train --images`, and holds it against torchvision's.

300 PNGs of three classes are drawn (a disc, a cross, stripes, on noise), 60 of them for validation. Then

* torchvision's resnet50 with the weights that were saved gives the logits of `predict`, within 1e-4 (FP32, summed in
  other orders), and names the same classes; `predict`'s score of the folders is that of the run's own validation;
* torchvision's state dict, with a head for 1000 classes, begins a run of two classes, with its trunk frozen and not:
  both learn, and a frozen trunk keeps its bytes.

Pictures are as large as the network reads, so that nobody resizes them. Needs `pip install torch torchvision safetensors
numpy pillow`, and a release build.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import torchvision
from PIL import Image

from mantissa_program import run

SIZE, CLASSES, TOLERANCE = 64, ("cross", "disc", "stripes"), 1e-4
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NETWORK = ["--model", "ResNet50v1.5", "--image-size", SIZE, "--resize", SIZE, "--policy", "fp32",
           "--augment", "none", "--quiet"]


def draw(kind, source):
    """[SIZE, SIZE, 3], a shape in one colour on noise in another."""
    rows, columns = numpy.mgrid[:SIZE, :SIZE]
    y, x = source.uniform(SIZE * 0.3, SIZE * 0.7, 2)
    radius = source.uniform(SIZE * 0.15, SIZE * 0.3)
    shape = {"disc": (rows - y) ** 2 + (columns - x) ** 2 < radius ** 2,
             "cross": (abs(rows - y) < radius / 3) | (abs(columns - x) < radius / 3),
             "stripes": (rows + int(y)) % 12 < 6}[kind]
    behind, before = source.uniform(0, 120, 3), source.uniform(130, 255, 3)
    picture = numpy.where(shape[..., None], before, behind) + source.normal(0, 12, (SIZE, SIZE, 3))
    return picture.clip(0, 255).astype(numpy.uint8)


def draw_all(folder, classes, count):
    """Pictures in train/ and val/, every fifth in the latter."""
    source = numpy.random.default_rng(len(classes))
    for number in range(count):
        kind = classes[number % len(classes)]
        place = folder / ("val" if number // len(classes) % 5 == 4 else "train") / kind
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw(kind, source)).save(place / f"{number}.png")
    return folder


def train(options, pictures, checkpoint, steps, rate, *more):
    """The report of the run, which validates after its last step."""
    report = checkpoint.with_suffix(".json")
    run(options.program, "train", "--images", pictures, *NETWORK, "--batch", 10, "--steps", steps, "--learning-rate", rate,
        "--validate-every", steps, "--threads", options.threads, "--checkpoint", checkpoint, "--json", report, *more)
    return json.loads(report.read_text())


def predict(options, checkpoint, pictures):
    report = checkpoint.with_suffix(".predicted.json")
    run(options.program, "predict", "--checkpoint", checkpoint, "--policy", "fp32", "--quiet", "--top", 3, "--threads",
        options.threads, "--json", report, pictures)
    return json.loads(report.read_text())


def network_of(weights, classes):
    """torchvision's, with the weights in a file."""
    network = torchvision.models.resnet50(weights=None, num_classes=classes).eval()
    unfit = network.load_state_dict(safetensors.torch.load_file(weights), strict=False)
    counters = {name for name in network.state_dict() if name.endswith("num_batches_tracked")}
    if unfit.unexpected_keys or set(unfit.missing_keys) - counters:
        raise SystemExit(f"{weights}: {unfit}")
    return network


def scores_of(network, paths):
    """Log-probabilities [pictures, classes]."""
    pictures = torch.stack([torch.from_numpy(numpy.array(Image.open(path))) for path in paths]).float() / 255
    pixels = ((pictures - torch.tensor(MEAN)) / torch.tensor(DEVIATION)).permute(0, 3, 1, 2)
    with torch.no_grad():
        return network(pixels).double()


def check_logits(options, folder):
    """Whether torchvision agrees with what was trained."""
    pictures, checkpoint = draw_all(folder / "three", CLASSES, 300), folder / "three_run"
    report = train(options, pictures, checkpoint, options.steps, 5e-4)
    predicted = predict(options, checkpoint, pictures / "val")
    ours = torch.tensor([[{each["class"]: each["probability"] for each in one["top"]}[name] for name in CLASSES]
                         for one in predicted["pictures"]], dtype=torch.float64).log()
    logits = scores_of(network_of(checkpoint / "model.safetensors", 3), [one["picture"] for one in predicted["pictures"]])
    # Probabilities tell logits but for a number that all of a picture share.
    distance = (ours - ours.mean(1, True) - (logits - logits.mean(1, True))).abs().max().item()
    named = (ours.argmax(1) == logits.argmax(1)).sum().item()
    validation = report["validation"][-1]
    same = abs(predicted["scores"]["top1"] - validation["top1"]) < 1e-12
    print(f"loss {report['steps'][0]['loss']:.3f} to {report['steps'][-1]['loss']:.3f}; {len(ours)} pictures: logits up to "
          f"{logits.abs().max().item():.2f} differ by {distance:.1e} at most, {named} of {len(ours)} classes are the same; "
          f"top-1 {predicted['scores']['top1']:.3f}, of the run's validation {validation['top1']:.3f}, losses "
          f"{predicted['scores']['loss']:.6f} and {validation['loss']:.6f}")
    return distance <= TOLERANCE and named == len(ours) and same


def check_fine_tuning(options, folder):
    """Whether two classes are learned from torchvision's file."""
    network = torchvision.models.resnet50(weights=None)
    trained = safetensors.torch.load_file(folder / "three_run" / "model.safetensors")
    network.load_state_dict({name: value for name, value in trained.items() if not name.startswith("fc.")}, strict=False)
    published = folder / "published.safetensors"
    state = network.state_dict()
    safetensors.torch.save_file(state, published)
    pictures = draw_all(folder / "two", CLASSES[:2], 100)
    learned = True
    for freeze in ([], ["--freeze", "trunk"]):
        checkpoint = folder / ("frozen" if freeze else "free")
        report = train(options, pictures, checkpoint, options.steps, 5e-4, "--from", published, *freeze)
        after = safetensors.torch.load_file(checkpoint / "model.safetensors")
        kept = all(torch.equal(after[name], state[name]) for name in after if not name.startswith("fc."))
        first, last = (sum(step["loss"] for step in part) / len(part) for part in
                       (report["steps"][:5], report["steps"][-5:]))
        print(f"{checkpoint.name}: loss {first:.3f} to {last:.3f} (means of five steps), top-1 of the validation "
              f"{report['validation'][-1]['top1']:.3f}, trunk {'kept' if kept else 'changed'}")
        learned &= last < 0.8 * first and kept == bool(freeze)
    return learned


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default="build/mantissa")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--steps", type=int, default=60)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        agrees = check_logits(options, folder)
        learns = check_fine_tuning(options, folder)
    print("all agrees" if agrees and learns else "something differs")
    return not (agrees and learns)


if __name__ == "__main__":
    sys.exit(main())
