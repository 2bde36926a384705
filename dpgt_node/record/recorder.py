"""Turns what agents report into the outputs of a run: metrics.csv, TensorBoard events, summary.json.

Used by the coordinator daemon and by the simulator, so both write the same files.  Epsilons come from the schedule
alone (every accountant here needs only public numbers), so nothing about a private state has to travel for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.accounts.towards import towards_whom
from dpgt_node.agent.noise import accounts_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.learning.common import Metrics
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE
from dpgt_node.privacy.strength import Strength, delta_warning, strength
from dpgt_node.record import epsilons
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.digests import as_json, read_digests
from dpgt_node.record.guessing import outcome
from dpgt_node.record.metrics import STUDY_DIMENSION_MAX, MetricsRow, MetricsStore
from dpgt_node.record.rivals import load_rivals
from dpgt_node.record.summary import (
    AgentSummary,
    PrivacySummary,
    Summary,
    read_restarts,
    versions,
    why_no_accuracy,
    why_not_alone,
    write_summary,
)
from dpgt_node.record.tensorboard import TensorBoardWriter
from dpgt_node.types import F64
from dpgt_node.values import dataclass


def consensus_error(states: Sequence[F64]) -> float:
    """sqrt(mean_i ||x_i - mean x||^2) of n vectors of shape (d,); float64, one temporary vector at a time."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = _spread(states)
        if not np.isfinite(error):  # a run that diverges: its squares overflow before its states do
            largest = max(float(np.abs(x).max()) for x in states)
            error = largest * _spread([x / largest for x in states])
    return error


def _spread(states: Sequence[F64]) -> float:
    mean = np.zeros(states[0].shape)
    for x in states:
        mean += x
    mean /= len(states)
    return float(np.sqrt(np.mean([float(np.sum((x - mean) ** 2)) for x in states])))


