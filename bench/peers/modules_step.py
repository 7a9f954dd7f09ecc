#!/usr/bin/env python3
"""Times the same training step of PyTorch modules, imported into mantissa and in PyTorch, interleaved.

    bench/peers/modules_step.py [--modules nanogpt,llama] [--rounds 4] [--steps 2] [--policy bf16] [--isa avx512]
                                [--device cuda]

Sides: mantissa (mantissa.torch.trainer), eager FP32, eager with autocast to BF16, torch.compile with autocast. PyTorch
has fused AdamW, scaled_dot_product_attention, as many threads, and of channels-first and channels-last what short
trials before found quicker (--trials: they are made again). Each side is a process of its own that lives on and makes
--steps steps when it is its turn; in each round every side has one turn. The table has the median and the least of all
steps, the ratio of PyTorch's best median to each, the loss of the first and of the last step, the seconds before the
first step (capture and plan, or compilation), and the most memory that the process held: of mantissa the first step
beside eager, in FP64, unless there is --no-check.

On an NVIDIA GPU (--device cuda) batches are larger, TF32 is allowed but under eager FP32, all of PyTorch's pictures are
channels-last, and its batch lies on the GPU; mantissa's comes from the host, one while the step before runs.

All sides begin with the same weights and batch. mantissa's first loss must lie among those of PyTorch's sides, or within
0.02 of them, or the script fails. Needs
`pip install torch torchvision transformers`, mantissa itself, and a C++ compiler for torch.compile.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

MODULES = ("nanogpt", "llama", "resnet50", "convnext", "vit", "bert", "unet", "lstm")
# Only where they are asked for: networks of depthwise and grouped convolutions.
GROUPED = ("mobilenet", "efficientnet", "resnext")
IMAGES = ("resnet50", "convnext", "vit", "unet") + GROUPED
# Where trials found channels-last quicker than channels-first, by module and side.
LAST = {("resnet50", "compile"), ("resnet50", "autocast"), ("resnet50", "fp32"), ("convnext", "compile"),
        ("convnext", "autocast"), ("convnext", "fp32"), ("unet", "compile"), ("unet", "autocast"), ("unet", "fp32")}
LAST |= {(name, side) for name in GROUPED for side in ("compile", "autocast", "fp32")}
TORCH = ("fp32", "autocast", "compile")
SIDES = ("mantissa",) + TORCH
UNCOUNTED = 2  # the first compiles and touches memory, the second makes what the optimizer allocates late
RATE, BETAS, EPSILON, DECAY = 1e-4, (0.9, 0.95), 1e-8, 0.1
LOSSES_WITHIN = 0.02
# Examples of a step, by device.
BATCH = {"cpu": dict(nanogpt=1, llama=1, resnet50=8, convnext=8, vit=8, bert=4, unet=8, lstm=20, mobilenet=16,
                     efficientnet=16, resnext=8),
         "cuda": dict(nanogpt=16, llama=16, resnet50=128, convnext=128, vit=128, bert=128, unet=64, lstm=128,
                      mobilenet=128, efficientnet=128, resnext=128)}


# Modules at the sizes that are trained: each gives module, loss, example and options of the import.

def nanogpt(n):
    import torch
    from torch_modules import by_hand
    ids = torch.randint(0, 50257, (n, 1025))
    return (by_hand.NanoGPT(V=50304, C=768, H=12, T=1024, L=12), lambda out: out[1],
            (ids[:, :-1].contiguous(), ids[:, 1:].contiguous()), dict(inputs=2))


def llama(n):
    import torch
    import transformers
    config = transformers.LlamaConfig(vocab_size=32000, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                                      num_key_value_heads=12, intermediate_size=2048, max_position_embeddings=1024,
                                      use_cache=False)
    ids = torch.randint(0, 32000, (n, 1024))
    return transformers.LlamaForCausalLM(config), None, {"input_ids": ids, "labels": ids.clone()}, {}


def bert(n):
    import torch
    import transformers
    config = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    ids = torch.randint(1000, 30000, (n, 128))
    labels = ids.clone()
    labels[torch.rand(labels.shape) > 0.15] = -100
    return transformers.BertForMaskedLM(config), None, {"input_ids": ids, "labels": labels}, {}


def _pictures(model, batch, size=224, classes=1000):
    import torch
    import torch.nn.functional as F
    return model, F.cross_entropy, (torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))), {}


def resnet50(n):
    import torchvision
    return _pictures(torchvision.models.resnet50(), n)


def convnext(n):
    import torchvision
    return _pictures(torchvision.models.convnext_tiny(stochastic_depth_prob=0.0), n)


def mobilenet(n):
    import torchvision
    return _pictures(torchvision.models.mobilenet_v3_large(dropout=0.0), n)


def efficientnet(n):
    import torchvision
    return _pictures(torchvision.models.efficientnet_b0(dropout=0.0, stochastic_depth_prob=0.0), n)


def resnext(n):
    import torchvision
    return _pictures(torchvision.models.resnext50_32x4d(), n)


def vit(n):
    import torchvision
    return _pictures(torchvision.models.VisionTransformer(224, 16, 12, 6, 384, 1536), n)


def unet(n):
    """Four levels of 32 to 256 channels, as by_hand's of three."""
    import torch
    import torch.nn.functional as F
    from torch_modules import by_hand
    nn = torch.nn

    class UNet(nn.Module):
        def __init__(self, widths=(32, 64, 128, 256)):
            super().__init__()
            self.down = nn.ModuleList(by_hand._double_conv(a, b) for a, b in zip((3,) + widths, widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
            self.joined = nn.ModuleList(by_hand._double_conv(2 * a, a) for a in widths[:-1])
            self.out = nn.Conv2d(widths[0], 4, 1)

        def forward(self, x):
            kept = []
            for level, down in enumerate(self.down):
                x = down(F.max_pool2d(x, 2) if level else x)
                kept.append(x)
            for level in reversed(range(len(self.up))):
                x = self.joined[level](torch.cat([kept[level], self.up[level](x)], 1))
            return self.out(x)

    return UNet(), F.cross_entropy, (torch.randn(n, 3, 128, 128), torch.randint(0, 4, (n, 128, 128))), {}


def lstm(n):
    import torch
    import torch.nn.functional as F
    nn = torch.nn

    class LSTMLanguage(nn.Module):
        def __init__(self, V=10000, C=650):
            super().__init__()
            self.emb, self.lstm, self.out = nn.Embedding(V, C), nn.LSTM(C, C, 2, batch_first=True), nn.Linear(C, V)

        def forward(self, x):
            return self.out(self.lstm(self.emb(x))[0])

    ids = torch.randint(0, 10000, (n, 36))
    return (LSTMLanguage(), lambda logits, y: F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1)),
            (ids[:, :-1].contiguous(), ids[:, 1:].contiguous()), {})


