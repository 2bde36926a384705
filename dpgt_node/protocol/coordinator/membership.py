"""Who takes part in a run, over which call: every Join call at the coordinator from its first word to its end.

Theory of operation.  A call:

    phase     meaning                                          leaves by
    ---------------------------------------------------------------------------------------------------------------
    silent    it was accepted and said nothing yet             Register or Refusal; ``FIRST_WORD_NS``
    doubted   it registered while another process has the      the first speaks: refused.  The first leaves, or says
              agent's seat; nothing more is read of it         nothing for ``BEATS_OF_LIFE`` heartbeats: admitted
    seated    Welcome was written; Ready makes it take part    its end; nonsense; a successor; too many unread messages

One process holds an agent's seat.  Another process of the same name (``Register.instance`` tells) may be its successor
after a power failure that nobody noticed, so it is not turned away at once: heartbeats tell whether the first lives.
One that holds fewer rounds than the first reported is no successor and does not get the chance.

The door:

    OPEN        whoever is admitted gets a seat
    SHUT        the run's end is being written: whoever would be admitted is held until that is known
    last word   whoever would be admitted hears how the run ended, and its call ends
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import auto

from dpgt_node import __version__
from dpgt_node.config import RunConfig, canonical_json, run_sha256
from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import Accepted, Call, End, Ended, Heard, Hold, Note, ReadOn, Taken, Write
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.coordinator import admission
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator.coordination_types import CoordinationEffect
from dpgt_node.protocol.phases import Phases
from dpgt_node.values import dataclass

FIRST_WORD_NS = 10 * SECOND
"""A caller that has not registered by then is hung up on."""
QUEUE_MAX = 1000
"""Messages that may wait for one agent; the barrier needs a handful."""
BEATS_OF_LIFE = 3
"""Heartbeats in which a living process speaks for certain."""

Out = list[CoordinationEffect]


class Door(Phases):
    """What becomes of an admitted agent; see above.  The third, the last word, is the Conclude that it says."""

    OPEN = auto()
    SHUT = auto()


@dataclass(frozen=True, slots=True)
class _Silent:
    address: str
    until_ns: int


@dataclass(frozen=True, slots=True)
class _Doubted:
    address: str
    register: m.Register
    until_ns: int


@dataclass(slots=True)
class Seat:
    """``ready``: its process said Ready.  ``waiting``: messages that the transport has not taken.  ``stopped``: Stop is
    among those that it was sent.
    """

    call: Call
    register: m.Register
    ready: bool = False
    waiting: int = 0
    stopped: bool = False


class Membership:
    """Seats of the agents of ``run``.

    ``barrier`` is asked how far an agent and the run are.  ``heads``: an agent's last reported round and its ledger's
    head after it, as far as remembered.  ``moved`` hears what happens to the barrier (AgentGone, AgentRefused) and
    ``said`` each message of a seated agent, both in mid-step: what they append to the effects comes in its place.
    """

    def __init__(
        self,
        run: RunConfig,
        run_id: bytes,
        beat_ns: int,
        barrier: co.CoordinatorMachine,
        heads: Mapping[str, tuple[int, bytes]],
        samples: Mapping[str, int | None],
        moved: Callable[[co.CoordinatorEvent, Out, int], None],
        said: Callable[[Seat, object, Out, int], None],
    ) -> None:
        self._run_id = run_id
        self._K = run.K
        self._names = run.graph.agents
        self._json = canonical_json(run)
        self._sha256 = run_sha256(run)
        self._beat_ns = beat_ns
        self._barrier = barrier
        self._heads = heads
        self._samples = samples
        self._moved = moved
        self._said = said
        self._door: Door | co.Conclude = Door.OPEN
        self._silent: dict[Call, _Silent] = {}
        self._doubted: dict[Call, _Doubted] = {}
        self._seated: dict[Call, Seat] = {}
        self._seats: dict[str, Seat] = {}
        self._registers: dict[str, m.Register] = {}
        self._seen_ns: dict[str, int] = {}
        self._told: set[str] = set()
        self._stuck: list[Call] = []

    # --- what may be asked ------------------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether nobody is seated."""
        return not self._seats

    @property
    def all_told(self) -> bool:
        """Whether every agent of the run heard how it ended."""
        return self._told.issuperset(self._names)

    def registers(self) -> tuple[m.Register, ...]:
        """Everybody's last registration, in row order; everybody has come."""
        return tuple(self._registers[name] for name in self._names)

    def addresses(self) -> dict[str, str]:
        """Where each agent that ever had a seat listens."""
        return {name: register.advertise for name, register in self._registers.items()}

    def last_seen_s(self, name: str, now_ns: int) -> float | None:
        """Seconds since the agent's last message; None: it never came."""
        return None if name not in self._seen_ns else (now_ns - self._seen_ns[name]) / SECOND

    def ours(self, register: m.Register, k: int) -> int:
        """``k`` of a registration that speaks of this run; -1 of another."""
        return k if register.run_id == self._run_id else -1

    def due_ns(self, otherwise: int) -> int:
        """When to ``tick``; ``otherwise`` where nothing is due before."""
        due_ns = otherwise
        if self._silent:
            due_ns = min(due_ns, next(iter(self._silent.values())).until_ns)
        if self._doubted:
            due_ns = min(due_ns, *(doubt.until_ns for doubt in self._doubted.values()))
        return due_ns

    # --- what the seated hear ---------------------------------------------------------------------------------

    def broadcast(self, message: m.CoordinatorMessage, out: Out) -> None:
        """To every seat; who is away hears it all with its next registration."""
        for seat in self._seats.values():
            self._say(seat, message, out)

    def say(self, name: str, message: m.CoordinatorMessage, out: Out) -> None:
        """To one agent, if it has a seat."""
        if name in self._seats:
            self._say(self._seats[name], message, out)

    def beat(self, out: Out) -> None:
        """A sign of life to everybody who has nothing else to read."""
        for seat in self._seats.values():
            if seat.waiting == 0:
                self._say(seat, m.Heartbeat(), out)

    def _say(self, seat: Seat, message: m.CoordinatorMessage, out: Out) -> None:
        seat.waiting += 1
        seat.stopped = seat.stopped or isinstance(message, m.StopMessage)
        if seat.waiting == QUEUE_MAX + 1:
            self._stuck.append(seat.call)
        out.append(Write(seat.call, message))

    # --- the steps --------------------------------------------------------------------------------------------

    def take(self, event: Accepted | Heard | Ended, out: Out, now_ns: int) -> None:
        match event:
            case Heard(call, message):
                if (seat := self._seated.get(call)) is not None:
                    self._seen_ns[call.peer] = now_ns
                    if self._doubted:
                        self._keep_out(call.peer, out, now_ns)
                    if not isinstance(message, m.Dones):
                        self._said(seat, message, out, now_ns)
                        return
                    for word in message.dones:
                        if self._seated.get(call) is seat:  # else one of them was nonsense
                            self._said(seat, word, out, now_ns)
                elif call in self._silent:
                    self._first_word(call, self._silent.pop(call).address, message, out, now_ns)
            case Accepted(call, address):
                self._silent[call] = _Silent(address, now_ns + FIRST_WORD_NS)
            case Ended(call):
                self._silent.pop(call, None)
                self._doubted.pop(call, None)
                if call in self._seated:
                    self._leave(call, out, now_ns)

    def taken(self, event: Taken) -> None:
        """Messages left the queue of a seat, if it is one."""
        if (seat := self._seated.get(event.call)) is not None:
            seat.waiting = event.rest

    def tick(self, out: Out, now_ns: int) -> None:
        for call in [call for call, silent in self._silent.items() if now_ns >= silent.until_ns]:
            del self._silent[call]
            text = f"{call.peer} said nothing for {FIRST_WORD_NS / SECOND:g} s"
            out.append(End(call, PeerError(text, grpc_status="DEADLINE_EXCEEDED")))
        for call in [call for call, doubt in self._doubted.items() if now_ns >= doubt.until_ns]:
            if call in self._doubted and now_ns >= self._doubted[call].until_ns:  # else another got the seat just now
                text = f"{call.peer} was started again; its first process gives no sign of life and is replaced"
                out.append(Note("warning", text))
                self._admit_doubted(call, out, now_ns)

    def unstick(self, out: Out, now_ns: int) -> None:
        """Hang up on those who read nothing: when they do again, they register anew."""
        while self._stuck:
            self.hang_up(self._stuck.pop(), None, out, now_ns)

    def hang_up(self, call: Call, error: PeerError | None, out: Out, now_ns: int) -> None:
        """Take the seat from whoever speaks over ``call``."""
        if call in self._seated:
            out.append(End(call, error))
            self._leave(call, out, now_ns)

    def shut(self) -> None:
        """The run's end is being written."""
        self._door = Door.SHUT

    def over(self, last_word: co.Conclude, out: Out, now_ns: int) -> None:
        """The run ended.  Whoever is ready heard so, or is about to; the others hear it now."""
        self._door = last_word
        self._told |= self._seats.keys()
        for call, seat in [(call, seat) for call, seat in self._seated.items() if not seat.ready]:
            del self._seated[call], self._seats[call.peer]
            out += [Write(call, self._farewell(last_word, seat.register)), End(call)]
        for name in {call.peer: None for call in self._doubted if call.peer not in self._seats}:
            self._let_in(name, out, now_ns)

    # --- who comes, and who goes ------------------------------------------------------------------------------

    def _first_word(self, call: Call, address: str, message: object, out: Out, now_ns: int) -> None:
        match message:
            case m.Refusal(_, reason) if call.peer in self._names:
                self._told.add(call.peer)
                out.append(End(call))
                self._moved(co.AgentRefused(call.peer, reason), out, now_ns)
            case m.Register():
                self._register(call, address, message, out, now_ns)
            case _:
                out.append(End(call, PeerError("the first message must be Register", grpc_status="INVALID_ARGUMENT")))

    def _register(self, call: Call, address: str, register: m.Register, out: Out, now_ns: int) -> None:
        name = register.name
        if (refusal := admission.stranger(register, call.peer, self._names)) is not None:
            self._refuse(call, address, refusal, out, now_ns)
        elif name not in self._seats or self._seats[name].register.instance == register.instance:
            self._admit(call, address, register, out, now_ns)
            if call in self._seated:
                self._keep_out(name, out, now_ns)
        elif self.ours(register, register.last_released_round) < self._barrier.done(name):
            self._refuse(call, address, admission.twin(name), out, now_ns)
        else:
            self._doubt(call, address, register, out, now_ns)

    def _doubt(self, call: Call, address: str, register: m.Register, out: Out, now_ns: int) -> None:
        for other in [c for c, doubt in self._doubted.items() if doubt.register.instance == register.instance]:
            del self._doubted[other]  # the same process, over a newer call
            out.append(End(other))
        text = f"another process at {address} says that it is {register.name}, which is here: does it live?"
        out += [Hold(call), Note("info", text)]
        self._doubted[call] = _Doubted(address, register, now_ns + BEATS_OF_LIFE * self._beat_ns)

    def _keep_out(self, name: str, out: Out, now_ns: int) -> None:
        """The process in the seat of ``name`` spoke: whoever wants the seat is its twin."""
        for call in [call for call in self._doubted if call.peer == name]:
            self._refuse(call, self._doubted.pop(call).address, admission.twin(name), out, now_ns)

    def _let_in(self, name: str, out: Out, now_ns: int) -> None:
        """The seat of ``name`` is empty: whoever waits longest gets it."""
        while self._door is not Door.SHUT and name not in self._seats:
            call = next((call for call in self._doubted if call.peer == name), None)
            if call is None:
                return
            self._admit_doubted(call, out, now_ns)

    def _admit_doubted(self, call: Call, out: Out, now_ns: int) -> None:
        doubt = self._doubted.pop(call)
        out.append(ReadOn(call))
        self._admit(call, doubt.address, doubt.register, out, now_ns)
        for other in [other for other in self._doubted if other.peer == call.peer]:  # this one may be dead by now too
            self._doubted[other] = replace(self._doubted[other], until_ns=now_ns + BEATS_OF_LIFE * self._beat_ns)

    def _refuse(self, call: Call, address: str, refusal: admission.Refusal, out: Out, now_ns: int) -> None:
        out.append(Note("warning", f"refused {call.peer} at {address}: {refusal.reason}"))
        out += [Write(call, m.Refused(refusal.kind, (refusal.reason + refusal.own)[:1000])), End(call)]
        if refusal.ends_run:  # it may have been another process of that name: the agent itself was not told
            self._moved(co.AgentRefused(call.peer, refusal.reason), out, now_ns)

    def _admit(self, call: Call, address: str, register: m.Register, out: Out, now_ns: int) -> None:
        name = register.name
        others = (other for other in self._registers.values() if other.name != name)
        refusal = admission.disagrees(register, run_json=self._json, package_version=__version__, others=others)
        # Before the run began nothing was released, and who has the result releases nothing more.
        releases = name in self._samples and self.ours(register, register.last_durable_round) < self._K
        if refusal is None and releases:
            refusal = admission.changed(register, self._samples[name])
        if refusal is not None:
            self._refuse(call, address, refusal, out, now_ns)
            return
        if max(register.last_released_round, register.last_done_round, register.last_durable_round) > self._K:
            text = f"{name} registers with rounds beyond the last, {self._K}"
            out.append(End(call, PeerError(text, grpc_status="OUT_OF_RANGE")))
            return
        match self._door:
            case Door.OPEN:
                self._seat(call, address, register, out, now_ns)
            case Door.SHUT:
                out.append(Hold(call))
                self._doubted[call] = _Doubted(address, register, now_ns)
            case co.Conclude() as end:  # it must hear why, and not wait for a start that never comes
                self._told.add(name)
                out += [Write(call, self._farewell(end, register)), End(call)]

    def _farewell(self, end: co.Conclude, register: m.Register) -> m.CoordinatorMessage:
        if end.exit_code is ExitCode.DONE and self.ours(register, register.last_durable_round) == self._K:
            return m.Goodbye()
        return m.StopMessage(end.reason[:1000], int(end.exit_code))

    def _seat(self, call: Call, address: str, register: m.Register, out: Out, now_ns: int) -> None:
        name = register.name
        if name in self._seats:  # half dead: the same process, or its successor, is here now
            half_dead = self._seats.pop(name).call
            del self._seated[half_dead]
            out.append(End(half_dead))
        seat = self._seats[name] = self._seated[call] = Seat(call, register)
        self._registers[name] = register
        self._seen_ns[name] = now_ns
        out.append(Note("info", f"{name} registered from {address}, listens on {register.advertise}"))
        k, head = self._heads.get(name, (-1, b""))
        welcome = m.Welcome(
            self._run_id,
            self._sha256,
            self._json,
            self._barrier.go_through,
            package_version=__version__,
            ledger_round=k,
            ledger_head=head,
        )
        self._say(seat, welcome, out)

    def _leave(self, call: Call, out: Out, now_ns: int) -> None:
        name = call.peer
        seat = self._seated[call]
        if seat.stopped and seat.waiting == 0:  # it left since it was told
            self._told.add(name)
        del self._seated[call], self._seats[name]
        self._moved(co.AgentGone(name), out, now_ns)
        self._let_in(name, out, now_ns)
