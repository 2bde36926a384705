"""One judged condition: both sides, the verdict, who fails it."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, Literal

from dpgt_node import figures
from dpgt_node.values import dataclass

Relation = Literal["<", "<=", ">", ">=", "="]
_HOLDS: Final[dict[Relation, Callable[[Fraction | float, Fraction | float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Check:
    """``lhs relation rhs``.  ``passed`` None: this machine cannot know (the note says what is missing).

    ``hard``: the run must not start when it fails; every other failing row is a warning.  ``said``: what to tell whom
    it fails, with the way out; empty: both sides speak for themselves.  ``applies`` False: the condition says nothing
    of such a run, and the note says why; it has no verdict.
    """

    name: str
    passed: bool | None
    lhs: float | None
    rhs: float | None
    relation: Relation
    note: str = ""
    hard: bool = False
    said: str = ""
    applies: bool = True

    @property
    def statement(self) -> str:
        """The row as text: ``name: lhs relation rhs (note)``; of one that fails ``said``, where there is any."""
        if self.passed is False and self.said:
            return self.said
        note = f" ({self.note})" if self.note else ""
        if self.relation == "=" and self.passed is False:
            return f"{self.name}: {shown(self.lhs)}, must be {shown(self.rhs)}{note}"
        sides = f"{shown(self.lhs)} {self.relation} {shown(self.rhs)}"
        verdict = {True: "holds", False: "does not hold", None: "is not known"}[self.passed]
        return f"{self.name}: {sides} {verdict}{note}"

    def noted(self, note: str) -> Check:
        """The same with ``note`` appended."""
        return replace(self, note="; ".join(part for part in (self.note, note) if part))

    def not_applying(self, why: str) -> Check:
        """The same without sides and verdict: it says nothing of this run, because of ``why``."""
        return replace(self, passed=None, lhs=None, rhs=None, note=why, applies=False)


def compare(
    name: str, lhs: float | None, relation: Relation, rhs: float | None, *, note: str = "", hard: bool = False
) -> Check:
    """Judge one pair of numbers; a missing side gives ``passed`` None."""
    passed = None if lhs is None or rhs is None else _HOLDS[relation](lhs, rhs)
    return Check(name, passed, lhs, rhs, relation, note, hard)


def compare_decimals(name: str, lhs: Fraction, relation: Relation, rhs: Fraction | int, *, note: str = "") -> Check:
    """Judge sums of numbers as they were written: 1.69 - 0.69 >= 1 holds, in float64 it would not."""
    return Check(name, _HOLDS[relation](lhs, Fraction(rhs)), float(lhs), float(rhs), relation, note)


def decimal(value: float) -> Fraction:
    """The decimal number that was written for ``value`` (its shortest representation), exactly."""
    return Fraction(repr(float(value)))


def worst(
    name: str,
    names: Sequence[str],
    lhs: Sequence[float],
    relation: Relation,
    rhs: Sequence[float],
    *,
    note: str = "",
    hard: bool = False,
) -> Check:
    """One row for a condition on every agent: the one nearest to failing gives the sides, the note names who fails."""
    holds = _HOLDS[relation]
    failing = [name_i for name_i, a, b in zip(names, lhs, rhs, strict=True) if not holds(a, b)]
    sign = 1.0 if relation in ("<", "<=") else -1.0
    tight = max(range(len(names)), key=lambda i: _margin(sign, lhs[i], rhs[i]))
    row = Check(name, not failing, lhs[tight], rhs[tight], relation, "", hard)
    return row.noted(f"fails: {listed(failing, len(names))}" if failing else "").noted(note)


def listed(names: Sequence[str], of: int = 0) -> str:
    """``names`` as text, the first few of them; ``all 2,000 agents`` where there are ``of`` and all are concerned."""
    return f"all {of:,} agents" if len(names) == of > _NAMED else figures.some(names, _NAMED)


def conjunction(name: str, rows: Sequence[Check], *, note: str = "") -> Check:
    """All of ``rows``: fails when one fails, unknown when none fails but one is unknown; lhs counts those that hold."""
    failing, unknown = _sources(rows, False), _sources(rows, None)
    held = float(sum(row.passed is True for row in rows))
    row = Check(name, False if failing else None if unknown else True, held, float(len(rows)), "=")
    row = row.noted(f"fails in {failing}" if failing else "").noted(f"unknown in {unknown}" if unknown else "")
    return row.noted(note)


_NAMED: Final = 5
"""So many agents are named in a note."""

_OF_EIGENVALUES: Final = ("Re(w)", "rho(", "r1 ", "r2 ", "least real part")
"""What a row's name says when its sides rest on eigenvalues, or on the contraction rates that follow from them."""
BOUNDED: Final = "of so many agents the eigenvalues are bounded, not computed"


def judged_by_bounds(rows: Sequence[Check], bounded: bool) -> list[Check]:
    """``rows`` where eigenvalues are ``bounded`` on the safe side only: what holds by a bound holds; what does not may
    hold all the same, so that nobody knows.
    """
    if not bounded:
        return list(rows)
    return [
        (row if row.passed else replace(row, passed=None)).noted(BOUNDED)
        if any(word in row.name for word in _OF_EIGENVALUES) and row.passed is not None
        else row
        for row in rows
    ]


def _sources(rows: Sequence[Check], verdict: bool | None) -> str:
    """Which assumptions and theorems have rows with this verdict, and how many when there are several."""
    counts = Counter(row.name.partition(":")[0] for row in rows if row.passed is verdict)
    return ", ".join(f"{name} ({count} rows)" if count > 1 else name for name, count in counts.items())


def shown(value: float | None) -> str:
    """Six digits, "-" for a missing side."""
    return "-" if value is None else f"{value:.6g}"


def json_number(value: float | None) -> float | str | None:
    """JSON has no infinity and no NaN: "inf", "-inf"; NaN is a bug."""
    if value is None or math.isfinite(value):
        return value
    assert not math.isnan(value)
    return "inf" if value > 0 else "-inf"


def _margin(sign: float, lhs: float, rhs: float) -> float:
    return -math.inf if math.isinf(rhs) else sign * (lhs - rhs)
