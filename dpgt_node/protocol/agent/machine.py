"""One agent as a state machine: no I/O, no clock, no entropy.

Theory of operation.  The phases of a run, and what moves an agent from one to the next:

    phase       waits for                          then
    -----------------------------------------------------------------------------------------------
    WAITING     Started                            Advance(None): x_0, g_0, y_0
    COMPUTING   Advanced(state k)                  READY
    READY       go_through >= k                    DrawRelease(k); KEEPING, if an older state is late
    KEEPING     StateKept(an older round)          READY
    DRAWING     ReleaseReady(k)                    Persist(k)
    PERSISTING  Persisted(k)                       Send(k) to every connected out-neighbour; KeepState(k), if due
    EXCHANGING  round k of every in-neighbour      k < K: Advance, ReportDone(k); k = K: AdvanceFinal
    FINAL       FinalReady, then FinalSaved        SaveFinal; ReportDone(K)
    SERVING     Dismissed                          Finish
    ENDED       nothing

Replay after a crash walks the same table from the last checkpoint: a round that has a durable record skips DRAWING and
PERSISTING and sends the stored bytes.  Nothing is ever drawn for a round that has a record.  Replay waits at the
barrier too: a restarted coordinator knows no more than what the agents registered with, and must not be overtaken.
A large state is written beside the rounds that follow (``keeping``): until StateKept(k) a restart goes on from the one
before, and whatever rests on the newest one rests on that.

A sender starts with nothing connected.  A receiver that opens or reopens its side asks by ``PeerNeeds`` for the first
round it lacks of each stream; the sender resends stored bytes from there and goes on live.  With the receiver's inbox
dropping exact copies this makes C edges exactly-once: a lost or doubled y̆ would break sum_i y_i for ever.

Nothing is drawn before every out-neighbour has said, in the life of this process, what it lacks: if one of them
holds a round that is not stored here, this is an old copy of the state, and drawing that round again would be a
second release of it.
"""

from __future__ import annotations

from dpgt_node.algo.methods.base import AgentEdges
from dpgt_node.errors import Broken, StaleState, invariant
from dpgt_node.protocol.agent.inbox import Inbox
from dpgt_node.protocol.agent.keeping import Keeping
from dpgt_node.protocol.agent.phase import NOTHING_SPENT, Phase, spent
from dpgt_node.protocol.pace import Spent
from dpgt_node.protocol.types import (
    Advance,
    Advanced,
    AdvanceFinal,
    AgentEffect,
    AgentEvent,
    AllDurable,
    Dismissed,
    DrawRelease,
    Evaluate,
    Evaluating,
    FinalReady,
    FinalSaved,
    Finish,
    Go,
    KeepState,
    Payload,
    PeerGone,
    PeerNeeds,
    Persist,
    Persisted,
    Prune,
    Recovered,
    ReleaseReady,
    ReportDone,
    ReportStall,
    Resend,
    RoundRecord,
    SaveFinal,
    Send,
    Started,
    State,
    StateKept,
    StopRequested,
    Tick,
    VectorReceived,
)
from dpgt_node.types import F64, Stream


