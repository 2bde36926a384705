"""``metrics.csv``: one row an agent and evaluation, appended while the run goes on.

Row k is x_{i,k} before round k's release; epsilon is what the agent has spent after round k-1.  An infinite value is
``inf``, a value that does not apply (or is not a number) is an empty cell.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable
from dataclasses import field, fields
from pathlib import Path
from types import TracebackType
from typing import Self

from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.record.costs import Epsilon
from dpgt_node.values import dataclass

METRICS_FILE = "metrics.csv"
STUDY_DIMENSION_MAX = 1_000_000
"""Above this dimension consensus_error is known only at the end (interface.md, section 3)."""
EPSILON = "epsilon_"
"""Begins the name of an accountant's column."""


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """One line of ``metrics.csv``; the fields, in order, are its columns, ``epsilon`` one an accountant.

    ``k``: 0..K+1.  ``wall_seconds``: since the last start began its rounds.  Losses in nats, accuracies in [0, 1],
    ``grad_norm`` the L2 norm of the local gradient, ``consensus_error`` = sqrt(mean_i ||x_i - mean x||^2), the epsilons
    cumulative.  None: not applicable, or not shown to whoever wrote the row.
    """

    agent: str
    k: int
    wall_seconds: float | None = None
    loss_train: float | None = None
    accuracy_train: float | None = None
    accuracy_test: float | None = None
    grad_norm: float | None = None
    consensus_error: float | None = None
    epsilon: Epsilon = field(default_factory=Epsilon)

    def value(self, column: str) -> float | None:
        """What stands in that column of numbers, any behind ``k``; None for an accountant of another version."""
        if column.startswith(EPSILON):
            return self.epsilon.get(column.removeprefix(EPSILON))
        found: float | None = getattr(self, column)
        return found


_PLAIN = tuple(f.name for f in fields(MetricsRow) if f.name != "epsilon")
COLUMNS: tuple[str, ...] = (*_PLAIN, *(f"{EPSILON}{name}" for name in ACCOUNTANTS))


class MetricsStore:
    """Appends to ``OUT/metrics.csv``; a continued run goes on in the same file.

    Every :meth:`append` is flushed, so a reader sees whole batches.  A line torn by a crash is cut off on opening.
    A file of another version, with other accountants, keeps its columns.  Raises :class:`ConfigError` when the file
    that is there has other columns than that.
    """

    def __init__(self, out_dir: Path) -> None:
        self.path = out_dir / METRICS_FILE
        out_dir.mkdir(parents=True, exist_ok=True)
        fresh = not self.path.exists() or not cut_torn_line(self.path)
        self._columns = COLUMNS if fresh else self._columns_there()
        self._file = self.path.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if fresh:
            self._writer.writerow(self._columns)
            self._file.flush()

    def _columns_there(self) -> tuple[str, ...]:
        with self.path.open(encoding="utf-8", newline="") as file:
            there = tuple(next(csv.reader(file), ()))
        plain = len(_PLAIN)
        if there[:plain] != _PLAIN or not all(name.startswith(EPSILON) for name in there[plain:]):
            message = f"has other columns than this version writes ({', '.join(COLUMNS)}); move it away"
            raise ConfigError.one(str(self.path), "", message)
        return there

    def append(self, rows: Iterable[MetricsRow]) -> None:
        """Write ``rows`` and flush them to the operating system."""
        numbers = self._columns[2:]
        self._writer.writerows([row.agent, row.k, *(_cell(row.value(name)) for name in numbers)] for row in rows)
        self._file.flush()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @staticmethod
    def read(out_dir: Path) -> tuple[MetricsRow, ...]:
        """All whole rows of ``OUT/metrics.csv``, in file order; () when there is none.

        A row that was written again after a restart (same agent and k) replaces the earlier one.  Columns that the
        file lacks are None.  Raises :class:`ConfigError` naming file and line for a cell that is not a number.
        """
        path = out_dir / METRICS_FILE
        found = {(row.agent, row.k): row for row in _rows(path, whole_lines(path))}
        return tuple(found.values())


def whole_lines(path: Path) -> str:
    """The text of ``path`` up to its last line end; "" when there is no such file.  ConfigError: it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError.one(str(path), "", f"cannot be read: {error}") from error
    return text[: text.rfind("\n") + 1]


class MetricsTail:
    """Reads ``OUT/metrics.csv`` while a run writes it: :meth:`more` has the whole rows that are new.

    A file that was cut is read again from its start, so a row may come twice.  Raises as :meth:`MetricsStore.read`.
    """

    def __init__(self, out_dir: Path) -> None:
        self._path = out_dir / METRICS_FILE
        self._head = b""
        self._at = 0

    def more(self) -> list[MetricsRow]:
        """In file order; [] while there is nothing new."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._at:
                    self._at = 0
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        if not self._at:
            self._head, _, _ = whole.partition(b"\n")
        text = whole if not self._at else self._head + b"\n" + whole
        self._at += len(whole)
        return _rows(self._path, text.decode("utf-8"))


def cut_rows(out_dir: Path, through: int) -> tuple[MetricsRow, ...]:
    """Drop the rows of k > ``through`` from ``OUT/metrics.csv`` for good; what is left.  Raises as :meth:`read`."""
    kept = tuple(row for row in MetricsStore.read(out_dir) if row.k <= through)
    path = out_dir / METRICS_FILE
    if path.exists():
        path.unlink()
        with MetricsStore(out_dir) as store:
            store.append(kept)
    return kept


def _rows(path: Path, text: str) -> list[MetricsRow]:
    """The rows of ``text``, whole lines of ``path`` with their head."""
    reader, found = csv.DictReader(io.StringIO(text, newline="")), []
    for record in reader:
        try:
            found.append(_parse(record))
        except (KeyError, TypeError, ValueError) as error:
            where = f"line {reader.line_num}"
            raise ConfigError.one(str(path), where, f"is not a metrics row ({error})") from error
    return found


def _cell(value: str | int | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        # repr round-trips exactly; NaN has no meaning a reader could use.
        return "" if math.isnan(value) else repr(float(value))
    return str(value)


def _parse(record: dict[str, str]) -> MetricsRow:
    values = {name: float(text) for name in _PLAIN[2:] if (text := record.get(name))}
    costs = {name: float(text) for name in ACCOUNTANTS if (text := record.get(f"{EPSILON}{name}"))}
    return MetricsRow(record["agent"], int(record["k"]), **values, epsilon=Epsilon.of(costs))


def cut_torn_line(path: Path) -> bool:
    """Truncate ``path`` behind its last newline; False when nothing is left."""
    with path.open("r+b") as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            file.truncate(whole)
            os.fsync(file.fileno())
        return whole > 0
