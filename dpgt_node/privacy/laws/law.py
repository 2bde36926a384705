"""What a noise law is, to whoever only has to know about it; drawing it is the sampler's business.

Nothing here and in the values built from it imports a sampler or a keystream: an adversary may know a law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpgt_node.types import NoiseLaw

Guarantee = Literal["pure", "concentrated", "gaussian"]
"""What a shift costs: its L1 norm over the scale; half the square of its L2 norm over the scale, as rho; the latter's
trade-off exactly, as mu."""


@dataclass(frozen=True, slots=True)
class Law:
    """``name``: the run file's word.  ``admits``: the guarantees it gives.

    ``leftover_l1``: what the sampler adds to a release is an L1 cost of the whole vector, which spreads over the
    coordinates; else it is an L2 shift in scales.
    """

    name: NoiseLaw
    label: str
    admits: frozenset[Guarantee]
    leftover_l1: bool
