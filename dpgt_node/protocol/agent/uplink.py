"""An agent's call to the coordinator: registration, what waits for it, heartbeats, and coming back after a break.

Theory of operation:

    phase       waits for                     then
    ---------------------------------------------------------------------------------------------------------------
    AWAY        the end of the back-off       Dial
    DIALLING    Opened                        Register, REGISTERED
    REGISTERED  Welcome                       Told, WELCOME
    WELCOME     the answer (Say, first)       the answer, then all that waits: ADMITTED
    ADMITTED    Say                           what is said
    CLOSED      nothing

Nothing but Register is written before the answer to Welcome: a report of what came after Register must not be read
before it, or the coordinator would see an agent that forgot a round.  What waits when the call breaks is dropped,
because the next Register says it all again.

Reports of rounds in the midst of a block wait for the next ones, ``HOLD_NS`` at most: most of what a report costs is
the message, not what it says.  They go before whatever else is said, and when the coordinator says anything but Go.

The coordinator is given up (``Abandoned``) when it refuses with a status that no further attempt can cure, and when
nothing was heard of it for the patience, in time that this process was awake: ``first_patience_ns`` before the first
Welcome, ``patience_ns`` after it.  A call that is open and silent is dropped after half of ``patience_ns``, and another
one is tried: a coordinator that hangs keeps its calls open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import auto
from typing import Any

from dpgt_node.errors import PeerError, PeerLost, Untrusted
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent.session_types import Abandoned, Leave, Say, Terms, Told
from dpgt_node.protocol.calls import COORDINATOR, Call, Dial, End, Ended, Heard, Note, Opened, Taken, Write
from dpgt_node.protocol.clock import SECOND, Awake, Backoff
from dpgt_node.protocol.done import MAX_DONES
from dpgt_node.protocol.phases import Phases
from dpgt_node.protocol.types import Tick

HOLD_NS = SECOND // 2
"""So long a report of a round may wait for the next, and no longer than a heartbeat."""
HOLD_BYTES = 1 << 16
"""So many bytes of digests may wait."""
FINAL = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED"})
"""Statuses that another attempt cannot cure."""


def _strength(error: PeerError) -> int:
    """How much ``error`` says: who is not believed, then any answer, then silence."""
    return 2 if isinstance(error, Untrusted) else int(error.grpc_status != "UNAVAILABLE")


def _cause(error: PeerError) -> str:
    return str(error) or error.grpc_status


class UplinkPhase(Phases):
    """Where the call stands; see the table above."""

    AWAY = auto()
    DIALLING = auto()
    REGISTERED = auto()
    WELCOME = auto()
    ADMITTED = auto()
    CLOSED = auto()


CALLING = frozenset({UplinkPhase.DIALLING, UplinkPhase.REGISTERED, UplinkPhase.WELCOME, UplinkPhase.ADMITTED})


class Uplink:
    """Calls the coordinator at ``address`` from ``now_ns`` on.  ``register()`` says what the agent holds then."""

    def __init__(
        self,
        address: str,
        register: Callable[[], m.Register],
        *,
        first_patience_ns: int,
        patience_ns: int,
        heartbeat_ns: int,
        now_ns: int,
    ) -> None:
        self._address = address
        self._register = register
        self._patience_ns = first_patience_ns
        self._later_patience_ns = patience_ns
        self._heartbeat_ns = heartbeat_ns
        self._phase = UplinkPhase.AWAY
        self._call = Call(COORDINATOR, 0, dialled=True)
        self._backoff = Backoff()
        self._waiting: deque[m.AgentMessage] = deque()
        self._held: list[m.Done] = []
        self._held_bytes = 0  # of digests
        self._hold_until_ns: int | None = None
        self._untaken = False
        self._answered = False
        self._lost_type = PeerError
        self._strongest: PeerError | None = None
        self._awake = Awake(2 * heartbeat_ns, now_ns)
        self._heard_ns = self._opened_ns = now_ns
        self._deadline_ns: int | None = now_ns

    @classmethod
    def of(cls, terms: Terms, register: Callable[[], m.Register], *, saved: bool, now_ns: int) -> Uplink:
        """As the session's ``terms`` have it.  ``saved``: the result is, and nothing is left to ask for."""
        return cls(
            terms.coordinator,
            register,
            # With its result saved it comes back only in case somebody still needs it.
            first_patience_ns=terms.patience_ns if saved else terms.first_patience_ns,
            patience_ns=terms.patience_ns,
            heartbeat_ns=terms.heartbeat_ns,
            now_ns=now_ns,
        )

    @property
    def phase(self) -> UplinkPhase:
        return self._phase

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest."""
        due_ns, hold_ns = self._deadline_ns, self._hold_until_ns
        return due_ns if hold_ns is None or (due_ns is not None and due_ns < hold_ns) else hold_ns

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        """Take an event of the call, or what is to be said.  ``Told`` and ``Abandoned`` are for the session."""
        if self._phase is UplinkPhase.CLOSED:
            return ()
        out: list[Any] = []
        match event:
            case Say():
                self._say(event, out, now_ns)
            case Taken(call, _, rest) if call == self._call:
                self._untaken = rest > 0
            case Heard(call, message) if call == self._call:
                self._heard(message, out, now_ns)
            case Opened(call) if call == self._call:
                self._phase = UplinkPhase.REGISTERED
                self._opened_ns = self._awake.at(now_ns)
                self._deadline_ns = now_ns + self._heartbeat_ns
                self._write(self._register(), out)
            case Ended(call, error) if call == self._call:
                closed = PeerError("the coordinator closed the stream", grpc_status="UNAVAILABLE")
                self._lost(error or closed, out, now_ns)
            case Tick():
                if self._hold_until_ns is not None and now_ns >= self._hold_until_ns:
                    self._let_go(out)
                if self._deadline_ns is not None and now_ns >= self._deadline_ns:
                    self._tick(out, now_ns)
            case Leave():
                if self._phase in CALLING:
                    out.append(End(self._call))
                self._phase, self._deadline_ns = UplinkPhase.CLOSED, None
                self._drop()
        return tuple(out)

    # --- speaking -----------------------------------------------------------------------------------------------

    def _say(self, said: Say, out: list[Any], now_ns: int) -> None:
        if said.first and self._phase is UplinkPhase.WELCOME:
            self._phase = UplinkPhase.ADMITTED
            self._write(said.message, out)
            while self._waiting:
                self._write(self._waiting.popleft(), out)
        elif self._phase is UplinkPhase.ADMITTED and isinstance(said.message, m.Done):
            self._hold(said.message, now_ns)
            room = len(self._held) < MAX_DONES and self._held_bytes < HOLD_BYTES
            if not (said.more and room):
                self._let_go(out)
        elif self._phase is UplinkPhase.ADMITTED:
            self._let_go(out)
            self._write(said.message, out)
        elif not said.first:  # an answer to a Welcome whose call broke is of no use: the next one is answered anew
            self._waiting.append(said.message)

    def _hold(self, done: m.Done, now_ns: int) -> None:
        self._held.append(done)
        self._held_bytes += len(done.words)
        if self._hold_until_ns is None:
            self._hold_until_ns = now_ns + min(HOLD_NS, self._heartbeat_ns)

    def _let_go(self, out: list[Any]) -> None:
        if self._held:
            self._write(self._held[0] if len(self._held) == 1 else m.Dones(tuple(self._held)), out)
        self._drop()

    def _drop(self) -> None:
        self._held, self._held_bytes, self._hold_until_ns = [], 0, None

    def _write(self, message: m.AgentMessage, out: list[Any]) -> None:
        self._untaken = True
        out.append(Write(self._call, message))

    def _heard(self, message: object, out: list[Any], now_ns: int) -> None:
        self._answered = True
        self._heard_ns = self._awake.at(now_ns)
        if isinstance(message, m.Heartbeat):
            return
        if isinstance(message, m.Welcome) and self._phase is UplinkPhase.REGISTERED:
            self._phase = UplinkPhase.WELCOME
            self._patience_ns, self._lost_type = self._later_patience_ns, PeerLost
        elif not isinstance(message, m.GoMessage):
            self._let_go(out)
        out.append(Told(message))  # type: ignore[arg-type]

    # --- coming and going ---------------------------------------------------------------------------------------

    def _tick(self, out: list[Any], now_ns: int) -> None:
        awake_ns = self._awake.at(now_ns)
        if self._phase is UplinkPhase.AWAY:
            self._phase, self._deadline_ns = UplinkPhase.DIALLING, now_ns + self._heartbeat_ns
            self._answered = self._untaken = False
            self._waiting.clear()
            self._call = Call(COORDINATOR, self._call.number + 1, dialled=True)
            out.append(Dial(self._call, self._address))
            return
        self._deadline_ns = now_ns + self._heartbeat_ns
        if self._phase is UplinkPhase.DIALLING:
            return
        if self._phase is UplinkPhase.ADMITTED and not self._untaken:  # else what waits there is the sign of life
            self._write(m.Heartbeat(), out)
        silent_ns = awake_ns - max(self._heard_ns, self._opened_ns)
        if silent_ns > self._later_patience_ns / 2:
            out.append(End(self._call))
            error = PeerError(f"no sign of life for {silent_ns / SECOND:.1f} s", grpc_status="UNAVAILABLE")
            self._lost(error, out, now_ns)

    def _lost(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        self._drop()
        if error.grpc_status in FINAL:
            self._give_up(error, out)
            return
        if self._answered:
            self._backoff.worked(self._awake.at(now_ns) - self._opened_ns)
            if not self._backoff.causes:
                self._strongest = None
        if self._strongest is None or _strength(error) >= _strength(self._strongest):
            self._strongest = error
        if self._awake.at(now_ns) - self._heard_ns > self._patience_ns:
            span = f"{self._patience_ns / SECOND:g} s"
            why = _cause(self._strongest)
            self._give_up(self._lost_type(f"no coordinator at {self._address} for {span}: {why}"), out)
            return
        cause = _cause(error)
        if self._backoff.news(cause):
            out.append(Note("warning", f"coordinator at {self._address}: {cause} (trying again)"))
        self._phase, self._deadline_ns = UplinkPhase.AWAY, now_ns + self._backoff.next_ns()

    def _give_up(self, error: PeerError, out: list[Any]) -> None:
        self._phase, self._deadline_ns = UplinkPhase.CLOSED, None
        out.append(Abandoned(error))
