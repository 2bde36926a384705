"""An agent's private states, rebuilt in any world from what everybody released and that world's gradients.

A method's own equations run here over what was released: private parts differ between worlds and are rows of a matrix,
whatever follows from the transcript is one vector for all.  So one pass over a transcript gives, for every world at
once, what each round's noise was put on, and what the sampler made of it; the true world comes out bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from dpgt_node.adversary.audit.likelihood import Counted, Drawn, Interval, Quantised, recover
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.algo.methods import rule_of
from dpgt_node.algo.methods.base import GRADIENT_NOISE, Exchanged, Mix, Rounds, Seen, at
from dpgt_node.algo.methods.robust import guards_of, mix_of
from dpgt_node.errors import Broken, ConfigError
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.types import F64, NoiseLaw, Stream, WireDtype
from dpgt_node.values import dataclass

Vectors = Mapping[tuple[int, Stream, int], F64]
"""Released vectors by (agent, stream, k), as in :class:`~dpgt_node.adversary.inference.observation.Observation`."""
World = Callable[[int, F64], F64]
"""``gradient(k, point)``: the agent's mean gradient of round k in one world, float64 (d,).  Called in order of k."""
NO_NOISE_SHOWS = (
    "nothing that was sent carries noise: what the last round draws shows in x_{K+1} alone, which nobody sends; with "
    "one more iteration there is something to audit"
)
_NOTHING_HIDDEN = Broken("a method that keeps gradients draws no noise, so there is nothing to audit")
BLOCK = 1 << 14
"""Coordinates worked on at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Noised:
    """One noised vector: round ``k``, what was drawn, and the private part in every world, float64 (d,) each."""

    k: int
    stream: Stream
    draw: Drawn
    private: tuple[F64, ...] = field(repr=False)


class Unseen(KeyError):
    """A released vector that the replay cannot do without was not seen: (agent, stream, k)."""


def no_noise_shows() -> ConfigError:
    """What a replay without a noised vector means."""
    return ConfigError.one("run file", "algorithm.iterations", NO_NOISE_SHOWS)


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

    @property
    def mechanism(self) -> str:
        return self._facts.run.algorithm.mechanism

    @property
    def goes_on_from_draws(self) -> bool:
        """Later points depend on a perturbed gradient that the transcript does not tell to the last bit."""
        return rule_of(self._facts.run).keeps_drawn

    def release(self, k: int) -> int:
        """Which release round ``k`` makes, counted from 0; only rounds that take a gradient are asked for."""
        release = self._facts.schedule.release(k)
        if release is None:
            raise Broken("a round that releases nothing takes no gradient")
        return release

    def share(self, k: int) -> float:
        """The clip of round ``k``, as a part of the run's."""
        return self._facts.schedule.share(k)

    def run(self, worlds: Sequence[World]) -> Iterator[Noised]:
        """Every noised vector of rounds 0..K, in order.  Raises Unseen."""
        facts, site = self._facts, _Worlds(self._facts, self._index, self._vectors, self._dtype, self._skip, worlds)
        rule = rule_of(facts.run).build(facts.run, facts.topology, facts.schedule, at(self._index))
        with np.errstate(all="ignore"):
            state = rule.begin(site, self._x0)
            for k in range(facts.run.K + 1):
                state = rule.release(site, k, state)
                noised, site.noised_vectors = site.noised_vectors, []
                yield from noised
                if k < facts.run.K:
                    state = rule.advance(site, k, state)


