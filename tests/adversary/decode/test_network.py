"""Below TCP: every wrapping that a tap meets is taken off, or named."""

from __future__ import annotations

import struct

import pytest

from dpgt_node.adversary.decode import packets as p
from dpgt_node.adversary.decode.network import FRAGMENT, Tcp, find_tcp
from dpgt_node.adversary.decode.packets import LINKTYPE_ETHERNET, LINKTYPE_RAW, Packet
from tests.adversary.decode.wires import ip_packet

V4 = ip_packet(("10.0.0.1", 40000), ("10.0.0.2", 7000), 5, 6, 0x10, b"payload")
V6 = ip_packet(("fd00::1", 40000), ("fd00::2", 7000), 5, 6, 0x10, b"payload")
ADDRESSES = {V4: bytes((10, 0, 0, 1, 10, 0, 0, 2)), V6: V6[8:40]}
TYPE = {V4: b"\x08\x00", V6: b"\x86\xdd"}
MACS = bytes(12)


def frame(inner: bytes) -> bytes:
    return MACS + TYPE[inner] + inner


def in_ip(protocol: int, data: bytes, *, version: int = 4, fragment: int = 0) -> bytes:
    """An outer packet, with an option of IP that must be stepped over."""
    if version == 6:
        return struct.pack("!IHBB", 0x60000000, len(data), protocol, 64) + bytes(32) + data
    return struct.pack("!BBHHHBBH", 0x46, 0, 24 + len(data), 0, fragment, 64, protocol, 0) + bytes(12) + data


def udp(port: int, data: bytes) -> bytes:
    return in_ip(17, struct.pack("!HHHH", 55555, port, 8 + len(data), 0) + data)


def ethernet(kind: int, data: bytes) -> bytes:
    return MACS + struct.pack("!H", kind) + data


def wrapped(inner: bytes) -> dict[str, tuple[int, bytes]]:
    """Name to (link type, packet)."""
    kind = TYPE[inner]
    ppp = b"\x00\x21" if inner == V4 else b"\x00\x57"
    label, last = b"\0\x01\0\x40", b"\0\x01\x01\x40"
    plain = {
        "ethernet": frame(inner),
        "802.1Q": MACS + b"\x81\0\0\x07" + kind + inner,
        "QinQ": MACS + b"\x88\xa8\0\x07\x81\0\0\x08" + kind + inner,
        "tag 0x9100": MACS + b"\x91\0\0\x07\x81\0\0\x08" + kind + inner,
        "SNAP": MACS + b"\0\x40\xaa\xaa\x03\0\0\0" + kind + inner,
        "MPLS": ethernet(0x8847, last + inner),
        "MPLS, three labels": ethernet(0x8847, label + label + last + inner),
        "MPLS, a wire with control word": ethernet(0x8848, last + bytes(4) + frame(inner)),
        "MPLS, a wire": ethernet(0x8847, last + b"\x20" + frame(inner)[1:]),
        "PPPoE": ethernet(0x8864, b"\x11\0\0\x01\0\0" + ppp + inner),
        "PPPoE, short protocol": ethernet(0x8864, b"\x11\0\0\x01\0\0" + ppp[1:] + inner),
        "PPPoE, MPLS": ethernet(0x8864, b"\x11\0\0\x01\0\0\x02\x81" + last + inner),
        "GRE": ethernet(0x0800, in_ip(47, b"\0\0" + kind + inner)),
        "GRE, all fields": ethernet(0x0800, in_ip(47, b"\xb0\0" + kind + bytes(12) + inner)),
        "GRE in IPv6": ethernet(0x86DD, in_ip(47, b"\0\0" + kind + inner, version=6)),
        "GRE, frames": ethernet(0x0800, in_ip(47, b"\0\0\x65\x58" + frame(inner))),
        "GRE, PPP": ethernet(0x0800, in_ip(47, b"\x30\x81\x88\x0b" + bytes(12) + b"\xff\x03" + ppp + inner)),
        "ERSPAN": ethernet(0x0800, in_ip(47, b"\0\0\x88\xbe" + frame(inner))),
        "ERSPAN II": ethernet(0x0800, in_ip(47, b"\x10\0\x88\xbe" + bytes(12) + frame(inner))),
        "ERSPAN III": ethernet(0x0800, in_ip(47, b"\x10\0\x22\xeb" + bytes(4) + bytes(12) + frame(inner))),
        "ERSPAN III, long": ethernet(
            0x0800, in_ip(47, b"\x10\0\x22\xeb" + bytes(15) + b"\1" + bytes(8) + frame(inner))
        ),
        "VXLAN": ethernet(0x0800, udp(4789, b"\x08" + bytes(7) + frame(inner))),
        "VXLAN of Linux": ethernet(0x0800, udp(8472, b"\x08" + bytes(7) + frame(inner))),
        "Geneve": ethernet(0x0800, udp(6081, b"\x02\0\x65\x58" + bytes(4) + bytes(8) + frame(inner))),
        "IP in IP": ethernet(0x0800, in_ip(4 if inner == V4 else 41, inner)),
        "authenticated": ethernet(
            0x0800, in_ip(51, (b"\x04" if inner == V4 else b"\x29") + b"\x04" + bytes(22) + inner)
        ),
        "unfragmented": ethernet(
            0x86DD, in_ip(44, (b"\x04" if inner == V4 else b"\x29") + bytes(7) + inner, version=6)
        ),
        "VXLAN in VLAN in GRE": ethernet(
            0x0800, in_ip(47, b"\0\0\x81\0\0\x07\x08\0" + udp(4789, b"\x08" + bytes(7) + frame(inner)))
        ),
    }
    return {name: (LINKTYPE_ETHERNET, packet) for name, packet in plain.items()} | {
        "raw": (LINKTYPE_RAW, inner),
        "loopback": (p.LINKTYPE_NULL, bytes(4) + inner),
        "cooked": (p.LINKTYPE_SLL, bytes(14) + kind + inner),
        "cooked, tagged": (p.LINKTYPE_SLL, bytes(14) + b"\x81\0\0\x07" + kind + inner),
        "cooked 2": (p.LINKTYPE_SLL2, kind + bytes(18) + inner),
        "PPP": (p.LINKTYPE_PPP, ppp + inner),
        "PPP with address": (p.LINKTYPE_PPP_HDLC, b"\xff\x03" + ppp + inner),
        "PPPoE alone": (p.LINKTYPE_PPPOE, b"\x11\0\0\x01\0\0" + ppp + inner),
    }


