"""Draws how a training set is divided among the agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpgt_node.errors import ConfigError

_NAMED = 30


def draw_census(
    path: Path, title: str, names: Sequence[str], classes: Sequence[str], counts: Sequence[Sequence[int]]
) -> None:
    """One stacked bar an agent, one colour a class, as SVG.  ``counts[i][c]``.  ConfigError: it cannot be written."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    table = np.asarray(counts)
    n = len(table)
    figure = Figure(figsize=(8.0, 1.2 + 0.22 * min(n, 200)), layout="constrained")
    axes = figure.add_subplot()
    left = np.zeros(n)
    colours = colormaps["tab20" if len(classes) <= 20 else "viridis"].resampled(max(len(classes), 2))
    for label, name in enumerate(classes):
        axes.barh(np.arange(n), table[:, label], left=left, color=colours(label), label=name, height=0.9)
        left += table[:, label]
    axes.set_yticks(range(n) if n <= _NAMED else [], names if n <= _NAMED else [])
    axes.invert_yaxis()
    axes.set_xlabel("training samples")
    axes.set_title(f"{title}: samples per agent and class")
    if len(classes) <= 20:
        figure.legend(title="class", loc="outside right upper", fontsize="small")
    try:
        figure.savefig(path, format="svg")
    except OSError as error:
        raise ConfigError.one("command line", "--plot", f"{path}: {error.strerror or error}") from error
