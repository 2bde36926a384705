"""Tables with one labelled sample a row: CSV by numpy, Parquet by pyarrow."""

from __future__ import annotations

import csv
import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dpgt_node import figures
from dpgt_node.config.declare.reader import suggestion
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.learning.data.arrays import Dataset, checked
from dpgt_node.learning.data.columns import EMPTY, Column, Columns, encoded, features_of
from dpgt_node.learning.data.labels import LabelError, Labels, numbered
from dpgt_node.types import F64

_COMMAS = "; a comma inside a number counts as a separator"
_MAX_HEADER = 1 << 20
_INDEX = re.compile(r"Unnamed: 0(\.\d+)?|__index_level_\d+__")
_NO_TEXT = {
    b"\x1f\x8b": "is packed by gzip: unpack it first",
    b"PK\x03\x04": "is a zip archive, as spreadsheets are: save it as CSV",
    b"PAR1": "is a Parquet file: name it as parquet:PATH",
}
Table = tuple[list[str], list[Column]]
"""(column names, columns)."""
_ALL = Columns()
KINDS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
"""Of tables, by the end of their names."""


def load_table(
    kind: str,
    path: Path,
    label: str,
    *,
    test: Path | None = None,
    test_fraction: float = 0.0,
    classes: int | tuple[str, ...] | None = None,
    columns: Columns = _ALL,
) -> Dataset:
    """``csv`` or ``parquet``: a header of names, the column ``label`` holds integers or words.

    ``test``: a second file with the same columns.  Without it the last ``test_fraction`` of
    ``default_rng(0).permutation(rows)`` is the test set, the same on every host.  ``classes``: how many, or their
    names.  Raises ConfigError.
    """
    names, table = _READERS[kind](path)
    _check_names(path, names, label, columns)
    at = _features(path, names, label, columns)
    remarks = (*_numbering(path, names, table, at), *_repeated(names, table, label, at))
    x, said = _numbers(path, names, table, at, columns)
    y = labels_of(path, table[names.index(label)], label)
    labels = {path: y}
    if test is not None:
        test_names, test_table = _READERS[kind](test)
        if columns.chosen is None and test_names != names:
            raise _bad(test, f"has other columns than {path.name}: {_first_difference(names, test_names)}")
        _check_names(test, test_names, label, columns)
        test_at = _features(test, test_names, label, columns)
        x_test, test_said = _numbers(test, test_names, test_table, test_at, columns)
        said = (*said, *(f"{line} (test file)" for line in test_said if line not in said))
        labels[test] = y_test = labels_of(test, test_table[test_names.index(label)], label)
    else:
        order = np.random.default_rng(0).permutation(len(x))
        kept = len(x) - int(test_fraction * len(x))
        x, x_test, y, y_test = x[order[:kept]], x[order[kept:]], y[order[:kept]], y[order[kept:]]
    arrays = {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}
    try:
        return checked(str(path), arrays, classes, (*remarks, *said))
    except ConfigError as error:
        raise _of_column(error, label, labels, classes) from error


def _of_column(
    error: ConfigError,
    label: str,
    labels: Mapping[Path, npt.NDArray[np.generic]],
    classes: int | tuple[str, ...] | None,
) -> ConfigError:
    """``error``, what it says of the arrays of labels said of the tables' column instead, with the row."""
    problems = [one for one in error.problems if not one.key.startswith("y_")]
    for path, column in labels.items():
        try:
            numbered([cast("Labels", column)], classes)
        except LabelError as why:
            row = "" if why.at is None else f", the first in row {why.at + 1}"
            problems.append(Problem(str(path), "", f"column {label!r} {why}{row}"))
    # What is wrong with both tables together alone stays as it is.
    return ConfigError(problems) if len(problems) >= len(error.problems) else error


def read_table(path: Path) -> Table:
    """Names and columns of a file as they are, for whoever writes a run file about it.  Raises ConfigError."""
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise _bad(path, f"is no table: its name ends in none of {', '.join(KINDS)}")
    return _READERS[kind](path)


