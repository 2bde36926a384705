"""All agents of a run as the rows of matrices: its method's own equations, without messages.

Private parts are computed by the very operations of an agent; sums over neighbours are one product a stream.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol, runtime_checkable

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of, rule_of
from dpgt_node.algo.methods.base import GRADIENT_NOISE, Exchanged, Mix, Rounds, Seen, Vectors, column
from dpgt_node.algo.methods.robust import Guard, guards_of, mix_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.errors import Broken
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.compiled import worth_compiling
from dpgt_node.sim.matrix import Mixing, Parts, Weights
from dpgt_node.sim.team import Team
from dpgt_node.types import F64, Stream

_WHOLE = 1 << 62
_LARGE = 1 << 18
"""Coordinates of a vector from which on matrices are worked on block by block: a whole temporary matrix would cost more
memory than all else, and more time than the arithmetic.
"""
_BLOCK_NUMBERS = 1 << 17
"""Of one block of a matrix: it stays in the cache."""


class Work(Protocol):
    """What rows call; float64 (n, d) throughout."""

    def gradient(self, k: int, x: F64) -> F64:
        """Every agent's gradient at its row, on a batch drawn for round ``k``."""
        ...

    def perturb(self, stream: Stream, k: int, private: F64, public: F64 | None = None) -> F64:
        """(``private`` + round k's noise) + ``public``: a new matrix."""
        ...

    def wire(self, stream: Stream, k: int, values: F64) -> F64:
        """What receivers read."""
        ...


@runtime_checkable
class Keeping(Protocol):
    """Work with samples, for methods that keep gradients: see ``algo.methods.base.Site``."""

    def again(self, k: int, x: F64) -> F64:
        """The same at other rows, on the batches that were drawn last."""
        ...

    def whole(self, k: int, x: F64) -> F64:
        """Every agent's gradient over all of its samples."""
        ...

    def table(self, x: F64) -> F64:
        """One row an agent, each as long as the longest."""
        ...

    def exchanged(self, k: int, x: F64, table: F64) -> Exchanged:
        """A fresh batch of each agent's."""
        ...


@runtime_checkable
class Coining(Protocol):
    """Work that draws codes, for methods that send them."""

    def coined(self, k: int, private: F64, code: BinomialCode) -> F64:
        """What every agent's codes of round ``k`` stand for."""
        ...


class Rows:
    """``step(k)`` goes from round k to k+1, ``last``: to x_{K+1} alone.  ``vectors``: the state, by name.

    See ``algo.methods.base.Site`` for the rest.
    """

    def __init__(
        self, run: RunConfig, topology: Topology, schedule: Schedule, work: Work, x0: F64, team: Team | None = None
    ) -> None:
        self._work, self._sent = work, dict[Stream, F64]()
        team = team or Team()
        self._alone = Parts(team)
        self._rule = rule_of(run).build(run, topology, schedule, column)
        self._network, self._guards = network_of(run, topology), guards_of(run)
        n, d = x0.shape
        self._weights = {
            stream: Weights(edges, worth_compiling(len(edges.weights) * d * (run.K + 1)), team)
            for stream, edges in self._network.weights.items()
        }
        self._block = _WHOLE if d < _LARGE else max(_BLOCK_NUMBERS // n, 1 << 12)
        self.vectors: Vectors = self._rule.begin(self, x0)
        self._x: F64 | None = None

    @property
    def x(self) -> F64:
        if self._x is None:
            self._x = self._rule.point(self.vectors)
        return self._x

    @property
    def state(self) -> tuple[str, ...]:
        """Names of the vectors that every state has."""
        return self._rule.state

    def go_on(self, vectors: Vectors) -> None:
        """Be where ``vectors`` was taken."""
        self.vectors, self._x = vectors, None

    def step(self, k: int, last: bool) -> None:
        v, self._x = self._rule.release(self, k, self.vectors), None
        self.vectors = v  # what the release left behind makes room for the next round
        if last:
            self._x = self._rule.final(self, k, v)
        else:
            self.vectors = self._rule.advance(self, k, v)
        self._sent.clear()

    @property
    def _keeping(self) -> Keeping:
        if not isinstance(self._work, Keeping):
            raise Broken("a method that keeps gradients is simulated with samples")
        return self._work

    @property
    def block(self) -> int:
        return self._block

    @property
    def alone(self) -> Parts:
        return self._alone

    def gradient(self, k: int, x: F64) -> F64:
        return self._work.gradient(k, x)

    def again(self, k: int, x: F64) -> F64:
        return self._keeping.again(k, x)

    def whole(self, k: int, x: F64) -> F64:
        return self._keeping.whole(k, x)

    def table(self, x: F64) -> F64:
        return self._keeping.table(x)

    def exchanged(self, k: int, x: F64, table: F64) -> Exchanged:
        return self._keeping.exchanged(k, x, table)

    def noised(self, stream: Stream, k: int, private: F64, public: F64, rounded: Rounds | None = None) -> None:
        noisy = self._work.perturb(stream, k, private, public)
        self.send(stream, k, noisy if rounded is None else rounded(noisy))

    def perturbed(self, k: int, private: F64, seen: Seen) -> F64:
        return self._work.perturb(GRADIENT_NOISE, k, private)

    def coined(self, k: int, private: F64, code: BinomialCode) -> F64:
        if not isinstance(self._work, Coining):
            raise Broken("a method that codes gradients is simulated with coins")
        return self._work.coined(k, private, code)

    def send(self, stream: Stream, k: int, values: F64) -> None:
        self._sent[stream] = self._work.wire(stream, k, values)

    def own(self, stream: Stream, k: int) -> F64:
        return self._sent[stream]

    def drawn(self, k: int) -> F64:
        raise AssertionError("nothing is gone through again here")

    def mixing(self, stream: Stream, k: int) -> Mix:
        if stream in self._guards:
            return self._guarded(self._guards[stream], stream)
        return Mixing(self._weights[stream], self._sent[stream])

    def _guarded(self, guard: Guard, stream: Stream) -> Mix:
        """No product: every agent has a sum of its own, by the very operations of an agent."""
        sent, mixes = self._sent[stream], list[Mix]()
        for i in range(len(sent)):
            edges = self._network.incoming(i)[stream]
            mixes.append(mix_of(guard, i, edges, {j: sent[j] for j, _ in edges}, partial(sent.__getitem__, i)))

        def mix(step: float, into: F64, block: slice) -> None:
            for one, row in zip(mixes, into, strict=True):
                one(step, row, block)

        return mix
