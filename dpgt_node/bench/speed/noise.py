"""How fast privacy noise is drawn, beside numpy's own floating-point noise of the same law, on one thread.

numpy: laplace and normal of default_rng(), float64: noise only.  The others add noise to a vector, from AES-CTR.  Times
are of this thread's processor.  "compiled" needs numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from time import thread_time

import numpy as np

from dpgt_node.bench.figures import Around, Row, Spread, in_turn, option
from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler
from dpgt_node.privacy.laws.grid_sampler import GridLaplaceSampler
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.noise import Sampler
from dpgt_node.privacy.laws.sampler import LaplaceSampler
from dpgt_node.runtime.process import tune_malloc
from dpgt_node.values import dataclass

LAPLACE, NORMAL = "numpy's laplace", "numpy's normal"


@dataclass(frozen=True, slots=True)
class Settings:
    dimension: int = option(11_175_370, "Coordinates of a vector.", least=1)
    repeat: int = option(7, "Draws of each.", least=1)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    d = settings.dimension
    tune_malloc()
    seconds = in_turn(_jobs(d), settings.repeat, clock=thread_time)
    for name, each in seconds.items():
        rate = Spread.over([d / s / 1e6 for s in each])
        ratio = Spread.ratio(seconds[NORMAL if "normal" in name or "Gaussian" in name else LAPLACE], each)
        yield Row(
            f"d = {d:,}", {"": name, "ms": Spread.over(each, 1e3), "million/s": rate, "times numpy's rate": ratio}
        )


def _jobs(d: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(1)
    private, source = rng.normal(size=d) * 1e-3, CtrStream(bytes(16), bytes(16))
    samplers: dict[str, Sampler] = {
        "float Laplace": LaplaceSampler(),
        "grid Laplace": GridLaplaceSampler(compiled=False),
        "Gaussian": GaussianSampler(compiled=False),
    }
    if find_spec("numba") is not None:
        samplers["grid Laplace, compiled"] = GridLaplaceSampler(compiled=True)
        samplers["Gaussian, compiled"] = GaussianSampler(compiled=True)

    def draw(sampler: Sampler) -> Callable[[], object]:
        sampler.perturb(private[:1], 1.0, source)  # compiles
        return lambda: sampler.perturb(private, 1.0, source)

    numpy: dict[str, Callable[[], object]] = {LAPLACE: lambda: rng.laplace(size=d), NORMAL: lambda: rng.normal(size=d)}
    return numpy | {name: draw(sampler) for name, sampler in samplers.items()}
