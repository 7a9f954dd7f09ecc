"""Small models with adapters, as PEFT makes them: what lora_fixture.py and check_lora.py have in common."""
import json
import pathlib
import tempfile

import peft
import torch
import transformers

import family_cases as families

SEQUENCE, BATCH = 29, 2
LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY = 1e-2, (0.9, 0.95), 1e-6, 0.1
GPT2 = dict(n_layer=2, n_head=3, n_embd=36, vocab_size=families.VOCABULARY, n_positions=families.CONTEXT,
            attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=None, eos_token_id=None)
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# The model, and what PEFT is asked for: some layers or all, ranks and scales of their own, rsLoRA.
CASES = {
    "gpt2": (("GPT2", GPT2), dict(r=3, lora_alpha=5, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)),
    "llama": (families.CASES["llama_biases"],
              dict(r=4, lora_alpha=8, target_modules=ALL, rank_pattern={"model.layers.0.self_attn.q_proj": 5},
                   alpha_pattern={"mlp.down_proj": 2})),
    "qwen2": (families.CASES["qwen2"], dict(r=4, lora_alpha=3, use_rslora=True, target_modules=ALL)),
}


def base_of(name, dtype=torch.float32):
    return families.make_model(families.make_config(*CASES[name][0]), dtype)


def adapted(model, name):
    """The model with adapters that follow from their names; B is not zero."""
    wrapped = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **CASES[name][1]))
    with torch.no_grad():
        for path, value in wrapped.named_parameters():
            if "lora_" in path:
                drawn = (0.3 if "lora_A" in path else 0.2) * families.uniform(path, value.numel())
                value.copy_(drawn.float().reshape(value.shape))
    return wrapped


def ids(name, count):
    drawn = ((families.uniform(name, count) + 1) / 2 * families.VOCABULARY).long()
    return drawn.clamp(0, families.VOCABULARY - 1)


def batch_of(name):
    return (ids(f"{name} {what}", BATCH * SEQUENCE).reshape(BATCH, SEQUENCE) for what in ("tokens", "targets"))


def adapters_of(model):
    """Parameters that are trained, under the names that PEFT gives them in files."""
    return {name.replace(".default.", "."): value for name, value in model.named_parameters() if value.requires_grad}


def train(model, batches, steps, epsilon=EPSILON):
    """The loss of each step, and the gradients of the first."""
    parameters = adapters_of(model)
    optimizer = torch.optim.AdamW(parameters.values(), lr=LEARNING_RATE, betas=BETAS, eps=epsilon,
                                  weight_decay=WEIGHT_DECAY)
    losses, gradients = [], {}
    for step in range(steps):
        optimizer.zero_grad()
        tokens, targets = batches(step)
        loss = families.loss_of(model(input_ids=tokens, use_cache=False).logits, targets)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: value.grad.clone() for name, value in parameters.items()}
        optimizer.step()
    return losses, gradients


def saved_config(model):
    """adapter_config.json as PEFT writes it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return json.loads((pathlib.Path(folder) / "adapter_config.json").read_text())


def quiet():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
