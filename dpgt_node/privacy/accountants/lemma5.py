"""The paper's own accountant, Lemmas 4 and 5: CONDITIONAL.

For k >= 1 the private x_k of two adjacent data sets differ, so all m sampled gradients differ, not one, and Lemma 4
drops that term.
"""

from __future__ import annotations

from typing import Final

from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.accountants.pure import Sensitivity, lemma4, lemma5
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.mechanisms import TRACKING, Accounted, Mechanism
from dpgt_node.types import F64


def _both_streams(mechanism: Mechanism) -> bool:
    return mechanism in TRACKING and not mechanism.x_public


_COVERED = [one.name for one in TRACKING if _both_streams(one)]


def _curve(r: Releases) -> F64:
    return lemma5(shifts_of(r, r.C or 0.0), r.sigma_x, r.sigma_y)


def shifts_of(r: Releases, C: float) -> Sensitivity:
    """Lemma 4's shifts of these releases under the constant ``C``."""
    return lemma4(a=r.a, b=r.b, gamma=r.gamma, m=r.batch, C=C, K=r.K)


def _forecast(accounted: Accounted, a: float, b: float, gamma: float, unit: float, K: int) -> Sensitivity:
    return lemma4(a=a, b=b, gamma=gamma, m=1, C=unit, K=K)


LEMMA5: Final = Accountant(
    "lemma5",
    "Lemma 5 (paper; conditional)",
    "epsilon",
    _both_streams,
    f"describes the releases of {' and '.join(_COVERED)} only; the mechanism is {{mechanism}}",
    _curve,
    shifts=_forecast,
    sound=False,
    title="Lemma 5",
    contracts=False,
)
