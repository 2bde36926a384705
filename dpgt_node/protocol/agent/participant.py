"""One agent among its neighbours: its machine, both ends of its edges, and what it reports, while the run is open.

What the parts ask of one another is done at once and in order; everything else passes on:

    effect                             goes to
    ---------------------------------------------------------------------------------------
    VectorReceived                     the agent's machine, and a Witness where one is wanted
    PeerNeeds                          the agent's machine, after a look at what the peer says it holds
    PeerGone                           the agent's machine
    Send, Resend                       the sender's end of that edge, dummies among them where peers are covered
    ReportDone                         the coordinator (Say), and the reports
    ReportStall                        the watch over the edges
    EdgeLost                           Broke
    Say, Broke, Finish                 the session
    everything else                    the shell

When the inbox's window moved, the receiving ends that were full hear it after the effects of the step that moved it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dpgt_node.errors import DpgtError, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.covers import FOR_EVER_NS, Covers
from dpgt_node.protocol.agent.ears import Ears
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.reports import Reports, ReportsPhase
from dpgt_node.protocol.calls import Accepted, Ended, Heard, Opened, Taken
from dpgt_node.protocol.digests import Digests, Dispute
from dpgt_node.protocol.edge.receiver import Receiver, ReceiverPhase
from dpgt_node.protocol.edge.sender import Sender
from dpgt_node.protocol.edge.watch import EdgeWatch
from dpgt_node.protocol.pace import Took
from dpgt_node.types import Stream


class Participant:
    """``agent`` of run ``run_id``, with last round ``last_round``.

    ``receivers``: the receiving ends, by peer.  ``recorded``: a transcript wants every vector that is taken in.
    ``distrust_ns`` and ``patience_ns`` as in ``session.Terms``, ``covered`` as in ``session.Peers``.
    """

    def __init__(
        self,
        agent: AgentMachine,
        names: tuple[str, ...],
        receivers: Mapping[str, Receiver],
        run_id: bytes,
        last_round: int,
        digests: Digests,
        *,
        recorded: bool,
        heartbeat_ns: int,
        patience_ns: int,
        distrust_ns: int,
        covered: bool = False,
    ) -> None:
        self.agent = agent
        self._covers = Covers(agent, len(names)) if covered else None
        self._ears = Ears(names, agent, digests)
        self._recorded = recorded
        self._mixed = agent.done_through
        self._head = (-1, b"")
        self._receivers = receivers
        patience = dict.fromkeys(agent.peers, distrust_ns)
        if self._covers is not None:
            patience |= dict.fromkeys(self._covers.peers, FOR_EVER_NS)  # nobody's round waits for a dummy
        self._to = {
            i: Sender(i, names[i], run_id, patience_ns=patience[i], silence_ns=patience_ns) for i in sorted(patience)
        }
        self._senders = {names[i]: sender for i, sender in self._to.items()}
        watched = {names[i]: self._to[i] for i in agent.peers}
        self._watch = EdgeWatch(names, agent, watched, receivers, heartbeat_ns=heartbeat_ns, patience_ns=patience_ns)
        self.took = Took()
        """What its rounds took, in this life of the process."""
        self._reports = Reports(last_round, self.bytes_sent)
        self._within: dict[type, Callable[[Any, list[Any], int], None]] = {
            t.VectorReceived: self._vector,
            t.Send: self._send,
            t.Resend: self._send,
            t.ReportDone: self._done,
            t.Persist: self._persist,
            t.PeerNeeds: self._needs,
            t.PeerGone: self._step_agent,
            t.ReportStall: self._stall,
            s.EdgeLost: lambda effect, out, _: out.append(s.Broke(effect.error)),
        }

    @classmethod
    def of(
        cls,
        terms: s.Terms,
        peers: s.Peers,
        run_id: bytes,
        agent: AgentMachine,
        receivers: Mapping[str, Receiver],
        read: s.RunRead,
        begun: s.RunBegun,
    ) -> Participant:
        """As the session's ``terms`` and ``peers`` have it.  ``read``, ``begun``: what the agent was made of."""
        return cls(
            agent,
            peers.names,
            receivers,
            run_id,
            terms.last_round,
            Digests(agent.edges, agent.run_ahead, read.recovered),
            recorded=begun.recorded,
            heartbeat_ns=terms.heartbeat_ns,
            patience_ns=terms.patience_ns,
            distrust_ns=terms.distrust_ns,
            covered=peers.covered,
        )

    @property
    def outliers(self) -> Mapping[tuple[str, Stream], int]:
        """In how many rounds, by in-neighbour and stream, as far as it was named."""
        return self._ears.outlying

    @property
    def reported(self) -> bool:
        """Whether the last report was said."""
        return self._reports.phase is ReportsPhase.SAID

    def outboxes(self) -> dict[str, int]:
        """How many items wait to be written to each out-neighbour."""
        return {name: sender.waiting for name, sender in self._senders.items()}

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest."""
        return earliest(
            self.agent.next_deadline_ns(),
            self._watch.next_deadline_ns(),
            *[sender.next_deadline_ns() for sender in self._to.values()],
        )

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        """Take one event, return the effects in the order in which they must be carried out."""
        out: list[Any] = []
        match event:
            case t.ReleaseReady():  # first what comes in every round
                self._step_agent(event, out, now_ns)
            case t.Advanced():
                if event.outliers:
                    out += self._ears.outliers(event.outliers)
                self._step_agent(event, out, now_ns)
            case t.Persisted(k, head):
                self._head = (k, head)
                self._ears.drew = True
                self._step_agent(event, out, now_ns)
            case Heard() | Taken() | Opened() | Ended() | s.RoundRead():
                call = event.call
                end: Sender | Receiver = self._senders[call.peer] if call.dialled else self._receivers[call.peer]
                self._emit(end.step(event, now_ns), out, now_ns)
            case Accepted(call):
                self._emit(self._receivers[call.peer].step(event, now_ns), out, now_ns)
            case s.Evaluated() | s.UploadsTaken() | s.ReportMade():
                self._emit(self._reports.step(event, now_ns), out, now_ns)
            case s.Repeat(metrics):
                if metrics:
                    self._say_again(out)
                self._emit(self._reports.step(event, now_ns), out, now_ns)
            case Dispute():
                out += self._ears.dispute(event)
            case s.Admit():
                for receiver in self._receivers.values():
                    self._emit(receiver.step(event, now_ns), out, now_ns)
            case s.Moved():
                self._moved(out, now_ns)
            case s.Leave():
                for sender in self._to.values():
                    out += sender.step(event, now_ns)
            case m.Start():
                self._start(event, out, now_ns)
            case t.Tick():
                self._step_agent(event, out, now_ns)
                self._beat(event, out, now_ns)
                for sender in self._to.values():
                    self._emit(sender.step(event, now_ns), out, now_ns)
            case _:
                self._step_agent(event, out, now_ns)
        return tuple(out)

    def _start(self, start: m.Start, out: list[Any], now_ns: int) -> None:
        for name, sender in self._senders.items():
            if name not in start.peers:
                raise PeerError(f"the coordinator gave no address of {name}")
            self._emit(sender.step(s.Address(start.peers[name]), now_ns), out, now_ns)
        started = t.Started(start.go_through)
        self._watch.step(started, now_ns)
        self._step_agent(started, out, now_ns)

    def _step_agent(self, event: t.AgentEvent, out: list[Any], now_ns: int) -> None:
        agent = self.agent
        try:
            effects: Sequence[Any] = agent.step(event, now_ns)
        except DpgtError as error:
            out.append(s.Broke(error))
            return
        if self._covers is not None:
            effects = self._covers.among(event, effects)
        if effects:
            self._emit(effects, out, now_ns)
        if (mixed := agent.done_through) != self._mixed:
            self._mixed = mixed
            self._moved(out, now_ns)

    def _beat(self, tick: t.Tick, out: list[Any], now_ns: int) -> None:
        """Once a heartbeat both sides of every edge hear how it stands."""
        due_ns = self._watch.next_deadline_ns()
        if due_ns is None or now_ns < due_ns:
            return
        self._emit(self._watch.step(tick, now_ns), out, now_ns)
        for receiver in self._receivers.values():
            self._emit(receiver.step(tick, now_ns), out, now_ns)

    def _moved(self, out: list[Any], now_ns: int) -> None:
        for receiver in self._receivers.values():
            if receiver.phase is ReceiverPhase.FULL:
                self._emit(receiver.step(s.Moved(), now_ns), out, now_ns)

    def _emit(self, effects: Iterable[Any], out: list[Any], now_ns: int) -> None:
        for effect in effects:
            within = self._within.get(type(effect))
            if within is None:
                out.append(effect)
            else:
                within(effect, out, now_ns)

    def _vector(self, effect: t.VectorReceived, out: list[Any], now_ns: int) -> None:
        self._ears.digests.heard(effect.sender, effect.payload)
        if self._recorded:
            out.append(s.Witness(effect.sender, effect.payload))
        self._step_agent(effect, out, now_ns)

    def _send(self, effect: t.Send | t.Resend, out: list[Any], now_ns: int) -> None:
        self._emit(self._to[effect.peer].step(effect, now_ns), out, now_ns)

    def _persist(self, effect: t.Persist, out: list[Any], now_ns: int) -> None:
        self._ears.digests.released(effect.record.payloads)
        out.append(effect)

    def _needs(self, effect: t.PeerNeeds, out: list[Any], now_ns: int) -> None:
        if self._covers is not None and effect.peer in self._covers.peers:
            self._emit(self._covers.again(effect), out, now_ns)
            return
        believed, said = self._ears.needs(effect)
        out += said
        self._step_agent(believed, out, now_ns)

    def _stall(self, effect: t.ReportStall, out: list[Any], now_ns: int) -> None:
        self._emit(self._watch.step(effect, now_ns), out, now_ns)

    def _done(self, effect: t.ReportDone, out: list[Any], now_ns: int) -> None:
        self.took.add(1, effect.spent)
        committed, head = self._head  # none while rounds of before are replayed
        of_round = head if effect.k == committed else b""
        words = self._ears.digests.words(effect.k)
        done = m.Done(effect.k, effect.durable_through, self.bytes_sent(), of_round, effect.spent, words)
        out.append(s.Say(done, more=effect.k < self.agent.go_through))
        self._emit(self._reports.step(effect, now_ns), out, now_ns)

    def _say_again(self, out: list[Any]) -> None:
        """To a coordinator that came back: what it may have forgotten, or never heard, of the newest rounds."""
        digests, through, durable = self._ears.digests, self.agent.done_through, self.agent.durable_through
        for k in range(max(0, through + 1 - digests.resaid), through + 1):
            if words := digests.words(k):
                out.append(s.Say(m.Done(k, min(k, durable), self.bytes_sent(), words=words)))

    def bytes_sent(self) -> int:
        """To neighbours, in this life of the process."""
        return sum([sender.bytes_sent for sender in self._to.values()])


def earliest(*due_ns: int | None) -> int | None:
    """The nearest of some deadlines, None without any."""
    nearest = None
    for ns in due_ns:  # with every event: min over a generator takes three times as long
        if ns is not None and (nearest is None or ns < nearest):
            nearest = ns
    return nearest
