"""The agent daemon: the product's session, and what carries its effects out in this world, as ``runtime.agent`` does.

A job in a thread is a pause between its start and its event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpgt_node import __version__
from dpgt_node.agent.work import AgentWork
from dpgt_node.errors import DpgtError, PeerError, StoreError
from dpgt_node.protocol import calls as c
from dpgt_node.protocol import messages as m
from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.session import Session
from dpgt_node.protocol.agent.session_types import SessionPhase
from dpgt_node.protocol.clock import SECOND, heartbeat_ns
from dpgt_node.protocol.dummies import Dummy
from dpgt_node.runtime.agent.streams import Edges
from tests.swarm.calls import Calls
from tests.swarm.checkers import Violation
from tests.swarm.disk import Disk
from tests.swarm.network import End
from tests.swarm.pairs import Shell
from tests.swarm.process import Process

if TYPE_CHECKING:
    from tests.swarm.world import World

FAREWELL_NS = 2 * SECOND
UNBOUNDED = 10**9


class AgentProcess(Process):
    """One life of agent ``index``."""

    def __init__(self, world: World, index: int, disk: Disk, work: AgentWork, life: int) -> None:
        super().__init__(world, index, world.names[index])
        self.disk = disk
        self.work = work
        self.session: Session | None = None
        self._shell = None if world.graph is None else Shell(world, index)
        self._life = life
        self._instance = bytes([index, life & 255]) * 8
        self._run_id = b""
        self._edges = Edges(world.plan.run, world.edges, index, work)
        self._events: deque[Any] = deque()
        self._stepping = False
        self._due_ns: int | None = None
        self._drawn: t.State | None = None
        self._writing = False
        self._busy_until_ns = {"work": 0, "store": 0, "evaluate": 0, "state": 0}
        self._calls = Calls(world, self, self.feed, self._edges.framing, self._window)

    @property
    def machine(self) -> AgentMachine | None:
        """The agent's machine, once the run is open."""
        return None if self.session is None else self.session.agent

    def start(self) -> None:
        """What ``Node.serve`` does first."""
        world, runtime = self.world, self.world.plan.run.runtime
        try:
            held = self.disk.held(world.K)
        except StoreError as error:
            if not self.disk.torn:
                raise Violation("states", f"{self.name} cannot go on from what was stored: {error}") from error
            self.exit(error.exit_code)
            return
        terms = s.Terms(
            coordinator="coordinator",
            run_json=world.run_json,
            run_sha256="",
            run_source="RUN.toml",
            state_source=self.name,
            package_version=__version__,
            instance=self._instance,
            last_round=world.K,
            samples=None,
            dimension=self.work.dimension,
            shape_sha256="",
            heartbeat_ns=heartbeat_ns(runtime.round_timeout_s),
            first_patience_ns=int(runtime.register_timeout_s * SECOND),
            patience_ns=int(runtime.round_timeout_s * SECOND),
            distrust_ns=int(runtime.register_timeout_s * SECOND),
            farewell_ns=FAREWELL_NS,
        )
        partners = () if world.graph is None else tuple(world.names[j] for j in world.graph.partners(self.index))
        peers = s.Peers(world.names, self.index, self._edges.streams_in, partners, self._edges.covered)
        self.session = world.parts.session(terms, peers, held, self._make_agent)
        self.feed(s.Begin(self.name))

    def listening(self) -> bool:
        """Whether the process serves."""
        return self.alive and self.session is not None

    def accept(self, end: End, kind: str) -> None:
        """An in-neighbour opened its stream."""
        name = self.world.names[end.peer]
        call = self._calls.accept(name, end)
        session = self.session
        inside = session is not None and session.phase is SessionPhase.INSIDE
        if session is not None and inside and name in session.receivers and session.receivers[name].call != call:
            raise Violation("calls", f"{self.name} does not serve the newest call of {name}")

    # --- the interpreter ----------------------------------------------------------------------------------------

    def feed(self, event: Any) -> None:
        """Step the session and carry out what follows."""
        self._events.append(event)
        if self._stepping:
            return
        assert self.session is not None
        self._stepping = True
        try:
            while self._events and self.alive:
                event = self._events.popleft()
                if isinstance(event, c.Heard) and not isinstance(event.message, tuple | m.Heartbeat):
                    self.world.saw(self.index, "hears", (event.call.peer, event.message))
                for effect in self.session.step(event, self.world.clock.now_ns):
                    self._carry_out(effect)
        except AssertionError as error:
            raise Violation("assertion", f"{self.name}: {error}") from error
        finally:
            self._stepping = False
        if self.alive:
            self.world.checkers.bounded(self)
            if (peer := self._calls.crowded()) is not None:
                raise Violation("calls", f"{self.name} serves two calls of {peer}")
            self._arm()

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, c.Write) and isinstance(effect.message, m.Heartbeat):
            self._calls.carry_out(effect)
            return
        self.boundary()
        if not isinstance(effect, s.Witness):
            self.world.saw(self.index, "does", effect)
        checkers = self.world.checkers
        match effect:
            case c.Note():
                pass
            case c.Write() | c.Dial() | c.Hold() | c.ReadOn() | c.End():
                self._watch(effect)
                self._calls.carry_out(effect)
            case s.Witness():
                self._witness(effect)
            case t.Advance():
                checkers.mixes(self.index, effect)
                self._do("work", lambda: self._advanced(effect))
            case t.AdvanceFinal():
                checkers.mixes(self.index, effect)
                self._do("work", lambda: self.work.advance_final(effect))
            case t.DrawRelease(state):
                checkers.draws(self.index, state.k)
                self._do("work", lambda: self._released(effect))
            case t.Persist():
                self._do("store", lambda: self._commit(effect), lambda: self.disk.reported(f"round {effect.record.k}"))
            case t.KeepState():
                self._keep(effect)
            case t.Prune(through):
                checkers.prunes(self.index, through)
                self._do("store", lambda: self.disk.prune(through))
            case t.SaveFinal(x):
                checkers.finals(self.index, x)
                self._do("store", lambda: self._save(effect))
            case t.Evaluate():
                self._do("evaluate", lambda: self._evaluated(effect))
            case s.Upload():
                self.later(self.world.pause_ns(), lambda: self.feed(s.UploadsTaken()))
            case s.ReadRound():
                self._do("store", lambda: self._read_round(effect))
            case s.ReadRun():
                self.feed(self._read_run(effect))
            case s.BeginRun():
                self.feed(self._begin_run(effect))
            case s.CheckRing() if self._shell is not None:
                self.feed(self._shell.check(effect))
            case s.KeepKeys() if self._shell is not None:
                self.feed(self._shell.keep())
            case s.MakeReport(bytes_sent):
                last = self.world.K + 1
                result = m.FinishedReport("finished", 2 * last, bytes_sent, {}, m.MetricsReport(last))
                self.feed(s.ReportMade(result))
            case s.Exit():
                self._exit(effect)
            case _:
                raise AssertionError(f"nobody carries out {effect}")
        if self.alive:
            self.boundary()

    def _watch(self, effect: c.CallEffect) -> None:
        if not isinstance(effect, c.Write):
            return
        if isinstance(effect.message, m.Done):
            self.world.checkers.done(self.index, effect.message.k, effect.message.durable_through)
        elif isinstance(effect.message, tuple):
            peer = self.world.names.index(effect.call.peer)
            for payload in (payload for payload in effect.message if not isinstance(payload, Dummy)):
                self.world.checkers.leaves(self.index, peer, payload)

    def _exit(self, effect: s.Exit) -> None:
        self.world.saw(self.index, "leaves", effect.error)
        if type(effect.error) is PeerError:
            raise Violation("gate", f"{self.name} does not understand an honest coordinator: {effect.error}")
        self.exit(effect.code)

    def _arm(self) -> None:
        assert self.session is not None
        due_ns = self.session.next_deadline_ns()
        if due_ns is None or (self._due_ns is not None and self._due_ns <= due_ns):
            return
        self._due_ns = due_ns
        self.world.clock.at(due_ns, lambda: self.run(lambda: self._tick(due_ns)))

    def _tick(self, due_ns: int) -> None:
        if self._due_ns == due_ns:
            self._due_ns = None
            self.feed(t.Tick())

    # --- vectors ------------------------------------------------------------------------------------------------

    def _window(self, call: c.Call) -> int:
        return UNBOUNDED if call.peer == c.COORDINATOR else self.world.plan.window

    def _witness(self, effect: s.Witness) -> None:
        sender, world = effect.sender, self.world
        world.saw(self.index, "receives", (world.names[sender], effect.payload))
        copied_ns = world.network.copied_ns(sender, self.index)
        if copied_ns is not None and self.session is not None:
            call = self.session.receivers[world.names[sender]].call
            self.later(copied_ns, lambda: self._copy(call, effect.payload))

    def _copy(self, call: c.Call, payload: t.Payload) -> None:
        """A frame that arrives a second time, past the gate."""
        line = self._calls.line(call)
        if line is not None and not line.held:
            self.world.saw(self.index, "receives again", (call.peer, payload))
            self.feed(c.Heard(call, (payload,)))

    # --- the disk and the work ----------------------------------------------------------------------------------

    def _make_agent(self, read: s.RunRead, begun: s.RunBegun) -> AgentMachine:
        world, plan = self.world, self.world.plan
        return world.parts.agent(
            world.params[self.index],
            world.K,
            evaluate_every=plan.run.evaluate.every,
            checkpoint_every=plan.checkpoint_every,
            beside=plan.beside,
            run_ahead=plan.run.runtime.barrier_every,
            stall_ns=2 * heartbeat_ns(plan.run.runtime.round_timeout_s),
            budget_through=begun.budget_through,
            recovered=read.recovered,
            finished=read.final,
        )

    def _read_run(self, effect: s.ReadRun) -> s.RunRead | s.RunRefused:
        try:
            return s.RunRead(self.disk.head(effect.ledger_round), self.disk.recover(), self.disk.final)
        except StoreError as error:
            return s.RunRefused(error)

    def _begin_run(self, effect: s.BeginRun) -> s.RunBegun | s.RunRefused:
        try:
            self.disk.begin_run(effect.run_id)
        except StoreError as error:
            return s.RunRefused(error)
        self._run_id = self._edges.run_id = effect.run_id
        shares = None if self._shell is None or effect.finished else self._shell.begin(self._life)
        budget = None if effect.finished else self.world.plan.budget[self.index]
        return s.RunBegun(budget, recorded=True, agreement=shares)

    def _read_round(self, effect: s.ReadRound) -> s.RoundRead:
        try:
            stored = self.disk.payloads(effect.k)
        except StoreError as error:
            peer = effect.call.peer
            if self.world.names.index(peer) not in self.world.checkers.rolled_back:
                raise Violation("retention", f"{peer} asked {self.name}: {error}") from error
            raise
        return s.RoundRead(effect.call, tuple(p for p in stored if p.stream in effect.streams))

    def _advanced(self, effect: t.Advance) -> t.Advanced:
        event = self.work.advance(effect)
        self.world.checkers.replayed(self.index, event.state, effect.record)
        return event

    def _released(self, effect: t.DrawRelease) -> t.ReleaseReady:
        event = self.work.release(effect)
        self._drawn = event.state
        return event

    def _commit(self, effect: t.Persist) -> t.Persisted:
        self.world.checkers.commits(self.index, effect.record)
        try:
            self.disk.commit_round(effect.record)
        except RuntimeError as error:
            raise Violation("draws", f"{self.name}: {error}") from error
        assert self._drawn is not None
        self.world.checkers.committed(self.index, effect.record, self._drawn)
        return t.Persisted(effect.record.k, self.disk.head(effect.record.k))

    def _keep(self, effect: t.KeepState) -> None:
        """The file in its thread, then the row in the store's."""
        if self._writing:
            raise Violation("states", f"{self.name} writes two states at a time")
        self._writing = True
        state, checkers = effect.state, self.world.checkers
        before = checkers.keeps(self.index, state)

        def file() -> None:
            checkers.writes(self.index, state, before)
            self.disk.write_state(state)

        def row() -> t.StateKept:
            self.disk.keep_state(state.k)
            return t.StateKept(state.k)

        def done(event: Any) -> None:
            self._writing = False
            self.feed(event)

        def told() -> None:
            self.disk.reported(f"the state of round {state.k}")

        if self.world.parts.state_first:
            self._do("state", file, then=lambda _: self._do("store", row, told, done))
        else:
            self._do("store", row, told, lambda kept: self._do("state", file, then=lambda _: done(kept)))

    def _save(self, effect: t.SaveFinal) -> t.FinalSaved:
        self.disk.finish_run(effect.x)
        return t.FinalSaved()

    def _evaluated(self, effect: t.Evaluate) -> s.Evaluated:
        report = m.MetricsReport(effect.k) if effect.k <= self.world.K else None
        return s.Evaluated(effect.k, report, effect.x)

    def _do(
        self,
        thread: str,
        job: Callable[[], Any],
        told: Callable[[], None] = lambda: None,
        then: Callable[[Any], None] | None = None,
    ) -> None:
        """``told`` may refuse what ``job`` did; ``kill -9`` may strike between the two.  ``then`` takes what came of it
        in the place of the session.
        """

        def work() -> Any:
            try:
                event = job()
                self.boundary()
                told()
                return event
            except DpgtError as error:
                return s.Broke(error)

        def hand_over(event: Any) -> None:
            if then is not None and not isinstance(event, s.Broke):
                then(event)
            elif event is not None:
                self.feed(event)

        if not self.world.plan.threads:
            hand_over(work())
            return
        begin = max(self._busy_until_ns[thread], self.world.clock.now_ns) + self.world.pause_ns()
        end = self._busy_until_ns[thread] = begin + self.world.pause_ns()

        def run() -> None:
            event = work()
            self.world.clock.at(end, lambda: self.run(lambda: hand_over(event)))

        self.world.clock.at(begin, lambda: self.run(run))
