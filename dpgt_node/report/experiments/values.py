"""What stands on the page of an experiment: lines in panels, and claims beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dpgt_node.values import dataclass

Verdict = Literal["reproduced", "not reproduced", "not decidable from the paper", "too close to call"]
"""The last one is about the measurement: these seeds cannot tell."""
VERDICTS: tuple[Verdict, ...] = (
    "reproduced",
    "not reproduced",
    "not decidable from the paper",
    "too close to call",
)
Scale = Literal["linear", "log"]


@dataclass(frozen=True, slots=True)
class Point:
    """A mean over seeds or graphs at ``x``, with the least and the largest of them."""

    x: float
    mean: float
    low: float
    high: float

    @classmethod
    def over(cls, x: float, values: Sequence[float]) -> Point:
        """Of at least one value."""
        return cls(x, sum(values) / len(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Line:
    """One curve.  ``runs``: names of the run folders that it comes from.  ``beside``: a bound or a reference."""

    label: str
    points: tuple[Point, ...]
    runs: tuple[str, ...] = ()
    beside: bool = False
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.  ``key``: of its files, unique within its section.  ``percent``: y is a fraction."""

    key: str
    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    caption: str
    percent: bool = False
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper beside what was measured.  ``reading``: of an ambiguous one, which; "" where it is plain.

    ``measured``: the numbers that ``verdict`` follows from; ``reason``: why it follows.
    """

    id: str
    text: str
    verdict: Verdict
    measured: str
    reason: str
    reading: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """``rows`` of cells as text, under ``heads``."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One family of runs.  ``pending``: what could not be shown, and why, one line each."""

    key: str
    title: str
    lead: str
    panels: tuple[Panel, ...] = ()
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """All of an experiment's folder.  ``cite``: how to cite its numbers; ``failed``: missing runs, with why."""

    title: str
    lead: str
    cite: str
    sections: tuple[Section, ...]
    failed: tuple[tuple[str, str], ...] = ()
