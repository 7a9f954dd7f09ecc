#!/usr/bin/env python3
"""Writes tests/fixtures/llama_*.safetensors and mistral.safetensors: small LLaMAs as transformers computes them, the
oracle that is not ours.

Two of them: one with three heads of queries to one of keys, a head of its own and positions stretched as LLaMA 3's; one
with two heads to each of keys, a head that is the embedding and positions stretched linearly. And a Mistral, whose
tokens see the last eleven, themselves included.

Contents of each: every parameter, one batch of tokens and targets, the logits, the loss, every gradient, what 20 AdamW
steps on that batch lead to, and 64 tokens that continue a prompt greedily. All is computed in FP64 from parameters that
FP32 holds exactly, and rounded once, on storing; only the cosines and sines of positions are FP32, as transformers has
them in every precision. The same run in FP32 and under BF16 autocast is made beside it and its distance printed: that
is what a correct engine may be expected to reach. config.json as transformers writes it is in the metadata.

Needs `pip install torch transformers`. `--check` compares with the stored files instead of writing them.
"""
import argparse
import json
import math
import pathlib
import random
import sys

import torch
import transformers

from fixture_file import check, write_safetensors

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures"
SEQUENCE, BATCH, PROMPT, GENERATED = 37, 2, 5, 64
STEPS, LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY = 20, 1e-3, (0.9, 0.95), 1e-6, 0.1
SEED = 20230227
COMMON = dict(num_hidden_layers=2, vocab_size=211, max_position_embeddings=101, rms_norm_eps=1e-5,
              attention_dropout=0.0, bos_token_id=None, eos_token_id=None, pad_token_id=None)
MODELS = {
    "llama_grouped": dict(hidden_size=42, intermediate_size=52, num_attention_heads=3, num_key_value_heads=1,
                          head_dim=10, tie_word_embeddings=False,
                          rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0,
                                           "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                           "original_max_position_embeddings": 32}),
    "llama_tied": dict(hidden_size=48, intermediate_size=70, num_attention_heads=4, num_key_value_heads=2,
                       tie_word_embeddings=True,
                       rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}),
    "mistral": dict(hidden_size=44, intermediate_size=60, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                    tie_word_embeddings=False, sliding_window=11,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
}


def family_of(sizes):
    """The classes of configuration and model."""
    if "sliding_window" in sizes:
        return transformers.MistralConfig, transformers.MistralForCausalLM
    return transformers.LlamaConfig, transformers.LlamaForCausalLM


def draw_parameters(model, source):
    """FP64 values that FP32 holds exactly. Norm weights are drawn too, so that no term of a gradient is multiplied by
    one by accident."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            is_norm = "norm" in name
            # Layers that outweigh the embedding: else the next token is the last one again.
            deviation = 0.1 if is_norm else 0.2 if "layers" in name else 0.08
            values = [source.gauss(1.0 if is_norm else 0.0, deviation) for _ in range(value.numel())]
            value.copy_(torch.tensor(values, dtype=torch.float32).reshape(value.shape))


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(model, tokens, targets, autocast=False):
    """Runs the steps in the model's own format and returns everything that the fixture holds."""
    parameters = dict(model.named_parameters())
    decayed = [p for p in parameters.values() if p.dim() >= 2]
    others = [p for p in parameters.values() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": WEIGHT_DECAY},
                                   {"params": others, "weight_decay": 0.0}], lr=LEARNING_RATE, betas=BETAS, eps=EPSILON)
    result, losses = {}, []
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            logits = model(tokens, use_cache=False).logits
        loss = loss_of(logits.float() if autocast else logits, targets)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            result["logits"] = logits.detach().clone()
            result.update({f"grad.{name}": value.grad.clone() for name, value in parameters.items()})
        optimizer.step()
    result.update({f"after.{name}": value.detach().clone() for name, value in parameters.items()})
    result["loss"] = torch.tensor(losses[:1], dtype=torch.float64)
    result["losses"] = torch.tensor(losses, dtype=torch.float64)
    return result


