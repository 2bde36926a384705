"""What per-sample clipping of a torch model costs: time beside the unclipped gradient, memory, and the exact result.

Random pictures of MNIST's shape, GroupNorm, float32, in one thread.  For each memory setting a process of its own: an
unclipped and a clipped gradient in turn, and the peak memory above that of the process before its first gradient.
With the clip it must be within the setting and the gradient itself (float64), or that of the unclipped one.  Then, in
float64, how far the clipped gradient is from a loop over single samples in plain autograd: the largest difference over
the largest entry, which must be below 1e-12.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpgt_node.bench.children import fresh
from dpgt_node.bench.figures import Around, Row, Spread, option
from dpgt_node.config.model import Model
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.torch_oracle import TorchOracle
from dpgt_node.runtime.process import peak_rss_mib, tune_malloc
from dpgt_node.types import F64
from dpgt_node.values import dataclass

LIMIT = 1e-12
NOISE_MIB = 8
"""What a process may take besides."""
CLIPS = (Clip(2, 1.0), Clip(1, 1000.0))


@dataclass(frozen=True, slots=True)
class Settings:
    model: str = option("resnet18", "The run file's model.name.")
    samples: int = option(55, "Samples of a batch.", least=1)
    order: str = option("2", "Norm of the clip.", choices=("1", "2"))
    memory: tuple[int, ...] = option((128, 512, 2048), "The run file's model.memory_mb.")
    repeat: int = option(5, "Gradients of each.", least=1)
    naive: str = option("yes", "Also against a loop over single samples.", choices=("yes", "no"))


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    for memory in settings.memory:
        found = fresh(
            {**around.environment, **threads},
            "speed.clipping",
            name=settings.model,
            memory=memory,
            samples=settings.samples,
            order=int(settings.order),
            repeat=settings.repeat,
        )
        held = max(memory + found["dimension"] * 8 / 2**20, found["unclipped_mib"])
        yield Row(
            f"{settings.model}, m = {settings.samples}, L{settings.order} clip, one thread, float32",
            {
                "memory_mb": memory,
                "unclipped, s": Spread.over(found["unclipped"]),
                "clipped, s": Spread.over(found["clipped"]),
                "ratio": Spread.ratio(found["clipped"], found["unclipped"]),
                "peak unclipped, MiB": found["unclipped_mib"],
                "clipped": found["clipped_mib"],
                "a gradient, MiB": found["dimension"] * 4 / 2**20,
            },
            f"{held:.0f} MiB were allowed" if found["clipped_mib"] > held + NOISE_MIB else "",
        )
    if settings.naive == "yes":
        yield from _against_single_samples(settings)


def _against_single_samples(settings: Settings) -> Iterator[Row]:
    model = Model(settings.model, norm="group", memory_mb=settings.memory[0], precision="float64")
    for clip in CLIPS:
        made = oracle(model, settings.samples, clip)
        expected = one_by_one(made, settings.samples, clip)
        got = made.gradient(made.initial(), np.arange(settings.samples))
        error = float(np.abs(got - expected).max() / np.abs(expected).max())
        yield Row(
            "float64, against one sample at a time",
            {"clip": f"L{clip.order}", "of the largest entry": error},
            f"{error:.1e} is above {LIMIT:g}" if error > LIMIT else "",
        )


def oracle(model: Model, samples: int, clip: Clip | None) -> TorchOracle:
    """``samples`` random pictures under ``model``."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(samples, 784)).astype(np.uint8), rng.integers(10, size=samples)
    return TorchOracle(Dataset(x, y, x[:0], y[:0], 10, 255.0, (1, 28, 28)), None, model, clip=clip)


def one_by_one(made: TorchOracle, samples: int, clip: Clip) -> F64:
    """Plain autograd on the module, a sample at a time; norms and sums by numpy."""
    import torch

    net = made.net
    parameters = [p for p in net.module.parameters() if p.requires_grad]
    total = np.zeros(made.dimension)
    for j in range(samples):
        inputs, labels = made.tensors(np.array([j]))
        loss = torch.nn.functional.cross_entropy(net.module(inputs), labels)
        g = np.concatenate([part.double().numpy().ravel() for part in torch.autograd.grad(loss, parameters)])
        norm = np.linalg.norm(g) if clip.order == 2 else np.abs(g).sum()
        total += g * min(1.0, clip.threshold / norm)
    return total / samples


def measure(name: str, memory: int, samples: int, order: int, repeat: int) -> dict[str, Any]:
    """Seconds of each gradient, and MiB above the start; in a process of its own."""
    import torch

    tune_malloc()
    torch.func.vmap(torch.func.grad(lambda v: v.sum()))(torch.zeros(1, 1))  # torch imports 160 MiB for its first time
    model = Model(name, norm="group", memory_mb=memory)
    made = {"unclipped": oracle(model, samples, None), "clipped": oracle(model, samples, Clip(order, 1.0))}
    x, batch, before = made["unclipped"].initial(), np.arange(samples), peak_rss_mib()
    found: dict[str, Any] = {"dimension": made["unclipped"].dimension, "unclipped": [], "clipped": []}
    for number in range(repeat + 1):  # the first is for caches
        for kind, each in made.items():
            begin = time.perf_counter()
            each.gradient(x, batch)
            if number:
                found[kind].append(time.perf_counter() - begin)
            found.setdefault(f"{kind}_mib", peak_rss_mib() - before)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
