"""Bytes that a reader of protobuf drops: field 100 of the messages that may be padded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dpgt_node.config import RunConfig
from dpgt_node.wire.fields import varint

M = TypeVar("M")
_TAG = varint(100 << 3 | 2)
LEAST = len(_TAG) + 1
"""No padding is shorter, but none."""


def padding(nbytes: int) -> bytes:
    """Exactly ``nbytes``: 0, or at least ``LEAST``.  Behind a serialised message they are part of it."""
    if not nbytes:
        return b""
    for width in (1, 2, 3, 4):
        zeros = nbytes - len(_TAG) - width
        if zeros >= 0 and len(size := varint(zeros)) == width:
            return b"".join((_TAG, size, bytes(zeros)))
    if nbytes < 2 * LEAST:
        raise ValueError(f"no padding has {nbytes} bytes")
    return padding(LEAST) + padding(nbytes - LEAST)  # where the length itself would grow: in two pieces


def padded(data: bytes, nbytes: int) -> bytes:
    """The message ``data`` as one of ``nbytes``."""
    return data + padding(nbytes - len(data))


def in_units(encode: Callable[[M], bytes], unit: int) -> Callable[[M], bytes]:
    """``encode``, but every message is a multiple of ``unit`` bytes long; 0: as it is."""
    if not unit:
        return encode

    def whole(message: M) -> bytes:
        data = encode(message)
        return padded(data, -(-(len(data) + LEAST) // unit) * unit)

    return whole


def report_unit(run: RunConfig) -> int:
    """Of messages between agents and the coordinator: a Done with the digests of a full graph fits in; 0: none."""
    return 1 << (512 + 2 * 16 * (run.n + 1) - 1).bit_length() if run.traffic.alike else 0


def reply_unit(run: RunConfig) -> int:
    """Of replies on Exchange: a Resume with everything in it fits in; 0: none."""
    return 256 if run.traffic.alike else 0