def continue_greedily(model, prompt):
    """The tokens after the prompt, and the least distance between a best score and the next."""
    tokens, closest = list(prompt), math.inf
    with torch.no_grad():
        for _ in range(GENERATED):
            best = model(torch.tensor([tokens]), use_cache=False).logits[0, -1].topk(2)
            closest = min(closest, (best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
    return tokens[len(prompt):], closest


def make_fixture(sizes):
    """Returns the tensors of the file, the same runs in FP32 and BF16, and config.json."""
    torch.set_num_threads(1)
    source = random.Random(SEED)
    config_type, model_type = family_of(sizes)
    config = config_type(**COMMON, **sizes)
    model = model_type(config).eval()
    draw_parameters(model, source)
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    draw = lambda: torch.tensor([source.randrange(config.vocab_size) for _ in range(BATCH * SEQUENCE)]).reshape(
        BATCH, SEQUENCE)
    tokens, targets = draw(), draw()
    prompt = [source.randrange(config.vocab_size) for _ in range(PROMPT)]

    def again(dtype):
        copy = model_type(config).eval()
        copy.load_state_dict(initial)
        frequencies = copy.model.rotary_emb.inv_freq.clone()
        copy = copy.to(dtype)
        copy.model.rotary_emb.inv_freq = frequencies  # FP32 always
        return copy

    generated, closest = continue_greedily(again(torch.float64), prompt)
    assert generated == continue_greedily(again(torch.float32), prompt)[0]
    oracle = train(again(torch.float64), tokens, targets)
    single = train(again(torch.float32), tokens, targets)
    half = train(again(torch.float32), tokens, targets, autocast=True)
    names = dict(model.named_parameters())
    tensors = {"losses": oracle.pop("losses"), "loss": oracle.pop("loss"),
               "tokens": tokens.int(), "targets": targets.int(),
               "prompt": torch.tensor(prompt).int(), "generated": torch.tensor(generated).int(),
               **{name: initial[name].float() for name in names},
               **{name: value.float() for name, value in oracle.items()}}
    print(f"  closest choice {closest:.1e}, {len(set(generated))} different tokens generated")
    return tensors, oracle, {"FP32": single, "BF16": half}, config.to_json_string(use_diff=False)


def distances(tensors, oracle, values):
    """The largest distances of a run from FP64, each over the largest element of its tensor, and where they are."""
    found = {}
    for prefix in ("logits", "grad.", "after."):
        value, name = max(((values[n].double() - oracle[n].double()).abs().max() / oracle[n].abs().max(), n)
                          for n in oracle if n.startswith(prefix))
        found[prefix.rstrip(".")] = value.item(), name
    losses = tensors["losses"]
    found["losses"] = ((values["losses"] - losses).abs() / losses).max().item(), "them"
    return found


def print_summary(tensors, oracle, runs):
    losses = tensors["losses"]
    print(f"  loss {losses[0].item():.9f}, after {STEPS - 1} updates {losses[-1].item():.9f}")
    for run, values in runs.items():
        print(f"  largest distance of PyTorch's own {run} from FP64, over the largest element:")
        for what, (value, name) in distances(tensors, oracle, values).items():
            print(f"    {what:7} {value:.2e} in {name}")


def main():
    parser = argparse.ArgumentParser(description="Makes the LLaMA fixtures with transformers.")
    parser.add_argument("--only", choices=MODELS, help="this one alone")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    parser.add_argument("--check", action="store_true", help="compare with the stored files, write nothing")
    options = parser.parse_args()
    faults = 0
    for name, sizes in MODELS.items():
        if options.only not in (None, name):
            continue
        print(name)
        tensors, oracle, runs, config = make_fixture(sizes)
        print_summary(tensors, oracle, runs)
        path = options.folder / f"{name}.safetensors"
        if options.check:
            fault = check(path, tensors)
            faults += fault is not None
            print(fault or f"{path.name}: as computed here")
            continue
        metadata = {"config.json": json.dumps(json.loads(config)), "batch": BATCH, "steps": STEPS,
                    "learning_rate": LEARNING_RATE, "beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPSILON,
                    "weight_decay": WEIGHT_DECAY, "made_by": "bench/peers/llama_fixture.py",
                    **{f"bf16_{what}": value for what, (value, _) in
                       distances(tensors, oracle, runs["BF16"]).items()}}
        write_safetensors(path, tensors, {key: str(value) for key, value in metadata.items()})
        print(f"wrote {path} ({path.stat().st_size / 1000:.0f} kB)")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
