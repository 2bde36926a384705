"""The expensive work of one agent: its method's step, its gradient, its release.

Answers the effects of ``AgentMachine``; daemons and the simulator call the same functions, so they get the same bits.
Nothing here decides anything: which round comes next, what is sent and what is stored is the machine's.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np

from dpgt_node.agent.encoding import Encoder, OutOfReach, checked, pieces, wire_dtype_of
from dpgt_node.agent.noise import account_for, check_range, shared_noise
from dpgt_node.agent.outliers import Outliers
from dpgt_node.agent.roles import check_coordinates, source_of
from dpgt_node.agent.site import NO_BATCH, AgentSite, Tools
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import codes_of, network_of, rule_of
from dpgt_node.algo.methods.base import at
from dpgt_node.algo.methods.robust import guards_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.errors import ConfigError, DpgtError, invariant
from dpgt_node.learning.common import Metrics, Oracle
from dpgt_node.learning.releases import Sources
from dpgt_node.learning.tables import Table, table_size
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.compiled import compiles
from dpgt_node.privacy.laws.noise import ByteStream, Keystream, Sampler
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
from dpgt_node.types import F64, I64, Stream, WireDtype
from dpgt_node.values import dataclass


def without_nan(m: Metrics) -> Metrics:
    """What overflowed to not-a-number is None."""
    values = (m.loss_train, m.accuracy_train, m.accuracy_test, m.grad_norm)
    return Metrics(*(None if v is None or math.isnan(v) else v for v in values))


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
        "_active",
        "_evaluated",
        "_keystream",
        "_law",
        "_mechanism",
        "_module",
        "_name",
        "_oracle",
        "_outliers",
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
        self._name, self._active = topology.names[index], run.adversary.active
        self.account = account_for(run, topology, schedule, index, oracle.samples, oracle.dimension)
        self._oracle, self._keystream, self._sampler = oracle, keystream, sampler
        self._sources = Sources(oracle, schedule)
        self._shared = shared_noise(run, index, sampler, pairs)
        self._schedule = schedule
        self._mechanism, self._law = run.algorithm.mechanism, run.noise.law
        self._rule = rule_of(run).build(run, topology, schedule, at(index))
        incoming = network_of(run, topology).incoming(index)
        self.dimension = oracle.dimension
        self.wire_dtype: WireDtype = wire_dtype_of(run, oracle.dimension)
        self.codes = codes_of(run)
        """What integers on the wire stand for; None: floating-point numbers cross it."""
        # Where noise goes on g_k itself, nobody needs g_k again after a crash.
        once = MECHANISMS[run.algorithm.mechanism].accounted.once
        check_coordinates(run, oracle.dimension)
        source = source_of(run, index, self.codes, oracle)
        self._tools = Tools(
            self._gradient,
            self._perturb,
            Encoder(self._name, oracle.dimension, self.wire_dtype, self.codes, source, self._active),
            Table(oracle),
            self._draw,
            self._coins,
            incoming,
            once,
            index,
            guards_of(run),
            (slice(None),) if self._shared is not None else pieces(oracle.dimension),
        )
        self._outliers = Outliers(run, schedule, index, oracle.dimension)
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
        self_test(self._law, compiled=compiles(self.dimension))
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
        if self._module is None:
            gradient = self._sources.at(k).gradient(x, batch)
        else:
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

    def _perturb(self, stream: Stream, k: int, private: F64, parts: Sequence[slice]) -> Iterator[F64]:
        invariant(self._schedule.release(k) is not None, "a round that releases nothing draws nothing")
        scale = self.account.scale(stream, k)
        source = None if scale == 0.0 else self._keystream.stream(k, stream)
        if len(parts) == 1:  # as in every round of a small vector, where a generator would cost as much as the noise
            return iter((self._noisy(stream, k, private, private[parts[0]], scale, source),))
        return (self._noisy(stream, k, private, private[where], scale, source) for where in parts)

    def _noisy(self, stream: Stream, k: int, private: F64, part: F64, scale: float, source: ByteStream | None) -> F64:
        """A ``part`` of ``private`` with noise from ``source``, None: none is drawn."""
        self._checked(part, k, stream.lower())
        clipped = self._sampler.clipped
        if self._shared is not None:
            invariant(scale > 0.0, "noise that is shared hides nothing without noise of the agent's own")
            invariant(part.size == private.size, "noise that is shared is drawn at once")
        if source is None:
            noisy = part.copy()
        elif self._shared is not None:
            noisy = self._shared.perturb(part, scale, source, k)
        else:
            noisy = self._sampler.perturb(part, scale, source)
        if self._sampler.clipped != clipped:
            reach = self._sampler.range(scale)
            raise OutOfReach.beyond(self._name, k, stream, reach, self._active.acting(k))
        return noisy

    def _coins(self, k: int, private: F64, code: BinomialCode) -> F64:
        self._checked(private, k, "the gradient")
        invariant(self._schedule.release(k) is not None, "a round that releases nothing draws nothing")
        return code.drawn(private, self._keystream.stream(k, "Y"))

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
        return checked(vector, self._name, k, what, self._active)
