"""Gradient inversion of LeNet on real MNIST, by noise.

DATA.npz: x_test (10000, 784) in [0, 1] and y_test, as numpy.savez writes them.  LeNet is that of the literature on
gradient inversion: three 5x5 convolutions of 12 channels (strides 2, 2, 1) and a linear layer, d = 13,426; ReLU with
torch's own start, sigmoid with a start uniform in [-0.5, 0.5].  One picture a batch, the first test pictures, Laplace
noise of scale b on every coordinate of its gradient; then eight pictures a batch without noise.  The attack is the
package's, with its defaults; 1,800 steps for batches.  One line a batch in --out/inversion.jsonl; what is there is not
done again.

Other networks are asked for by name: the run file's ResNet18 with GroupNorm or BatchNorm.  The latter's batches are of
two pictures, since it normalises by its batch; the search does so as well, so nobody needs its running statistics.
Beside each PSNR stands that of the mean of all other pictures of DATA.npz, which needs no gradient.

--breaching: instead, the same gradients of single pictures without noise by the package ``breaching`` (Geiping et al.:
its invertinggradients, labels given, with the same number of steps), which must be installed beside torch.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.adversary.pictures import measure, search
from dpgt_node.bench.figures import Around, Row, Spread, Value, option, required
from dpgt_node.errors import ConfigError
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

SHAPE, CLASSES = (1, 28, 28), 10
NOISE = (0.0, 1e-3, 1e-2, 1e-1)
DESIGN = {"relu": (38, 21, 8, 4), "sigmoid": (45, 44, 29, 7.5)}
"""PSNR, dB, of a prototype with cosine + TV and 600 steps."""
RESNETS = {"resnet18-group": "group", "resnet18-batch": "batch"}
BATCH = 8


def built(name: str) -> Any:
    """By the name of its activation, or of its norm."""
    if name not in RESNETS:
        return lenet(name)
    from dpgt_node.learning.nets.torch_models import build_module

    return build_module("resnet18", SHAPE, CLASSES, norm=RESNETS[name], seed=0).train()


def lenet(activation: str) -> Any:
    """The reference network, float64."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = nn.ReLU if activation == "relu" else nn.Sigmoid
    module = nn.Sequential(
        nn.Conv2d(1, 12, 5, stride=2, padding=2),
        layer(),
        nn.Conv2d(12, 12, 5, stride=2, padding=2),
        layer(),
        nn.Conv2d(12, 12, 5, stride=1, padding=2),
        layer(),
        nn.Flatten(),
        nn.Linear(588, 10),
    ).double()
    if activation == "sigmoid":
        for value in module.parameters():
            nn.init.uniform_(value, -0.5, 0.5)
    return module


def invert(activation: str, b: float, samples: F64, labels: I64, seed: int, steps: int) -> dict[str, Any]:
    """One batch: what the attack makes of its noisy gradient."""
    module, started = built(activation), time.monotonic()
    g = search.gradient(module, samples, labels)
    seen = g + (np.random.default_rng(seed).laplace(0.0, b, g.size) if b else 0.0)
    s = float(np.sqrt(2 * g.size) * b / np.linalg.norm(g))
    settings = search.Settings(steps=steps if len(labels) < BATCH else 3 * steps, seed=seed)
    guessed, found = search.labels_and_samples(module, seen, seen[-10:], len(labels), SHAPE, s=s, settings=settings)
    order = measure.matched(samples, found.samples)
    pairs = list(zip(samples, found.samples[order], strict=True))
    common = np.minimum(np.bincount(labels, minlength=10), np.bincount(guessed, minlength=10)).sum()
    return {
        "s": s,
        "psnr": float(np.mean([measure.psnr(a, c) for a, c in pairs])),
        "ssim": float(np.mean([measure.ssim(a, c) for a, c in pairs])),
        "labels": float(common) / len(labels),
        "misfit": found.misfit,
        "method": found.method,
        "seconds": time.monotonic() - started,
    }


