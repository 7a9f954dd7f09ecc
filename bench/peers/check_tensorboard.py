#!/usr/bin/env python3
"""Reads what `train --tensorboard` writes with TensorBoard's own reader, and compares it with what `train --json` says.
Needs `pip install tensorboard` and a release build.

    bench/peers/check_tensorboard.py [BUILD_FOLDER]        default: build
"""
import argparse
import json
import pathlib
import struct
import subprocess
import tempfile

from tensorboard.backend.event_processing import event_accumulator, event_file_loader
from tensorboard.compat.proto import event_pb2

SCALARS = {"loss/training": "loss", "optimizer/learning_rate": "learning_rate", "optimizer/gradient_norm": "gradient_norm",
           "optimizer/loss_scale": "loss_scale", "speed/tokens_per_second": "tokens_per_second", "speed/mfu": "mfu"}


def as_f32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def train(build, folder, *options):
    """Runs `train` and returns the steps that it reports."""
    subprocess.run([build / "mantissa", "train", "--batch", "1", "--sequence", "32", "--policy", "fp16", "--json", folder / "report.json",
                    "--tensorboard", folder / "events", *options], check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "report.json").read_text())["steps"]


def accumulated(folder):
    """What the dashboards are given."""
    accumulator = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    return accumulator.Reload()


def check_values(folder, steps):
    found = accumulated(folder)
    for tag, member in SCALARS.items():
        values = {event.step: event.value for event in found.Scalars(tag)}
        assert values == {step["step"]: as_f32(step[member]) for step in steps}, tag
    validations = {event.step: event.value for event in found.Scalars("loss/validation")}
    assert validations == {step["step"]: as_f32(step["validation_loss"]) for step in steps if "validation_loss" in step}
    samples = [event.tensor_proto.string_val[0].decode() for event in found.Tensors("sample")]
    assert samples == [step["sample"] for step in steps if "sample" in step], samples
    names = [tag for tag in found.Tags()["histograms"] if tag.startswith("gradients/")]
    assert len(names) > 40 and "gradients/wte.weight" in names, names
    for number in (0, 4):
        events = [event for name in names for event in found.Histograms(name) if event.step == number]
        assert len(events) == len(names)
        norm = sum(event.histogram_value.sum_squares for event in events) ** 0.5
        assert abs(norm - steps[number]["gradient_norm"]) < 1e-4 * norm, norm
        for event in events:
            value = event.histogram_value
            assert abs(sum(value.bucket) - value.num) < 1e-6 * value.num
            assert value.bucket_limit == sorted(value.bucket_limit) and value.bucket_limit[-1] >= value.max
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build", type=pathlib.Path, help="folder of a release build")
    build = parser.parse_args().build.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        steps = train(build, folder, "--steps", "6", "--histogram-every", "4", "--validate-every", "3", "--validate-batches", "1",
                      "--sample-every", "3", "--checkpoint", folder / "checkpoint")
        check_values(folder / "events", steps)
        path = next((folder / "events").iterdir())
        first, second = list(event_file_loader.EventFileLoader(str(path)).Load())[:2]
        assert first.file_version == "brain.Event:2"
        assert second.session_log.status == 1, second  # START
        for record in event_file_loader.RawEventFileLoader(str(path)).Load():
            event = event_pb2.Event.FromString(record)
            size = event.ByteSize()
            event.DiscardUnknownFields()
            assert event.ByteSize() == size, event
        print(f"{path.name}: TensorBoard reads {len(steps)} steps as they were printed")


if __name__ == "__main__":
    main()
