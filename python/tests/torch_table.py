"""The table of modules that train: each in a process of its own, its first step beside PyTorch's in FP64.

    python python/tests/torch_table.py [--only WORDS] [--json FILE] [--curves] [--device cuda] [--jobs 8]

A module agrees where, at one of two seeds, the loss is within 8 times and every gradient within 4 times PyTorch FP32's
own distance from FP64, or 2e-5, and where steps in BF16 and FP16 have the same loss within 1 %, or within twice what
PyTorch's autocast is from its FP32 at the worst of four roundings of the weights; or it is refused, and says by name
what. Anything else is wrong, and the script fails.

With --curves each is trained instead, beside PyTorch in FP32. The losses of 20 steps of AdamW must be PyTorch's,
within 1e-3 of the first; those of a module that draws numbers itself, as a VAE, cannot be. A module with dropouts is
trained 50 steps more with a tenth dropped: its mean loss must be where a sixth seed of PyTorch's five would be, at 99
% (4.6 standard deviations, by Student's t).
"""
import argparse
import copy
import functools
import json
import importlib.util
import multiprocessing
import multiprocessing.connection
import statistics
import sys
import time

SECONDS = 300
POLICIES, NEAR_IN_16_BITS = ("fp32", "bf16", "fp16"), 0.01
DRAWS, TIMES_OF_AUTOCAST = 4, 2
STEPS, NEAR, RATE = 20, 1e-3, 1e-4
SEEDS, DROPPED, RANDOM_STEPS, STUDENT = 5, 0.1, 50, 4.6


def _loss_of_torch(model, loss, example, options):
    if isinstance(example, dict):
        return model(**example).loss
    inputs = options.get("inputs", len(example) - 1)
    return loss(model(*example[:inputs]), *example[inputs:])


def _far_in_torch(model, loss, example, options, policy):
    """How far the loss under PyTorch's autocast is from its FP32, at most: a deep network of few images parts by chance,
    and each draw moves the weights by half of what rounding them to BF16 may."""
    import torch
    dtype, most = {"bf16": torch.bfloat16, "fp16": torch.float16}[policy], 0.0
    for draw in range(DRAWS):
        torch.manual_seed(draw)
        drawn, losses = copy.deepcopy(model), []
        with torch.no_grad():
            for parameter in drawn.parameters():
                parameter.mul_(1 + (torch.rand_like(parameter) - 0.5) * 2**-9)
            for enabled in (False, True):
                torch.manual_seed(draw)
                with torch.autocast("cpu", dtype, enabled=enabled):
                    losses.append(float(_loss_of_torch(copy.deepcopy(drawn), loss, example, options)))
        most = max(most, abs(losses[1] - losses[0]) / max(1.0, abs(losses[0])))
    return most


def judged(device, name, seed):
    """What one module does at one seed: (verdict, words, seconds)."""
    import warnings
    warnings.filterwarnings("ignore")
    import mantissa
    import mantissa.torch
    import torch
    from torch_modules import cases
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    made = cases()[name]()
    model, loss, example = made[:3]
    options = made[3] if len(made) > 3 else {}
    model.train()
    fresh = copy.deepcopy(model)
    began = time.monotonic()
    try:
        step = mantissa.torch.trainer(model, loss, example, device=device, threads=1, **options)
    except mantissa.torch.DifferenceError as error:
        return "wrong", str(error), time.monotonic() - began
    except mantissa.torch.CaptureError as error:
        what = "; ".join(sorted({refusal.what for refusal in error.refusals}))
        return "broken" if "ended with" in what else "refused", what, time.monotonic() - began
    except mantissa.Error as error:
        return "refused", str(error), time.monotonic() - began
    batch = tuple(example.values()) if isinstance(example, dict) else example
    words, near, loss_before = f"{step.distance}", True, None
    for policy in POLICIES:
        if policy != "fp32":
            step = mantissa.torch.trainer(copy.deepcopy(fresh), loss, example, device=device, threads=1, check=False,
                                          policy=policy, **options)
        result = step(*batch, lr=1e-4)
        if policy == "fp32":
            loss_before = result.loss
            if not result.applied:
                return "wrong", f"the step was not applied, its loss is {result.loss}", time.monotonic() - began
        far = abs(result.loss - loss_before) / max(1.0, abs(loss_before))
        words += f"; {policy} {far:.1e}" if policy != "fp32" else ""
        if not far <= NEAR_IN_16_BITS:
            theirs = _far_in_torch(fresh, loss, example, options, policy)
            words += f" (PyTorch's autocast {theirs:.1e})"
            near = near and far <= TIMES_OF_AUTOCAST * theirs
    return "agrees" if near else "wrong", words, time.monotonic() - began


