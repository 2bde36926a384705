"""Wire traffic by hand: vectors of agents in HTTP/2 frames in TCP segments in packets."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dpgt_node.adversary.decode.decoder import Decoded, Decoder, Keep, decode
from dpgt_node.adversary.decode.packets import LINKTYPE_ETHERNET, Capture, PcapWriter
from dpgt_node.protocol.messages import Resume
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Stream, WireDtype
from dpgt_node.wire import convert
from dpgt_node.wire.codec import encode_vectors
from dpgt_node.wire.transcript import Seen, Transcript
from tests.fuzz.http2 import DATA, END_STREAM, HEADERS, PING, PREFACE, SETTINGS, WINDOW, frame, message, request

RUN = bytes(range(16))
EXCHANGE = b"/dpgt.v1.Agent/Exchange"


def payload(stream: Stream, k: int, d: int, dtype: WireDtype = "float32", seed: int = 0) -> Payload:
    rng = np.random.default_rng((seed, k, stream == "Y"))
    if dtype == "int8":  # codes that look like parts of headers
        data = rng.integers(-1, 2, size=d, dtype=np.int8).tobytes()
    else:
        data = rng.normal(size=d).astype("<f4" if dtype == "float32" else "<f8").tobytes()
    return Payload(stream, k, dtype, d, data, hashlib.sha256(data).digest())


@dataclass(frozen=True)
class Wire:
    """One packet: when, who sent it (0: the client), and which stream bytes it carries."""

    time_ns: int
    side: int
    start: int
    data: bytes
    packet: bytes


@dataclass
class Talk:
    """One TCP connection, IPv4 or IPv6, as packets; ``link`` Ethernet or raw IP."""

    client: tuple[str, int] = ("127.0.0.1", 40_000)
    server: tuple[str, int] = ("127.0.0.1", 7000)
    mss: int = 1448
    link: int = LINKTYPE_ETHERNET
    first: tuple[int, int] = (1000, 9000)
    wires: list[Wire] = field(default_factory=list)
    sent: list[int] = field(default_factory=lambda: [0, 0])
    clock: int = 1_700_000_000_000_000_000

    def open(self) -> Talk:
        self._packet(0, 0x02, b"", syn=True)
        self._packet(1, 0x12, b"", syn=True)
        self._packet(0, 0x10, b"")
        return self

    def say(self, side: int, data: bytes) -> Talk:
        """``data`` in segments, the last one pushed, and the other side's acknowledgement."""
        for start in range(0, len(data), self.mss):
            part = data[start : start + self.mss]
            self._packet(side, 0x18 if start + self.mss >= len(data) else 0x10, part)
            self.sent[side] += len(part)
            if start // self.mss % 2:
                self._packet(1 - side, 0x10, b"")
        self._packet(1 - side, 0x10, b"")
        return self

    def end(self, flags: int = 0x11) -> Talk:
        self._packet(0, flags, b"")
        self._packet(1, flags, b"")
        return self

    def _packet(self, side: int, flags: int, data: bytes, *, syn: bool = False) -> None:
        seq = self.first[side] + (0 if syn else 1 + self.sent[side])
        ack = self.first[1 - side] + 1 + self.sent[1 - side] if flags & 0x10 else 0
        ends = (self.client, self.server) if side == 0 else (self.server, self.client)
        self.clock += 1000
        raw = ip_packet(ends[0], ends[1], seq, ack, flags, data)
        if self.link == LINKTYPE_ETHERNET:
            raw = bytes(12) + (b"\x86\xdd" if ":" in ends[0][0] else b"\x08\x00") + raw
        self.wires.append(Wire(self.clock, side, self.sent[side], data, raw))


def ip_packet(source: tuple[str, int], target: tuple[str, int], seq: int, ack: int, flags: int, data: bytes) -> bytes:
    from ipaddress import ip_address

    tcp = struct.pack("!HHIIBBHHH", source[1], target[1], seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, 0x50, flags, 65535, 0, 0)
    hosts = ip_address(source[0]).packed + ip_address(target[0]).packed
    size = len(tcp) + len(data)
    if len(hosts) == 32:
        return struct.pack("!IHBB", 0x60000000, size, 6, 64) + hosts + tcp + data
    total = size + 20 if size + 20 < 65536 else 0
    return struct.pack("!BBHHHBBH", 0x45, 0, total, 0, 0x4000, 64, 6, 0) + hosts + tcp + data


def opening() -> bytes:
    """What a client says before its first call's data."""
    return PREFACE + frame(SETTINGS, 0, 0) + frame(WINDOW, 0, 0, b"\0\0\1\0") + frame(HEADERS, 4, 1, request(EXCHANGE))


def answer(receiver: str, run: bytes = RUN) -> bytes:
    """What an agent answers first."""
    resume = message(convert.encode_exchange_reply(Resume(receiver, run, 0, 0)))
    return frame(SETTINGS, 0, 0) + frame(HEADERS, 4, 1, b"\x88") + frame(DATA, 0, 1, resume)


def in_frames(messages: Iterable[bytes], rng: random.Random, largest: int) -> bytes:
    """gRPC messages of one round as grpc's core sends them: DATA frames of many sizes, now and then a control frame."""
    data = b"".join(message(one) for one in messages)
    out = bytearray()
    at = 0
    while at < len(data):
        size = min(rng.choice((largest, largest, largest // 2, largest // 3 + 9)), len(data) - at)
        out += frame(DATA, 0, 1, data[at : at + size])
        at += size
        if rng.random() < 0.1:
            out += (
                frame(WINDOW, 0, 0, b"\0\0\0\5") if rng.random() < 0.5 else frame(PING, rng.randrange(2), 0, bytes(8))
            )
    return bytes(out)


def rounds(
    talk: Talk, sender: str, payloads: Sequence[Sequence[Payload]], rng: random.Random, *, largest: int = 16384,
    run: bytes = RUN,
) -> Talk:  # fmt: skip
    """Each round's payloads on the call that is open."""
    for these in payloads:
        talk.say(0, in_frames(encode_vectors(run, sender, these), rng, largest))
    return talk


def exchange(
    payloads: Sequence[Sequence[Payload]], *, seed: int = 0, sender: str = "agent-1", receiver: str = "agent-2",
    largest: int = 16384, talk: Talk | None = None,
) -> Talk:  # fmt: skip
    """A whole connection."""
    talk = (talk or Talk()).open()
    talk.say(0, opening()).say(1, answer(receiver))
    rounds(talk, sender, payloads, random.Random(seed), largest=largest)
    return talk.say(0, frame(DATA, END_STREAM, 1)).end()


def write_pcap(path: Path, wires: Iterable[Wire], link: int = LINKTYPE_ETHERNET) -> Path:
    with PcapWriter(path, link) as writer:
        for wire in wires:
            writer.write(wire.time_ns, wire.packet)
    return path


def decoded(
    folder: Path, wires: Iterable[Wire], *, link: int = LINKTYPE_ETHERNET, keep: Keep | None = None, **more: object
) -> tuple[Decoded, list[Seen]]:
    """What the decoder makes of ``wires``, and its transcript's entries."""
    path = write_pcap(folder / "wires.pcap", wires, link)
    out = folder / "wires.transcript"
    with path.open("rb") as stream:
        found = decode([Capture(stream, str(path))], Decoder(out, keep=keep, **more))  # type: ignore[arg-type]
    return found, list(Transcript(out))
