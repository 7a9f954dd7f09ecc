"""Trained here, used there: 200 steps of a ResNet50 and of a nanoGPT, handed back to torch. Slow: some minutes.

    python python/tests/torch_handover.py [--steps N]

Each is trained by mantissa, given back by step.into(model), and evaluated by torch: to the same loss within 1e-4. Then
AdamW's moments go over to torch, which trains 10 steps beside mantissa, and from torch back. Last, gradients() under
torch's AdamW, clipping and schedule: 20 steps beside eager. Fails where a curve is further from torch's than 1e-4 and
than 4 times what torch in FP32 is from itself in FP64: that is where a network doubles every rounding, as a ResNet50
does whose batch norms see 16 numbers of a channel.
"""
import argparse
import copy
import importlib.util
import sys
import warnings

NEAR, TIMES = 1e-4, 4


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
    """What was looked at, how far mantissa and torch are apart there, and how far torch is from itself in FP64."""
    import mantissa
    import mantissa.torch
    import torch
    random = torch.Generator().manual_seed(1)
    held_out = batches(torch.Generator().manual_seed(2))
    lr = 1e-3
    adamw = dict(optimizer=mantissa.adamw(weight_decay=0.01, beta2=0.999, decay_matrices_only=False))
    step = mantissa.torch.trainer(model, loss, batches(random), **adamw, **options)
    losses = [step(*batches(random), lr=lr).loss for _ in range(steps)]
    step.into(model)
    with torch.no_grad():
        theirs = loss_of(model.eval(), *held_out).item()
    model.train()
    yield (f"loss after {steps} steps ({losses[0]:.3f} -> {losses[-1]:.3f}), evaluated by both",
           relative([step.evaluate(*held_out)], [theirs]), 0.0)

    def optimizer_of(module):
        return torch.optim.AdamW(module.parameters(), lr=lr, betas=(0.9, 0.999), weight_decay=0.01)

    def trained(module, optimizer, some, backward, schedule=None):
        """Losses of steps, with clipping where there is a schedule."""
        curve = []
        for batch in some:
            optimizer.zero_grad()
            curve.append(backward(module, *batch))
            if schedule:
                torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            if schedule:
                schedule.step()
        return curve

    def by_torch(module, *batch):
        value = loss_of(module, *batch)
        value.backward()
        return value.item()

    def double(module, optimizer, some):
        """All three in FP64."""
        twin = copy.deepcopy(module).double()
        other = optimizer_of(twin)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # which else share the count of steps
        return twin, other, [[each.double() if each.is_floating_point() else each for each in batch] for batch in some]

    def beside(some):
        """Both from the same weights: the module's are those that are trained."""
        start = {name: value.clone() for name, value in model.state_dict().items()}
        ours = [step(*batch, lr=lr).loss for batch in some]
        model.load_state_dict(start)
        exact = trained(*double(model, optimizer, some), by_torch)
        theirs = trained(model, optimizer, some, by_torch)
        return relative(ours, theirs), relative(theirs, exact)

    optimizer = optimizer_of(model)
    step.into_optimizer(optimizer)
    yield ("10 steps of torch with the moments of mantissa, beside mantissa",
           *beside([batches(random) for _ in range(10)]))
    step.load()
    step.from_optimizer(optimizer)
    yield ("10 steps of mantissa with the moments of torch, beside torch",
           *beside([batches(random) for _ in range(10)]))

    twin = copy.deepcopy(model)
    grads = mantissa.torch.gradients(model, loss, batches(random), **options)
    some, curves = [batches(random) for _ in range(20)], []
    for module, optimizer, given, backward in (
            (model, optimizer_of(model), some, lambda _, *batch: grads(*batch)),
            (twin, optimizer_of(twin), some, by_torch), (*double(twin, optimizer_of(twin), some), by_torch)):
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        curves.append(trained(module, optimizer, given, backward, schedule))
    yield ("gradients() under torch's AdamW, clipping and schedule, 20 steps beside eager", relative(*curves[:2]),
           relative(*curves[1:]))


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
        for what, distance, own in handed_over(model, loss_of, loss, batches, options, given.steps):
            print(f"{name:9} {distance:.1e}  torch itself {own:.1e}  {what}", flush=True)
            far += not distance <= max(NEAR, TIMES * own)
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