def _losses_of_torch(model, loss, example, steps, options):
    import torch
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = _loss_of_torch(model, loss, example, options)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def _losses_of_mantissa(device, model, loss, example, steps, options):
    import mantissa
    import mantissa.torch
    optimizer = mantissa.adamw(weight_decay=0.01, beta2=0.999, decay_matrices_only=False)
    step = mantissa.torch.trainer(model, loss, example, device=device, threads=1, optimizer=optimizer, **options)
    batch = tuple(example.values()) if isinstance(example, dict) else example
    return [step(*batch, lr=RATE).loss for _ in range(steps)]


def trained(device, name, seed):
    """What twenty steps of one module are beside PyTorch's, and fifty with dropout: (verdict, words, seconds)."""
    import warnings
    warnings.filterwarnings("ignore")
    import torch
    from torch_modules import cases
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model, loss, example, *options = cases()[name]()
    options = options[0] if options else {}
    model.train()
    began = time.monotonic()
    fresh = copy.deepcopy(model)
    theirs = _losses_of_torch(copy.deepcopy(fresh), loss, example, STEPS, options)
    ours = _losses_of_mantissa(device, model, loss, example, STEPS, options)
    far = max(abs(a - b) for a, b in zip(ours, theirs)) / theirs[0]
    words = f"{STEPS} steps, loss {theirs[0]:.4f} to {theirs[-1]:.4f}, at most {far:.1e} of the first apart"
    near = far <= NEAR
    dropouts = [each for each in fresh.modules() if isinstance(each, torch.nn.Dropout)]
    if dropouts:
        for each in dropouts:
            each.p = DROPPED
        means = []
        for each in range(SEEDS):
            torch.manual_seed(1000 + each)
            means.append(statistics.mean(_losses_of_torch(copy.deepcopy(fresh), loss, example, RANDOM_STEPS,
                                                          options)))
        mine = statistics.mean(_losses_of_mantissa(device, fresh, loss, example, RANDOM_STEPS, options))
        mean = statistics.mean(means)
        spread = STUDENT * statistics.stdev(means) * (1 + 1 / SEEDS) ** 0.5
        words += f"; dropped {mine:.4f}, PyTorch's {mean:.4f} +- {spread:.4f}"
        near = near and abs(mine - mean) <= spread
    return "agrees" if near else "wrong", words, time.monotonic() - began


def _import_all():
    """Before all processes, each of which is a fork of this one: what torch imports late takes longest."""
    import mantissa.torch  # noqa: F401
    import torch
    torch.set_num_threads(1)
    torch.export.export(torch.nn.Identity(), (torch.zeros(1),), strict=False).run_decompositions({})


def _tell(to, judge, name, seed):
    try:
        to.send(judge(name, seed))
    except Exception as error:
        to.send(("broken", f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}", 0.0))


def in_processes(judge, names, jobs, device):
    """Yields each module and the better of its two seeds, as they end; so many at a time, each in a process of its own."""
    # A fork begins with all imports, but torch looked for a GPU before it, and may not again in a fork.
    context = multiprocessing.get_context("spawn" if device == "cuda" else "fork")
    waiting, running, best = [(name, 0) for name in reversed(names)], {}, {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name, seed = waiting.pop()
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_tell, args=(there, judge, name, seed))
            process.start()
            there.close()
            running[here] = (name, seed, process, time.monotonic())
        ended = multiprocessing.connection.wait(running, timeout=1)
        late = [here for here, (*_, began) in running.items() if time.monotonic() - began > SECONDS]
        for here in {*ended, *late}:
            name, seed, process, _ = running.pop(here)
            try:
                result = here.recv() if here in ended else ("broken", f"took longer than {SECONDS} s", SECONDS)
            except EOFError:
                result = ("broken", "its process ended", 0.0)
            process.kill()
            process.join()
            if name not in best or result[0] == "agrees":
                best[name] = result
            if best[name][0] in ("agrees", "refused") or seed == 1:
                yield name, best[name]
            else:
                waiting.append((name, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--device", default="cpu", help="of mantissa; PyTorch runs on the CPU")
    parser.add_argument("--jobs", type=int, default=1, help="modules at a time")
    given = parser.parse_args()
    for package in ("mantissa", "torch"):
        if importlib.util.find_spec(package) is None:
            sys.exit(f"torch_table.py compares mantissa with PyTorch: there is no Python package '{package}' here; install it")
    _import_all()
    from torch_modules import cases
    names = [name for name in cases() if any(word in name for word in given.only.split(","))]
    if not names:
        sys.exit(f"--only {given.only}: no module's name has one of these words; there are: {', '.join(cases())}")
    results = {}
    judge = functools.partial(trained if given.curves else judged, given.device)
    for name, result in in_processes(judge, names, given.jobs, given.device):
        results[name] = result
        print(f"{result[0]:8} {name:52} {result[2]:6.1f} s  {result[1][:300]}", flush=True)
    counts = {verdict: sum(r[0] == verdict for r in results.values()) for verdict in
              ("agrees", "refused", "wrong", "broken")}
    print(f"{len(results)} modules: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)
    return 1 if counts["wrong"] or counts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
