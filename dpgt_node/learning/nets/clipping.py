"""Enforcing C: every per-sample gradient is clipped (the adjacency constant is twice the L1 clip)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpgt_node.config.model import Privacy
from dpgt_node.types import F64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Clip:
    """Clips the whole parameter vector of one sample to an L1 (``order`` 1) or L2 (2) norm of at most ``bound``.

    The threshold is (1 - 2^-22) times the bound, so that float64 rounding of the norm and of the scaled gradient cannot
    carry a sample above the bound itself.
    """

    order: int
    bound: float

    @classmethod
    def from_config(cls, privacy: Privacy) -> Clip | None:
        """The clip of the run file; None where C is only declared or unknown."""
        if privacy.clip_l1 is not None:
            return cls(1, privacy.clip_l1)
        return None if privacy.clip_l2 is None else cls(2, privacy.clip_l2)

    def times(self, factor: float) -> Clip:
        """A clip of the same order with ``factor`` times the bound."""
        return replace(self, bound=factor * self.bound)

    @property
    def threshold(self) -> float:
        """Samples with a larger norm are scaled down to it."""
        return self.bound * (1.0 - 2.0**-22)

    def norms(self, vectors: F64, axis: int) -> F64:
        """The norms of the vectors that lie along ``axis`` of a matrix, float64 (m,)."""
        if self.order == 1:
            return np.asarray(np.add.reduce(np.abs(vectors), axis=axis))
        return np.asarray(np.sqrt(np.add.reduce(np.square(vectors), axis=axis)))

    def scale(self, columns: F64, norms: F64) -> None:
        """Scale column j of ``columns`` (q, m) in place by what takes a gradient of norm ``norms[j]`` to the threshold.

        Samples whose norm is not finite become 0.  ``columns``: any factor of the gradients.  ``norms`` is spoilt.
        j may be several indices: (q, n, m) with norms (n, m).
        """
        threshold = self.threshold
        largest = np.maximum.reduce(norms, axis=None)
        if largest <= threshold:
            return
        if not np.isfinite(largest):
            bad = ~np.isfinite(norms)
            columns[:, bad] = 0.0  # NaN times 0 would stay NaN
            norms[bad] = 0.0
        np.maximum(norms, threshold, out=norms)
        np.divide(threshold, norms, out=norms)  # exactly 1 for the samples that keep their gradient
        columns *= norms
