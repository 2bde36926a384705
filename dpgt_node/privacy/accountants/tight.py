"""Pure epsilon where the gradient is taken at a public point: attained when d >= K + 1."""

from __future__ import annotations

from typing import Final

from dpgt_node.privacy.accountants import pure
from dpgt_node.privacy.accountants.accountant import PUBLIC_POINT, Accountant, at_a_public_point
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.types import F64


def tight_curve(r: Releases) -> F64:
    """Cumulative cost after every row, (2(K+1),)."""
    return pure.released(r.response.shifts(r.unit), r.sigma_x, r.sigma_y, r.left("X"), r.left("Y"))


TIGHT: Final = Accountant(
    "tight",
    "tight (pure)",
    "epsilon",
    at_a_public_point,
    PUBLIC_POINT,
    tight_curve,
    amounts=pure.amounts,
    any_batches=True,
)
