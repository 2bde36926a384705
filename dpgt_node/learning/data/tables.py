"""Tables with one labelled sample a row: CSV by numpy, Parquet by pyarrow."""

from __future__ import annotations

import csv
import importlib
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.arrays import Dataset, checked
from dpgt_node.types import F64

_COMMAS = "; a comma inside a number counts as a separator"
_MAX_HEADER = 1 << 20
_INDEX = re.compile(r"Unnamed: 0(\.\d+)?|__index_level_\d+__")
_NO_TEXT = {
    b"\x1f\x8b": "is packed by gzip: unpack it first",
    b"PK\x03\x04": "is a zip archive, as spreadsheets are: save it as CSV",
    b"PAR1": "is a Parquet file: name it as parquet:PATH",
}
Table = tuple[list[str], F64]
"""(column names, numbers (rows, columns))."""


def load_table(
    kind: str,
    path: Path,
    label: str,
    *,
    test: Path | None = None,
    test_fraction: float = 0.0,
    classes: int | None = None,
) -> Dataset:
    """``csv`` or ``parquet``: numbers only, a header of names, the column ``label`` holds integers from 0 on.

    ``test``: a second file with the same columns.  Without it the last ``test_fraction`` of
    ``default_rng(0).permutation(rows)`` is the test set, the same on every host.  Raises ConfigError.
    """
    read = _READERS[kind]
    names, rows = _read(read, path, label)
    remarks = (*_numbering(path, names, rows, label), *_repeated(names, rows, label))
    if test is not None:
        test_names, test_rows = _read(read, test, label)
        if test_names != names:
            raise _bad(test, f"has other columns than {path.name}: {_first_difference(names, test_names)}")
    else:
        order = np.random.default_rng(0).permutation(len(rows))
        kept = len(rows) - int(test_fraction * len(rows))
        rows, test_rows = rows[order[:kept]], rows[order[kept:]]
    if names.count(label) != 1:
        have = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise _bad(
            path,
            f"has no column {label!r} (data.label); it has {have}"
            if label not in names
            else f"has {names.count(label)} columns named {label!r} (data.label)",
        )
    if len(names) < 2:
        raise _bad(path, f"has no column besides {label!r}")
    at = names.index(label)
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for part, table, source in (("train", rows, path), ("test", test_rows, test or path)):
        arrays[f"x_{part}"] = np.delete(table, at, axis=1)
        arrays[f"y_{part}"] = _whole(table[:, at], source, label)
    return checked(str(path), arrays, classes, remarks)


def _numbering(path: Path, names: Sequence[str], rows: F64, label: str) -> tuple[str, ...]:
    """Remarks on columns that number the rows.  ConfigError for one without a name: an index that was written too."""
    found = []
    for name, values in zip(names, rows.T, strict=True):
        if name == label or len(rows) < 3:
            continue
        unnamed = not name or _INDEX.fullmatch(name) is not None
        if np.array_equal(values, values[0] + np.arange(len(rows))) or (unnamed and np.all(np.diff(values) > 0)):
            if unnamed:
                raise _bad(path, f"column {name!r} numbers the rows: write the table without its index (index=False)")
            found.append(f"column {name!r} numbers the rows and is taken as a feature: leave it out, or mean it")
    return tuple(found)


def _repeated(names: Sequence[str], rows: F64, label: str) -> tuple[str, ...]:
    """Remarks on names that stand twice in the header, and on features that are the labels."""
    found = [
        f"{names.count(name)} columns are named {name!r}, and all are taken as features"
        for name in dict.fromkeys(names)
        if name != label and names.count(name) > 1
    ]
    if names.count(label) == 1 and len(rows) > 1:
        labels = rows[:, names.index(label)]
        found += [
            f"column {name!r} is the same as the labels and is taken as a feature: leave it out"
            for name, values in zip(names, rows.T, strict=True)
            if name != label and np.array_equal(values, labels)
        ]
    return tuple(found)


def _whole(values: F64, path: Path, label: str) -> npt.NDArray[np.int64]:
    bad = np.flatnonzero((values != np.floor(values)) | (np.abs(values) > 2**31))
    if len(bad):
        message = f"column {label!r} holds {len(bad)} values that are no labels; labels are the integers 0, 1, 2, ..."
        raise _bad(path, message)
    return values.astype(np.int64)


