"""The expensive work of one agent: Algorithm 1's step, its gradient, its release.

Answers the effects of ``AgentMachine``; daemons and the simulator call the same functions, so they get the same bits.
Nothing here decides anything: which round comes next, what is sent and what is stored is the machine's.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.tracking import AgentParams, step_x, step_y
from dpgt_node.config.model import RunConfig
from dpgt_node.errors import DpgtError, ExitCode
from dpgt_node.learning.oracle import Metrics, Oracle
from dpgt_node.privacy.accountant import AgentAccount
from dpgt_node.privacy.noise import Keystream, Sampler
from dpgt_node.protocol.types import (
    F64,
    I64,
    Advance,
    Advanced,
    AdvanceFinal,
    DrawRelease,
    Evaluate,
    FinalReady,
    LedgerRow,
    Payload,
    ReleaseReady,
    State,
    Stream,
    WireDtype,
)

FLOAT32_FROM = 100_000
_COPY_BELOW = 1 << 20


class Diverged(DpgtError):
    """A vector left the range of numbers: the operator's step sizes, not a bug and not a peer."""

    exit_code = ExitCode.CONFIG

    @classmethod
    def at(cls, name: str, k: int, what: str) -> Diverged:
        """``what`` of agent ``name`` in round ``k``."""
        return cls(
            f"{name}: {what} is no longer finite in round {k}: the run diverged. Lower the step sizes "
            f'(gamma first; `dpgt check` prints their bounds) or the noise, or use wire_dtype = "float64"'
        )


def without_nan(m: Metrics) -> Metrics:
    """What overflowed to not-a-number is None."""
    values = (m.loss_train, m.accuracy_train, m.accuracy_test, m.grad_norm)
    return Metrics(*(None if v is None or math.isnan(v) else v for v in values))


def wire_dtype_of(run: RunConfig, dimension: int) -> WireDtype:
    """dtype on the wire; "auto" is float64 below d = 100,000 and float32 from there on."""
    if run.runtime.wire_dtype != "auto":
        return run.runtime.wire_dtype
    return "float64" if dimension < FLOAT32_FROM else "float32"


class AgentWork:
    """Agent ``index`` (0-based) of ``run``.  Every method is a pure function of its effect and of the keystream."""

    __slots__ = (
        "_account",
        "_keystream",
        "_law",
        "_m",
        "_mechanism",
        "_oracle",
        "_params",
        "_sampler",
        "dimension",
        "wire_dtype",
    )

    def __init__(
        self,
        run: RunConfig,
        topology: Topology,
        schedule: Schedule,
        index: int,
        oracle: Oracle,
        keystream: Keystream,
        sampler: Sampler,
    ) -> None:
        # Configuration lets nothing else through; a mechanism that is charged but not drawn would be a lie.
        assert (run.algorithm.mechanism, run.noise.law) == ("paper", "laplace")
        self._params = AgentParams.build(topology, schedule, index)
        self._account = AgentAccount(run, topology, schedule, index, oracle.samples)
        self._oracle, self._keystream, self._sampler = oracle, keystream, sampler
        self._m = schedule.m_for(oracle.samples)
        self._mechanism, self._law = run.algorithm.mechanism, run.noise.law
        self.dimension = oracle.dimension
        self.wire_dtype: WireDtype = wire_dtype_of(run, oracle.dimension)

    def initial(self) -> F64:
        """x_{i,0}, float64 (d,), may be read-only."""
        return self._oracle.initial()

    def epsilon_after(self, k: int) -> dict[str, float | None]:
        """Cumulative cost after round k (-1: before the first), by accountant name."""
        return self._account.epsilon_after(k)

    @np.errstate(all="ignore")
    def advance(self, effect: Advance) -> Advanced:
        """The state of the next round: (alg,1), then g at the new x, then (alg,2).  Raises Diverged.

        Round 0: x_0 is public, so it is all transcript part; y_0 = g_0 is all private part.
        """
        old = effect.state
        if old is None:
            x0 = self.initial()
            g, batch = self._gradient(0, x0, effect.batch)
            nothing = np.zeros(self.dimension)
            return Advanced(State(0, px=nothing, tx=x0, p=g, t=nothing, g=g, batch=batch))
        k = old.k + 1
        px, tx = step_x(self._params, old.px, old.tx, old.p, old.t, effect.x_in)
        g, batch = self._gradient(k, px + tx, effect.batch)
        p, t = step_y(self._params, old.p, old.t, effect.y_in, old.g, g)
        return Advanced(State(k, px=px, tx=tx, p=p, t=t, g=g, batch=batch))

    @np.errstate(all="ignore")
    def advance_final(self, effect: AdvanceFinal) -> FinalReady:
        """x_{i,K+1}.  Raises Diverged."""
        state = effect.state
        px, tx = step_x(self._params, state.px, state.tx, state.p, state.t, effect.x_in)
        return FinalReady(self._checked(px + tx, state.k + 1, "x"))

    @np.errstate(all="ignore")
    def release(self, effect: DrawRelease) -> ReleaseReady:
        """Draw x̆_k and y̆_k: noise on the private parts only, the transcript parts added after it (post-processing).

        Not a function: under a production keystream a second call draws again.  Raises Diverged before anything leaves.
        """
        state = effect.state
        x = self._draw("X", state.k, state.px, state.tx)
        y = self._draw("Y", state.k, state.p, state.t)
        return ReleaseReady(state.k, x, y, (self._row(x), self._row(y)))

    @np.errstate(all="ignore")
    def evaluate(self, effect: Evaluate) -> Metrics:
        """Metrics of x_{i,k}; what overflowed to not-a-number is None."""
        return without_nan(self._oracle.evaluate(effect.x))

    def _gradient(self, k: int, x: F64, batch: I64 | None) -> tuple[F64, I64]:
        self._checked(x, k, "x")
        if batch is None:
            batch = self._oracle.draw_batch(self._m, self._keystream.stream(k, "batch"))
        return self._checked(self._oracle.gradient(x, batch), k, "the gradient"), batch

    def _draw(self, stream: Stream, k: int, private: F64, transcript: F64) -> Payload:
        scale = self._account.scale(stream, k)
        if scale > 0.0:
            values = self._sampler.perturb(private, scale, self._keystream.stream(k, stream))
            values += transcript
        else:
            values = private + transcript
        # A value beyond the range of float32 would be sent as infinity.
        wire = self._checked(
            values.astype("<f8" if self.wire_dtype == "float64" else "<f4", copy=False), k, stream.lower()
        )
        data: bytes | memoryview
        if wire.nbytes < _COPY_BELOW:
            data = wire.tobytes()
        else:
            wire.setflags(write=False)
            data = wire.data.cast("B")
        return Payload(stream, k, self.wire_dtype, self.dimension, data, hashlib.sha256(data).digest())

    def _row(self, payload: Payload) -> LedgerRow:
        k, stream = payload.k, payload.stream
        return LedgerRow(
            k=k,
            stream=stream,
            mechanism=self._mechanism,
            law=self._law,
            scale=self._account.scale(stream, k),
            sensitivity=self._account.sensitivity(stream, k),
            sha256=payload.sha256,
            cost=self._account.cost_after(k, stream),
        )

    def _checked(self, vector: F64, k: int, what: str) -> F64:
        # One sum sees every NaN and infinity; only when it overflows by itself is a look at each value needed.
        if math.isfinite(np.add.reduce(vector)) or np.isfinite(vector).all():
            return vector
        raise Diverged.at(self._params.name, k, what)
