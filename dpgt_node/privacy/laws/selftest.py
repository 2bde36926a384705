"""A test of a law's sampler that a start-up can afford."""

from __future__ import annotations

import hashlib

import numpy as np

from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.noise import Sampler
from dpgt_node.privacy.laws.registry import LAWS


def self_test(law: str, *, compiled: bool | None = False) -> None:
    """Known answers and the law's own check; RuntimeError when this machine would draw something else.

    Takes a few milliseconds (more the first time: the Gaussian law imports scipy, ``compiled`` compiles).
    """
    one = LAWS[law]
    # The same bits on every machine, with and without numba.
    known = _known(one.sampler(compiled)) == one.answer
    defect = one.defect()
    if defect is not None:
        raise RuntimeError(defect)
    if not known:
        raise RuntimeError(
            f"the {law} sampler draws other bits than it should on this machine: do not release anything"
        )


def _known(sampler: Sampler) -> str:
    private = np.linspace(-3.0, 3.0, 5000)
    private[:4] = (-0.0, 5e-324, 1e30, -1e300)
    out = sampler.perturb(private, 0.7, CtrStream(bytes(16), bytes(16)))
    return hashlib.sha256(out.astype("<f8").tobytes()).hexdigest()
