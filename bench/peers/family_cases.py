"""Small models of every family with awkward sizes, as transformers makes them: what families_fixture.py and
check_families.py have in common. A new family is a line or two of CASES."""
import math

import numpy
import torch
import transformers

VOCABULARY, CONTEXT, WINDOW = 97, 83, 7
SIZES = dict(num_hidden_layers=2, vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, bos_token_id=None,
             eos_token_id=None, pad_token_id=None, attention_dropout=0.0)
# Three heads of queries to one of keys, F no multiple of anything; with and without a head size of its own.
GROUPED = dict(SIZES, hidden_size=30, intermediate_size=44, num_attention_heads=3, num_key_value_heads=1)
OWN_HEADS = dict(GROUPED, head_dim=14)
PAIRS = dict(SIZES, hidden_size=40, intermediate_size=50, num_attention_heads=4, num_key_value_heads=2)
WHOLE = dict(SIZES, hidden_size=36, intermediate_size=52, num_attention_heads=3)  # heads of 12
SLIDING, FULL = "sliding_attention", "full_attention"
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 24}
LONGROPE = {"rope_type": "longrope", "rope_theta": 900.0, "short_factor": [1.0, 1.25, 1.5, 2.0, 3.5],
            "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0]}

# Class of the configuration, and its members.
CASES = {
    "llama_biases": ("Llama", dict(OWN_HEADS, attention_bias=True, mlp_bias=True, rope_parameters=YARN)),
    "llama_gelu": ("Llama", dict(PAIRS, hidden_act="gelu", rope_parameters={
        "rope_type": "dynamic", "rope_theta": 300.0, "factor": 2.0})),
    "qwen2": ("Qwen2", dict(PAIRS, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)),
    "qwen3": ("Qwen3", dict(OWN_HEADS, tie_word_embeddings=True)),
    "gpt_neox": ("GPTNeoX", dict(WHOLE, num_attention_heads=3, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.34})),
    "gpt_neox_sequence": ("GPTNeoX", dict(WHOLE, hidden_size=48, use_parallel_residual=False, attention_bias=False,
                                          tie_word_embeddings=True)),
    "opt": ("OPT", dict({k: v for k, v in WHOLE.items() if k != "intermediate_size"}, ffn_dim=52, dropout=0.0,
                        word_embed_proj_dim=36)),
    "gemma": ("Gemma", dict(OWN_HEADS)),
    "gemma2": ("Gemma2", dict(OWN_HEADS, num_hidden_layers=3, sliding_window=WINDOW, query_pre_attn_scalar=11,
                              attn_logit_softcapping=2.0, final_logit_softcapping=0.2)),
    "gemma3_text": ("Gemma3Text", dict(OWN_HEADS, num_hidden_layers=3, sliding_window=WINDOW,
                                       query_pre_attn_scalar=20, layer_types=[SLIDING, SLIDING, FULL],
                                       rope_parameters={
                                           FULL: {"rope_type": "linear", "rope_theta": 900.0, "factor": 4.0},
                                           SLIDING: {"rope_type": "default", "rope_theta": 100.0}})),
    "phi": ("Phi", dict(WHOLE, resid_pdrop=0.0, embd_pdrop=0.0, qk_layernorm=True)),
    "phi3": ("Phi3", dict(PAIRS, sliding_window=WINDOW, resid_pdrop=0.0, embd_pdrop=0.0, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.6})),
    "phi3_longrope": ("Phi3", dict(PAIRS, max_position_embeddings=2 * CONTEXT,
                                   original_max_position_embeddings=CONTEXT, rope_parameters=LONGROPE)),
    "smollm3": ("SmolLM3", dict(PAIRS, num_hidden_layers=3, no_rope_layer_interval=2, use_sliding_window=True,
                                sliding_window=WINDOW)),
    "granite": ("Granite", dict(PAIRS, embedding_multiplier=3.0, residual_multiplier=0.7, logits_scaling=2.0,
                                attention_multiplier=0.2, attention_bias=True)),
    "olmo2": ("Olmo2", dict(PAIRS, tie_word_embeddings=False)),
    "starcoder2": ("Starcoder2", dict(GROUPED, sliding_window=WINDOW)),
}


