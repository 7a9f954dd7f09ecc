"""Runs the program `mantissa` and reads what it wrote, for the comparisons beside it. Needs torch, safetensors, numpy."""
import json
import pathlib
import subprocess

import numpy
import safetensors.torch
import torch

TEXT = "/usr/share/common-licenses/GPL-3"


def add_options(parser):
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--text", default=TEXT, help="text to train on (default: %(default)s)")
    parser.add_argument("--tokenizer", help="directory of the text's tokenizer (default: bytes are tokens)")
    parser.add_argument("--threads", type=int, default=2)


def run(program, *arguments):
    """Standard output as text; on failure the program's own words end the script."""
    ran = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{program} {' '.join(map(str, arguments))}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def encode(options, text):
    """The tokens of these bytes."""
    if not options.tokenizer:
        return list(text)
    command = [options.program, "tokenize", "--encode", "-", "--tokenizer", options.tokenizer]
    return [int(token) for token in subprocess.run(command, input=text, capture_output=True, check=True).stdout.split()]


def tokens_of(options, count):
    """The first `count` tokens of the text, i64."""
    # No token of GPT-2's is longer than this on average in English text; a cut character is left out.
    text = pathlib.Path(options.text).read_bytes()[: 16 * count].decode(errors="ignore").encode()
    tokens = encode(options, text)
    if len(tokens) < count:
        raise SystemExit(f"{options.text}: has {len(tokens)} tokens, {count} are needed")
    return torch.tensor(tokens[:count])


def write_tokens(path, tokens):
    numpy.save(path, tokens.numpy().astype(numpy.uint16))


def read_tokens(path):
    return torch.from_numpy(numpy.load(path).astype(numpy.int64))


def batches_of(tokens, batch, sequence, step):
    """What `train --tokens` reads in a step: inputs and targets [B, T]."""
    first = step * batch * sequence
    window = tokens[first:first + batch * sequence + 1]
    return window[:-1].reshape(batch, sequence), window[1:].reshape(batch, sequence)


def train(program, folder, *arguments, order="sequential"):
    """The report of `train`, as docs/json.md describes it; it reads what batches_of gives unless the order is random. Its
    own warm-up and clipping are left out where none are given."""
    path = folder / "train.json"
    recipe = [word for name in ("--warmup", "--clip") if name not in arguments for word in (name, "0")]
    run(program, "train", "--quiet", "--json", path, "--order", order, *recipe, *arguments)
    return json.loads(path.read_text())


def generate(program, folder, *arguments):
    """The report of `generate`."""
    path = folder / "generate.json"
    run(program, "generate", "--policy", "fp32", "--quiet", "--json", path, *arguments)
    return json.loads(path.read_text())


def parameters_of(checkpoint):
    """Name -> parameter, linear weights [out, in] as gpt2_plain.py wants them."""
    stored = safetensors.torch.load_file(checkpoint / "model.safetensors")
    stored = {name.removeprefix("transformer."): value for name, value in stored.items()}
    return {name: value.t().contiguous() if is_linear(name) else value for name, value in stored.items()
            if name != "lm_head.weight"}


def is_linear(name):
    return name.startswith("h.") and name.endswith(".weight") and ".ln_" not in name


def heads_of(checkpoint):
    return json.loads((checkpoint / "config.json").read_text())["n_head"]


def first_moments_of(checkpoint):
    """Name -> AdamW's first moment, in the layout of parameters_of. After one step from zero with beta1 = 0 it is the
    gradient, to the bit."""
    stored = safetensors.torch.load_file(checkpoint / "optimizer.safetensors")
    prefix = "adamw.m."
    return {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
