"""Gaussian DP as (epsilon, delta): exact for Gaussian noise."""

from __future__ import annotations

from typing import Final

from dpgt_node.privacy.accountants import gaussian
from dpgt_node.privacy.accountants.accountant import PUBLIC_POINT, Accountant, at_a_public_point
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.types import F64


def _curve(r: Releases) -> F64:
    return gaussian.gdp(r.shift_norms, r.delta)


def _goal(epsilon: float, delta: float) -> float:
    return gaussian.gdp_mu(epsilon, delta) ** 2


GDP: Final = Accountant(
    "gdp",
    "Gaussian (epsilon, delta)",
    "mu",
    at_a_public_point,
    PUBLIC_POINT,
    _curve,
    goal=_goal,
    epsilon_of=gaussian.gdp_epsilon,
    remark="exact for Gaussian noise",
)
