"""The expensive work of one agent: its method's step, its gradient, its release.

Answers the effects of ``AgentMachine``; daemons and the simulator call the same functions, so they get the same bits.
Nothing here decides anything: which round comes next, what is sent and what is stored is the machine's.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpgt_node.agent.noise import account_for, check_range, shared_noise
from dpgt_node.agent.outliers import Outliers
from dpgt_node.agent.roles import source_of
from dpgt_node.agent.site import NO_BATCH, AgentSite, Tools
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import codes_of, network_of, rule_of
from dpgt_node.algo.methods.base import at
from dpgt_node.algo.methods.robust import guards_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.errors import ConfigError, DpgtError, ExitCode, invariant
from dpgt_node.learning.oracle import Metrics, Oracle
from dpgt_node.learning.releases import Sources
from dpgt_node.learning.tables import Table, table_size
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.noise import Keystream, Sampler
from dpgt_node.privacy.laws.pairs import PairKeys
from dpgt_node.privacy.laws.selftest import self_test
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol.types import (
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
    on,
)
from dpgt_node.types import F64, I64, Codes, Stream, WireDtype

FLOAT32_FROM = 100_000
_COPY_BELOW = 1 << 20


class Diverged(DpgtError):
    """A vector left the range of numbers: the operator's step sizes, not a bug and not a peer."""

    exit_code = ExitCode.CONFIG
    told = "has numbers that are no longer finite: the run diverged"

    @classmethod
    def at(cls, name: str, k: int, what: str) -> Diverged:
        """``what`` of agent ``name`` in round ``k``."""
        return cls(
            f"{name}: {what} is no longer finite in round {k}: the run diverged. Lower the step sizes "
            f'(gamma first; `dpgt check` prints their bounds) or the noise, or use wire_dtype = "float64"'
        )


class OutOfReach(Diverged):
    """A value lies so far beyond the scale of its noise that the sampler would clip it: the run would learn something
    else without a word.
    """

    told = "has values that its noise does not reach"

    @classmethod
    def beyond(cls, name: str, k: int, stream: Stream, reach: float) -> OutOfReach:
        """In ``stream`` of agent ``name`` in round ``k``; ``reach``: the largest magnitude that its noise covers."""
        key = "noise.scale_zeta" if stream == "X" else "noise.scale_eta"
        return cls(
            f"{name}: in round {k} a value lies beyond {reach:.4g}, as far as noise of this scale reaches, and would "
            f"be released as that: take a larger {key}, clip gradients (privacy.clip_l1 or clip_l2), or lower the step "
            "sizes if the run diverged"
        )

    @classmethod
    def of_codes(cls, name: str, k: int, stream: Stream, codes: Codes) -> OutOfReach:
        """A value of ``stream`` has no code."""
        low, high = codes.offset + codes.step * codes.low, codes.offset + codes.step * codes.high
        return cls(
            f"{name}: in round {k} a value of {stream} lies beyond {low:.4g} to {high:.4g}, as far as the codes of "
            f"{codes.dtype} reach: take a larger step in [method], or lower the step sizes if the run diverged"
        )


def without_nan(m: Metrics) -> Metrics:
    """What overflowed to not-a-number is None."""
    values = (m.loss_train, m.accuracy_train, m.accuracy_test, m.grad_norm)
    return Metrics(*(None if v is None or math.isnan(v) else v for v in values))


def float_wire_of(run: RunConfig, dimension: int) -> Literal["float64", "float32"]:
    """dtype of numbers on the wire; "auto" is float64 below d = 100,000 and float32 from there on."""
    if run.runtime.wire_dtype != "auto":
        return run.runtime.wire_dtype
    return "float64" if dimension < FLOAT32_FROM else "float32"


def wire_dtype_of(run: RunConfig, dimension: int) -> WireDtype:
    """dtype on the wire: of the method's codes where it sends integers."""
    codes = codes_of(run)
    return float_wire_of(run, dimension) if codes is None else codes.dtype


def coded(codes: Codes, values: F64, name: str, k: int, stream: Stream) -> npt.NDArray[Any]:
    """``values`` (..., d), all of them on the lattice of ``codes``, as the integers that cross the wire.

    Raises OutOfReach where one lies beyond the last code.
    """
    found = codes.nearest(values)
    if found.size and not (codes.low <= found.min() and found.max() <= codes.high):
        raise OutOfReach.of_codes(name, k, stream, codes)
    whole = found.astype(np.dtype(codes.dtype).newbyteorder("<"))
    invariant(np.array_equal(codes.values(whole), values), "a method sends what its codes stand for, and nothing else")
    return whole


@dataclass(frozen=True, slots=True)
class Private:
    """``x``, ``y``, ``g``: x_k, y_k, g_k, float64 (d,); y (0,) where the method has none, g (0,) in a round that takes
    none.  ``labels`` (m,) and ``samples`` (m, ...) of its batch; (0,) where there are none.
    """

    x: F64 = field(repr=False)
    y: F64 = field(repr=False)
    g: F64 = field(repr=False)
    labels: I64 = field(repr=False)
    samples: F64 = field(repr=False)


