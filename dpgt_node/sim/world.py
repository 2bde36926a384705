"""A whole run in one process: the daemons' own machines and per-agent functions over an in-memory network.

Every ordered pair of processes has a FIFO channel, as a gRPC stream does.  Which channel moves next is the only
freedom a real network has here; ``order_seed`` takes it at random, None takes the channels in turn.  Neither may
change a bit of the result: sums run over sorted sender ids.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Protocol

from dpgt_node.agent.roles import Tampering
from dpgt_node.agent.work import AgentWork
from dpgt_node.errors import ExitCode, invariant
from dpgt_node.learning.common import Metrics
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.outliers import Outlier
from dpgt_node.protocol.types import (
    Advance,
    AdvanceFinal,
    AgentEffect,
    AgentEvent,
    AllDurable,
    Dismissed,
    DrawRelease,
    Evaluate,
    FinalSaved,
    Finish,
    Go,
    Payload,
    PeerNeeds,
    Persist,
    Persisted,
    Prune,
    ReportDone,
    ReportStall,
    Resend,
    RoundRecord,
    SaveFinal,
    Send,
    Started,
    StopRequested,
    Tick,
    VectorReceived,
)
from dpgt_node.types import F64
from dpgt_node.values import dataclass, value

COORDINATOR = -1


class Hearsay(Protocol):
    """Notes what each agent released and received."""

    def released(self, i: int, record: RoundRecord) -> None:
        """Agent ``i`` made its round durable."""
        ...

    def received(self, i: int, sender: int, payload: Payload) -> None:
        """Agent ``i`` got a vector."""
        ...

    def outliers(self, i: int, found: tuple[Outlier, ...]) -> None:
        """Agent ``i`` names in-neighbours for what they sent."""
        ...

    def done(self, i: int, k: int) -> None:
        """Agent ``i`` has mixed round ``k``."""
        ...

    def dispute(self, done: co.AgentDone) -> str:
        """Why the run ends, now that the coordinator hears of it; empty: it goes on."""
        ...


@value(frozen=True, slots=True)
class _Copy(VectorReceived):
    """Sent once more by an active adversary; a socket's gate refuses it before anybody notes it."""


Channel = tuple[int, int]


@dataclass(slots=True)
class SimAgent:
    """One agent of the world.  ``records`` is its state directory: what was made durable and not pruned yet."""

    machine: AgentMachine
    work: AgentWork
    records: dict[int, RoundRecord] = field(default_factory=dict)
    releases: int = 0
    bytes_sent: int = 0
    x_final: F64 | None = None
    links: Tampering | None = None
    finish: Finish | None = None


@dataclass(frozen=True, slots=True)
class Observer:
    """Who watches a world: every call is optional, none may change it."""

    evaluated: Callable[[int, int, F64, Callable[[], Metrics]], None] | None = None
    """(i, k, x_{i,k}, what computes its metrics): they are dear, and not everybody wants them."""
    round_done: Callable[[int], None] | None = None
    persisted: Callable[[int, RoundRecord], None] | None = None
    received: Callable[[int, int, Payload], None] | None = None


