"""Gaussian DP as (epsilon, delta): exact for Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from dpgt_node.privacy.accountants import gaussian
from dpgt_node.privacy.accountants.accountant import PUBLIC_POINT, Accountant, at_a_public_point
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.accountants.rounding import up
from dpgt_node.privacy.laws.law import Guarantee
from dpgt_node.types import F64


def _curve(r: Releases) -> F64:
    return gaussian.gdp(r.shift_norms, r.delta)


def _goal(epsilon: float, delta: float) -> float:
    return gaussian.gdp_mu(epsilon, delta)


def _amounts(epsilon: float, delta: float) -> Mapping[Guarantee, float]:
    """mu-GDP is mu^2/2-zCDP: its trade-off is that of two Gaussians, whose divergences are alpha mu^2/2."""
    square = gaussian.gdp_mu_above(epsilon, delta) ** 2
    return {"mu": up(square, 1), "rho": up(0.5 * square, 2)}


def _measured(square: float) -> float:
    return math.nextafter(math.sqrt(square), math.inf)


GDP: Final = Accountant(
    "gdp",
    "Gaussian (epsilon, delta)",
    "mu",
    at_a_public_point,
    PUBLIC_POINT,
    _curve,
    goal=_goal,
    epsilon_of=gaussian.gdp_epsilon,
    amounts=_amounts,
    measured=_measured,
    remark="exact for Gaussian noise",
)
