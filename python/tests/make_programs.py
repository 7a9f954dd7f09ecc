"""Makes programs/*.json: captured modules with loss, gradients and running statistics as PyTorch has them in FP64.

Needs torch. The rows are tested on these files, which need none: test_programs.py.
"""
import base64
import copy
import json
import pathlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from mantissa.torch import capture, check

FOLDER = pathlib.Path(__file__).parent / "programs"


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 6, (3, 2), stride=(2, 1), padding=(1, 0), groups=3, bias=False)
        self.norm = nn.BatchNorm2d(6, momentum=0.3, eps=1e-2)
        self.b = nn.ConvTranspose2d(6, 4, (3, 2), stride=2, padding=1, groups=2)
        self.c = nn.Conv2d(4, 4, 3, dilation=(2, 1), padding=2)
        self.group = nn.GroupNorm(2, 4)
        self.line = nn.Conv1d(4, 3, 3, padding=1, stride=2)
        self.depth = nn.Conv3d(2, 2, (2, 3, 2), padding=(1, 1, 0), stride=(1, 2, 1))
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        y = F.max_pool2d(F.relu(self.norm(self.a(x))), 3, 2, 1, ceil_mode=True)
        y = self.group(self.c(F.elu(self.b(y))))
        y = F.avg_pool2d(y, (2, 3), 1, 1, count_include_pad=False)
        y = F.interpolate(y, size=(7, 8), mode="bilinear", align_corners=False)
        y = F.pad(y, (1, 2, 0, 1), mode="reflect")
        y = F.interpolate(y, size=(9, 6), mode="bilinear", align_corners=True)
        line = self.line(y.flatten(2)).mean()
        depth = self.depth(y.unflatten(1, (2, 2))).pow(2).mean()
        y = F.avg_pool2d(F.pixel_shuffle(F.pad(y, (0, 0, 1, 0), value=0.5), 2).repeat(1, 4, 1, 1), 2, 2, 1)
        return self.out(F.adaptive_avg_pool2d(y, (2, 2)).flatten(2).transpose(1, 2).mean(1)) + (line - depth) * torch.tensor([1.0, -2, 0.5])


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(17, 8, padding_idx=0), nn.Parameter(torch.randn(6, 8))
        self.norm, self.qkv, self.proj = nn.LayerNorm(8, eps=1e-2), nn.Linear(8, 24), nn.Linear(8, 8, bias=False)
        self.gain, self.up = nn.Parameter(torch.rand(8)), nn.Linear(8, 16)
        self.register_buffer("tril", torch.tril(torch.ones(6, 6)))
        self.register_buffer("window", torch.tril(torch.ones(6, 6)) - torch.tril(torch.ones(6, 6), -3))
        angles = torch.arange(6)[:, None] / 10.0 ** torch.arange(4)[None, :]
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def forward(self, ids):
        x = self.emb(ids) + self.pos
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        att = (q @ k.transpose(-2, -1)) * 0.3
        att = F.softmax(att.masked_fill(self.tril == 0, float("-inf")), -1)
        x = x + self.proj(att @ v)
        q, k, v = (t.view(3, 6, 2, 4).transpose(1, 2) for t in self.qkv(x).split(8, 2))
        x = x + F.scaled_dot_product_attention(q, k[:, :, :4], v[:, :, :4], is_causal=True,
                                               scale=0.7).transpose(1, 2).reshape(3, 6, 8)
        x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=self.window > 0).transpose(1, 2).reshape(3, 6, 8)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * self.gain
        turned = torch.cat([-x[..., 4:], x[..., :4]], -1)
        x = x * self.cos + turned * self.sin
        with torch.no_grad():
            scale = self.up(x).mean()
        a, b = self.up(x).chunk(2, -1)
        x = x + F.silu(a) * F.gelu(b) * scale + F.gelu(self.up(x), approximate="tanh")[..., ::2].detach()
        return x @ self.emb.weight.t()