@dataclass(slots=True)
class _Row:
    """What arrived for one evaluation round so far."""

    metrics: dict[str, Metrics | None] = field(default_factory=dict)
    wall: dict[str, float] = field(default_factory=dict)
    states: dict[str, F64] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What one agent reported at its end."""

    releases: int
    bytes_sent: int


class RunRecorder:
    """Collects a run's reports under ``out_dir``.

    ``samples[i]``: D_i, None for a toy.  Rows of metrics.csv that an earlier start of the run wrote stay, once.
    """

    def __init__(
        self,
        out_dir: Path,
        run: RunConfig,
        topology: Topology,
        schedule: Schedule,
        samples: Sequence[int | None],
        *,
        dimension: int,
        keystream: str | None = None,
    ) -> None:
        self._out = out_dir
        self._run = run
        self._names = run.graph.agents
        self._study = run.evaluate.metrics == "study"
        self._wants_states = self._study and dimension <= STUDY_DIMENSION_MAX
        self._keystream = keystream
        self.privacy = PrivacySummary.of(run, samples)
        self._accounts = _accounts(run, topology, schedule, samples, dimension)
        twin = epsilons.paper_twin(run)
        self._paper = (
            None if twin is None else _accounts(twin, topology, Schedule.from_config(twin), samples, dimension)
        )
        self._prepared = False
        self._shown: str | None = None
        self._early: list[int] = []
        kept = MetricsStore.read(out_dir)
        self._kept = {(row.agent, row.k) for row in kept}
        self._store = MetricsStore(out_dir)
        self._events = TensorBoardWriter(out_dir)
        self._rows: dict[int, _Row] = {}
        self._written: set[int] = set()
        self._results: dict[str, AgentResult] = {}
        self._last: dict[str, Metrics] = {}
        self.consensus: float | None = None
        self.accuracy: dict[str, float | None] = dict.fromkeys(self._names)
        """On the test samples, at the newest x that was evaluated, by this start or an earlier one."""
        self.accuracy |= {row.agent: row.accuracy_test for row in sorted(kept, key=lambda row: row.k)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close the files of a run that broke; nothing more is written."""
        if error is not None:
            self._store.close()
            self._events.close()

    def prepare(self) -> None:
        """Compute every accountant's curve: up to seconds for a large K, so a daemon does it in a thread.

        Rows that are complete before wait for it.
        """
        for account in self._accounts.values():
            account.epsilon_after(0)

    def prepared(self) -> None:
        """``prepare`` is done: write the rows that waited."""
        self._prepared = True
        self._shown = epsilons.shown_accountant(self._totals(), self.privacy.delta, self.privacy.samples)
        early, self._early = self._early, []
        for k in early:
            self._write(k)

    @property
    def accountant(self) -> str | None:
        """Whose epsilon is shown while the run goes on: the headline, else Lemma 5, which is conditional.

        None: no accountant has a value, or they are not prepared yet.
        """
        return self._shown

    def headline(self) -> str | None:
        """The tightest sound accountant of the whole run that covers every agent; None when there is none."""
        return epsilons.tightest(self._totals(), self.privacy.delta, self.privacy.samples)

    def spent(self, name: str, k: int) -> float | None:
        """What agent ``name`` has spent after round ``k`` under :attr:`accountant`; a look-up."""
        return None if self._shown is None else self._true(self._accounts[name].cost(self._shown, k))

    def worth(self, name: str, k: int) -> str:
        """The word for :meth:`spent`; empty where there is none."""
        value = self.spent(name, k)
        return "" if value is None or self._shown is None else self.word(self._shown, {self._shown: value})

    def epsilon(self, name: str, k: int) -> Mapping[str, float | None]:
        """Cumulative epsilon by accountant of agent ``name`` after round ``k`` (-1: before the first release)."""
        return {a: self._true(cost) for a, cost in self._accounts[name].epsilon_after(k).items()}

    def evaluated(self, name: str, k: int, metrics: Metrics | None, wall_seconds: float) -> None:
        """Metrics of x_{i,k} (None in local runs: the row has only its epsilons)."""
        if k in self._written:
            return  # said again by an agent that replays
        row = self._row(k)
        row.metrics[name] = metrics
        row.wall[name] = wall_seconds
        if metrics is not None:
            self._last[name] = metrics
            self.accuracy[name] = metrics.accuracy_test
        self._flush(k)

    def state(self, name: str, k: int, x: F64) -> None:
        """x_{i,k} itself, study runs only; kept until the whole row is here."""
        if not self._wants_states or k in self._written:
            return
        self._row(k).states[name] = x
        self._flush(k)

    def finished(self, name: str, result: AgentResult) -> None:
        self._results[name] = result

    def close(
        self,
        run_id: str,
        status: str,
        rounds: int,
        seconds: float,
        finals: Mapping[str, F64] | None,
        *,
        made: int | None = None,
        released_through: int | None = None,
    ) -> Summary:
        """Write what is left of metrics.csv and summary.json.

        ``rounds``: rounds that every agent finished (K+1 of a whole run); ``made``: those of this start, which took
        ``seconds`` (None: all).  ``released_through``: the last round that any agent may have released (None: round
        ``rounds`` - 1); a run that was stopped is charged for it.  ``finals``: x_{i,K+1} by name where this
        machine may have them (study runs), for the last consensus error.
        """
        if finals is not None and len(finals) == len(self._names):
            self.consensus = consensus_error([finals[name] for name in self._names])
        made = rounds if made is None else made
        charged = rounds - 1 if released_through is None else released_through
        self._prepared, self._early = True, []
        for k in sorted(self._rows):
            self._write(k)
        self._store.close()
        self._events.close()
        headline = self.headline()  # of all agents' totals, so once
        agents = tuple(self._agent_summary(name, charged, headline) for name in self._names)
        accuracies = {agent.name: agent.accuracy_test for agent in agents}
        summary = Summary(
            name=self._run.name,
            run_id=run_id,
            status=status,
            method=self._run.algorithm.method,
            mechanism=self._run.algorithm.mechanism,
            rounds=rounds,
            seconds=seconds,
            rounds_per_second=made / seconds if seconds > 0 and made > 0 else None,
            consensus_error=self.consensus if self._study else None,
            privacy=self.privacy,
            agents=agents,
            versions=versions(),
            keystream=self._keystream,
            headline=headline,
            reasons={a: epsilons.merged(self._names, self._why_not(a)) for a in ACCOUNTANTS},
            restarts=read_restarts(self._out),
            digests=None if (compared := read_digests(self._out)) is None else as_json(compared),
            no_accuracy=why_no_accuracy(self._run, accuracies, self._last),
            no_alone=why_not_alone(self._run),
            rounds_timed=made,
        )
        try:  # written before the run began, by who had the data at hand
            rivals = load_rivals(self._out)
        except ConfigError:  # no run is lost for it; the report names the damage
            rivals = None
        summary = replace(summary, outcome=outcome(self._run, summary, rivals), epsilon_towards=self._towards(summary))
        write_summary(self._out, summary)
        return summary

    def _towards(self, summary: Summary) -> dict[str, Any] | None:
        if self._keystream is not None:
            return None
        costs = {agent.name: agent.epsilon for agent in summary.agents}
        whom = towards_whom(self._run, costs, dict.fromkeys(costs, self.privacy.samples))
        return None if whom is None else whom.by_t()

    def _agent_summary(self, name: str, charged: int, headline: str | None) -> AgentSummary:
        last, result, epsilon = self._last.get(name), self._results.get(name), Epsilon.of(self.epsilon(name, charged))
        return AgentSummary(
            name=name,
            accuracy_test=last.accuracy_test if last else None,
            loss_train=last.loss_train if last else None,
            epsilon=epsilon,
            releases=result.releases if result else None,
            bytes_sent=result.bytes_sent if result else None,
            paper_lemma5=None if self._paper is None else self._true(self._paper[name].cost(LEMMA5.name, charged)),
            strength=self.word(headline, epsilon),
        )

    def word(self, accountant: str | None, epsilon: Mapping[str, float | None]) -> Strength:
        """What ``accountant``'s epsilon is worth, in one word."""
        if accountant is None:
            return "none"
        privacy = self.privacy
        value, D = epsilon[accountant], privacy.samples
        return strength(accountant, value, privacy.delta, samples=D, enforced=privacy.enforced)

    def delta_warning(self) -> str | None:
        """What must be said of a delta of 1/D or more, where an epsilon uses it; None where it is small."""
        used = any(account.total(name) is not None for account in self._accounts.values() for name in APPROXIMATE)
        return delta_warning(self.privacy.delta, self.privacy.samples) if used else None

    def _true(self, cost: float | None) -> float | None:
        """What a release costs: under a test keystream, whose noise anybody can take off again, everything."""
        return math.inf if cost and self._keystream is not None else cost

    def _totals(self) -> dict[str, list[float | None]]:
        return {a: [self._true(account.total(a)) for account in self._accounts.values()] for a in ACCOUNTANTS}

    def _why_not(self, accountant: str) -> list[str | None]:
        return [account.why_not(accountant) for account in self._accounts.values()]

    def _row(self, k: int) -> _Row:
        return self._rows.setdefault(k, _Row())

    def _flush(self, k: int) -> None:
        row = self._rows[k]
        n = len(self._names)
        if len(row.metrics) == n and (not self._wants_states or len(row.states) == n):
            if self._prepared:
                self._write(k)
            elif k not in self._early:
                self._early.append(k)

    def _write(self, k: int) -> None:
        row = self._rows.pop(k)
        self._written.add(k)
        n = len(self._names)
        error = consensus_error([row.states[name] for name in self._names]) if len(row.states) == n else None
        if error is not None:
            self.consensus = error
        elif k == self._run.K + 1:
            error = self.consensus if not self._wants_states else None
        rows = []
        for name in self._names:
            if name not in row.metrics or (name, k) in self._kept:
                continue
            m = row.metrics[name]
            costs = self.epsilon(name, k - 1)
            rows.append(
                MetricsRow(
                    name,
                    k,
                    row.wall[name],
                    m.loss_train if m else None,
                    m.accuracy_train if m else None,
                    m.accuracy_test if m else None,
                    m.grad_norm if m else None,
                    error,
                    Epsilon.of(costs),
                )
            )
        self._store.append(rows)
        self._events.append(rows)


def _accounts(
    run: RunConfig, topology: Topology, schedule: Schedule, samples: Sequence[int | None], dimension: int
) -> dict[str, AgentAccount]:
    """Every agent's account by name."""
    return dict(zip(run.graph.agents, accounts_for(run, topology, schedule, samples, dimension), strict=True))
