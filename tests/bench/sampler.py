"""How fast privacy noise is drawn, against numpy's own floating-point Laplace, in one run on one thread.

    python -m tests.bench.sampler [--dimension 11175370] [--repeats 7]

``numpy``: Generator(PCG64).laplace(size=d), float64: noise only.  The others add noise to a vector, from AES-CTR.
Rounds are interleaved, and the fastest of each counts: on a shared machine the rest measure its neighbours.  Times are
of this thread's processor.  Prints a line of JSON for each: M samples/s and how many times numpy's rate that is.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler
from dpgt_node.privacy.laws.grid_sampler import GridLaplaceSampler, compile_kernel
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.noise import Sampler
from dpgt_node.privacy.laws.sampler import LaplaceSampler


def measure(d: int, repeats: int) -> dict[str, float]:
    """Seconds a vector of ``d`` coordinates, by name."""
    rng = np.random.Generator(np.random.PCG64(1))
    private = rng.normal(size=d) * 1e-3
    source = CtrStream(bytes(16), bytes(16))
    samplers: dict[str, Sampler] = {
        "grid, numpy": GridLaplaceSampler(compiled=False),
        "float Laplace": LaplaceSampler(),
        "Gaussian": GaussianSampler(),
    }
    if compile_kernel() is not None:
        samplers["grid, numba"] = GridLaplaceSampler(compiled=True)
    work: dict[str, Callable[[], object]] = {"numpy": lambda: rng.laplace(size=d)}
    for name, sampler in samplers.items():
        work[name] = lambda sampler=sampler: sampler.perturb(private, 1.0, source)
        sampler.perturb(private[:1000], 1.0, source)  # compile
    best = dict.fromkeys(work, float("inf"))
    for _ in range(repeats):
        for name, draw in work.items():
            begin = time.thread_time()
            draw()
            best[name] = min(best[name], time.thread_time() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimension", type=int, default=11_175_370)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    best = measure(options.dimension, options.repeats)
    for name, seconds in best.items():
        rate = options.dimension / seconds / 1e6
        print(json.dumps({"sampler": name, "M/s": round(rate, 1), "times numpy": round(best["numpy"] / seconds, 2)}))


if __name__ == "__main__":
    main()
