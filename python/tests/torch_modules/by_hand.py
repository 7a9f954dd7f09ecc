"""Modules as people write them by hand."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalSelfAttention(nn.Module):
    """As in nanoGPT, with either spelling."""

    def __init__(self, C, H, T, flash):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.H, self.flash = H, flash
        if not flash:
            self.register_buffer("bias", torch.tril(torch.ones(T, T)).view(1, 1, T, T))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k, q, v = (t.view(B, T, self.H, C // self.H).transpose(1, 2) for t in (k, q, v))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, C, H, T, flash):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.attn = CausalSelfAttention(C, H, T, flash)
        self.c_fc, self.c_proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.dropout(self.c_proj(F.gelu(self.c_fc(self.ln_2(x)))))


class NanoGPT(nn.Module):
    """The shape of nanoGPT's model.py: tied weights, targets given to forward, (logits, loss) given back."""

    def __init__(self, V=65, C=64, H=4, T=32, L=2, flash=True):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(V, C), wpe=nn.Embedding(T, C), drop=nn.Dropout(0.0),
            h=nn.ModuleList([Block(C, H, T, flash) for _ in range(L)]), ln_f=nn.LayerNorm(C)))
        self.lm_head = nn.Linear(C, V, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 0.02)

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def _nanogpt(flash):
    def make():
        ids = torch.randint(0, 65, (2, 33))
        return NanoGPT(flash=flash), lambda out: out[1], (ids[:, :-1].contiguous(), ids[:, 1:].contiguous()), \
            dict(inputs=2)
    return make


class TrilGPT(nn.Module):
    """One head a module, masks by tril, linear layers without bias."""

    class Head(nn.Module):
        def __init__(self, C, D, T):
            super().__init__()
            self.key, self.query, self.value = (nn.Linear(C, D, bias=False) for _ in range(3))
            self.register_buffer("tril", torch.tril(torch.ones(T, T)))

        def forward(self, x):
            T = x.shape[1]
            k, q = self.key(x), self.query(x)
            wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
            wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
            return F.softmax(wei, dim=-1) @ self.value(x)

    def __init__(self, V=65, C=32, H=4, T=16):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, C), nn.Embedding(T, C)
        self.heads = nn.ModuleList([TrilGPT.Head(C, C // H, T) for _ in range(H)])
        self.proj, self.ln, self.out = nn.Linear(C, C), nn.LayerNorm(C), nn.Linear(C, V)
        self.ff = nn.Sequential(nn.Linear(C, 4 * C), nn.ReLU(), nn.Linear(4 * C, C))

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        x = x + self.proj(torch.cat([head(self.ln(x)) for head in self.heads], dim=-1))
        return self.out(x + self.ff(x))


def _language_loss(logits, y):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def tril_gpt():
    ids = torch.randint(0, 65, (2, 17))
    return TrilGPT(), _language_loss, (ids[:, :-1], ids[:, 1:])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 32)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), 2)
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        return self.out(self.encoder(self.emb(x)).mean(1))


def transformer_encoder():
    return Encoder(), F.cross_entropy, (torch.randint(0, 50, (3, 12)), torch.tensor([0, 1, 2]))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64, 0.0, batch_first=True), 2)

    def forward(self, x, memory):
        T, S = x.shape[1], memory.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(T)
        seen = torch.zeros(T, S).masked_fill(torch.triu(torch.ones(T, S), S - 2) > 0, float("-inf"))
        return self.out(self.decoder(self.emb(x), memory, tgt_mask=mask, memory_mask=seen))


def transformer_decoder():
    ids = torch.randint(0, 50, (2, 11))
    return Decoder(), _language_loss, (ids[:, :-1], torch.randn(2, 7, 32), ids[:, 1:])


def table_mlp():
    model = nn.Sequential(nn.Linear(13, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.0), nn.Linear(32, 1))
    return model, F.mse_loss, (torch.randn(16, 13), torch.randn(16, 1))


class MixerLayer(nn.Module):
    def __init__(self, S, C):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.tokens = nn.Sequential(nn.Linear(S, 32), nn.GELU(), nn.Linear(32, S))
        self.channels = nn.Sequential(nn.Linear(C, 64), nn.GELU(), nn.Linear(64, C))

    def forward(self, x):
        x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.n2(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 8, 8)
        self.layers = nn.Sequential(MixerLayer(16, 32), MixerLayer(16, 32))
        self.out = nn.Linear(32, 10)

    def forward(self, x):
        return self.out(self.layers(self.stem(x).flatten(2).transpose(1, 2)).mean(1))


def mlp_mixer():
    return Mixer(), F.cross_entropy, (torch.randn(2, 3, 32, 32), torch.tensor([1, 2]))


