"""A panel as a matplotlib figure, and as SVG, PNG and CSV.  Equal data give equal SVG and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpgt_node.report.experiments.values import Line, Panel, Point

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_COLOURS = ("#1f5fbf", "#b98400", "#1a8a6a", "#a3399b", "#c2351b", "#4d7c0f", "#0e8aa8", "#7454c6", "#8a5a3c", "#444")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
_MUTED, _LINE, _INK = "#63676f", "#e3e0d8", "#1d1f24"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "experiment",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.7,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "text.color": _INK,
    "lines.linewidth": 1.5,
}
_DOTS = 170


def style() -> Any:
    """The settings to draw and save under, as a context."""
    import matplotlib

    settings: Any = _STYLE
    return matplotlib.rc_context(settings)


def look(lines: Sequence[Line], i: int) -> tuple[str, Any]:
    """Colour and dashes of line ``i``: bounds and references are grey."""
    if lines[i].beside:
        at = sum(line.beside for line in lines[:i])
        return ("#8b8f97", "#55585e")[at % 2], _DASHES[1:][at % 3]
    at = sum(not line.beside for line in lines[:i])
    return _COLOURS[at % len(_COLOURS)], _DASHES[at // len(_COLOURS) % len(_DASHES)]


def shown(panel: Panel, line: Line) -> tuple[Point, ...]:
    """The points that can be drawn: finite, and positive where the scale is a logarithm."""
    return tuple(
        p
        for p in line.points
        if all(math.isfinite(v) for v in (p.x, p.mean, p.low, p.high))
        and (panel.x_scale == "linear" or p.x > 0)
        and (panel.y_scale == "linear" or p.low > 0)
    )


def draw(panel: Panel) -> Figure:
    """The figure; call it, and save it, under :func:`style`.  The artist of line i has the id ``line-i``."""
    from matplotlib.figure import Figure

    many = len(panel.lines) > 4
    figure = Figure(figsize=_size(panel, many), layout="constrained")
    axes = figure.subplots()
    for i, line in enumerate(panel.lines):
        points = shown(panel, line)
        if not points:
            continue
        colour, dashes = look(panel.lines, i)
        x = [p.x for p in points]
        marker = "o" if line.marks or len(points) == 1 else ""
        axes.plot(
            x, [p.mean for p in points], color=colour, linestyle=dashes, marker=marker, markersize=3.5,
            label=line.label, gid=f"line-{i}",
        )  # fmt: skip
        if any(p.high > p.low for p in points):
            low, high = [p.low for p in points], [p.high for p in points]
            if line.marks:
                axes.vlines(x, low, high, color=colour, linewidth=1.0)
            else:
                axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
    axes.set(xlabel=panel.x, ylabel=panel.y, xscale=panel.x_scale, yscale=panel.y_scale)
    axes.set_title(panel.title, loc="left", fontsize=10.5)
    if panel.percent:
        axes.set_ylim(0.0, 1.0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    elif panel.y_scale == "linear":
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for scale, axis in ((panel.x_scale, axes.xaxis), (panel.y_scale, axes.yaxis)):
        if scale == "log":
            _plain(axis)
    if axes.get_legend_handles_labels()[0]:
        place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if many else {"loc": "best"}
        axes.legend(frameon=False, fontsize=8, **place)
    return figure


def _plain(axis: Axis) -> None:
    """Numbers on a logarithmic axis as they are read, not as powers; only whole decades where there are many."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    decades = math.log10(high / low) if 0 < low < high else 0.0
    axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 3 else (1.0, 2.0, 5.0), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if 1e-3 <= value < 1e7 else f"{value:.0e}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _size(panel: Panel, many: bool) -> tuple[float, float]:
    """Inches, with room for a legend of ``many`` lines beside the axes."""
    if not many:
        return 5.6, 3.5
    longest = max(len(line.label) for line in panel.lines)
    return 5.6 + 0.6 + 0.07 * longest, max(3.5, 0.9 + 0.18 * len(panel.lines))


def svg(figure: Figure) -> str:
    """Of a drawn panel."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def png(figure: Figure) -> bytes:
    """Of a drawn panel."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DOTS)
    return file.getvalue()


def table(panel: Panel) -> str:
    """CSV: every point of every line, drawn or not."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["line", "x", "mean", "least", "largest"])
    for line in panel.lines:
        for p in line.points:
            writer.writerow([line.label, repr(p.x), repr(p.mean), repr(p.low), repr(p.high)])
    return out.getvalue()
