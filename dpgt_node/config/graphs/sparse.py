"""A matrix of weights that holds what is not zero: ten thousand agents on a ring need 10,000 weights, not 10^8."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

SPARSE_FROM = 500
"""From so many agents on, generators and GraphML files give :class:`SparseRows` instead of a tuple of tuples."""


COMPACT_FROM = 600
"""From so many agents on the resolved run file and its canonical JSON leave zeros out: with them the JSON of both
matrices would be above the 4 MiB of a registration.
"""


class SparseRows(Sequence[tuple[float, ...]]):
    """n x n weights > 0 by rows; reads, compares and hashes as the tuple of row tuples that it stands for.

    ``starts`` (n + 1), ``columns`` and ``weights``, one an entry: compressed sparse rows, columns ascending within a
    row.  ``starts`` and ``columns`` are int64, ``weights`` float64; numpy reads all three without a copy.
    """

    __slots__ = ("columns", "starts", "weights")

    def __init__(self, rows: Iterable[Mapping[int, float]]) -> None:
        """From one ``{column: weight}`` a row; zeros are left out."""
        self.starts, self.columns, self.weights = array("q", [0]), array("q"), array("d")
        for row in rows:
            kept = [j for j in sorted(row) if row[j] != 0.0]
            self.columns.extend(kept)
            self.weights.extend(row[j] for j in kept)
            self.starts.append(len(self.columns))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> tuple[float, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[float, ...], ...]: ...
    def __getitem__(self, index: int | slice) -> tuple[float, ...] | tuple[tuple[float, ...], ...]:
        if isinstance(index, slice):
            return tuple(self._row(i) for i in range(len(self))[index])
        return self._row(range(len(self))[index])

    def __iter__(self) -> Iterator[tuple[float, ...]]:
        return map(self._row, range(len(self)))

    def _row(self, i: int) -> tuple[float, ...]:
        row = [0.0] * len(self)
        for at in range(self.starts[i], self.starts[i + 1]):
            row[self.columns[at]] = self.weights[at]
        return tuple(row)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SparseRows):
            return (self.starts, self.columns, self.weights) == (other.starts, other.columns, other.weights)
        if isinstance(other, tuple):
            return len(self) == len(other) and all(mine == row for mine, row in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def table(self) -> SparseRows:
        """For the resolved run file and its hash, which have every entry: they ask for one row after the other."""
        return self

    def edges(self) -> Iterator[tuple[int, int, float]]:
        """(sender, receiver, weight), agents from 1, by receiver."""
        for i in range(len(self)):
            for at in range(self.starts[i], self.starts[i + 1]):
                yield self.columns[at] + 1, i + 1, self.weights[at]

    def texts(self) -> Iterator[str]:
        """Every row as JSON; from COMPACT_FROM agents on as ``[column, weight, column, weight, ...]``."""
        n = len(self)
        if n >= COMPACT_FROM:
            for i in range(n):
                here = range(self.starts[i], self.starts[i + 1])
                yield f"[{','.join(f'{self.columns[at]},{self.weights[at]!r}' for at in here)}]"
            return
        for i in range(n):
            parts: list[str] = []
            free = 0
            for at in range(self.starts[i], self.starts[i + 1]):
                parts += ["0.0," * (self.columns[at] - free), repr(self.weights[at]), ","]
                free = self.columns[at] + 1
            yield f"[{''.join([*parts, '0.0,' * (n - free)])[:-1]}]"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """numpy's protocol: the dense array, float64 unless ``dtype`` says otherwise."""
        import numpy as np

        n = len(self)
        dense = np.zeros((n, n), dtype=np.float64)
        rows = np.repeat(np.arange(n), np.ediff1d(np.frombuffer(self.starts, dtype=np.int64)))
        if len(self.columns):
            dense[rows, np.frombuffer(self.columns, dtype=np.int64)] = np.frombuffer(self.weights, dtype=np.float64)
        return dense if dtype is None else dense.astype(dtype, copy=False)
