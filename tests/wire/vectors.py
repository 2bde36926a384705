"""Payloads, gates and frames for the tests of the codec."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable

import grpc.aio
import numpy as np

from dpgt_node.protocol import messages as m
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Stream, WireDtype
from dpgt_node.wire import services
from dpgt_node.wire.codec import Gate, Reassembler
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2

RUN_ID = bytes(range(16))
SENDER = "agent-1"
LARGE = 300_000  # float64 coordinates: 2.4 MB, three chunks


def payload(stream: Stream, k: int, d: int, dtype: WireDtype = "float64", seed: int = 0) -> Payload:
    values = np.random.default_rng([seed, k, stream == "Y"]).normal(size=d)
    data = values.astype("<f8" if dtype == "float64" else "<f4").tobytes()
    return Payload(stream, k, dtype, d, data, hashlib.sha256(data).digest())


def gate(
    d: int,
    dtype: WireDtype = "float64",
    streams: Iterable[Stream] = ("X", "Y"),
    window: tuple[int, int] = (0, 10),
    study: bool = False,
) -> Gate:
    return Gate(RUN_ID, SENDER, frozenset(streams), dtype, d, lambda _: window, study)


def feed_all(reassembler: Reassembler, frames: Iterable[bytes | memoryview]) -> list[Payload]:
    return [payload for frame in frames for payload in reassembler.feed(frame)]


def edited(frame: bytes, edit: Callable[[agent_pb2.Vector], None], index: int = 0) -> bytes:
    """``frame`` with one of its vectors changed."""
    message = agent_pb2.Frame.FromString(frame)
    edit(message.vectors[index])
    return message.SerializeToString()


def with_data(data: bytes) -> Callable[[agent_pb2.Vector], None]:
    """An edit: other values, and the hash that matches them."""

    def edit(vector: agent_pb2.Vector) -> None:
        vector.data = data
        vector.sha256 = hashlib.sha256(data).digest()

    return edit


def chunk(data: bytes) -> bytes:
    """A chunk frame as the protobuf runtime writes it: independent of the codec's own hand."""
    return agent_pb2.Frame(chunk=data).SerializeToString()


async def uploaded(channel: grpc.aio.Channel, name: str, frames: Iterable[bytes]) -> list[int]:
    """Give ``frames`` to the coordinator over a call of their own: what it said that it took, one reply after another.

    PeerError: how it ended otherwise.
    """
    async with asyncio.timeout(20):
        call = services.upload(channel, name)
        for frame in frames:
            await call.write(frame)
        await call.done_writing()
        replies: list[int] = []
        while isinstance(reply := await call.read(), m.UploadReply):
            replies.append(reply.vectors)
        return replies
