"""Hits and false alarms of a membership attack: AUC, ROC, rates at few false alarms, and the ceiling that a guarantee
puts on them.

Whoever has (epsilon, delta) towards the exchange of one sample cannot be told from the world with another one by any
test whose hits exceed

    f(alpha) = min(e^epsilon alpha + delta,  1 - e^-epsilon (1 - delta - alpha))
    f(alpha) = Phi(Phi^-1(alpha) + mu)                                              under mu-GDP

alpha the rate of false alarms (Kairouz, Oh and Viswanath 2015; Dong, Roth and Su 2022).  Members and others are drawn
from one pool without order, so the rates of an attack on the pool are averages of such tests, and f is concave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist

import numpy as np

from dpgt_node.adversary.audit.bounds import clopper_pearson
from dpgt_node.types import F64
from dpgt_node.values import dataclass

FEW = {"1_percent": 0.01, "0.1_percent": 0.001}
"""Rates of false alarms at which hits are reported, by how their keys call them."""
WITHIN = "intervals are of the members of this run, not of other runs"
"""What must stand beside :func:`measured` where no other run is known."""
_NORMAL = NormalDist()
_Z95 = _NORMAL.inv_cdf(0.975)
_POINTS = 4001
_LOW_END = -10.0
"""A grid of false alarms goes down to 10 to that power."""


def auc(members: F64, others: F64) -> tuple[float, float, float]:
    """AUC with its 95 % interval: DeLong's variance, on the logit; at 0 and 1 the exact bound of so many successes."""
    above = (members[:, None] > others).astype(np.float64) + 0.5 * (members[:, None] == others)
    value, n, o = float(above.mean()), len(members), len(others)
    if value in (0.0, 1.0):
        edge = 1.0 - 0.025 ** (1.0 / min(n, o))
        return value, (1.0 - edge if value else 0.0), (1.0 if value else edge)
    variance = float(above.mean(axis=1).var(ddof=1)) / n + float(above.mean(axis=0).var(ddof=1)) / o
    half = _Z95 * math.sqrt(variance) / (value * (1.0 - value))
    logit = math.log(value / (1.0 - value))
    low, high = (1.0 / (1.0 + math.exp(-x)) for x in (logit - half, logit + half))
    return value, low, high


def area(members: F64, others: F64) -> float:
    """AUC alone, by ranks: for any number of scores."""
    from scipy.stats import rankdata

    n, o = len(members), len(others)
    ranks = rankdata(np.concatenate([members, others]))
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * o))


def hits(members: F64, others: F64, false_alarms: float) -> float:
    """The share of members above the lowest threshold that at most this share of others exceeds (TPR at an FPR)."""
    return _counted(members, others, false_alarms) / len(members)


def _counted(members: F64, others: F64, false_alarms: float) -> int:
    allowed = math.floor(false_alarms * len(others) + 1e-9)
    return int(np.count_nonzero(members > np.sort(others)[::-1][min(allowed, len(others) - 1)]))


def measured(members: F64, others: F64, prefix: str = "") -> dict[str, float | None]:
    """AUC and hits at few false alarms, each with its 95 % interval (hits: Clopper and Pearson's, at the threshold that
    these others give), and how many there are of both.
    """
    value, low, high = auc(members, others)
    out: dict[str, float | None] = {f"{prefix}auc": value, f"{prefix}auc_low": low, f"{prefix}auc_high": high}
    for name, share in FEW.items():
        count = _counted(members, others, share)
        low, high = clopper_pearson(count, len(members), 0.025)
        key = f"{prefix}tpr_at_{name}"
        out |= {key: count / len(members), f"{key}_low": low, f"{key}_high": high}
    if not prefix:
        out |= {"members": float(len(members)), "others": float(len(others))}
    return out


def expected(members: F64, others: F64, prefix: str = "") -> dict[str, float | None]:
    """The same keys without intervals, of scores in simulated runs."""
    out: dict[str, float | None] = {f"{prefix}auc": area(members, others)}
    return out | {f"{prefix}tpr_at_{name}": hits(members, others, share) for name, share in FEW.items()}


