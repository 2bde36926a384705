"""Uploads private states to the coordinator in study runs.  Nothing of this exists in local runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc.aio

from dpgt_node.errors import PeerError
from dpgt_node.protocol.types import F64
from dpgt_node.wire import codec, services


class StudyUploader:
    """One long-lived Upload call; ``put`` queues x_{i,k}, ``finish`` ends the call and checks that all arrived."""

    def __init__(self, open_channel: Callable[[], grpc.aio.Channel], run_id: bytes, name: str) -> None:
        self._open_channel = open_channel
        self._run_id = run_id
        self._name = name
        self._queue: asyncio.Queue[tuple[int, F64] | None] = asyncio.Queue(maxsize=0)
        self._count = 0
        self._task: asyncio.Task[int] | None = None

    def put(self, k: int, x: F64) -> None:
        """Queue x_{i,k}, float64 (d,)."""
        self._count += 1
        self._queue.put_nowait((k, x))
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def finish(self) -> None:
        """Wait until the coordinator took everything.  PeerError when it did not."""
        if self._task is None:
            return
        self._queue.put_nowait(None)
        taken = await self._task
        if taken != self._count:
            raise PeerError(f"the coordinator took {taken} of {self._count} study vectors")

    def cancel(self) -> None:
        """Drop the call."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> int:
        async with self._open_channel() as channel:
            reply = await services.upload(channel, self._name, self._frames(), timeout_s=None)
            return reply.vectors

    async def _frames(self) -> AsyncIterator[bytes]:
        while (item := await self._queue.get()) is not None:
            for frame in codec.encode_vectors(self._run_id, self._name, [codec.study_payload(*item)], study=True):
                yield frame
