"""The coordinator daemon around its machine, in the order of actions of ``runtime.coordinator``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpgt_node import __version__
from dpgt_node.errors import ExitCode
from dpgt_node.protocol import coordinator as co
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.liveness import EdgeReport
from dpgt_node.protocol.types import AllDurable, Go, Tick
from tests.swarm.checkers import Violation
from tests.swarm.clock import SECOND
from tests.swarm.network import End
from tests.swarm.process import COORDINATOR, Awake, Process, heartbeat_ns

if TYPE_CHECKING:
    from tests.swarm.world import World

LATE_NS = 3 * SECOND
SETTLE_BEATS = 3
BEATS_OF_LIFE = 3


@dataclass(slots=True)
class OutFolder:
    """What outlives the process: the run id, heads of ledgers, a pause, and how the run ended."""

    run_id: bytes
    heads: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    paused: bool = False
    concluded: co.Conclude | None = None


@dataclass(slots=True)
class _Member:
    register: m.Register
    end: End | None
    ready: bool = False
    seen_ns: int = 0


class CoordinatorProcess(Process):
    """One life of the coordinator."""

    def __init__(self, world: World, out: OutFolder) -> None:
        super().__init__(world, COORDINATOR, "coordinator")
        self._out = out
        self._names = world.names
        self._members: dict[str, _Member] = {}
        self._begun = False
        self._conclude: co.Conclude | None = out.concluded
        self._told: set[str] = set()
        self._armed_in: co.CoordinatorPhase | None = None
        self._timer = 0
        self._armed = False
        runtime = world.plan.run.runtime
        self._beat_ns = heartbeat_ns(runtime.round_timeout_s)
        self._clock = Awake(world.clock, 2 * self._beat_ns)
        self.machine = world.parts.coordinator(
            self._names,
            world.K,
            barrier_every=runtime.barrier_every,
            register_timeout_ns=int(runtime.register_timeout_s * SECOND),
            liveness_ns=int(runtime.round_timeout_s * SECOND),
            on_agent_loss=runtime.on_agent_loss,
            now_ns=self._clock.now_ns(),
            settle_ns=SETTLE_BEATS * self._beat_ns,
            paused=out.paused,
        )
        self.later(self._beat_ns, self._beat)
        if self._conclude is not None:
            self.machine.phase = co.CoordinatorPhase.ENDED
            self.later(LATE_NS, lambda: self.exit(ExitCode.DONE))
        self._arm()

    # --- the machine's interpreter ------------------------------------------------------------------------------

    def feed(self, event: co.CoordinatorEvent) -> None:
        """Step the machine and carry out what follows."""
        try:
            effects = self.machine.step(event, self._clock.now_ns())
        except AssertionError as error:
            raise Violation("assertion", f"coordinator: {error}") from error
        for effect in effects:
            self.boundary()
            self.world.saw(self.index, "does", effect)
            match effect:
                case co.Broadcast(Go(through)):
                    self._broadcast(m.GoMessage(through))
                case co.Broadcast(AllDurable(through)):
                    self.world.checkers.announces(through)
                    self._broadcast(m.AllDurableMessage(through))
                case co.BroadcastStart(go_through):
                    if not self._begun:
                        self._begun = True
                        self.machine.announce_every = self.world.plan.announce_every
                    self._broadcast(m.Start({name: name for name in self._names}, go_through))
                case co.BroadcastStop(reason, code):
                    self._broadcast(m.StopMessage(reason, int(code)))
                case co.Dismiss():
                    self.world.checkers.dismisses(self._out.concluded is not None)
                    self._broadcast(m.Goodbye())
                case co.Warn():
                    pass
                case co.Conclude():
                    self._conclude = self._out.concluded = effect
                    self._out.paused = False
                    self._told = {name for name, member in self._members.items() if member.end is not None}
                    self.world.concluded(effect)
                    self.later(LATE_NS, lambda: self.exit(ExitCode.DONE))
            self.boundary()
        self._arm()

    def control(self, event: co.CoordinatorEvent) -> None:
        """What the operator asks for."""
        if isinstance(event, co.PauseRequested):
            if self.machine.phase is not co.CoordinatorPhase.RUNNING:
                return
            self._out.paused = True
        if isinstance(event, co.ResumeRequested):
            if not self.machine.paused:
                return
            self._out.paused = False
        self.boundary()
        self.feed(event)

    def _broadcast(self, message: m.CoordinatorMessage) -> None:
        for member in self._members.values():
            if member.end is not None:
                member.end.write(message)
                self.boundary()

    def _beat(self) -> None:
        if self._conclude is None:
            for member in self._members.values():
                if member.end is not None and member.end.unread == 0:
                    member.end.write(m.Heartbeat())
            self.feed(Tick())
            self.later(self._beat_ns, self._beat)

    def _arm(self) -> None:
        if self._armed and self.machine.phase is self._armed_in:
            return
        self._armed_in, self._armed = self.machine.phase, False
        self._timer += 1
        deadline = self.machine.next_deadline_ns()
        if deadline is not None:
            self._armed, number = True, self._timer
            delay_ns = max(0, deadline - self._clock.now_ns())
            self.world.clock.after(delay_ns, lambda: self.run(lambda: self._tick(number)))

    def _tick(self, number: int) -> None:
        if number == self._timer:
            self._armed = False
            self.feed(Tick())

    # --- Join ---------------------------------------------------------------------------------------------------

    def accept(self, end: End, kind: str) -> None:
        """An agent opened Join."""
        name = self.world.names[end.peer]
        end.on_message = lambda message: self._first(name, end, message)

    def _first(self, name: str, end: End, register: m.AgentMessage) -> None:
        end.consumed()
        end.on_message = lambda _: None  # whoever is turned away is not listened to any more
        if isinstance(register, m.Refusal):
            self.feed(co.AgentRefused(name, register.reason))
            return
        assert isinstance(register, m.Register)
        self.world.saw(self.index, "hears", (name, "Register", register.last_done_round, register.last_released_round))
        member = self._members.get(name)
        first = None if member is None else member.end
        if member is None or first is None or member.register.instance == register.instance:
            self._admit(name, register, end)
            return
        released = register.last_released_round if register.run_id == self._out.run_id else -1
        if released < self.machine.done(name):
            self._refuse(name, end)
        else:
            seen_ns = member.seen_ns
            self.later(BEATS_OF_LIFE * self._beat_ns, lambda: self._lives(name, member, first, seen_ns, register, end))

    def _refuse(self, name: str, end: End) -> None:
        end.write(m.Refused("identity", f"another process runs as {name} right now"))
        end.close()

    def _lives(self, name: str, member: _Member, first: End, seen_ns: int, register: m.Register, end: End) -> None:
        """A second process came a while ago: is the first one, whose stream is only open perhaps, alive?"""
        if end.ended:
            return
        if member.end is not None and (member.end is not first or member.seen_ns != seen_ns):
            self._refuse(name, end)
        else:
            self._admit(name, register, end)

    def _admit(self, name: str, register: m.Register, end: End) -> None:
        if self._conclude is not None:
            end.write(self._last_word(self._conclude, register))
            self._told.add(name)
            return
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = _Member(register, end)
        if member.end is not None and member.end is not end:
            half_dead, member.end = member.end, None
            half_dead.close()
        member.register, member.end, member.ready = register, end, False
        member.seen_ns = self._clock.now_ns()
        end.on_message = lambda message: self._read(name, member, end, message)
        end.on_end = lambda: self._left(name, member, end)
        k, head = self._out.heads.get(name, (-1, b""))
        through = self.machine.go_through
        end.write(
            m.Welcome(self._out.run_id, "", "", through, package_version=__version__, ledger_round=k, ledger_head=head)
        )

    def _last_word(self, conclude: co.Conclude, register: m.Register) -> m.CoordinatorMessage:
        saved = register.run_id == self._out.run_id and register.last_durable_round == self.world.K
        if conclude.exit_code is ExitCode.DONE and saved:
            return m.Goodbye()
        return m.StopMessage(conclude.reason, int(conclude.exit_code))

    def _left(self, name: str, member: _Member, end: End) -> None:
        if member.end is end:
            member.end = None
            self.feed(co.AgentGone(name))

    def _read(self, name: str, member: _Member, end: End, message: Any) -> None:
        end.consumed()
        if member.end is not end:
            return
        member.seen_ns = self._clock.now_ns()
        if not isinstance(message, m.Heartbeat):
            self.world.saw(self.index, "hears", (name, message))
        if not isinstance(message, m.Ready | m.Done | EdgeReport):
            self.feed(co.AgentHeard(name))
        match message:
            case m.Done(k, durable_through, _, head):
                if k > self.machine.done_limit(name) or durable_through > k:
                    raise Violation("gate", f"coordinator refuses an honest report of {name}: round {k} beyond barrier")
                if head and k > self._out.heads.get(name, (-1, b""))[0] and self._conclude is None:
                    self._out.heads[name] = (k, head)
                self.boundary()
                self.feed(co.AgentDone(name, k, durable_through))
            case EdgeReport():
                self.feed(co.AgentEdges(name, message))
            case m.Ready():
                self._joined(name, member)
            case m.FinishedReport():
                if not self._begun and self.machine.done(name) == self.world.K:
                    return
                if not self._begun or self.machine.done(name) < self.world.K:
                    raise Violation("gate", f"coordinator refuses an honest result of {name}")
                self.feed(co.AgentFinished(name))
            case m.Failed(exit_code, reason):
                self.feed(co.AgentFailed(name, reason, ExitCode(exit_code)))
            case m.Refusal(_, reason):
                self.feed(co.AgentRefused(name, reason))

    def _joined(self, name: str, member: _Member) -> None:
        if member.ready:
            return
        member.ready = True
        register = member.register
        ours = register.run_id == self._out.run_id
        self.feed(
            co.AgentJoined(
                name,
                register.last_done_round if ours else -1,
                register.last_durable_round if ours else -1,
                finished=False,
                released=register.last_released_round if ours else -1,
            )
        )
