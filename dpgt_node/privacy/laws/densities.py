"""Which sampler draws which law, and a self-test that a start-up can afford."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from dpgt_node.privacy.laws import grid
from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler, largest_quantile_error
from dpgt_node.privacy.laws.grid_sampler import GridLaplaceSampler
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.noise import Sampler
from dpgt_node.types import NoiseLaw

SoundSampler = GridLaplaceSampler | GaussianSampler

# SHA-256 of what _known() draws: the same on every machine, with and without numba.
_ANSWERS: Final[dict[NoiseLaw, str]] = {
    "laplace": "5da344147e8cecd1f033389c07b462f56bdd53845c7791a69fad91d0def368df",
    "gaussian": "26cee1fde4ba2efbe53b5abd66b9cc0c3fc95db4e0435f7fdb5ac88426314139",
}


def sampler_for(law: NoiseLaw, *, compiled: bool | None = None) -> SoundSampler:
    """A new sampler of ``law``.  ``compiled``: see GridLaplaceSampler; the Gaussian law has one path only."""
    return GridLaplaceSampler(compiled) if law == "laplace" else GaussianSampler()


def self_test(law: NoiseLaw, *, compiled: bool | None = False) -> None:
    """Certificate and known answers; raises RuntimeError when this machine would draw something else.

    Takes a few milliseconds (more the first time: the Gaussian law imports scipy, ``compiled`` compiles).
    """
    if grid.certificate(grid.tables(grid.WEIGHTS)) != grid.certificate(grid.TABLES) or grid.KAPPA_UP > 0.0109:
        raise RuntimeError("the noise table is damaged: it has no certificate")
    if _known(sampler_for(law, compiled=compiled)) != _ANSWERS[law]:
        raise RuntimeError(
            f"the {law} sampler draws other bits than it should on this machine: do not release anything"
        )
    if law == "gaussian" and not largest_quantile_error(33) < 1.0:
        raise RuntimeError("scipy's normal quantile is too inaccurate on this machine")


def _known(sampler: Sampler) -> str:
    private = np.linspace(-3.0, 3.0, 5000)
    private[:4] = (-0.0, 5e-324, 1e30, -1e300)
    out = sampler.perturb(private, 0.7, CtrStream(bytes(16), bytes(16)))
    return hashlib.sha256(out.astype("<f8").tobytes()).hexdigest()
