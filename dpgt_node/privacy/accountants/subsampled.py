"""Sampling amplification of ``noise-once`` under Gaussian noise, by the library dp-accounting (extra [dp]).

One release a round of a mean of m gradients, the batch a uniform m-subset of D: Renyi DP of the Gaussian mechanism
sampled without replacement (Wang, Balle, Kasiviswanathan 2019), replace-one adjacency, composed over the rounds.  It
does not extend to the mechanisms that put the noise on y: there a release holds all earlier batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpgt_node.privacy.accountants.rounding import inflated, up


def subsampled_gaussian_epsilon(
    scales: Sequence[float], *, C2: float, m: int, D: int, delta: float, orders: Sequence[float] | None = None
) -> float:
    """epsilon at ``delta`` of one ``noise-once`` Gaussian release a round; ``scales``: standard deviations.

    ``C2`` = 2 x the L2 clip, ``m`` <= ``D``.  An upper bound up to the float64 rounding of dp-accounting, for which
    1e-9 of the value is added.  ModuleNotFoundError without the extra.
    """
    import dp_accounting

    assert 1 <= m <= D, "a batch is a subset of the data"
    unit = inflated(C2, m) / m
    accountant = dp_accounting.rdp.RdpAccountant(
        orders=orders,
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
    )
    for scale in sorted(set(scales)):
        if scale == 0.0:
            return math.inf
        event = dp_accounting.SampledWithoutReplacementDpEvent(D, m, dp_accounting.GaussianDpEvent(scale / unit))
        accountant.compose(event, sum(1 for other in scales if other == scale))
    return up(float(accountant.get_epsilon(delta)) * (1.0 + 1e-9), 4)
