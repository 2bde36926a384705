"""The agent daemon around its machine, in the order of actions of ``runtime.node`` and ``runtime.driver``.

What differs: a job in a thread is a pause between its start and its event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpgt_node import __version__
from dpgt_node.agent.work import AgentWork
from dpgt_node.errors import BudgetReached, DpgtError, ExitCode, PeerError, RefusedError, StoreError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.liveness import EdgeReport
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
    Persist,
    Persisted,
    Prune,
    ReportDone,
    ReportStall,
    Resend,
    SaveFinal,
    Send,
    Started,
    State,
    StopRequested,
    Tick,
)
from tests.swarm.checkers import Violation
from tests.swarm.clock import SECOND
from tests.swarm.disk import Disk
from tests.swarm.edges import Incoming, Outgoing, Stored
from tests.swarm.network import End
from tests.swarm.process import Process, heartbeat_ns
from tests.swarm.uplink import Uplink

if TYPE_CHECKING:
    from tests.swarm.world import World

FAREWELL_NS = 2 * SECOND


class AgentProcess(Process):
    """One life of agent ``index``."""

    def __init__(self, world: World, index: int, disk: Disk, work: AgentWork, life: int) -> None:
        super().__init__(world, index, world.names[index])
        self.disk = disk
        self.machine: AgentMachine | None = None
        self.work = work
        self._instance = bytes([index, life & 255]) * 8
        self._run_id = disk.run_id
        self._queue: deque[AgentEvent] = deque()
        self._stepping = False
        self._outcome: Finish | DpgtError | None = None
        self._drawn: State | None = None
        self._busy_until_ns = {"work": 0, "store": 0}
        self._tick_ns: int | None = None
        self._uplink = Uplink(self)
        self._incoming = Incoming(self)
        self._beat_ns = heartbeat_ns(world.plan.run.runtime.round_timeout_s)
        self._stall: ReportStall | None = None
        self._told_edges = False
        self._outgoing: Outgoing
        self._evaluated_last = False
        self._report: m.FinishedReport | None = None
        self._leaving: ExitCode | None = None
        self._stop_code = ExitCode.STOPPED

    def start(self) -> None:
        """What ``Node.serve`` does first."""
        self._uplink.begin()
        self.later(self._beat_ns, self._watch_edges)

    def _watch_edges(self) -> None:
        """``runtime.edges``: what is wrong with this agent's edges is told to the coordinator."""
        if self.machine is not None:
            lacks, waited_ns = self._incoming.lacks(self._stall)
            down = self._outgoing.down(self._beat_ns)
            if lacks or down or self._told_edges:
                self._uplink.say(EdgeReport(self.machine.k, waited_ns, lacks, down))
            self._told_edges = bool(lacks or down)
        self.later(self._beat_ns, self._watch_edges)

    # --- the coordinator's messages ---------------------------------------------------------------------------

    def register(self) -> m.Register:
        """What the agent holds now."""
        released, done, durable = self._progress()
        return m.Register(
            name=self.name,
            run_sha256="",
            run_json=self.world.run_json,
            advertise=self.name,
            samples=None,
            dimension=self.work.dimension,
            shape_sha256="",
            last_released_round=released,
            last_done_round=done,
            last_durable_round=durable,
            finished=self.machine is not None and self.machine.done_through == self.world.K,
            run_id=self._run_id or b"",
            instance=self._instance,
            package_version=__version__,
        )

    def _progress(self) -> tuple[int, int, int]:
        if self.machine is not None:
            return self.machine.released_through, self.machine.done_through, self.machine.durable_through
        if self._run_id is None:
            return -1, -1, -1
        if self.disk.final is not None:
            return self.world.K, self.world.K, self.world.K
        try:
            recovered = self.disk.recover()
        except StoreError as error:
            self.fail(error)
            return -1, -1, -1
        if recovered is None:
            return -1, -1, -1
        k = recovered.checkpoint.k
        return k + len(recovered.records) - 1, k - 1, k - 1

    def hears(self, message: m.CoordinatorMessage) -> None:
        """The coordinator spoke."""
        self.world.saw(self.index, "hears", message)
        if self._leaving is not None:
            if isinstance(message, m.StopMessage):
                self.exit(self._leaving)
            return
        try:
            self._handle(message)
        except DpgtError as error:
            self.fail(error)

    def _handle(self, message: m.CoordinatorMessage) -> None:
        match message:
            case m.GoMessage(through):
                self._need_driver()
                self.feed(Go(through))
            case m.AllDurableMessage(through):
                self._need_driver()
                self.feed(AllDurable(through))
            case m.Welcome():
                self._welcome(message)
            case m.Refused(_, reason):
                raise RefusedError(reason)
            case m.Start(_, go_through):
                self._need_driver()
                self._start(go_through)
            case m.StopMessage(reason, exit_code):
                self._stop_code = ExitCode(exit_code)
                if self.machine is None:
                    raise RefusedError(f"the run does not begin: {reason}")
                self.feed(StopRequested(reason))
            case m.Goodbye():
                if self.disk.final is None:
                    raise Violation("goodbye", f"{self.name} was dismissed before its result was saved")
                if self.machine is not None:
                    self.feed(Dismissed())
                else:
                    self.later(0, lambda: self.exit(ExitCode.DONE))
            case _:
                raise PeerError("the coordinator sent an unexpected message")

    def _need_driver(self) -> None:
        if self.machine is None:
            raise PeerError("the coordinator spoke of rounds before Welcome")

    def _welcome(self, welcome: m.Welcome) -> None:
        if self.machine is None:
            self._open_session(welcome)
        self._uplink.say(m.Ready(), first=True)

    def _open_session(self, welcome: m.Welcome) -> None:
        world, plan = self.world, self.world.plan
        run_id = self._run_id = welcome.run_id
        try:
            if welcome.ledger_head and self.disk.head(welcome.ledger_round) != welcome.ledger_head:
                raise StoreError(f"{self.name}: an old state directory or another one")
            recovered = self.disk.recover()
            final = self.disk.final
            self.boundary()
            self.disk.begin_run(run_id)
        except StoreError as error:
            self._leave(error, m.Refusal("data", str(error)))
            raise
        self.machine = world.parts.agent(
            world.params[self.index],
            world.K,
            evaluate_every=plan.run.evaluate.every,
            checkpoint_every=plan.checkpoint_every,
            run_ahead=plan.run.runtime.barrier_every,
            stall_ns=2 * self._beat_ns,
            budget_through=plan.budget[self.index] if final is None else None,
            recovered=recovered,
            finished=final,
        )
        self._outgoing = Outgoing(self, self.machine.peers)
        self._incoming.begin()

    def _start(self, go_through: int) -> None:
        self._outgoing.begin()
        self.feed(Started(go_through))
        if self._report is not None:
            self._uplink.say(self._report)

    def accept(self, end: End, kind: str) -> None:
        """An in-neighbour opened its stream."""
        self._incoming.accept(end)

    # --- driver -------------------------------------------------------------------------------------------------

    def feed(self, event: AgentEvent) -> None:
        """Step the machine and carry out what follows."""
        self._queue.append(event)
        if self._stepping or self._outcome is not None:
            return
        assert self.machine is not None
        self._stepping = True
        low = self.machine.window()[0]
        try:
            while self._queue:
                for effect in self.machine.step(self._queue.popleft(), self.world.clock.now_ns):
                    self.boundary()
                    self._interpret(effect)
                    self.boundary()
        except DpgtError as error:
            self._end(error)
        except AssertionError as error:
            raise Violation("assertion", f"{self.name}: {error}") from error
        finally:
            self._stepping = False
        self.world.checkers.bounded(self)
        if self.machine.window()[0] != low:
            self._incoming.moved()
        self._arm()

    def _interpret(self, effect: AgentEffect) -> None:
        self.world.saw(self.index, "does", effect)
        checkers = self.world.checkers
        match effect:
            case Send(peer, payloads):
                self._outgoing.queue(peer, payloads)
            case Resend(peer, k, streams):
                self._outgoing.queue(peer, Stored(k, streams))
            case ReportDone(k, durable_through):
                checkers.done(self.index, k)
                head = self.disk.head(k) if k == self.disk.released else b""
                self._uplink.say(m.Done(k, durable_through, 0, head))
                if k == self.world.K:
                    self._finish_reporting()
            case Advance():
                checkers.mixes(self.index, effect)
                self._do("work", lambda: self._advanced(effect))
            case AdvanceFinal():
                checkers.mixes(self.index, effect)
                self._do("work", lambda: self.work.advance_final(effect))
            case DrawRelease(state):
                checkers.draws(self.index, state.k)
                self._do("work", lambda: self._released(effect))
            case Persist():
                self._do("store", lambda: self._commit(effect), lambda: self.disk.reported(f"round {effect.record.k}"))
            case Prune(through):
                checkers.prunes(self.index, through)
                self._do("store", lambda: self.disk.prune(through))
            case SaveFinal(x):
                checkers.finals(self.index, x)
                self._do("store", lambda: self._save(effect))
            case Evaluate(k):
                if k == self.world.K + 1:
                    self._evaluated_last = True
                    self._finish_reporting()
            case Finish():
                self._end(effect)
            case ReportStall():
                self._stall = effect

    def _advanced(self, effect: Advance) -> AgentEvent:
        event = self.work.advance(effect)
        self.world.checkers.replayed(self.index, event.state, effect.record)
        return event

    def _released(self, effect: DrawRelease) -> AgentEvent:
        event = self.work.release(effect)
        self._drawn = event.state
        return event

    def _commit(self, effect: Persist) -> AgentEvent:
        self.world.checkers.commits(self.index, effect.record)
        try:
            self.disk.commit_round(effect.record)
        except RuntimeError as error:
            raise Violation("draws", f"{self.name}: {error}") from error
        assert self._drawn is not None
        self.world.checkers.committed(self.index, effect.record, self._drawn)
        return Persisted(effect.record.k)

    def _save(self, effect: SaveFinal) -> AgentEvent:
        self.disk.finish_run(effect.x)
        return FinalSaved()

    def _do(self, thread: str, job: Callable[[], AgentEvent | None], told: Callable[[], None] = lambda: None) -> None:
        """``told`` may refuse what ``job`` did; ``kill -9`` may strike between the two."""
        if not self.world.plan.threads:
            event = job()
            self.boundary()
            told()
            if event is not None:
                self._queue.append(event)
            return
        begin = max(self._busy_until_ns[thread], self.world.clock.now_ns) + self.world.pause_ns()
        end = self._busy_until_ns[thread] = begin + self.world.pause_ns()

        def work() -> None:
            try:
                event = job()
                self.boundary()
                told()
            except DpgtError as error:
                self._end(error)
                return
            if event is not None:
                self.world.clock.at(end, lambda: self.run(lambda: self.feed(event)))

        self.world.clock.at(begin, lambda: self.run(work))

    def _arm(self) -> None:
        assert self.machine is not None
        deadline = self.machine.next_deadline_ns()
        if deadline is None or (self._tick_ns is not None and self._tick_ns >= self.world.clock.now_ns):
            return
        self._tick_ns = deadline
        self.world.clock.at(deadline, lambda: self.run(self._tick))

    def _tick(self) -> None:
        self._tick_ns = None
        self.feed(Tick())

    # --- reporting and the end ----------------------------------------------------------------------------------

    def _finish_reporting(self) -> None:
        if self._report is None and self._evaluated_last and self.disk.final is not None:
            self.later(self.world.pause_ns(), self._send_report)

    def _send_report(self) -> None:
        if self._report is None:
            self._report = m.FinishedReport(
                "finished", 2 * (self.world.K + 1), 0, {}, m.MetricsReport(self.world.K + 1)
            )
            self._uplink.say(self._report)

    def _end(self, outcome: Finish | DpgtError) -> None:
        if self._outcome is not None:
            return
        self._outcome = outcome
        self.later(0, self._conclude)

    def _conclude(self) -> None:
        outcome = self._outcome
        if isinstance(outcome, Finish):
            if outcome.status == "finished":
                self.exit(ExitCode.DONE)
                return
            if outcome.status == "stopped":
                self.exit(self._stop_code)
                return
            outcome = BudgetReached(outcome.reason)
        assert outcome is not None
        self._leave(outcome, m.Failed(int(outcome.exit_code), str(outcome)))

    def abandoned(self, error: PeerError) -> None:
        """The coordinator stays away; nobody asks for more than a saved result."""
        if self.disk.final is not None:
            self.later(0, lambda: self.exit(ExitCode.DONE))
        else:
            self.fail(error)

    def fail(self, error: DpgtError) -> None:
        """Something outside the machine ends this process."""
        if self._leaving is None:
            self._leave(error, None)

    def _leave(self, error: DpgtError, last_word: m.AgentMessage | None) -> None:
        self.world.saw(self.index, "leaves", error)
        if self._leaving is not None:
            return
        self._leaving = error.exit_code
        if last_word is None:
            self.later(0, lambda: self.exit(error.exit_code))
            return
        self._uplink.say(last_word)
        self.later(FAREWELL_NS, lambda: self.exit(error.exit_code))
