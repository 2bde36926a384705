"""The four mechanisms (privacy.md, section 2): where the gradient is taken, and what the noise goes on.

    paper             g_k at the private x_k; noise on x and on y
    published-point   g_k at the agent's own x̆_k, which is drawn first; noise on x and on y
    public-state      the own step uses the released y̆_k, so x is a function of the transcript and is sent as it
    is; noise on y noise-once        g~_k = g_k + noise, once; x and y are functions of all g~ and are sent as they are

Each is Algorithm 1's recursion in four moves: begin (round 0), advance (round k to k+1), release (round k), final
(x_{K+1}).
``perturb(stream, k, private)`` adds the noise of one draw; ``gradient(k, x, batch)`` draws a batch when it is None.
 Where g_k needs something drawn at the release, the state is pending until then; a record of round k completes it
 without drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dpgt_node.algo.tracking import AgentParams, mixed_x, mixed_y, step_x, step_y
from dpgt_node.errors import invariant
from dpgt_node.protocol.types import Payload, RoundRecord, State
from dpgt_node.types import F64, I64, Stream

Perturb = Callable[[Stream, int, F64], F64]
Gradient = Callable[[int, F64, I64 | None], tuple[F64, I64]]
Encode = Callable[[Stream, int, F64], Payload]

_NO_BATCH: I64 = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Release:
    """A completed state with its payloads; ``noisy_gradient`` is g~_k under noise-once, None elsewhere."""

    state: State
    x: Payload
    y: Payload
    noisy_gradient: F64 | None = None


class Mechanism(Protocol):
    """One of the four; float64 vectors of shape (d,) throughout."""

    def begin(self, x0: F64, record: RoundRecord | None) -> State:
        """The state of round 0 at the public ``x0``."""
        ...

    def advance(
        self,
        old: State,
        x_in: Mapping[int, F64],
        y_in: Mapping[int, F64],
        own: tuple[Payload, Payload],
        record: RoundRecord | None,
    ) -> State:
        """The state of round k+1 from the complete one of round k."""
        ...

    def release(self, state: State) -> Release:
        """Draw round k's noise, once."""
        ...

    def final(self, old: State, x_in: Mapping[int, F64], own: tuple[Payload, Payload]) -> F64:
        """x_{i,K+1}."""
        ...


@dataclass(frozen=True, slots=True)
class _Base:
    params: AgentParams
    gradient: Gradient
    perturb: Perturb
    encode: Encode

    def _start(self, x0: F64, record: RoundRecord | None) -> State:
        """y_0 = g_0 at the public x_0."""
        g, batch = self.gradient(0, x0, _batch(record))
        nothing = np.zeros(x0.shape)
        return State(0, px=nothing, tx=x0, p=g, t=nothing, g=g, batch=batch)

    def _next_x(self, old: State, x_in: Mapping[int, F64]) -> F64:
        """x_{k+1} by (alg,1)."""
        px, tx = step_x(self.params, old.px, old.tx, old.p, old.t, x_in)
        return px + tx

    def _noised(self, stream: Stream, k: int, private: F64, transcript: F64) -> Payload:
        """Noise on the private part; the transcript part is added after it (post-processing)."""
        noisy = self.perturb(stream, k, private)
        noisy += transcript  # in the memory of ``noisy``, which nobody else holds
        return self.encode(stream, k, noisy)


class Paper(_Base):
    """Algorithm 1 as it is printed."""

    __slots__ = ()

    def begin(self, x0: F64, record: RoundRecord | None) -> State:
        """y_0 = g_0; x_0 is public, so it is all transcript part, and y_0 is all private part."""
        return self._start(x0, record)

    def advance(
        self,
        old: State,
        x_in: Mapping[int, F64],
        y_in: Mapping[int, F64],
        own: tuple[Payload, Payload],
        record: RoundRecord | None,
    ) -> State:
        """(alg,1), g at the new x, (alg,2)."""
        k = old.k + 1
        px, tx = step_x(self.params, old.px, old.tx, old.p, old.t, x_in)
        g, batch = self.gradient(k, px + tx, _batch(record))
        p, t = step_y(self.params, old.p, old.t, y_in, old.g, g)
        return State(k, px=px, tx=tx, p=p, t=t, g=g, batch=batch)

    def release(self, state: State) -> Release:
        """Noise on both private parts; the transcript parts are added after it (post-processing)."""
        return Release(
            state,
            self._noised("X", state.k, state.px, state.tx),
            self._noised("Y", state.k, state.p, state.t),
        )

    def final(self, old: State, x_in: Mapping[int, F64], own: tuple[Payload, Payload]) -> F64:
        """(alg,1) once more."""
        return self._next_x(old, x_in)


