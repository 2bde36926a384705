"""TCP reassembly at a tap: packets become segments in order and gaps (:mod:`dpgt_node.adversary.decode.stages`)."""

from __future__ import annotations

import heapq
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple

from dpgt_node.adversary.decode.network import CUT, FRAGMENT, OTHER_PORTS, ends_of, find_tcp, reversed_key
from dpgt_node.adversary.decode.packets import LINKTYPE_ETHERNET, Packet
from dpgt_node.adversary.decode.stages import Connection, Gap, Segment, Sink
from dpgt_node.values import dataclass

_M32 = 0xFFFF_FFFF
_HALF = 1 << 31
_FIN, _SYN, _RST, _PSH, _ACK = 1, 2, 4, 8, 16
_NOTABLE = _FIN | _SYN | _RST
_TCP = struct.Struct("!IIBB").unpack_from  # from the sequence number on
_COMMON = struct.Struct("!12xHBxH2xHxB2x12sIIBB").unpack_from  # Ethernet, IPv4 without options, TCP
_RUN_BYTES = 256 << 10
_WAITING_BYTES = 16 << 20
_ALL_WAITING_BYTES = 256 << 20
_PATIENCE_SEGMENTS = 32
_PATIENCE_NS = 1_000_000_000
_MAX_CONNECTIONS = 1 << 16
_MAX_RUNNING = 64
_MAX_KINDS = 64
_AHEAD, _BEHIND = 1 << 28, 1 << 26  # further away than any window or loss: another connection's


@dataclass(slots=True)
class TcpCounts:
    """What reassembly met.

    ``segments_lost``: at least so many segments were sent and not seen.  ``cut``: packets of which the tap kept only
    the beginning; what it left away is among ``bytes_lost``, and no segment that was not seen.
    ``repeated``: segments that brought nothing new.  ``ignored``: packets without TCP, by kind in ``others``; fragments
    of IP packets are among them, for they are not put together.
    """

    packets: int = 0
    segments_lost: int = 0
    bytes_lost: int = 0
    repeated: int = 0
    cut: int = 0
    ignored: int = 0
    connections: int = 0
    others: Counter[str] = field(default_factory=Counter)

    @property
    def fragments(self) -> int:
        return self.others[FRAGMENT]

    def ignore(self, kind: str) -> None:
        """One more packet that holds no TCP, but ``kind``."""
        self.ignored += 1
        self.others[kind if kind in self.others or len(self.others) < _MAX_KINDS else "other kinds"] += 1