def make_config(kind, members):
    return getattr(transformers, kind + "Config")(**members)


def make_model(config, dtype=torch.float32):
    # Eager attention alone caps scores; no other rounds a softmax to FP32 in FP64.
    attention = "eager" if getattr(config, "attn_logit_softcapping", None) else "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    draw_parameters(model)
    return model.to(dtype)


def uniform(name, count):
    """Numbers in [-1, 1) that follow from a name: splitmix64 from its FNV-1a hash on. The tests draw the same."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(state) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return torch.from_numpy((z >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-23 - 1)


def draw_parameters(model):
    """Norms and biases are drawn too, so that no term of a gradient is multiplied by one, or is zero, by accident.
    Layers outweigh the embedding: else the next token is the last one again."""
    one_plus = model.config.model_type.startswith("gemma")
    with torch.no_grad():
        for name, value in model.named_parameters():
            stored = published_name(model, name)
            is_weight_of_norm = "norm" in stored and stored.endswith("weight")
            small = "norm" in stored or stored.endswith("bias")
            # Gemma multiplies its embedding.
            size = 0.25 if small else 0.375 if "layers." in stored else 0.025 if one_plus else 0.125
            centre = 1.0 if is_weight_of_norm and not one_plus else 0.0
            drawn = (centre + size * uniform(stored, value.numel())).float()
            value.copy_(drawn.reshape(value.shape))


def published_name(model, name):
    """transformers 5 calls the head of a GPT-NeoX otherwise than its files do."""
    if model.config.model_type == "gpt_neox" and name.startswith("lm_head."):
        return name.replace("lm_head.", "embed_out.")
    return name


class Exactly:
    """While it lasts, an FP64 model computes in FP64 what its code would round to FP32 (norms, softmax), but for the
    cosines and sines of positions, which are FP32 as the models were trained."""
    def __init__(self, model):
        self.model, self.inside, self.hooks = model, 0, []

    def __enter__(self):
        self.to, self.float, self.softmax = torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax

        def to(tensor, *words, **named):
            wanted = named.get("dtype", words[0] if words else None)
            if wanted is torch.float32 and tensor.dtype is torch.float64 and not self.inside:
                return tensor
            return self.to(tensor, *words, **named)

        def softmax(x, dim=None, dtype=None, **named):
            return self.softmax(x, dim=dim, dtype=None if x.dtype is torch.float64 else dtype, **named)

        torch.Tensor.to, torch.nn.functional.softmax = to, softmax
        torch.Tensor.float = lambda tensor: to(tensor, torch.float32)
        for module in self.model.modules():
            if "Rotary" in type(module).__name__:
                self.hooks += [module.register_forward_pre_hook(lambda *_: self.enter(1)),
                               module.register_forward_hook(lambda *_: self.enter(-1))]
        return self

    def enter(self, change):
        self.inside += change

    def __exit__(self, *_):
        torch.Tensor.to, torch.Tensor.float = self.to, self.float
        torch.nn.functional.softmax = self.softmax
        for hook in self.hooks:
            hook.remove()


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def sample(name, values, samples=16):
    """Some elements, the largest magnitude, and the sum of all times numbers in [-1, 1): what is stored of a tensor."""
    flat = values.detach().double().flatten()
    count = flat.numel()
    places = [i * count // samples for i in range(samples)]
    probe = uniform("probe " + name, count)
    return torch.cat([flat[places], flat.abs().max()[None], (flat * probe).sum()[None]])


def distance(left, right, count, floor):
    """Of two samples, over the largest magnitude (at least a floor): elements, and the sum for its size."""
    size = max(abs(right[-2].item()), floor)
    return max((left[:-1] - right[:-1]).abs().max().item() / size,
               abs(left[-1] - right[-1]).item() / size / math.sqrt(count))
