"""GPT-2 in plain PyTorch, written from the publication and sharing nothing with mantissa: pre-norm blocks, learned
positions, tanh GELU, layer norm with eps 1e-5, causal attention scaled by 1/sqrt(D), output tied to the token embedding.

A model is a dictionary of parameters under the names of the Hugging Face checkpoints; linear weights are [out, in]
here, where those files hold [in, out]. Biases that are not there are none. No dropout. Other scripts import it; alone it does nothing.
"""
import math

import torch
import torch.nn.functional as F

ADAMW_EPSILON = 1e-8


def parameter_shapes(layers, channels, vocabulary, context):
    """Name -> shape of every parameter, in the order in which the fixture draws them."""
    c = channels
    shapes = {"wte.weight": (vocabulary, c), "wpe.weight": (context, c)}
    for layer in range(layers):
        block = f"h.{layer}."
        for name, rows, columns in (("attn.c_attn", 3 * c, c), ("attn.c_proj", c, c),
                                    ("mlp.c_fc", 4 * c, c), ("mlp.c_proj", c, 4 * c)):
            shapes[f"{block}{name}.weight"] = (rows, columns)
            shapes[f"{block}{name}.bias"] = (rows,)
        for name in ("ln_1", "ln_2"):
            shapes[f"{block}{name}.weight"] = (c,)
            shapes[f"{block}{name}.bias"] = (c,)
    shapes["ln_f.weight"] = (c,)
    shapes["ln_f.bias"] = (c,)
    return shapes


def plain_attention(q, k, v):
    """q, k, v [B, H, T, D]; the T x T scores are stored."""
    sequence, size = q.shape[2:]
    future = torch.ones(sequence, sequence, dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(2, 3) / math.sqrt(size)).masked_fill(future, -math.inf)
    return scores.softmax(dim=3) @ v


def sdpa(q, k, v):
    """The same by PyTorch's own kernel."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def gelu_tanh(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def fused_gelu_tanh(x):
    """The same by PyTorch's own kernel."""
    return F.gelu(x, approximate="tanh")


def norm(p, name, x):
    return F.layer_norm(x, (x.shape[-1],), p[f"{name}.weight"], p.get(f"{name}.bias"), eps=1e-5)


def linear(p, name, x):
    return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))


def attention(p, block, x, heads, attend):
    batch, sequence, channels = x.shape
    q, k, v = (part.view(batch, sequence, heads, channels // heads).transpose(1, 2)
               for part in linear(p, f"{block}attn.c_attn", x).split(channels, dim=2))
    mixed = attend(q, k, v).transpose(1, 2).reshape(batch, sequence, channels)
    return linear(p, f"{block}attn.c_proj", mixed)


def logits_of(p, tokens, heads, attend=plain_attention, gelu=gelu_tanh):
    """tokens [B, T] -> logits [B, T, V]."""
    x = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    layers = sum(name.endswith("ln_1.weight") for name in p)
    for layer in range(layers):
        block = f"h.{layer}."
        x = x + attention(p, block, norm(p, f"{block}ln_1", x), heads, attend)
        x = x + linear(p, f"{block}mlp.c_proj", gelu(linear(p, f"{block}mlp.c_fc", norm(p, f"{block}ln_2", x))))
    return F.linear(norm(p, "ln_f", x), p["wte.weight"])


def loss_of(logits, targets):
    """Mean cross-entropy of logits [B, T, V] and targets [B, T]."""
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def adamw(p, *, learning_rate, betas, weight_decay, **more):
    """PyTorch's AdamW with decay on matrices only, as mantissa's."""
    matrices = [value for value in p.values() if value.dim() >= 2]
    vectors = [value for value in p.values() if value.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": weight_decay},
                              {"params": vectors, "weight_decay": 0.0}],
                             lr=learning_rate, betas=betas, eps=ADAMW_EPSILON, **more)
