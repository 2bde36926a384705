"""Streams between processes as gRPC gives them: reliable and in order until they break, then a suffix is lost.

A directed link can be cut while its opposite works.  What was written waits, as TCP retransmits, until the link heals
or the keepalive gives the stream up on both sides.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.swarm.clock import SECOND, Clock

KEEPALIVE_NS = 10 * SECOND
"""Ping interval and ping timeout: after so long on a dead link both sides know."""
DIAL_TIMEOUT_NS = 2 * SECOND


class Host(Protocol):
    """What a process is to the network."""

    index: int
    alive: bool

    def listening(self) -> bool:
        """Whether a connection attempt finds a server."""
        ...

    def accept(self, end: End, kind: str) -> None:
        """A peer opened a stream."""
        ...

    def run(self, job: Callable[[], None]) -> None:
        """Handle something that arrived."""
        ...


@dataclass(slots=True)
class _Pipe:
    """One direction of a stream.  ``unread``: written and not consumed yet."""

    source: int
    target: int
    queue: deque[tuple[int, Any]] = field(default_factory=deque)
    last_ns: int = 0
    unread: int = 0
    closed: bool = False
    armed: bool = False


class End:
    """One side of a stream.  ``on_message``, ``on_end``, ``on_space`` are set by whoever holds it."""

    __slots__ = ("_in", "_network", "_out", "ended", "host", "on_end", "on_message", "on_space", "other", "stuck")

    def __init__(self, network: Network, host: Host, out: _Pipe, into: _Pipe) -> None:
        self._network = network
        self.host = host
        self._out = out
        self._in = into
        self.other: End
        self.ended = self.stuck = False
        self.on_message: Callable[[Any], None] = lambda _: None
        self.on_end: Callable[[], None] = lambda: None
        self.on_space: Callable[[], None] | None = None

    @property
    def peer(self) -> int:
        """Index of the process at the other side."""
        return self._out.target

    @property
    def unread(self) -> int:
        """Messages written here that the other side has not consumed."""
        return self._out.unread

    def write(self, message: Any) -> None:
        """Hand a message to the network; into a broken stream it is lost, and from one that is stuck it never comes."""
        if not self._out.closed:
            self._out.unread += 1
            if not self.stuck:
                self._network.carry(self, message)

    def consumed(self) -> None:
        """One message was taken from the stream: the writer may go on."""
        self._in.unread -= 1
        self._network.freed(self.other)

    def close(self) -> None:
        """End the stream from this side."""
        self._network.break_stream(self)

    def finish(self) -> None:
        """End it in order: what was written here arrives before, unless nothing gets through."""
        self._network.break_stream(self, self._out)


class Network:
    """All streams.  ``delay_ns(source, target)``: how long the next message takes.  ``host``: who runs now."""

    def __init__(
        self,
        clock: Clock,
        chance: random.Random,
        delay_ns: Callable[[int, int], int],
        host: Callable[[int], Host | None],
    ) -> None:
        self._clock = clock
        self._host = host
        self._chance = chance
        self._delay_ns = delay_ns
        self._cut: dict[tuple[int, int], int] = {}
        self._cut_at: dict[tuple[int, int], int] = {}
        self._streams: dict[End, None] = {}
        self.copies: dict[tuple[int, int], int] = {}
        """Until when a link delivers frames a second time, later, as a stream does that outlived its successor."""
        self.misled: dict[tuple[int, int], tuple[int, int]] = {}
        """Who answers whoever dials, and until when: a stale address, a port that another process took."""

    # --- streams ------------------------------------------------------------------------------------------------

    def dial(self, host: Host, peer: int, kind: str, opened: Callable[[End], None], failed: Callable[[], None]) -> None:
        """Open a stream from ``host`` to process ``peer``; exactly one of the callbacks comes."""
        a, (b, until_ns) = host.index, self.misled.get((host.index, peer), (peer, 0))
        if until_ns <= self._clock.now_ns:
            b = peer

        def arrive() -> None:
            if not host.alive:
                return
            if self.is_cut(a, b) or self.is_cut(b, a):
                self._clock.after(DIAL_TIMEOUT_NS, lambda: host.run(failed))
                return
            server = self._host(b)
            if server is None or not server.listening():
                self._clock.after(self._delay_ns(b, a), lambda: host.run(failed))
                return
            there, back = _Pipe(a, b), _Pipe(b, a)
            near, far = End(self, host, there, back), End(self, server, back, there)
            near.other, far.other = far, near
            self._streams[near] = None
            back.last_ns = self._clock.now_ns + self._delay_ns(b, a)
            self._clock.at(back.last_ns, lambda: host.run(lambda: failed() if near.ended else opened(near)))
            server.run(lambda: server.accept(far, kind))

        self._clock.after(self._delay_ns(a, b), arrive)

    def carry(self, end: End, message: Any) -> None:
        """Put a message on its way."""
        pipe = end._out
        due_ns = max(pipe.last_ns, self._clock.now_ns + self._delay_ns(pipe.source, pipe.target))
        pipe.last_ns = due_ns
        pipe.queue.append((due_ns, message))
        self._arm(end.other, pipe)

    def freed(self, end: End) -> None:
        """What ``end`` wrote was taken."""
        if end.on_space is not None:
            self._clock.after(0, end.on_space)

    def break_stream(self, end: End, whole: _Pipe | None = None) -> None:
        """Reset a stream: each direction but ``whole`` loses a random suffix of what is on its way, then both sides see
        the end.
        """
        near = end if end in self._streams else end.other
        if near not in self._streams:
            return
        del self._streams[near]
        for reader, pipe in ((near.other, near._out), (near, near._in)):
            pipe.closed = True
            cut = self.is_cut(pipe.source, pipe.target)
            kept = 0 if cut else len(pipe.queue) if pipe is whole else self._chance.randint(0, len(pipe.queue))
            while len(pipe.queue) > kept:
                pipe.queue.pop()
            last_ns = max(pipe.queue[-1][0] if pipe.queue else 0, self._clock.now_ns)
            end_ns = self._clock.now_ns + KEEPALIVE_NS if cut else last_ns + self._delay_ns(pipe.source, pipe.target)
            self._end_at(reader, pipe, end_ns)

    def _end_at(self, reader: End, pipe: _Pipe, end_ns: int) -> None:
        def end() -> None:
            while pipe.queue:  # what a heal let through in the meantime came before
                _, message = pipe.queue.popleft()
                self._hand(reader, message)
            reader.host.run(lambda: self._ended(reader))

        self._clock.at(end_ns, end)

    @staticmethod
    def _ended(reader: End) -> None:
        if not reader.ended:
            reader.ended = True
            reader.on_end()

    def _arm(self, reader: End, pipe: _Pipe) -> None:
        if pipe.armed or not pipe.queue or self.is_cut(pipe.source, pipe.target):
            return
        pipe.armed = True

        def due() -> None:
            pipe.armed = False
            if pipe.queue and not self.is_cut(pipe.source, pipe.target) and pipe.queue[0][0] <= self._clock.now_ns:
                _, message = pipe.queue.popleft()
                self._hand(reader, message)
            self._arm(reader, pipe)

        self._clock.at(pipe.queue[0][0], due)

    def _hand(self, reader: End, message: Any) -> None:
        def take() -> None:
            if not reader.ended:
                reader.on_message(message)

        reader.host.run(take)

    # --- faults -------------------------------------------------------------------------------------------------

    def is_cut(self, source: int, target: int) -> bool:
        """Whether nothing gets from ``source`` to ``target`` now."""
        return self._cut.get((source, target), 0) > self._clock.now_ns

    def cut(self, source: int, target: int, length_ns: int) -> None:
        """Let nothing through for ``length_ns``; streams that wait longer than the keepalive break."""
        link, now = (source, target), self._clock.now_ns
        if not self.is_cut(source, target):
            self._cut_at[link] = now
        self._cut[link] = max(self._cut.get(link, 0), now + length_ns)
        self._clock.after(KEEPALIVE_NS, lambda: self._give_up(link))
        self._clock.at(self._cut[link], lambda: self._heal(link))

    def _give_up(self, link: tuple[int, int]) -> None:
        if self.is_cut(*link) and self._clock.now_ns - self._cut_at[link] >= KEEPALIVE_NS:
            self.reset(*link)

    def _heal(self, link: tuple[int, int]) -> None:
        if self.is_cut(*link):
            return
        for near in self._streams:
            for reader, pipe in ((near.other, near._out), (near, near._in)):
                if (pipe.source, pipe.target) == link:
                    self._arm(reader, pipe)

    def reset(self, a: int, b: int) -> None:
        """Break every stream between two processes."""
        for near in [end for end in self._streams if {end._out.source, end._out.target} == {a, b}]:
            self.break_stream(near)

    def stick(self, a: int, b: int) -> None:
        """Every stream between two processes stays open and takes nothing more, as that of a peer that hangs."""
        for end in self._streams:
            if {end._out.source, end._out.target} == {a, b}:
                end.stuck = end.other.stuck = True

    def reset_host(self, host: Host) -> None:
        """A process died: the kernel ends its streams."""
        for near in [end for end in self._streams if host in (end.host, end.other.host)]:
            self.break_stream(near)

    def copied_ns(self, source: int, target: int) -> int | None:
        """How much later this frame arrives a second time; None: not at all."""
        if self.copies.get((source, target), 0) <= self._clock.now_ns:
            return None
        return self._chance.choice([0, self._chance.randint(0, SECOND // 50), self._chance.randint(0, SECOND)])

    def unread(self) -> list[tuple[int, int, int]]:
        """(source, target, messages on their way or unread) of every open stream's directions."""
        return [(p.source, p.target, p.unread) for end in self._streams for p in (end._out, end._in)]