def made(name, device):
    import torch
    for folder in (pathlib.Path(__file__).resolve().parent, pathlib.Path(__file__).resolve().parents[2] / "python" / "tests"):
        sys.path.insert(0, str(folder))  # torch_modules lies in one of them, or beside this file where it was carried
    torch.manual_seed(0)
    model, loss, example, options = globals()[name](BATCH[device][name])
    return model.train(), loss, example, options


# The sides, each a process.

def mantissa_step(options, name):
    import mantissa
    import mantissa.torch
    model, loss, example, more = made(name, options.device)
    optimizer = mantissa.adamw(weight_decay=DECAY, beta1=BETAS[0], beta2=BETAS[1], epsilon=EPSILON,
                               decay_matrices_only=False)
    trainer = mantissa.torch.trainer(model, loss, example, policy=options.policy, optimizer=optimizer,
                                     device=options.device, threads=options.threads, check=options.check, **more)
    batch = tuple(example.values()) if isinstance(example, dict) else example
    parts = {"capture": trainer.capture_seconds, "plan": trainer.plan_seconds}
    steps = trainer.train_on(itertools.repeat(batch), lr=RATE)
    return lambda: next(steps).loss, parts


def torch_step(options, name, side, is_last):
    import torch
    torch.set_num_threads(options.threads)
    model, loss, example, more = made(name, options.device)
    if options.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = side != "fp32"
        torch.backends.cudnn.benchmark = True
    model = model.to(options.device)
    if isinstance(example, dict):
        example = {key: x.to(options.device) for key, x in example.items()}
    else:
        example = tuple(x.to(options.device) for x in example)
    if is_last:
        model = model.to(memory_format=torch.channels_last)
        example = tuple(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in example)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=DECAY, fused=True)

    def forward():
        if loss is None:
            return model(**example).loss
        split = more.get("inputs", len(example) - 1)
        return loss(model(*example[:split]), *example[split:])

    run_forward = torch.compile(forward, dynamic=False) if side == "compile" else forward

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=side != "fp32"):
            value = run_forward()
        value.backward()
        optimizer.step()
        return value.item()

    return step, {}


def most_resident_bytes():
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def serve(options):
    """A side: makes as many steps as each line on its standard input says."""
    begin = time.perf_counter()
    name, side, is_last = options.serve.split(":")
    to, sys.stdout = sys.stdout, sys.stderr
    step, parts = mantissa_step(options, name) if side == "mantissa" else torch_step(options, name, side, is_last == "1")
    built = time.perf_counter() - begin
    for line in sys.stdin:
        ms, losses = [], []
        for _ in range(int(line)):
            begin = time.perf_counter()
            losses.append(step())
            ms.append(1e3 * (time.perf_counter() - begin))
        print(json.dumps({"ms": ms, "losses": losses, "bytes": most_resident_bytes(), "built": built, "parts": parts}),
              file=to, flush=True)


