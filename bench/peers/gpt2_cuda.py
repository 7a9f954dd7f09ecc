#!/usr/bin/env python3
"""PyTorch on an NVIDIA GPU beside mantissa's ladder: a training step of GPT-2 124M, and attention.

    bench/peers/gpt2_cuda.py [--batch 16] [--sequence 1024] [--steps 10] [--no-attention] [--rehearse]

Default: FP32 with TF32 off, eager, attention and GELU written out, plain AdamW. Best: autocast to BF16, TF32 allowed,
scaled_dot_product_attention, its own GELU, torch.compile where that works, fused AdamW, with 50,257 tokens and with
50,304, a multiple of 128. Milliseconds between events, median of --steps after three. --no-attention: only the step.
--rehearse: on the CPU, in tiny sizes. Needs torch alone.
"""
import argparse
import statistics
import time

import torch

import gpt2_plain


def sizes_of(arguments, vocabulary):
    """layers, heads, channels, vocabulary, batch, sequence"""
    if arguments.rehearse:
        return 1, 2, 32, 512, 1, 16
    return 12, 12, 768, vocabulary, arguments.batch, arguments.sequence


def parameters(shapes, device):
    """Matrices are drawn, biases are zeros, gains ones."""
    generator = torch.Generator().manual_seed(1)
    p = {}
    for name, shape in shapes.items():
        is_gain = "ln_" in name and name.endswith("weight")
        value = (0.02 * torch.randn(*shape, generator=generator) if len(shape) == 2
                 else torch.ones(shape) if is_gain else torch.zeros(shape))
        p[name] = value.to(device).requires_grad_()
    return p


def milliseconds(run, count, device):
    """The median of `count` runs, after three."""
    times = []
    for i in range(-3, count):
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            took = begin.elapsed_time(end)
        else:
            started = time.perf_counter()
            run()
            took = 1e3 * (time.perf_counter() - started)
        if i >= 0:
            times.append(took)
    return statistics.median(times)


def train(best, arguments, device, compiles, vocabulary=50257):
    """(milliseconds of a step, loss of the last)"""
    layers, heads, channels, vocabulary, batch, sequence = sizes_of(arguments, vocabulary)
    torch.backends.cuda.matmul.allow_tf32 = best
    torch.backends.cudnn.allow_tf32 = best
    p = parameters(gpt2_plain.parameter_shapes(layers, channels, vocabulary, sequence), device)
    fused = {"fused": True} if best and device.type == "cuda" else {}
    optimizer = gpt2_plain.adamw(p, learning_rate=3e-4, betas=(0.9, 0.95), weight_decay=0.1, **fused)
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(vocabulary, (batch, sequence + 1), generator=generator).to(device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def forward():
        kernels = (gpt2_plain.sdpa, gpt2_plain.fused_gelu_tanh) if best else ()
        return gpt2_plain.loss_of(gpt2_plain.logits_of(p, inputs, heads, *kernels), targets)

    run_forward = torch.compile(forward, dynamic=False) if compiles else forward
    last = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=best):
            loss = run_forward()
        loss.backward()
        optimizer.step()
        last[:] = [loss]

    return milliseconds(step, 2 if arguments.rehearse else arguments.steps, device), last[0].item()


def attention(arguments, device):
    """Causal, of 16,384 tokens in 12 heads of 64, by each backend that there is."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    tokens, heads, lengths = (64, 2, (16,)) if arguments.rehearse else (16384, 12, (512, 1024, 2048, 4096, 8192))
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        for length in lengths:
            batch = tokens // length
            q, k, v = (torch.randn(batch, heads, length, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
                       for _ in range(3))
            flops = 4 * 64 * batch * heads * length * (length + 1) / 2
            try:
                with sdpa_kernel(backend):
                    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                    d_o = torch.randn_like(o)
                    forward = milliseconds(lambda: torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=True), 20, device)
                    backward = milliseconds(lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True), 20, device)
            except RuntimeError as error:
                print(f"{backend.name}: {str(error).splitlines()[0]}")
                break
            print(f"{backend.name:20} {batch} x {length}: forward {forward:.4f} ms, {flops / forward / 1e9:.1f} TFLOP/s; "
                  f"backward {backward:.4f} ms, {2.5 * flops / backward / 1e9:.1f} TFLOP/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--no-attention", action="store_true")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    device = torch.device("cpu" if arguments.rehearse else "cuda")
    print(f"torch {torch.__version__}, {'the CPU' if arguments.rehearse else torch.cuda.get_device_name()}")
    try:
        if not arguments.no_attention:
            attention(arguments, device)
    except ImportError as error:  # before 2.3
        print(f"attention: {error}")
    default, loss = train(False, arguments, device, compiles=False)
    print(f"default: {default:.2f} ms a step, loss {loss:.4f}")
    best, loss = train(True, arguments, device, compiles=False)
    print(f"best without torch.compile: {best:.2f} ms a step, loss {loss:.4f}")
    if not arguments.rehearse:
        try:
            for vocabulary in (50257, 50304):
                compiled, loss = train(True, arguments, device, True, vocabulary)
                print(f"with it, {vocabulary} tokens: {compiled:.2f} ms a step, loss {loss:.4f}")
                best = min(best, compiled)
        except Exception as error:  # whatever a compiler may lack there
            print(f"torch.compile: {type(error).__name__}: {str(error).splitlines()[0]}")
    print(f"PyTorch: default {default:.2f} ms, best {best:.2f} ms a step")


if __name__ == "__main__":
    main()
