"""Who holds how much of what: the counts behind ``dpgt data show``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpgt_node.config.model import RunConfig
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.learning.data.pictures.folders import measure
from dpgt_node.learning.data.shards import blocks, division, run_dataset
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Census:
    """``counts[i][c]``: training samples of class ``classes[c]`` at agent i, in the order of ``names``.

    ``unused``: training samples that no agent holds.  ``test``: size of the common test set.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    unused: int
    test: int
    features: int
    image: tuple[int, int, int] | None


def largest_class(run: RunConfig, data_root: Path | None) -> float | None:
    """The share of the common test set that its largest class has, in [0, 1]; None without a test set.

    ConfigError: the data cannot be used.
    """
    labels = () if run.data.dataset in TOYS else run_dataset(run, data_root).y_test
    return float(np.bincount(labels).max() / len(labels)) if len(labels) else None


def census(run: RunConfig, data_root: Path | None) -> Census:
    """Counted on this machine's copy of the data.  Raises ConfigError."""
    data = run_dataset(run, data_root)
    measure(data)
    rows = blocks(data, division(run))
    counts = [np.bincount(data.y_train[own], minlength=data.classes).tolist() for own in rows]
    return Census(
        names=run.graph.agents,
        classes=data.names or tuple(map(str, range(data.classes))),
        counts=tuple(tuple(row) for row in counts),
        unused=len(data.y_train) - sum(map(len, rows)),
        test=len(data.y_test),
        features=int(data.x_train.shape[1]),
        image=data.image,
    )
