"""TCP packets of a byte stream that was relayed, not captured: correct headers and checksums, so that every tool reads
them.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import Literal

import numpy as np

from dpgt_node.values import dataclass

Side = Literal["client", "server"]
SEGMENT_BYTES = 65_160
"""Payload of the largest packet: below the 65,535 bytes that an IP packet may have."""
_FIN, _SYN, _RST, _PSH, _ACK = 0x01, 0x02, 0x04, 0x08, 0x10
_WINDOW = 65_535
_MAX_SEQUENCE = 1 << 32
_OTHER: dict[Side, Side] = {"client": "server", "server": "client"}
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An IP address (v4 or v6, the same at both ends) and a port."""

    ip: str
    port: int


class Conversation:
    """One connection, told as IP packets (no link layer): each method yields those that it takes.

    Sequence numbers start at 0 and run on modulo 2**32; what was yielded counts as acknowledged at once.
    """

    def __init__(self, client: Endpoint, server: Endpoint) -> None:
        self._ends: dict[Side, tuple[_Address, int]] = {
            "client": (ipaddress.ip_address(client.ip), client.port),
            "server": (ipaddress.ip_address(server.ip), server.port),
        }
        self._next: dict[Side, int] = {"client": 0, "server": 0}
        self._identification = 0

    def opened(self) -> Iterator[bytes]:
        yield self._packet("client", _SYN, advance=1)
        yield self._packet("server", _SYN | _ACK, advance=1)
        yield self._packet("client", _ACK)

    def refused(self) -> Iterator[bytes]:
        yield self._packet("client", _SYN, advance=1)
        yield self._packet("server", _RST | _ACK)

    def said(self, side: Side, data: bytes | memoryview) -> Iterator[bytes]:
        view = memoryview(data)
        for start in range(0, view.nbytes, SEGMENT_BYTES):
            part = view[start : start + SEGMENT_BYTES]
            yield self._packet(side, _PSH | _ACK, part, advance=part.nbytes)

    def closed(self, side: Side) -> Iterator[bytes]:
        yield self._packet(side, _FIN | _ACK, advance=1)
        yield self._packet(_OTHER[side], _ACK)

    def reset(self, side: Side) -> Iterator[bytes]:
        yield self._packet(side, _RST | _ACK)

    def _packet(self, side: Side, flags: int, payload: bytes | memoryview = b"", *, advance: int = 0) -> bytes:
        (source, source_port), (target, target_port) = self._ends[side], self._ends[_OTHER[side]]
        sequence, acknowledged = self._next[side], self._next[_OTHER[side]] if flags & _ACK else 0
        self._next[side] = (sequence + advance) % _MAX_SEQUENCE
        ports = (source_port, target_port)
        tcp = struct.pack(">HHIIBBHHH", *ports, sequence, acknowledged, 5 << 4, flags, _WINDOW, 0, 0)
        size = len(tcp) + len(payload)
        pseudo = source.packed + target.packed + struct.pack(">II", size, 6)
        checksum = internet_checksum(pseudo + tcp, payload)
        return b"".join((self._ip(source, target, size), tcp[:16], struct.pack(">H", checksum), tcp[18:], payload))

    def _ip(self, source: _Address, target: _Address, size: int) -> bytes:
        if source.version == 6:
            return struct.pack(">IHBB", 6 << 28, size, 6, 64) + source.packed + target.packed
        self._identification = (self._identification + 1) % 65_536
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, self._identification, 0x4000, 64, 6, 0)
        checksum = internet_checksum(head + source.packed + target.packed)
        return head[:10] + struct.pack(">H", checksum) + source.packed + target.packed


def internet_checksum(head: bytes, payload: bytes | memoryview = b"") -> int:
    """The one's complement sum of RFC 1071 over ``head`` (of even length) and ``payload``."""
    view = memoryview(payload)
    even = view.nbytes & ~1
    total = int(np.frombuffer(head, dtype=">u2").sum(dtype=np.uint64))
    total += int(np.frombuffer(view[:even], dtype=">u2").sum(dtype=np.uint64))
    if even < view.nbytes:
        total += view[even] << 8
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
