"""An agent's private states, rebuilt in any world from what everybody released and that world's gradients.

In (alg,1) and (alg,2) the transcript parts tx, t of both states are functions of released values alone; the private
parts px, p see only gradients.  So one pass over a transcript gives, for every world at once, what each round's noise
was put on, and what the sampler made of it.  All four mechanisms (privacy.md, section 2); the same operations in the
same order as the agent's own, so the true world comes out bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpgt_node.adversary.audit.likelihood import Draw, recover
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.algo.tracking import mixed_x, mixed_y, step_x, step_y
from dpgt_node.types import F64, NoiseLaw, Stream, WireDtype

Vectors = Mapping[tuple[int, Stream, int], F64]
"""Released vectors by (agent, stream, k), as in :class:`~dpgt_node.adversary.inference.observation.Observation`."""
World = Callable[[int, F64], F64]
"""``gradient(k, point)``: the agent's mean gradient of round k in one world, float64 (d,).  Called in order of k."""


@dataclass(frozen=True, slots=True, eq=False)
class Noised:
    """One noised vector: round ``k``, what was drawn, and the private part in every world, float64 (d,) each."""

    k: int
    stream: Stream
    draw: Draw
    private: tuple[F64, ...] = field(repr=False)


class Unseen(KeyError):
    """A released vector that the replay cannot do without was not seen: (agent, stream, k)."""


@dataclass(slots=True)
class _Own:
    """One world's private parts and gradient."""

    gradient: World
    px: F64
    p: F64
    g: F64


class Replay:
    """One agent (0-based ``index``) of a run over ``vectors``, starting at the public ``x0`` (d,).

    ``skip``: streams of the agent that nobody saw; their noise is then no part of what was observed.
    """

    def __init__(
        self,
        facts: Facts,
        index: int,
        x0: F64,
        vectors: Vectors,
        dtype: WireDtype,
        *,
        skip: frozenset[Stream] = frozenset(),
    ) -> None:
        self._facts, self._index, self._x0, self._vectors = facts, index, x0, vectors
        self._dtype, self._skip = dtype, skip
        self._params = facts.params(index)
        self._law: NoiseLaw = facts.run.noise.law

    @property
    def mechanism(self) -> str:
        """The run's."""
        return self._facts.run.algorithm.mechanism

    def run(self, worlds: Sequence[World]) -> Iterator[Noised]:
        """Every noised vector of rounds 0..K, in order.  Raises Unseen."""
        body = {
            "paper": self._paper,
            "published-point": self._published_point,
            "public-state": self._public_state,
            "noise-once": self._noise_once,
        }[self.mechanism]
        nothing = np.zeros(self._x0.shape)
        with np.errstate(all="ignore"):
            yield from body([_Own(world, nothing, nothing, nothing) for world in worlds], nothing)

    # --- the four mechanisms ------------------------------------------------------------------------------------

    def _paper(self, worlds: list[_Own], nothing: F64) -> Iterator[Noised]:
        tx, t = self._x0, nothing
        for own in worlds:
            own.p = own.g = own.gradient(0, tx)
        for k in self._rounds():
            yield from self._noised(k, "X", tx, [own.px for own in worlds])
            yield from self._noised(k, "Y", t, [own.p for own in worlds])
            if k == self._facts.run.K:
                return
            x_in, y_in = self._received("X", k), self._received("Y", k)
            old_tx, old_t = tx, t
            for own in worlds:
                px, tx = step_x(self._params, own.px, old_tx, own.p, old_t, x_in)
                g = own.gradient(k + 1, px + tx)
                own.p, t = step_y(self._params, own.p, old_t, y_in, own.g, g)
                own.px, own.g = px, g

    def _published_point(self, worlds: list[_Own], nothing: F64) -> Iterator[Noised]:
        tx, t = self._x0, nothing
        for k in self._rounds():
            yield from self._noised(k, "X", tx, [own.px for own in worlds])
            point = self._seen(self._index, "X", k)
            for own in worlds:
                own.g = own.gradient(k, point)
                own.p = own.p + own.g
            yield from self._noised(k, "Y", t, [own.p for own in worlds])
            if k == self._facts.run.K:
                return
            x_in, y_in = self._received("X", k), self._received("Y", k)
            old_tx, old_t = tx, t
            for own in worlds:
                px, tx = step_x(self._params, own.px, old_tx, own.p, old_t, x_in)
                own.p, t = step_y(self._params, own.p, old_t, y_in, own.g, None)
                own.px = px

    def _public_state(self, worlds: list[_Own], nothing: F64) -> Iterator[Noised]:
        tx, t = self._x0, nothing
        for own in worlds:
            own.p = own.g = own.gradient(0, tx)
        for k in self._rounds():
            yield from self._noised(k, "Y", t, [own.p for own in worlds])
            if k == self._facts.run.K:
                return
            y = self._seen(self._index, "Y", k)
            tx = mixed_x(self._params, tx, y, self._received("X", k))
            y_in, old_t = self._received("Y", k), t
            for own in worlds:
                g = own.gradient(k + 1, tx)
                own.p, t = step_y(self._params, own.p, old_t, y_in, own.g, g)
                own.g = g

    def _noise_once(self, worlds: list[_Own], nothing: F64) -> Iterator[Noised]:
        tx, t = self._x0, nothing
        for k in self._rounds():
            noised = list(self._noised(k, "Y", t, [own.gradient(k, tx) for own in worlds]))
            if k == self._facts.run.K:
                yield from noised
                return
            # The agent goes on from g~_k itself, not from the y̆_k that it is a part of.
            noisy = noised[0].draw.values if noised else self._seen(self._index, "Y", k) - t
            yield from noised
            whole = t + noisy
            tx = mixed_x(self._params, tx, whole, self._received("X", k))
            t = mixed_y(self._params, whole, self._received("Y", k))
            t -= noisy

    # --- what they share ----------------------------------------------------------------------------------------

    def _rounds(self) -> range:
        return range(self._facts.run.K + 1)

    def _noised(self, k: int, stream: Stream, transcript: F64, private: list[F64]) -> Iterator[Noised]:
        if stream in self._skip:
            return
        scale = self._facts.schedule.sigma(stream, self._index, k)
        sent = self._seen(self._index, stream, k)
        if scale > 0.0:
            yield Noised(k, stream, recover(sent, transcript, scale, self._law, self._dtype), tuple(private))

    def _received(self, stream: Stream, k: int) -> dict[int, F64]:
        edges = self._params.in_R if stream == "X" else self._params.in_C
        return {j: self._seen(j, stream, k) for j, _ in edges}

    def _seen(self, agent: int, stream: Stream, k: int) -> F64:
        vector = self._vectors.get((agent, stream, k))
        if vector is None:
            raise Unseen((agent, stream, k))
        return vector