class Reassembly:
    """Packets to the directions of TCP connections; ``open_`` makes the sinks of directions 0 and 1 of each.

    Bytes go on when their turn comes.  A hole is waited for until the receiver has acknowledged it and 32 further
    segments or a second passed (then the tap missed it), or until 16 MiB wait behind it; what is given up is a gap.
    ``ports``: only connections from or to one of these; empty: all.
    """

    def __init__(self, open_: Callable[[Connection], tuple[Sink, Sink]], ports: frozenset[int] = frozenset()) -> None:
        self.counts = TcpCounts()
        self._open = open_
        self._ports = ports
        self._directions: dict[bytes, _Direction] = {}
        self._running: set[_Direction] = set()
        self._waiting = 0

    def feed(self, packet: Packet) -> None:
        self.counts.packets += 1
        if packet.link == LINKTYPE_ETHERNET and len(packet.data) >= 54:
            kind, head, total, fragment, protocol, key, seq, ack, offset, flags = _COMMON(packet.data)
            if kind == 0x0800 and head == 0x45 and protocol == 6 and total and not fragment & 0x3FFF:
                start, end = 34 + (offset >> 4) * 4, 14 + total
                if not self._next_in_line(packet, key, seq, ack, flags, start, end):
                    self._segment(packet, key, seq, ack, flags, start, end)
                return
        self._uncommon(packet)

    def _next_in_line(self, packet: Packet, key: bytes, seq: int, ack: int, flags: int, start: int, end: int) -> bool:
        """Most packets: nothing waits, and this is what comes next.  False: it is another one."""
        direction = self._directions.get(key)
        if (
            direction is None or direction.next != seq or flags & _NOTABLE or direction.waiting
            or not direction.known or direction.end is not None or end > len(packet.data)
        ):  # fmt: skip
            return False
        direction.other.acked = ack
        size = end - start
        if size > 0:
            direction.take(packet.data[start:end], packet.time_ns)
            if size > direction.largest:
                direction.largest = size
            if flags & _PSH or direction.size >= _RUN_BYTES:
                self._deliver(direction)
            elif len(direction.parts) == 1:
                self._run(direction)
        return True

    def _uncommon(self, packet: Packet) -> None:
        """IPv6, options of IP, other link layers, tunnels, other protocols."""
        found = find_tcp(packet)
        if isinstance(found, str):
            self.counts.ignore(found)
            self.counts.cut += packet.length > len(packet.data) and found == CUT
            return
        addresses, at, end = found
        data = packet.data
        seq, ack, offset, flags = _TCP(data, at + 4)
        key = addresses + data[at : at + 4].tobytes()
        start = at + (offset >> 4) * 4
        self._segment(packet, key, seq, ack, flags, start, end)

    def _segment(self, packet: Packet, key: bytes, seq: int, ack: int, flags: int, start: int, end: int) -> None:
        direction = self._directions.get(key)
        if direction is None and self._ports and self._ports.isdisjoint(struct.unpack("!HH", key[-4:])):
            self.counts.ignore(OTHER_PORTS)
            return
        if flags & _SYN:
            direction = self._begun(direction, key, seq, flags)
            seq = (seq + 1) & _M32
        elif direction is None:
            if end <= start:
                return  # nothing to begin with
            direction = self._connect(key, opened=False)
        elif direction.known and _AHEAD <= ((seq - direction.next) & _M32) <= _M32 - _BEHIND:
            self._end(direction)  # its end and the next one's beginning were both missed
            direction = self._connect(key, opened=False)
        if flags & _ACK:
            direction.other.acked = ack
        if flags & _RST:
            self._end(direction)
            return
        size = end - start
        if size > 0:
            data = packet.data[start:end]
            if len(data) < size:
                self.counts.cut += 1
            self._payload(direction, seq, data, packet.time_ns, flags, size)
        if flags & _FIN:
            direction.end = direction.place(seq) + max(size, 0) if direction.known else 0
        if direction.end is not None and direction.offset >= direction.end:
            self._finish(direction)

    # --- connections

    def _begun(self, direction: _Direction | None, key: bytes, seq: int, flags: int) -> _Direction:
        """The direction of a SYN: a new connection, unless it repeats the one that began this one."""
        first = (seq + 1) & _M32
        if direction is not None and direction.known and direction.first != first:
            self._end(direction)  # the same addresses and ports again
            direction = None
        if direction is None:
            direction = self._connect(reversed_key(key) if flags & _ACK else key, opened=True)
            if flags & _ACK:
                direction = direction.other
        if not direction.known:
            direction.begin(first)
        return direction

    def _connect(self, key: bytes, *, opened: bool) -> _Direction:
        """A new connection; the direction of ``key``."""
        if len(self._directions) >= 2 * _MAX_CONNECTIONS:
            self._end(next(iter(self._directions.values())))
        connection = Connection(self.counts.connections, ends_of(key), opened)
        self.counts.connections += 1
        sinks = self._open(connection)
        there, back = _Direction(key, sinks[0]), _Direction(reversed_key(key), sinks[1])
        there.other, back.other = back, there
        self._directions[there.key], self._directions[back.key] = there, back
        return there

    def _finish(self, direction: _Direction) -> None:
        """One direction said its last byte."""
        self._deliver(direction)
        direction.close()
        if direction.other.closed:
            self._end(direction)

    def _end(self, direction: _Direction) -> None:
        """The connection is over: what still waits has its turn now."""
        for each in (direction, direction.other):
            while each.waiting:
                self._give_up(each)
            self._deliver(each)
            last = each.acknowledged if each.end is None else each.end
            if last > each.offset + (each.end is None) and not each.closed:  # without its end: FIN is acknowledged too
                self._skip(each, last - each.offset)
            each.close()
            self._directions.pop(each.key, None)

    # --- bytes

    def _payload(
        self, direction: _Direction, seq: int, data: memoryview, time_ns: int, flags: int, sent: int
    ) -> None:  # fmt: skip
        if direction.closed:
            return
        if not direction.known:
            direction.begin(seq)
        size = len(data)
        if sent > direction.largest:
            direction.largest = sent
        if size < sent:
            direction.cut(direction.place(seq) + size, direction.place(seq) + sent)
        ahead = (seq - direction.next) & _M32
        if ahead >= _HALF:  # begins before what is next
            behind = _M32 + 1 - ahead
            if behind >= size:
                self.counts.repeated += 1
                return
            data, ahead = data[behind:], 0
            size -= behind
        if ahead == 0:
            direction.take(data, time_ns)
            if direction.waiting:
                self._drain(direction)
            if flags & _PSH or direction.size >= _RUN_BYTES:
                self._deliver(direction)
            else:
                self._run(direction)
            return
        self._wait(direction, direction.offset + ahead, data, time_ns)

    def _run(self, direction: _Direction) -> None:
        """Something is held back there to make larger pieces."""
        self._running.add(direction)
        if len(self._running) > _MAX_RUNNING:
            self.flush()

    def _wait(self, direction: _Direction, start: int, data: memoryview, time_ns: int) -> None:
        if not direction.hold(start, data, time_ns):
            self.counts.repeated += 1
            return
        self._waiting += len(data)
        missed = direction.acknowledged > direction.offset and (
            direction.patience > _PATIENCE_SEGMENTS or time_ns - direction.waiting[0].time_ns > _PATIENCE_NS
        )
        if missed or direction.held > _WAITING_BYTES or self._waiting > _ALL_WAITING_BYTES:
            self._give_up(direction)

    def _drain(self, direction: _Direction) -> None:
        """What waited and is next now."""
        waiting = direction.waiting
        taken = 0
        for held in waiting:
            behind = direction.offset - held.start
            if behind < 0:
                break
            taken += 1
            direction.held -= len(held.data)
            self._waiting -= len(held.data)
            if behind < len(held.data):
                direction.take(memoryview(held.data)[behind:], held.time_ns)
                if direction.size >= _RUN_BYTES:
                    self._deliver(direction)
        if taken:
            del waiting[:taken]
            direction.patience = 0

    def _give_up(self, direction: _Direction) -> None:
        """The first hole will not be filled."""
        self._skip(direction, direction.waiting[0].start - direction.offset)
        self._drain(direction)
        self._running.add(direction)

    def _skip(self, direction: _Direction, size: int) -> None:
        self._deliver(direction)
        gap = Gap(direction.offset, direction.offset + size)
        self.counts.segments_lost += -(-(size - direction.cut_within(gap)) // max(direction.largest, 1))
        self.counts.bytes_lost += size
        direction.offset = gap.end
        direction.next = (direction.next + size) & _M32
        direction.sink.feed(gap)

    def _deliver(self, direction: _Direction) -> None:
        parts = direction.parts
        self._running.discard(direction)
        if not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        start = direction.offset - direction.size
        direction.parts, direction.size = [], 0
        direction.sink.feed(Segment(start, data, direction.time_ns))

    def flush(self) -> None:
        """Hand on what was only held back to make larger pieces: nothing more is there at the moment."""
        for direction in tuple(self._running):
            self._deliver(direction)

    def close(self) -> None:
        """The capture has ended: so have all connections."""
        while self._directions:
            self._end(next(iter(self._directions.values())))


class _Held(NamedTuple):
    start: int
    data: bytes
    time_ns: int


class _Direction:
    __slots__ = (
        "acked", "closed", "cuts", "end", "first", "held", "key", "known", "largest", "next", "offset", "other",
        "parts", "patience", "sink", "size", "time_ns", "waiting",
    )  # fmt: skip

    def __init__(self, key: bytes, sink: Sink) -> None:
        self.key = key
        self.sink = sink
        self.other: _Direction = self
        self.known = False  # where it begins
        self.first = self.next = 0  # sequence numbers
        self.offset = 0  # of the next byte; so far taken, of which the last ``size`` are in ``parts``
        self.parts: list[memoryview] = []
        self.size = 0
        self.time_ns = 0
        self.waiting: list[_Held] = []  # by start, without overlaps at equal starts
        self.held = 0
        self.patience = 0
        self.acked: int | None = None  # the sequence number that the other side said last
        self.largest = 0
        self.cuts: list[tuple[int, int]] = []  # a heap: offsets that were seen in packets, without their bytes
        self.end: int | None = None  # offset after the last byte
        self.closed = False

    def begin(self, seq: int) -> None:
        self.known, self.first, self.next = True, seq, seq

    def place(self, seq: int) -> int:
        """The offset of a sequence number, the nearest one."""
        ahead = (seq - self.next) & _M32
        return self.offset + (ahead if ahead < _HALF else ahead - _M32 - 1)

    @property
    def acknowledged(self) -> int:
        """The offset up to which the other side has everything."""
        return 0 if self.acked is None or not self.known else self.place(self.acked)

    def cut(self, start: int, end: int) -> None:
        """A packet went by that carried [start, end), of which the tap kept nothing."""
        while self.cuts and self.cuts[0][1] <= self.offset:
            heapq.heappop(self.cuts)
        heapq.heappush(self.cuts, (start, end))

    def cut_within(self, gap: Gap) -> int:
        """How many bytes of ``gap`` went by in packets that were cut."""
        found, at = 0, gap.start
        while self.cuts and self.cuts[0][0] < gap.end:
            start, end = self.cuts[0]
            start, stop = max(start, at), min(end, gap.end)
            if stop > start:
                found, at = found + stop - start, stop
            if end > gap.end:
                break
            heapq.heappop(self.cuts)
        return found

    def take(self, data: memoryview, time_ns: int) -> None:
        size = len(data)
        self.parts.append(data)
        self.size += size
        self.offset += size
        self.next = (self.next + size) & _M32
        self.time_ns = time_ns

    def hold(self, start: int, data: memoryview, time_ns: int) -> bool:
        """Keep a copy (a view would keep its whole block of the file); False: it is there already."""
        waiting = self.waiting
        at = len(waiting)
        while at and waiting[at - 1].start > start:
            at -= 1
        if at and waiting[at - 1].start + len(waiting[at - 1].data) >= start + len(data):
            return False
        waiting.insert(at, _Held(start, bytes(data), time_ns))
        self.held += len(data)
        self.patience += 1
        return True

    def close(self) -> None:
        """Tell the sink, once."""
        if not self.closed:
            self.closed = True
            self.sink.close()
