#!/usr/bin/env python3
"""Every convolution of the networks in PyTorch, which gives them to oneDNN, beside bench_convolution, shape by shape.

    bench/peers/convolutions.py [--networks ResNet50,VGG19,DenseNet121] [--formats f32,bf16] [--batch 8] [--threads 1]
                                [--rounds 1] [--calls 3] [--grouped] [--program build/bench_convolution]

Both run the three products of a shape one after another before the next shape comes, images channels-last in both. The
table has the share of the unit's peak, which bench_convolution measures right before and after each call, of mantissa and
of oneDNN, by the median of all calls, and the bytes that operands and result are; last, for each network, the means
weighted by FLOPs, with as many calls of each shape as a step has. In BF16 PyTorch's gradient of the filter is BF16, too;
mantissa's is FP32. Needs `pip install torch`.
"""
import argparse
import os
import re
import statistics
import subprocess
import time

import torch

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
NAME = re.compile(r" *(\d+) x +(\d+) -> +(\d+), (\d+)x\d+, stride (\d+),(?: (\d+) groups,)? (forward|dX|dW) *")
MEASURED = re.compile(r" +([\d.]+) ms +([\d.]+) of peak +([\d.]+) MB +(.*)")


def run_program(options, network, kind, **more):
    environment = dict(os.environ, BENCH_NETWORK=network, BENCH_FORMAT=kind, BENCH_BATCH=str(options.batch),
                       BENCH_THREADS=str(options.threads), BENCH_CALLS=str(options.calls),
                       BENCH_GROUPED=str(int(options.grouped)), **more)
    return subprocess.run([options.program], env=environment, check=True, capture_output=True, text=True).stdout


def shapes_of(options, network):
    """The beginning of each shape's lines -> its sizes, its products and how often it is there."""
    shapes = {}
    for line in run_program(options, network, "f32", BENCH_LIST="1").splitlines():
        name = NAME.match(line)
        sizes = tuple(int(number or 1) for number in name.groups()[:6])
        start = line[: line.index(name[7])]
        shapes.setdefault(start, (sizes, [], int(line.split()[-2])))[1].append(name[7])
    return shapes


def ours(options, network, kind, start):
    """Product -> (milliseconds, share of peak, megabytes, kernel)."""
    found = {}
    for line in run_program(options, network, kind, BENCH_ONLY=start).splitlines():
        name = NAME.match(line)
        if name:
            milliseconds, share, megabytes, kernel = MEASURED.search(line).groups()
            found[name[7]] = (float(milliseconds), float(share), float(megabytes), kernel)
    return found


def oneDNN(options, kind, sizes, products):
    """Product -> milliseconds of each call."""
    pixels, channels, filters, taps, stride, groups = sizes
    dtype, last = TYPES[kind], torch.channels_last
    x = torch.randn(options.batch, channels, pixels, pixels).to(dtype).contiguous(memory_format=last)
    weight = torch.randn(filters, channels // groups, taps, taps).to(dtype).contiguous(memory_format=last)
    strides, padding = [stride] * 2, [taps // 2 * (taps % 2)] * 2

    def forward():
        return torch.nn.functional.conv2d(x, weight, None, strides, padding, 1, groups)

    dy = torch.randn_like(forward())

    def gradient(mask):
        return torch.ops.aten.convolution_backward(dy, x, weight, None, strides, padding, [1, 1], False, [0, 0], groups, mask)

    work = {"forward": forward, "dX": lambda: gradient([True, False, False]), "dW": lambda: gradient([False, True, False])}
    times = {}
    with torch.no_grad():
        for product in products:
            work[product]()
            times[product] = []
            for _ in range(options.calls):
                start = time.perf_counter()
                work[product]()
                times[product].append(1e3 * (time.perf_counter() - start))
    return times


def show_network(options, network, kind):
    print(f"\n{network}, {kind}, {options.batch} images\n"
          f"{'':48} {'times':>5} {'mantissa':>9} {'of peak':>7} {'oneDNN':>9} {'of peak':>7} {'ratio':>6} {'MB':>7}")
    at_peak, our_time, their_time, kernels = {}, {}, {}, set()
    for start, (sizes, products, times) in shapes_of(options, network).items():
        rounds = [(ours(options, network, kind, start), oneDNN(options, kind, sizes, products))
                  for _ in range(options.rounds)]
        for product in products:
            mine = statistics.median(found[product][0] for found, _ in rounds)
            share = statistics.median(found[product][1] for found, _ in rounds)
            theirs = statistics.median(call for _, found in rounds for call in found[product])
            megabytes, kernel = rounds[0][0][product][2:]
            kernels.add(kernel)
            at_peak[product] = at_peak.get(product, 0) + times * mine * share
            our_time[product] = our_time.get(product, 0) + times * mine
            their_time[product] = their_time.get(product, 0) + times * theirs
            print(f"{start + product:48} {times:5} {mine:6.2f} ms {share:7.3f} {theirs:6.2f} ms {share * mine / theirs:7.3f}"
                  f" {theirs / mine:6.2f} {megabytes:7.1f}", flush=True)
    for product in [*our_time, "all"]:
        peak, mine, theirs = (table.get(product, sum(table.values())) for table in (at_peak, our_time, their_time))
        print(f"{network}, {kind}, {product}: mantissa {peak / mine:.3f} of peak, oneDNN {peak / theirs:.3f},"
              f" ratio {theirs / mine:.2f}")
    print(f"{network}, {kind}: on {', '.join(sorted(kernels))}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="ResNet50,VGG19,DenseNet121",
                        help="ResNeXt50, MobileNetV3-L, EfficientNet-B0 and ConvNeXt-T, too")
    parser.add_argument("--grouped", action="store_true", help="only convolutions in groups")
    parser.add_argument("--formats", default="f32,bf16")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--calls", type=int, default=3, help="of each product in a round")
    parser.add_argument("--program", default="build/bench_convolution")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.threads} threads, PyTorch {torch.__version__}, {options.rounds} rounds of {options.calls} calls")
    for network in options.networks.split(","):
        for kind in options.formats.split(","):
            show_network(options, network, kind)


if __name__ == "__main__":
    main()