@pytest.mark.parametrize("inner", [V4, V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("name", sorted(wrapped(V4)))
def test_every_wrapping_is_taken_off(name: str, inner: bytes) -> None:
    link, packet = wrapped(inner)[name]
    padded = packet + bytes(9)
    found = find_tcp(Packet(0, link, memoryview(padded), len(padded)))
    assert found == Tcp(ADDRESSES[inner], len(packet) - 27, len(packet))
    for kept in range(len(packet) - 8):  # cut anywhere: no crash, nothing made up
        cut = find_tcp(Packet(0, link, memoryview(packet)[:kept], len(packet)))
        assert isinstance(cut, str) or cut == found


@pytest.mark.parametrize(
    ("packet", "name"),
    [
        (ethernet(0x0806, bytes(28)), "ARP"),
        (ethernet(0x88E5, bytes(40)), "MACsec, which is encrypted"),
        (ethernet(0x8863, bytes(20)), "PPPoE discovery"),
        (ethernet(0x1234, bytes(20)), "EtherType 0x1234"),
        (ethernet(0x0026, bytes(38)), "802.3 frames"),
        (ethernet(0x8864, b"\x11\0\0\x01\0\0\xc0\x21" + bytes(20)), "PPP protocol 0xc021"),
        (ethernet(0x0800, in_ip(50, bytes(40))), "IPsec (ESP), which is encrypted"),
        (ethernet(0x0800, in_ip(1, bytes(40))), "ICMP"),
        (ethernet(0x0800, in_ip(99, bytes(40))), "IP protocol 99"),
        (ethernet(0x0800, udp(53, bytes(40))), "UDP"),
        (ethernet(0x0800, udp(51820, bytes(40))), "WireGuard, which is encrypted"),
        (ethernet(0x0800, in_ip(6, bytes(40), fragment=0x2000)), FRAGMENT),
        (ethernet(0x0800, in_ip(6, bytes(40), fragment=7)), FRAGMENT),
        (ethernet(0x86DD, in_ip(44, b"\x06\0\0\x09" + bytes(40), version=6)), FRAGMENT),
        (MACS + b"\x81\0\0\x07" * 40 + b"\x08\0" + V4, "packets with too many headers"),
        (b"\1", "packets too short for their headers"),
    ],
)
def test_what_is_not_read_is_named(packet: bytes, name: str) -> None:
    assert find_tcp(Packet(0, LINKTYPE_ETHERNET, memoryview(packet), len(packet))) == name


def test_a_link_type_without_ip_and_a_cut_packet_are_named() -> None:
    assert find_tcp(Packet(0, 189, memoryview(bytes(60)), 60)) == "link type 189"
    assert find_tcp(Packet(0, LINKTYPE_ETHERNET, memoryview(frame(V4))[:40], 200)) == "cut within their headers"
