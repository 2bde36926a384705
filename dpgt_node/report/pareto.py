"""Accuracy against epsilon, as ``dpgt plan --pareto`` writes it: pareto.csv and pareto.svg."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from dpgt_node.values import dataclass

INK, MUTED, LINE, WORST, MEAN = "#1d1f24", "#63676f", "#e3e0d8", "#c2351b", "#1f5fbf"


@dataclass(frozen=True, slots=True)
class Point:
    """One plan; accuracies are fractions on stand-in data, ``scale_eta`` the largest of the agents'.

    ``accuracy_alone``: of the worst agent without exchange, at epsilon 0; None where nobody knows.
    """

    epsilon: float
    accountant: str
    delta: float
    mechanism: str
    law: str
    K: int
    alpha: float
    beta: float
    gamma: float
    scale_eta: float
    accuracy_predicted: float | None
    accuracy_mean: float
    accuracy_worst: float
    accuracy_alone: float | None = None


def write_pareto(out: Path, points: Sequence[Point], data: str) -> tuple[Path, Path]:
    """Write both files into ``out`` (made if needed); ``data`` says what the accuracies were measured on."""
    out.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    writer = csv.DictWriter(table, [field.name for field in fields(Point)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(point) for point in points)
    paths = out / "pareto.csv", out / "pareto.svg"
    paths[0].write_text(table.getvalue(), encoding="utf-8")
    paths[1].write_text(_draw(points, data), encoding="utf-8")
    return paths


def _draw(points: Sequence[Point], data: str) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "pareto",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": LINE,
        "axes.labelcolor": MUTED,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "text.color": INK,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        epsilon = [point.epsilon for point in points]
        for values, colour, label in (
            ([point.accuracy_mean for point in points], MEAN, "mean of the agents"),
            ([point.accuracy_worst for point in points], WORST, "worst agent"),
        ):
            axes.plot(epsilon, values, "o-", color=colour, label=label, markersize=4, linewidth=1.6)
        alone = points[0].accuracy_alone
        if alone is not None:
            axes.axhline(alone, color=MUTED, linestyle="--", linewidth=1.2, label="worst agent alone, epsilon 0")
        axes.set_xscale("log")
        axes.set_xticks(epsilon, [f"{value:g}" for value in epsilon])
        axes.minorticks_off()
        axes.set_ylim(0.0, 1.0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.grid(axis="y", color=LINE, linewidth=0.7)
        first = points[0]
        delta = f", delta = {first.delta:g}" if first.delta else ""
        axes.set_xlabel(f"epsilon of each agent ({first.accountant}{delta}; one sample replaced)")
        axes.set_title(f"Test accuracy on {data}", loc="left", fontsize=11)
        axes.legend(frameon=False, loc="lower right")
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