class AgentWork:
    """Agent ``index`` (0-based) of ``run``.  Every method is a pure function of its effect and of the keystream."""

    __slots__ = (
        "_evaluated",
        "_keystream",
        "_law",
        "_mechanism",
        "_module",
        "_name",
        "_oracle",
        "_outliers",
        "_role",
        "_rule",
        "_sampler",
        "_schedule",
        "_shared",
        "_sources",
        "_tools",
        "account",
        "closed_form",
        "codes",
        "dimension",
        "evaluation_numbers",
        "gradient_numbers",
        "table_size",
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
        pairs: PairKeys | None = None,
    ) -> None:
        check_range(run, topology, schedule, index)
        self._name = topology.names[index]
        self.account = account_for(run, topology, schedule, index, oracle.samples, oracle.dimension)
        self._oracle, self._keystream, self._sampler = oracle, keystream, sampler
        self._sources = Sources(oracle, schedule)
        self._shared = shared_noise(run, index, sampler, pairs)
        self._schedule = schedule
        self._mechanism, self._law = run.algorithm.mechanism, run.noise.law
        self._rule = rule_of(run).build(run, topology, schedule, at(index))
        incoming = network_of(run, topology).incoming(index)
        # Where noise goes on g_k itself, nobody needs g_k again after a crash.
        once = MECHANISMS[run.algorithm.mechanism].accounted.once
        self._tools = Tools(
            self._gradient,
            self._perturb,
            self._encode,
            Table(oracle),
            self._draw,
            self._coins,
            incoming,
            once,
            index,
            guards_of(run),
        )
        self.dimension = oracle.dimension
        self.wire_dtype: WireDtype = wire_dtype_of(run, oracle.dimension)
        self.codes = codes_of(run)
        self._outliers = Outliers(run, schedule, index, oracle.dimension)
        self._role = source_of(run, index, self.codes)
        """What integers on the wire stand for; None: floating-point numbers cross it."""
        self.table_size = table_size(run, oracle)
        """Numbers of the table of gradients in the agent's state; 0: there is none."""
        self._evaluated = run.evaluate.samples
        self.evaluation_numbers = oracle.dimension * max(oracle.samples or 0, oracle.tested)
        """d times the rows of a whole evaluation: what tells a cheap one from one that must not hold up a round."""
        self.gradient_numbers = oracle.dimension * max(schedule.m_for(oracle.samples), 1)
        """d times the samples of one gradient, likewise."""
        self.closed_form = run.data.dataset in TOYS or run.model.name == "softmax"
        """Whether that is all: what a network computes, and code of the operator's own, may take any time."""
        self._module = run.model.name if ":" in run.model.name and not self.closed_form else None

    def initial(self) -> F64:
        """x_{i,0}, float64 (d,), may be read-only."""
        return self._oracle.initial()

    def prepare(self) -> None:
        """Test the sampler (RuntimeError) and compute every accountant's curve (seconds for a large K)."""
        self_test(self._law)
        self.account.epsilon_after(0)

    def epsilon_after(self, k: int) -> dict[str, float | None]:
        """Cumulative cost after round k (-1: before the first), by accountant name."""
        return self.account.epsilon_after(k)

    @np.errstate(all="ignore")
    def advance(self, effect: Advance) -> Advanced:
        """The state of the next round by the run's method.  Raises Diverged."""
        old, record = effect.state, effect.record
        site = AgentSite(self._tools, effect.received, effect.own, record)
        if old is None:
            k, vectors = 0, self._rule.begin(site, self.initial())
        else:
            k, vectors = old.k + 1, self._rule.advance(site, old.k, old.vectors)
        if record is not None:
            site.payloads = record.payloads
            vectors = self._rule.complete(site, k, vectors)
        state = State(k, vectors, site.batch, pending=record is None and self._rule.pending)
        return Advanced(state, self._outliers.after(k - 1, site.far))

    @np.errstate(all="ignore")
    def advance_final(self, effect: AdvanceFinal) -> FinalReady:
        """x_{i,K+1}.  Raises Diverged."""
        site, k = AgentSite(self._tools, effect.received, effect.own), effect.state.k
        return FinalReady(self._checked(self._rule.final(site, k, effect.state.vectors), k + 1, "x"))

    @np.errstate(all="ignore")
    def release(self, effect: DrawRelease) -> ReleaseReady:
        """Draw what the method draws in this round and make its ledger rows.

        Not a function: under a production keystream a second call draws again.  Raises Diverged before anything leaves.
        """
        old = effect.state
        invariant(old.pending == self._rule.pending, "a round is drawn once")
        site = AgentSite(self._tools, batch=old.batch)
        vectors = self._rule.release(site, old.k, old.vectors)
        rows = tuple(self._row(noise, on(carrier, site.payloads)) for noise, carrier in site.draws)
        noisy = site.noisy if self._rule.keeps_drawn else None
        return ReleaseReady(State(old.k, vectors, site.batch), site.payloads, rows, noisy)

    @np.errstate(all="ignore")
    def evaluate(self, effect: Evaluate) -> Metrics:
        """Metrics of x_{i,k}; what overflowed to not-a-number is None."""
        with self._own_code(effect.k):
            metrics = self._oracle.evaluate(effect.x, self._evaluated)
        return without_nan(metrics)

    @np.errstate(all="ignore")
    def private(self, state: State, samples_bytes: int) -> Private:
        """What a study keeps of a complete ``state``: g_k without noise, labels and samples of its batch.

        The samples only where they take at most ``samples_bytes``.  A round that releases nothing has no gradient.
        """
        v, name = state.vectors, self._rule.raw_gradient
        x, y = self._rule.point(v), self._rule.tracker(v)
        # A state may hold the perturbed gradient alone; the oracle is a function of (x, batch).
        if self._schedule.release(state.k) is None:
            nothing = np.empty(0)
            return Private(x, nothing if y is None else y, nothing, NO_BATCH, nothing)
        g = self._sources.at(state.k).gradient(x, state.batch) if name is None else v[name]
        small = 8 * self._oracle.sample_size * len(state.batch) <= samples_bytes
        samples = self._oracle.inputs(state.batch) if small else np.empty(0)
        return Private(x, np.empty(0) if y is None else y, g, self._oracle.labels(state.batch), samples)

    def _gradient(self, k: int, x: F64, batch: I64 | None) -> tuple[F64, I64]:
        self._checked(x, k, "x")
        if batch is None:
            batch = self._draw(k)
        with self._own_code(k):
            gradient = self._sources.at(k).gradient(x, batch)
        return self._checked(gradient, k, "the gradient"), batch

    def _draw(self, k: int) -> I64:
        return self._sources.batch(k, self._keystream.stream(k, "batch"))

    @contextlib.contextmanager
    def _own_code(self, k: int) -> Iterator[None]:
        """ConfigError names module and round where a module of the operator's own fails: it is no bug of this one."""
        try:
            yield
        except (DpgtError, MemoryError):
            raise
        except Exception as error:
            if self._module is None:
                raise
            said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".removesuffix(": ")
            message = f"{self._module!r} failed in round {k}: {said}"
            raise ConfigError.one("run file", "model.name", message) from error

    def _perturb(self, stream: Stream, k: int, private: F64) -> F64:
        self._checked(private, k, stream.lower())
        invariant(self._schedule.release(k) is not None, "a round that releases nothing draws nothing")
        scale = self.account.scale(stream, k)
        clipped = self._sampler.clipped
        if self._shared is not None:
            invariant(scale > 0.0, "noise that is shared hides nothing without noise of the agent's own")
            noisy = self._shared.perturb(private, scale, self._keystream.stream(k, stream), k)
        elif scale == 0.0:
            return private.copy()
        else:
            noisy = self._sampler.perturb(private, scale, self._keystream.stream(k, stream))
        if self._sampler.clipped != clipped:
            raise OutOfReach.beyond(self._name, k, stream, self._sampler.range(scale))
        return noisy

    def _coins(self, k: int, private: F64, code: BinomialCode) -> F64:
        self._checked(private, k, "the gradient")
        invariant(self._schedule.release(k) is not None, "a round that releases nothing draws nothing")
        return code.drawn(private, self._keystream.stream(k, "Y"))

    def _encode(self, stream: Stream, k: int, values: F64) -> Payload:
        if self._role is not None:
            values = self._role.released(stream, k, values)
        if self.codes is not None:
            wire = coded(self.codes, self._checked(values, k, stream.lower()), self._name, k, stream)
        else:  # a value beyond the range of float32 would be sent as infinity
            wire = self._checked(
                values.astype("<f8" if self.wire_dtype == "float64" else "<f4", copy=False), k, stream.lower()
            )
        data: bytes | memoryview
        if wire.nbytes < _COPY_BELOW:
            data = wire.tobytes()
        else:
            wire = wire.view()
            wire.setflags(write=False)
            data = wire.data.cast("B")
        return Payload(stream, k, self.wire_dtype, self.dimension, data, hashlib.sha256(data).digest(), self.codes)

    def _row(self, stream: Stream, payload: Payload) -> LedgerRow:
        """The charge for the noise of ``stream``, which left in ``payload``."""
        k = payload.k
        return LedgerRow(
            k=k,
            stream=stream,
            mechanism=self._mechanism,
            law=self.account.law,
            scale=self.account.scale(stream, k),
            sensitivity=self.account.sensitivity(stream, k),
            sha256=payload.sha256,
            cost=self.account.cost_after(k, stream),
        )

    def _checked(self, vector: F64, k: int, what: str) -> F64:
        # One sum sees every NaN and infinity; only when it overflows by itself is a look at each value needed.
        if math.isfinite(np.add.reduce(vector)) or np.isfinite(vector).all():
            return vector
        raise Diverged.at(self._name, k, what)
