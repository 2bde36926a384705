"""Enforcing C: every per-sample gradient is clipped (the adjacency constant is twice the L1 clip)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgt_node.config.model import Privacy
from dpgt_node.privacy.noise import F64


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

    @property
    def threshold(self) -> float:
        """Samples with a larger norm are scaled down to it."""
        return self.bound * (1.0 - 2.0**-22)

    def norms(self, rows: F64) -> F64:
        """The norm of each row of (m, d), float64 (m,)."""
        norms: F64 = np.abs(rows).sum(axis=1) if self.order == 1 else np.sqrt(np.square(rows).sum(axis=1))
        return norms

    def scale(self, rows: F64, norms: F64) -> None:
        """Scale row j of ``rows`` (m, q) in place by what brings a gradient of norm ``norms[j]`` (m,) to the threshold.

        Samples whose norm is not finite become 0.  ``rows`` may be any factor of the gradients.  ``norms`` is spoilt.
        """
        threshold = self.threshold
        largest = norms.max()
        if largest <= threshold:
            return
        if not np.isfinite(largest):
            bad = ~np.isfinite(norms)
            rows[bad] = 0.0  # NaN times 0 would stay NaN
            norms[bad] = 0.0
        np.maximum(norms, threshold, out=norms)
        np.divide(threshold, norms, out=norms)  # exactly 1 for the samples that keep their gradient
        rows *= norms[:, None]
