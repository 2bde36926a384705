"""Sums over neighbours with all agents as the rows of one matrix: the compact form of the paper, (eq7) and (eq8)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpgt_node.types import F64

SPARSE_FROM_AGENTS = 32
SPARSE_BELOW_DENSITY = 0.2


class Weights:
    """One stream's weights (n, n); ``times(step)`` is step * weights, numpy or scipy CSR: a large graph with few edges
    becomes sparse.
    """

    def __init__(self, weights: F64) -> None:
        self._weights = weights
        self._last: tuple[float, Any] | None = None

    def times(self, step: float) -> Any:
        """What is sent, as rows, is multiplied by this; kept until another step is asked for."""
        if self._last is None or self._last[0] != step:
            self._last = (step, _compact(step * self._weights))
        return self._last[1]


def _compact(weights: F64) -> Any:
    n = len(weights)
    if n < SPARSE_FROM_AGENTS or np.count_nonzero(weights) > SPARSE_BELOW_DENSITY * n * n:
        return weights
    from scipy.sparse import csr_array

    return csr_array(weights)
