#!/usr/bin/env python3
"""Seconds of an epoch over sequences of many lengths, planning or compiling included, in mantissa and in PyTorch.

    bench/peers/lengths_epoch.py [--sequences 1000] [--batch 8] [--channels 128] [--layers 2] [--policy fp32]
                                 [--sides mantissa,eager,compile] [--pad-to 64,128,256,300] [--json FILE]

A classifier of sequences (attention with a mask, in plain PyTorch) is trained on sequences of 5 to 300 tokens, each batch
padded to its longest, the last batch short: AdamW of torch, a cosine schedule, gradients clipped to 1. mantissa takes the
loader as it is, and pad_to rounds lengths up; PyTorch runs eager, and under torch.compile(dynamic=True), whose cache of
compiled code is emptied first. Each side is a process of its own, one after the other. The table has the seconds of a
first epoch and of a second one, how many shapes were planned, and the largest difference of a loss from eager's.

Fails where a loss of mantissa's first epoch in FP32 is further from eager's than 1 %. Needs `pip install torch`, mantissa's package, and
a C++ compiler for torch.compile.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

SIDES, WITHIN, RATE = ("mantissa", "eager", "compile"), 0.01, 3e-4


def data(count, batch):
    import numpy as np
    import torch
    random = np.random.default_rng(0)
    sequences = [(torch.from_numpy(random.integers(1, 1000, n)), int(random.integers(0, 5)))
                 for n in random.integers(5, 301, count)]

    def collated(rows):
        longest = max(len(ids) for ids, _ in rows)
        ids, mask = (torch.zeros(len(rows), longest, dtype=torch.long) for _ in range(2))
        for row, (each, _) in enumerate(rows):
            ids[row, :len(each)], mask[row, :len(each)] = each, 1
        return ids, mask, torch.tensor([label for _, label in rows])
    return torch.utils.data.DataLoader(sequences, batch_size=batch, collate_fn=collated)


def module(channels, layers):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.LayerNorm(channels), nn.LayerNorm(channels)
            self.qkv, self.back = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
            self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

        def forward(self, x, seen):
            B, T, C = x.shape
            q, k, v = (part.view(B, T, C // 64, 64).transpose(1, 2) for part in self.qkv(self.inner(x)).chunk(3, -1))
            made = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None, :])
            x = x + self.back(made.transpose(1, 2).reshape(B, T, C))
            return x + self.narrow(F.gelu(self.wide(self.outer(x))))

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(1000, channels), nn.Embedding(512, channels)
            self.blocks, self.head = nn.ModuleList(Block() for _ in range(layers)), nn.Linear(channels, 5)

        def forward(self, ids, mask):
            x, seen = self.tokens(ids) + self.places(torch.arange(ids.shape[1])), mask.bool()
            for block in self.blocks:
                x = block(x, seen)
            weight = mask.float()[..., None]
            return self.head((x * weight).sum(1) / weight.sum(1))

    torch.manual_seed(0)
    return Classifier()


def measured(side, options):
    """Seconds of two epochs, losses of the first, and what there is to say."""
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(options["threads"])
    model, loader, losses, seconds, words = module(options["channels"], options["layers"]), data(
        options["sequences"], options["batch"]), [], [], ""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * len(loader))
    if side == "mantissa":
        import mantissa.torch
        began = time.monotonic()
        step = mantissa.torch.trainer(model, F.cross_entropy, next(iter(loader)), inputs=2, optimizer=optimizer, clip=1.0,
                                      policy=options["policy"], pad_to=options["pad_to"], fill={1: 0}, check=False,
                                      threads=options["threads"])
        for epoch in range(2):
            for result in step.train_on(loader):
                schedule.step()
                losses += [result.loss] if epoch == 0 else []
            seconds.append(time.monotonic() - began)
            began = time.monotonic()
        words = f"{step.planned_shapes} shapes"
    else:
        began = time.monotonic()
        forward = torch.compile(model, dynamic=True) if side == "compile" else model
        for epoch in range(2):
            for ids, mask, y in loader:
                optimizer.zero_grad(set_to_none=True)
                loss = F.cross_entropy(forward(ids, mask), y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                losses += [loss.item()] if epoch == 0 else []
            seconds.append(time.monotonic() - began)
            began = time.monotonic()
    return {"side": side, "seconds": seconds, "losses": losses, "words": words}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--policy", default="fp32")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--pad-to", default="64,128,256,300", help="none: every length is planned as it is")
    parser.add_argument("--json")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    options = dict(vars(given), pad_to=None if given.pad_to == "none" else tuple(map(int, given.pad_to.split(","))))
    if given.measure:
        print(json.dumps(measured(given.measure, options)))
        return
    results = []
    with tempfile.TemporaryDirectory() as cache:
        for side in given.sides.split(","):
            environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, OMP_NUM_THREADS=str(given.threads))
            made = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--measure", side], env=environment,
                                  stdout=subprocess.PIPE, text=True, check=True)
            results.append(json.loads(made.stdout.strip().splitlines()[-1]))
    of_eager = next((each["losses"] for each in results if each["side"] == "eager"), None)
    print(f"{given.sequences} sequences of 5 to 300 tokens, batches of {given.batch}, {given.layers} layers of "
          f"{given.channels} channels, {given.threads} threads, policy {given.policy}, pad_to {given.pad_to}")
    print(f"{'side':10} {'first epoch':>12} {'second':>10} {'loss away':>10}")
    failed = False
    for each in results:
        away = max(abs(a - b) / abs(b) for a, b in zip(each["losses"], of_eager)) if of_eager else float("nan")
        failed |= each["side"] == "mantissa" and given.policy == "fp32" and not away <= WITHIN and of_eager is not None
        print(f"{each['side']:10} {each['seconds'][0]:10.1f} s {each['seconds'][1]:8.1f} s {away:10.1e}  {each['words']}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"options": options, "results": results}, file, indent=1)
    if failed:
        sys.exit(f"a loss is further from eager's than {WITHIN:.0%}")


if __name__ == "__main__":
    main()
