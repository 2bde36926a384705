"""Carries out what machines ask of calls (``protocol.calls``) over gRPC streams, for both daemons."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from dpgt_node.errors import PeerError
from dpgt_node.protocol import calls as c
from dpgt_node.runtime.pacing import Ticks

log = logging.getLogger(__name__)

FLUSH_S = 2.0
"""How long the last words into a call that ends in order may take."""


class Stream(Protocol):
    """One gRPC call from either side."""

    async def read(self) -> Any:
        """The next message; None at the end.  PeerError when the call broke."""
        ...

    async def write(self, message: Any) -> None:
        """Hand a message to gRPC, waiting for flow control.  PeerError when the call is over."""
        ...


class Framing:
    """How the messages of one call become what gRPC carries; here each is one that ``wire.services`` encodes."""

    def encode(self, message: Any) -> Iterable[Any]:
        """What is written for ``message``, one after another."""
        return (message,)

    def held_s(self, message: Any) -> float:
        """Seconds to wait before ``message`` is written."""
        return 0.0

    def decode(self, frame: Any) -> object:
        """What was read.  PeerError when it is not acceptable."""
        return frame

    def finish(self) -> str | None:
        """At the end of the call: what was left incomplete, None for nothing."""
        return None


class _Line:
    """One call while it is open.  ``over`` is done when the machine ended it, with what the peer is told."""

    __slots__ = ("call", "framing", "held", "out", "over", "task", "wakes")

    def __init__(self, call: c.Call, framing: Framing) -> None:
        self.call = call
        self.framing = framing
        self.out: deque[Any] = deque()
        self.wakes: asyncio.Future[None] | None = None
        """What the writer waits for, while it does."""
        self.held: asyncio.Event | None = None
        """What the reader waits for, while it may not read on."""
        self.over: asyncio.Future[PeerError | None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[Any] | None = None

    async def may_read_on(self) -> None:
        """Return once nothing holds the reader."""
        while self.held is not None:
            await self.held.wait()

    def wake(self) -> None:
        """Let the writer look whether there is something to write, or the call is over."""
        if self.wakes is not None and not self.wakes.done():
            self.wakes.set_result(None)


def _bare(error: PeerError) -> PeerError:
    """``error`` without its traceback, which would keep the call, and so its channel, until garbage is collected: and
    a channel that nobody uses goes on connecting, once a second each.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


