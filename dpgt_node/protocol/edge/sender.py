"""The sender's end of one edge: a call to one out-neighbour, opened again for as long as the run lasts.

Theory of operation:

    phase      waits for                     then
    ------------------------------------------------------------------------------------------------------------
    UNKNOWN    Address                       Dial
    AWAY       the end of the back-off       Dial
    DIALLING   Opened                        ASKING
    ASKING     Resume                        is it the peer, and of this run?  PeerNeeds, READY
    READY      Send, Resend                  WRITING, or for a stored round READING
    READING    RoundRead                     WRITING
    WRITING    Taken of all of it            the next in the queue, or READY
    CLOSED     nothing

Whatever ends the call leads to AWAY, drops the queue and says PeerGone: the machine hears from the next Resume what the
peer lacks.  One item is in flight at a time, and a stored round is read when its turn comes: what waits costs little
memory.

A peer that is away is waited for without end.  One that does not answer, or takes no byte of what was written, for
``silence_ns`` is dialled anew.  So is one that acknowledges nothing of what the transport took: the far end of a call
may be gone without a word.  Small vectors get half the time, or the coordinator would end the run before; large ones
twice.  One that is there but not believed, or that does not believe this agent, for ``patience_ns`` without a break is
lost.
"""

from __future__ import annotations

from collections import deque
from enum import auto
from typing import Any

from dpgt_node.errors import PeerError, PeerLost, Untrusted
from dpgt_node.protocol.agent.session_types import Address, EdgeLost, Leave, ReadRound, RoundRead
from dpgt_node.protocol.calls import Call, Dial, End, Ended, Heard, Note, Opened, Taken, Write
from dpgt_node.protocol.clock import SECOND, Backoff
from dpgt_node.protocol.messages import Received, Resume
from dpgt_node.protocol.phases import Phases
from dpgt_node.protocol.told import told
from dpgt_node.protocol.types import PeerGone, PeerNeeds, Resend, Send, Tick

SMALL_BYTES = 1 << 17
"""A frame of small vectors is no larger."""
DISTRUST = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})


class SenderPhase(Phases):
    """Where the edge stands; see the table above."""

    UNKNOWN = auto()
    AWAY = auto()
    DIALLING = auto()
    ASKING = auto()
    READY = auto()
    READING = auto()
    WRITING = auto()
    CLOSED = auto()


CALLING = frozenset({SenderPhase.DIALLING, SenderPhase.ASKING, SenderPhase.READY, SenderPhase.READING})
CALLING |= {SenderPhase.WRITING}
OPEN = CALLING - {SenderPhase.DIALLING, SenderPhase.ASKING}