class World:
    """``agents[i]`` is row i.  ``names`` as in the run file.  ``should_stop`` is asked between rounds.

    ``heard``: who compares what was sent, where somebody does not follow the protocol.
    """

    def __init__(
        self,
        names: Sequence[str],
        agents: Sequence[SimAgent],
        last_round: int,
        *,
        barrier_every: int = 1,
        observer: Observer = Observer(),
        order_seed: int | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        heard: Hearsay | None = None,
    ) -> None:
        self._heard = heard
        self._names = tuple(names)
        self._agents = tuple(agents)
        self._delays = any(agent.links is not None for agent in agents)
        self._observer = observer
        self._should_stop = should_stop
        self._random = None if order_seed is None else random.Random(order_seed)
        self._channels: dict[Channel, deque[AgentEvent | co.CoordinatorEvent]] = {}
        self._coordinator = co.CoordinatorMachine(
            self._names,
            last_round,
            barrier_every=barrier_every,
            register_timeout_ns=1,
            liveness_ns=1,
            on_agent_loss="wait",
            now_ns=0,
        )
        self._last_round = last_round
        self._reported = -1
        self.conclusion: co.Conclude | None = None

    def run(self) -> co.Conclude:
        """Drive every machine until the coordinator concludes."""
        for name, agent in zip(self._names, self._agents, strict=True):
            at = agent.machine
            self._feed_coordinator(
                co.AgentJoined(name, at.done_through, at.durable_through, released=at.released_through)
            )
        while self.conclusion is None or self._channels:
            channel = self._next_channel()
            if channel is not None:
                self._deliver(channel)
            elif self.conclusion is None:
                self._feed_coordinator(co.StopRun(self._withheld(), ExitCode.PEER_LOST))
            else:  # what is still on its way finds nobody
                break
        assert self.conclusion is not None
        return self.conclusion

    def _withheld(self) -> str:
        """Why nothing moves any more: what an active adversary keeps back."""
        for name, agent in zip(self._names, self._agents, strict=True):
            due_ns = agent.machine.next_deadline_ns()
            for effect in () if due_ns is None else agent.machine.step(Tick(), due_ns):
                assert isinstance(effect, ReportStall)
                sender, stream = effect.missing[0]
                return (
                    f"{name} has lacked {stream} of round {effect.k} of {self._names[sender]}, and nothing is on its "
                    "way: it is withheld"
                )
        raise AssertionError("the world went quiet before the run concluded")

    # --- the network --------------------------------------------------------------------------------------------

    def _post(self, source: int, target: int, event: AgentEvent | co.CoordinatorEvent) -> None:
        self._channels.setdefault((source, target), deque()).append(event)

    def _next_channel(self) -> Channel | None:
        """Who moves next; what an active adversary delays, only when nothing else can.  None: nothing can move."""
        ready = (channel for channel in self._channels if self._deliverable(channel))
        if self._random is None and not self._delays:
            return next(ready, None)
        found = list(ready)
        found = [channel for channel in found if not self._delayed(channel)] or found
        if self._random is None or not found:
            return found[0] if found else None
        return self._random.choice(found)

    def _delayed(self, channel: Channel) -> bool:
        event = self._channels[channel][0]
        if not isinstance(event, VectorReceived):
            return False
        links = self._agents[channel[0]].links
        return links is not None and links.held_s(channel[1], (event.payload,)) > 0.0

    def _deliverable(self, channel: Channel) -> bool:
        """A vector beyond the receiver's window waits in its stream, as flow control makes it wait on a socket."""
        event = self._channels[channel][0]
        if not isinstance(event, VectorReceived):
            return True
        return event.payload.k <= self._agents[channel[1]].machine.window()[1]

    def _deliver(self, channel: Channel) -> None:
        queue = self._channels.pop(channel)
        event = queue.popleft()
        if queue:
            self._channels[channel] = queue  # behind the others: channels take turns
        target = channel[1]
        if target == COORDINATOR:
            self._feed_coordinator(event)  # type: ignore[arg-type]  # channels to -1 hold coordinator events only
        else:
            self._feed_agent(target, event)  # type: ignore[arg-type]

    # --- agents -------------------------------------------------------------------------------------------------

    def _feed_agent(self, i: int, event: AgentEvent) -> None:
        agent = self._agents[i]
        if isinstance(event, VectorReceived) and not isinstance(event, _Copy):
            if self._heard is not None:
                self._heard.received(i, event.sender, event.payload)
            if self._observer.received:
                self._observer.received(i, event.sender, event.payload)
        pending: deque[AgentEvent] = deque([event])
        while pending:
            for effect in agent.machine.step(pending.popleft(), 0):
                pending.extend(self._interpret(i, agent, effect))

    def _interpret(self, i: int, agent: SimAgent, effect: AgentEffect) -> tuple[AgentEvent, ...]:
        match effect:
            case Advance():
                advanced = agent.work.advance(effect)
                if self._heard is not None:
                    self._heard.outliers(i, advanced.outliers)
                return (advanced,)
            case AdvanceFinal():
                return (agent.work.advance_final(effect),)
            case DrawRelease():
                return (agent.work.release(effect),)
            case Persist(record):
                invariant(record.k not in agent.records, "a round is released once")
                agent.records[record.k] = record
                agent.releases += len(record.payloads)
                if self._heard is not None:
                    self._heard.released(i, record)
                if self._observer.persisted:
                    self._observer.persisted(i, record)
                return (Persisted(record.k),)
            case Send(peer, payloads):
                self._send(i, peer, payloads)
            case Resend(peer, k, streams):
                self._send(i, peer, tuple(p for p in agent.records[k].payloads if p.stream in streams))
            case ReportDone(k, durable):
                if self._heard is not None:
                    self._heard.done(i, k)
                self._post(i, COORDINATOR, co.AgentDone(self._names[i], k, durable))
                if agent.x_final is not None:
                    self._post(i, COORDINATOR, co.AgentFinished(self._names[i]))
            case Evaluate(k, x):
                if self._observer.evaluated:
                    self._observer.evaluated(i, k, x, partial(agent.work.evaluate, effect))
            case Prune(through):
                for k in [k for k in agent.records if k <= through]:
                    del agent.records[k]
            case SaveFinal(x):
                agent.x_final = x
                return (FinalSaved(),)
            case Finish():
                agent.finish = effect
            case ReportStall():
                raise AssertionError("time stands still in this world")
        return ()

    def _send(self, i: int, peer: int, payloads: tuple[Payload, ...]) -> None:
        agent = self._agents[i]
        for payload in payloads if agent.links is None else agent.links.sent(peer, payloads):
            agent.bytes_sent += payload.nbytes
            self._post(i, peer, VectorReceived(i, payload))
        for copy in () if agent.links is None else agent.links.again(peer, payloads):
            agent.bytes_sent += copy.nbytes
            self._post(i, peer, _Copy(i, copy))

    # --- the coordinator ----------------------------------------------------------------------------------------

    def _feed_coordinator(self, event: co.CoordinatorEvent) -> None:
        if self._heard is not None and isinstance(event, co.AgentDone) and (why := self._heard.dispute(event)):
            self._feed_coordinator(co.StopRun(why, ExitCode.CHECK_FAILED))
        for effect in self._coordinator.step(event, 0):
            match effect:
                case co.BroadcastStart(go_through):
                    self._connect()
                    self._broadcast(Started(go_through))
                case co.Broadcast(message):
                    self._broadcast(message)
                case co.BroadcastStop(reason, _):
                    self._broadcast(StopRequested(reason))
                    for name in self._names:
                        self._post(COORDINATOR, COORDINATOR, co.AgentGone(name))
                case co.Dismiss():
                    self._broadcast(Dismissed())
                case co.Conclude():
                    self.conclusion = effect
                case co.Warn():
                    pass
        self._report_progress()

    def _broadcast(self, event: Started | Go | AllDurable | StopRequested | Dismissed) -> None:
        for i in range(len(self._agents)):
            self._post(COORDINATOR, i, event)

    def _connect(self) -> None:
        """Every receiver asks its in-neighbours from the first round it lacks."""
        for i, agent in enumerate(self._agents):
            for peer in agent.machine.peers:
                self._post(peer, i, PeerNeeds(peer, *self._agents[peer].machine.needs(i)))

    def _report_progress(self) -> None:
        k = self._coordinator.k
        if k == self._reported:
            return
        self._reported = k
        if self._observer.round_done:
            self._observer.round_done(k)
        if k <= self._last_round and self.conclusion is None and self._should_stop():
            self._feed_coordinator(co.StopRun("interrupted", ExitCode.STOPPED))
