"""Where an agent stands, for its own log: rounds, cost and whom it waits for.

Nothing here is computed from data: no loss, no accuracy, no norm of anything.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Mapping

from dpgt_node import figures
from dpgt_node.agent.work import AgentWork
from dpgt_node.config import RunConfig
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.strength import strength
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.phase import Phase
from dpgt_node.protocol.agent.session import Session
from dpgt_node.protocol.agent.session_types import SessionPhase
from dpgt_node.protocol.pace import speed
from dpgt_node.record import epsilons
from dpgt_node.runtime.watching.progress import Progress
from dpgt_node.runtime.watching.rhythm import Rhythm
from dpgt_node.types import Stream
from dpgt_node.values import dataclass

log = logging.getLogger("dpgt_node.progress")

SAMPLE_S = 1.0
_WAITS = frozenset({SessionPhase.STARTING, SessionPhase.OUTSIDE, SessionPhase.READING, SessionPhase.BEGINNING})


@dataclass(frozen=True, slots=True)
class Cost:
    """``spent`` so far of the ``total`` that this run costs, by ``accountant`` with its ``delta``, in one ``word``."""

    accountant: str
    delta: float
    spent: float
    total: float
    word: str


@dataclass(frozen=True, slots=True)
class Standing:
    """``k``: the round that the agent is in (-1: none yet) of 0..``K``; ``late``: whose vectors it lacks."""

    state: str
    k: int
    K: int
    rounds_per_second: float
    cost: Cost | None
    late: tuple[str, ...]

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last round at the present speed; None while it is not known."""
        if self.state != "running" or self.rounds_per_second <= 0:
            return None
        return max(0, self.K - self.k) / self.rounds_per_second

    def line(self) -> str:
        """``running: round 120 of 200, 85.3 rounds/s, ETA 1 s, epsilon (gdp, delta 1e-05) 3.2 of 7.5 (weak)``."""
        parts = [f"{self.state}: round {self.k} of {self.K}" if self.k >= 0 else self.state]
        if self.state == "running" and self.rounds_per_second > 0:  # of the first second nobody knows it
            parts.append(f"{speed(self.rounds_per_second)} rounds/s")
        if (left := self.eta_s) is not None:
            parts.append(f"ETA {left:.0f} s")
        if (cost := self.cost) is not None:
            head = epsilons.head(cost.accountant, cost.delta)
            parts.append(f"{head} {figures.epsilon(cost.spent)} of {figures.epsilon(cost.total)} ({cost.word})")
        if self.late:
            parts.append(f"late: {figures.some(self.late)}")
        return ", ".join(parts)

    def fields(self) -> dict[str, object]:
        """The same for ``--log-format json``."""
        cost = self.cost
        return {
            "event": "progress",
            "state": self.state,
            "k": self.k,
            "K": self.K,
            "rounds_per_second": round(self.rounds_per_second, 3),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
            "accountant": None if cost is None else cost.accountant,
            "epsilon": None if cost is None else cost.spent,
            "epsilon_of_run": None if cost is None else cost.total,
            "late": list(self.late),
        }


class Watch:
    """Samples ``session`` once a second and logs where it stands; :meth:`close` ends it.

    ``streams_in``: what comes from each in-neighbour.  ``samples``: D.  ``free``: the noise is not secret, so every
    release costs everything.
    """

    def __init__(
        self,
        run: RunConfig,
        work: AgentWork,
        session: Session,
        streams_in: Mapping[str, Collection[Stream]],
        samples: int | None,
        *,
        free: bool,
    ) -> None:
        self._run = run
        self._work = work
        self._session = session
        self._streams_in = streams_in
        self._samples = samples
        self._free = free
        self._sampled_k = -1
        self._stands_still = False
        self._progress = Progress()
        self._rhythm = Rhythm(time.monotonic())
        totals = {name: [self._true(work.account.total(name))] for name in ACCOUNTANTS}
        self._accountant = epsilons.shown_accountant(totals, run.privacy.delta, samples)
        self._task = asyncio.ensure_future(self._go_on())

    @property
    def neighbours(self) -> tuple[str, ...]:
        """In-neighbours."""
        return tuple(self._streams_in)

    def close(self) -> None:
        """The process ends: say where it stood last."""
        self._task.cancel()
        self._say(last=True)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            if (agent := self._session.agent) is not None:
                self._progress.note(agent.k)
                self._stands_still, self._sampled_k = agent.k == self._sampled_k, agent.k
            self._say()

    def _say(self, *, last: bool = False) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        standing = self.standing()
        if self._rhythm.due(standing.state, standing.k, time.monotonic(), last=last):
            log.info("%s", standing.line(), extra={"fields": standing.fields()})

    def standing(self) -> Standing:
        """Where the agent stands now."""
        agent = self._session.agent
        state = _state(self._session, agent)
        if agent is None:
            return Standing(state, -1, self._run.K, 0.0, None, ())
        rate = self._progress.rate() if state == "running" else 0.0
        return Standing(state, agent.k, self._run.K, rate, self._cost(agent.released_through), self.late())

    def late(self) -> tuple[str, ...]:
        """In-neighbours whose vectors of this round have been missing for a second."""
        agent = self._session.agent
        if agent is None or agent.phase is not Phase.EXCHANGING or not self._stands_still:
            return ()
        found = []
        for name, streams in self._streams_in.items():
            first = dict(zip(("X", "Y"), agent.needs(self._run.graph.agents.index(name)), strict=True))
            if any(first[stream] <= agent.k for stream in streams):
                found.append(name)
        return tuple(found)

    def _cost(self, k: int) -> Cost | None:
        account, name, privacy = self._work.account, self._accountant, self._run.privacy
        if name is None:
            return None
        spent, total = self._true(account.cost(name, k)), self._true(account.total(name))
        if spent is None or total is None:
            return None
        word = strength(name, spent, privacy.delta, samples=self._samples, enforced=privacy.enforced)
        return Cost(name, privacy.delta, spent, total, word)

    def _true(self, cost: float | None) -> float | None:
        return math.inf if cost and self._free else cost


def _state(session: Session, agent: AgentMachine | None) -> str:
    if session.phase in _WAITS or session.phase is SessionPhase.AGREEING:
        return "waiting"
    if session.phase is not SessionPhase.INSIDE or agent is None:
        return "leaving"
    return {Phase.WAITING: "waiting", Phase.FINAL: "ending", Phase.SERVING: "ending", Phase.ENDED: "leaving"}.get(
        agent.phase, "running"
    )