def _double_conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.d3 = _double_conv(3, 16), _double_conv(16, 32), _double_conv(32, 64)
        self.pool = nn.MaxPool2d(2)
        self.u2, self.u1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.c2, self.c1, self.out = _double_conv(64, 32), _double_conv(32, 16), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        y = self.d3(self.pool(b))
        y = self.c2(torch.cat([b, self.u2(y)], 1))
        return self.out(self.c1(torch.cat([a, self.u1(y)], 1)))


def unet():
    return UNet(), F.cross_entropy, (torch.randn(2, 3, 32, 32), torch.randint(0, 4, (2, 32, 32)))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.mu, self.logvar = nn.Linear(64, 32), nn.Linear(32, 8), nn.Linear(32, 8)
        self.fc3, self.fc4 = nn.Linear(8, 32), nn.Linear(32, 64)

    def forward(self, x):
        h = F.relu(self.fc1(x.view(-1, 64)))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def _elbo(out, x):
    made, mu, logvar = out
    return F.binary_cross_entropy(made, x.view(-1, 64), reduction="sum") \
        - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


def vae():
    x = torch.rand(4, 1, 8, 8)
    return VAE(), _elbo, (x, x.clone())


def dcgan():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 32, 4, 2, 1, bias=False),
        nn.BatchNorm2d(32), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(32, 1, 8, 1, 0, bias=False), nn.Flatten())
    return model, lambda out, y: F.binary_cross_entropy_with_logits(out.view(-1), y), (
        torch.randn(4, 3, 32, 32), torch.tensor([1.0, 0, 1, 0]))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, a, p, n):
        return self.net(a), self.net(p), self.net(n)


def siamese():
    return (Siamese(), lambda out: F.triplet_margin_loss(*out, margin=1.0),
            (torch.randn(6, 20), torch.randn(6, 20), torch.randn(6, 20)), dict(inputs=3))


class SimCLR(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, a, b):
        z = F.normalize(self.net(torch.cat([a, b])), dim=1)
        similar = z @ z.t() / 0.5
        n = z.shape[0]
        similar = similar.masked_fill(torch.eye(n, dtype=torch.bool), float("-inf"))
        return F.cross_entropy(similar, (torch.arange(n) + n // 2) % n)


def simclr():
    return SimCLR(), lambda out: out, (torch.randn(4, 20), torch.randn(4, 20)), dict(inputs=2)


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(1, 16, 1)
        self.dilated = nn.ModuleList([nn.Conv1d(16, 32, 2, dilation=2 ** i) for i in range(3)])
        self.res = nn.ModuleList([nn.Conv1d(16, 16, 1) for _ in range(3)])
        self.out = nn.Conv1d(16, 32, 1)

    def forward(self, x):
        x, skips = self.inp(x), 0
        for conv, res in zip(self.dilated, self.res):
            a, b = conv(F.pad(x, (conv.dilation[0], 0))).chunk(2, 1)
            y = res(torch.tanh(a) * torch.sigmoid(b))
            x, skips = x + y, skips + y
        return self.out(F.relu(skips))


def wavenet():
    return WaveNet(), F.cross_entropy, (torch.randn(2, 1, 24), torch.randint(0, 32, (2, 24)))


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.c1, self.c2 = norm(nn.Conv1d(4, 16, 3, padding=2)), norm(nn.Conv1d(16, 16, 3, padding=4, dilation=2))
        self.down, self.out = nn.Conv1d(4, 16, 1), nn.Linear(16, 5)

    def forward(self, x):
        y = F.relu(self.c1(x)[:, :, :-2])
        y = F.relu(self.c2(y)[:, :, :-4])
        return self.out((y + self.down(x))[:, :, -1])


def tcn():
    return TCN(), F.cross_entropy, (torch.randn(3, 4, 20), torch.tensor([0, 1, 2]))


class LSTMLanguage(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lstm, self.out = nn.Embedding(50, 24), nn.LSTM(24, 32, 2, batch_first=True), nn.Linear(32, 50)

    def forward(self, x):
        return self.out(self.lstm(self.emb(x))[0])


def lstm_language():
    ids = torch.randint(0, 50, (3, 13))
    return LSTMLanguage(), _language_loss, (ids[:, :-1], ids[:, 1:])


class GRUClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(6, 24, batch_first=True), nn.Linear(24, 4)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])


def gru_classifier():
    return GRUClassifier(), F.cross_entropy, (torch.randn(3, 10, 6), torch.tensor([0, 1, 2]))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 16, padding_idx=0)
        self.lstm, self.out = nn.LSTM(16, 16, batch_first=True, bidirectional=True), nn.Linear(32, 5)

    def forward(self, x):
        return self.out(self.lstm(self.emb(x))[0])


