"""An agent's stream to the coordinator: registration, the barrier's messages, heartbeats, and coming back after a
break.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from dpgt_node.errors import PeerError, PeerLost
from dpgt_node.protocol import messages as m
from dpgt_node.runtime.agent.backoff import Backoff
from dpgt_node.runtime.clock import HEARTBEAT_S, AwakeClock
from dpgt_node.runtime.trust.channels import Opened
from dpgt_node.wire import services

log = logging.getLogger(__name__)

_FINAL = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED"})
"""Statuses that another attempt cannot cure."""


class Uplink:
    """Join, kept open.

    ``register()`` is called for each attempt and says what the agent holds then.  ``received`` gets every message
    but heartbeats, of which one is sent every ``heartbeat_s``.
    ``patience_s``: how long nothing may be heard of the coordinator before :class:`PeerError` (never registered) or
    :class:`PeerLost` (it was there before).
    """

    def __init__(
        self,
        open_channel: Callable[[], Opened],
        address: str,
        name: str,
        register: Callable[[], m.Register],
        received: Callable[[m.CoordinatorMessage], None],
        *,
        first_patience_s: float,
        patience_s: float,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._open_channel = open_channel
        self._address = address
        self._name = name
        self._register = register
        self._received = received
        self._first_patience_s = first_patience_s
        self._patience_s = patience_s
        self._queue: deque[m.AgentMessage] = deque()
        self._wake = asyncio.Event()
        self._admitted = asyncio.Event()
        self._welcomed = False
        self._heartbeat_s = heartbeat_s
        self._clock = AwakeClock(2 * heartbeat_s)
        self._heard_s = self._clock.now_s()

    def send(self, message: m.AgentMessage, *, first: bool = False) -> None:
        """Queue a message, ``first``: before all others.  What is queued when the stream breaks is dropped, because
        Register says it all again.
        """
        if first:
            self._queue.appendleft(message)
        else:
            self._queue.append(message)
        self._wake.set()

    async def drain(self, timeout_s: float) -> None:
        """Wait until everything queued was handed to gRPC, at most ``timeout_s``."""
        end = time.monotonic() + timeout_s
        while self._queue and time.monotonic() < end:
            await asyncio.sleep(0.01)

    async def run(self) -> None:
        """Keep the stream open until cancelled.  Raises PeerError when the coordinator refuses or stays away."""
        backoff = Backoff()
        self._heard_s = self._clock.now_s()
        while True:
            try:
                await self._once()
                error = PeerError("the coordinator closed the stream", grpc_status="UNAVAILABLE")
            except PeerError as failure:
                error = failure
            if error.grpc_status in _FINAL:
                raise error
            if self._was_connected:
                backoff.reset()
            if self._clock.now_s() - self._heard_s > self._patience():
                kind = PeerLost if self._welcomed else PeerError
                raise kind(f"no coordinator at {self._address} for {self._patience():g} s: {error}")
            backoff.note(log, f"coordinator at {self._address}", error)
            await backoff.wait()

    def _patience(self) -> float:
        return self._patience_s if self._welcomed else self._first_patience_s

    async def _once(self) -> None:
        self._was_connected = False
        self._queue.clear()
        self._admitted.clear()
        async with self._open_channel() as channel:
            call = services.join(channel, self._name)
            jobs = [asyncio.ensure_future(job) for job in (self._read(call), self._write(call), self._beat())]
            try:
                await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for job in jobs:
                    job.cancel()
                results = await asyncio.gather(*jobs, return_exceptions=True)
                call.cancel()
            for result in results:  # the reader's error comes first: it carries the coordinator's reason
                if isinstance(result, Exception):
                    raise result

    async def _read(self, call: services.ClientStream[m.AgentMessage, m.CoordinatorMessage]) -> None:
        while (message := await call.read()) is not None:
            self._was_connected = True
            self._heard_s = self._clock.now_s()
            if isinstance(message, m.Welcome):
                self._welcomed = True
            if not isinstance(message, m.Heartbeat):
                self._received(message)
            if isinstance(message, m.Welcome):
                self._admitted.set()

    async def _write(self, call: services.ClientStream[m.AgentMessage, m.CoordinatorMessage]) -> None:
        await call.write(self._register())
        # A report of what came after Register must not be read before it: the coordinator would see an agent that
        # forgot a round.
        await self._admitted.wait()
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            await call.write(self._queue.popleft())

    async def _beat(self) -> None:
        """Say that this agent lives, and give the stream up when the coordinator does not: a hung one keeps it open.

        A new stream is tried for the second half of the patience.
        """
        opened_s = self._clock.now_s()
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if not self._queue:  # else what waits there is the sign of life
                self.send(m.Heartbeat())
            silent_s = self._clock.now_s() - max(self._heard_s, opened_s)
            if silent_s > self._patience() / 2:
                raise PeerError(f"no sign of life for {silent_s:.1f} s", grpc_status="UNAVAILABLE")
