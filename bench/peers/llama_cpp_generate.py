#!/usr/bin/env python3
"""Generating beside llama.cpp: the same LLaMA, the same weights, one text, tokens a second; interleaved.

    bench/peers/llama_cpp_generate.py [--model llama-110m] [--length 256] [--repeats 3] [--formats fp32,bf16,int8,int4]

`mantissa train` draws the weights; the script writes them as GGUF, too: F32, BF16, Q8_0 and Q4_0, beside our fp32, bf16,
int8 and int4. (Q4_0 has 4.5 bits a weight, as our int4.) In FP32 both must choose the same tokens, with equal
probabilities, or the table is worth nothing. llama.cpp keeps keys and values in F16 and takes flash attention, its
defaults; for that check FP32, and attention written out.

Each repeat runs every contender once, in a process of its own; the table has medians. Needs `pip install gguf numpy
torch safetensors`, and llama-cpp-python compiled for this machine:
    CMAKE_ARGS="-DGGML_NATIVE=ON" pip install --no-binary llama-cpp-python llama-cpp-python
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

PROMPT = b"The licenses for most software are designed to take away your freedom to share and change it."
BYTES = 256  # without a tokenizer bytes are tokens, and no others are drawn
TOLERANCE = 1e-4  # of log-probabilities: FP32's roundings make some 1e-6, llama.cpp's flash attention 1e-3


def write_gguf(checkpoint, path, kind):
    """Hugging Face's tensors under llama.cpp's names; rows of queries and keys in its order of rotary pairs."""
    import gguf
    import safetensors.torch

    config = json.loads((checkpoint / "config.json").read_text())
    tensors = {}
    for file in sorted(checkpoint.glob("model*.safetensors")):
        tensors.update(safetensors.torch.load_file(file))
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    head_size = config["hidden_size"] // heads
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(head_size)
    rope = config.get("rope_parameters") or config
    writer.add_rope_freq_base(rope.get("rope_theta", 10000.0))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    quantised = {"fp32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16,
                 "int8": gguf.GGMLQuantizationType.Q8_0, "int4": gguf.GGMLQuantizationType.Q4_0}[kind]
    if "lm_head.weight" not in tensors:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    for name, tensor in tensors.items():
        array = tensor.float().numpy()
        if ".q_proj." in name or ".k_proj." in name:
            rows = heads if ".q_proj." in name else groups
            array = array.reshape(rows, 2, head_size // 2, -1).swapaxes(1, 2).reshape(array.shape)
        as_type = quantised if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(numpy.ascontiguousarray(array), as_type)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), data, raw_dtype=as_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def generate_by_llama_cpp(path, length, threads, in_f32):
    """Tokens, their log-probabilities, tokens a second of those after the first. In a process of its own."""
    import ctypes

    import llama_cpp as cpp

    silent = cpp.llama_log_callback(lambda level, text, data: None)
    cpp.llama_log_set(silent, ctypes.c_void_p(0))
    cpp.llama_backend_init()
    model = cpp.llama_model_load_from_file(str(path).encode(), cpp.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp does not read {path}")
    parameters = cpp.llama_context_default_params()
    parameters.n_ctx = 1024
    parameters.n_threads = parameters.n_threads_batch = threads
    if in_f32:
        parameters.type_k = parameters.type_v = 0  # GGML_TYPE_F32
        parameters.flash_attn_type = 0  # LLAMA_FLASH_ATTN_TYPE_DISABLED: it rounds to F16
    context = cpp.llama_init_from_model(model, parameters)
    vocabulary = cpp.llama_vocab_n_tokens(cpp.llama_model_get_vocab(model))

    def decode(tokens):
        array = (cpp.llama_token * len(tokens))(*tokens)
        if cpp.llama_decode(context, cpp.llama_batch_get_one(array, len(tokens))) != 0:
            raise SystemExit("llama_decode failed")
        scores = numpy.ctypeslib.as_array(cpp.llama_get_logits_ith(context, -1), shape=(vocabulary,))
        return int(scores[:BYTES].argmax()), scores

    def log_probability(token, scores):
        wide = scores.astype(numpy.float64)
        return float(wide[token] - wide.max() - numpy.log(numpy.exp(wide - wide.max()).sum()))

    tokens, logs = [], []
    token, scores = decode(list(PROMPT))
    start = time.perf_counter()
    while True:
        tokens.append(token)
        if in_f32:
            logs.append(log_probability(token, scores))
        if len(tokens) == length:
            break
        token, scores = decode([token])
    return {"tokens": tokens, "log_probabilities": logs,
            "tokens_per_second": (length - 1) / (time.perf_counter() - start)}


def generate_here(options, checkpoint, folder, kind):
    path = folder / "generate.json"
    subprocess.run([options.program, "generate", "--checkpoint", checkpoint, "--prompt", PROMPT.decode(), "--length",
                    str(options.length), "--temperature", "0", "--policy", kind, "--threads", str(options.threads),
                    "--json", path, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return json.loads(path.read_text())


def generate_there(options, path, in_f32=False):
    command = [sys.executable, __file__, "--worker", path, "--length", str(options.length), "--threads",
               str(options.threads)] + (["--in-f32"] if in_f32 else [])
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        raise SystemExit(ran.stderr)
    return json.loads(ran.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--model", default="llama-110m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--formats", default="fp32,bf16,int8,int4")
    parser.add_argument("--worker", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--in-f32", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(generate_by_llama_cpp(options.worker, options.length, options.threads, options.in_f32)))
        return 0
    import llama_cpp

    kinds = options.formats.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        checkpoint = folder / "model"
        tokens = folder / "tokens.npy"
        numpy.save(tokens, (numpy.arange(200) % 256).astype(numpy.uint16))
        subprocess.run([options.program, "train", "--model", options.model, "--tokens", tokens, "--batch", "1",
                        "--sequence", "64", "--steps", "1", "--learning-rate", "0", "--checkpoint", checkpoint,
                        "--quiet"], check=True, stdout=subprocess.DEVNULL)
        files = {kind: folder / f"{kind}.gguf" for kind in {*kinds, "fp32"}}
        for kind, path in files.items():
            write_gguf(checkpoint, path, kind)
        ours, theirs = generate_here(options, checkpoint, folder, "fp32"), generate_there(options, files["fp32"], True)
        apart = max(abs(a - b) for a, b in zip(ours["log_probabilities"], theirs["log_probabilities"]))
        same = ours["tokens"] == theirs["tokens"] and apart < TOLERANCE
        print(f"{options.model}, {options.length} tokens after {len(PROMPT)}, {options.threads} threads; "
              f"llama-cpp-python {llama_cpp.__version__}: {llama_cpp.llama_print_system_info().decode().strip()}")
        print(f"FP32: {'the same tokens' if ours['tokens'] == theirs['tokens'] else 'OTHER TOKENS'}, log-probabilities "
              f"{apart:.1e} apart")
        for kind in kinds:
            here, there = [], []
            for _ in range(options.repeats):
                here.append(generate_here(options, checkpoint, folder, kind)["tokens_per_second"])
                there.append(generate_there(options, files[kind])["tokens_per_second"])
            a, b = statistics.median(here), statistics.median(there)
            print(f"{kind:5} mantissa {a:7.1f} tokens/s, llama.cpp {b:7.1f}, ratio {a / b:.2f}", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