class Side:
    def __init__(self, options, name, side, is_last):
        environment = dict(os.environ)
        if options.isa:
            environment["MANTISSA_ISA"] = options.isa
            environment["ONEDNN_MAX_CPU_ISA"] = {"avx512": "AVX512_CORE_BF16", "avx2": "AVX2", "amx": "AVX512_CORE_AMX"}[
                options.isa]
        command = [sys.executable, __file__, "--serve", f"{name}:{side}:{int(is_last)}", "--threads",
                   str(options.threads), "--policy", options.policy, "--device", options.device] + ([] if options.check else ["--no-check"])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.ms, self.losses, self.bytes, self.parts, self.built = [], [], 0, {}, 0.0
        self.first = 0.0
        self.turn(UNCOUNTED)
        self.first = self.ms[0] / 1e3
        self.ms = []

    def turn(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self.process.args)}: ended with status {self.process.wait()}")
        answer = json.loads(line)
        self.ms += answer["ms"]
        self.losses += answer["losses"]
        self.bytes, self.parts, self.built = answer["bytes"], answer["parts"], answer["built"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def before(self):
        """Seconds before the steps, in words."""
        if self.parts:
            return f"{self.parts['capture']:.1f} + {self.parts['plan']:.1f}"
        return f"{self.first - statistics.median(self.ms) / 1e3:.1f}"


def last_of(options, name, side):
    """Whether a side of PyTorch runs channels-last."""
    if name not in IMAGES or side == "mantissa":
        return False
    if options.device == "cuda":
        return True
    if not options.trials:
        return (name, side) in LAST
    least = {}
    for is_last in (False, True):
        trial = Side(options, name, side, is_last)
        trial.turn(2)
        least[is_last] = min(trial.ms)
        trial.end()
    print(f"{name}, {side}: channels-first {least[False]:.0f} ms, channels-last {least[True]:.0f} ms", flush=True)
    return least[True] < least[False]


def measured(options, name):
    sides = {side: Side(options, name, side, last_of(options, name, side)) for side in options.only.split(",")}
    for _ in range(options.rounds):
        for side in sides.values():
            side.turn(options.steps)
    for side in sides.values():
        side.end()
    return sides


def print_table(name, sides):
    medians = {side: statistics.median(of.ms) for side, of in sides.items()}
    leasts = {side: min(of.ms) for side, of in sides.items()}
    peers = [side for side in sides if side != "mantissa"]
    best, best_least = (min((of[side] for side in peers), default=float("nan")) for of in (medians, leasts))
    print(f"\n{name:20} {'ms':>8} {'least':>8} {'best/it':>8} {'of least':>8} {'MB':>7} {'before s':>12} "
          f"{'first loss':>11} {'last loss':>10}")
    for side, of in sides.items():
        print(f"  {side:18} {medians[side]:8.1f} {leasts[side]:8.1f} {best / medians[side]:8.2f} "
              f"{best_least / leasts[side]:8.2f} {of.bytes / 1e6:7.0f} {of.before():>12} {of.losses[0]:11.4f} "
              f"{of.losses[-1]:10.4f}", flush=True)


def losses_agree(name, sides):
    """Whether the first losses of mantissa and of PyTorch's sides, which round each in its own way, meet."""
    ours = sides["mantissa"].losses[0] if "mantissa" in sides else None
    theirs = [of.losses[0] for side, of in sides.items() if side != "mantissa"]
    if ours is None or not theirs:
        return True
    distance = max(ours - max(theirs), min(theirs) - ours)
    if distance > LOSSES_WITHIN:
        print(f"{name}: the loss of the first step is {distance:.2g} beside PyTorch's, more than {LOSSES_WITHIN}")
    return distance <= LOSSES_WITHIN


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--modules", default=",".join(MODULES))
    parser.add_argument("--only", default=",".join(SIDES), help="sides, by name")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2, help="of a turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--policy", default="bf16", help="of mantissa")
    parser.add_argument("--device", choices=tuple(BATCH), default="cpu")
    parser.add_argument("--isa", choices=("avx2", "avx512", "amx"), help="the most that every side may use")
    parser.add_argument("--trials", action="store_true", help="try channels-first and channels-last again")
    parser.add_argument("--no-check", dest="check", action="store_false", help="no first step beside eager")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.serve:
        serve(options)
        return 0
    import torch
    has_amx = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text() and options.isa in (None, "amx")
    print(f"PyTorch {torch.__version__}, {options.threads} threads, {'with' if has_amx else 'without'} AMX, "
          f"{options.rounds} interleaved rounds of {options.steps} steps")
    good, results = True, {}
    for name in options.modules.split(","):
        sides = measured(options, name)
        print_table(name, sides)
        good = losses_agree(name, sides) and good
        results[name] = {side: {"ms": of.ms, "losses": of.losses, "bytes": of.bytes, "parts": of.parts,
                                "first": of.first} for side, of in sides.items()}
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
