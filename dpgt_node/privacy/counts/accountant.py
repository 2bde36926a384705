"""Gradients coded as integers with a count of fair coins in them: (epsilon, delta), sound.

Half of delta is left for the composition, the other half shared equally by the releases.  Of a release's share half is
the delta of Theorem 1, half what the bounds on rounded gradients fail with (:mod:`~dpgt_node.privacy.counts.cpsgd`).
Nothing is gained from sampling here.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.accountants.rounding import inflated, up
from dpgt_node.privacy.counts import cpsgd
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.mechanisms import Mechanism
from dpgt_node.types import F64


def _covers(mechanism: Mechanism) -> bool:
    return mechanism.accounted.noise_on == "coins"


def _curve(r: Releases) -> F64:
    share = _share(r)
    each = {part: _epsilon(r, part, share) for part in set(r.shares.tolist()) - {0.0}}
    epsilons = np.array([each[part] for part in r.shares.tolist() if part])
    ahead = np.concatenate((np.zeros(1), up(cpsgd.composed(epsilons, 0.5 * r.delta), 4 * r.K + 64)))
    released = np.cumsum(r.shares > 0.0)
    rows = np.empty(2 * (r.K + 1))
    rows[1::2] = ahead[released]
    rows[0::2] = np.concatenate((np.zeros(1), ahead[released[:-1]]))
    return rows


def _share(r: Releases) -> float:
    """Delta of one release."""
    return 0.5 * r.delta / int(np.count_nonzero(r.shares))


def _epsilon(r: Releases, part: float, share: float) -> float:
    """Of a release whose gradient moves by ``part`` of C/m."""
    code, d, (w1, w2) = _code(r), r.dimension or 0, _shift(r, part)
    failing = 0.5 * share - d * 2.0**-52  # uniform numbers have 53 bits, and coins are off by 2^-100
    if failing <= 0.0:
        return math.inf
    D1, D2, Dinf = cpsgd.rounded(d, w1, w2, failing)
    return up(cpsgd.epsilon_of(d, 0.5 * share, D1, D2, Dinf, code.trials), 64)


def _shift(r: Releases, part: float) -> tuple[float, float]:
    """How far one sample moves a gradient, in steps of the code: (L1, L2), its arithmetic included."""
    code, d = _code(r), r.dimension or 0
    lost = code.levels * 2.0**-50  # a coordinate, in both worlds together
    if r.C2 is None:
        raise ValueError("no L2 adjacency constant is known")
    C1 = math.sqrt(d) * r.C2 if r.C is None else r.C
    w1, w2 = (part * inflated(C, r.batch) / (r.batch * code.step) for C in (C1, r.C2))
    return up(w1 + d * lost, 8), up(w2 + math.sqrt(d) * lost, 8)


def _code(r: Releases) -> BinomialCode:
    if r.code is None:
        raise ValueError("the code of the gradients is not known")
    return r.code


def _too_few(r: Releases) -> str | None:
    if not r.dimension:
        return "d is not known here"
    if r.code is None:
        return "the code of the gradients is not known here"
    if not r.noisy:
        return None
    share, largest = _share(r), float(r.shares.max())
    _, w2 = _shift(r, largest)
    least = math.ceil(4.0 * cpsgd.least_variance(r.dimension, 0.5 * share, math.floor(w2) + 1.0))
    if r.code.trials < least:
        return f"{r.code.trials} coins are too few for its theorem: method.trials must be {least} or more"
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
    remark="cpSGD's theorem, optimal composition",
)
