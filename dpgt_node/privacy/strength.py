"""One word for an epsilon: what somebody who saw the transcript can do against one sample, at best.

    hit rate <= e^epsilon x false-alarm rate + delta

bounds every test that says "this sample was in it".  The words are by that bound:

    strong     at most 3 % hits at 1 % false alarms        (epsilon up to ln 3 = 1.10)
    moderate   at most 50 % hits at 1 % false alarms       (up to ln 50 = 3.91)
    weak       below 100 % hits at 0.01 % false alarms     (below ln 10,000 = 9.21)
    none       every hit is possible with less than one false alarm in 10,000

``none`` is also the word where no proof stands behind the number: an accountant that is conditional, a C that is
declared and not enforced, a delta of 1/D or more, an epsilon that is infinite or absent.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, get_args

from dpgt_node.privacy.accountants.registry import ACCOUNTANTS

Strength = Literal["strong", "moderate", "weak", "none"]
WORDS: Final[tuple[str, ...]] = get_args(Strength)


def hit_rate(epsilon: float, delta: float, false_alarms: float) -> float:
    """The most that the hit rate of any test can be at this false-alarm rate, in [0, 1]."""
    return min(1.0, math.exp(min(epsilon, 700.0)) * false_alarms + delta)


def strength(
    accountant: str | None, epsilon: float | None, delta: float, *, samples: int | None, enforced: bool
) -> Strength:
    """The word for ``epsilon`` of ``accountant`` (None: of no single one, sound all the same).

    ``delta``: of the run, which a pure accountant does not need; of a total, its delta.  ``samples``: D, the largest
    where several agents are meant; None where it is not known.  ``enforced``: whether clips enforce C.
    """
    one = None if accountant is None else ACCOUNTANTS[accountant]
    if epsilon is None or not epsilon < math.inf or not enforced or (one is not None and not one.sound):
        return "none"
    if one is not None and one.pure:
        delta = 0.0
    if void(delta, samples) or hit_rate(epsilon, delta, 1e-4) >= 1.0:
        return "none"
    hits = hit_rate(epsilon, delta, 1e-2)
    return "strong" if hits <= 0.03 else "moderate" if hits <= 0.5 else "weak"


@lru_cache(maxsize=256)  # thousands of agents ask the same
def void(delta: float, samples: int | None) -> bool:
    """Whether ``delta`` is 1/D or more: it would allow to publish one sample outright."""
    if samples is None or samples <= 0:
        return False
    return delta >= 1.0 / samples or Fraction(repr(float(delta))) * samples >= 1  # as computed, and as written


def delta_warning(delta: float, samples: int | None) -> str | None:
    """What is said wherever an epsilon stands beside such a delta; None where delta is small enough."""
    if not void(delta, samples):
        return None
    return (
        f"delta = {delta:g} is 1/D = 1/{samples} or more: it would allow to publish one sample outright, so no "
        "(epsilon, delta) here protects anything; take a delta far below 1/D"
    )
