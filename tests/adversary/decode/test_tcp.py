"""TCP at a tap: order out of disorder, each byte once, and holes where bytes were missed."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from dpgt_node.adversary.decode import packets as p
from dpgt_node.adversary.decode.packets import LINKTYPE_ETHERNET, LINKTYPE_RAW, Packet
from dpgt_node.adversary.decode.stages import Connection, Gap, Item, Segment
from dpgt_node.adversary.decode.tcp import Reassembly
from tests.adversary.decode.wires import Talk, Wire, ip_packet


class Log:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.closed = 0

    def feed(self, item: Item) -> None:
        assert not self.closed
        self.items.append(Segment(item.offset, bytes(item.data), item.time_ns) if isinstance(item, Segment) else item)

    def close(self) -> None:
        self.closed += 1

    @property
    def text(self) -> bytes:
        """All bytes in order, ? for those missed; checks that each item begins where the one before it ended."""
        out = b""
        for item in self.items:
            start = item.offset if isinstance(item, Segment) else item.start
            assert start == len(out)
            out += bytes(item.data) if isinstance(item, Segment) else b"?" * (item.end - item.start)
        return out


class Tap:
    def __init__(self, ports: frozenset[int] = frozenset()) -> None:
        self.connections: list[tuple[Connection, Log, Log]] = []
        self.tcp = Reassembly(self._open, ports)

    def _open(self, connection: Connection) -> tuple[Log, Log]:
        self.connections.append((connection, Log(), Log()))
        return self.connections[-1][1:]

    def see(self, wires: Iterable[Wire], link: int = LINKTYPE_ETHERNET) -> Tap:
        for wire in wires:
            self.tcp.feed(Packet(wire.time_ns, link, memoryview(wire.packet), len(wire.packet)))
        return self

    def end(self) -> Tap:
        self.tcp.close()
        assert all(there.closed == back.closed == 1 for _, there, back in self.connections)
        return self


def text(size: int, seed: int = 0) -> bytes:
    return bytes(random.Random(seed).choices(b"abcdefgh", k=size))


REQUEST, ANSWER = text(20_000), text(30_000, 1)


def talk(**changes: object) -> Talk:
    return Talk(**changes).open().say(0, REQUEST).say(1, ANSWER)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [(1000, 9000), (2**32 - 1, 2**32 - 10_000), (2**31 - 5, 2**31 + 5)])
@pytest.mark.parametrize("hosts", [("127.0.0.1", "127.0.0.1"), ("fd00::1", "fd00::2")])
def test_both_directions_over_the_end_of_sequence_numbers(first: tuple[int, int], hosts: tuple[str, str]) -> None:
    said = talk(first=first, client=(hosts[0], 40_000), server=(hosts[1], 7000)).end()
    ((connection, there, back),) = Tap().see(said.wires).end().connections
    assert (there.text, back.text) == (REQUEST, ANSWER)
    assert connection.opened and [str(e).rsplit(":", 1)[1] for e in connection.ends] == ["40000", "7000"]


@pytest.mark.parametrize("seed", range(6))
def test_disorder_and_repetition_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    said = talk().end().wires
    twice = [wire for wire in said for _ in range(rng.choice((1, 2, 3)))]
    order = sorted(range(len(twice)), key=lambda i: i + rng.random() * 8)
    tap = Tap().see(twice[:1]).see(twice[i] for i in order)
    ((_, there, back),) = tap.end().connections
    assert (there.text, back.text) == (REQUEST, ANSWER)
    assert tap.tcp.counts.segments_lost == 0 and tap.tcp.counts.repeated > 0


def test_overlapping_retransmissions() -> None:
    client, server = ("127.0.0.1", 1), ("127.0.0.1", 2)
    tap = Tap()
    for start, end in ((0, 10), (5, 25), (3, 8), (40, 60), (30, 50), (24, 31), (0, 60)):
        raw = ip_packet(client, server, 100 + start, 0, 0x18, REQUEST[start:end])
        tap.tcp.feed(Packet(0, LINKTYPE_RAW, memoryview(raw), len(raw)))
    ((connection, there, _),) = tap.end().connections
    assert there.text == REQUEST[:60] and not connection.opened


def test_a_lost_segment_is_a_gap_of_its_bytes() -> None:
    said = talk().end().wires
    lost = [i for i, wire in enumerate(said) if wire.data and i % 7 == 0]
    tap = Tap().see(wire for i, wire in enumerate(said) if i not in lost).end()
    ((_, there, back),) = tap.connections
    for side, (log, whole) in enumerate(((there, REQUEST), (back, ANSWER))):
        gaps = {(said[i].start, said[i].start + len(said[i].data)) for i in lost if said[i].side == side}
        assert {(g.start, g.end) for g in log.items if isinstance(g, Gap)} == gaps
        assert log.text == bytes(0x3F if any(a <= n < b for a, b in gaps) else c for n, c in enumerate(whole))
    assert tap.tcp.counts.segments_lost == len(lost)
    assert tap.tcp.counts.bytes_lost == sum(len(said[i].data) for i in lost)


def test_a_hole_is_given_up_only_after_it_was_acknowledged() -> None:
    said = Talk().open().say(0, text(200_000)).wires
    hole = next(i for i, wire in enumerate(said) if wire.data)
    late = said[hole]
    unacknowledged = [w for i, w in enumerate(said) if i != hole and w.side == 0]
    ((_, there, _),) = Tap().see(unacknowledged).see([late]).end().connections
    assert there.text == text(200_000)  # lost on the way and sent again, however late
    ((_, there, _),) = Tap().see(said[:hole]).see(said[hole + 1 :]).see([late]).end().connections
    assert there.text == b"?" * 1448 + text(200_000)[1448:]


def test_what_waits_behind_a_hole_is_bounded() -> None:
    tap = Tap()
    client, server = ("10.0.0.1", 1), ("10.0.0.2", 2)
    for k in range(300):
        raw = ip_packet(client, server, 1 + (k if not k else k + 1) * 65_000, 0, 0x10, bytes(65_000))
        tap.tcp.feed(Packet(k, LINKTYPE_RAW, memoryview(raw), len(raw)))
        assert sum(d.held for d in tap.tcp._directions.values()) <= (16 << 20) + 65_000
    assert tap.tcp.counts.segments_lost == 1


def test_it_starts_in_the_midst_and_ends_with_a_reset() -> None:
    said = talk()
    after = said.wires[10:]
    ((connection, there, back),) = Tap().see(after).connections
    assert not connection.opened
    assert REQUEST.endswith(there.text) and len(there.text) > 10_000 and back.text == ANSWER
    ((_, there, back),) = Tap().see(said.end(0x14).wires).connections
    assert there.closed == back.closed == 1


@pytest.mark.parametrize("ending", [0x11, 0x14, 0])
def test_the_same_ports_again_are_another_connection(ending: int) -> None:
    said = talk()
    wires = list(said.end(ending).wires if ending else said.wires)
    wires += talk(first=(77_000, 5)).wires
    connections = Tap().see(wires).end().connections
    assert [(there.text, back.text) for _, there, back in connections] == [(REQUEST, ANSWER)] * 2


def test_the_same_ports_again_without_an_end_or_a_beginning() -> None:
    wires = [*talk().wires, *talk(first=(2**31, 2**31 + 99)).wires[3:]]
    connections = Tap().see(wires).end().connections
    assert [there.text for _, there, _ in connections] == [REQUEST, REQUEST]


def test_the_last_bytes_of_a_connection_are_missed_too() -> None:
    said = Talk().open().say(0, REQUEST).end().wires
    last = max(i for i, wire in enumerate(said) if wire.data)
    tap = Tap().see(wire for i, wire in enumerate(said) if i != last).end()
    assert tap.connections[0][1].text == REQUEST[: said[last].start] + b"?" * len(said[last].data)
    assert tap.tcp.counts.segments_lost == 1


def test_a_packet_of_which_only_the_beginning_was_kept() -> None:
    said = talk().end().wires
    tap = Tap()
    for wire in said:
        tap.tcp.feed(Packet(wire.time_ns, LINKTYPE_ETHERNET, memoryview(wire.packet)[:1000], len(wire.packet)))
    ((_, there, back),) = tap.end().connections
    assert len(there.text) == len(REQUEST) and there.text[:946] == REQUEST[:946] and b"?" in there.text
    assert tap.tcp.counts.cut > 20
    assert tap.tcp.counts.segments_lost == 0 and tap.tcp.counts.bytes_lost == (there.text + back.text).count(b"?")


@pytest.mark.parametrize("snap", [96, 400])
@pytest.mark.parametrize("seed", range(3))
def test_a_segment_that_was_cut_was_seen_and_only_missed_ones_count(seed: int, snap: int) -> None:
    """The parts that the tap left away used to count as 35 segments each."""
    rng = random.Random(seed)
    said = talk().end().wires
    data = [i for i, wire in enumerate(said) if len(wire.data) > 1000][2:-2]
    lost = set(rng.sample([i for i in data if i % 4 == 0], 3))  # apart from each other
    order = sorted((i for i in range(len(said)) if i not in lost), key=lambda i: i + 2 * rng.random())
    tap = Tap()
    for i in order + order[-5:]:
        tap.tcp.feed(Packet(said[i].time_ns, LINKTYPE_ETHERNET, memoryview(said[i].packet)[:snap], len(said[i].packet)))
    tap.end()
    assert tap.tcp.counts.segments_lost == 3


@pytest.mark.parametrize(
    ("link", "head"),
    [
        (p.LINKTYPE_RAW, b""),
        (p.LINKTYPE_NULL, b"\x02\0\0\0"),
        (p.LINKTYPE_LOOP, b"\0\0\0\x02"),
        (p.LINKTYPE_SLL, bytes(14) + b"\x08\0"),
        (p.LINKTYPE_SLL2, b"\x08\0" + bytes(18)),
        (p.LINKTYPE_ETHERNET, bytes(12) + b"\x08\0"),
        (p.LINKTYPE_ETHERNET, bytes(12) + b"\x81\0\0\x07\x08\0"),
    ],
)
def test_link_layers(link: int, head: bytes) -> None:
    said = talk(link=LINKTYPE_RAW).end().wires
    wires = [Wire(w.time_ns, w.side, w.start, w.data, head + w.packet) for w in said]
    ((_, there, back),) = Tap().see(wires, link).end().connections
    assert (there.text, back.text) == (REQUEST, ANSWER)


def test_other_traffic_is_counted_and_left_out() -> None:
    said = talk().end().wires
    udp = bytearray(said[5].packet)
    udp[14 + 9] = 17
    fragment = bytearray(said[5].packet)
    fragment[14 + 6] = 0x20
    other = [Wire(0, 0, 0, b"", bytes(raw)) for raw in (udp, fragment, bytes(12) + b"\x08\x06" + bytes(60), b"", b"\1")]
    tap = Tap().see([*other, *said]).end()
    assert (tap.tcp.counts.ignored, tap.tcp.counts.fragments) == (5, 1)
    assert tap.connections[0][1].text == REQUEST
    assert not Tap(frozenset({7001})).see(said).end().connections
    assert Tap(frozenset({7000})).see(said).end().connections


def test_a_large_segment_without_a_length() -> None:
    said = talk(mss=70_000).end().wires
    big = Talk().open()
    big.mss = 100_000
    whole = text(90_000)
    ((_, there, _),) = Tap().see(big.say(0, whole).wires).end().connections
    assert there.text == whole and Tap().see(said).end().connections[0][1].text == REQUEST
