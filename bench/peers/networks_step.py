#!/usr/bin/env python3
"""Times the same training step of the networks for pictures in mantissa and in PyTorch, interleaved.

    bench/peers/networks_step.py [--models ResNet50v1.5,VGG19,DenseNet121] [--batch 16] [--image-size 224] [--repeats 3]
                                 [--steps 6] [--policies fp32,bf16] [--modules torchvision,plain] [--device cpu|cuda]

Contenders: `mantissa bench` in each policy; PyTorch as it comes (FP32, NCHW), channels-last in FP32, the same under
torch.compile, and channels-last with autocast to BF16 and torch.compile. All train on noise with SGD at 0.01, as many
threads each. --modules: PyTorch's sides with torchvision's modules, where it is installed and has the network, and with
those of networks_plain.py, whose batch norms and pools are written otherwise. --only NAME,... leaves the others out.
--device cuda: all on an NVIDIA GPU; what is compiled may use TF32 there, the other two may not.

Each repeat runs every contender once, one after another, each in a process of its own: two steps that are not counted
(first touch of memory, compilation) and then --steps that are. The table has images a second by the median of all
counted steps and by the least, their spread (median absolute deviation), the most memory that a process held, and the
first loss: weights and noise are drawn by each contender for itself, so first losses are alike and not the same. That
the arithmetic is the same is what bench/peers/networks_fixture.py is for. Below it stands what mantissa makes of
PyTorch's best in each format. Needs `pip install torch torchvision`, and a C++ compiler for torch.compile.
"""
import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import networks_plain

UNCOUNTED = 2
# By name: layout, compiled, in BF16.
TORCH = {"torch default": (torch.contiguous_format, False, False),
         "torch channels-last": (torch.channels_last, False, False),
         "torch compiled": (torch.channels_last, True, False), "torch best": (torch.channels_last, True, True)}
TORCHVISION = {"ResNet50v1.5": "resnet50", "VGG19": "vgg19", "DenseNet121": "densenet121"}


def network(options):
    """The module, weights drawn."""
    torch.manual_seed(1)
    if options.measure_modules == "plain":
        return networks_plain.draw(networks_plain.network(options.measure_model), 1)
    import torchvision
    more = {"dropout": 0.0} if options.measure_model == "VGG19" else {}
    return getattr(torchvision.models, TORCHVISION[options.measure_model])(weights=None, **more).train()


def torch_step(options, name):
    """A function that makes one step and returns its loss."""
    layout, is_compiled, is_bf16 = TORCH[name]
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = is_compiled
    torch.backends.cudnn.benchmark = is_compiled
    model = network(options).to(options.device, memory_format=layout)
    classes = 10 if options.measure_model in networks_plain.CIFAR else 1000
    images, targets = networks_plain.synthetic_batch(options.batch, options.image_size, classes, 1)
    images = images.to(options.device).contiguous(memory_format=layout)
    targets = targets.to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    forward = lambda: torch.nn.functional.cross_entropy(model(images).float(), targets)
    run_forward = torch.compile(forward, dynamic=False) if is_compiled else forward

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=is_bf16):
            loss = run_forward()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def peak_resident_bytes():
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def measure_torch(options):
    """Runs as a process of its own and prints what the parent reads."""
    torch.set_num_threads(options.threads)
    begin = time.perf_counter()
    step = torch_step(options, options.measure)
    seconds, losses = [], []
    for _ in range(UNCOUNTED + options.steps):
        losses.append(step())
        seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    print(json.dumps({"seconds": seconds[UNCOUNTED:], "loss": losses[0], "bytes": peak_resident_bytes(),
                      "first": seconds[0]}))


def ask_torch(options, model, name):
    setting, modules = name.rsplit(" of ", 1)
    command = [sys.executable, __file__, "--measure", setting, "--measure-model", model, "--measure-modules", modules,
               "--batch", options.batch,
               "--image-size", options.image_size, "--steps", options.steps, "--threads", options.threads,
               "--device", options.device]
    ran = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def ask_mantissa(options, model, policy, folder):
    path = folder / "bench.json"
    command = [options.program, "bench", "--model", model, "--batch-size", options.batch, "--image-size",
               options.image_size, "--num-warmup-batches", UNCOUNTED, "--num-batches-per-iter", 1, "--num-iters",
               options.steps, "--policy", policy, "--json", path, "--quiet"]
    command += ["--threads", options.threads] if options.device == "cpu" else ["--device", options.device]
    begin = time.perf_counter()
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
    whole = time.perf_counter() - begin
    report = json.loads(path.read_text())
    result = report["results"][0]
    seconds = [options.batch / rate for rate in result["images_per_second"]]
    return {"seconds": seconds, "loss": result["losses"][0], "bytes": report["peak_resident_bytes"],
            "first": whole - sum(seconds)}


