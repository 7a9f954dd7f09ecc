"""Small models with adapters, as PEFT makes them: what lora_fixture.py and check_lora.py have in common.

CASES are language models, IMAGE_CASES a small ResNet with its convolutions adapted.
"""
import json
import math
import pathlib
import tempfile

import peft
import torch
import transformers

import family_cases as families
import networks_plain

SEQUENCE, BATCH = 29, 2
LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY = 1e-2, (0.9, 0.95), 1e-6, 0.1
GPT2 = dict(n_layer=2, n_head=3, n_embd=36, vocab_size=families.VOCABULARY, n_positions=families.CONTEXT,
            attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=None, eos_token_id=None)
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# The model, and what PEFT is asked for: some layers or all, ranks and scales of their own, rsLoRA; and all with DoRA.
CASES = {
    "gpt2": (("GPT2", GPT2), dict(r=3, lora_alpha=5, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)),
    "llama": (families.CASES["llama_biases"],
              dict(r=4, lora_alpha=8, target_modules=ALL, rank_pattern={"model.layers.0.self_attn.q_proj": 5},
                   alpha_pattern={"mlp.down_proj": 2})),
    "qwen2": (families.CASES["qwen2"], dict(r=4, lora_alpha=3, use_rslora=True, target_modules=ALL)),
}
CASES.update({f"{name}_dora": (model, dict(asked, use_dora=True)) for name, (model, asked) in CASES.items()})

CONVOLUTIONS = ["conv1", "conv2", "conv3", "downsample.0", "fc"]
IMAGE_CASES = {"resnet": dict(r=2, lora_alpha=3, rank_pattern={"layer2.0.conv2": 3}, target_modules=CONVOLUTIONS),
               "resnet_dora": dict(r=2, lora_alpha=3, use_rslora=True, use_dora=True, target_modules=CONVOLUTIONS)}
IMAGES, IMAGE_SIZE, CLASSES, WIDTH = 4, 64, 5, 4


def base_of(name, dtype=torch.float32):
    return families.make_model(families.make_config(*CASES[name][0]), dtype)


def image_base(dtype):
    """A ResNet50v1.5 of one block a stage, whose norms go by its statistics; its weights follow from their names."""
    network = networks_plain.ResNet(False, CLASSES, WIDTH, (1, 1, 1, 1)).eval()
    with torch.no_grad():
        for path, value in network.state_dict().items():
            if value.is_floating_point():
                size = 0.25 if value.ndim == 1 else math.sqrt(2 / value[0].numel())
                centre = 1 if value.ndim == 1 and path.endswith(("weight", "running_var")) else 0
                value.copy_((centre + size * families.uniform(path, value.numel())).float().reshape(value.shape))
    return network.to(dtype)


def image_batch(name):
    images = families.uniform(f"{name} images", IMAGES * 3 * IMAGE_SIZE * IMAGE_SIZE)
    return images.reshape(IMAGES, 3, IMAGE_SIZE, IMAGE_SIZE), torch.arange(IMAGES) % CLASSES


def adapted(model, name):
    """The model with adapters that follow from their names; B is not zero."""
    asked = IMAGE_CASES[name] if name in IMAGE_CASES else dict(CASES[name][1], task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(model, peft.LoraConfig(**asked)).eval()
    with torch.no_grad():
        for path, value in wrapped.named_parameters():
            if "lora_magnitude_vector" in path:  # other than PEFT begins with, which is the norm of the weight's rows
                factor = 1 + 0.2 * families.uniform(path, value.numel()).reshape(value.shape)
                value.copy_((value.double() * factor).float())
            elif "lora_" in path:
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
    in_files = lambda name: name.replace("_vector.default.weight", "_vector").replace(".default.", ".")
    return {in_files(name): value for name, value in model.named_parameters() if value.requires_grad}


def text_loss(model, tokens, targets):
    return families.loss_of(model(input_ids=tokens, use_cache=False).logits, targets)


def image_loss(model, images, targets):
    return torch.nn.functional.cross_entropy(model(images), targets)


def train(model, batches, steps, epsilon=EPSILON, loss_of=text_loss, learning_rate=LEARNING_RATE):
    """The loss of each step, and the gradients of the first."""
    parameters = adapters_of(model)
    decayed = [[value for value in parameters.values() if (value.ndim > 1) == is_matrix] for is_matrix in (True, False)]
    optimizer = torch.optim.AdamW([{"params": group, "weight_decay": decay}
                                   for group, decay in zip(decayed, (WEIGHT_DECAY, 0.0)) if group],
                                  lr=learning_rate, betas=BETAS, eps=epsilon)
    losses, gradients = [], {}
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, *batches(step))
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
