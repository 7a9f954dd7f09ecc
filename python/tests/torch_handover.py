"""Trained here, used there: 200 steps of a ResNet50 and of a nanoGPT, handed back to torch. Slow: some minutes.

    python python/tests/torch_handover.py [--steps N]

Each is trained by mantissa, given back by step.into(model), and evaluated by torch: to the same loss within 1e-4. Then
AdamW's moments go over to torch, which trains 10 steps beside mantissa, and from torch back. Last, gradients() under
torch's AdamW, clipping and schedule: 20 steps beside eager. Fails where any number is beyond 1e-4.
"""
import argparse
import copy
import importlib.util
import sys
import warnings

NEAR = 1e-4


def cases():
    """By name: module, loss(model, batch) of torch, loss of the trainer, a stream of batches, options."""
    import torch
    import torch.nn.functional as F
    import torchvision
    from torch_modules.by_hand import NanoGPT

    def images(random):
        y = torch.randint(0, 10, (16,), generator=random)
        x = torch.randn(16, 3, 32, 32, generator=random) + y.view(-1, 1, 1, 1) * 0.3
        return x, y

    def words(random):
        start = torch.randint(0, 65, (8, 1), generator=random)
        ids = (start + torch.arange(33) * 3) % 65
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    torch.manual_seed(0)
    yield ("ResNet50", torchvision.models.resnet50(num_classes=10, weights=None),
           lambda model, x, y: F.cross_entropy(model(x), y), F.cross_entropy, images, {})
    yield ("nanoGPT", NanoGPT(), lambda model, x, y: model(x, y)[1], lambda out: out[1], words, dict(inputs=2))


def relative(ours, theirs):
    return max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(ours, theirs))


def handed_over(model, loss_of, loss, batches, options, steps):
    """By what was looked at: how far mantissa and torch are apart."""
    import mantissa
    import mantissa.torch
    import torch
    random = torch.Generator().manual_seed(1)
    held_out = batches(torch.Generator().manual_seed(2))
    lr, found = 1e-3, {}
    adamw = dict(optimizer=mantissa.adamw(weight_decay=0.01, beta2=0.999, decay_matrices_only=False))
    step = mantissa.torch.trainer(model, loss, batches(random), **adamw, **options)
    losses = [step(*batches(random), lr=lr).loss for _ in range(steps)]
    step.into(model)
    with torch.no_grad():
        theirs = loss_of(model.eval(), *held_out).item()
    model.train()
    found[f"loss after {steps} steps ({losses[0]:.3f} -> {losses[-1]:.3f}), evaluated by both"] = relative(
        [step.evaluate(*held_out)], [theirs])

    def optimizer_of(module):
        return torch.optim.AdamW(module.parameters(), lr=lr, betas=(0.9, 0.999), weight_decay=0.01)

    def trained_by_torch(module, optimizer, some):
        curve = []
        for batch in some:
            optimizer.zero_grad()
            value = loss_of(module, *batch)
            value.backward()
            optimizer.step()
            curve.append(value.item())
        return curve

    some = [batches(random) for _ in range(10)]
    optimizer = optimizer_of(model)
    step.into_optimizer(optimizer)
    ours = [step(*batch, lr=lr).loss for batch in some]
    found["10 steps of torch with the moments of mantissa, beside mantissa"] = relative(
        ours, trained_by_torch(model, optimizer, some))
    step.load()
    step.from_optimizer(optimizer)
    some = [batches(random) for _ in range(10)]
    ours = [step(*batch, lr=lr).loss for batch in some]
    found["10 steps of mantissa with the moments of torch, beside torch"] = relative(
        ours, trained_by_torch(model, optimizer, some))

    twin = copy.deepcopy(model)
    grads = mantissa.torch.gradients(model, loss, batches(random), **options)
    some, curves = [batches(random) for _ in range(20)], []
    for module in (model, twin):
        optimizer, curve = optimizer_of(module), []
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        for batch in some:
            optimizer.zero_grad()
            if module is model:
                curve.append(grads(*batch))
            else:
                value = loss_of(module, *batch)
                value.backward()
                curve.append(value.item())
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        curves.append(curve)
    found["gradients() under torch's AdamW, clipping and schedule, 20 steps beside eager"] = relative(*curves)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    for package in ("mantissa", "torch", "torchvision"):
        if importlib.util.find_spec(package) is None:
            sys.exit(f"torch_handover.py: there is no Python package '{package}' here; install it")
    warnings.filterwarnings("ignore")
    far = 0
    for name, model, loss_of, loss, batches, options in cases():
        if given.only not in name:
            continue
        for what, distance in handed_over(model, loss_of, loss, batches, options, given.steps).items():
            print(f"{name:9} {distance:.1e}  {what}", flush=True)
            far += not distance <= NEAR
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
