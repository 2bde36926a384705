"""Gradients coded as integers with a count of fair coins in them: (epsilon, delta), sound.

What one sample moves a gradient by, in steps of the code, and what that costs by Renyi divergences
(:mod:`~dpgt_node.privacy.counts.renyi`).  Nothing is gained from sampling here.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dpgt_node.privacy.accountants.accountant import NOT_KNOWN, Accountant
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.accountants.rounding import inflated, up
from dpgt_node.privacy.counts import renyi
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.mechanisms import Mechanism
from dpgt_node.types import F64


def _covers(mechanism: Mechanism) -> bool:
    return mechanism.accounted.noise_on == "coins"


def _curve(r: Releases) -> F64:
    parts = r.shares[r.shares > 0.0]
    shifts = {part: _shift(r, part) for part in set(parts.tolist())}
    costs = renyi.curve(_code(r).trials, np.array([shifts[part] for part in parts.tolist()]), r.dimension or 0, r.delta)
    ahead = np.concatenate((np.zeros(1), up(costs, 64)))
    released = np.cumsum(r.shares > 0.0)
    rows = np.empty(2 * (r.K + 1))
    rows[1::2] = ahead[released]
    rows[0::2] = np.concatenate((np.zeros(1), ahead[released[:-1]]))
    return rows


def _shift(r: Releases, part: float) -> float:
    """How far one sample moves a gradient of ``part`` of C2/m, in steps of the code: L2, its arithmetic included."""
    code, d = _code(r), r.dimension or 0
    if r.C2 is None:
        raise ValueError("no L2 adjacency constant is known")
    lost = code.levels * 2.0**-50  # a coordinate, in both worlds together; uniform numbers have 53 bits
    return up(part * inflated(r.C2, r.batch) / (r.batch * code.step) + math.sqrt(d) * lost, 8)


def _code(r: Releases) -> BinomialCode:
    if r.code is None:
        raise ValueError("the code of the gradients is not known")
    return r.code


def _too_few(r: Releases) -> str | None:
    if not r.dimension:
        return f"d {NOT_KNOWN}"
    if r.code is None:
        return f"the code of the gradients {NOT_KNOWN}"
    if not r.noisy:
        return None
    largest = _shift(r, float(r.shares.max()))
    if largest > renyi.MOST_STEPS:
        return f"one sample moves a gradient by {largest:.4g} steps of its code: take fewer method.levels"
    least = renyi.least_trials(largest, r.dimension * int(np.count_nonzero(r.shares)), r.delta)
    if r.code.trials < least:
        return f"{r.code.trials} coins are too few to hide anything: method.trials must be {least} or more"
    return None


BINOMIAL: Final = Accountant(
    "binomial",
    "binomial (epsilon, delta)",
    "approximate",
    _covers,
    "is for gradients with coins in their code; the mechanism is {mechanism}",
    _curve,
    amounts=lambda epsilon, delta: {},
    contracts=False,
    aside=True,
    also=_too_few,
    any_batches=True,
    remark="Renyi divergences of the codes",
)
