#!/usr/bin/env python3
"""Attention of other scores in PyTorch beside bench/attention_scores.cpp: the same forms and sizes, alternating.

Usage, from the root of the repository after a release build with benchmarks:
    bench/peers/flex_attention.py [--rounds 3] [--calls 3] [--threads 2] [--only FORM,...] [--types f32,bf16]
                                  [--positions 1024,8192] [--program build/bench_attention_scores]

PyTorch's ways, each where it can express the form: flex_attention compiled, with a block mask; and
scaled_dot_product_attention (SDPA) with a mask of booleans or of biases, made beforehand and not timed. Where SDPA
cannot, the formula is written out in single operations, eager and compiled. On CPUs flex_attention has no backward pass.
Prints the median milliseconds of each by wall time, and `ratio`: forward, the better of flex_attention and SDPA over
ours; with backward, SDPA, or the better spelling of the formula, over ours.
"""
import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import time
from typing import Callable, Optional

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEAD_SIZE = 64
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
HEADS = {1024: 12, 8192: 1}
FLEX = torch.compile(flex_attention)
SDPA = torch.nn.functional.scaled_dot_product_attention


@dataclasses.dataclass
class Form:
    """One form, as PyTorch writes it. `visible(i, j)`: the mask, of positions of queries and keys as tensors.
    `score(s, h, i, j)`: flex_attention's function; `bias`: [H, T, T] that SDPA adds, or scale: [H] for the queries."""
    name: str
    visible: Callable
    score: Optional[Callable] = None
    bias: Optional[Callable] = None
    learned: tuple = ()
    query_scale: Optional[torch.Tensor] = None
    dropout: float = 0.0
    has_sdpa: bool = True


def causal(i, j):
    return j <= i


def document_of(short, i, positions):
    """As document_of in bench/attention_scores.cpp."""
    if short:
        return i // (261 if positions < 4096 else 1043)
    if positions < 4096:
        return i // 599
    return (i >= 1507).int() + (i >= 4693).int() + (i >= 6901).int()


