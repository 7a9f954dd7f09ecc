#!/usr/bin/env python3
"""Checks folders of every family beside transformers: the loss of a folder that transformers saved, that of what `train`
wrote after a step, and what becomes of keys of config.json that are changed one at a time. Each change must be right
(the loss that transformers computes of the same folder) or refused by name; none may be silently other.

    pip install torch transformers numpy
    python bench/peers/check_families.py --program build/mantissa
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

import torch
import transformers

import family_cases as families
import mantissa_program

BATCH, SEQUENCE, TOLERANCE = 2, 29, 2e-5
SLIDING, FULL = families.SLIDING, families.FULL
LINEAR = {"rope_type": "linear", "rope_theta": 50.0, "factor": 2.0}
EPSILON, THETA, SCALING = {"rms_norm_eps": 0.1}, {"rope_parameters": {"rope_type": "default", "rope_theta": 30.0}}, {
    "rope_parameters": LINEAR}
EXPERTS, GELU, RELU = {"num_experts": 4}, {"hidden_act": "gelu"}, {"hidden_act": "relu"}
NORM_EPSILON = {"layer_norm_eps": 0.1}
NESTED = {FULL: {"rope_type": "default", "rope_theta": 20.0}, SLIDING: LINEAR}
YARN = {"rope_parameters": dict(families.YARN, beta_fast=16.0, beta_slow=2.0, mscale=0.7, mscale_all_dim=0.3)}
LLAMA3 = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
                              "high_freq_factor": 3.0, "original_max_position_embeddings": 40}}
EIGHTY = {"rope_parameters": {"rope_type": "default", "rope_theta": 30.0, "partial_rotary_factor": 0.8}}
PARTS = {"rope_parameters": {"rope_type": "default", "rope_theta": 30.0, "partial_rotary_factor": 0.7}}

# Members of config.json that are written over, one set at a time; the weights stay.
CHANGES = {
    "llama_biases": [EPSILON, THETA, SCALING, YARN, LLAMA3, RELU, GELU, EXPERTS, {"pretraining_tp": 2},
                     {"hidden_act": "quick_gelu"}, {"layer_types": [SLIDING, FULL]},
                     {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 3.0}, "rope_theta": 70.0}],
    "qwen2": [EPSILON, THETA, YARN, GELU, EXPERTS, {"use_sliding_window": False, "layer_types": None},
              {"sliding_window": 3}, {"max_window_layers": 0, "layer_types": None},
              {"layer_types": [SLIDING, FULL]}, {"layer_types": ["chunked_attention", FULL]}],
    "qwen3": [EPSILON, THETA, YARN, RELU, EXPERTS, {"use_sliding_window": True, "max_window_layers": 1,
                                                    "sliding_window": 5, "layer_types": None}, {"use_qk_norm": False}],
    "gpt_neox": [NORM_EPSILON, RELU, EXPERTS, {"use_parallel_residual": False}, {"hidden_act": "gelu_new"},
                 {"rope_parameters": None, "rotary_pct": 0.5, "rotary_emb_base": 100},
                 {"rope_parameters": dict(LINEAR, partial_rotary_factor=0.34)}],
    "opt": [{"activation_function": "gelu"}, {"do_layer_norm_before": False}, {"_remove_final_layer_norm": True},
            {"layer_norm_elementwise_affine": False}, {"dropout": 0.3}, {"word_embed_proj_dim": 18}, EXPERTS],
    "gemma": [EPSILON, THETA, RELU, GELU, EXPERTS, {"use_bidirectional_attention": True},
              {"hidden_activation": "gelu"}],
    "gemma2": [EPSILON, THETA, {"attn_logit_softcapping": None}, {"final_logit_softcapping": None},
               {"final_logit_softcapping": 0.3},
               {"query_pre_attn_scalar": 3}, {"sliding_window": 3}, {"attn_logit_softcapping": 0.7},
               {"layer_types": [FULL, SLIDING, SLIDING]}, {"layer_types": None}, {"hidden_activation": "relu"},
               {"use_bidirectional_attention": True}, EXPERTS],
    "gemma3_text": [EPSILON, {"rope_parameters": NESTED}, {"final_logit_softcapping": 0.2}, {"sliding_window": 3},
                    {"attn_logit_softcapping": 2.0}, {"query_pre_attn_scalar": 3}, {"layer_types": None},
                    {"layer_types": None, "sliding_window_pattern": 2}, {"use_bidirectional_attention": True},
                    {"rope_parameters": None, "rope_theta": 70.0, "rope_local_base_freq": 30.0,
                     "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, EXPERTS],
    "phi": [NORM_EPSILON, RELU, EXPERTS, PARTS, {"rope_parameters": None, "partial_rotary_factor": 0.84},
            {"rope_parameters": None}, {"hidden_act": "gelu"}],
    "phi3": [EPSILON, RELU, EIGHTY, {"sliding_window": None}, {"sliding_window": 3}, EXPERTS, {"attention_bias": True},
             {"layer_types": [SLIDING, FULL]}, {"layer_types": [SLIDING, SLIDING]},
             {"rope_parameters": dict(families.LONGROPE, partial_rotary_factor=1.0)}],
    "phi3_longrope": [EPSILON, {"max_position_embeddings": 300}, {"rope_parameters": dict(families.LONGROPE, factor=9.0)},
        {"rope_parameters": dict(families.LONGROPE, attention_factor=1.4)}, {"original_max_position_embeddings": 40}],
    "smollm3": [EPSILON, THETA, YARN, {"no_rope_layers": [0, 1, 1], "layer_types": None}, {"use_sliding_window": False,
                                                                                        "layer_types": None},
                {"no_rope_layers": None, "no_rope_layer_interval": 3, "layer_types": None}, RELU, EXPERTS],
    "granite": [EPSILON, YARN, {"embedding_multiplier": 2.0}, {"residual_multiplier": 0.3}, {"logits_scaling": 5.0},
                {"attention_multiplier": 0.9}, RELU, EXPERTS],
    "olmo2": [EPSILON, THETA, YARN, RELU, GELU, {"clip_qkv": 2.0}, EXPERTS],
    "starcoder2": [{"norm_epsilon": 0.1}, THETA, YARN, RELU, GELU, {"sliding_window": None}, {"sliding_window": 3},
                   {"use_bias": False}, {"layer_types": [SLIDING, FULL]}, {"residual_dropout": 0.3}, EXPERTS],
}


def write_tokens(path):
    drawn = (families.uniform("tokens", 4 * BATCH * SEQUENCE + 1) + 1) / 2 * families.VOCABULARY
    tokens = drawn.long().clamp(0, families.VOCABULARY - 1)
    mantissa_program.write_tokens(path, tokens)
    return tokens


def their_loss(folder, tokens, step):
    config = transformers.AutoConfig.from_pretrained(folder)
    attention = "eager" if config.model_type == "gemma2" else "sdpa"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention).eval()
    inputs, targets = mantissa_program.batches_of(tokens, BATCH, SEQUENCE, step)
    with torch.no_grad():
        return families.loss_of(model(inputs).logits, targets).item()


def our_losses(options, folder, tokens, *words):
    """The losses of the steps, or the one line that refuses the folder."""
    report = folder.parent / "report.json"
    ran = subprocess.run([options.program, "train", "--from", folder, "--tokens", tokens, "--policy", "fp32", "--batch",
                          str(BATCH), "--sequence", str(SEQUENCE), "--order", "sequential", "--warmup", "0", "--clip",
                          "0", "--threads", str(options.threads), "--quiet", "--json", report, *map(str, words)],
                         capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        return ran.stderr.strip()
    return [step["loss"] for step in json.loads(report.read_text())["steps"]]


def is_near(ours, theirs):
    return abs(ours - theirs) <= TOLERANCE * abs(theirs)


def check_round_trip(options, folder, path, tokens):
    written = folder / "written"
    ours = our_losses(options, folder / "saved", path, "--steps", 2)
    one = our_losses(options, folder / "saved", path, "--steps", 1, "--checkpoint", written)
    if isinstance(ours, str) or isinstance(one, str):
        return None, f"BAD: {ours}"
    theirs = their_loss(folder / "saved", tokens, 0), their_loss(written, tokens, 1)
    good = is_near(ours[0], theirs[0]) and is_near(ours[1], theirs[1])
    kind = json.loads((written / "config.json").read_text())["model_type"]
    return theirs[0] if good else None, (f"{kind}: as saved {ours[0]:.6f} and {theirs[0]:.6f}, written after a step "
                                         f"{ours[1]:.6f} and {theirs[1]:.6f}: {'good' if good else 'BAD'}")


def check_change(options, folder, path, tokens, change, unchanged):
    changed = folder / "changed"
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(folder / "saved", changed)
    config = json.loads((changed / "config.json").read_text())
    for key, value in change.items():
        config[key] = value
        if value is None and key in ("rope_parameters", "layer_types"):
            del config[key]
    (changed / "config.json").write_text(json.dumps(config))
    ours = our_losses(options, changed, path, "--steps", 1)
    if isinstance(ours, str):
        # Where a key takes the biases away, their weights have no place and are named.
        named = any(re.search(rf"\b{key}\b", ours) or "bias" in key and 'unknown "model' in ours for key in change)
        return named, ours.split("config.json: ")[-1] if named else f"BAD: {ours}"
    try:
        theirs = their_loss(changed, tokens, 0)
    except Exception as error:  # pylint: disable=broad-except
        return False, f"BAD: {ours[0]:.6f}, transformers refuses: {str(error).splitlines()[0][:80]}"
    effect = "without effect" if abs(theirs - unchanged) < 1e-7 * abs(unchanged) else "right"
    good = is_near(ours[0], theirs)
    return good, f"{ours[0]:.6f} and {theirs:.6f}: {effect if good else 'BAD'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=families.CASES, help="this one alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    faults = checks = 0
    for name in families.CASES:
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            path = folder / "tokens.npy"
            tokens = write_tokens(path)
            families.make_model(families.make_config(*families.CASES[name])).save_pretrained(folder / "saved")
            unchanged, line = check_round_trip(options, folder, path, tokens)
            print(f"{name}: {line}")
            faults, checks = faults + (unchanged is None), checks + 1
            for change in CHANGES.get(name, []) if unchanged is not None else []:
                good, line = check_change(options, folder, path, tokens, change, unchanged)
                print(f"  {json.dumps(change)[:70]:70} {line[:150]}")
                faults, checks = faults + (not good), checks + 1
    print(f"{checks} checks, {faults} of them bad")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