class AgentMachine:
    """One agent of a run, driven by events.

    ``edges``: who sends to it and whom it sends to, by stream.  ``last_round`` is K.  ``checkpoint_every`` W: the state
    of round k is stored when W divides k, with the record of round k or, where it is large (``beside``), after it.
    ``run_ahead``: how many rounds beyond the first unmixed one the inbox holds (the barrier's width).
    ``stall_ns``: after how long a round without its inputs is reported.  ``budget_through``: the last round that
    the owner's budget covers, None without a cap; the machine ends before it would draw a later one.
    ``recovered``: what the state directory holds of this run.  ``finished``: x_{i,K+1}, already durable; the agent
    only serves its payloads until it is dismissed.
    """

    def __init__(
        self,
        edges: AgentEdges,
        last_round: int,
        *,
        evaluate_every: int,
        checkpoint_every: int = 1,
        beside: bool = False,
        run_ahead: int = 1,
        stall_ns: int = 60_000_000_000,
        budget_through: int | None = None,
        recovered: Recovered | None = None,
        finished: F64 | None = None,
    ) -> None:
        self.edges, self.run_ahead = edges, run_ahead
        self._streams = edges.streams
        self._K = last_round
        self._evaluate_every = evaluate_every
        self._stall_ns = stall_ns
        self._finished = finished
        self._budget_through = budget_through
        self.go_through = -1
        """The last round that may be released, as far as heard; -1 before the start."""
        self._phase = Phase.WAITING
        self._state: State | None = recovered.checkpoint if recovered else None
        self._records: dict[int, RoundRecord] = {r.k: r for r in recovered.records} if recovered else {}
        self._released = max(self._records, default=-1)
        newest = self._state.k if self._state else -1
        self._keeping = Keeping(checkpoint_every, beside=beside, newest=newest)
        self._durable_through = max(newest - 1, -1)
        if finished is not None:
            self._released = self._durable_through = last_round
        start = self.k if finished is None else last_round + 1
        self._inbox = Inbox(
            {stream: [j for j, _ in incoming] for stream, incoming in edges.incoming.items()},
            own=edges.index,
            low=start,
            width=run_ahead,
        )
        self._own: tuple[Payload, ...] | None = None
        self._connected: set[int] = set()
        self._heard: set[int] = set()
        self._pruned = -1
        self._exchange_since_ns = 0
        self._deadline_ns: int | None = None
        self._spent_ns = NOTHING_SPENT.copy()
        self._evaluated_ns = self._stepped_ns = 0
        self._to = {s: frozenset(j for j in out if j != edges.index) for s, out in edges.outgoing.items()}
        self._peers = tuple(sorted(frozenset().union(*self._to.values())))

    # --- what drivers may ask ---------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def k(self) -> int:
        """The round the agent is in: 0..K."""
        return self._state.k if self._state else 0

    @property
    def state(self) -> State | None:
        """At the start of round ``k``; complete once that round's release is drawn.  None before round 0."""
        return self._state

    @property
    def peers(self) -> tuple[int, ...]:
        """Out-neighbours other than the agent itself, in the union of all streams' graphs, sorted."""
        return self._peers

    @property
    def done_through(self) -> int:
        """The last round whose inputs were mixed; -1 before the first."""
        return self._inbox.low - 1

    @property
    def durable_through(self) -> int:
        """No payload of a round up to here will be asked for again, even after a crash; -1 for none."""
        return self._durable_through

    @property
    def released_through(self) -> int:
        """The last round with a durable record; -1 before the first."""
        return self._released

    @property
    def inbox_size(self) -> int:
        """Vectors of neighbours, and of the agent itself, that wait to be mixed."""
        return len(self._inbox)

    def window(self) -> tuple[int, int]:
        """Rounds a neighbour's vector may carry now, inclusive; older ones are copies of what was mixed."""
        return self._inbox.low, self._inbox.high

    def needs(self, sender: int) -> tuple[int, int]:
        """First round of X and of Y still lacking from ``sender``."""
        return self._inbox.first_missing(sender, "X"), self._inbox.first_missing(sender, "Y")

    @property
    def mixed_before(self) -> int:
        """Every round of the in-neighbours before this one was mixed, also if it is replayed now: a release comes
        after the mixing of the round before it.
        """
        return max(self._released, self._inbox.low)

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest, None when nothing is timed."""
        return self._deadline_ns

    # --- the step ---------------------------------------------------------------------------------------------

    def step(self, event: AgentEvent, now_ns: int) -> tuple[AgentEffect, ...]:
        """Take one event, return the effects in the order in which they must be carried out."""
        if self._phase is Phase.ENDED:
            return ()
        self._spent_ns[self._phase] += now_ns - self._stepped_ns  # within a step no time passes
        self._stepped_ns = now_ns
        out: list[AgentEffect] = []
        match event:
            case VectorReceived():
                self._inbox.put(event.sender, event.payload)
                self._try_mix(out)
            case Go():
                self.go_through = max(self.go_through, event.through)
                self._try_release(out, now_ns)
            case Advanced():
                invariant(self._phase is Phase.COMPUTING, "a state comes when it was asked for")
                self._enter_round(event.state, out, now_ns)
            case ReleaseReady():
                invariant(self._phase is Phase.DRAWING and event.k == self.k, "a release comes when it was asked for")
                self._phase = Phase.PERSISTING
                self._own, self._state = event.payloads, (at := event.state)
                keep = at if self._keeping.with_record(at.k) else None
                record = RoundRecord(at.k, event.payloads, event.rows, at.batch, keep, event.noisy_gradient)
                out.append(Persist(record))
            case Persisted():
                invariant(self._phase is Phase.PERSISTING and event.k == self.k, "what is durable was to be stored")
                self._after_persist(out, now_ns)
            case StateKept():
                self._kept(event.k)
                if self._phase is Phase.KEEPING:
                    self._phase = Phase.READY
                    self._try_release(out, now_ns)
            case PeerNeeds():
                self._check_not_stale(event)
                self._connected.add(event.peer)
                self._heard.add(event.peer)
                self._resend(event, out)
                self._try_release(out, now_ns)
            case PeerGone():
                self._connected.discard(event.peer)
            case AllDurable():
                if event.through > self._pruned:
                    self._pruned = event.through
                    out.append(Prune(event.through))
            case Started():
                self._start(event, out, now_ns)
            case FinalReady():
                invariant(self._phase is Phase.FINAL, "the result comes when it was asked for")
                out += [SaveFinal(event.x), Evaluate(self._K + 1, event.x)]
            case FinalSaved():
                self._phase = Phase.SERVING
                self._durable_through = self._K
                out.append(ReportDone(self._K, self._K, self._spent()))
            case Dismissed():
                invariant(self._durable_through == self._K, "dismissed before the result was saved")
                self._end(Finish("finished", "every agent finished"), out)
            case StopRequested():
                self._end(Finish("stopped", event.reason), out)
            case Evaluating(for_ns):
                self._spent_ns[self._phase] -= for_ns
                self._evaluated_ns += for_ns
            case Tick():
                self._tick(out, now_ns)
        return tuple(out)

    def _spent(self) -> Spent:
        """What the rounds since the last report took, by the phases of ``pace``."""
        found = spent(self._spent_ns, self._evaluated_ns)
        self._spent_ns, self._evaluated_ns = NOTHING_SPENT.copy(), 0
        return found

    def _start(self, event: Started, out: list[AgentEffect], now_ns: int) -> None:
        self.go_through = max(self.go_through, event.go_through)
        if self._phase is not Phase.WAITING:  # repeated when an agent rejoined, perhaps after a Go that was lost
            self._try_release(out, now_ns)
            return
        self._spent_ns = NOTHING_SPENT.copy()
        if self._finished is not None:
            self._phase = Phase.SERVING
            out += [Evaluate(self._K + 1, self._finished), ReportDone(self._K, self._K)]
        elif self._state is None:
            self._phase = Phase.COMPUTING
            out.append(Advance(None))
        else:
            self._enter_round(self._state, out, now_ns)

    def _enter_round(self, state: State, out: list[AgentEffect], now_ns: int) -> None:
        self._state = state
        if state.k % self._evaluate_every == 0:
            out.append(Evaluate(state.k, self.edges.point(state.vectors)))
        self._phase = Phase.READY
        self._try_release(out, now_ns)

    def _try_release(self, out: list[AgentEffect], now_ns: int) -> None:
        if self._phase is not Phase.READY or self.k > self.go_through:
            return
        if not self._keeping.lets(self.k):
            self._phase = Phase.KEEPING
            return
        record = self._records.pop(self.k, None)
        if record is None:
            if self._state is None or self.k <= self._released:
                raise Broken("a round is drawn once")
            if not self._heard.issuperset(self._peers):
                return  # one of them may hold a round that this state directory has forgotten
            if self._budget_through is not None and self.k > self._budget_through:
                self._end(Finish("budget", f"the privacy budget does not cover round {self.k}"), out)
                return
            self._phase = Phase.DRAWING
            out.append(DrawRelease(self._state))
        else:
            # Released before the crash: the stored bytes are the round's bytes, whatever happens now.
            self._own = record.payloads
            self._keep(out)
            self._exchange(out, now_ns)

    def _check_not_stale(self, event: PeerNeeds) -> None:
        """Whoever holds, or once mixed, a round that was never stored here proves that releases were forgotten."""
        held = [event.first(stream) for stream, peers in self._to.items() if event.peer in peers]
        lacks = max([event.mixed_before, *held])
        if lacks > self._released + 1:
            raise StaleState(
                f"{self.edges.name}: this state directory is older than the run: its last release is of round "
                f"{self._released}, and agent no. {event.peer + 1} holds round {lacks - 1}; nothing was drawn again. "
                "Put the newer state directory back, or start a new run"
            )

    def _after_persist(self, out: list[AgentEffect], now_ns: int) -> None:
        k = self.k
        self._released = k
        if self._keeping.with_record(k):
            self._kept(k)
        for peer in self._peers:
            if peer in self._connected:
                out.append(Send(peer, self._for_peer(peer)))
        self._keep(out)
        self._exchange(out, now_ns)

    def _keep(self, out: list[AgentEffect]) -> None:
        """The round is durable: have its state written, if that is due."""
        if self._state is not None and self._keeping.due(self.k):
            out.append(KeepState(self._state))

    def _kept(self, k: int) -> None:
        """The state of round ``k`` is durable; the result may be, too, by now."""
        self._keeping.kept(k)
        self._durable_through = max(self._durable_through, k - 1)

    def _for_peer(self, peer: int) -> tuple[Payload, ...]:
        assert self._own is not None
        return tuple(payload for payload in self._own if peer in self._to[payload.stream])

    def _exchange(self, out: list[AgentEffect], now_ns: int) -> None:
        assert self._own is not None
        self._phase = Phase.EXCHANGING
        self._exchange_since_ns = now_ns
        self._deadline_ns = now_ns + self._stall_ns
        for payload in self._own:  # a self-loop mixes what was RELEASED
            self._inbox.put_own(payload)
        self._try_mix(out)

    def _try_mix(self, out: list[AgentEffect]) -> None:
        if self._phase is not Phase.EXCHANGING or not self._inbox.complete(self.k):
            return
        assert self._state is not None
        self._deadline_ns = None
        k = self.k
        received = {stream: self._inbox.take(stream) for stream in self._streams}
        self._inbox.advance(k + 1)
        own, self._own = self._own, None
        assert own is not None
        if k == self._K:
            self._phase = Phase.FINAL
            out.append(AdvanceFinal(self._state, received, own))
            return
        self._phase = Phase.COMPUTING
        done = ReportDone(k, self._durable_through, self._spent())
        out += [done, Advance(self._state, received, own, self._records.get(k + 1))]

    def _resend(self, event: PeerNeeds, out: list[AgentEffect]) -> None:
        lacks: dict[Stream, int] = {s: event.first(s) for s, peers in self._to.items() if event.peer in peers}
        for k in range(min(lacks.values(), default=self._released + 1), self._released + 1):
            streams = tuple(stream for stream, first in lacks.items() if k >= first)
            if streams:
                out.append(Resend(event.peer, k, streams))

    def _tick(self, out: list[AgentEffect], now_ns: int) -> None:
        if self._deadline_ns is None or now_ns < self._deadline_ns:
            return
        self._deadline_ns = now_ns + self._stall_ns
        out.append(ReportStall(self.k, self._inbox.missing(self.k), self._exchange_since_ns))

    def _end(self, finish: Finish, out: list[AgentEffect]) -> None:
        self._phase = Phase.ENDED
        self._deadline_ns = None
        out.append(finish)