def _read(read: Callable[[Path, str], Table], path: Path, label: str) -> Table:
    """The table, its numbers finite: said by row and column of the file, before rows are divided."""
    names, rows = read(path, label)
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        row, column = (int(at) for at in bad[0])
        what = "missing" if np.isnan(rows[row, column]) else "infinite, or too large for a number"
        message = (
            f"has {len(bad)} non-finite values, the first in row {row + 1} of column {names[column]!r}: it is {what}"
        )
        raise _bad(path, message)
    return names, rows


def _encoding(path: Path) -> str:
    """Of a text file, by its byte order mark.  ConfigError: it is no text, but something that is known."""
    with path.open("rb") as file:
        head = file.read(4)
    if what := next((what for mark, what in _NO_TEXT.items() if head.startswith(mark)), None):
        raise _bad(path, what)
    return "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _csv(path: Path, label: str) -> Table:
    try:
        encoding = _encoding(path)
        with path.open(encoding=encoding, newline="") as file:
            header = file.readline(_MAX_HEADER)
            names = [name.strip() for name in next(csv.reader([header]), [])]
            if not names:
                raise _bad(path, "is empty; the first line must name the columns")
            if len(names) == 1 and (foreign := next((mark for mark in ";\t|" if mark in names[0]), None)):
                mark = "a tab" if foreign == "\t" else repr(foreign)
                raise _bad(path, f"separates its columns by {mark}: save it with commas, and with points in numbers")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of a file without rows, which is said below
                rows = np.loadtxt(file, delimiter=",", quotechar='"', ndmin=2, comments=None)
    except UnicodeDecodeError as error:
        raise _bad(path, f"is not {encoding.upper().removesuffix('-SIG')} text (byte {error.start})") from error
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from error
    except (ValueError, csv.Error) as error:
        raise _bad(path, _unreadable(str(error), names, label)) from error
    if not rows.size:
        raise _bad(path, "has no rows")
    if rows.shape[1] != len(names):
        raise _bad(path, f"has {rows.shape[1]} numbers a row under {len(names)} column names{_COMMAS}")
    return names, rows


def _unreadable(said: str, names: Sequence[str], label: str) -> str:
    """Where a table is no table, without what stands there: such lines reach other hosts.  Rows count from 1."""
    if found := re.search(r"at row (\d+), column (\d+)", said):  # numpy's rows from 0, its columns from 1
        row, column = int(found[1]) + 1, int(found[2])
        name = names[column - 1] if column <= len(names) else column
        kind = "no label (labels are the integers 0, 1, 2, ...)" if name == label else "no number"
        if name == "" and column == len(names):
            kind = "no number (does a comma end each line?)"
        return f"holds something that is {kind}: row {row} of column {name!r}"
    if found := re.search(r"columns changed from (\d+) to (\d+) at row (\d+)", said):
        return f"has {found[1]} values a row, but row {found[3]} has {found[2]}"
    return "holds something that is no number, or a row that is cut short"


def _parquet(path: Path, _label: str) -> Table:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError.one("run file", "data.dataset", "'parquet' needs pyarrow: pip install pyarrow") from error
    try:
        table = parquet.read_table(path)
    except Exception as error:  # pyarrow has its own families of them
        raise _bad(path, f"cannot be read as numbers: {str(error).splitlines()[0]}") from error
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(np.asarray(column.to_numpy(), dtype=np.float64))
        except Exception as error:  # its words may hold the value, and such lines reach other hosts
            raise _bad(path, f"cannot be read as numbers: column {name!r} is of {column.type}") from error
    if not columns or not len(columns[0]):
        raise _bad(path, "has no rows")
    return list(table.column_names), np.stack(columns, axis=1)


def _first_difference(mine: Sequence[str], theirs: Sequence[str]) -> str:
    for a, b in zip(mine, theirs, strict=False):
        if a != b:
            return f"{b!r} for {a!r}"
    return f"{len(theirs)} for {len(mine)}"


_READERS: dict[str, Callable[[Path, str], Table]] = {"csv": _csv, "parquet": _parquet}


def _bad(path: Path, message: str) -> ConfigError:
    return ConfigError.one(str(path), "", message)
