"""Capture files read the dumb way, as an oracle: every packet, every checksum, every byte of every direction."""

from __future__ import annotations

import socket
import struct
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

FIN, SYN, RST, ACK = 1, 2, 4, 16


@dataclass(frozen=True, slots=True)
class Segment:
    time_ns: int
    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    acknowledged: int
    flags: int
    payload: bytes
    sound: bool


def checksum(data: bytes) -> int:
    """0 for data that hold their own right checksum."""
    total = sum(struct.unpack(f">{len(data) // 2 + len(data) % 2}H", data + b"\0" * (len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def packets(path: Path) -> list[tuple[int, bytes]]:
    """(time, IP packet) of each record of a nanosecond pcap of raw IP or Ethernet."""
    data = path.read_bytes()
    magic, *_, link = struct.unpack_from("<IHHiIII", data)
    assert magic == 0xA1B23C4D
    found, at = [], 24
    while at < len(data):
        seconds, nanoseconds, kept, length = struct.unpack_from("<IIII", data, at)
        assert kept == length
        body = data[at + 16 : at + 16 + kept]
        assert len(body) == kept
        found.append((seconds * 10**9 + nanoseconds, body if link == 101 else body[14:]))
        at += 16 + kept
    return found


def segments(path: Path) -> list[Segment]:
    found = []
    for time_ns, packet in packets(path):
        if packet[0] >> 4 == 4:
            size, header, family = int.from_bytes(packet[2:4], "big"), (packet[0] & 15) * 4, socket.AF_INET
            source, target = packet[12:16], packet[16:20]
            sound = checksum(packet[:header]) == 0
        else:
            size, header, family = 40 + int.from_bytes(packet[4:6], "big"), 40, socket.AF_INET6
            source, target = packet[8:24], packet[24:40]
            sound = True
        tcp = packet[header:size]
        assert len(tcp) == size - header
        sound &= checksum(source + target + struct.pack(">II", len(tcp), 6) + tcp) == 0
        ports = struct.unpack_from(">HHIIBB", tcp)
        ends = [(socket.inet_ntop(family, ip), port) for ip, port in zip((source, target), ports, strict=False)]
        payload = tcp[(ports[4] >> 4) * 4 :]
        found.append(Segment(time_ns, ends[0], ends[1], ports[2], ports[3], ports[5], payload, sound))
    return found


def streams(found: list[Segment]) -> dict[tuple[tuple[str, int], tuple[str, int]], bytes]:
    """(from, to) -> what was said that way, by sequence number; every byte must be there, and alike if twice."""
    parts: dict[tuple[tuple[str, int], tuple[str, int]], list[tuple[int, bytes]]] = defaultdict(list)
    start: dict[tuple[tuple[str, int], tuple[str, int]], int] = {}
    for s in found:
        way = (s.source, s.target)
        if s.flags & SYN:
            start[way] = s.sequence + 1
        if s.payload:
            parts[way].append(((s.sequence - start[way]) % 2**32, s.payload))
    said = {}
    for way, pieces in parts.items():
        whole = bytearray()
        for at, payload in sorted(pieces):
            assert at <= len(whole), "bytes are missing"
            twice = min(len(whole) - at, len(payload))
            assert whole[at : at + twice] == payload[:twice], "two versions of one byte"
            whole += payload[twice:]
        said[way] = bytes(whole)
    return said