def print_table(options, model, answers):
    print(f"\n{model}, {options.batch} x {options.image_size} x {options.image_size}")
    print(f"{'contender':34} {'img/s':>8} {'of least':>9} {'ms a step':>10} {'spread':>8} {'memory MB':>10} "
          f"{'first loss':>11}")
    medians, leasts = {}, {}
    for name, runs in answers.items():
        times = [1e3 * seconds for run in runs for seconds in run["seconds"]]
        median = medians[name] = statistics.median(times)
        least = leasts[name] = min(times)
        spread = statistics.median(abs(ms - median) for ms in times)
        memory = max(run["bytes"] for run in runs) / 1e6
        print(f"{name:34} {1e3 * options.batch / median:8.2f} {1e3 * options.batch / least:9.2f} {median:10.1f} "
              f"{spread:8.1f} {memory:10.0f} {runs[0]['loss']:11.4f}")
    for policy, is_bf16 in (("fp32", False), ("bf16", True)):
        ours = f"mantissa {policy}"
        peers = [name for name in answers if is_torch(name) and TORCH[name.rsplit(" of ", 1)[0]][2] == is_bf16]
        if ours in answers and peers:
            best, best_least = min(peers, key=medians.get), min(peers, key=leasts.get)
            print(f"{ours}: {medians[best] / medians[ours]:.2f} times {best} by medians, "
                  f"{leasts[best_least] / leasts[ours]:.2f} times {best_least} by the least")


def is_torch(name):
    return name.startswith("torch")


def contenders(options, model):
    """Names for a model: of torchvision only what it has."""
    torches = [f"{setting} of {modules}" for setting in TORCH for modules in options.modules.split(",")
               if modules == "plain" or model in TORCHVISION]
    names = [f"mantissa {policy}" for policy in options.policies.split(",")] + torches
    if not options.only:
        return names
    unknown = [name for name in options.only.split(",") if name not in names]
    if unknown:
        raise SystemExit(f"--only: no contender '{unknown[0]}' for {model}; there are: {', '.join(names)}")
    return options.only.split(",")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--models", default="ResNet50v1.5,VGG19,DenseNet121")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="counted steps of a contender in a repeat")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--policies", default="fp32,bf16", help="of mantissa")
    parser.add_argument("--modules", help="of PyTorch: torchvision, plain or both (default: both where torchvision is)")
    parser.add_argument("--only", help="contenders, by name: 'mantissa bf16,torch best of torchvision'")
    parser.add_argument("--measure", choices=TORCH, help=argparse.SUPPRESS)
    parser.add_argument("--measure-model", choices=networks_plain.NAMES + networks_plain.CIFAR, help=argparse.SUPPRESS)
    parser.add_argument("--measure-modules", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.modules:
        options.modules = "torchvision,plain" if importlib.util.find_spec("torchvision") else "plain"
    return options


def main():
    options = parse()
    if options.measure:
        measure_torch(options)
        return 0
    print(f"{options.threads} threads, PyTorch {torch.__version__}, {options.repeats} interleaved repeats of "
          f"{options.steps} steps")
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models.split(","):
            names = contenders(options, model)
            answers = {name: [] for name in names}
            for repeat in range(options.repeats):
                for name in names:
                    answer = (ask_torch(options, model, name) if is_torch(name)
                              else ask_mantissa(options, model, name.split()[1], pathlib.Path(folder)))
                    answers[name].append(answer)
                    print(f"{model}, repeat {repeat}: {name:34} "
                          f"{' '.join(f'{1e3 * seconds:.0f}' for seconds in answer['seconds'])} ms; before them "
                          f"{answer['first']:.1f} s", flush=True)
            print_table(options, model, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
