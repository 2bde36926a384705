"""Runs that are carried out: as daemons, or simulated."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from dpgt_node.api.children import Child, Stopped
from dpgt_node.api.results import Results, load_results
from dpgt_node.api.runfile import RunFile, as_file, load_run
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.record.metrics import MetricsRow
    from dpgt_node.types import F64

__all__ = ["Round", "Running", "Stopped", "run", "simulate", "start", "start_simulation"]
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Round:
    """x_{i,k} of all agents before round ``k``'s release, as far as it was evaluated; ``K``: the last round."""

    k: int
    K: int
    rows: tuple[MetricsRow, ...]

    def __getitem__(self, column: str) -> F64:
        """A column of metrics.csv by agent, shape (n,), float64; nan where it does not apply or is not shown."""
        import numpy as np

        return np.array([row.value(column) for row in self.rows], dtype=np.float64)

    @property
    def agents(self) -> tuple[str, ...]:
        """Names in the order of the run file."""
        return tuple(row.agent for row in self.rows)


class Running:
    """A run that goes on in processes of its own.

    Iterate over it for its evaluated rounds, each once and in order, as they happen.  A ``with`` block that is left by
    an exception ends the run in order.  So does the end of this process.
    """

    def __init__(self, run: RunFile, out: str | PathLike[str], arguments: list[str]) -> None:
        loaded = load_run(run)  # all problems of the file, before a process starts
        self._keep = contextlib.ExitStack()
        path = self._keep.enter_context(as_file(run))
        self.out = Path(out)
        """The run's folder."""
        self._K, self._names = loaded.K, loaded.graph.agents
        self._kept = _size(self.out)
        self._child = Child([arguments[0], str(path), "--out", str(out), *arguments[1:]])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            self._end()
            return
        self.wait()

    def __iter__(self) -> Iterator[Round]:
        """Every evaluated round, also those of an earlier start.  Raises as :meth:`wait` at the end."""
        from dpgt_node.record.metrics import MetricsTail

        tail, told = MetricsTail(self.out), set[int]()
        rows: dict[int, dict[str, MetricsRow]] = {}
        try:
            while True:
                code = self._child.wait(0)  # before the file is read: what it wrote last is in there
                fresh = bool(told) or _size(self.out) != self._kept  # else it may still be refused
                new = tail.more() if fresh or code == 0 else []
                for row in new:
                    rows.setdefault(row.k, {})[row.agent] = row
                for k in [k for k, of in rows.items() if len(of) == len(self._names)]:
                    of = rows.pop(k)
                    if k not in told:
                        told.add(k)
                        yield Round(k, self._K, tuple(of[name] for name in self._names))
                if code is not None:
                    self._raise(code)
                    return
                if not new:
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            self._end()
            raise

    @property
    def alive(self) -> bool:
        """Whether it still goes on."""
        return self._child.alive

    def wait(self) -> Results:
        """Its results, once it ended.  A Ctrl-C ends the run in order; a second one at once.

        Raises ConfigError, RefusedError (before the run began), BudgetReached, Stopped, PeerLost.
        """
        try:
            code = self._child.wait()
        except KeyboardInterrupt:
            self._end()
            raise
        assert code is not None
        self._raise(code)
        return load_results(self.out)

    def stop(self) -> Results:
        """End the run in order, as Ctrl-C does on the command line; what there is.  The same call goes on with it."""
        self._end()
        return load_results(self.out)

    def _end(self) -> None:
        self._child.stop()
        self._keep.close()

    def _raise(self, code: int) -> None:
        self._keep.close()
        if (error := self._child.failure(code)) is not None:
            raise error


def _size(out: Path) -> int:
    """Of metrics.csv; 0 where there is none."""
    from dpgt_node.record.metrics import METRICS_FILE

    try:
        return (out / METRICS_FILE).stat().st_size
    except OSError:
        return 0


def start(
    run: RunFile,
    out: str | PathLike[str],
    *,
    insecure: bool = False,
    restart: bool = True,
    durability: Literal["process", "power"] | None = None,
    alone: bool = False,
    test_keystream: str | None = None,
) -> Running:
    """``dpgt launch``: one coordinator and n agents as daemons on this machine; returns at once.

    ``out``: a new folder, or that of the same run unfinished, which goes on.  ``insecure``: no TLS.  ``restart``
    False: a killed process ends the run.  ``durability``: what a release survives before it is sent.  ``alone``: also
    what agents reach without exchange.  ``test_keystream``: hexadecimal digits; no privacy at all.
    Raises ConfigError for the run file; what else is refused is raised by :meth:`Running.wait`.
    """
    options = ["--insecure"] * insecure + ["--no-restart"] * (not restart) + ["--alone"] * alone
    options += [] if durability is None else ["--durability", durability]
    options += [] if test_keystream is None else ["--test-keystream", test_keystream]
    return Running(run, out, ["launch", *options])


def start_simulation(
    run: RunFile,
    out: str | PathLike[str],
    *,
    fast: bool = False,
    device: Literal["cpu", "cuda"] = "cpu",
    alone: bool = False,
    test_keystream: str | None = None,
) -> Running:
    """``dpgt simulate``: the same run without sockets; returns at once.

    The bits are the daemons'; with ``fast`` or ``device`` "cuda" all agents are computed at once, other bits.  The
    rest as for :func:`start`.
    """
    options = ["--fast"] * fast + ["--device", device] + ["--alone"] * alone
    options += [] if test_keystream is None else ["--test-keystream", test_keystream]
    return Running(run, out, ["simulate", *options])


def run(
    run: RunFile,
    out: str | PathLike[str],
    *,
    insecure: bool = False,
    restart: bool = True,
    durability: Literal["process", "power"] | None = None,
    alone: bool = False,
    test_keystream: str | None = None,
) -> Results:
    """:func:`start`, then :meth:`Running.wait`."""
    return start(
        run,
        out,
        insecure=insecure,
        restart=restart,
        durability=durability,
        alone=alone,
        test_keystream=test_keystream,
    ).wait()


def simulate(
    run: RunFile,
    out: str | PathLike[str],
    *,
    fast: bool = False,
    device: Literal["cpu", "cuda"] = "cpu",
    alone: bool = False,
    test_keystream: str | None = None,
) -> Results:
    """:func:`start_simulation`, then :meth:`Running.wait`."""
    return start_simulation(run, out, fast=fast, device=device, alone=alone, test_keystream=test_keystream).wait()
