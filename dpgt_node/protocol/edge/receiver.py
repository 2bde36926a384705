"""The receiver's end of one edge: what an agent serves to one in-neighbour.

Theory of operation:

    phase     waits for                               then
    ----------------------------------------------------------------------------------------------------------
    SHUT      Accepted                                WAITING: the call is held until Welcome came
              Admit (Welcome came)                    CLOSED
    WAITING   Admit                                   Resume, OPEN
    CLOSED    Accepted                                Resume, OPEN
    OPEN      Heard: a read's complete payloads       VectorReceived for each that the inbox's window lets in; the
                                                      first that lies beyond it: FULL, the call is held
    FULL      Moved (the window)                      VectorReceived for what lies inside now; none left: OPEN, read on

``Accepted`` in any phase replaces the call that was there: a stream that outlived its sender must not hold up the next
one.  What it held is dropped, because Resume asks for it again: nothing is taken twice, nothing is lost.

Small vectors are acknowledged once in ``ACK_ROUNDS`` rounds: an acknowledgement a round would cost as much as the
vector.  What is left is acknowledged by the next ``Tick``, and a call that is full says so at each, or its sender would
take it for dead.  An acknowledgement says that frames arrived, not that vectors are durable.
"""

from __future__ import annotations

from collections import deque
from enum import auto
from typing import Any

from dpgt_node.protocol.agent.session_types import Admit, Leave, Moved, Window
from dpgt_node.protocol.calls import Accepted, Call, End, Ended, Heard, Hold, ReadOn, Write
from dpgt_node.protocol.digests import digest
from dpgt_node.protocol.dummies import Dummy
from dpgt_node.protocol.messages import Received, Resume
from dpgt_node.protocol.phases import Phases
from dpgt_node.protocol.types import Payload, Tick, VectorReceived
from dpgt_node.types import Stream

ACK_ROUNDS = 64
SMALL_BYTES = 64 * 1024
"""Larger vectors are acknowledged each."""


class ReceiverPhase(Phases):
    """Where the edge stands; see the table above."""

    SHUT = auto()
    WAITING = auto()
    CLOSED = auto()
    OPEN = auto()
    FULL = auto()


CALLED = frozenset({ReceiverPhase.WAITING, ReceiverPhase.OPEN, ReceiverPhase.FULL})


class Receiver:
    """Serves agent ``sender`` (0-based) at agent ``own_name``."""

    def __init__(self, own_name: str, sender: int) -> None:
        self._own_name = own_name
        self._sender = sender
        self._phase = ReceiverPhase.SHUT
        self._run_id: bytes
        self._window: Window
        self._call = Call("", 0, dialled=False)
        self._held: deque[Payload] = deque()
        self._frames = self._told = 0
        self._heard_ns: int | None = None
        self._last: dict[Stream, tuple[int, bytes]] = {}

    @property
    def phase(self) -> ReceiverPhase:
        return self._phase

    @property
    def call(self) -> Call:
        """The call that is served, or was last."""
        return self._call

    @property
    def heard_ns(self) -> int | None:
        """When the last byte arrived; None: none did in the life of this process."""
        return self._heard_ns

    def next_deadline_ns(self) -> int | None:
        """None: who steps it with ``Tick`` does so once a heartbeat."""
        return None

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        """Take an event of the call, or of the session.  ``VectorReceived`` is for the agent's machine."""
        out: list[Any] = []
        match event:
            case Heard(call, payloads) if call == self._call:
                assert isinstance(payloads, tuple) and self._phase is ReceiverPhase.OPEN
                self._heard_ns = now_ns
                self._frames += 1
                if payloads:
                    self._held.extend(payloads)
                    self._deliver(out)
            case Tick():
                if self._phase is ReceiverPhase.FULL or (
                    self._phase is ReceiverPhase.OPEN and self._frames > self._told
                ):
                    self._acknowledge(out)
            case Moved():
                if self._phase is ReceiverPhase.FULL:
                    self._deliver(out)
            case Accepted(call):
                self._replace(call, out)
            case Ended(call) if call == self._call:
                self._close()
            case Admit(run_id, window):
                self._admit(run_id, window, out)
            case Leave():
                if self._phase in CALLED:
                    out.append(End(self._call))
                self._close()
        return tuple(out)

    def _replace(self, call: Call, out: list[Any]) -> None:
        if self._phase in CALLED:
            out.append(End(self._call))
            self._held.clear()
        self._call = call
        if self._phase in (ReceiverPhase.SHUT, ReceiverPhase.WAITING):
            self._phase = ReceiverPhase.WAITING
            out.append(Hold(call))
        else:
            self._begin(out)

    def _admit(self, run_id: bytes, window: Window, out: list[Any]) -> None:
        self._run_id, self._window = run_id, window
        if self._phase is ReceiverPhase.WAITING:
            self._begin(out)
            out.append(ReadOn(self._call))
        else:
            self._phase = ReceiverPhase.CLOSED

    def _begin(self, out: list[Any]) -> None:
        self._phase = ReceiverPhase.OPEN
        self._frames = self._told = 0
        x_from, y_from = self._window.needs(self._sender)
        resume = Resume(
            self._own_name,
            self._run_id,
            x_from,
            y_from,
            self._window.mixed_before,
            x_last=self._held_before("X", x_from),
            y_last=self._held_before("Y", y_from),
        )
        out.append(Write(self._call, resume))

    def _held_before(self, stream: Stream, first: int) -> bytes:
        """The digest of the round before ``first``: its sender knows whether it sent that."""
        k, last = self._last.get(stream, (-1, b""))
        return last if k == first - 1 else b""

    def _close(self) -> None:
        shut = self._phase in (ReceiverPhase.SHUT, ReceiverPhase.WAITING)
        self._phase = ReceiverPhase.SHUT if shut else ReceiverPhase.CLOSED
        self._held.clear()

    def _deliver(self, out: list[Any]) -> None:
        held, high = self._held, self._window.window()[1]
        while held and held[0].k <= high:
            payload = held.popleft()
            if not isinstance(payload, Dummy):  # which takes its turn like a vector, and counts for nothing
                self._last[payload.stream] = (payload.k, digest(payload))
                out.append(VectorReceived(self._sender, payload))
            if not held and (payload.nbytes > SMALL_BYTES or payload.k % ACK_ROUNDS == ACK_ROUNDS - 1):
                self._acknowledge(out)
        if held:
            if self._phase is ReceiverPhase.OPEN:
                out.append(Hold(self._call))
            self._phase = ReceiverPhase.FULL
        elif self._phase is ReceiverPhase.FULL:
            self._phase = ReceiverPhase.OPEN
            out.append(ReadOn(self._call))

    def _acknowledge(self, out: list[Any]) -> None:
        self._told = self._frames
        out.append(Write(self._call, Received(self._frames)))
