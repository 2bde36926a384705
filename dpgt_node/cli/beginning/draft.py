"""What a run file says of data: [data] with its reasons, from a look at the names and kinds of what is there.

The words of labels and categories are read from the file, for a run file is public and must name them; bounds are read
from it only where its owner says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpgt_node import figures
from dpgt_node.config.data import CLASSES, expanded
from dpgt_node.config.declare.reader import suggestion
from dpgt_node.errors import ConfigError, Problem, attempt
from dpgt_node.learning.data.columns import Column, infinite, uneven
from dpgt_node.learning.data.datasets import likely_layout, load_npz
from dpgt_node.learning.data.labels import LabelError, numbered
from dpgt_node.learning.data.pictures.folders import load_folder
from dpgt_node.learning.data.shards import why_absent
from dpgt_node.learning.data.tables import KINDS, Table, labels_of, read_table
from dpgt_node.values import dataclass

FROM_TABLE: Final = "table"
TEST_SHARE: Final = 0.2
_WORDS = 20
"""A column of more different words says little by each of them."""
_NAMED = 20
"""Columns that are named where one is missing."""
_WIDE = 10.0
"""Numbers beyond this need bounds."""


@dataclass
class Draft:
    """``data``: the table [data].  ``reasons``: its comments.  ``hints``: for its owner's terminal alone.

    ``uneven``: what is odd about columns without bounds, which is in the hints; None: nothing is.  ``ready``: bounds of
    the columns that need some, COLUMN=LOW:HIGH, as they are in the table.
    """

    data: dict[str, Any]
    reasons: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    uneven: str | None = None
    ready: list[str] = field(default_factory=list)


def is_table(path: Path) -> bool:
    return path.suffix.lower() in KINDS and not path.is_dir()


def drafted(
    names: Sequence[str],
    label: str | None,
    *,
    bounds: Sequence[str] = (),
    missing: str | None = None,
    ignore: Sequence[str] = (),
) -> Draft:
    """The draft for data sets or files ``names``, several of one kind where every owner has one.

    ``bounds``: "COLUMN=LOW:HIGH" or "table".  ``missing``: "middle" or None.  ``ignore``: columns to leave out.
    Raises ConfigError.
    """
    first = names[0]
    if first in CLASSES:
        _no_table(label, bounds, ignore)
        return Draft({"dataset": first})
    paths = [expanded(name) for name in names]
    reasons = [why_absent(path) for path in paths if is_table(path) or path.suffix.lower() == ".npz"]
    if absent := [Problem("command line", "--data", why) for why in reasons if why is not None]:
        raise ConfigError(absent)
    if is_table(paths[0]):
        return _table(paths, label, bounds, missing, ignore)
    _no_table(label, bounds, ignore)
    if paths[0].is_dir():
        data = load_folder(paths[0])
        stated: dict[str, Any] = {"dataset": f"folder:{first}", "classes": list(data.names)}
    elif paths[0].suffix.lower() == ".npz":
        layout = likely_layout(paths[0])
        data = load_npz(paths[0], layout=layout)
        stated = {"dataset": f"npz:{first}", "classes": list(data.names) or data.classes}
        if layout is not None:
            stated["layout"] = layout
    else:
        known = ", ".join((*CLASSES, *KINDS, ".npz", "a folder of pictures"))
        said = f"{first} is none of {known}"
        if not paths[0].exists():
            said = f"there is no {first} here{suggestion(first, CLASSES) or '.'} Data are {known}"
        raise ConfigError.one("command line", "--data", said)
    draft = Draft(stated, reasons=[_classes(data.names, data.classes)])
    if "layout" in stated:
        draft.reasons.append("layout: the arrays look like pictures with their channels last")
    if not len(data.y_test):
        draft.data["test_fraction"] = TEST_SHARE
        draft.reasons.append("test_fraction: the data have no test set, so a fifth of them is one and not trained on")
    return draft


def _no_table(label: str | None, bounds: Sequence[str], ignore: Sequence[str]) -> None:
    given = {"--label": label, "--bounds": bounds, "--ignore": ignore}
    idle = [Problem("command line", option, "is for tables, .csv and .parquet") for option in given if given[option]]
    if idle:
        raise ConfigError(idle)


def _classes(names: Sequence[str], count: int) -> str:
    return f"classes: {count}, in this order" + ("; everybody who gets this file reads their names" if names else "")


def _table(
    paths: Sequence[Path], label: str | None, bounds: Sequence[str], missing: str | None, ignore: Sequence[str]
) -> Draft:
    tables = [read_table(path) for path in paths]
    names = tables[0][0]
    problems: list[Problem] = []
    if label is None:
        message = f"is needed: which of {', '.join(names)} is to be predicted"
        problems.append(Problem("command line", "--label", message))
    for path, (held, _) in zip(paths, tables, strict=True):
        asked = [*([] if label is None else [("--label", label)]), *(("--ignore", name) for name in ignore)]
        absent = [(option, name) for option, name in asked if held.count(name) != 1]
        problems += [Problem("command line", option, f"{path} {_not_one(name, held)}") for option, name in absent]
        lacks = [name for name in names if held.count(name) != 1]
        if path != paths[0] and lacks and not absent:
            message = f"{path} has no column {lacks[0]!r}, {paths[0]} has"
            problems.append(Problem("command line", "--data", message))
    stated_bounds = attempt(problems, lambda: _stated(bounds, names))
    if problems or label is None or stated_bounds is None:
        raise ConfigError(problems)
    found = _columns(paths, tables, label, ignore)
    if idle := [name for name in stated_bounds if name not in found.numbers]:
        message = f"{', '.join(map(repr, idle))}: bounds are of columns of numbers that the model learns from"
        raise ConfigError.one("command line", "--bounds", message)
    draft = Draft(
        {
            "dataset": f"{KINDS[paths[0].suffix.lower()]}:{paths[0]}",
            "label": label,
            "classes": _label_names(paths, tables, label),
            "columns": found.columns,
        },
        reasons=[*found.reasons],
    )
    if found.words:
        draft.data["categories"] = found.words
        draft.reasons.append("categories: the words that the table has; everybody who gets this file reads them")
    wrong = [Problem(str(paths[0]), "", _not_one(name, names)) for name in names if names.count(name) > 1]
    wrong = [*dict.fromkeys(wrong), *found.wrong]
    if found.empty and missing is None:
        each = ", ".join(f"{count} in {name!r}" for name, count in found.empty.items())
        message = (
            f"the data have {figures.counted(sum(found.empty.values()), 'empty cell')} ({each}): leave these rows out "
            "of the file, the columns out by --ignore, or count a cell as the middle of its bounds: --missing middle"
        )
        wrong.append(Problem("command line", "--missing", message))
    if wrong:
        raise ConfigError(wrong)
    if found.empty:
        draft.data["missing"] = missing
        draft.reasons.append('missing = "middle": an empty cell counts as the middle of its bounds, and as no category')
    _set_bounds(draft, found.numbers, stated_bounds, from_table=FROM_TABLE in bounds)
    draft.reasons.append(
        'normalise = "sphere": every row has length 1 and keeps its size as one more number; so noise is bounded by it'
    )
    return draft


def _not_one(name: str, names: Sequence[str]) -> str:
    """How a table whose columns are ``names`` lacks a column of this name alone."""
    if name in names:
        return f"has {names.count(name)} columns {name!r}, of which nobody can say one"
    hint = suggestion(name, names) or "."
    return f"has no column {name!r}{hint} Its columns: {figures.some(names, _NAMED)}"


@dataclass
class _Columns:
    columns: list[str] = field(default_factory=list)
    words: dict[str, list[str]] = field(default_factory=dict)
    numbers: dict[str, tuple[float, float]] = field(default_factory=dict)
    empty: dict[str, int] = field(default_factory=dict)
    wrong: list[Problem] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def _columns(paths: Sequence[Path], tables: Sequence[Table], label: str, ignore: Sequence[str]) -> _Columns:
    """Which columns are features, and what they hold.  ConfigError: none is."""
    found = _Columns()
    left: list[str] = []
    for name in tables[0][0]:
        if name == label or name in ignore:
            continue
        held = [table[names.index(name)] for names, table in tables]
        if (why := _useless(name, held)) is not None:
            left.append(f"{name!r} ({why})")
            continue
        found.columns.append(name)
        texts = [column for column in held if isinstance(column, list)]
        if texts:
            words = {text for column in held for text in _texts(column) if text}
            found.words[name] = sorted(words)
            gaps = sum(not text for column in held for text in _texts(column))
        else:
            each = {path: column for path, column in zip(paths, held, strict=True) if not isinstance(column, list)}
            found.wrong += [
                Problem(str(path), "", why)
                for path, column in each.items()
                if (why := infinite(name, column)) is not None
            ]
            numbers = np.concatenate(list(each.values()))
            gaps = int(np.count_nonzero(np.isnan(numbers)))
            found.numbers[name] = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        if gaps:
            found.empty[name] = gaps
    if left:
        found.reasons.append(f"columns: left out are {', '.join(left)}")
    if not found.columns:
        raise ConfigError.one(
            str(paths[0]), "", f"no column is left to learn from: {', '.join(left) or 'there is one'}"
        )
    return found


def _texts(column: Column) -> list[str]:
    if isinstance(column, list):
        return column
    return ["" if np.isnan(value) else f"{value:.15g}" for value in column.tolist()]


def _useless(name: str, held: Sequence[Column]) -> str | None:
    """Why a column is no feature; None: it is one."""
    if any(isinstance(column, list) for column in held):
        words = {text for column in held for text in _texts(column) if text}
        return f"{len(words)} different words" if len(words) > _WORDS else "nothing in it" if not words else None
    together = np.concatenate([np.asarray(column, dtype=np.float64) for column in held])
    known = together[~np.isnan(together)]
    if not len(known) or known.min() == known.max():
        return "always the same"
    first = np.asarray(held[0], dtype=np.float64)
    if len(first) > 2 and (np.array_equal(first, first[0] + np.arange(len(first))) or not name):
        return "numbers the rows"
    return None


def _label_names(paths: Sequence[Path], tables: Sequence[Table], label: str) -> list[str] | int:
    """Classes as [data] states them: their names, or how many."""
    parts: list[Any] = [
        labels_of(path, table[names.index(label)], label) for path, (names, table) in zip(paths, tables, strict=True)
    ]
    try:
        found = numbered(parts, None)
    except LabelError as error:
        raise ConfigError.one(str(paths[0]), "", f"column {label!r} {error}") from error
    if found.classes < 2:
        raise ConfigError.one(str(paths[0]), "", f"column {label!r} has one class only: there is nothing to learn")
    return list(found.names) or found.classes


def _stated(bounds: Sequence[str], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Bounds by column.  ConfigError: all that is wrong."""
    found = {}
    problems: list[Problem] = []
    for text in bounds:
        if text == FROM_TABLE:
            continue
        name, equals, ends = text.rpartition("=")
        try:
            low, high = (float(end) for end in ends.split(":"))
        except ValueError:
            low = high = math.nan
        if not equals or not low < high or not math.isfinite(high - low):
            form = f'COLUMN=LOW:HIGH with LOW below HIGH, e.g. --bounds "age=18:90", or --bounds {FROM_TABLE}'
            problems.append(Problem("command line", "--bounds", f"must be {form}; not {text!r}"))
        elif name not in names:
            problems.append(Problem("command line", "--bounds", f"the table {_not_one(name, names)}"))
        found[name] = (low, high)
    if problems:
        raise ConfigError(problems)
    return found


