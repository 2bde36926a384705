"""Tables of per-sample gradients, as variance reduction keeps them: f_i = (1/D) sum_j f_ij at one agent.

A table is one vector, so that it is stored, saved and restored like any other part of a state.  It holds q numbers a
sample: all d of its gradient, or for softmax the errors p - e_y, one a class, which tell the gradient.  A toy without
randomness is one sample.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from dpgt_node.algo.methods import rule_of
from dpgt_node.algo.methods.base import Exchanged
from dpgt_node.config.model import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.types import F64, I64

_COPIES = 3
"""A table, the one that follows it, and the one on its way to the disk."""


class _Sampled(Protocol):
    """Of an oracle, what a table asks for."""

    @property
    def dimension(self) -> int: ...

    @property
    def samples(self) -> int | None: ...

    def gradient(self, x: F64, batch: I64) -> F64: ...


@runtime_checkable
class Parted(Protocol):
    """An oracle whose per-sample gradients are told by fewer than d numbers each."""

    @property
    def part_size(self) -> int:
        """q."""
        ...

    def parts(self, x: F64, batch: I64) -> F64:
        """Those of every sample of ``batch`` at ``x``, (m, q)."""
        ...

    def of_parts(self, parts: F64, batch: I64) -> F64:
        """The mean gradient (d,) that they make; linear in ``parts``."""
        ...


class Table:
    """What the table of one agent is made of, and how it changes; the table itself is the caller's."""

    def __init__(self, oracle: _Sampled) -> None:
        self._oracle = oracle
        self._rows = np.arange(oracle.samples or 0, dtype=np.int64)
        self._width = oracle.part_size if isinstance(oracle, Parted) else oracle.dimension

    @property
    def shape(self) -> tuple[int, int]:
        """(D, q)."""
        return max(len(self._rows), 1), self._width

    @property
    def everything(self) -> I64:
        """Every sample, as a batch."""
        return self._rows

    def at(self, x: F64) -> F64:
        """The table of all gradients at ``x``, float64 (D q,)."""
        return self._parts(x, self._rows).reshape(-1)

    def exchanged(self, x: F64, batch: I64, table: F64) -> Exchanged:
        """``table`` with the gradients of ``batch`` at ``x`` in it."""
        rows = batch if len(self._rows) else np.zeros(1, dtype=np.int64)
        held = table.copy()
        kept, new = held.reshape(self.shape), self._parts(x, batch)
        change = self._mean(new - kept[rows], batch)
        kept[rows] = new
        return Exchanged(change, held, (len(rows) / len(kept)) * change)

    def _parts(self, x: F64, batch: I64) -> F64:
        oracle = self._oracle
        if isinstance(oracle, Parted):
            return oracle.parts(x, batch)
        if not len(self._rows):
            return oracle.gradient(x, batch)[None, :]
        return np.stack([oracle.gradient(x, batch[i : i + 1]) for i in range(len(batch))])

    def _mean(self, parts: F64, batch: I64) -> F64:
        if isinstance(self._oracle, Parted):
            return self._oracle.of_parts(parts, batch)
        mean: F64 = parts.mean(axis=0)
        return mean


def table_size(run: RunConfig, oracle: _Sampled, samples: int | None = None) -> int:
    """Numbers of the table that an agent of ``run`` keeps; 0: its method keeps none.

    ``samples``: D of another agent with a model alike.
    """
    if not rule_of(run).keeps_table:
        return 0
    rows, width = Table(oracle).shape
    return (samples or rows) * width


def table_bytes(numbers: int) -> int:
    """What a table of so many numbers takes of memory while a round changes it."""
    return 8 * _COPIES * numbers


def check_tables(run: RunConfig, oracles: Sequence[_Sampled]) -> None:
    """ConfigError, with the size, where the tables of agents that run here do not fit into this machine's memory."""
    need, here = table_bytes(sum(table_size(run, oracle) for oracle in oracles)), memory_bytes()
    if need <= here:
        return
    rows, width = max((Table(oracle).shape for oracle in oracles), key=lambda shape: shape[0] * shape[1])
    agents = f"{len(oracles)} agents" if len(oracles) > 1 else "one agent"
    message = (
        f"{run.algorithm.method} keeps a table of D x q = {rows:,} x {width:,} numbers; {_COPIES} of them at "
        f"{agents} take {need / 1e9:.1f} GB, and this machine has {here / 1e9:.1f} GB: take fewer samples, "
        "a smaller model or gt-svrg"
    )
    raise ConfigError.one("run file", "algorithm.method", message)


def memory_bytes() -> int:
    """Physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
