"""Uploads private states to the coordinator in study runs.  Nothing of this exists in local runs."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

import grpc.aio

from dpgt_node.errors import PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.clock import SECOND, Backoff
from dpgt_node.runtime.trust.channels import Opened
from dpgt_node.types import F64
from dpgt_node.wire import codec, services

log = logging.getLogger(__name__)

QUEUE_BYTES = 64 << 20
"""Of states that wait for a coordinator that takes them more slowly than rounds are made."""
FAREWELL_S = 1.0
"""So long the coordinator may take to end a call over which nothing is under way."""
_TRY_AGAIN = frozenset({"UNAVAILABLE", "CANCELLED", "FAILED_PRECONDITION"})
"""The coordinator is away, or back and still gathering; how long that may last is the session's to judge."""

_State = tuple[int, F64]
"""k and x_{i,k}; another object for each time that it was queued."""


class StudyUploader:
    """``put`` queues x_{i,k}; one Upload call carries what is queued and what comes later, for as long as it lasts.

    A state waits until the coordinator said that it took it.  A call that broke is opened again when something waits,
    and carries exactly that.  ``taken()`` is called when nothing waits any more, ``failed`` with what no other attempt
    can cure.
    """

    def __init__(
        self,
        open_channel: Callable[[], Opened],
        run_id: bytes,
        name: str,
        taken: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._open_channel = open_channel
        self._run_id = run_id
        self._name = name
        self._taken = taken
        self._failed = failed
        self._waiting: dict[int, _State] = {}
        self._bytes = self._dropped = 0
        self._unsent: dict[int, _State] = {}
        """Those of the waiting that are not under way over the open call."""
        self._wake = asyncio.Event()
        self._leaving = False
        self._task: asyncio.Task[None] | None = None

    def put(self, k: int, x: F64) -> None:
        """Queue x_{i,k}, float64 (d,); again: a coordinator that came back may lack it.

        Above QUEUE_BYTES the oldest is dropped: its row of metrics.csv has no consensus error then, and that is logged.
        """
        self._forget(k)
        self._waiting[k] = self._unsent[k] = (k, x)
        self._bytes += x.nbytes
        while len(self._waiting) > 1 and self._bytes > QUEUE_BYTES:
            oldest = min(self._waiting)  # never the last of a run, which is x_final
            self._forget(oldest)
            self._dropped += 1
            if self._dropped == 1:
                log.warning(
                    "the coordinator takes study states more slowly than rounds are made: the oldest are dropped, from "
                    "round %d on, and metrics.csv has no consensus error for them",
                    oldest,
                )
        self._wake.set()
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(self._ended)

    def _forget(self, k: int) -> None:
        self._unsent.pop(k, None)
        if (state := self._waiting.pop(k, None)) is not None:
            self._bytes -= state[1].nbytes

    async def close(self) -> None:
        """End the call in order if everything was taken; else drop it, with what is queued."""
        if self._task is None:
            return
        self._leaving = True
        self._wake.set()
        if not self._waiting:
            await asyncio.wait((self._task,), timeout=FAREWELL_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def _run(self) -> None:
        backoff = Backoff()
        while await self._more():
            try:
                async with self._open_channel() as channel:
                    while await self._more():
                        await self._call(channel, backoff)
            except PeerError as error:
                if not self._waiting:
                    continue  # whatever it is, the next state meets it or does not
                if error.grpc_status not in _TRY_AGAIN:
                    raise
                if backoff.news(cause := str(error) or error.grpc_status):
                    log.warning("upload of study vectors: %s (trying again)", cause)
                await asyncio.sleep(backoff.next_ns() / SECOND)

    async def _more(self) -> bool:
        """Wait until something waits; False: this process leaves."""
        while not (self._waiting or self._leaving):
            self._wake.clear()
            await self._wake.wait()
        return not self._leaving

    async def _call(self, channel: grpc.aio.Channel, backoff: Backoff) -> None:
        """One call.  It ends in order when this process leaves, or with a state that is not the next of the call."""
        stream = services.upload(channel, self._name)
        self._unsent = dict(self._waiting)
        under_way: deque[_State] = deque()
        reader = asyncio.ensure_future(self._read(stream, under_way, backoff))
        reader.add_done_callback(lambda _: self._wake.set())
        try:
            try:
                await self._write(stream, under_way, reader)
                await stream.done_writing()
            except PeerError:
                await reader  # the call is over: it knows better why, and what was taken
                raise
            await reader
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            stream.cancel()

    async def _write(
        self, stream: services.ClientStream[bytes, m.UploadReply], under_way: deque[_State], reader: asyncio.Task[None]
    ) -> None:
        last = -1
        while not (reader.done() or self._leaving):
            self._wake.clear()
            for k in sorted(self._unsent):
                if k <= last or reader.done():
                    return  # a call's rounds rise
                if (state := self._unsent.pop(k, None)) is None:
                    continue  # dropped meanwhile
                last = k
                under_way.append(state)
                for frame in self._frames(state):
                    await stream.write(frame)
            if not self._unsent:
                await self._wake.wait()

    async def _read(
        self, stream: services.ClientStream[bytes, m.UploadReply], under_way: deque[_State], backoff: Backoff
    ) -> None:
        taken = 0
        while (reply := await stream.read()) is not None:
            sent = taken + len(under_way)
            if not taken < reply.vectors <= sent:
                message = f"the coordinator says that it took {reply.vectors} of {sent} study vectors, after {taken}"
                raise PeerError(message, grpc_status="DATA_LOSS")
            backoff.worked(SECOND)
            while taken < reply.vectors:
                taken += 1
                state = under_way.popleft()
                if self._waiting.get(state[0]) is state:
                    self._forget(state[0])
            if not self._waiting:
                self._taken()
        if under_way:
            message = f"the coordinator took {taken} of {taken + len(under_way)} study vectors"
            raise PeerError(message, grpc_status="DATA_LOSS")

    def _frames(self, state: _State) -> Iterable[bytes]:
        return codec.encode_vectors(self._run_id, self._name, [codec.study_payload(*state)], study=True)
