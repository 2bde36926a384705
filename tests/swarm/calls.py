"""Carries out what machines ask of calls over this world's network, as ``runtime.calls`` does over gRPC."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpgt_node.errors import PeerError
from dpgt_node.protocol import calls as c
from dpgt_node.runtime.calls import Framing
from tests.swarm.checkers import Violation
from tests.swarm.network import End
from tests.swarm.process import COORDINATOR, Process

if TYPE_CHECKING:
    from tests.swarm.world import World

AWAY = PeerError("nobody answers", grpc_status="UNAVAILABLE")


class Line:
    """One call while it is open.  ``end`` comes when a dialled one is connected."""

    def __init__(self, call: c.Call, framing: Framing, window: int) -> None:
        self.call = call
        self.framing = framing
        self.window = window
        self.end: End | None = None
        self.out: deque[tuple[Any, bool]] = deque()
        self.unread: deque[Any] = deque()
        self.held = self.reading = False


class Calls:
    """Every open call of ``process``.  ``feed`` takes what happens, ``framing`` is asked once a call.

    ``window(call)``: how many messages wait in the network before flow control holds the writer.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        feed: Callable[[Any], None],
        framing: Callable[[c.Call], Framing],
        window: Callable[[c.Call], int],
    ) -> None:
        self._world = world
        self._process = process
        self._feed = feed
        self._framing = framing
        self._window = window
        self._lines: dict[c.Call, Line] = {}
        self._accepted = 0

    def line(self, call: c.Call) -> Line | None:
        """The call, if it is open."""
        return self._lines.get(call)

    def host(self, call: c.Call) -> Process:
        """The process at the other side of an open call."""
        end = self._lines[call].end
        assert end is not None and isinstance(end.other.host, Process)
        return end.other.host

    def crowded(self) -> str | None:
        """A peer with two calls that it opened, None where nobody has: a newer call replaces the older."""
        peers = [call.peer for call in self._lines if not call.dialled]
        return next((peer for peer in peers if peers.count(peer) > 1), None)

    def carry_out(self, effect: c.CallEffect) -> None:
        """Do one effect."""
        if isinstance(effect, c.Dial):
            self._dial(effect)
            return
        line = self._lines.get(effect.call)
        if line is None:
            return
        match effect:
            case c.Write(_, message):
                frames = list(line.framing.encode(message))
                line.out.extend((frame, frame is frames[-1]) for frame in frames)
                self._process.later(0, lambda: self._pump(line))
            case c.Hold():
                line.held = True
            case c.ReadOn():
                line.held = False
                self._process.later(0, lambda: self._read(line))
            case c.End():
                del self._lines[line.call]
                if line.end is not None:
                    self._hang_up(line)

    def accept(self, peer: str, end: End) -> c.Call:
        """``peer`` opened a call."""
        self._accepted += 1
        call = c.Call(peer, self._accepted, dialled=False)
        line = self._lines[call] = Line(call, self._framing(call), self._window(call))
        self._connect(line, end)
        self._feed(c.Accepted(call))
        return call

    # --- one call -----------------------------------------------------------------------------------------------

    def _dial(self, effect: c.Dial) -> None:
        call, world = effect.call, self._world
        line = self._lines[call] = Line(call, self._framing(call), self._window(call))
        coordinator = call.peer == c.COORDINATOR
        peer = COORDINATOR if coordinator else world.names.index(effect.address)

        def opened(end: End) -> None:
            if self._lines.get(call) is not line:
                end.close()
                return
            self._connect(line, end)
            self._feed(c.Opened(call))

        def failed() -> None:
            self._over(line, AWAY)

        world.network.dial(self._process, peer, "join" if coordinator else "exchange", opened, failed)

    def _connect(self, line: Line, end: End) -> None:
        line.end = end
        end.on_message = lambda message: self._arrived(line, message)
        end.on_end = lambda: self._over(line, None)
        end.on_space = lambda: self._process.run(lambda: self._pump(line))

    def _hang_up(self, line: Line) -> None:
        """A dialled call is dropped; an accepted one says its last words."""
        assert line.end is not None
        if line.call.dialled:
            line.end.close()
            return
        while line.out:
            line.end.write(line.out.popleft()[0])
        line.end.finish()

    def _over(self, line: Line, error: PeerError | None) -> None:
        if self._lines.get(line.call) is line:
            del self._lines[line.call]
            self._feed(c.Ended(line.call, error))

    def _pump(self, line: Line) -> None:
        while line.out and line.end is not None and self._lines.get(line.call) is line:
            if line.end.stuck or line.end.unread >= line.window:
                return
            frame, last = line.out.popleft()
            line.end.write(frame)
            nbytes = len(frame) if isinstance(frame, bytes) else 0
            rest = sum(whole for _, whole in line.out) + (not last and not line.out)
            self._feed(c.Taken(line.call, nbytes, rest))

    def _arrived(self, line: Line, message: Any) -> None:
        line.unread.append(message)
        self._read(line)

    def _read(self, line: Line) -> None:
        if line.reading:
            return
        line.reading = True
        while line.unread and not line.held and self._lines.get(line.call) is line:
            assert line.end is not None
            frame = line.unread.popleft()
            line.end.consumed()
            try:
                message = line.framing.decode(frame)
            except PeerError as error:
                what = f"{self._process.name} refuses what {line.call.peer} sent: {error}"
                raise Violation("gate", what) from error
            self._feed(c.Heard(line.call, message))
        line.reading = False