def widened(found: Mapping[str, float | None], runs: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """``found`` with intervals that count one run as one draw: of the attack's rate over runs, not of these members.

    Members of a run share its noise.  So an interval reaches at least as far as Student's t does around the one value
    that was measured, with the deviation of the same numbers in ``runs``, simulated runs in its place.
    """
    from scipy.stats import t

    out = dict(found)
    for key in [key.removesuffix("_low") for key in found if key.endswith("_low")]:
        over = [value for run in runs if (value := run.get(key)) is not None]
        value, low, high = (found[name] for name in (key, f"{key}_low", f"{key}_high"))
        if len(over) < 2 or value is None or low is None or high is None:
            continue
        half = float(t.ppf(0.975, len(over) - 1)) * float(np.std(over, ddof=1))
        out[f"{key}_low"] = max(0.0, min(low, value - half))
        out[f"{key}_high"] = min(1.0, max(high, value + half))
    return out


def roc(members: F64, others: F64) -> tuple[F64, F64]:
    """(false alarms, hits): an entry (i/c, share of members above the i-th highest of the c others) for every i."""
    false = np.sort(others)[::-1]
    above = len(members) - np.searchsorted(np.sort(members), false, side="right")
    return np.arange(len(false) + 1) / len(false), np.concatenate([[0.0], above / len(members)])


def thinned(x: F64, y: F64, points: int) -> tuple[F64, F64]:
    """At most about so many points of a curve over false alarms, equally spaced in their logarithm."""
    if len(x) <= points:
        return x, y
    at = np.unique(np.concatenate([[0], np.geomspace(1, len(x) - 1, points).astype(np.int64)]))
    return x[at], y[at]


# ---------------------------------------------------------------- what a guarantee allows
@dataclass(frozen=True, slots=True)
class Guarantee:
    """What ``accountant`` says of an agent's releases: (epsilon, delta), delta 0.0 where it is pure; or ``mu``."""

    accountant: str
    epsilon: float
    delta: float = 0.0
    mu: float | None = None

    def ceiling(self, false_alarms: F64) -> F64:
        """The most hits of any test with these false alarms, both in [0, 1]."""
        alpha = np.asarray(false_alarms, dtype=np.float64)
        if self.mu is not None:
            from scipy.special import ndtr, ndtri

            return np.asarray(ndtr(ndtri(alpha) + self.mu)) if math.isfinite(self.mu) else np.ones_like(alpha)
        if not math.isfinite(self.epsilon):
            return np.ones_like(alpha)
        # Beyond e^700 nothing is bounded anyway.
        grown = math.exp(min(self.epsilon, 700.0))
        first, second = grown * alpha + self.delta, 1.0 - (1.0 - self.delta - alpha) / grown
        return np.asarray(np.clip(np.minimum(first, second), alpha, 1.0))

    def false_alarms(self, hits: float) -> float:
        """The least false alarms of any test with these hits: the inverse of :meth:`ceiling`."""
        if self.mu is not None:
            if not math.isfinite(self.mu) or not 0.0 < hits < 1.0:
                return 1.0 if hits >= 1.0 and math.isfinite(self.mu) else 0.0
            return 0.5 * math.erfc((self.mu - _NORMAL.inv_cdf(hits)) / math.sqrt(2.0))
        if self.epsilon > 700.0:
            return 0.0
        grown = math.exp(self.epsilon)
        return max(0.0, (hits - self.delta) / grown, 1.0 - self.delta - grown * (1.0 - hits))


def ceiling(guarantees: Iterable[Guarantee], false_alarms: F64) -> F64:
    """The least of what several allow; all ones where there is none."""
    alpha = np.asarray(false_alarms, dtype=np.float64)
    out = np.ones_like(alpha)
    for one in guarantees:
        out = np.minimum(out, one.ceiling(alpha))
    return out


def bounds(guarantees: Sequence[Guarantee]) -> dict[str, float | None]:
    """``bound_auc`` and ``bound_tpr_at_...``: the most that any attack reaches; {} where nothing is guaranteed."""
    if not guarantees:
        return {}
    alpha = np.concatenate([[0.0], np.logspace(_LOW_END, 0.0, _POINTS // 2), np.linspace(0.0, 1.0, _POINTS)])
    alpha.sort()
    top = ceiling(guarantees, alpha)
    out: dict[str, float | None] = {"bound_auc": float(np.trapezoid(top, alpha))}
    for name, share in FEW.items():
        out[f"bound_tpr_at_{name}"] = float(ceiling(guarantees, np.array([share]))[0])
    return out