def forms(heads, positions):
    by_head = 1 / (torch.arange(heads) + 2.0)
    ours = []
    for keys in (256, 512) if positions < 4096 else (1024,):
        ours.append(Form(f"window {keys}", lambda i, j, keys=keys: (j <= i) & (i < j + keys)))
    ours.append(Form("prefix", lambda i, j: (j <= i) | (j < positions // 4)))
    for short in (False, True):
        number = document_of(short, torch.arange(positions), positions)
        ours.append(Form("short documents" if short else "documents",
                         lambda i, j, number=number: (j <= i) & (number[i] == number[j])))
    ours.append(Form("capped", causal, score=lambda s, h, i, j: torch.tanh(s / 30.0) * 30.0, has_sdpa=False))
    ours.append(Form("linear biases", causal, score=lambda s, h, i, j: s + by_head[h] * (j - i),
                     bias=lambda h, i, j: by_head[h] * (j - i)))
    table = torch.randn(heads, 2 * positions - 1, requires_grad=True)
    ours.append(Form("table of distances", causal, score=lambda s, h, i, j: s + table[h, i - j + positions - 1],
                     bias=lambda h, i, j: table[h, i - j + positions - 1], learned=(table,)))
    scale = by_head.clone().requires_grad_()
    ours.append(Form("learned scale", causal, score=lambda s, h, i, j: s * scale[h], query_scale=scale,
                     learned=(scale,)))
    if positions < 4096:
        dense = torch.randn(heads, positions, positions, requires_grad=True)
        ours.append(Form("dense bias", causal, score=lambda s, h, i, j: s + dense[h, i, j],
                         bias=lambda h, i, j: dense, learned=(dense,)))
    ours.append(Form("dropped weights", causal, dropout=0.1))
    return ours


class Peer:
    """A form on operands of its own: what PyTorch can run it by, name -> function of no argument."""

    def __init__(self, form, heads, positions, dtype, backward):
        self.form, self.backward, self.dtype = form, backward, dtype
        shape = (1, heads, positions, HEAD_SIZE)
        self.q, self.k, self.v, self.d_o = (torch.randn(shape).to(dtype) for _ in range(4))
        for x in form.learned:  # where nothing asks for gradients, flex_attention takes no operand that wants one
            x.requires_grad_(backward)
        self.wrt = [x.requires_grad_(backward) for x in (self.q, self.k, self.v)] + list(form.learned)
        i, j = torch.arange(positions)[:, None], torch.arange(positions)[None, :]
        self.visible = form.visible(i, j)
        self.positions = (torch.arange(heads)[:, None, None], i[None], j[None])
        self.ways = {}
        if not backward and not form.dropout:
            blocks = create_block_mask(lambda b, h, q, k: form.visible(q, k), None, None, positions, positions,
                                       device="cpu")
            score = form.score and (lambda s, b, h, q, k: form.score(s, h, q, k))
            self.ways["flex"] = lambda: FLEX(self.q, self.k, self.v, score_mod=score, block_mask=blocks)
        if form.has_sdpa:
            mask = self.mask()
            self.ways["sdpa"] = lambda: self.sdpa(mask)
        else:
            self.ways["eager"] = self.formula
            self.ways["compiled"] = torch.compile(self.formula)

    def mask(self):
        """What SDPA is given: booleans, or biases with -infinity where nothing is seen. A bias that is learned is added
        within the timed call, since its gradient goes through that."""
        if not self.form.bias:
            return self.visible
        if self.backward and self.form.learned:
            return None
        with torch.no_grad():
            bias = self.form.bias(*self.positions).masked_fill(~self.visible, -math.inf)
            return bias.to(self.dtype)[None].contiguous()

    def sdpa(self, mask):
        if mask is None:
            mask = self.form.bias(*self.positions).masked_fill(~self.visible, -math.inf).to(self.dtype)[None]
        q = self.q
        if self.form.query_scale is not None:
            q = q * self.form.query_scale.to(self.dtype)[:, None, None]
        if self.form.visible is causal and not self.form.bias:
            return SDPA(q, self.k, self.v, is_causal=True, dropout_p=self.form.dropout)
        return SDPA(q, self.k, self.v, attn_mask=mask, dropout_p=self.form.dropout)

    def formula(self):
        scores = (self.q @ self.k.transpose(-2, -1)).float() / math.sqrt(HEAD_SIZE)
        scores = self.form.score(scores, *self.positions).masked_fill(~self.visible, -math.inf)
        return torch.softmax(scores, -1).to(self.dtype) @ self.v

    def seconds(self, way):
        start = time.perf_counter()
        out = self.ways[way]()
        if self.backward:
            torch.autograd.grad(out, self.wrt, self.d_o)
        return time.perf_counter() - start


def mantissa_milliseconds(options, form, heads, positions, dtype, backward):
    name = f"^{form.name}/{'both' if backward else 'forward'}/{dtype}/N:{heads}/T:{positions}/"
    run = subprocess.run([options.program, f"--benchmark_filter={name}", "--benchmark_format=json"],
                         env=dict(os.environ, BENCH_CALLS=str(options.calls), BENCH_THREADS=str(options.threads)),
                         check=True, capture_output=True, text=True)
    return json.loads(run.stdout)["benchmarks"][0]["median_ms"]


def compare(options, form, heads, positions, dtype, backward):
    peer = Peer(form, heads, positions, TYPES[dtype], backward)
    for way in list(peer.ways):
        try:
            peer.seconds(way)  # compiled in the first call
        except Exception as error:  # whatever the compiler says: that way is left out, with its words
            words = (str(error).strip() or repr(error)).splitlines()[0][:100]
            print(f"  left out: {way} of {form.name}: {words}", flush=True)
            del peer.ways[way]
    ours, theirs = [], {way: [] for way in peer.ways}
    for _ in range(options.rounds):
        for way, times in theirs.items():
            times += [peer.seconds(way) * 1e3 for _ in range(options.calls)]
        ours.append(mantissa_milliseconds(options, form, heads, positions, dtype, backward))
    own = statistics.median(ours)
    medians = {way: statistics.median(times) for way, times in theirs.items()}
    kind = "both" if backward else "forward"
    cells = ", ".join(f"{way} {value:.1f}" for way, value in medians.items())
    ratio = f"{min(medians.values()) / own:5.2f}" if medians else "    -"
    print(f"{kind:7} {dtype:4} N {heads:2} T {positions} {form.name:18}: mantissa {own:7.2f} ms, {cells}, ratio {ratio}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/bench_attention_scores")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--positions", default="1024,8192")
    parser.add_argument("--only", help="forms, separated by commas")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {options.threads} threads, medians of "
          f"{options.rounds} alternating rounds of {options.calls} calls")
    for positions in map(int, options.positions.split(",")):
        heads = HEADS[positions]
        for dtype in options.types.split(","):
            for form in forms(heads, positions):
                if options.only and form.name not in options.only.split(","):
                    continue
                for backward in (False, True):
                    torch._dynamo.reset()
                    compare(options, form, heads, positions, dtype, backward)


if __name__ == "__main__":
    main()
