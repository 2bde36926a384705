"""Uploads private states to the coordinator in study runs.  Nothing of this exists in local runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import grpc.aio

from dpgt_node.errors import PeerError
from dpgt_node.protocol.clock import SECOND, Backoff
from dpgt_node.runtime.trust.channels import Opened
from dpgt_node.types import F64
from dpgt_node.wire import codec, services

log = logging.getLogger(__name__)

QUEUE_BYTES = 64 << 20
"""Of states that wait for a coordinator that takes them more slowly than rounds are made."""
_TRY_AGAIN = frozenset({"UNAVAILABLE", "CANCELLED", "FAILED_PRECONDITION"})
"""The coordinator is away, or back and still gathering; how long that may last is the session's to judge."""


class StudyUploader:
    """``put`` queues x_{i,k}; one Upload call at a time carries whatever is queued, again until it was taken.

    ``taken()`` is called when nothing waits any more, ``failed`` with what no other attempt can cure.
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
        self._waiting: dict[int, F64] = {}
        self._dropped = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def put(self, k: int, x: F64) -> None:
        """Queue x_{i,k}, float64 (d,); again: a coordinator that came back may lack it.

        Above QUEUE_BYTES the oldest is dropped: its row of metrics.csv has no consensus error then, and that is logged.
        """
        self._waiting[k] = x
        while len(self._waiting) > 1 and sum(v.nbytes for v in self._waiting.values()) > QUEUE_BYTES:
            oldest = min(self._waiting)  # never the last of a run, which is x_final
            del self._waiting[oldest]
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

    async def cancel(self) -> None:
        """Drop what is queued."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            await self._wake.wait()
            try:
                async with self._open_channel() as channel:
                    await self._upload(channel, backoff)
            except PeerError as error:
                if error.grpc_status not in _TRY_AGAIN:
                    raise
                if backoff.news(cause := str(error) or error.grpc_status):
                    log.warning("upload of study vectors: %s (trying again)", cause)
                await asyncio.sleep(backoff.next_ns() / SECOND)

    async def _upload(self, channel: grpc.aio.Channel, backoff: Backoff) -> None:
        while True:
            await self._wake.wait()
            batch = tuple(sorted(self._waiting.items(), key=lambda item: item[0]))  # a call's rounds rise
            reply = await services.upload(channel, self._name, self._frames(batch), timeout_s=None)
            if reply.vectors != len(batch):
                message = f"the coordinator took {reply.vectors} of {len(batch)} study vectors"
                raise PeerError(message, grpc_status="DATA_LOSS")
            backoff.worked(SECOND)
            for k, x in batch:
                if self._waiting.get(k) is x:
                    del self._waiting[k]
            if not self._waiting:
                self._wake.clear()
                self._taken()

    def _frames(self, batch: tuple[tuple[int, F64], ...]) -> Iterator[bytes]:
        for k, x in batch:
            yield from codec.encode_vectors(self._run_id, self._name, [codec.study_payload(k, x)], study=True)
