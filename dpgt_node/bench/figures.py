"""What a measurement takes and gives: options, the machine around it, rows of figures."""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from dpgt_node.values import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """Of repeated measurements: the median, the least, the largest, and how many there were."""

    median: float
    least: float
    most: float
    of: int

    @classmethod
    def over(cls, values: Sequence[float], scale: float = 1.0) -> Spread:
        """Of ``values``, at least one, each times ``scale``."""
        scaled = [scale * value for value in values]
        return cls(statistics.median(scaled), min(scaled), max(scaled), len(scaled))

    @classmethod
    def ratio(cls, above: Sequence[float], below: Sequence[float]) -> Spread:
        """Of ``above`` over ``below``, pair by pair."""
        return cls.over([a / b for a, b in zip(above, below, strict=True)])


Value = str | int | float | None | Spread


@dataclass(frozen=True, slots=True)
class Row:
    """One line of ``table``: figures by the heading of their column.  ``failed``: the bound that it breaks, if any.

    ValueError for a figure that is not finite: what is not known is None.
    """

    table: str
    cells: Mapping[str, Value]
    failed: str = ""

    def __post_init__(self) -> None:
        for name, value in self.cells.items():
            parts = (value.median, value.least, value.most) if isinstance(value, Spread) else (value,)
            if any(isinstance(part, float) and not math.isfinite(part) for part in parts):
                raise ValueError(f"{self.table}: {name} is not finite")


@dataclass(frozen=True, slots=True)
class Around:
    """Where a measurement runs.  ``environment``: of child processes.  ``data_root``: where picture sets live.
    ``folder``: where what it writes goes meanwhile; None: where the system keeps temporary files.
    ``progress``: hears what is being done, where that takes long.
    """

    environment: Mapping[str, str] = field(repr=False)
    data_root: Path
    folder: Path | None = None
    progress: Callable[[str], None] = field(default=lambda line: None, repr=False)

    @contextlib.contextmanager
    def temporary(self) -> Iterator[Path]:
        """A folder that is gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            yield Path(name)


def option(
    default: T, text: str, *, least: float | None = None, choices: Sequence[str] = (), metavar: str | None = None
) -> T:
    """A field of ``Settings`` that the command line can change; a tuple is an option that may be given often."""
    metadata = {"help": text, "least": least, "choices": tuple(choices), "metavar": metavar}
    return field(default=default, metadata=metadata)


def required(text: str, *, metavar: str | None = None, positional: bool = False) -> Any:
    """A field of ``Settings`` that must be given."""
    return field(metadata={"help": text, "metavar": metavar, "positional": positional})


def in_turn(
    jobs: Mapping[str, Callable[[], object]],
    repeat: int,
    number: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each job, ``repeat`` times, one job after the other; each is called ``number`` times for one figure.

    A first call of each, for caches, does not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(repeat):
        for name, job in jobs.items():
            begin = clock()
            for _ in range(number):
                job()
            seconds[name].append((clock() - begin) / number)
    return seconds
