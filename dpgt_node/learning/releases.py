"""What each release of a run is of: the agent's gradient under that release's clip, or class sums."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from dpgt_node.algo.schedule import Schedule
from dpgt_node.errors import Broken
from dpgt_node.learning.common import Oracle
from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

KEPT = 64
"""Kinds of release that stay at hand."""


class Source(Protocol):
    """What a release is of."""

    def gradient(self, x: F64, batch: I64) -> F64:
        """Its value at ``x``, on ``batch``: float64 (d,)."""
        ...


@runtime_checkable
class Summing(Protocol):
    """An oracle that can sum its features by class."""

    def class_sums(self, batch: I64) -> F64:
        """As :meth:`~dpgt_node.learning.nets.models.SoftmaxOracle.class_sums`."""
        ...


@dataclass(frozen=True, slots=True)
class _ClassSums:
    oracle: Summing

    def gradient(self, x: F64, batch: I64) -> F64:
        """They are the same wherever x is."""
        return self.oracle.class_sums(batch)


class Sources:
    """What the releases of one agent are of, by round; rounds alike share an oracle."""

    def __init__(self, oracle: Oracle, schedule: Schedule) -> None:
        self._oracle, self._schedule = oracle, schedule
        self._made: dict[tuple[bool, float], Source] = {}

    def key(self, k: int) -> tuple[bool, float]:
        """Equal for rounds that release alike."""
        return self._schedule.sums(k), self._schedule.share(k)

    def batch(self, k: int, stream: ByteStream) -> I64:
        """The samples of round ``k``: drawn from ``stream``, or all that have arrived by then."""
        samples = self._oracle.samples
        if self._schedule.arriving and samples is not None:
            return np.arange(k + 1, dtype=np.int64)
        return self._oracle.draw_batch(self._schedule.m_at(k, samples), stream)

    def at(self, k: int) -> Source:
        """What round ``k``, which releases something, releases."""
        key = self.key(k)
        if key not in self._made:
            if len(self._made) >= KEPT:  # a clip that decays is another one in every round
                self._made.clear()
            sums, share = key
            oracle = self._oracle if share == 1.0 else self._oracle.under(share)
            if sums and not isinstance(oracle, Summing):
                raise Broken("class sums are of a model that has them")
            self._made[key] = _ClassSums(oracle) if isinstance(oracle, Summing) and sums else oracle
        return self._made[key]
