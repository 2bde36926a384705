"""A random quantiser as the only noise: (0, delta), CONDITIONAL.

The quantiser sends r sign(x) with probability |x|/r, else 0.  Two inputs D_k apart in L1 give outputs whose total
variation is at most delta_k = min(1, D_k/r).  Over the rounds

    delta = 1 - prod over k of (1 - delta_k)

by maximal coupling, also where later rounds depend on earlier outputs: as long as both worlds have sent the same, they
send the same once more with probability 1 - delta_k.  No epsilon above 0 helps: at a coordinate 0 the value r has
probability 0 in one world.  D_k holds for gradients at the same points in both worlds, which private points are not.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.accountants.rounding import up
from dpgt_node.privacy.mechanisms import Mechanism
from dpgt_node.types import F64


def _covers(mechanism: Mechanism) -> bool:
    return mechanism.accounted.noise_on == "nothing"


def product(each: F64) -> F64:
    """1 - prod (1 - delta_j), j <= k, from ``each`` = delta_k in [0, 1]: nondecreasing, rounded up, at most 1."""
    with np.errstate(divide="ignore"):
        total = up(-np.expm1(np.cumsum(np.log1p(-each))), 2 * len(each) + 16)
    return np.minimum(np.maximum.accumulate(total), 1.0)


def _curve(r: Releases) -> F64:
    if r.range is None:
        raise ValueError("the range of the quantiser is not known")
    # A probability is off by 2^-52 at most and x by 2^-53 r, a coordinate and in either world.
    drawn = (r.dimension or 0) * 2.0**-50
    each = np.minimum(up((r.response.shifts(r.unit).x + r.drift_x) / r.range + drawn, 4), 1.0)
    each[0] = 0.0  # x_0 is public
    return np.repeat(product(each), 2)


VARIATION: Final = Accountant(
    "variation",
    "(0, delta): this is delta (conditional)",
    "total-variation",
    _covers,
    "is for a quantiser that is the only noise; the mechanism is {mechanism}",
    _curve,
    sound=False,
    title="at epsilon 0",
    aside=True,
)
