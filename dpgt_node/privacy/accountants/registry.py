"""Every accountant by name, in the order of tables and columns.  Adding one: its file, and its place here.

Of several that speak, a plan takes the last; of equal values, a headline names the last pure one, since the smaller
claim needs no delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.accountants.amplified import AMPLIFIED
from dpgt_node.privacy.accountants.corrected import CORRECTED
from dpgt_node.privacy.accountants.gdp import GDP
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.responses.same_point import SAME_POINT
from dpgt_node.privacy.accountants.responses.variation import VARIATION
from dpgt_node.privacy.accountants.tight import TIGHT
from dpgt_node.privacy.accountants.zcdp import ZCDP
from dpgt_node.privacy.counts.accountant import BINOMIAL
from dpgt_node.privacy.mechanisms import TRACKING

ACCOUNTANTS: Final[Mapping[str, Accountant]] = {
    one.name: one for one in (LEMMA5, CORRECTED, TIGHT, AMPLIFIED, ZCDP, GDP, BINOMIAL, SAME_POINT, VARIATION)
}


def _names(chosen: Iterable[Accountant]) -> tuple[str, ...]:
    return tuple(one.name for one in chosen)


PURE: Final = _names(one for one in ACCOUNTANTS.values() if one.sound and one.pure)
"""Sound accountants whose epsilon comes without a delta."""
APPROXIMATE: Final = _names(one for one in ACCOUNTANTS.values() if one.sound and not one.pure)
"""Sound accountants of (epsilon, delta)."""
SOUND: Final = PURE + APPROXIMATE
CONDITIONAL: Final = _names(one for one in ACCOUNTANTS.values() if not one.sound)
"""No proof stands behind these: they cap a budget only where its owner names one."""
EPSILONS: Final = _names(one for one in ACCOUNTANTS.values() if one.guarantee != "total-variation")
"""Those whose values are epsilons, which a budget is counted in."""
PLANNED: Final = _names(one for one in ACCOUNTANTS.values() if any(map(one.covers, TRACKING)))
"""Those that a plan may keep to: they speak of a mechanism of Algorithm 1."""
HEADLINE: Final = PURE[::-1] + APPROXIMATE[::-1]
"""The sound ones in the order in which equal values are named."""


def called(name: str) -> str:
    """How an accountant is named beside a number: with "(conditional)" where no proof stands behind it."""
    return f"{name} (conditional)" if name in CONDITIONAL else name
