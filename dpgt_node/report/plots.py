"""The report's drawings: curves over k and the two graphs, as SVG for the page (:mod:`dpgt_node.report.svg`).

matplotlib is imported by the functions that draw, never by a daemon that only writes metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology
from dpgt_node.report import svg
from dpgt_node.types import F64
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Mapping[float, float]
Scale = Literal["linear", "log", "percent"]
LOG_SPAN_MIN = 30.0
NAMES_MAX = 12
NUMBERS_MAX = 40
LABEL_MAX = 16
CROWD = 200
EDGES = 3_000
RING = 1.4
"""Of the ring around a common root, in radii of an agent."""


@dataclass(frozen=True)
class Curves:
    """One chart: ``series`` maps an agent's name to its values by k; only finite values are drawn.

    Up to :data:`svg.SERIES_MAX` agents have a colour each, in the order of ``series``; more become their range, their
    median and the agent ``worst``.  ``worst`` None: nothing is highlighted.
    """

    key: str
    title: str
    scale: Scale
    series: Mapping[str, Points]
    worst: str | None = None
    x_label: str = "k"

    def drawable(self) -> bool:
        """Whether there is any point to draw."""
        return bool(self._clean)

    @cached_property
    def logarithmic(self) -> bool:
        """Whether the values span enough decades for the log scale that was asked for."""
        if self.scale != "log":
            return False
        values = [v for points in self.series.values() for v in points.values() if math.isfinite(v) and v > 0]
        return bool(values) and max(values) > LOG_SPAN_MIN * min(values)

    @cached_property
    def _clean(self) -> dict[str, dict[float, float]]:
        """The points that can be drawn, of the agents that have any."""
        above = 0.0 if self.logarithmic else -math.inf
        finite = {
            name: {k: v for k, v in points.items() if math.isfinite(v) and v > above}
            for name, points in self.series.items()
        }
        return {name: points for name, points in finite.items() if points}

    def draw(self) -> str:
        """The chart as an ``<svg>`` element."""
        from matplotlib.figure import Figure

        titles: dict[str, str] = {}
        with svg.style(self.key):
            figure = Figure(figsize=(5.6, 2.7), layout="constrained")
            axes = figure.add_subplot()
            clean = self._clean
            if len(self.series) <= svg.SERIES_MAX:
                self._lines(axes, clean, titles)
            else:
                self._range(axes, clean, titles)
            self._finish(axes, [v for points in clean.values() for v in points.values()])
            return svg.inline(figure, self.key, f"{self.title} over {self.x_label}", titles)

    def _lines(self, axes: Axes, clean: Mapping[str, Points], titles: dict[str, str]) -> None:
        for i, name in enumerate(self.series):
            if name not in clean:
                continue
            points = clean[name]
            gid = f"{self.key}-{i}"
            titles[gid] = name
            colour = svg.INK if len(self.series) == 1 else svg.SERIES[i]
            heavy = name == self.worst and len(self.series) > 1
            colour = svg.WORST if heavy else colour
            (line,) = axes.plot(list(points), list(points.values()), color=colour, gid=gid, marker=_marker(points))
            line.set(linewidth=2.6 if heavy else 1.5, zorder=4 if heavy else 3)

    def _range(self, axes: Axes, clean: Mapping[str, Points], titles: dict[str, str]) -> None:
        columns: dict[float, list[float]] = {}
        for points in clean.values():
            for k, value in points.items():
                columns.setdefault(k, []).append(value)
        ks = sorted(columns)
        low, middle, high = ([float(f(columns[k])) for k in ks] for f in (np.min, np.median, np.max))
        axes.fill_between(ks, low, high, color=svg.ACCENT, alpha=0.18, linewidth=0, gid=f"{self.key}-range")
        axes.plot(ks, middle, color=svg.ACCENT, marker=_marker(ks), gid=f"{self.key}-median")
        titles |= {f"{self.key}-range": "all agents", f"{self.key}-median": "median"}
        worst = clean.get(self.worst or "")
        if worst:
            gid = f"{self.key}-worst"
            axes.plot(list(worst), list(worst.values()), color=svg.WORST, gid=gid, marker=_marker(worst))
            titles[gid] = f"{self.worst} (worst)"

    def _finish(self, axes: Axes, values: Sequence[float]) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

        axes.set_xlabel(self.x_label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
        axes.margins(x=0.02)
        if self.logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            return
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        if self.scale == "percent":
            axes.set_ylim(0, 1.02)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
            return
        bottom, top = axes.get_ylim()
        if min(values) == max(values) == 0:
            top = axes.set_ylim(top=1.0)[1]
        if bottom < 0.5 * top and min(values) >= 0:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))


def _marker(points: Sized) -> str:
    """A line through one point is invisible, and one through two or three says more than was measured."""
    return "o" if len(points) <= 3 else ""


def _plain(value: float, _position: int | None = None) -> str:
    return f"{value:,g}" if abs(value) < 1e6 else f"{value:.3g}"


def draw_roc(key: str, title: str, x: F64, y: F64, expected: tuple[F64, F64] | None = None) -> str:
    """The ROC curve of a membership attack as an ``<svg>`` element, with the diagonal of guessing.

    ``y[i]``: the share of members found while fewer than ``x[i]`` of the others are taken for members; both within
    [0, 1], x rising.  Drawn as the staircase that it is, so that the area below it is the AUC.  ``expected``: the same
    of what was foretold.
    """
    from matplotlib.figure import Figure

    with svg.style(key):
        figure = Figure(figsize=(5.6, 3.6), layout="constrained")
        axes = figure.add_subplot(aspect="equal", xlim=(0, 1), ylim=(0, 1))
        axes.plot([0, 1], [0, 1], color=svg.MUTED, linewidth=1, linestyle=(0, (4, 3)), gid=f"{key}-guess")
        steps = np.append(x, 1.0), np.append(y, 1.0)
        if expected is not None:
            axes.plot(*expected, color=svg.SERIES[1], gid=f"{key}-expected")
        axes.plot(*steps, color=svg.ACCENT, drawstyle="steps-pre", gid=f"{key}-roc", clip_on=False)
        axes.set_xlabel("false alarms: share of others taken for members")
        axes.set_ylabel("hits: share of members found")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        marks = {f"{key}-roc": title, f"{key}-guess": "guessing"}
        marks |= {} if expected is None else {f"{key}-expected": "expected"}
        return svg.inline(figure, key, f"{title}: ROC curve", marks)


def draw_roc_log(
    key: str, title: str, series: Mapping[str, tuple[F64, F64]], limits: Mapping[str, str] | None = None
) -> str:
    """ROC curves on logarithmic axes, as an ``<svg>`` element: what is found at few false alarms.

    ``limits``: which of the series is the most that another may reach; it is dotted, in the other's colour.
    """
    from matplotlib.figure import Figure

    with svg.style(key):
        figure = Figure(figsize=(5.6, 3.6), layout="constrained")
        low = min((float(x[x > 0].min()) for x, _ in series.values() if (x > 0).any()), default=1e-3)
        low = 10.0 ** math.floor(math.log10(max(min(low, 0.1), 1e-4)))
        axes = figure.add_subplot(xscale="log", yscale="log", xlim=(low, 1), ylim=(low, 1))
        axes.plot([low, 1], [low, 1], color=svg.MUTED, linewidth=1, linestyle=(0, (4, 3)), gid=f"{key}-guess")
        marks = {f"{key}-guess": "guessing"}
        of = limits or {}
        colours = {name: svg.SERIES[i % svg.SERIES_MAX] for i, name in enumerate(n for n in series if n not in of)}
        for at, (name, (x, y)) in enumerate(series.items()):
            shown, dots = (x > 0) & (y > 0), (0, (1, 1.8)) if name in of else "solid"
            axes.plot(x[shown], y[shown], color=colours[of.get(name, name)], linestyle=dots, gid=f"{key}-{at}")
            marks[f"{key}-{at}"] = name
        for axis in (axes.xaxis, axes.yaxis):
            ticks = [10.0**power for power in range(round(math.log10(low)), 1)]
            axis.set_ticks(ticks, [f"{100 * tick:g} %" for tick in ticks])
            axis.set_ticks([], minor=True)
        axes.set_xlabel("false alarms: share of others taken for members")
        axes.set_ylabel("hits: share of members found")
        return svg.inline(figure, key, f"{title}: ROC curves, logarithmic", marks)


def draw_graph(topology: Topology, which: Literal["R", "C"]) -> str:
    """G_R or G_C as an ``<svg>`` element: an arrow j -> i where i receives from j, roots filled, common roots ringed.

    Both graphs of a run put an agent at the same place.  The roots of C are those of the transposed graph: the agents
    that everybody's y̆ reaches.  Of more than CROWD agents each is a stroke of the circle, and an even choice of EDGES
    edges is drawn.
    """
    from matplotlib.figure import Figure

    edges = topology.in_R if which == "R" else topology.in_C
    roots = set(topology.roots_R if which == "R" else topology.roots_C)
    n = topology.n
    places, radius = _places(n), _radius(n)
    key = f"graph{which}"
    titles: dict[str, str] = {}
    with svg.style(key):
        # Room for the longest name beside the outermost agents, at the same size for every run.
        half = 1.25 + (0.062 * min(max(map(len, topology.names)), LABEL_MAX) if n <= NAMES_MAX else 0.0)
        figure = Figure(figsize=(2 * half * 1.3, 2 * 1.32 * 1.3))
        axes = figure.add_axes((0, 0, 1, 1), aspect="equal")
        axes.axis("off")
        axes.set(xlim=(-half, half), ylim=(-1.32, 1.32))
        if n > CROWD:
            return svg.inline(figure, key, _crowd(axes, edges, places, roots, which), titles)
        _edges(axes, topology.R if which == "R" else topology.C, places, radius)
        for i, name in enumerate(topology.names):
            _node(axes, places[i], radius, i in roots, i in topology.common_roots, f"{key}-{i}")
            titles[f"{key}-{i}"] = name + (", root" if i in roots else "")
        if n <= NUMBERS_MAX:
            _labels(axes, topology, places, roots, radius)
        return svg.inline(figure, key, f"Graph of {which}: {n} agents", titles)


def _crowd(axes: Axes, edges: Edges, places: F64, roots: set[int], which: Literal["R", "C"]) -> str:
    """Many agents as the strokes of a circle and some of their edges as two paths; what a screen reader says of it.

    ``edges``: those of R, or of C transposed: who sends and who receives changes nothing in the picture.
    """
    other = np.flatnonzero(edges.receivers != edges.senders)
    drawn = other[:: max(1, -(-len(other) // EDGES))]
    gap = np.full((len(drawn), 2), np.nan)
    lines = np.stack([places[edges.senders[drawn]], places[edges.receivers[drawn]], gap], axis=1).reshape(-1, 2)
    axes.plot(lines[:, 0], lines[:, 1], color=svg.MUTED, linewidth=0.3, alpha=0.6, zorder=1)
    for colour, agents in ((svg.MUTED, [i for i in range(len(places)) if i not in roots]), (svg.ACCENT, sorted(roots))):
        ends = np.stack([1.01 * places[agents], 1.05 * places[agents], np.full((len(agents), 2), np.nan)], axis=1)
        axes.plot(*ends.reshape(-1, 2).T, color=colour, linewidth=0.3, zorder=2)
    some = "" if len(drawn) == len(other) else f", {len(drawn):,} of them drawn"
    return f"Graph of {which}: {len(places):,} agents, {len(other):,} edges{some}"


def _places(n: int) -> F64:
    """Where each agent is drawn, shape (n, 2): on the unit circle, the first on top, then clockwise."""
    if n == 1:
        return np.zeros((1, 2))
    angles = 2 * np.pi * np.arange(n) / n
    return np.stack([np.sin(angles), np.cos(angles)], axis=1)


def _radius(n: int) -> float:
    """Of an agent: two neighbours on the circle and the rings around common roots stay apart."""
    most = 0.1 if n <= NAMES_MAX else 0.065
    return most if n < 3 else min(most, 0.9 * math.sin(math.pi / n) / RING)


def _edges(axes: Axes, weights: F64, places: F64, radius: float) -> None:
    from matplotlib.patches import Circle, FancyArrowPatch

    heaviest = float(weights.max(initial=0.0)) or 1.0
    few = len(places) <= NUMBERS_MAX
    for i, j in np.argwhere(weights > 0):
        width = (0.5 + 0.9 * float(weights[i, j]) / heaviest) * (1.0 if few else 0.4)
        if i == j:
            outward = places[i] / max(float(np.hypot(*places[i])), 1e-9)
            centre = places[i] + outward * 1.75 * radius
            axes.add_patch(Circle((float(centre[0]), float(centre[1])), 0.95 * radius, fill=False, edgecolor=svg.MUTED,
                                  linewidth=width, zorder=1))  # fmt: skip
            continue
        # Arrows of a pair in both directions bend apart.
        bend = 0.16 if weights[j, i] > 0 else 0.0
        start, end = _trimmed(places[j], places[i], 1.35 * radius)
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11 if few else 5, linewidth=width,
                                       connectionstyle=f"arc3,rad={bend}", color=svg.MUTED, shrinkA=0, shrinkB=0,
                                       alpha=1.0 if few else 0.6, zorder=1))  # fmt: skip


def _trimmed(start: F64, end: F64, gap: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """The segment without ``gap`` at both ends."""
    along = end - start
    length = max(float(np.hypot(*along)), 1e-9)
    along = along / length * min(gap, 0.4 * length)
    a, b = start + along, end - along
    return (float(a[0]), float(a[1])), (float(b[0]), float(b[1]))


def _node(axes: Axes, place: F64, radius: float, root: bool, common: bool, gid: str) -> None:
    from matplotlib.patches import Circle

    x, y = float(place[0]), float(place[1])
    if common:
        axes.add_patch(Circle((x, y), RING * radius, fill=False, edgecolor=svg.ACCENT, linewidth=1.4, zorder=2))
    axes.add_patch(Circle((x, y), radius, facecolor=svg.ACCENT if root else svg.SURFACE, gid=gid, zorder=3,
                          edgecolor=svg.ACCENT if root else svg.MUTED, linewidth=1.3))  # fmt: skip


def _labels(axes: Axes, topology: Topology, places: F64, roots: set[int], radius: float) -> None:
    for i, name in enumerate(topology.names):
        x, y = float(places[i, 0]), float(places[i, 1])
        colour = svg.SURFACE if i in roots else svg.INK
        small = 8.5 if topology.n <= NAMES_MAX else 6.5
        axes.text(x, y, str(i + 1), ha="center", va="center_baseline", color=colour, fontsize=small, zorder=4)
        if topology.n <= NAMES_MAX:
            loop = max(topology.R[i, i], topology.C[i, i]) > 0
            away = 1 + (2.2 + 1.4 * loop) * radius / max(math.hypot(x, y), 1e-9)
            label = svg.printable(name if len(name) <= LABEL_MAX else name[: LABEL_MAX - 1] + "…")
            axes.text(x * away, y * away, label, ha=_side(x), va="center", color=svg.INK, zorder=4)


def _side(x: float) -> Literal["left", "center", "right"]:
    if abs(x) < 0.2:
        return "center"
    return "left" if x > 0 else "right"