def tagger():
    tags = torch.randint(0, 5, (3, 9))
    tags[:, -2:] = -100
    return Tagger(), _language_loss, (torch.randint(0, 50, (3, 9)), tags)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.enc = nn.Embedding(40, 16), nn.GRU(16, 16, batch_first=True)
        self.cell, self.out = nn.GRUCell(32, 16), nn.Linear(16, 40)
        self.wa, self.ua, self.va = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x, y):
        memory, h = self.enc(self.emb(x))
        h, outputs = h[0], []
        for t in range(y.shape[1]):
            score = self.va(torch.tanh(self.wa(h).unsqueeze(1) + self.ua(memory)))
            context = (torch.softmax(score, 1) * memory).sum(1)
            h = self.cell(torch.cat([self.emb(y[:, t]), context], 1), h)
            outputs.append(self.out(h))
        return torch.stack(outputs, 1)


def seq2seq():
    y = torch.randint(0, 40, (2, 7))
    return Seq2Seq(), _language_loss, (torch.randint(0, 40, (2, 8)), y[:, :-1], y[:, 1:])


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))
        self.bags = nn.ModuleList([nn.EmbeddingBag(30, 8, mode="sum") for _ in range(3)])
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, sparse):
        d = self.bottom(dense)
        parts = torch.stack([d] + [bag(sparse[:, i]) for i, bag in enumerate(self.bags)], 1)
        pairs = torch.bmm(parts, parts.transpose(1, 2))
        i, j = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([d, pairs[:, i, j]], 1)).squeeze(1)


def dlrm():
    return DLRM(), F.binary_cross_entropy_with_logits, (
        torch.randn(6, 5), torch.randint(0, 30, (6, 3, 4)), (torch.rand(6) > 0.5).float())


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(40, 16), nn.Embedding(60, 16)
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, user, item):
        scores = self.a(self.user(user)) @ self.b(self.item(item)).T
        return F.cross_entropy(scores, torch.arange(scores.shape[0]))


def two_towers():
    return TwoTowers(), lambda out: out, (torch.randint(0, 40, (8,)), torch.randint(0, 60, (8,))), dict(inputs=2)


class FactorisationMachine(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.factors = nn.Embedding(50, 1), nn.Embedding(50, 8)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        v = self.factors(x)
        pairs = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1)
        return self.linear(x).sum(1).squeeze(1) + pairs + self.bias


def factorisation_machine():
    return FactorisationMachine(), F.mse_loss, (torch.randint(0, 50, (6, 5)), torch.randn(6))


class GraphConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(6, 16), nn.Linear(16, 3)

    def propagate(self, x, edges):
        source, target = edges[0], edges[1]
        degree = torch.zeros(x.shape[0]).index_add(0, target, torch.ones(target.shape[0])).clamp(min=1)
        return torch.zeros_like(x).index_add(0, target, x[source]) / degree.unsqueeze(1)

    def forward(self, x, edges):
        x = F.relu(self.propagate(self.w1(x), edges))
        return self.propagate(self.w2(x), edges)


def graph_convolution():
    return GraphConvolution(), F.cross_entropy, (
        torch.randn(10, 6), torch.randint(0, 10, (2, 30)), torch.randint(0, 3, (10,)))


class GraphAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.a, self.out = nn.Linear(6, 16), nn.Linear(32, 1), nn.Linear(16, 3)

    def forward(self, x, edges):
        h, (source, target) = self.w(x), edges
        e = F.leaky_relu(self.a(torch.cat([h[source], h[target]], 1)).squeeze(1), 0.2)
        weight = torch.exp(e - e.max().detach())
        total = torch.zeros(x.shape[0]).scatter_add(0, target, weight)
        alpha = weight / (total[target] + 1e-9)
        y = torch.zeros_like(h).scatter_add(0, target.unsqueeze(1).expand(-1, 16), h[source] * alpha.unsqueeze(1))
        return self.out(F.elu(y))


def graph_attention():
    return GraphAttention(), F.cross_entropy, (
        torch.randn(10, 6), torch.randint(0, 10, (2, 30)), torch.randint(0, 3, (10,)))


class NeRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3 + 3 * 8, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, points, deltas):
        freq = 2.0 ** torch.arange(4)
        angles = points.unsqueeze(-1) * freq
        code = torch.cat([points, angles.sin().flatten(-2), angles.cos().flatten(-2)], -1)
        raw = self.net(code)
        rgb, sigma = torch.sigmoid(raw[..., :3]), F.relu(raw[..., 3])
        alpha = 1 - torch.exp(-sigma * deltas)
        through = torch.cumprod(torch.cat([torch.ones(alpha.shape[0], 1), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return ((alpha * through).unsqueeze(-1) * rgb).sum(1)


def nerf():
    return NeRF(), F.mse_loss, (torch.randn(4, 8, 3), torch.rand(4, 8), torch.rand(4, 3))


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.c(torch.sin(30 * self.b(torch.sin(30 * self.a(x)) / 30)))


def siren():
    return Siren(), F.mse_loss, (torch.rand(16, 2) * 2 - 1, torch.randn(16, 1))


def dqn():
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))

    def loss(q, action, target):
        return F.smooth_l1_loss(q.gather(1, action.unsqueeze(1)).squeeze(1), target)
    return model, loss, (torch.randn(8, 4), torch.randint(0, 3, (8,)), torch.randn(8)), dict(inputs=1)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = nn.Sequential(nn.Linear(4, 32), nn.Tanh()), nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


def ppo():
    def loss(out, action, old, advantage, target):
        logits, value = out
        logp = F.log_softmax(logits, -1)
        ratio = torch.exp(logp.gather(1, action.unsqueeze(1)).squeeze(1) - old)
        policy = -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage).mean()
        entropy = -(logp.exp() * logp).sum(-1).mean()
        return policy + 0.5 * F.mse_loss(value, target) - 0.01 * entropy
    return ActorCritic(), loss, (torch.randn(8, 4), torch.randint(0, 3, (8,)), torch.randn(8) * 0.1 - 1,
                                 torch.randn(8), torch.randn(8)), dict(inputs=1)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
                                      for _ in range(4)])
        self.out = nn.Linear(16, 5)

    def forward(self, x):
        probabilities = self.gate(x).softmax(-1)
        weight, chosen = probabilities.topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        mask = F.one_hot(chosen, 4).to(x.dtype)
        gates = (weight.unsqueeze(-1) * mask).sum(1)
        y = sum(gates[:, i:i + 1] * expert(x) for i, expert in enumerate(self.experts))
        load = 4 * (mask.sum(1).mean(0) * probabilities.mean(0)).sum()
        return self.out(x + y), load


def mixture_of_experts():
    return MoE(), lambda out, y: F.cross_entropy(out[0], y) + 0.01 * out[1], (
        torch.randn(12, 16), torch.randint(0, 5, (12,)))


class MaskedConv2d(nn.Conv2d):
    def __init__(self, kind, *args, **kwargs):
        super().__init__(*args, **kwargs)
        mask = torch.ones_like(self.weight)
        _, _, h, w = mask.shape
        mask[:, :, h // 2, w // 2 + (kind == "B"):] = 0
        mask[:, :, h // 2 + 1:] = 0
        self.register_buffer("mask", mask)

    def forward(self, x):
        return F.conv2d(x, self.weight * self.mask, self.bias, padding=self.padding)


def pixelcnn():
    model = nn.Sequential(MaskedConv2d("A", 1, 16, 7, padding=3), nn.ReLU(), MaskedConv2d("B", 16, 16, 3, padding=1),
                          nn.ReLU(), nn.Conv2d(16, 8, 1))
    return model, F.cross_entropy, (torch.rand(2, 1, 12, 12), torch.randint(0, 8, (2, 12, 12)))


class CRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.emit, self.trans = nn.Linear(8, 5), nn.Parameter(torch.randn(5, 5))

    def forward(self, x, tags):
        e = self.emit(x)
        alpha = e[:, 0]
        for t in range(1, x.shape[1]):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.trans + e[:, t].unsqueeze(1), 1)
        gold = e.gather(2, tags.unsqueeze(2)).squeeze(2).sum(1) + self.trans[tags[:, :-1], tags[:, 1:]].sum(1)
        return (torch.logsumexp(alpha, 1) - gold).mean()


def crf():
    return CRF(), lambda out: out, (torch.randn(3, 7, 8), torch.randint(0, 5, (3, 7))), dict(inputs=2)


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.net, self.flip = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4)), flip

    def forward(self, x):
        a, b = x.chunk(2, -1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, -1)
        s = torch.tanh(s)
        y = torch.cat([a, b * s.exp() + t], -1)
        return y, s.sum(-1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Coupling(i % 2 == 1) for i in range(4)])

    def forward(self, x):
        total = 0
        for layer in self.layers:
            x, d = layer(x)
            total = total + d
        return -(-0.5 * (x ** 2).sum(-1) + total).mean()


def flow():
    return Flow(), lambda out: out, (torch.randn(8, 4),), dict(inputs=1)


def cases():
    made = {"nanogpt flash": _nanogpt(True), "nanogpt masks": _nanogpt(False)}
    for make in (tril_gpt, transformer_encoder, transformer_decoder, table_mlp, mlp_mixer, unet, vae, dcgan, siamese,
                 simclr, wavenet, tcn, lstm_language, gru_classifier, tagger, seq2seq, dlrm, two_towers,
                 factorisation_machine, graph_convolution, graph_attention, nerf, siren, dqn, ppo, mixture_of_experts,
                 pixelcnn, crf, flow):
        made[make.__name__] = make
    return made
