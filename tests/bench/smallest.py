"""Every measurement in its smallest size: what is asked for, and the columns of its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.learning.data.datasets import load_dataset
from tests.e2e import processes

LOW = ("--repeat", "1")
SMALL: dict[str, tuple[object, ...]] = {
    "wire": ("--dimension", 3, "--large", 400_000, "--number", 1, *LOW),
    "noise": ("--dimension", 100, "--repeat", 2),
    "methods": ("--method", "dpgt", "--method", "gt-saga", "--iterations", 3, *LOW),
    "store": ("--dimension", 3, "--rounds", 20, *LOW),
    "durability": ("--case", "2,3,12", *LOW),
    "scale": ("--agents", 3, "--rounds", 3, "--samples", 5, "--dataset", "digits", "--model", "softmax"),
    "threats": ("--rounds", 2, "--multiplier", 1),
    "composition": ("--runs", 2, "--runs", 3),
    "audit": ("--runs", 8, "--claim", 1, "--width", 10),
}
"""In this process alone, or the simulator's."""
DAEMONS: dict[str, tuple[object, ...]] = {
    "rounds": ("--agents", 2, "--rounds", 20, *LOW),
    "watching": ("--agents", 2, "--span-s", 0.5, "--every-s", 0.1, *LOW),
    "disk": ("--dimension", 3, "--rounds", 5),
    "startup": ("--idle", 0.1, *LOW),
    "decoder": ("--size", "3000,2", *LOW),
    "resnet18": ("--rounds", 5, "--samples", 5, "--dataset", "digits", "--model", "softmax", "--store", "off"),
    "section-iv": ("--case", "S2", "--dataset", "digits", "--iterations", 3, "--every", 2),
}
"""With real daemons."""


def bench(name: str, *options: object, code: int = 0) -> dict[str, Any]:
    """What ``dpgt bench NAME --json`` prints; a figure that is not a number is none.

    A process of its own measures daemons; all else is asked for in this one, which has imported what it needs.
    """
    done = (processes.dpgt if name in DAEMONS else processes.asked)("bench", name, *options, "--json")
    assert done.returncode == code, done.stderr

    def refused(constant: str) -> None:
        raise AssertionError(f"{name} says {constant}")

    found: dict[str, Any] = json.loads(done.stdout, parse_constant=refused)
    assert found.keys() == {"bench", "settings", "machine", "rows", "failed"}
    assert found["bench"] == name and found["rows"]
    return found


def columns(found: dict[str, Any]) -> dict[str, set[str]]:
    """Headings by table."""
    tables: dict[str, set[str]] = {}
    for row in found["rows"]:
        tables.setdefault(row["table"], set()).update(row.keys() - {"table"})
    return tables


def spreads(found: dict[str, Any]) -> list[dict[str, float]]:
    return [cell for row in found["rows"] for cell in row.values() if isinstance(cell, dict)]


def pictures(path: Path, train: int = 1100, test: int = 300, side: int = 8) -> Path:
    """The digits as a file like MNIST's: values in [0, 1], ``side`` x ``side`` pixels, 8 or 28."""
    data = load_dataset("digits")
    x = np.concatenate([data.x_train, data.x_test])[: train + test].reshape(-1, 8, 8) / data.divisor
    y = np.concatenate([data.y_train, data.y_test])[: train + test]
    if side == 28:
        x = np.pad(x.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    x = x.reshape(len(x), -1)
    np.savez(path, x_train=x[:train], y_train=y[:train], x_test=x[train:], y_test=y[train:])
    return path
