"""Capture files: pcap and pcapng in, pcap out; nothing is interpreted below the link layer's header.

Both byte orders, microseconds and nanoseconds, several interfaces and sections, packed by gzip, bzip2 or xz, and a
stream that is still being written (``tcpdump -w - | ...``).  A file that ends inside a record is a PcapError: what it
held up to there was handed out, and whoever reads must not take it for all there was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, NamedTuple, Self

from dpgt_node.adversary.decode.packed import DAMAGED, Unpacker, unpacker
from dpgt_node.errors import DpgtError, ExitCode
from dpgt_node.values import dataclass

LINKTYPE_ETHERNET, LINKTYPE_RAW, LINKTYPE_SLL, LINKTYPE_SLL2, LINKTYPE_NULL, LINKTYPE_LOOP = 1, 101, 113, 276, 0, 108
LINKTYPE_PPP, LINKTYPE_PPP_HDLC, LINKTYPE_PPPOE = 9, 50, 51
SNAP_LENGTH = 262_144
"""Loopback frames reach 65,549 bytes; tcpdump and Wireshark take this for "all of it"."""

Order = Literal["<", ">"]
_RAW_IP = (LINKTYPE_RAW, 12, 14, 228, 229)
_BLOCK = 4 << 20
_MAX_RECORD = 16 << 20
_PCAP_MAGIC: dict[bytes, tuple[Order, int]] = {  # byte order, nanoseconds a tick
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_READ = {
    LINKTYPE_ETHERNET, LINKTYPE_RAW, LINKTYPE_SLL, LINKTYPE_SLL2, LINKTYPE_NULL, LINKTYPE_LOOP,
    LINKTYPE_PPP, LINKTYPE_PPP_HDLC, LINKTYPE_PPPOE,
}  # fmt: skip
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 2, 3, 5, 6
_SECRETS, _TLS_KEY_LOG = 0x0A, 0x544C534B
_UNREADABLE = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4", b"PK\x03\x04": "zip", b"7z\xbc\xaf": "7z"}
_OTHERS = {
    b"snoo": "a snoop capture", b"GMBU": "a capture of Microsoft Network Monitor",
    b"RTSS": "a capture of Microsoft Network Monitor 1", b"XCP\0": "a NetXRay capture", b"TRSN": "a Sniffer capture",
    b"iptr": "a capture of iptrace", b"\x34\xcd\xb2\xa1": "pcap as Kuznetzov changed it",
}  # fmt: skip
"""Captures that tools convert, by their first four bytes."""
_SECTION_MAGIC: dict[bytes, Order] = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_TSRESOL, _TSOFFSET, _IFDROP, _OSDROP = 9, 14, 5, 7


class PcapError(DpgtError):
    """A capture that cannot be read, or that was cut short."""

    exit_code = ExitCode.CONFIG


class Packet(NamedTuple):
    """One captured packet.

    ``time_ns``: since 1970, by the tap's clock (0 where the file has none).  ``link``: link-layer type (LINKTYPE_*).
    ``data``: the bytes kept, link header first.  ``length``: its size on the wire; more than ``data`` when it was cut.
    """

    time_ns: int
    link: int
    data: memoryview
    length: int


class Capture:
    """The packets of a capture, in the order of the file; ``dropped``: what the tap itself says it lost, so far.

    ``name`` is for messages.  ``on_secrets`` takes the text of each TLS key log that the capture itself holds, before
    the packets behind it are handed out.  PcapError: not a capture, a link type without IP, a record that cannot be,
    a file that ends inside one.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self.dropped = 0
        self.on_secrets: Callable[[bytes], None] = lambda _: None
        self._source = _Source(stream, name)

    def before_reading(self, call: Callable[[], None]) -> None:
        """``call`` whenever all packets read so far were handed out: the next read may have to wait."""
        self._source.before_reading = call

    def __iter__(self) -> Iterator[Packet]:
        magic = self._source.peek(4)
        if (packed := unpacker(magic)) is not None:
            self._source.unpack(packed)
            magic = self._source.peek(4)
        if magic in _PCAP_MAGIC:
            return self._pcap(*_PCAP_MAGIC[magic])
        if magic == _SECTION.to_bytes(4, "big"):  # the same in both byte orders
            return self._pcapng()
        if unpacker(magic):
            raise PcapError(f"{self.name}: packed twice: unpack it first")
        raise PcapError(f"{self.name}: {_not_a_capture(magic)}")

    # --- pcap

    def _pcap(self, order: Order, tick: int) -> Iterator[Packet]:
        source = self._source
        header = source.take(24, "its header")
        (link,) = struct.unpack_from(order + "I", header, 20)
        link = _plain_link(link & 0x0FFF_FFFF)  # above: the length of a frame check sequence
        if link not in _READ:
            raise PcapError(f"{self.name}: link type {link} is not read here; capture on an interface that carries IP")
        record = struct.Struct(order + "IIII").unpack_from
        while source.more():
            block, at = source.block, source.next
            while at + 16 <= len(block):  # most packets lie in one block
                seconds, ticks, kept, length = record(block, at)
                start, at = at + 16, at + 16 + kept
                if at > len(block):
                    break
                source.next = at
                yield Packet(seconds * 1_000_000_000 + ticks * tick, link, block[start:at], length)
            if not source.more():
                return
            seconds, ticks, kept, length = record(source.take(16, "a packet's header"))
            if kept > _MAX_RECORD:
                raise PcapError(f"{self.name}: a packet of {kept} bytes at byte {source.at - 16}: it is damaged")
            yield Packet(seconds * 1_000_000_000 + ticks * tick, link, source.take(kept, "a packet"), length)

    # --- pcapng

    def _pcapng(self) -> Iterator[Packet]:
        source = self._source
        order: Order = "<"
        interfaces: list[_Interface] = []
        while source.more():
            at = source.at
            head = source.take(8, "a block's header")
            if head[:4].tobytes() == b"\x0a\x0d\x0d\x0a":
                mark = bytes(source.peek(4))
                if mark not in _SECTION_MAGIC:
                    raise PcapError(f"{self.name}: no byte order in the section at byte {at}")
                order = _SECTION_MAGIC[mark]
                interfaces = []
            kind, size = struct.unpack(order + "II", head)
            if size < 12 or size % 4 or size > _MAX_RECORD:
                raise PcapError(f"{self.name}: a block of {size} bytes at byte {at}: it is damaged")
            body = source.take(size - 8, "a block")[:-4]
            try:
                if kind == _INTERFACE:
                    interfaces.append(self._interface(order, body))
                elif kind in (_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
                    yield _packet(order, kind, body, interfaces)
                elif kind == _SECRETS:
                    what, nbytes = struct.unpack_from(order + "II", body)
                    if what == _TLS_KEY_LOG:
                        self.on_secrets(bytes(body[8 : 8 + nbytes]))
                elif kind == _STATISTICS:
                    self.dropped += sum(
                        int.from_bytes(value, "little" if order == "<" else "big")
                        for code, value in _options(order, body[12:])
                        if code in (_IFDROP, _OSDROP)
                    )
            except (struct.error, IndexError) as error:
                raise PcapError(f"{self.name}: a block of kind {kind} at byte {at} is damaged") from error

    def _interface(self, order: Order, body: memoryview) -> _Interface:
        link, _, snap = struct.unpack_from(order + "HHI", body)
        ticks, offset = 1_000_000, 0
        for code, value in _options(order, body[8:]):
            if code == _TSRESOL and len(value) == 1:
                ticks = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
            elif code == _TSOFFSET and len(value) == 8:
                (offset,) = struct.unpack(order + "q", value)
        return _Interface(_plain_link(link), snap, ticks, offset * 1_000_000_000)


def _plain_link(link: int) -> int:
    """One number for all that are IP without a header."""
    return LINKTYPE_RAW if link in _RAW_IP else link


def _not_a_capture(magic: bytes) -> str:
    if not magic:
        return "empty"
    packed = next((what for mark, what in _UNREADABLE.items() if magic.startswith(mark)), None)
    if packed:
        return f"packed by {packed}: unpack it first"
    if (other := _OTHERS.get(magic)) is not None:
        return f"{other}, neither pcap nor pcapng: convert it first, e.g. editcap -F pcapng IN OUT"
    if magic in (b"CLIE", b"SERV", b"EXPO"):
        return "neither pcap nor pcapng, but what a TLS key log looks like: the capture comes first, keys by --keys"
    return "neither pcap nor pcapng"


@dataclass(frozen=True, slots=True)
class _Interface:
    link: int
    snap: int
    ticks: int  # a second
    offset_ns: int


def _options(order: Order, data: memoryview) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from(order + "HH", data, at)
        if code == 0:
            return
        yield code, bytes(data[at + 4 : at + 4 + size])
        at += 4 + size + -size % 4


def _packet(order: Order, kind: int, body: memoryview, interfaces: list[_Interface]) -> Packet:
    if kind == _SIMPLE_PACKET:  # no time, always of the first interface, its size cut by the snap length only
        (length,) = struct.unpack_from(order + "I", body)
        interface = interfaces[0]
        kept = min(length, interface.snap or length)
        time_ns, start = 0, 4
    else:
        if kind == _PACKET:
            number, high, low, kept, length = struct.unpack_from(order + "IIIII", body)
        else:
            number, _, high, low, kept, length = struct.unpack_from(order + "HHIIII", body)
        interface = interfaces[number]
        time_ns = (high << 32 | low) * 1_000_000_000 // interface.ticks + interface.offset_ns
        start = 20
    if start + kept > len(body):
        raise struct.error("a packet larger than its block")
    return Packet(time_ns, interface.link, body[start : start + kept], length)


class _Source:
    """Bytes of a stream in large blocks; views into a block stay valid while somebody holds them."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self.block = memoryview(b"")
        self.next = 0
        self._before = 0
        self.before_reading: Callable[[], None] = lambda: None

    def unpack(self, packed: Unpacker) -> None:
        """What is ahead is packed: from here on hand out what it holds."""
        ahead, self.block, self.next = bytes(self.block[self.next :]), memoryview(b""), 0
        self._stream = packed(ahead, self._stream)

    @property
    def at(self) -> int:
        """Bytes taken so far."""
        return self._before + self.next

    def more(self) -> bool:
        return self.next < len(self.block) or self._fill(1)

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes, or as many as there are."""
        if len(self.block) - self.next < size:
            self._fill(size)
        return bytes(self.block[self.next : self.next + size])

    def take(self, size: int, what: str) -> memoryview:
        start = self.next
        end = start + size
        if end > len(self.block):
            if not self._fill(size):
                raise PcapError(
                    f"{self._name}: cut short at byte {self.at + len(self.block) - self.next}, inside {what}: "
                    "what it held before that is not all there was"
                )
            start, end = 0, size
        self.next = end
        return self.block[start:end]

    def _fill(self, size: int) -> bool:
        """Have at least ``size`` bytes ahead; whether there are."""
        parts = [self.block[self.next :]]
        have = len(parts[0])
        while have < size:
            part = self._read()
            if not part:
                break
            parts.append(memoryview(part))
            have += len(part)
        self._before += self.next
        self.next = 0
        self.block = memoryview(b"".join(parts))
        return have >= size

    def _read(self) -> bytes:
        self.before_reading()
        try:
            read1 = getattr(self._stream, "read1", self._stream.read)  # what a pipe has now, not a full block
            return bytes(read1(_BLOCK))
        except DAMAGED as error:
            raise PcapError(f"{self._name}: what packs it is damaged or cut short: {error}") from error
        except OSError as error:
            raise PcapError(f"{self._name}: cannot be read: {error.strerror or error}") from error


def open_capture(path: Path) -> BinaryIO:
    """The file at ``path``; PcapError when it cannot be opened."""
    try:
        return path.open("rb")
    except OSError as error:
        raise PcapError(f"{path}: cannot be read: {error.strerror}") from error


class PcapWriter:
    """A new pcap file with nanoseconds at ``path`` (replaced if it is there), or on an open stream."""

    def __init__(self, path: Path | BinaryIO, linktype: int = LINKTYPE_ETHERNET) -> None:
        self._stream: BinaryIO = path.open("wb") if isinstance(path, Path) else path
        self._record = struct.Struct("<IIII")
        self._stream.write(struct.pack("<IHHiIII", 0xA1B2_3C4D, 2, 4, 0, 0, SNAP_LENGTH, linktype))

    def write(self, time_ns: int, data: bytes | memoryview, length: int | None = None) -> None:
        """Append a packet; ``length``: its size on the wire when ``data`` is only its beginning."""
        seconds, rest = divmod(time_ns, 1_000_000_000)
        self._stream.write(self._record.pack(seconds, rest, len(data), len(data) if length is None else length))
        self._stream.write(data)

    def flush(self) -> None:
        """What was written so far is in the file."""
        self._stream.flush()

    def close(self) -> None:
        """The file is complete."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()