def load_features(kind: str, path: Path, label: str | None, columns: Columns) -> tuple[F64, tuple[str, ...]]:
    """The samples of a table alone, float64 (rows, p), in the order of the file, and what is odd about them.

    A column ``label`` is left out.

    Raises ConfigError.
    """
    names, table = _READERS[kind](path)
    return _numbers(path, names, table, _features(path, names, label, columns), columns)


def _check_names(path: Path, names: Sequence[str], label: str, columns: Columns) -> None:
    if names.count(label) != 1:
        have = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
        raise _bad(
            path,
            f"has no column {label!r} (data.label); it has {have}{suggestion(label, names)}"
            if label not in names
            else f"has {names.count(label)} columns named {label!r} (data.label)",
        )
    if len(names) < 2:
        raise _bad(path, f"has no column besides {label!r}")
    if label in columns.named:
        raise _bad(path, f"column {label!r} holds the labels, so data.columns, bounds and categories cannot name it")


def _features(path: Path, names: Sequence[str], label: str | None, columns: Columns) -> list[int]:
    try:
        return features_of(names, label, columns)
    except KeyError as error:
        name = str(error.args[0])
        hint = suggestion(name, names)
        how = f"has {names.count(name)} columns" if name in names else "has no column"
        raise _bad(path, f"{how} {name!r}, which data.columns, bounds or categories names{hint}") from error


def _numbers(
    path: Path, names: Sequence[str], table: Sequence[Column], at: Sequence[int], columns: Columns
) -> tuple[F64, tuple[str, ...]]:
    found = encoded(names, table, at, columns)
    if found.problems:
        raise ConfigError(Problem(str(path), "", message) for message in found.problems)
    return found.numbers, found.remarks


def _numbering(path: Path, names: Sequence[str], table: Sequence[Column], at: Sequence[int]) -> tuple[str, ...]:
    """Remarks on features that number the rows.  ConfigError for one without a name: an index that was written too."""
    found = []
    for name, values in ((names[i], table[i]) for i in at):
        if isinstance(values, list) or len(values) < 3:
            continue
        unnamed = not name or _INDEX.fullmatch(name) is not None
        if np.array_equal(values, values[0] + np.arange(len(values))) or (unnamed and np.all(np.diff(values) > 0)):
            if unnamed:
                raise _bad(path, f"column {name!r} numbers the rows: write the table without its index (index=False)")
            found.append(f"column {name!r} numbers the rows and is taken as a feature: leave it out, or mean it")
    return tuple(found)


def _repeated(names: Sequence[str], table: Sequence[Column], label: str, at: Sequence[int]) -> tuple[str, ...]:
    """Remarks on names that stand twice in the header, and on features that are the labels."""
    features = [names[i] for i in at]
    found = [
        f"{features.count(name)} columns are named {name!r}, and all are taken as features"
        for name in dict.fromkeys(features)
        if features.count(name) > 1
    ]
    labels = table[names.index(label)]
    if len(labels) > 1:
        found += [
            f"column {names[i]!r} is the same as the labels and is taken as a feature: leave it out"
            for i in at
            if np.array_equal(table[i], labels)
        ]
    return tuple(found)


def labels_of(path: Path, column: Column, label: str) -> npt.NDArray[np.generic]:
    """The labels as integers, or as words where not all are numbers."""
    if isinstance(column, list):
        empty = sum(not text for text in column)
        values: npt.NDArray[np.generic] = np.array(column, dtype=np.str_)
    else:
        empty = int(np.count_nonzero(np.isnan(column)))
        whole = np.isfinite(column) & (column == np.floor(column)) & (np.abs(column) <= 2**31)
        if bad := int(np.count_nonzero(~whole & ~np.isnan(column))):
            held = figures.counted(bad, "value")
            raise _bad(path, f"column {label!r} holds {held} that cannot be a label; labels are integers or words")
        values = np.where(whole, column, 0.0).astype(np.int64)
    if empty:
        raise _bad(path, f"column {label!r} has {figures.counted(empty, 'missing label')}: leave these rows out")
    return values