class Times(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)
        self.gru, self.cell = nn.GRU(6, 4), nn.GRUCell(4, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        z, last = self.gru(y.transpose(0, 1))
        return self.out(self.cell(z[-1], last[0])) + h.sum(0) - c.mean(0)


class Elements(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.rand(5) + 0.5)

    def forward(self, ids, x):
        edge = torch.tensor([-3.0, -1, 0, 1, 3]) * (1 + self.w - self.w.detach())
        y = ids / 2 + ids * self.w + (ids > 3) * 2 * self.v + (ids // 3) * self.w + (ids % 4) * self.v
        y = torch.add(y, self.w, alpha=0.5) - torch.rsub(self.v, 2.0, alpha=3) + self.w.clamp(-0.5, 0.5)
        y = y + F.hardswish(edge) + F.hardsigmoid(edge * 0.9) + edge.clamp(-1, 3) * 0.1 + F.relu6(edge * 2)
        y = y + torch.where(ids > 2, self.w, self.v) + self.w.masked_fill(ids == 1, 7.0) * self.v.pow(1.5)
        y = y + torch.maximum(self.w, self.w.detach()) + self.v.pow(3) / (self.w.abs() + 1) + self.w.norm(dim=0)
        y = y + F.softmax(self.w * x, 0) + F.log_softmax(self.w, 0) * 0.1 + self.w.cumsum(0) + self.w.var(1, keepdim=True)
        y = y + self.w.max(0)[0] + (self.w * 0 + self.v).amax(0) + torch.logsumexp(self.w, 1, keepdim=True)
        y = y + F.softplus(self.w, beta=2) + F.leaky_relu(self.w, 0.3) + torch.tanh(self.w) * torch.erf(self.v)
        return y + self.w.mean((0, 1)) + self.v.prod() + torch.round(self.w) + F.normalize(self.w, dim=1)


class Movement(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4, 5))

    def forward(self, ids, x):
        w = self.w * x
        y = w.permute(2, 0, 1).reshape(10, 6).sum(1).mean() + w.roll((1, -2), (1, 2)).mul(x).sum()
        y = y + torch.stack([w[0], w[1] * 2], 1).mul(torch.arange(40.0).view(4, 2, 5)).sum()
        z = w.clone()
        z[:, 1:3] = w[:, 2:4] * 3
        z[1] = w[0].detach() * w[2]
        y = y + (z * x).sum() + (w[ids[0] % 3, ids[1]] * torch.arange(20.0).view(4, 5)[:, :]).sum()
        y = y + (w.gather(2, ids[None, :, :].expand(3, 2, 4)) * torch.arange(8.0).view(2, 4)).sum()
        y = y + (torch.zeros(3, 5).scatter_add(1, ids[:, :3].t(), w[:, :2, 0]) * x[:, 0]).sum()
        y = y + (w.unfold(2, 3, 2) * torch.arange(6.0).view(2, 3)).sum() + (w.flip(1) * x).sum()
        y = y + (w.repeat(1, 2, 1) * torch.arange(8.0)[:, None]).sum() + (w.tril(1) * x).sum()
        a, b, c = w.transpose(0, 1).unbind(1)
        y = y + (a * b).sum() - c.repeat_interleave(2, 0)[3].sum() + torch.einsum("abc,abd->cad", w, w)[:, 1, 2].sum()
        y = y + (w.diagonal(0, 0, 1) * torch.arange(3.0)).sum() + (F.pad(w, (1, 0, 0, 2), value=2.0)[:, 4] * 3).sum()
        y = y + (w.permute(1, 2, 0).index_select(2, ids[0, :2] % 3) * torch.arange(2.0)).sum()
        return y + w.movedim(0, -1)[2, 3].pow(2).sum() + w.select(2, -1).sum() + w.narrow(1, 1, 2).mean()


class Losses(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 4)

    def forward(self, x, y, z):
        o = self.out(x)
        weight, p = torch.tensor([1.0, 2.0, 0.5, 3.0]), torch.softmax(o.detach().flip(0), 1)
        t = (z > 0).float()
        return (F.cross_entropy(o, y, weight=weight, ignore_index=2) + F.cross_entropy(o, y, label_smoothing=0.2)
                + F.cross_entropy(o, p) + F.nll_loss(F.log_softmax(o, 1), y, weight=weight, reduction="sum")
                + F.mse_loss(o, z) + F.l1_loss(o, z) + F.smooth_l1_loss(o, z, beta=0.3) + F.huber_loss(o, z, delta=0.4)
                + F.binary_cross_entropy_with_logits(o, t, pos_weight=weight)
                + F.binary_cross_entropy(torch.sigmoid(o), t) + F.kl_div(F.log_softmax(o, 1), p, reduction="batchmean")
                + F.triplet_margin_loss(o, z, z.flip(0)) + F.cosine_similarity(o, z).mean()
                + F.cross_entropy(o.t()[None], y[None], reduction="sum") + F.pairwise_distance(o, z).mean())


def _number(model, *values):
    return model(*values)


def fixtures():
    ids = torch.tensor([[1, 2, 0, 3], [0, 3, 2, 1]])
    return {
        "images": (Images(), F.cross_entropy, [torch.randn(2, 3, 9, 8), torch.tensor([0, 2])], 1),
        "words": (Words(), lambda o, y: F.cross_entropy(o.view(-1, 17), y.view(-1), ignore_index=-1),
                  [torch.tensor([[1, 2, 3, 4, 0, 0], [5, 0, 7, 8, 9, 0], [9, 8, 7, 16, 3, 1]]),
                   torch.tensor([[2, 3, 4, -1, -1, -1], [6, 7, 8, 9, -1, -1], [8, 7, 16, 3, 1, 2]])], 1),
        "times": (Times(), F.cross_entropy, [torch.randn(2, 5, 4), torch.tensor([1, 2])], 1),
        "elements": (Elements(), lambda o: (o * torch.arange(20.0).view(4, 5).cos()).sum(),
                     [torch.randint(0, 9, (4, 5)), torch.randn(4, 5)], 2),
        "movement": (Movement(), lambda o: o, [ids, torch.randn(3, 4, 5)], 2),
        "losses": (Losses(), lambda o: o, [torch.randn(6, 5), torch.tensor([0, 1, 2, 3, 1, 0]), torch.randn(6, 4)], 3)}


def _packed(array):
    array = np.ascontiguousarray(array)
    return {"dtype": str(array.dtype), "shape": list(array.shape), "bytes": base64.b64encode(array.tobytes()).decode()}


def in_double(model, loss, values, split):
    """Loss, gradients and buffers after one forward pass, in FP64."""
    double = copy.deepcopy(model).double()
    torch.set_default_dtype(torch.float64)
    try:
        with check.Still(in_double=True):
            result = loss(double(*[v.double() if v.is_floating_point() else v for v in values[:split]]),
                          *[v.double() if v.is_floating_point() else v for v in values[split:]])
        result.backward()
    finally:
        torch.set_default_dtype(torch.float32)
    return result.item(), double


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, (model, loss, values, split) in fixtures().items():
        captured = capture.capture(model, loss, values, split, None, training=True, name=name)
        if captured.refusals:
            raise SystemExit(f"{name}: {[refusal.what for refusal in captured.refusals]}")
        program = captured.program
        for node in program.nodes:  # places of another machine's files
            node.line = node.code = ""
        number, double = in_double(model, loss, values, split)
        weights = {weight.name: _packed(model.state_dict()[weight.name].float().numpy()) for weight in program.weights}
        gradients = {key: _packed(p.grad.numpy() if p.grad is not None else np.zeros(tuple(p.shape)))
                     for key, p in double.named_parameters()}
        after = {weight.name: _packed(double.state_dict()[weight.name].numpy()) for weight in program.weights
                 if weight.running}
        (FOLDER / f"{name}.json").write_text(json.dumps({
            "program": json.loads(program.to_json()), "inputs": [_packed(v.numpy()) for v in values],
            "weights": weights, "loss": number, "gradients": gradients, "running": after}) + "\n")
        print(name, len(program.nodes), "operations")


if __name__ == "__main__":
    torch.manual_seed(3)
    main()
