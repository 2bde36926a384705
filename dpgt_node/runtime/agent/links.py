"""The sender's side of one edge: a stream to one out-neighbour, reopened for as long as the run lasts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dpgt_node.errors import PeerError, PeerLost
from dpgt_node.protocol.messages import ExchangeReply, Received, Resume
from dpgt_node.protocol.types import AgentEvent, Payload, PeerGone, PeerNeeds
from dpgt_node.runtime.agent.backoff import Backoff
from dpgt_node.runtime.trust.channels import Opened
from dpgt_node.runtime.trust.probe import Untrusted
from dpgt_node.types import Stream
from dpgt_node.wire import codec, services

log = logging.getLogger(__name__)

Call = services.ClientStream[bytes, ExchangeReply]


@dataclass(frozen=True, slots=True)
class _Stored:
    """Payloads of round ``k`` that are in the store."""

    k: int
    streams: tuple[Stream, ...]


class Link:
    """Sends to ``peer`` (0-based index ``index``) what the machine queues, in order.

    ``read(k)`` gives the stored payloads of round k.  The queue is bounded by the barrier: the machine queues one
    entry a round, and only while the peer is connected.

    ``silence_s``: a peer that does not answer for so long, or takes no byte of what is waiting, is dialled anew.
    A peer that is away is waited for.  One that is there but not believed, or does not believe this agent, for
    ``patience_s`` without a break is :class:`PeerLost`.
    """

    def __init__(
        self,
        index: int,
        peer: str,
        own_name: str,
        run_id: bytes,
        open_channel: Callable[[str], Opened],
        feed: Callable[[AgentEvent], None],
        read: Callable[[int], Awaitable[tuple[Payload, ...]]],
        *,
        patience_s: float = float("inf"),
        silence_s: float = 60.0,
    ) -> None:
        self._index = index
        self._peer = peer
        self._own_name = own_name
        self._run_id = run_id
        self._open_channel = open_channel
        self._feed = feed
        self._read = read
        self._patience_s = patience_s
        self._silence_s = silence_s
        self._distrust_since: float | None = None
        self._unsent_since: float | None = None
        self._queue: deque[tuple[Payload, ...] | _Stored] = deque()
        self._wake = asyncio.Event()
        self._address: str | None = None
        self._moved = asyncio.Event()
        self.bytes_sent = 0
        self.acknowledged = -1
        self.down_since_ns: int | None = None
        """When the stream ended, or was first dialled; None before that and while it is open."""
        self.trouble = "not connected yet"
        """Why it is down."""

    def dial(self, address: str) -> None:
        """Where the peer listens now; a changed address ends the stream to the old one."""
        if self._address is None:
            self.down_since_ns = time.monotonic_ns()
        if address != self._address:
            self._address = address
            self._moved.set()

    def send(self, payloads: tuple[Payload, ...]) -> None:
        """Queue the payloads of one fresh round."""
        self._queue.append(payloads)
        self._wake.set()

    def resend(self, k: int, streams: tuple[Stream, ...]) -> None:
        """Queue round ``k`` again; its bytes are read from the store when their turn comes."""
        self._queue.append(_Stored(k, streams))
        self._wake.set()

    async def run(self) -> None:
        """Keep the stream open until cancelled."""
        backoff = Backoff()
        while True:
            await self._moved.wait()
            self._moved.clear()
            while not self._moved.is_set():
                try:
                    await self._once(backoff)
                except PeerError as error:
                    self.trouble = str(error) or error.grpc_status
                    backoff.note(log, f"stream to {self._peer} at {self._address}", error)
                    self._bear(error)
                finally:
                    self._queue.clear()
                    if self.down_since_ns is None:
                        self.down_since_ns = time.monotonic_ns()
                    self._feed(PeerGone(self._index))
                await backoff.wait()

    def _bear(self, error: PeerError) -> None:
        if not isinstance(error, Untrusted) and error.grpc_status not in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
            return
        now = time.monotonic()
        if self._distrust_since is None:
            self._distrust_since = now
        if now - self._distrust_since > self._patience_s:
            raise PeerLost(f"no trust between here and {self._peer} for {self._patience_s:g} s: {error}") from error

    async def _once(self, backoff: Backoff) -> None:
        assert self._address is not None
        async with self._open_channel(self._address) as channel:
            call = services.exchange(channel, self._own_name)
            try:
                first = await self._answer(call)
                if not isinstance(first, Resume):
                    raise PeerError(f"{self._peer} did not say where to go on")
                if first.run_id != self._run_id or first.receiver != self._peer:
                    raise PeerError(f"{self._address} answers as {first.receiver!r}, or for another run")
                backoff.reset()
                self._distrust_since = None
                self.down_since_ns = None
                self._feed(PeerNeeds(self._index, first.x_from, first.y_from, first.mixed_before))
                await self._pump(call)
            finally:
                call.cancel()

    async def _answer(self, call: Call) -> ExchangeReply | None:
        try:
            async with asyncio.timeout(self._silence_s):
                return await call.read()
        except TimeoutError as error:
            raise PeerError(f"no answer for {self._silence_s:g} s", grpc_status="UNAVAILABLE") from error

    async def _watch(self) -> None:
        """Ends the stream when what waits to be sent has not moved by a byte for too long."""
        while True:
            await asyncio.sleep(min(1.0, self._silence_s / 8))
            if self._unsent_since is not None and time.monotonic() - self._unsent_since > self._silence_s:
                raise PeerError(f"{self._peer} took no byte for {self._silence_s:g} s", grpc_status="UNAVAILABLE")

    async def _pump(self, call: Call) -> None:
        """Write and read until the stream ends or the peer's address changes."""
        self._unsent_since = None
        jobs = (self._read_replies(call), self._write(call), self._moved.wait(), self._watch())
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _read_replies(self, call: Call) -> None:
        while True:
            reply = await call.read()
            if not isinstance(reply, Received):
                raise PeerError(f"{self._peer} ended the stream")
            self.acknowledged = max(self.acknowledged, reply.round_through)

    async def _write(self, call: Call) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            item = self._queue.popleft()
            if isinstance(item, _Stored):
                stored = await self._read(item.k)
                item = tuple(p for p in stored if p.stream in item.streams)
            for frame in codec.encode_vectors(self._run_id, self._own_name, item):
                self._unsent_since = time.monotonic()
                await call.write(frame)
                self._unsent_since = None
                self.bytes_sent += len(frame)
