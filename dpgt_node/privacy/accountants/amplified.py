"""``tight`` with amplification by sampling: pure epsilon, for clipped gradients on secret uniform batches."""

from __future__ import annotations

from typing import Final

import numpy as np

from dpgt_node.privacy.accountants import pure
from dpgt_node.privacy.accountants.accountant import NOT_KNOWN, PUBLIC_POINT, Accountant, at_a_public_point
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.accountants.tight import tight_curve
from dpgt_node.types import F64


def _curve(r: Releases) -> F64:
    w = r.response.weights(r.unit, r.sigma_x, r.sigma_y, r.left("X"), r.left("Y"))
    ahead = pure.amplified(w, r.rate)
    rows = np.concatenate((np.zeros(1), np.repeat(ahead, 2)[:-1]))  # row 2k holds the batches before k
    # ``tight`` charges only what was released so far; both bound every prefix.
    return np.minimum(rows, tight_curve(r))


def _no_amplification(r: Releases) -> str | None:
    if r.arriving:
        return "a sample takes part in every batch since it arrived, so no sampling hides it"
    if r.D is None:
        return f"D {NOT_KNOWN}, so the sampling rate m/D is not either"
    return f"m = {r.largest_batch} exceeds D = {r.D}" if r.largest_batch > r.D else None


AMPLIFIED: Final = Accountant(
    "amplified",
    "tight, amplified by sampling (pure)",
    "epsilon",
    at_a_public_point,
    PUBLIC_POINT,
    _curve,
    amounts=pure.amounts,
    clip_l1="C is declared, not enforced: amplification by sampling needs clip_l1",
    also=_no_amplification,
)
