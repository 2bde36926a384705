"""The coordinator daemon: the product's machine, and what carries its effects out in this world."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpgt_node.errors import ExitCode
from dpgt_node.protocol import calls as c
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator import coordination_types as ct
from dpgt_node.protocol.coordinator.comparison import NOTHING_YET, Compared
from dpgt_node.protocol.types import Tick
from dpgt_node.runtime.calls import Framing
from tests.swarm.calls import Calls
from tests.swarm.checkers import Violation
from tests.swarm.network import End
from tests.swarm.process import COORDINATOR, Process
from tests.swarm.seats import Seats

if TYPE_CHECKING:
    from tests.swarm.world import World


WINDOW = 64
"""Messages in the network before flow control holds the coordinator."""


@dataclass(slots=True)
class OutFolder:
    """What outlives the process: the run id, heads of ledgers, every D, a pause, and how the run ended."""

    run_id: bytes
    heads: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    samples: dict[str, int | None] = field(default_factory=dict)
    paused: bool = False
    concluded: co.Conclude | None = None
    compared: Compared = NOTHING_YET


class CoordinatorProcess(Process):
    """One life of the coordinator."""

    def __init__(self, world: World, out: OutFolder) -> None:
        super().__init__(world, COORDINATOR, "coordinator")
        self._out = out
        self._calls = Calls(world, self, self.feed, lambda _: Framing(), lambda _: WINDOW)
        self._seats = Seats(world)
        self._events: deque[ct.CoordinationEvent] = deque()
        self._stepping = False
        self._due_ns: int | None = None
        self.machine = world.parts.coordination(
            world.plan.run,
            out.run_id,
            out.heads,
            samples=out.samples,
            paused=out.paused,
            compared=out.compared,
            announce=lambda _: world.plan.announce_every,
            now_ns=world.clock.now_ns,
            barrier=world.parts.barrier,
            membership=world.parts.membership,
        )

    def start(self) -> None:
        """The first step."""
        self.feed(Tick() if self._out.concluded is None else ct.Closed(self._out.concluded))

    def feed(self, event: ct.CoordinationEvent) -> None:
        """Step the machine and carry out what follows."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        while self._events and self.alive:
            event = self._events.popleft()
            self._seats.steps(event)
            try:
                effects = self.machine.step(event, self.world.clock.now_ns)
            except AssertionError as error:
                raise Violation("assertion", f"coordinator: {error}") from error
            for effect in effects:
                self._carry_out(effect)
        self._stepping = False
        self._arm()

    def control(self, request: m.ControlRequest) -> None:
        """What the operator asks for."""
        self.feed(ct.Asked(request))

    def _carry_out(self, effect: ct.CoordinationEffect) -> None:
        if isinstance(effect, c.Note):
            return
        if not (isinstance(effect, c.Write) and isinstance(effect.message, m.Heartbeat)):
            self.boundary()
            self.world.saw(self.index, "does", effect)
        match effect:
            case c.Write(call, message):
                self.world.checkers.tells(call.peer, message)
                self._seats.tells(call, self._calls.host(call), message)
                self._calls.carry_out(effect)
            case c.Hold() | c.ReadOn():
                self._calls.carry_out(effect)
            case c.End(call, error):
                if error is not None and error.grpc_status != "DEADLINE_EXCEEDED":
                    raise Violation("gate", f"coordinator refuses what an honest agent says: {error}")
                self._seats.hangs_up(call)
                self._calls.carry_out(effect)
            case ct.NoteHead(name, k, head):
                self._out.heads[name] = (k, head)
            case ct.BeginResults(registers):
                self._out.samples = {register.name: register.samples for register in registers}
            case ct.KeepCompared(found):
                if found.forgeries:
                    raise Violation("alarm", f"honest agents are said to disagree: {found.forgeries[0].first.line()}")
                self.world.out.compared = found
            case ct.KeepPause(paused):
                self._out.paused = paused
            case ct.KeepResult(_, name, _):
                self.feed(ct.ResultKept(name))
            case co.Conclude():
                self._out.concluded = effect
                self._seats.concludes()
                self.world.concluded(effect)
                self.feed(ct.Closed(effect))
            case ct.Exit():
                self._seats.exits()
                self.exit(ExitCode.DONE)

    # --- calls and time -------------------------------------------------------------------------------------------

    def accept(self, end: End, kind: str) -> None:
        """An agent opened Join."""
        self._calls.accept(self.world.names[end.peer], end)

    def _arm(self) -> None:
        due_ns = self.machine.next_deadline_ns()
        if due_ns is None or (self._due_ns is not None and self._due_ns <= due_ns):
            return
        self._due_ns = due_ns
        self.world.clock.at(due_ns, lambda: self.run(lambda: self._tick(due_ns)))

    def _tick(self, due_ns: int) -> None:
        if self._due_ns == due_ns:
            self._due_ns = None
            self.feed(Tick())
