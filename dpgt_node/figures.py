"""Numbers and names as people read them: every command, page and file says one epsilon in one way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_DIGITS: Final = 4
_LONG: Final = 1e9
"""From here on a number is written with a power of ten."""


def epsilon(value: float | None, beside: float | None = None) -> str:
    """``48,210`` · ``12.35`` · ``1.23e+17`` · ``infinite``; a dash where none applies.

    ``beside``: another one in the same sentence, a cap say.  Where they differ, they look different.
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "infinite"
    apart = beside is not None and math.isfinite(beside) and beside != value
    digits = _DIGITS
    while apart and beside is not None and digits < 17 and _text(value, digits) == _text(beside, digits):
        digits += 1
    return _text(value, digits)


def _text(value: float, digits: int) -> str:
    if abs(value) >= _LONG:
        return f"{value:.{digits - 1}g}"
    return f"{value:,.0f}" if 10**digits - 0.5 <= abs(value) else f"{value:,.{digits}g}"


def number(value: float | None, digits: int = 3) -> str:
    """``digits`` significant digits, or all before the point below 10^9; a dash where there is no value."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "infinite"
    return f"{value:,.0f}" if 10**digits - 0.5 <= abs(value) < _LONG else f"{value:.{digits}g}"


def percent(share: float | None) -> str:
    """``61.7 %`` of 0.617, three digits; a dash where there is no value."""
    return "–" if share is None or math.isnan(share) else f"{100.0 * share:.3g} %"


def counted(count: int, what: str) -> str:
    """``1 missing value``, ``1,200 missing values``; ``what``: one of them."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def some(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """``agent-3, agent-7, agent-9 and 18 more``: the first ``most`` of the names, or all where they are no more."""
    rest = len(names) - most
    return between.join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")
