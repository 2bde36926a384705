"""One agent as the place where its method's equations run: gradients, noise and payloads of one round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial

import numpy as np

from dpgt_node.agent.encoding import Part
from dpgt_node.algo.graph import Edge
from dpgt_node.algo.methods.base import GRADIENT_NOISE, Exchanged, Mix, Rounds, Seen
from dpgt_node.algo.methods.robust import Guard, mix_of
from dpgt_node.errors import Broken, invariant
from dpgt_node.learning.tables import Table
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.protocol.types import Payload, RoundRecord, on
from dpgt_node.types import F64, I64, Floats, Stream
from dpgt_node.values import dataclass

BLOCK = 1 << 14
"""Coordinates: what a step touches at a time stays in the cache."""
_WHOLE = (slice(None),)
NO_BATCH: I64 = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Tools:
    """What an agent works with.

    ``gradient(k, x, batch)`` draws a batch when it is None, ``draw(k)`` a batch alone.  ``perturb(stream, k, private,
    parts)`` adds the noise of one draw, in new arrays, one for each of ``parts``; ``encode(stream, k, values)`` takes
    such.  ``coins(k, private, code)`` gives the codes of one draw.  ``table``: of what a method may keep.
    ``incoming``: who sends on a stream, and the weight.  ``index``: of the agent.  ``guards``: how what comes in on a
    stream is bounded.  ``parts``: of a vector that is drawn and sent part by part.
    """

    gradient: Callable[[int, F64, I64 | None], tuple[F64, I64]]
    perturb: Callable[[Stream, int, F64, Sequence[slice]], Iterator[F64]]
    encode: Callable[[Stream, int, F64 | Iterable[Part]], Payload]
    table: Table
    draw: Callable[[int], I64]
    coins: Callable[[int, F64, BinomialCode], F64]
    incoming: Mapping[Stream, tuple[Edge, ...]]
    perturbs_gradient: bool
    index: int
    guards: Mapping[Stream, Guard]
    parts: Sequence[slice]


@dataclass(slots=True)
class AgentSite:
    """One move of one agent: see ``algo.methods.base.Site``.

    ``received``: what came in, by stream and sender.  ``payloads``: what the agent sent in the round that the move
    starts from; a release puts its own there.  ``record``: the round to be gone through again, which draws nothing.
    ``batch``: what the gradient was sampled from.  ``noisy``: the perturbed gradient, where one was drawn.  ``draws``:
    the noise of each draw, by its scale's stream, and the stream that carries it.
    ``far``: how far from it, or from 0, what came in lay, where a stream is bounded.
    """

    tools: Tools
    received: Mapping[Stream, Mapping[int, Floats]] = field(default_factory=dict)
    payloads: tuple[Payload, ...] = ()
    record: RoundRecord | None = None
    batch: I64 = field(default_factory=lambda: NO_BATCH)
    noisy: F64 | None = None
    draws: list[tuple[Stream, Stream]] = field(default_factory=list)
    far: dict[Stream, Mapping[int, float]] = field(default_factory=dict)

    @property
    def block(self) -> int:
        """Coordinates to work on at a time."""
        return BLOCK

    @property
    def alone(self) -> None:
        """No arithmetic of its own."""

    def gradient(self, k: int, x: F64) -> F64:
        """g_k at ``x``: on a fresh batch, or on the recorded one.

        Where the gradient itself is perturbed a record holds what came of it, and g_k is not computed again.
        """
        record = self.record
        if record is not None and self.tools.perturbs_gradient:
            self.batch = record.batch
            return np.zeros(x.shape)
        g, self.batch = self.tools.gradient(k, x, None if record is None else record.batch)
        return g

    def again(self, k: int, x: F64) -> F64:
        """On ``batch``."""
        return self.tools.gradient(k, x, self.batch)[0]

    def whole(self, k: int, x: F64) -> F64:
        """On every sample; ``batch`` stays empty."""
        return self.tools.gradient(k, x, self.tools.table.everything)[0]

    def table(self, x: F64) -> F64:
        """Of this agent's samples."""
        return self.tools.table.at(x)

    def exchanged(self, k: int, x: F64, table: F64) -> Exchanged:
        """On a fresh batch, or on the recorded one."""
        self.batch = self.tools.draw(k) if self.record is None else self.record.batch
        return self.tools.table.exchanged(x, self.batch, table)

    def noised(self, stream: Stream, k: int, private: F64, public: F64, rounded: Rounds | None = None) -> None:
        """Send ``(private + noise) + public``, rounded where ``rounded`` says how."""
        self.draws.append((stream, stream))
        released: F64 | Iterable[Part]
        if rounded is None and len(self.tools.parts) > 1:
            released = self._released(stream, k, private, public)
        else:
            (noisy,) = self.tools.perturb(stream, k, private, _WHOLE)
            noisy += public  # in the memory of ``noisy``, which nobody else holds
            released = noisy if rounded is None else rounded(noisy)
        self.payloads = (*self.payloads, self.tools.encode(stream, k, released))

    def _released(self, stream: Stream, k: int, private: F64, public: F64) -> Iterator[Part]:
        parts = self.tools.parts
        for at, noisy in zip(parts, self.tools.perturb(stream, k, private, parts), strict=True):
            yield noisy, public[at]

    def perturbed(self, k: int, private: F64, seen: Seen) -> F64:
        """g~_k.  Its charge stands with this round's first vector, unless another one carries it."""
        (self.noisy,) = self.tools.perturb(GRADIENT_NOISE, k, private, _WHOLE)
        self.draws.append((GRADIENT_NOISE, seen.stream))
        return self.noisy

    def coined(self, k: int, private: F64, code: BinomialCode) -> F64:
        """Drawn here, once."""
        self.draws.append((GRADIENT_NOISE, "X"))
        return code.codes.values(self.tools.coins(k, private, code))

    def send(self, stream: Stream, k: int, values: F64) -> None:
        """Encode ``values``."""
        self.payloads = (*self.payloads, self.tools.encode(stream, k, values))

    def own(self, stream: Stream, k: int) -> F64:
        """The values of a payload of this agent, wire rounding included."""
        payload = on(stream, self.payloads)
        invariant(payload.k == k, "an agent goes on from its own release of the same round")
        return payload.array()

    def drawn(self, k: int) -> F64:
        """g~_k of the record."""
        record = self.record
        invariant(record is not None and record.k == k, "a round is gone through again with its own record")
        noisy = None if record is None else record.noisy_gradient
        if noisy is None:
            raise Broken("a record of this method holds its perturbed gradient")
        return noisy

    def mixing(self, stream: Stream, k: int) -> Mix:
        """Over the agents that send on ``stream``."""
        tools, received = self.tools, self.received.get(stream, {})
        guard, edges = tools.guards.get(stream), tools.incoming[stream]
        return mix_of(guard, tools.index, edges, received, lambda: self.own(stream, k), partial(self._noted, stream))

    def _noted(self, stream: Stream, far: Mapping[int, float]) -> None:
        self.far[stream] = far
