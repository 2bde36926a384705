"""Something against epsilon: one dot a run, on a logarithmic axis; without a finite epsilon a run stands at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpgt_node.report import svg
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NONE = "infinite"
_ROOM = 0.35
"""Decades beside the outermost runs, and before those without an epsilon."""
_LABEL = 0.2
"""Room that the word for them takes, of the axis."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A run at ``epsilon`` (infinite: none) and ``value``, with a line from ``low`` to ``high``.

    ``hollow``: the epsilon is no guarantee.  ``beside``: a short line at that height, for what is compared with it.
    """

    letter: str
    colour: str
    epsilon: float
    value: float
    low: float
    high: float
    hollow: bool
    beside: float | None = None


def places(dots: Sequence[Dot]) -> list[float]:
    """Where each dot stands on the axis, in decades: log10 of its epsilon; without one, right of all others."""
    known = [math.log10(dot.epsilon) for dot in dots if 0.0 < dot.epsilon < math.inf]
    last = max(known, default=0.0) + 2 * _ROOM
    return [math.log10(dot.epsilon) if 0.0 < dot.epsilon < math.inf else last for dot in dots]


def draw(key: str, title: str, label: str, dots: Sequence[Dot], guess: float | None, *, percent: bool) -> str:
    """The chart as an ``<svg>`` element.  ``guess``: what a guess reaches, a dashed line; None: not known."""
    from matplotlib.figure import Figure

    titles: dict[str, str] = {}
    with svg.style(key):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        axes = figure.add_subplot()
        for x, dot in zip(places(dots), dots, strict=True):
            gid = f"{key}-{dot.letter}"
            titles[gid] = f"{dot.letter}: {dot.value:.4g}"
            axes.plot([x, x], [dot.low, dot.high], color=dot.colour, linewidth=2, zorder=3)
            axes.plot([x], [dot.value], "o", color=dot.colour, gid=gid, zorder=4, markersize=7,
                      markerfacecolor=svg.SURFACE if dot.hollow else dot.colour, markeredgewidth=1.8)  # fmt: skip
            axes.annotate(dot.letter, (x, dot.value), (8, 0), textcoords="offset points", va="center", color=svg.INK,
                          fontweight="bold")  # fmt: skip
            if dot.beside is not None:
                axes.plot([x - 0.1, x + 0.1], [dot.beside, dot.beside], color=svg.MUTED, linewidth=2, zorder=2)
        if guess is not None:
            axes.axhline(guess, color=svg.MUTED, linewidth=1, linestyle=(0, (4, 3)), gid=f"{key}-guess", zorder=1)
            titles[f"{key}-guess"] = "guessing"
        _epsilon_axis(axes, dots)
        axes.set_ylabel(label)
        axes.margins(y=0.12)
        if percent:
            axes.set_ylim(0, 1.02)
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        return svg.inline(figure, key, f"{title} against epsilon", titles)


def _epsilon_axis(axes: Axes, dots: Sequence[Dot]) -> None:
    """1, 10, 100, ... on it, 2 and 5 between them where there is room."""
    at = places(dots)
    known = [x for x, dot in zip(at, dots, strict=True) if dot.epsilon < math.inf]
    low, high = min(at) - _ROOM, max(at) + _ROOM
    axes.set_xlim(low, high)
    ticks: dict[float, str] = {}
    if known:
        top = max(known) + _ROOM
        subs = (1, 2, 5) if top - low < 3 else (1,)
        step = max(1, math.ceil((top - low) / 6))
        for decade in range(math.floor(low), math.ceil(top) + 1):
            for sub in subs if step == 1 else (1,):
                x = decade + math.log10(sub)
                if low <= x <= top and decade % step == 0:
                    value = sub * 10.0**decade
                    ticks[x] = f"{value:,.0f}" if 1 <= value < 1e10 else f"{value:g}"
    if len(known) < len(dots):
        # A number under it would be read as its epsilon.
        end = max(at) - max(_ROOM, _LABEL * (high - low))
        ticks = {x: words for x, words in ticks.items() if x < end}
        ticks[max(at)] = NONE
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xlabel("largest epsilon of an agent")
