"""Sums over neighbours with all agents as the rows of one matrix: the compact form of the paper, (eq7) and (eq8)."""

from __future__ import annotations

from typing import Any

from dpgt_node.algo.edges import Edges

SPARSE_FROM_AGENTS = 32
SPARSE_BELOW_DENSITY = 0.2


class Weights:
    """One stream's weights (n, n); ``times(step)`` is step * weights, numpy or scipy CSR: a large graph with few edges
    stays sparse.
    """

    def __init__(self, weights: Edges) -> None:
        n = len(weights)
        whole = n < SPARSE_FROM_AGENTS or len(weights.weights) > SPARSE_BELOW_DENSITY * n * n
        self._weights = weights.dense if whole else _sparse(weights)
        self._last: tuple[float, Any] | None = None

    def times(self, step: float) -> Any:
        """What is sent, as rows, is multiplied by this; kept until another step is asked for."""
        if self._last is None or self._last[0] != step:
            self._last = (step, step * self._weights)
        return self._last[1]


def _sparse(edges: Edges) -> Any:
    from scipy.sparse import csr_array

    return csr_array((edges.weights, edges.senders, edges.starts), shape=(len(edges), len(edges)))
