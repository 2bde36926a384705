"""What must hold of seats, remembered heads and leave-taking, judged from what the coordinator hears and says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import Call, Ended, Heard
from dpgt_node.protocol.clock import heartbeat_ns
from dpgt_node.protocol.coordinator.coordination import FAREWELL_NS, LATE_NS
from dpgt_node.protocol.coordinator.membership import BEATS_OF_LIFE
from tests.swarm.checkers import Violation
from tests.swarm.clock import SECOND
from tests.swarm.process import COORDINATOR, Process
from tests.swarm.twins import Twin

if TYPE_CHECKING:
    from tests.swarm.world import World

ON_ITS_WAY_NS = 3 * SECOND
"""What a process said before it died, or was frozen, may still arrive so much later."""


@dataclass(slots=True)
class _Seat:
    """``word``: the process was told how the run ended."""

    call: Call
    host: Process
    word: bool = False


class Seats:
    """Watches one life of the coordinator.

    twins      a process that lives and is heard keeps its seat; one that holds less than the coordinator was told of
               never gets it; a twin ends no run; who comes after a dead process is not refused for ever
    heads      a reported head is kept before anybody hears what follows from the report, and told to who comes back
    farewell   nobody is welcomed to a run that is over, or left without a word; who stays or is away has some time
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._beat_ns = heartbeat_ns(world.plan.run.runtime.round_timeout_s)
        self._seats: dict[str, _Seat] = {}
        self._unseated: dict[str, Process] = {}
        self._reported: dict[str, int] = {}
        self._told: set[str] = set()
        self._over_ns = world.clock.now_ns

    # --- what the coordinator hears -----------------------------------------------------------------------------

    def steps(self, event: object) -> None:
        """It is about to handle ``event``."""
        self._unseated.clear()
        match event:
            case Heard(call, m.Done(k, _, _, head)) if head and self._seated(call):
                if self._world.out.concluded is None:
                    self._reported[call.peer] = max(k, self._reported.get(call.peer, -1))
            case Heard(call, m.Refusal()):
                self._told.add(call.peer)
            case Ended(call) if self._seated(call):
                del self._seats[call.peer]

    def _seated(self, call: Call) -> bool:
        return call.peer in self._seats and self._seats[call.peer].call == call

    # --- what it does -------------------------------------------------------------------------------------------

    def concludes(self) -> None:
        """The end of the run is durable."""
        self._over_ns = self._world.clock.now_ns

    def tells(self, call: Call, host: Process, message: object) -> None:
        """It is about to write ``message`` into a call of process ``host``."""
        name = call.peer
        match message:
            case m.Welcome():
                self._welcomes(call, host, message)
            case m.Refused("identity", _):
                self._refuses(name, host)
            case m.Refused(kind, _) if isinstance(host, Twin):
                first = self._seats.get(name)
                if first is not None and (self._is_heard(first.host) or self._holds_less(host, name)):
                    raise Violation("twins", f"a twin of {name} ends the run ({kind})")
                self._world.excused = True
            case m.GoMessage() | m.AllDurableMessage():
                for agent, k in self._reported.items():
                    if k > self._world.out.heads.get(agent, (-1, b""))[0]:
                        raise Violation("heads", f"the run moves on while the head of {agent} after {k} is not kept")
            case m.Goodbye() | m.StopMessage():
                self._told.add(name)
                if self._seated(call):
                    self._seats[name].word = True

    def hangs_up(self, call: Call) -> None:
        """It is about to end a call."""
        if self._seated(call):
            self._unseated[call.peer] = self._seats.pop(call.peer).host

    def _welcomes(self, call: Call, host: Process, welcome: m.Welcome) -> None:
        name, world = call.peer, self._world
        if world.out.concluded is not None:
            raise Violation("farewell", f"{name} is welcomed to a run that is over")
        if (welcome.ledger_round, welcome.ledger_head) != world.out.heads.get(name, (-1, b"")):
            raise Violation("heads", f"{name} is not told which head of its ledger is known")
        first = self._unseated.pop(name, None)
        if first is not None and first is not host:
            if self._is_heard(first):
                raise Violation("twins", f"{name}, which lives, is replaced by another process")
            if isinstance(host, Twin) and self._holds_less(host, name):
                raise Violation("twins", f"a process that holds less than {name} told of takes its seat")
        self._seats[name] = _Seat(call, host)

    def _is_heard(self, process: Process) -> bool:
        """Whether the process lives, and nothing has kept its heartbeats from the coordinator for long enough."""
        quiet_ns = self._world.clock.now_ns - self._world.disturbed_ns[process.index]
        return process.alive and quiet_ns > (BEATS_OF_LIFE + 1) * self._beat_ns + ON_ITS_WAY_NS

    def _holds_less(self, twin: Twin, name: str) -> bool:
        return twin.released < self._world.coordinator().machine.barrier.done(name)

    def _refuses(self, name: str, host: Process) -> None:
        if isinstance(host, Twin) or host.index in self._world.checkers.rolled_back or name not in self._seats:
            return
        first = self._seats[name].host
        died_ns = max(first.ended_ns, self._world.disturbed_ns[first.index])
        if not first.alive and self._world.clock.now_ns - died_ns > ON_ITS_WAY_NS:
            raise Violation("twins", f"a successor of {name} is refused, whose first process is dead")

    def exits(self) -> None:
        """It leaves."""
        conclude, passed_ns = self._world.out.concluded, self._world.clock.now_ns - self._over_ns
        assert conclude is not None
        for name, seat in self._seats.items():
            if not seat.word:
                raise Violation("farewell", f"{name} is left without a word")
            if passed_ns < FAREWELL_NS:
                raise Violation("farewell", f"{name} had {passed_ns / SECOND:g} s to read the last word")
        late = [name for name in self._world.names if name not in self._told]
        if late and conclude.status in ("finished", "refused") and passed_ns < LATE_NS:
            raise Violation("farewell", f"{late[0]}, which was away, had {passed_ns / SECOND:g} s to come and hear")


def disturbed(kind: str, process: int, peer: int) -> int | None:
    """Whose heartbeats a fault keeps from the coordinator."""
    if kind == "freeze":
        return process
    if kind in ("cut", "split", "slow", "break", "stuck") and COORDINATOR in (process, peer):
        return peer if process == COORDINATOR else process
    return None
