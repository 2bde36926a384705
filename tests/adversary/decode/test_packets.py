"""Capture files: every variant reads the same, and none that was cut short passes for whole."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from dpgt_node.adversary.decode.packets import LINKTYPE_ETHERNET, LINKTYPE_RAW, Capture, Packet, PcapError, PcapWriter

TIMES = (1_700_000_000_123_456_789, 1_700_000_001_000_000_999)
DATA = (b"one packet", b"another one, larger than its snap length")


def pcap(order: str = "<", *, nano: bool = True, link: int = LINKTYPE_ETHERNET) -> bytes:
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, link)
    for time_ns, data in zip(TIMES, DATA, strict=True):
        seconds, rest = divmod(time_ns, 10**9)
        out += struct.pack(order + "IIII", seconds, rest if nano else rest // 1000, len(data), len(data) + 5) + data
    return out


def block(order: str, kind: int, body: bytes) -> bytes:
    size = len(body) + -len(body) % 4 + 12
    return struct.pack(order + "II", kind, size) + body + bytes(-len(body) % 4) + struct.pack(order + "I", size)


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def pcapng(order: str = "<", *, resolution: bytes = b"\x09", dropped: int = 0, old: bool = False) -> bytes:
    out = block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    options = option(order, 9, resolution) + option(order, 0, b"")
    out += block(order, 1, struct.pack(order + "HHI", LINKTYPE_RAW, 0, 0))  # an interface nobody uses
    out += block(order, 1, struct.pack(order + "HHI", LINKTYPE_ETHERNET, 0, 262144) + options)
    out += block(order, 0xBAD, b"of somebody else")
    for time_ns, data in zip(TIMES, DATA, strict=True):
        ticks = time_ns if resolution == b"\x09" else time_ns * 2**20 // 10**9
        where = struct.pack(order + "HH", 1, 0) if old else struct.pack(order + "I", 1)
        head = where + struct.pack(order + "IIII", ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data) + 5)
        out += block(order, 2 if old else 6, head + data + bytes(-len(data) % 4) + option(order, 1, b"a comment"))
    drops = option(order, 5, struct.pack(order + "Q", dropped))
    return out + block(order, 5, struct.pack(order + "III", 1, 0, 0) + drops)


def read(data: bytes) -> list[Packet]:
    return list(Capture(io.BytesIO(data), "x.pcap"))


def seen(packets: Iterable[Packet]) -> list[tuple[int, int, bytes, int]]:
    return [(p.time_ns, p.link, bytes(p.data), p.length) for p in packets]


WHOLE = [(time, LINKTYPE_ETHERNET, data, len(data) + 5) for time, data in zip(TIMES, DATA, strict=True)]


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_variant_reads_the_same(order: str) -> None:
    assert seen(read(pcap(order))) == WHOLE
    assert seen(read(pcapng(order))) == WHOLE
    assert seen(read(pcapng(order, old=True))) == WHOLE
    rough = [(time // 1000 * 1000, *rest) for time, *rest in WHOLE]
    assert seen(read(pcap(order, nano=False))) == rough
    binary = read(pcapng(order, resolution=b"\x94"))  # ticks of 2^-20 s
    assert all(abs(p.time_ns - time) < 1000 for p, time in zip(binary, TIMES, strict=True))


def test_sections_of_both_byte_orders_follow_each_other() -> None:
    assert seen(read(pcapng("<") + pcapng(">"))) == WHOLE * 2


def test_a_simple_packet_has_no_time_and_is_cut_by_the_snap_length() -> None:
    head = block("<", 0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    head += block("<", 1, struct.pack("<HHI", LINKTYPE_RAW, 0, 4))
    (packet,) = read(head + block("<", 3, struct.pack("<I", 9) + b"abcd"))
    assert (packet.time_ns, packet.link, bytes(packet.data), packet.length) == (0, LINKTYPE_RAW, b"abcd", 9)


def test_what_the_tap_lost_is_told() -> None:
    capture = Capture(io.BytesIO(pcapng(dropped=7)), "x")
    assert len(list(capture)) == 2 and capture.dropped == 7


@pytest.mark.parametrize("whole", [pcap(), pcapng()])
def test_no_file_that_was_cut_passes_for_whole(whole: bytes) -> None:
    boundaries = 0
    for size in range(len(whole)):
        try:
            read(whole[:size])
            boundaries += 1  # between records nobody can tell
        except PcapError as error:
            assert "x.pcap" in str(error)
    assert boundaries == (2 if whole == pcap() else 6)


def test_a_file_that_was_cut_hands_out_what_is_whole_first() -> None:
    got = []
    with pytest.raises(PcapError, match="cut short at byte 1"):
        for packet in Capture(io.BytesIO(pcap()[:-1]), "x"):
            got.append(packet)
    assert seen(got) == WHOLE[:1]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"GIF89a and more", "neither pcap nor pcapng"),
        (b"snoop\0\0\0\0\0\0\2", "a snoop capture, neither pcap nor pcapng: convert it first"),
        (b"GMBU\0\2", "Microsoft Network Monitor, neither"),
        (b"CLIENT_RANDOM 00", "what a TLS key log looks like"),
        (b"PK\x03\x04 and more", "packed by zip: unpack it first"),
        (b"\x28\xb5\x2f\xfd and more", "packed by zstd: unpack it first"),
        (gzip.compress(gzip.compress(pcap())), "packed twice"),
        (gzip.compress(b"", mtime=0), "empty"),
        (bz2.compress(pcap())[:-9], "what packs it is damaged or cut short"),
        (pcap(link=147), "link type 147"),
        (pcap()[:32] + b"\xff\xff\xff\x7f" + pcap()[36:], "damaged"),
        (pcapng()[:4] + b"\x03\0\0\0" + pcapng()[8:], "damaged"),
        (pcapng()[:8] + b"abcd" + pcapng()[12:], "byte order"),
        (pcapng()[:28] + block("<", 6, bytes(20)), "damaged"),
    ],
)
def test_what_is_no_capture_is_named(data: bytes, says: str) -> None:
    with pytest.raises(PcapError, match=says):
        read(data)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("whole", [pcap(), pcapng()])
def test_what_is_packed_reads_the_same(pack: Callable[[bytes], bytes], whole: bytes) -> None:
    assert seen(read(pack(whole))) == WHOLE
    assert seen(read(pack(whole[:30]) + pack(whole[30:]))) == WHOLE  # as `cat a.gz b.gz` makes them
    for size in range(1, len(pack(whole)) - 1, 11):  # torn in mid-file: nobody takes it for all there was
        with pytest.raises(PcapError, match=r"^x\.pcap: "):
            read(pack(whole)[:size])


def test_keys_that_a_capture_holds_come_before_the_packets_behind_them() -> None:
    came: list[bytes] = []
    secrets = block("<", 0x0A, struct.pack("<II", 0x544C534B, 5) + b"a log")
    other = block("<", 0x0A, struct.pack("<II", 0x57474B4C, 4) + b"wg k")
    whole = pcapng()
    at = whole.index(b"of somebody else") - 8
    capture = Capture(io.BytesIO(whole[:at] + secrets + other + whole[at:]), "x")
    capture.on_secrets = came.append
    packets = iter(capture)
    next(packets)
    assert came == [b"a log"]
    assert len(list(packets)) == 1


def test_an_interface_that_carries_no_ip_costs_its_own_packets_alone() -> None:
    usb = block("<", 1, struct.pack("<HHI", 189, 0, 0)) + block("<", 6, struct.pack("<IIIII", 2, 0, 0, 4, 4) + b"abcd")
    assert [packet.link for packet in read(pcapng() + usb)] == [LINKTYPE_ETHERNET, LINKTYPE_ETHERNET, 189]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    with PcapWriter(path, linktype=LINKTYPE_RAW) as writer:
        writer.write(TIMES[0], DATA[0])
        writer.write(TIMES[1], DATA[1], length=100)
    with path.open("rb") as stream:
        got = seen(Capture(stream, "x"))
    assert got == [(TIMES[0], LINKTYPE_RAW, DATA[0], len(DATA[0])), (TIMES[1], LINKTYPE_RAW, DATA[1], 100)]


def test_packets_survive_the_reading_of_the_next_block() -> None:
    packets = [bytes((k % 251,)) * 60_000 for k in range(200)]  # three blocks of the reader
    stream = io.BytesIO()
    writer = PcapWriter(stream)
    for k, data in enumerate(packets):
        writer.write(k, data)
    assert [bytes(p.data) for p in read(stream.getvalue())] == packets
