"""Imprint modules: an x̆ that makes its receivers' first layer sort their samples by brightness.

After Robbing the Fed (Fowl et al. 2022), for the network W2 relu(W1 phi + b1) + b2 of ``mlp``.  Every row of W1 is the
mean over features, b1_r = -t_r with t ascending, and all hidden units feed one class alone.  Then hidden unit r answers
the samples brighter than t_r, each with the same factor delta_j for every r, and

    dW1_r - dW1_{r+1} = (1/m) sum over samples between t_r and t_{r+1} of delta_j phi_j
    db1_r - db1_{r+1} = (1/m) sum over the same of delta_j

so a sample that is alone between two thresholds comes out as their quotient, whatever its clip took away.  The receiver
is at c times this plus its own: with a large ``value`` its own hardly counts, and t does not depend on c.  Thresholds
are the quantiles of the attacker's own samples.  Samples of class 0, which the network is sure of, stay out.
"""

from __future__ import annotations

import numpy as np

from dpgt_node.config.roles import HIDDEN, Role
from dpgt_node.learning.common import Oracle
from dpgt_node.types import F64, Stream


class Imprint:
    """Replaces x̆ of an agent with these samples; ``role.value``: how large it is."""

    def __init__(self, role: Role, oracle: Oracle) -> None:
        self._role = role
        own = oracle.inputs(np.arange(oracle.samples or 0))
        brightness = own.reshape(len(own), -1).mean(axis=1)
        self._crafted = crafted(oracle.dimension, oracle.sample_size, brightness)

    def released(self, stream: Stream, k: int, values: F64) -> F64:
        """Instead of ``values`` (d,), float64."""
        return self._role.value * self._crafted if self._role.acts(stream, k) else values


def crafted(dimension: int, features: int, brightness: F64) -> F64:
    """The imprint of size 1, (d,): W1 (hidden, features), b1, W2 (classes, hidden), b2."""
    weights = HIDDEN * features
    found = np.zeros(dimension)
    found[:weights] = 1.0 / features
    found[weights : weights + HIDDEN] = -np.quantile(brightness, (np.arange(HIDDEN) + 0.5) / HIDDEN)
    found[weights + HIDDEN : weights + 2 * HIDDEN] = 1.0  # class 0 alone
    return found