class PublishedPoint(_Base):
    """The gradient sits at the released point, so that adjacent data sets see the same point (privacy.md, section
    2).
    """

    __slots__ = ()

    def begin(self, x0: F64, record: RoundRecord | None) -> State:
        """p starts at 0 and gets g_0 when x̆_0 is known."""
        nothing = np.zeros(x0.shape)
        return self._complete(_pending(0, px=nothing, tx=x0, p=nothing, t=nothing), record)

    def advance(
        self,
        old: State,
        x_in: Mapping[int, F64],
        y_in: Mapping[int, F64],
        own: tuple[Payload, Payload],
        record: RoundRecord | None,
    ) -> State:
        """(alg,1), and (alg,2) up to g_{k+1}."""
        px, tx = step_x(self.params, old.px, old.tx, old.p, old.t, x_in)
        p, t = step_y(self.params, old.p, old.t, y_in, old.g, None)
        return self._complete(_pending(old.k + 1, px=px, tx=tx, p=p, t=t), record)

    def release(self, state: State) -> Release:
        """Draw x̆_k, take g_k at it exactly as it is released (wire rounding included), then draw y̆_k."""
        invariant(state.pending, "a state is released once")
        x = self._noised("X", state.k, state.px, state.tx)
        whole = self._at(state, x, None)
        return Release(whole, x, self._noised("Y", state.k, whole.p, whole.t))

    def final(self, old: State, x_in: Mapping[int, F64], own: tuple[Payload, Payload]) -> F64:
        """(alg,1) once more."""
        return self._next_x(old, x_in)

    def _complete(self, state: State, record: RoundRecord | None) -> State:
        return state if record is None else self._at(state, record.x, record.batch)

    def _at(self, state: State, x: Payload, batch: I64 | None) -> State:
        g, batch = self.gradient(state.k, x.array(), batch)
        return replace(state, p=state.p + g, g=g, batch=batch, pending=False)


class PublicState(_Base):
    """x_{k+1} = (1 - a) x_k + alpha sum_j R x_j - gamma y̆_{i,k}: a function of the transcript, sent without noise."""

    __slots__ = ()

    def begin(self, x0: F64, record: RoundRecord | None) -> State:
        """As in ``paper``: only y is private."""
        return self._start(x0, record)

    def advance(
        self,
        old: State,
        x_in: Mapping[int, F64],
        y_in: Mapping[int, F64],
        own: tuple[Payload, Payload],
        record: RoundRecord | None,
    ) -> State:
        """The public step, g at the public x, (alg,2)."""
        k = old.k + 1
        tx = self.final(old, x_in, own)
        g, batch = self.gradient(k, tx, _batch(record))
        p, t = step_y(self.params, old.p, old.t, y_in, old.g, g)
        return State(k, px=old.px, tx=tx, p=p, t=t, g=g, batch=batch)

    def release(self, state: State) -> Release:
        """x as it is; noise on the private part of y."""
        return Release(
            state,
            self.encode("X", state.k, state.tx),
            self._noised("Y", state.k, state.p, state.t),
        )

    def final(self, old: State, x_in: Mapping[int, F64], own: tuple[Payload, Payload]) -> F64:
        """(alg,1) with the released y̆ in place of y."""
        return mixed_x(self.params, old.tx, own[1].array(), x_in)


class NoiseOnce(_Base):
    """y_0 = g~_0 and y gets g~_{k+1} - g~_k: everything sent is post-processing of the perturbed gradients."""

    __slots__ = ()

    def begin(self, x0: F64, record: RoundRecord | None) -> State:
        """The raw g_0 waits in p for its noise."""
        nothing = np.zeros(x0.shape)
        return self._prepared(0, x0, nothing, nothing, record)

    def advance(
        self,
        old: State,
        x_in: Mapping[int, F64],
        y_in: Mapping[int, F64],
        own: tuple[Payload, Payload],
        record: RoundRecord | None,
    ) -> State:
        """(alg,1) and (alg,2) on public values, up to g~_{k+1}."""
        tx = self.final(old, x_in, own)
        t = mixed_y(self.params, old.t, y_in)
        t -= old.g
        return self._prepared(old.k + 1, tx, old.px, t, record)

    def release(self, state: State) -> Release:
        """g~_k = g_k + noise; x and y follow."""
        invariant(state.pending, "a state is released once")
        noisy = self.perturb("Y", state.k, state.p)
        whole = self._completed(state, noisy)
        return Release(
            whole, self.encode("X", state.k, whole.tx), self.encode("Y", state.k, whole.t), noisy_gradient=noisy
        )

    def final(self, old: State, x_in: Mapping[int, F64], own: tuple[Payload, Payload]) -> F64:
        """(alg,1); y is public here."""
        return mixed_x(self.params, old.tx, old.t, x_in)

    def _prepared(self, k: int, tx: F64, nothing: F64, t: F64, record: RoundRecord | None) -> State:
        if record is None:
            g, batch = self.gradient(k, tx, None)
            return State(k, px=nothing, tx=tx, p=g, t=t, g=nothing, batch=batch, pending=True)
        assert record.noisy_gradient is not None, "a record of noise-once holds its perturbed gradient"
        held = State(k, px=nothing, tx=tx, p=nothing, t=t, g=nothing, batch=record.batch, pending=True)
        return self._completed(held, record.noisy_gradient)

    @staticmethod
    def _completed(state: State, noisy: F64) -> State:
        return replace(state, p=state.px, t=state.t + noisy, g=noisy, pending=False)


MECHANISMS: Mapping[str, type[Paper] | type[PublishedPoint] | type[PublicState] | type[NoiseOnce]] = {
    "paper": Paper,
    "published-point": PublishedPoint,
    "public-state": PublicState,
    "noise-once": NoiseOnce,
}


def _batch(record: RoundRecord | None) -> I64 | None:
    return None if record is None else record.batch


def _pending(k: int, *, px: F64, tx: F64, p: F64, t: F64) -> State:
    return State(k, px=px, tx=tx, p=p, t=t, g=px, batch=_NO_BATCH, pending=True)
