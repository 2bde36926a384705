"""Does one run break a guarantee?  Members of a run share its noise, so their hits are not independent of each other.

What is independent is who was taken.  Members and others come from one pool without order.  So put each member among k
others at random: m groups of k + 1 samples.  Given the groups, and who is in no group, each of the k + 1 is its group's
member with the same chance, whatever the other groups have; and another member in a group is one sample exchanged,
towards which a trade-off g holds: no test has more than g(alpha) hits at alpha false alarms, and g is concave.

Somebody names r members, at most one a group, by what was released.  With N of them right, p_i = P(N = i), and

    a_c = sum_{i >= c} i p_i / m,    b_c = sum_{i >= c} (r - i) p_i / m:        a_c <= g(b_{c-1}/k)    for every c.

For c - 1 right names in other groups are an event like any other: "name t here, and c - 1 or more are right elsewhere"
is at most g times as likely where another than t is the member.  The left side sums what happens where t is the member,
the right side what happens where it is not (Mahloujifar, Melis and Chaudhuri 2024, there for k = 1).

How likely can N >= v be?  Mass moved to lower i, as far as the inequalities let it, breaks none of them: so tau is
possible only where the least masses are, p_v = tau and then p_{v-1}, p_{v-2}, ... each as small as its inequality
allows, and these must not exceed 1 in all.  Nothing is asked of the scores: those of a run may depend on each other in
any way.  A pure epsilon is refuted so nearly as if they did not.  A mu or a delta allows that one run in a million
tells nearly everybody, so one run refutes them only where it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dpgt_node.adversary.membership.rates import Guarantee
from dpgt_node.types import F64

MISS = 1e-6
"""That an honest run is accused by one call."""
BESIDE = (1, 9, 99, 999)
"""Others in a group: a name among a thousand tells what happens at 0.1 % false alarms."""
NAMED = (1.0, 0.3, 0.1, 0.03)
"""Shares of the groups in which a member is named: those where the highest score is farthest above the next."""
_LEAST = 5


def broken(members: F64, others: F64, guarantees: Sequence[Guarantee], seed: int = 0) -> str | None:
    """In words, where more members are named in one run than the guarantees, all of which hold, allow; wrong with a
    probability of at most 1e-6.  ``members``, ``others``: scores, higher for members.  ``seed``: of the groups.
    """
    if not guarantees:
        return None
    looks = [
        (k, m, named)
        for k in BESIDE
        if (m := min(len(members), len(others) // k)) >= _LEAST
        for named in dict.fromkeys(max(_LEAST, round(share * m)) for share in NAMED)
    ]
    for k, m, named in looks:
        right = named_right(members, others, k, m, named, np.random.default_rng([seed, k]))
        if not possible(right, named, m, k, guarantees, MISS / len(looks)):
            chance = _chance(right, named, m, k, guarantees)
            return (
                f"{right} of {named} members are named rightly among {k + 1} samples each, in {m} groups: "
                f"under the guarantee that has a probability of at most {chance:.1g}"
            )
    return None


def named_right(members: F64, others: F64, k: int, m: int, named: int, rng: np.random.Generator) -> int:
    """How many names are right of ``named``, in ``m`` groups of one member and ``k`` others."""
    groups = np.column_stack([rng.permutation(members)[:m], rng.permutation(others)[: m * k].reshape(m, k)])
    order = rng.permuted(np.broadcast_to(np.arange(k + 1), groups.shape), axis=1)  # a tie is not the member's
    groups = np.take_along_axis(groups, order, axis=1)
    top = groups.argmax(axis=1)
    best = np.partition(groups, k - 1, axis=1)[:, k - 1 :] if k > 1 else np.sort(groups, axis=1)
    with np.errstate(invalid="ignore"):
        ahead = np.nan_to_num(best[:, 1] - best[:, 0], nan=0.0, posinf=math.inf)
    chosen = np.argsort(-ahead, kind="stable")[:named]
    return int(np.count_nonzero(order[chosen, top[chosen]] == 0))


def possible(right: int, named: int, m: int, k: int, guarantees: Sequence[Guarantee], tau: float) -> bool:
    """Whether ``right`` or more of ``named`` names can be right with a probability of ``tau``."""
    least = _inverse(guarantees)
    a, b, whole = right * tau / m, (named - right) * tau / m, named / m
    for i in range(right - 1, -1, -1):
        more = max(0.0, k * least(a) - b)  # (named - i) p_i / m
        b += more
        a += more * i / (named - i)
        if a + b > whole * (1.0 + 1e-9):
            return False
    return True


def _chance(right: int, named: int, m: int, k: int, guarantees: Sequence[Guarantee]) -> float:
    """The largest probability that is possible, from above within a factor of 2."""
    tau = MISS
    while tau > 1e-300 and not possible(right, named, m, k, guarantees, tau / 2.0):
        tau /= 2.0
    return tau


def _inverse(guarantees: Sequence[Guarantee]) -> Callable[[float], float]:
    """The least false alarms at which so many hits are possible, under every one of ``guarantees``."""
    return lambda hits: max(one.false_alarms(hits) for one in guarantees)
