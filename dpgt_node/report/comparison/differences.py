"""What differs between run files, key by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpgt_node import figures
from dpgt_node.config.emit import document
from dpgt_node.config.graphs.sparse import SparseRows
from dpgt_node.config.model import RunConfig

_SHOWN_MAX = 60
_ABSENT = object()


def differences(runs: Sequence[RunConfig]) -> dict[str, list[str]]:
    """``section.key`` -> the value of every run, in their order, for keys whose values are not all equal.

    A run that does not have the key shows a dash.  The run's name is no difference.
    """
    tables = [_flat(document(run)) for run in runs]
    keys = [key for key in dict.fromkeys(key for table in tables for key in table) if key != "name"]
    values = {key: [table.get(key, _ABSENT) for table in tables] for key in keys}
    return {
        key: ["–" if value is _ABSENT else _shown(value) for value in row]
        for key, row in values.items()
        if any(value != row[0] for value in row)
    }


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def _shown(value: object) -> str:
    """A value in little room: a matrix by its shape, a list of equal values by one of them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return figures.number(value, 6)
    if isinstance(value, SparseRows):
        return f"{len(value)} × {len(value)}, {len(value.weights)} entries"
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], list | tuple):
            edges = sum(1 for row in value for weight in row if weight)
            return f"{len(value)} × {len(value[0])}, {edges} entries"
        if value and all(item == value[0] for item in value):
            return _shown(value[0]) if len(value) == 1 else f"{_shown(value[0])} ({len(value)} times)"
        return _cut(", ".join(_shown(item) for item in value))
    return _cut(str(value))


def _cut(words: str) -> str:
    return words if len(words) <= _SHOWN_MAX else f"{words[: _SHOWN_MAX - 1]}…"