class _Worlds:
    """A transcript as the place where a method's equations run: see ``algo.methods.base.Site``.

    Nothing is drawn: what was sent is read, and noise is what is left of it.
    """

    block = BLOCK

    def __init__(
        self,
        facts: Facts,
        index: int,
        vectors: Vectors,
        dtype: WireDtype,
        skip: frozenset[Stream],
        worlds: Sequence[World],
    ) -> None:
        self._facts, self._index, self._vectors, self._worlds = facts, index, vectors, worlds
        self._dtype, self._skip = dtype, skip
        self._law: NoiseLaw = facts.run.noise.law
        self._incoming, self._guards = facts.network.incoming(index), guards_of(facts.run)
        self.noised_vectors: list[Noised] = []

    @property
    def alone(self) -> None:
        """No arithmetic of its own."""

    def gradient(self, k: int, x: F64) -> F64:
        """Of every world, (worlds, d); ``x``: one point for all (d,), or one a world."""
        points = np.broadcast_to(x, (len(self._worlds), x.shape[-1]))
        return np.stack([world(k, point) for world, point in zip(self._worlds, points, strict=True)])

    def again(self, k: int, x: F64) -> F64:
        raise _NOTHING_HIDDEN

    def whole(self, k: int, x: F64) -> F64:
        raise _NOTHING_HIDDEN

    def table(self, x: F64) -> F64:
        raise _NOTHING_HIDDEN

    def exchanged(self, k: int, x: F64, table: F64) -> Exchanged:
        raise _NOTHING_HIDDEN

    def noised(self, stream: Stream, k: int, private: F64, public: F64, rounded: Rounds | None = None) -> None:
        quantiser = self._facts.schedule.range
        if quantiser is None:
            self._read(stream, k, private, Seen(stream, public, rounded=rounded), public)
        elif stream not in self._skip:
            self._keep(stream, k, Quantised(quantiser, self.own(stream, k)), private)

    def perturbed(self, k: int, private: F64, seen: Seen) -> F64:
        """g~_k itself, not what carries it: the agent goes on from that.  Nobody saw what only x_{K+1} holds.

        Where what carries it was rounded, the middle of what it may be stands in.
        """
        if seen.later and k == self._facts.run.K:
            return np.zeros(private.shape[-1])
        base = seen.base() if callable(seen.base) else seen.base
        draw = self._read(GRADIENT_NOISE, k, private, seen, base)
        return (self.own(seen.stream, k + seen.later) - base) / seen.factor if draw is None else draw.values

    def coined(self, k: int, private: F64, code: BinomialCode) -> F64:
        sent = self.own("X", k)
        self._keep(GRADIENT_NOISE, k, Counted(code, code.codes.nearest(sent)), private)
        return sent

    def send(self, stream: Stream, k: int, values: F64) -> None:
        """Nothing: it was sent."""

    def own(self, stream: Stream, k: int) -> F64:
        return self._seen(self._index, stream, k)

    def drawn(self, k: int) -> F64:
        raise AssertionError("an adversary has no records")

    def mixing(self, stream: Stream, k: int) -> Mix:
        edges = self._incoming[stream]
        received = {j: self._seen(j, stream, k) for j, _ in edges}
        return mix_of(self._guards.get(stream), self._index, edges, received, lambda: self.own(stream, k))

    def _read(self, noise: Stream, k: int, private: F64, seen: Seen, base: F64) -> Drawn | None:
        """What the sampler made of ``private``; None where nobody saw it or no noise was drawn."""
        if seen.stream in self._skip:
            return None
        scale, sent = self._facts.schedule.sigma(noise, self._index, k), self.own(seen.stream, k + seen.later)
        if scale <= 0.0:
            return None
        draw: Drawn
        if seen.rounded is None:
            draw = recover(sent, base, scale, self._law, self._dtype, seen.factor)
        else:
            ends = [(end - base) / seen.factor for end in seen.rounded.between(sent)]
            draw = Interval(self._law, scale, np.minimum(*ends), np.maximum(*ends))
        self._keep(noise, k, draw, private)
        return draw

    def _keep(self, noise: Stream, k: int, draw: Drawn, private: F64) -> None:
        rows = np.broadcast_to(private, (len(self._worlds), private.shape[-1]))
        self.noised_vectors.append(Noised(k, noise, draw, tuple(rows)))

    def _seen(self, agent: int, stream: Stream, k: int) -> F64:
        vector = self._vectors.get((agent, stream, k))
        if vector is None:
            raise Unseen((agent, stream, k))
        return vector
