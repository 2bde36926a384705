"""A table's columns as the numbers of its samples: public bounds, stated words, empty cells.

Every cell becomes a number by itself, from what the run file states and from nothing of any other row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpgt_node import figures
from dpgt_node.config.columns import ByColumn
from dpgt_node.config.model import Parameter
from dpgt_node.types import F64
from dpgt_node.values import dataclass

Column = F64 | list[str]
"""Numbers (rows,), NaN where a cell is empty; or words, "" where one is."""
EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""What stands in a cell that is empty, in small letters."""
_APART, _MOST_APART, _SCALED_APART = 20.0, 8.0, 5.0
"""Factors between the largest values of columns from which the small ones say little next to the large ones: where one
column is small; where a quarter of them is; where the small ones are scaled to -1..1, so that their size is certain."""
_NAMED = 5
_NONE = ByColumn()


@dataclass(frozen=True, slots=True)
class Columns:
    """What a run file says of them; hashable."""

    chosen: tuple[str, ...] | None = None
    bounds: ByColumn = _NONE
    categories: ByColumn = _NONE
    middle: bool = False

    @classmethod
    def of(cls, params: Mapping[str, Parameter]) -> Columns:
        bounds, categories = params.get("bounds") or _NONE, params.get("categories") or _NONE
        return cls(params.get("columns"), bounds, categories, params.get("missing") == "middle")

    @property
    def named(self) -> tuple[str, ...]:
        """All columns that it speaks of."""
        return (*(self.chosen or ()), *(name for name, _ in (*self.bounds, *self.categories)))

    @property
    def width(self) -> int | None:
        """Numbers a sample has; None: the table decides which columns are features."""
        words = {name: len(listed) for name, listed in self.categories}
        return None if self.chosen is None else sum(words.get(name, 1) for name in self.chosen)


def features_of(names: Sequence[str], label: str | None, columns: Columns) -> list[int]:
    """Which columns are features, in their order.  KeyError: one that the run file names is not there, or twice."""
    for name in columns.named:
        if names.count(name) != 1:
            raise KeyError(name)
    if columns.chosen is not None:
        return [names.index(name) for name in columns.chosen]
    return [i for i, name in enumerate(names) if name != label]


@dataclass(frozen=True, slots=True)
class Encoded:
    """``numbers`` (rows, p).  ``problems``: why the table cannot be used.  ``remarks``: what is odd.  One line each."""

    numbers: F64
    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def encoded(names: Sequence[str], table: Sequence[Column], at: Sequence[int], columns: Columns) -> Encoded:
    """The columns ``at`` of ``table`` as numbers."""
    bounds, categories = dict(columns.bounds), dict(columns.categories)
    found: list[F64] = []
    problems: list[str] = []
    remarks: list[str] = []
    empty: dict[str, tuple[int, int]] = {}
    sizes: dict[str, float] = {}
    for i in at:
        name, column = names[i], table[i]
        if name in categories:
            block, strange = _one_of(column, categories[name])
            if strange:
                remarks.append(
                    f"column {name!r} has words that categories does not list in {strange} of {len(block)} rows: "
                    "there they count as none of the listed ones"
                )
            gaps = _gaps(column)
        elif isinstance(column, list):
            problems.append(_words(name, column))
            continue
        else:
            gaps = np.isnan(column)
            if (why := infinite(name, column)) is not None:
                problems.append(why)
                column = np.where(np.isinf(column), 0.0, column)  # its other faults are told of, too
            block, outside = _scaled(column, gaps, bounds.get(name))
            if outside:
                low, high = bounds[name]
                remarks.append(
                    f"column {name!r} has {figures.counted(outside, 'value')} outside its bounds {low:g} to {high:g}: "
                    f"{'it counts' if outside == 1 else 'they count'} as the nearest end; wider bounds would keep "
                    f"{'it' if outside == 1 else 'them'} apart"
                )
            if name not in bounds and len(column):
                sizes[name] = float(np.abs(block).max())
        if gaps.any():
            empty[name] = (int(gaps.sum()), int(np.flatnonzero(gaps)[0]) + 1)
        found.append(block)
    if empty and not columns.middle:
        problems.append(_missing(empty))
    scaled = any(names[i] in bounds or names[i] in categories for i in at)
    if (odd := uneven(sizes, scaled=scaled)) is not None:
        remarks.append(f"{odd[0]}; {odd[1]}")
    numbers = np.concatenate(found, axis=1) if found and not problems else np.zeros((0, 0))
    return Encoded(numbers, tuple(problems), tuple(remarks))


