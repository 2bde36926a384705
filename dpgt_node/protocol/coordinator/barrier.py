"""The coordinator as a state machine: registration, the round barrier, pause and stop.

It counts rounds and never sees a released vector.  Phases:

    phase       meaning                                        leaves by
    ----------------------------------------------------------------------------------------------
    GATHERING   not every agent has registered yet             the last AgentJoined: Start to all
    RUNNING     rounds up to ``go_through`` may be released    Pause; every agent finished
    PAUSED      the barrier stays shut, agents finish round k  Resume
    STOPPING    Stop was sent, waiting for the agents to leave every stream gone, or the grace period
    ENDED       Conclude was emitted                           -

The barrier opens in blocks (``blocks``): when every agent is done with all that was let through, the next one is.
``AllDurable(r)`` follows the slowest agent's durable round: up to there
no agent will ever ask for a payload again.  Who is missing, cut off or slow is judged in ``liveness``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import auto
from typing import Literal

from dpgt_node.errors import ExitCode, invariant
from dpgt_node.protocol.coordinator.alarms import Alarms, contradicted
from dpgt_node.protocol.coordinator.barrier_types import (
    AgentDone,
    AgentEdges,
    AgentFailed,
    AgentFinished,
    AgentGone,
    AgentHeard,
    AgentJoined,
    AgentRefused,
    Broadcast,
    BroadcastStart,
    BroadcastStop,
    Conclude,
    CoordinatorEffect,
    CoordinatorEvent,
    Dismiss,
    PauseRequested,
    ResumeRequested,
    StopRun,
    Warn,
)
from dpgt_node.protocol.coordinator.blocks import Blocks
from dpgt_node.protocol.coordinator.slowest import Slowest
from dpgt_node.protocol.liveness import Liveness, Trouble
from dpgt_node.protocol.phases import Phases
from dpgt_node.protocol.types import AllDurable, Go, Tick
from dpgt_node.values import dataclass

__all__ = [
    "AgentDone",
    "AgentEdges",
    "AgentFailed",
    "AgentFinished",
    "AgentGone",
    "AgentHeard",
    "AgentJoined",
    "AgentRefused",
    "Broadcast",
    "BroadcastStart",
    "BroadcastStop",
    "Conclude",
    "CoordinatorEffect",
    "CoordinatorEvent",
    "CoordinatorMachine",
    "CoordinatorPhase",
    "Dismiss",
    "PauseRequested",
    "ResumeRequested",
    "StopRun",
    "Warn",
]


class CoordinatorPhase(Phases):
    """Where the run stands; see the table above."""

    GATHERING = auto()
    RUNNING = auto()
    PAUSED = auto()
    STOPPING = auto()
    ENDED = auto()


_STATUS: dict[ExitCode, Literal["stopped", "refused", "budget", "lost", "failed"]] = {
    ExitCode.STOPPED: "stopped",
    ExitCode.REFUSED: "refused",
    ExitCode.CONFIG: "refused",
    ExitCode.BUDGET: "budget",
    ExitCode.PEER_LOST: "lost",
}


@dataclass(slots=True)
class _Agent:
    released: int = -1
    finished: bool = False


class CoordinatorMachine:
    """Barrier and life of a run.

    ``agents``: names in row order.  ``last_round`` K.  ``liveness_ns``: without a sign of life for this long an
    agent counts as lost; then ``on_agent_loss`` decides.  ``settle_ns``: how long streams between agents may stay
    down after both ends are back.  ``register_timeout_ns`` bounds the wait for the last agent, ``grace_ns`` the wait
    for agents to leave after Stop.  ``announce_every``: AllDurable comes once in so many rounds (small payloads are
    cheaper to keep for a while than to announce).  ``paused``: the run was paused when an earlier coordinator died,
    so this one starts with the barrier shut.  No wait is silent: each names who is missing.
    """

    def __init__(
        self,
        agents: Sequence[str],
        last_round: int,
        *,
        barrier_every: int,
        register_timeout_ns: int,
        liveness_ns: int,
        on_agent_loss: Literal["wait", "stop"],
        now_ns: int,
        grace_ns: int = 10_000_000_000,
        settle_ns: int = 6_000_000_000,
        announce_every: int = 1,
        paused: bool = False,
    ) -> None:
        self._agents = {name: _Agent() for name in agents}
        self._done, self._durable = Slowest(agents), Slowest(agents)
        self._liveness = Liveness(
            agents, self.done, last_round, liveness_ns=liveness_ns, settle_ns=settle_ns, now_ns=now_ns
        )
        self._K = last_round
        self._blocks = Blocks(barrier_every)
        self._alarms = Alarms(liveness_ns, stops=on_agent_loss == "stop")
        self._grace_ns = grace_ns
        self.announce_every = announce_every
        self._register_deadline_ns = now_ns + register_timeout_ns
        self._stop_deadline_ns = 0
        self._stop: tuple[str, ExitCode] | None = None
        self._judged_ns = now_ns
        self._paused = paused
        self._go = self._announced = -1
        self._earlier = self._blocks.end(0)
        self.phase = CoordinatorPhase.GATHERING

    # --- what drivers may ask ---------------------------------------------------------------------------------

    @property
    def k(self) -> int:
        """The round the slowest agent is in: 0..K, K+1 when all are done."""
        return self._done.least + 1

    @property
    def go_through(self) -> int:
        """The last round that may be released; -1 before the start."""
        return self._go

    @property
    def all_durable_through(self) -> int:
        """The last round every agent durably finished; -1 for none."""
        return self._durable.least

    @property
    def paused(self) -> bool:
        """Whether the barrier stays shut, or will once every agent is here."""
        return self._paused or self.phase is CoordinatorPhase.PAUSED

    def waiting_for(self) -> tuple[str, ...]:
        """Who keeps the run from going on: absent agents while gathering, else the slowest ones."""
        if self.phase is CoordinatorPhase.GATHERING:
            return tuple(name for name in self._agents if not self.connected(name))
        slowest = self.k
        return tuple(name for name, a in self._agents.items() if self.done(name) + 1 == slowest and not a.finished)

    def connected(self, name: str) -> bool:
        return self._liveness.here(name)

    def heard_ns(self, name: str) -> int:
        """When the agent gave its last sign of life, in the clock of the steps."""
        return self._liveness.heard_ns(name)

    def waits_for(self, name: str) -> tuple[str, ...]:
        """The in-neighbours whose vectors the agent's round lacks, as it reported."""
        return self._liveness.waits_for(name)

    def troubles(self, now_ns: int) -> tuple[Trouble, ...]:
        """Who is missing, cut off or slow now, and since when; nothing before the start and after the end."""
        if self.phase not in (CoordinatorPhase.RUNNING, CoordinatorPhase.PAUSED):
            return ()
        barrier = self.waiting_for() if self.phase is CoordinatorPhase.RUNNING else ()
        return self._liveness.troubles(barrier, now_ns)

    def standstill(self, now_ns: int) -> str:
        """Whom the round waits for, and how long, or why the run stops; empty while it moves, and in a pause."""
        if self.phase is CoordinatorPhase.RUNNING:
            return self._liveness.standstill(self.waiting_for(), now_ns)
        return "" if self._stop is None else self._stop[0]

    def done(self, name: str) -> int:
        """The agent's last finished round, -1 for none."""
        return self._done.of(name)

    def done_limit(self, name: str) -> int:
        """The last round the agent can be done with: the barrier, that of an earlier coordinator, or what it registered
        with.
        """
        if self._go < 0:  # not begun, perhaps stopping already: a live agent goes on with what was let through before
            return self._K
        return min(self._K, max(self._go, self.done(name), self._earlier))

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest."""
        match self.phase:
            case CoordinatorPhase.GATHERING:
                return self._register_deadline_ns
            case CoordinatorPhase.RUNNING | CoordinatorPhase.PAUSED:
                return self._liveness.next_deadline_ns(self._judged_ns)
            case CoordinatorPhase.STOPPING:
                return self._stop_deadline_ns
            case _:
                return None

    # --- the step ---------------------------------------------------------------------------------------------

    def step(self, event: CoordinatorEvent, now_ns: int) -> tuple[CoordinatorEffect, ...]:
        """Take one event, return the effects in the order in which they must be carried out."""
        if self.phase is CoordinatorPhase.ENDED:
            return ()
        out: list[CoordinatorEffect] = []
        match event:
            case AgentDone():
                if event.k > self._go:
                    invariant(event.k <= self.done_limit(event.name), "an agent ran past the barrier")
                self._done.reached(event.name, event.k)
                self._durable.reached(event.name, event.durable_through)
                self._heard(event.name, out, now_ns)
                self._liveness.stepped(now_ns)
                self._open(out, now_ns)
            case AgentHeard():
                self._heard(event.name, out, now_ns)
            case AgentEdges():
                self._heard(event.name, out, now_ns)
                self._liveness.reported(event.name, event.report, now_ns)
                self._judge(out, now_ns)
            case AgentJoined():
                self._joined(event, out, now_ns)
            case AgentFinished():
                self._agents[event.name].finished = True
                self._liveness.stepped(now_ns)
                if all(a.finished for a in self._agents.values()):
                    self._conclude(out, "finished", ExitCode.DONE, "every agent finished")
            case AgentGone():
                self._gone(event.name, out, now_ns)
            case AgentRefused():
                self._begin_stop(f"{event.name} refused: {event.reason}", event.exit_code, out, now_ns)
            case AgentFailed():
                self._begin_stop(f"{event.name}: {event.reason}", event.exit_code, out, now_ns)
            case PauseRequested():
                if self.phase is CoordinatorPhase.RUNNING:
                    self.phase = CoordinatorPhase.PAUSED
            case ResumeRequested():
                self._paused = False
                if self.phase is CoordinatorPhase.PAUSED:
                    self.phase = CoordinatorPhase.RUNNING
                    self._liveness.stepped(now_ns)
                    self._open(out, now_ns)
            case StopRun():
                self._begin_stop(event.reason, event.exit_code, out, now_ns)
            case Tick():
                self._tick(out, now_ns)
        return tuple(out)

    def _heard(self, name: str, out: list[CoordinatorEffect], now_ns: int) -> None:
        if self._alarms.any:
            out += map(Warn, self._alarms.over(name, ("silent",), now_ns))
        self._liveness.heard(name, now_ns)

    def _joined(self, event: AgentJoined, out: list[CoordinatorEffect], now_ns: int) -> None:
        agent = self._agents[event.name]
        self._came(event.name, out, now_ns)
        agent.released = event.done if event.released is None else event.released
        # Everybody had released all that an earlier coordinator let through, but for the last block.
        self._earlier = self._blocks.end(min(a.released for a in self._agents.values()) + 1)
        if agent.released < self.done(event.name):
            self._stale(event.name, self.done(event.name), out, now_ns)
            return
        durable = self._durable.of(event.name)
        if event.durable_through < durable:  # the others may have dropped what it would ask for
            self._stale(event.name, durable, out, now_ns)
            return
        agent.finished = agent.finished or event.finished
        # A restarted coordinator learns the barrier's place from the agents; a restarted agent may report less than it
        # had announced, because it replays from its checkpoint: what it announced stays true.
        self._done.reached(event.name, event.done)
        self._durable.reached(event.name, event.durable_through)
        if self.phase is CoordinatorPhase.GATHERING:
            if all(map(self.connected, self._agents)):
                # Whoever released round r was let through by a barrier that all others had reached.
                furthest = max(self._agents, key=lambda name: self._agents[name].released)
                reached = self._blocks.before(self._agents[furthest].released)
                for name, other in self._agents.items():
                    if other.released < reached:
                        why = contradicted(name, other.released, furthest, self._agents[furthest].released, reached)
                        self._begin_stop(why, ExitCode.CONFIG, out, now_ns)
                        return
                self._go = self._start_through(now_ns)
                self.phase = CoordinatorPhase.PAUSED if self._paused else CoordinatorPhase.RUNNING
                out.append(BroadcastStart(self._go))
        elif self.phase in (CoordinatorPhase.RUNNING, CoordinatorPhase.PAUSED):
            out.append(BroadcastStart(self._go))
            if self._announced >= 0:
                out.append(Broadcast(AllDurable(self._announced)))
            self._open(out, now_ns)  # its last Done may have been lost with the stream, and everybody waits for it
        elif self._stop is not None:
            out.append(BroadcastStop(*self._stop))

    def _came(self, name: str, out: list[CoordinatorEffect], now_ns: int) -> None:
        out += map(Warn, self._alarms.over(name, ("left", "silent"), now_ns))
        self._liveness.joined(name, now_ns)
        self._liveness.stepped(now_ns)

    def _start_through(self, now_ns: int) -> int:
        """How far the barrier is open at the start of this process."""
        if self._paused:  # what somebody released was let through before the pause; nothing new is
            return min(self._K, max(a.released for a in self._agents.values()))
        # An agent that came with its result only serves: it says nothing about how far the others may go.
        furthest = max((done for done in map(self.done, self._agents) if done < self._K), default=-1)
        return min(self._K, max(self._blocks.open(self.k, now_ns), furthest))

    def _stale(self, name: str, done: int, out: list[CoordinatorEffect], now_ns: int) -> None:
        """An agent came back with an old copy of its state: a round drawn again would be a second release of it."""
        held = self._agents[name].released
        reason = (
            f"{name} came back with an old state directory: its last release is of round {held}, and it does not know "
            f"how round {done} ended, which {name} had finished; put the newer one back, or start a new run"
        )
        self._begin_stop(reason, ExitCode.CONFIG, out, now_ns)

    def _open(self, out: list[CoordinatorEffect], now_ns: int) -> None:
        durable = self.all_durable_through
        if durable >= self._announced + self.announce_every:
            self._announced = durable
            out.append(Broadcast(AllDurable(durable)))
        if self.phase is not CoordinatorPhase.RUNNING:
            return
        first = self.k
        if self._go < first <= self._K:
            self._go = min(self._K, self._blocks.open(first, now_ns))
            out.append(Broadcast(Go(self._go)))

    def _gone(self, name: str, out: list[CoordinatorEffect], now_ns: int) -> None:
        self._liveness.gone(name)
        if self.phase is CoordinatorPhase.STOPPING:
            if not any(map(self.connected, self._agents)):
                self._finish_stop(out)
        else:
            out.append(Warn(f"{name} left at round {self.done(name) + 1}"))

    def _tick(self, out: list[CoordinatorEffect], now_ns: int) -> None:
        match self.phase:
            case CoordinatorPhase.GATHERING if now_ns >= self._register_deadline_ns:
                missing = ", ".join(self.waiting_for())
                self._begin_stop(f"never registered: {missing}", ExitCode.REFUSED, out, now_ns)
            case CoordinatorPhase.RUNNING | CoordinatorPhase.PAUSED:
                self._judge(out, now_ns)
            case CoordinatorPhase.STOPPING if now_ns >= self._stop_deadline_ns:
                self._finish_stop(out)

    def _judge(self, out: list[CoordinatorEffect], now_ns: int) -> None:
        if self.phase not in (CoordinatorPhase.RUNNING, CoordinatorPhase.PAUSED):
            return
        self._judged_ns = now_ns
        for line, ends_run in self._alarms.judge(self.troubles(now_ns), now_ns):
            if ends_run:
                self._begin_stop(line, ExitCode.PEER_LOST, out, now_ns)
                return
            out.append(Warn(line))

    def _begin_stop(self, reason: str, code: ExitCode, out: list[CoordinatorEffect], now_ns: int) -> None:
        if self.phase is CoordinatorPhase.STOPPING:
            return
        self.phase = CoordinatorPhase.STOPPING
        self._stop = (reason, code)
        self._stop_deadline_ns = now_ns + self._grace_ns
        out.append(BroadcastStop(reason, code))
        if not any(map(self.connected, self._agents)):
            self._finish_stop(out)

    def _finish_stop(self, out: list[CoordinatorEffect]) -> None:
        assert self._stop is not None
        reason, code = self._stop
        self.phase = CoordinatorPhase.ENDED
        out.append(Conclude(_STATUS.get(code, "failed"), code, reason))

    def _conclude(self, out: list[CoordinatorEffect], status: Literal["finished"], code: ExitCode, reason: str) -> None:
        self.phase = CoordinatorPhase.ENDED
        out += [Conclude(status, code, reason), Dismiss()]  # nobody leaves for good before the end is durable
