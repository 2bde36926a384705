"""Zero-concentrated DP as (epsilon, delta): L2 shifts, under Laplace and Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from dpgt_node.privacy.accountants import concentrated
from dpgt_node.privacy.accountants.accountant import PUBLIC_POINT, Accountant, at_a_public_point
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.laws.law import Guarantee
from dpgt_node.types import F64


def _curve(r: Releases) -> F64:
    return concentrated.zcdp(r.shift_norms, r.delta)


def _goal(epsilon: float, delta: float) -> float:
    log = -math.log(delta)
    return math.sqrt(2.0) * epsilon / (math.sqrt(epsilon + log) + math.sqrt(log))


def _amounts(epsilon: float, delta: float) -> Mapping[Guarantee, float]:
    return {"rho": concentrated.zcdp_rho(epsilon, delta)}


ZCDP: Final = Accountant(
    "zcdp",
    "zero-concentrated (epsilon, delta)",
    "rho",
    at_a_public_point,
    PUBLIC_POINT,
    _curve,
    goal=_goal,
    epsilon_of=concentrated.zcdp_epsilon,
    amounts=_amounts,
)