def infinite(name: str, column: F64) -> str | None:
    """Why a column of numbers is none; None: every number in it is finite, or its cell empty."""
    rows = np.flatnonzero(np.isinf(column))
    if not len(rows):
        return None
    values = figures.counted(len(rows), "non-finite value")
    return f"has {values}, the first in row {rows[0] + 1} of column {name!r}: it is infinite, or too large for a number"


def _scaled(column: F64, gaps: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], ends: object) -> tuple[F64, int]:
    """(rows, 1), and how many values lie outside ``ends``, (low, high) or None."""
    if not isinstance(ends, tuple):
        return np.where(gaps, 0.0, column)[:, None], 0
    low, high = ends
    known = np.where(gaps, 0.5 * low + 0.5 * high, column)
    outside = int(np.count_nonzero((known < low) | (known > high)))
    at = (np.clip(known, low, high) - low) / (high - low) if np.isfinite(high - low) else np.full(len(known), 0.5)
    return (2.0 * at - 1.0)[:, None], outside


def _one_of(column: Column, words: Sequence[str]) -> tuple[F64, int]:
    """(rows, words) of 0 and 1, and how many cells are neither empty nor one of them."""
    texts = column if isinstance(column, list) else ["" if np.isnan(v) else f"{v:.15g}" for v in column.tolist()]
    place = {word: j for j, word in enumerate(words)}
    block = np.zeros((len(texts), len(words)))
    strange = 0
    for row, text in enumerate(texts):
        j = place.get(text)
        if j is not None:
            block[row, j] = 1.0
        elif text:
            strange += 1
    return block, strange


def _gaps(column: Column) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    if isinstance(column, list):
        return np.array([not text for text in column], dtype=bool)
    return np.isnan(column)


def _words(name: str, column: Sequence[str]) -> str:
    """Of a column that has words where nobody stated any.  It names no cell: such lines may be read by others."""
    rows = [row for row, text in enumerate(column) if text and not _is_number(text)]
    if 2 * len(rows) >= sum(1 for text in column if text):
        way = f"list them under [data] categories = {{ {name!r} = [...] }}, or leave it out by [data] columns"
        return f"column {name!r} holds words, from row {rows[0] + 1} on: {way}"
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"holds something that is no number: row {rows[0] + 1} of column {name!r}{more}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _missing(empty: Mapping[str, tuple[int, int]]) -> str:
    total = sum(count for count, _ in empty.values())
    each = [f"{count} in {name!r} (first: row {row})" for name, (count, row) in list(empty.items())[:_NAMED]]
    more = f" and more in {len(empty) - _NAMED} other columns" if len(empty) > _NAMED else ""
    return (
        f"has {figures.counted(total, 'missing value')}: {', '.join(each)}{more}; leave these rows out, or fill "
        'them in. A run file with [data] missing = "middle" counts an empty cell as the middle of its bounds, '
        "also when the model predicts"
    )


def uneven(sizes: Mapping[str, float], *, scaled: bool) -> tuple[str, str] | None:
    """What is odd, and the way out, where columns without bounds are of very different sizes.

    ``sizes``: the largest magnitude of each column without bounds.  ``scaled``: other columns have bounds or
    categories, so they reach 1.
    """
    there = sorted((size, name) for name, size in sizes.items() if size > 0.0)
    if not there:
        return None
    largest, large = there[-1]
    (least, small), (quarter, _) = there[0], there[len(there) // 4]
    if largest < min(_APART * least, _MOST_APART * quarter):
        if not scaled or largest < _SCALED_APART:
            return None
        said = f"{large!r} reaches {largest:.3g}, and those with bounds or categories 1"
    else:
        said = f"{large!r} reaches {largest:.3g} and {small!r} {least:.3g}"
    return (
        f"columns differ in size: {said}; the small ones hardly count",
        "state what is publicly known of the large ones, [data] bounds = { column = [low, high] }",
    )