class Calls:
    """Every open call of a process.

    ``dial`` opens a stream to a call's peer at an address.  ``framing`` is asked once a call.  ``feed`` takes what
    happens, ``broken`` what no peer can be blamed for.  ``ticks``: when messages leave, None: when they are there.
    """

    def __init__(
        self,
        name: str,
        feed: Callable[[Any], None],
        broken: Callable[[BaseException], None],
        dial: Callable[[c.Call, str], AbstractAsyncContextManager[Stream]] | None = None,
        framing: Callable[[c.Call], Framing] = lambda _: Framing(),
        ticks: Ticks | None = None,
    ) -> None:
        self._ticks = ticks
        self._name = name
        self._feed = feed
        self._broken = broken
        self._dial = dial
        self._framing = framing
        self._lines: dict[c.Call, _Line] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._accepted = 0
        self._closing = False

    def carry_out(self, effect: c.CallEffect) -> None:
        """Do one effect.  What concerns a call that is over is dropped: the machine hears of its end."""
        if isinstance(effect, c.Dial):
            self._open(effect)
            return
        line = self._lines.get(effect.call)
        if line is None:
            return
        match effect:
            case c.Write():
                line.out.append(effect.message)
                line.wake()
            case c.Hold():
                line.held = line.held or asyncio.Event()
            case c.ReadOn():
                if line.held is not None:
                    line.held.set()
                    line.held = None
            case c.End():
                self._end(line, effect.error)

    async def accept(self, peer: str, stream: Stream, address: str) -> None:
        """Serve a call that ``peer`` opened, until it is over.  PeerError: what the peer is to be told."""
        if self._closing:
            raise PeerError(f"{self._name} is leaving", grpc_status="UNAVAILABLE")
        self._accepted += 1
        call = c.Call(peer, self._accepted, dialled=False)
        line = self._lines[call] = _Line(call, self._framing(call))
        line.task = asyncio.current_task()
        assert line.task is not None
        self._tasks.add(line.task)
        error: PeerError | None = None
        try:
            await self._carry(line, stream, c.Accepted(call, address))
        except PeerError as caught:
            error = caught
            raise
        except asyncio.CancelledError:
            pass  # the server stops, or the peer's connection broke: the call is over either way
        except BaseException as bug:
            self._broken(bug)
            raise
        finally:
            self._tasks.discard(line.task)
            self._ended(line, error)

    async def close(self, timeout_s: float) -> None:
        """End every call and take no new one; wait until they are over, at most ``timeout_s``."""
        self._closing = True
        for line in tuple(self._lines.values()):
            self._end(line, None)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()

    # --- one call -----------------------------------------------------------------------------------------------

    def _open(self, effect: c.Dial) -> None:
        line = self._lines[effect.call] = _Line(effect.call, self._framing(effect.call))
        line.task = asyncio.ensure_future(self._dialled(line, effect.address))
        self._tasks.add(line.task)
        line.task.add_done_callback(self._tasks.discard)

    async def _dialled(self, line: _Line, address: str) -> None:
        assert self._dial is not None
        error: PeerError | None = None
        try:
            async with self._dial(line.call, address) as stream:
                await self._carry(line, stream, c.Opened(line.call))
        except PeerError as caught:
            error = _bare(caught)
        except asyncio.CancelledError:
            raise
        except BaseException as bug:
            self._broken(bug)
            raise
        self._ended(line, error)

    def _end(self, line: _Line, error: PeerError | None) -> None:
        del self._lines[line.call]
        line.over.set_result(error)
        line.wake()
        if line.call.dialled:
            assert line.task is not None
            line.task.cancel()

    def _ended(self, line: _Line, error: PeerError | None) -> None:
        if self._lines.get(line.call) is line:
            del self._lines[line.call]
            self._feed(c.Ended(line.call, error))

    async def _carry(self, line: _Line, stream: Stream, begin: object) -> None:
        """Write and read until one of them, or the machine, ends it."""
        self._feed(begin)
        reader = asyncio.ensure_future(self._read(line, stream))
        writer = asyncio.ensure_future(self._write(line, stream))
        try:
            await asyncio.wait((reader, writer, line.over), return_when=asyncio.FIRST_COMPLETED)
            if line.over.done():
                if (told := line.over.result()) is not None:
                    raise told
                await asyncio.wait((writer,), timeout=FLUSH_S)
        finally:
            reader.cancel()
            writer.cancel()
            results = await asyncio.gather(reader, writer, return_exceptions=True)
        # The reader's error comes first: it carries the peer's reason.
        error = next((result for result in results if isinstance(result, Exception)), None)
        del results, reader, writer
        try:
            if error is not None:
                raise error
        finally:
            del error  # with its traceback it would hold this frame, and this frame it

    async def _read(self, line: _Line, stream: Stream) -> None:
        call, framing = line.call, line.framing
        while True:
            if line.held is not None:
                await line.may_read_on()
            frame = await stream.read()
            if frame is None:
                break
            if line.held is not None:
                await line.may_read_on()
            if line.over.done():  # before it is decoded: what a call left incomplete may be the next one's already
                return
            message = framing.decode(frame)
            self._feed(c.Heard(call, message))
        if (what := framing.finish()) is not None:
            log.warning("the stream of %s broke: %s", call.peer, what)

    async def _write(self, line: _Line, stream: Stream) -> None:
        call, out, leaving, loop = line.call, line.out, 0, asyncio.get_running_loop()
        plain = type(line.framing) is Framing
        while True:
            while not out:
                if line.over.done():
                    return
                line.wakes = loop.create_future()
                await line.wakes
            if self._ticks is not None and not leaving:
                await self._ticks.next()
                leaving = len(out)
            leaving -= 1
            message = out.popleft()
            if plain:
                await stream.write(message)
                if not line.over.done():
                    self._feed(c.Taken(call, 0, len(out)))
                continue
            if (held_s := line.framing.held_s(message)) > 0.0:
                await asyncio.sleep(held_s)
            frames = iter(line.framing.encode(message))
            frame = next(frames, None)
            while frame is not None:
                await stream.write(frame)
                nbytes = len(frame) if isinstance(frame, bytes) else 0
                frame = next(frames, None)
                if not line.over.done():
                    self._feed(c.Taken(call, nbytes, len(out) + (frame is not None)))
