#!/usr/bin/env python3
"""CPU seconds of making a trainer of a PyTorch module (capture and plan), of this package and of another build of it.

    bench/peers/capture_beside.py FOLDER OTHER_FOLDER [--rounds 3] [--only WORDS]

Each folder holds a built package `mantissa`. The modules are of python/tests/torch_modules; each trainer is made in a
process of its own, on one thread, without the comparison of its first step. Both sides have their turn in each round:
first with an empty folder of kept kernels, then once more with what was kept there. The imports of torch, with
its export, of mantissa and of the module's library are not counted. The table has medians over rounds, and the ratio of FOLDER's seconds to OTHER_FOLDER's. Fails where
the median of all ratios is more than 0.8.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

MODULES = ("plain table_mlp", "plain lstm_language", "plain unet", "plain nanogpt flash", "torchvision resnet18",
           "transformers BertForMaskedLM", "transformers GPT2LMHeadModel", "transformers ViTForImageClassification")
MOST = 0.8


def serve():
    """A side: for each line, which names a folder of kept kernels and a module, the seconds of a trainer in a child."""
    import warnings
    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "tests"))
    import torch
    import mantissa.torch
    from torch_modules import cases
    torch.set_num_threads(1)
    torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))  # whose imports a build may have made
    for line in sys.stdin:
        cache, name = line.rstrip("\n").split("\t")
        if (child := os.fork()) == 0:
            os.environ["XDG_CACHE_HOME"] = cache
            torch.manual_seed(0)
            model, loss, example, *more = cases()[name]()
            began = time.process_time()
            mantissa.torch.trainer(model.train(), loss, example, check=False, threads=1, **(more[0] if more else {}))
            print(time.process_time() - began, flush=True)
            os._exit(0)
        os.waitpid(child, 0)


class Side:
    def __init__(self, folder):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve"], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE,
                                        env=dict(os.environ, PYTHONPATH=folder, OMP_NUM_THREADS="1"))

    def seconds(self, name, cache):
        print(f"{cache}\t{name}", file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs=2, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    sides = [Side(folder) for folder in given.folders]
    print(f"{'module':40} {'cold':>6} {'other':>6} {'ratio':>6}   {'warm':>6} {'other':>6} {'ratio':>6}")
    ratios = {"cold": [], "warm": []}
    for name in MODULES:
        if not any(word in name for word in given.only.split(",")):
            continue
        taken = {(kind, side): [] for kind in ratios for side in sides}
        for _ in range(given.rounds):
            for side in sides:
                with tempfile.TemporaryDirectory() as cache:
                    for kind in ratios:
                        taken[kind, side].append(side.seconds(name, cache))
        words = f"{name:40}"
        for kind, all_ in ratios.items():
            ours, theirs = (statistics.median(taken[kind, side]) for side in sides)
            all_.append(ours / theirs)
            words += f" {ours:6.2f} {theirs:6.2f} {ours / theirs:6.2f}  "
        print(words.rstrip(), flush=True)
    medians = {kind: statistics.median(all_) for kind, all_ in ratios.items()}
    print("median ratio: " + ", ".join(f"{kind} {value:.2f}" for kind, value in medians.items()))
    if max(medians.values()) > MOST:
        sys.exit(f"a median is more than {MOST}")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
