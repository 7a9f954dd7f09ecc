#!/usr/bin/env python3
"""Trains a ResNet20 with averages by `mantissa train` for 50 steps, one at a time, and feeds each step's weights and
running statistics to timm's ModelEmaV3: the averages in the last checkpoint must be timm's to 1e-6.

Needs PyTorch, timm and safetensors (`pip install torch timm safetensors`).
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import timm.utils
import torch
from safetensors.torch import load_file

PICTURES = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/248ad45/pictures"
BEGIN = (f"--images {PICTURES} --model ResNet20 --width 4 --batch 8 --policy fp32 --optimizer sgd --momentum 0.9 "
         "--warmup 0 --learning-rate 0.01 --ema 0.9 --threads 1 --checkpoint").split()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="mantissa, such as build/mantissa")
    program = parser.parse_args().program
    with tempfile.TemporaryDirectory() as folder:
        place, module, averages, names = f"{folder}/run", torch.nn.Linear(1, 1), None, {}
        for step in range(1, 51):
            which = [*BEGIN, place] if step == 1 else ["--resume", place]
            subprocess.run([program, "train", "--quiet", "--steps", str(step), *which], check=True, capture_output=True)
            trained = {name.removeprefix("raw."): value for name, value in load_file(f"{place}/optimizer.safetensors").items()
                       if name.startswith("raw.")}
            for name, value in trained.items():
                names[name] = name.replace(".", "_")
                module.register_buffer(names[name], value.clone())
            averages = averages or timm.utils.ModelEmaV3(module, decay=0.9)
            averages.update(module, step=step)
        model = load_file(f"{place}/model.safetensors")
    assert set(model) == set(names), "a weight has no average"
    apart = {}
    for name, value in model.items():
        ours, theirs = value.permute(2, 3, 1, 0) if value.dim() == 4 else value, averages.module.get_buffer(names[name])
        apart[name] = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1))
    furthest = max(apart, key=apart.get)
    print(f"{len(apart)} averages, {sum('running' in name for name in apart)} of them of running statistics: at most "
          f"{apart[furthest]:.1e} from timm {timm.__version__}'s, at {furthest}")
    return apart[furthest] > 1e-6


if __name__ == "__main__":
    sys.exit(main())
