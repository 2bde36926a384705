"""Noise on the states of a comparison method whose gradients sit at private points: CONDITIONAL.

It is ``tight`` as if both worlds took their gradients at the same points.  They do not: x_k differs, so for k >= 1 all
m sampled gradients differ and not one.  The paper's Lemma 4 has the same gap.
"""

from __future__ import annotations

from typing import Final

from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.accountants.tight import tight_curve
from dpgt_node.privacy.mechanisms import Mechanism


def _covers(mechanism: Mechanism) -> bool:
    accounted = mechanism.accounted
    return mechanism.noises > 0 and not accounted.public_point and accounted.recursion != "tracking"


SAME_POINT: Final = Accountant(
    "same-point",
    "gradients at the same points (conditional)",
    "epsilon",
    _covers,
    "is for comparison methods that add noise and take gradients at private points, not for {mechanism}",
    tight_curve,
    sound=False,
    title="same points",
    aside=True,
)