def _encoding(path: Path) -> str:
    """Of a text file, by its byte order mark.  ConfigError: it is no text, but something that is known."""
    with path.open("rb") as file:
        head = file.read(4)
    if what := next((what for mark, what in _NO_TEXT.items() if head.startswith(mark)), None):
        raise _bad(path, what)
    return "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _csv(path: Path) -> Table:
    try:
        encoding = _encoding(path)
        with path.open(encoding=encoding, newline="") as file:
            header = file.readline(_MAX_HEADER)
            names = [name.strip() for name in next(csv.reader([header]), [])]
            if len(names) <= 2 and names[:1] == ["sep="]:  # what spreadsheets begin with where a comma is meant
                names = [name.strip() for name in next(csv.reader([file.readline(_MAX_HEADER)]), [])]
            if not names:
                raise _bad(path, "is empty; the first line must name the columns")
            if len(names) == 1 and (foreign := next((mark for mark in ";\t|" if mark in names[0]), None)):
                mark = "a tab" if foreign == "\t" else repr(foreign)
                raise _bad(path, f"separates its columns by {mark}: save it with commas, and with points in numbers")
            start = file.tell()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # of a file without rows, which is said below
                    rows = np.loadtxt(file, delimiter=",", quotechar='"', ndmin=2, comments=None)
                table: list[Column] = list(np.ascontiguousarray(rows.T)) if rows.size else []
                wide = {rows.shape[1]} if rows.size else set()
            except ValueError:  # words, or cells that are empty
                file.seek(start)
                table, wide = _texts(path, file)
    except UnicodeDecodeError as error:
        raise _bad(path, f"is not {encoding.upper().removesuffix('-SIG')} text: save it as UTF-8") from error
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from error
    except csv.Error as error:
        raise _bad(path, "holds something that is no number, or a row that is cut short") from error
    if not table:
        raise _bad(path, "has no rows")
    if not names[-1] and not isinstance(table[-1], list) and np.isnan(table[-1]).all():
        raise _bad(path, "has a last column without a name and without values: does a comma end each line?")
    if wide != {len(names)}:
        why = f"; the first line must name the columns, and is {header.strip()[:40]!r}" if len(names) == 1 else _COMMAS
        raise _bad(path, f"has {wide.pop()} values a row under {len(names)} column names{why}")
    return names, table


def _texts(path: Path, file: Iterable[str]) -> tuple[list[Column], set[int]]:
    """The columns of lines with words or empty cells, and how many cells a row has."""
    rows = [row for row in csv.reader(file) if row]
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise _bad(path, f"has {len(rows[0])} values a row, but row {number + 1} has {len(row)}")
    return [_column(cells) for cells in zip(*rows, strict=True)], {len(rows[0])} if rows else set()


def _column(cells: Sequence[str]) -> Column:
    """Numbers, where all cells that are not empty are some; else words."""
    stripped = [cell.strip() for cell in cells]
    texts = ["" if cell.lower() in EMPTY else cell for cell in stripped]
    try:
        return np.array([float(text) if text else np.nan for text in texts])
    except ValueError:
        return texts


def _parquet(path: Path) -> Table:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError.one("run file", "data.dataset", "'parquet' needs pyarrow: pip install pyarrow") from error
    try:
        table = parquet.read_table(path)
    except Exception as error:  # pyarrow has its own families of them
        raise _bad(path, f"cannot be read as numbers: {str(error).splitlines()[0]}") from error
    columns: list[Column] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = str(column.type)
        if kind in ("string", "large_string", "bool") or kind.startswith("dictionary"):
            cells = ["" if cell is None else str(cell) for cell in column.to_pylist()]
            columns.append(_column(cells))
            continue
        try:
            columns.append(np.asarray(column.to_numpy(), dtype=np.float64))
        except Exception as error:  # its words may hold the value, and such lines reach other hosts
            raise _bad(path, f"cannot be read as numbers: column {name!r} is of {column.type}") from error
    if not columns or not len(columns[0]):
        raise _bad(path, "has no rows")
    return list(table.column_names), columns


def _first_difference(mine: Sequence[str], theirs: Sequence[str]) -> str:
    for a, b in zip(mine, theirs, strict=False):
        if a != b:
            return f"{b!r} for {a!r}"
    return f"{len(theirs)} for {len(mine)}"


_READERS: dict[str, Callable[[Path], Table]] = {"csv": _csv, "parquet": _parquet}


def _bad(path: Path, message: str) -> ConfigError:
    return ConfigError.one(str(path), "", message)