class Sender:
    """Sends to ``peer``, agent ``index``, what the agent's machine asks for, in order.  Times: see above."""

    def __init__(self, index: int, peer: str, run_id: bytes, *, patience_ns: int, silence_ns: int) -> None:
        self._index = index
        self._peer = peer
        self._run_id = run_id
        self._patience_ns = patience_ns
        self._silence_ns = silence_ns
        self._phase = SenderPhase.UNKNOWN
        self._address = ""
        self._call = Call(peer, 0, dialled=True)
        self._backoff = Backoff()
        self._queue: deque[Send | Resend] = deque()
        self._deadline_ns: int | None = None
        self._frames = 0
        self._lacking_since_ns: int | None = None
        """Since when frames of this call are not acknowledged, or when the peer last said something of them."""
        self._large = False
        self._distrust_since_ns: int | None = None
        self._down_since_ns = self._ready_since_ns = 0
        self.trouble = "not connected yet"
        """Why it is down."""
        self.bytes_sent = 0

    @property
    def phase(self) -> SenderPhase:
        return self._phase

    @property
    def waiting(self) -> int:
        """Items that are not given to the call yet."""
        return len(self._queue)

    def down_ns(self, now_ns: int) -> int:
        """For how long the call has not been open; 0 while it is, and before there is an address."""
        if self._phase in OPEN or self._phase is SenderPhase.UNKNOWN:
            return 0
        return now_ns - self._down_since_ns

    def next_deadline_ns(self) -> int | None:
        """When to step with ``Tick`` at the latest."""
        if self._lacking_since_ns is None:
            return self._deadline_ns
        lacking_ns = self._lacking_since_ns + self._patience_for_acknowledgements_ns()
        return lacking_ns if self._deadline_ns is None else min(lacking_ns, self._deadline_ns)

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        """Take an event of the call or of the agent's machine.

        Of the effects ``PeerNeeds`` and ``PeerGone`` are for the agent's machine, ``EdgeLost`` for the session.
        """
        if self._phase is SenderPhase.CLOSED:
            return ()
        out: list[Any] = []
        match event:
            case Send() | Resend():
                if self._phase in OPEN:
                    self._queue.append(event)
                    self._next(out, now_ns)
            case Taken(call, nbytes, rest) if call == self._call:
                self.bytes_sent += nbytes
                self._frames += 1
                self._large = self._large or nbytes > SMALL_BYTES
                if self._lacking_since_ns is None:
                    self._lacking_since_ns = now_ns
                self._taken(rest, out, now_ns)
            case RoundRead(call, payloads) if call == self._call and self._phase is SenderPhase.READING:
                self._write(payloads, out, now_ns)
            case Heard(call, message) if call == self._call:
                self._heard(message, out, now_ns)
            case Opened(call) if call == self._call:
                self._phase = SenderPhase.ASKING
                self._deadline_ns = now_ns + self._silence_ns
            case Ended(call, error) if call == self._call:
                self._lost(error or PeerError(self._ended_early()), out, now_ns)
            case Tick():
                self._tick(out, now_ns)
            case Address(address):
                self._move(address, out, now_ns)
            case Leave():
                if self._phase in CALLING:
                    out.append(End(self._call))
                self._phase, self._deadline_ns, self._lacking_since_ns = SenderPhase.CLOSED, None, None
        return tuple(out)

    # --- opening ------------------------------------------------------------------------------------------------

    def _move(self, address: str, out: list[Any], now_ns: int) -> None:
        moved, self._address = address != self._address, address
        if self._phase is SenderPhase.UNKNOWN:
            self._down_since_ns = now_ns
            self._dial(out)
        elif moved and self._phase in CALLING:
            self._hang_up(PeerError(f"{self._peer} listens elsewhere now"), out, now_ns)

    def _dial(self, out: list[Any]) -> None:
        self._phase, self._deadline_ns = SenderPhase.DIALLING, None
        self._call = Call(self._peer, self._call.number + 1, dialled=True)
        out.append(Dial(self._call, self._address))

    def _heard(self, message: object, out: list[Any], now_ns: int) -> None:
        if self._phase in OPEN:
            if isinstance(message, Received):
                self._acknowledged(message, now_ns)
            else:
                self._hang_up(PeerError(f"{self._peer} sent an unexpected message"), out, now_ns)
        elif not isinstance(message, Resume):
            self._hang_up(PeerError(f"{self._peer} did not say where to go on"), out, now_ns)
        elif not self._is_it(message):
            self._hang_up(
                PeerError(f"{self._address} answers as {message.receiver!r}, or for another run"), out, now_ns
            )
        else:
            self._phase, self._deadline_ns = SenderPhase.READY, None
            self._frames = 0
            self._ready_since_ns = now_ns
            self._distrust_since_ns = None
            said = message.x_from, message.y_from, message.mixed_before, message.x_last, message.y_last
            out.append(PeerNeeds(self._index, *said))

    def _is_it(self, resume: Resume) -> bool:
        """Whoever answers for another agent, or in another run, asks for rounds that are not its own."""
        return resume.run_id == self._run_id and resume.receiver == self._peer

    # --- sending ------------------------------------------------------------------------------------------------

    def _next(self, out: list[Any], now_ns: int) -> None:
        if self._phase is not SenderPhase.READY or not self._queue:
            return
        item = self._queue.popleft()
        if isinstance(item, Send):
            self._write(item.payloads, out, now_ns)
        else:
            self._phase = SenderPhase.READING
            out.append(ReadRound(self._call, item.k, item.streams))

    def _write(self, payloads: object, out: list[Any], now_ns: int) -> None:
        self._phase, self._deadline_ns = SenderPhase.WRITING, now_ns + self._silence_ns
        out.append(Write(self._call, payloads))

    def _taken(self, rest: int, out: list[Any], now_ns: int) -> None:
        if self._phase is not SenderPhase.WRITING:
            return
        if rest:
            self._deadline_ns = now_ns + self._silence_ns
            return
        self._phase, self._deadline_ns = SenderPhase.READY, None
        self._next(out, now_ns)

    def _acknowledged(self, received: Received, now_ns: int) -> None:
        whole = received.frames >= self._frames
        self._lacking_since_ns, self._large = None if whole else now_ns, self._large and not whole
        if self._phase is SenderPhase.WRITING:  # it is full, and says so: flow control holds what is written
            self._deadline_ns = now_ns + self._silence_ns

    def _patience_for_acknowledgements_ns(self) -> int:
        # A chunk is acknowledged when it is there whole, however slow the link; one that takes no byte is found before.
        return 2 * self._silence_ns if self._large else self._silence_ns // 2

    # --- ending -------------------------------------------------------------------------------------------------

    def _ended_early(self) -> str:
        return f"{self._peer} {'ended the stream' if self._phase in OPEN else 'did not say where to go on'}"

    def _tick(self, out: list[Any], now_ns: int) -> None:
        due_ns = self.next_deadline_ns()
        if due_ns is None or now_ns < due_ns:
            return
        silence = f"for {self._silence_ns / SECOND:g} s"
        if self._lacking_since_ns is not None and due_ns != self._deadline_ns:
            span = f"{self._patience_for_acknowledgements_ns() / SECOND:g} s"
            error = f"{self._peer} has acknowledged nothing for {span}"
            self._hang_up(PeerError(error, grpc_status="UNAVAILABLE"), out, now_ns)
        elif self._phase is SenderPhase.AWAY:
            self._dial(out)
        elif self._phase is SenderPhase.ASKING:
            self._hang_up(PeerError(f"no answer {silence}", grpc_status="UNAVAILABLE"), out, now_ns)
        else:
            self._hang_up(PeerError(f"{self._peer} took no byte {silence}", grpc_status="UNAVAILABLE"), out, now_ns)

    def _hang_up(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        out.append(End(self._call))
        self._lost(error, out, now_ns)

    def _lost(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        if self._phase in OPEN:
            self._backoff.worked(now_ns - self._ready_since_ns)
            self._down_since_ns = now_ns
            out.append(PeerGone(self._index))
        self._queue.clear()
        self._lacking_since_ns, self._large = None, False
        self.trouble = told(error)
        if self._backoff.news(cause := str(error) or error.grpc_status):
            out.append(Note("warning", f"stream to {self._peer} at {self._address}: {cause} (trying again)"))
        self._phase, self._deadline_ns = SenderPhase.AWAY, now_ns + self._backoff.next_ns()
        self._bear(error, out, now_ns)

    def _bear(self, error: PeerError, out: list[Any], now_ns: int) -> None:
        if not isinstance(error, Untrusted) and error.grpc_status not in DISTRUST:
            return
        if self._distrust_since_ns is None:
            self._distrust_since_ns = now_ns
        if now_ns - self._distrust_since_ns > self._patience_ns:
            span = f"{self._patience_ns / SECOND:g} s"
            out.append(EdgeLost(PeerLost(f"no trust between here and {self._peer} for {span}: {error}")))
