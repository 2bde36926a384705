"""What per-sample clipping of a torch model costs: time beside the unclipped gradient, memory, and the exact result.

    python -m tests.bench.clipping [--model resnet18] [--samples 55] [--order 2] [--memory 128 512 2048] [--repeat 5]
                                   [--no-naive]

ResNet18 with GroupNorm on random pictures of MNIST's shape, L2 clip, in one thread.  For each memory setting a process
of its own: seconds of an unclipped and of a clipped gradient in turn (medians, and the median of the ratios pair by
pair), peak memory above that of the process before its first gradient, which with the clip must be within the setting
and the gradient itself (float64), or that of the unclipped one.  Then, in float64, how far the clipped gradient is from
a loop over single samples in plain autograd: the largest difference over the largest entry, which must be below 1e-12.
Needs the extra [torch].
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np

from dpgt_node.config.model import Model
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.runtime.process import peak_rss_mib, tune_malloc

LIMIT = 1e-12
NOISE_MIB = 8
"""What a process may take besides."""


def oracle(model: Model, samples: int, clip: Clip | None):  # type: ignore[no-untyped-def]
    """All of ``samples`` random pictures under ``model``."""
    from dpgt_node.learning.torch_oracle import TorchOracle

    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(samples, 784)).astype(np.uint8), rng.integers(10, size=samples)
    return TorchOracle(Dataset(x, y, x[:0], y[:0], 10, 255.0, (1, 28, 28)), None, model, clip=clip)


def naive(made, samples: int, clip: Clip) -> np.ndarray:  # type: ignore[no-untyped-def]
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


def measure(model: Model, samples: int, order: int, repeat: int) -> dict[str, float]:
    """One memory setting."""
    import torch

    tune_malloc()
    torch.func.vmap(torch.func.grad(lambda v: v.sum()))(torch.zeros(1, 1))  # torch imports 160 MiB for its first time
    plain, clipped = oracle(model, samples, None), oracle(model, samples, Clip(order, 1.0))
    x, batch, before = plain.initial(), np.arange(samples), peak_rss_mib()
    seconds: dict[str, list[float]] = {"plain": [], "clipped": []}
    peaks = {}
    for _ in range(repeat + 1):  # the first is for caches
        for name, each in (("plain", plain), ("clipped", clipped)):
            start = time.perf_counter()
            each.gradient(x, batch)
            seconds[name].append(time.perf_counter() - start)
            peaks.setdefault(name, peak_rss_mib() - before)
    ratios = [c / p for c, p in zip(seconds["clipped"][1:], seconds["plain"][1:], strict=True)]
    return {
        "plain_s": statistics.median(seconds["plain"][1:]),
        "clipped_s": statistics.median(seconds["clipped"][1:]),
        "ratio": statistics.median(ratios),
        "plain_mib": peaks["plain"],
        "both_mib": peaks["clipped"],
        "dimension": plain.dimension,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--samples", type=int, default=55)
    parser.add_argument("--order", type=int, choices=(1, 2), default=2)
    parser.add_argument("--memory", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-naive", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    model = Model(o.model, norm="group", memory_mb=o.memory[0])
    if o.one:
        print(json.dumps(measure(model, o.samples, o.order, o.repeat)))
        return 0
    print(f"{o.model}, m = {o.samples}, L{o.order} clip, one thread, float32")
    too_much = False
    for memory in o.memory:
        command = [sys.executable, "-m", "tests.bench.clipping", "--one", "--model", o.model]
        command += ["--samples", str(o.samples), "--memory", str(memory), "--repeat", str(o.repeat)]
        command += ["--order", str(o.order)]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        found = json.loads(subprocess.run(command, check=True, capture_output=True, env=environ).stdout)
        print(
            f"  memory_mb {memory:5}: unclipped {found['plain_s']:.3f} s, clipped {found['clipped_s']:.3f} s, ratio "
            f"{found['ratio']:.2f}; peak {found['plain_mib']:.0f} MiB above the start, {found['both_mib']:.0f} with "
            f"the clip (a gradient is {found['dimension'] * 4 / 2**20:.0f} MiB in float32)",
            flush=True,
        )
        held = max(memory + found["dimension"] * 8 / 2**20, found["plain_mib"])
        if found["both_mib"] > held + NOISE_MIB:
            too_much = True
            print(f"  FAILED: {held:.0f} MiB were allowed")
    if o.no_naive:
        return int(too_much)
    for clip in (Clip(2, 1.0), Clip(1, 1000.0)):
        made = oracle(replace(model, precision="float64"), o.samples, clip)
        expected = naive(made, o.samples, clip)
        error = np.abs(made.gradient(made.initial(), np.arange(o.samples)) - expected).max() / np.abs(expected).max()
        print(
            f"  float64, L{clip.order} clip, against one sample at a time: {error:.1e} of the largest entry", flush=True
        )
        if error > LIMIT:
            return 1
    return int(too_much)


if __name__ == "__main__":
    sys.exit(main())