def breached(activation: str, samples: F64, labels: I64, seed: int, steps: int) -> dict[str, Any]:
    """One picture by ``breaching``: its invertinggradients in [0, 1], labels given, as many steps as ours."""
    import torch

    breaching: Any = importlib.import_module("breaching")

    config = breaching.get_attack_config("invertinggradients")
    config.optim.max_iterations = steps
    config.optim.callback = 10**9
    config.restarts.num_trials = 1
    setup = {"device": torch.device("cpu"), "dtype": torch.float32}
    loss = torch.nn.CrossEntropyLoss()
    # Its total variation knows pictures of three channels only: a grey one is their mean.
    module = _grey(built(activation).float())
    gradient = torch.autograd.grad(
        loss(module(torch.from_numpy(samples).float()), torch.from_numpy(labels)), list(module.parameters())
    )
    data = config.__class__(
        {"shape": [3, *SHAPE[1:]], "classes": 10, "mean": [0.0] * 3, "std": [1.0] * 3, "modality": "vision"}
    )
    torch.manual_seed(seed)
    started = time.monotonic()
    attacker = breaching.attacks.prepare_attack(module, loss, config, setup)
    # Without buffers it normalises by the batch, as the agents do.
    buffers: list[Any] | None = None if RESNETS.get(activation) == "batch" else []
    payload = [{"parameters": list(module.parameters()), "buffers": buffers, "metadata": data}]
    shared = [
        {
            "gradients": list(gradient),
            "buffers": None,
            "metadata": {"num_data_points": len(labels), "labels": torch.from_numpy(labels), "local_hyperparams": None},
        }
    ]
    rebuilt, _ = attacker.reconstruct(payload, shared, {}, dryrun=False)
    found = np.clip(rebuilt["data"].double().numpy().mean(axis=1, keepdims=True), 0.0, 1.0)
    pairs = zip(samples, found[measure.matched(samples, found)], strict=True)
    return {"psnr": float(np.mean([measure.psnr(a, b) for a, b in pairs])), "seconds": time.monotonic() - started}


def _grey(module: Any) -> Any:
    import torch

    class Grey(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.mean(dim=1, keepdim=True)

    return torch.nn.Sequential(Grey(), module)


def jobs(pictures: int, networks: tuple[str, ...], by_breaching: bool) -> Iterator[tuple[str, str, float, list[int]]]:
    """(kind, network, b, rows), every setting of one picture before the next picture."""
    for row in range(pictures):
        for name in networks:
            rows = [2 * row, 2 * row + 1] if RESNETS.get(name) == "batch" else [row]
            if by_breaching:
                yield "breaching", name, 0.0, rows
                continue
            for b in NOISE if name in DESIGN else NOISE[:1]:
                yield "one", name, b, rows
            if row == 0 and name in DESIGN:
                yield "batch", name, 0.0, list(range(BATCH))


@dataclass(frozen=True, slots=True)
class Settings:
    data: Path = required("", metavar="DATA.npz", positional=True)
    out: Path = required("Where results are kept.", metavar="DIR")
    pictures: int = option(20, "Pictures, each under every noise.", least=1)
    network: tuple[str, ...] = option(tuple(DESIGN), "LeNets by activation, or ResNet18.", choices=(*DESIGN, *RESNETS))
    steps: int = option(600, "Of the attack on one picture; three times as many on a batch.", least=1)
    breaching: bool = option(False, "By the package of that name instead.")


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    with np.load(settings.data, allow_pickle=False) as file:
        x, y = file["x_test"].astype(np.float64).reshape(-1, *SHAPE), file["y_test"].astype(np.int64)
    asked = list(jobs(settings.pictures, settings.network, settings.breaching))
    least = 1 + max(1 + max(rows) for *_, rows in asked)  # the mean picture is that of others
    if len(x) < least:
        raise ConfigError.one("command line", "DATA", f"{settings.data}: {len(x)} test pictures; {least} are needed")
    settings.out.mkdir(parents=True, exist_ok=True)
    path = settings.out / "inversion.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    have = {(r["kind"], r["activation"], r["b"], tuple(r["rows"])) for r in done}
    for kind, activation, b, rows in asked:
        if (kind, activation, b, tuple(rows)) in have:
            continue
        if kind == "breaching":
            found = breached(activation, x[rows], y[rows], rows[0], settings.steps)
        else:
            found = invert(activation, b, x[rows], y[rows], rows[0], settings.steps)
        others = np.delete(x, rows, axis=0).mean(axis=0)
        found["mean picture"] = float(np.mean([measure.psnr(each, others) for each in x[rows]]))
        done.append({"kind": kind, "activation": activation, "b": b, "rows": rows, **found})
        with path.open("a") as lines:
            lines.write(json.dumps(done[-1], allow_nan=False) + "\n")
    yield from table(done)


def table(done: list[dict[str, Any]]) -> Iterator[Row]:
    """Every setting: PSNR (dB) beside that of the mean picture and that of the prototype, SSIM, labels, s."""
    for kind in ("one", "batch", "breaching"):
        for activation, design in {**DESIGN, **dict.fromkeys(RESNETS, (None,) * len(NOISE))}.items():
            for b, wanted in zip(NOISE, design, strict=True):
                rows = [r for r in done if (r["kind"], r["activation"], r["b"]) == (kind, activation, b)]
                if not rows:
                    continue
                cells: dict[str, Value] = {"what": kind, "network": activation, "b": b, "batches": len(rows)}
                cells["mean PSNR"] = float(np.mean([r["psnr"] for r in rows]))
                cells["PSNR"] = Spread.over([r["psnr"] for r in rows])
                cells["prototype"] = wanted if kind == "one" else None
                for key in ("mean picture", "ssim", "labels", "s", "seconds"):
                    known = [r[key] for r in rows if key in r]
                    cells[key] = float(np.mean(known)) if known else None
                yield Row("pictures rebuilt from a gradient", cells)