def _set_bounds(
    draft: Draft,
    numbers: Mapping[str, tuple[float, float]],
    stated: Mapping[str, tuple[float, float]],
    *,
    from_table: bool,
) -> None:
    """[data.bounds] as they are stated, of the other columns from the table where its owner says so; else a hint."""
    rest = {name: rounded(*ends) for name, ends in numbers.items() if name not in stated}
    chosen = {name: list(ends) for name, ends in stated.items()}
    if from_table:
        chosen |= {name: list(ends) for name, ends in rest.items()}
        if rest:
            draft.data["bounds_from"] = FROM_TABLE
            draft.reasons.append(
                "bounds: smallest and largest values of the table, rounded outwards, as --bounds table asks for: "
                "epsilon does not cover them; where rows are private, write what is known without them instead"
            )
    else:
        apart = {name: ends for name, ends in rest.items() if max(map(abs, numbers[name])) > 1.0}
        if apart:
            sizes = {name: max(map(abs, ends)) for name, ends in numbers.items() if name not in stated}
            odd = uneven(sizes, scaled=bool(stated or draft.data.get("categories")))
            draft.uneven = odd[0] if odd else None
            # Where sizes differ, small columns need bounds too.  The largest come first: they drown the others.
            order = sorted(rest if odd else apart, key=lambda name: -sizes[name])
            draft.ready = [f"{name}={rest[name][0]:g}:{rest[name][1]:g}" for name in order]
            draft.hints.append(
                f"{'WARNING: ' if odd else ''}{len(apart)} of {len(draft.data['columns'])} columns reach beyond -1 to "
                f"1 and have no bounds, so they are used as they are. {f'So {odd[0]}. ' if odd else ''}State what is "
                f"publicly known of them, or say that their ranges in this table are public: --bounds {FROM_TABLE}"
            )
        if rest:  # whether the columns differ in size is known to who holds them; this is public
            draft.reasons.append(
                f"no bounds were stated for {len(rest)} columns of numbers: they are used as they are. The accuracy "
                "above is for columns that are scaled; where these differ in size, less comes of it"
            )
    if stated:
        draft.reasons.append("bounds: as stated; a value outside counts as the nearest end")
    if chosen:
        order = [name for name in draft.data["columns"] if name in chosen]
        draft.data["bounds"] = {name: chosen[name] for name in order}


def rounded(low: float, high: float) -> tuple[float, float]:
    """The range, its ends moved outwards to multiples of a power of ten no larger than the range."""
    exponent = math.floor(math.log10(high - low))
    step = 10.0**exponent
    ends = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return round(ends[0], max(-exponent, 0)), round(ends[1], max(-exponent, 0))
