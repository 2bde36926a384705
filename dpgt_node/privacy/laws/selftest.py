"""A test of a law's sampler that a start-up can afford."""

from __future__ import annotations

import hashlib

import numpy as np

from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.noise import Sampler
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.types import F64


def self_test(law: str, *, compiled: bool = False) -> None:
    """Known answers and the law's own check; RuntimeError when this machine would draw something else.

    ``compiled``: what numba makes of the sampler must draw them, too, and it compiles.  Else a few milliseconds (more
    the first time: the Gaussian law imports scipy).
    """
    one = LAWS[law]
    plain, known = one.sampler(False), one.answer
    defect = one.defect()
    if defect is not None:
        raise RuntimeError(defect)
    # The same bits on every machine, with and without numba.  Compiled loops leave it to numpy what lies far out.
    private = np.linspace(-3.0, 3.0, 5000)
    extreme = np.concatenate(((-0.0, 5e-324, 1e30, -1e300), private[4:]))
    right = hashlib.sha256(_drawn(plain, extreme).astype("<f8").tobytes()).hexdigest() == known
    if compiled:
        fast = one.sampler(True)
        right &= all(np.array_equal(_drawn(fast, each), _drawn(plain, each)) for each in (private, extreme))
    if not right:
        raise RuntimeError(
            f"the {law} sampler draws other bits than it should on this machine: do not release anything"
        )


def _drawn(sampler: Sampler, private: F64) -> F64:
    return sampler.perturb(private, 0.7, CtrStream(bytes(16), bytes(16)))
