"""Below TCP: which headers a packet has, where TCP is, and who sent it to whom.

Read are Ethernet with tags, MPLS, PPP and PPPoE, IPv4 and IPv6, and what is carried in them: GRE, ERSPAN, VXLAN,
Geneve, IP in IP.  Addresses are those of the innermost IP header.  The key of a direction is addresses and ports as
they stand in the packet: source, destination, ports.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from dpgt_node.adversary.decode.packets import (
    LINKTYPE_ETHERNET,
    LINKTYPE_LOOP,
    LINKTYPE_NULL,
    LINKTYPE_PPP,
    LINKTYPE_PPP_HDLC,
    LINKTYPE_PPPOE,
    LINKTYPE_RAW,
    LINKTYPE_SLL,
    LINKTYPE_SLL2,
    Packet,
)
from dpgt_node.adversary.decode.stages import Endpoint

FRAGMENT = "fragments of IP packets"
CUT = "cut within their headers"
OTHER_PORTS = "TCP of other ports"
_MAX_HEADERS = 16

# What comes next, by EtherType; frames and PPP have one, too.
_IPV4, _IPV6, _FRAME, _PPP, _SESSION, _GRE_IN_IP, _UDP = 0x0800, 0x86DD, 0x6558, 0x880B, 0x8864, -47, -17
_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200, 0x9300)
_MPLS = (0x8847, 0x8848)
_ERSPAN_2, _ERSPAN_3 = 0x88BE, 0x22EB
_NAMES = {
    0x0806: "ARP",
    0x8863: "PPPoE discovery",
    0x888E: "802.1X",
    0x88CC: "LLDP",
    0x88E5: "MACsec, which is encrypted",
}
_PPP_KINDS = {0x0021: _IPV4, 0x0057: _IPV6, 0x0281: _MPLS[0]}
_PROTOCOLS = {1: "ICMP", 2: "IGMP", 50: "IPsec (ESP), which is encrypted", 58: "ICMPv6", 132: "SCTP"}
_PORTS = {51820: "WireGuard, which is encrypted", 4500: "IPsec over UDP, which is encrypted", 2152: "GTP-U"}
_VXLAN, _GENEVE = (4789, 8472), 6081
_TCP_IN_IP, _UDP_IN_IP, _GRE, _AH, _FRAGMENT_HEADER = 6, 17, 47, 51, 44
_IN_IP = {4: _IPV4, 41: _IPV6, _GRE: _GRE_IN_IP, _UDP_IN_IP: _UDP}
_EXTENSIONS = (0, 43, 60, 135, 139)

_Next = tuple[int, int]
"""The kind of the next header and where it begins."""


class Tcp(NamedTuple):
    """A TCP header at ``at`` of the packet; its payload ends at ``end``, beyond the data where the packet was cut.

    ``addresses``: source and destination, 8 or 32 bytes.
    """

    addresses: bytes
    at: int
    end: int


def find_tcp(packet: Packet) -> Tcp | str:
    """Where TCP is; else what the packet carries instead, in words."""
    data = packet.data
    try:
        kind, at = _first(packet.link, data)
        for _ in range(_MAX_HEADERS):
            if kind in (_IPV4, _IPV6):
                found = _ip(data, at, packet.length)
            elif kind in _HEADERS:
                found = _HEADERS[kind](data, at)
            else:
                return _NAMES.get(kind) or (f"EtherType 0x{kind:04x}" if kind > 0 else f"link type {packet.link}")
            if isinstance(found, (Tcp, str)):
                return found
            kind, at = found
    except (IndexError, struct.error):
        return CUT if packet.length > len(data) else "packets too short for their headers"
    return "packets with too many headers"


def _first(link: int, data: memoryview) -> _Next:
    if link == LINKTYPE_RAW:
        return _by_version(data, 0)
    if link in (LINKTYPE_NULL, LINKTYPE_LOOP):
        return _by_version(data, 4)
    if link == LINKTYPE_SLL:
        return _number(data, 14), 16
    if link == LINKTYPE_SLL2:
        return _number(data, 0), 20
    kinds = {
        LINKTYPE_ETHERNET: _FRAME,
        LINKTYPE_PPP: _PPP,
        LINKTYPE_PPP_HDLC: _PPP,
        LINKTYPE_PPPOE: _SESSION,
    }
    return kinds.get(link, 0), 0


def _number(data: memoryview, at: int) -> int:
    """Two bytes; struct.error beyond the end."""
    return int(struct.unpack_from("!H", data, at)[0])


def _by_version(data: memoryview, at: int) -> _Next:
    """An IP header of either version; a kind 0 where it is neither."""
    version = data[at] >> 4
    return (_IPV4 if version == 4 else _IPV6 if version == 6 else 0), at


# --- below IP


def _frame(data: memoryview, at: int) -> _Next | str:
    return _number(data, at + 12), at + 14


def _tag(data: memoryview, at: int) -> _Next | str:
    return _number(data, at + 2), at + 4


def _mpls(data: memoryview, at: int) -> _Next | str:
    while not data[at + 2] & 1:  # the last label has this bit
        at += 4
    at += 4
    kind, _ = _by_version(data, at)
    if kind:
        return kind, at
    return _FRAME, at if data[at] >> 4 else at + 4  # without or with a control word


def _session(data: memoryview, at: int) -> _Next | str:
    return _PPP, at + 6


def _ppp(data: memoryview, at: int) -> _Next | str:
    if data[at : at + 2].tobytes() == b"\xff\x03":
        at += 2
    if data[at] & 1:  # a protocol in one byte
        protocol, at = data[at], at + 1
    else:
        protocol, at = _number(data, at), at + 2
    return (_PPP_KINDS[protocol], at) if protocol in _PPP_KINDS else f"PPP protocol 0x{protocol:04x}"


# --- IP, and what is in it


def _ip(data: memoryview, at: int, length: int) -> Tcp | _Next | str:
    if data[at] >> 4 == 4:
        head, total, fragment, protocol = _IP_HEAD(data, at)
        addresses = data[at + 12 : at + 20].tobytes()
        end = at + total if total else length  # 0: larger than 64 KiB, split by the hardware later
        after = at + (head & 15) * 4
        if fragment & 0x3FFF:
            return FRAGMENT
    else:
        size, protocol = _number(data, at + 4), data[at + 6]
        addresses = data[at + 8 : at + 40].tobytes()
        end = at + 40 + size if size else length
        after = at + 40
    while protocol in _EXTENSIONS or protocol in (_AH, _FRAGMENT_HEADER):
        if protocol == _FRAGMENT_HEADER:
            if _number(data, after + 2) & 0xFFF9:
                return FRAGMENT
            step = 8
        else:
            step = (data[after + 1] + 2) * 4 if protocol == _AH else (data[after + 1] + 1) * 8
        protocol, after = data[after], after + step
    if protocol == _TCP_IN_IP:
        data[after + 19]  # IndexError: cut within the header
        return Tcp(addresses, after, end)
    if protocol in _IN_IP:
        return _IN_IP[protocol], after
    return _PROTOCOLS.get(protocol) or f"IP protocol {protocol}"


_IP_HEAD = struct.Struct("!BxHxxHxB").unpack_from


def _gre(data: memoryview, at: int) -> _Next | str:
    flags, kind = _number(data, at), _number(data, at + 2)
    version, sequenced = flags & 7, flags & 0x1000
    fields = [flags & 0xC000, flags & 0x2000, sequenced] if version == 0 else [1, sequenced, flags & 0x80]
    at += 4 + 4 * sum(map(bool, fields))
    if kind == _ERSPAN_2:
        return _FRAME, at + (8 if sequenced else 0)
    if kind == _ERSPAN_3:
        return _FRAME, at + (20 if data[at + 11] & 1 else 12)
    return kind, at


def _udp(data: memoryview, at: int) -> _Next | str:
    ports = _number(data, at), _number(data, at + 2)
    at += 8
    if ports[1] in _VXLAN and data[at] & 8:
        return _FRAME, at + 8
    if ports[1] == _GENEVE:
        return _number(data, at + 2), at + 8 + (data[at] & 0x3F) * 4
    return next((_PORTS[port] for port in ports if port in _PORTS), "UDP")


def _llc(data: memoryview, at: int) -> _Next | str:
    """A frame with a length in the place of its EtherType: SNAP has one further on."""
    if data[at : at + 3].tobytes() == b"\xaa\xaa\x03":
        return _number(data, at + 6), at + 8
    return "802.3 frames"


_HEADERS: Mapping[int, Callable[[memoryview, int], _Next | str]] = {
    _FRAME: _frame,
    _PPP: _ppp,
    _SESSION: _session,
    _GRE_IN_IP: _gre,
    _UDP: _udp,
    **dict.fromkeys(_TAGS, _tag),
    **dict.fromkeys(_MPLS, _mpls),
    **dict.fromkeys(range(1, 0x600), _llc),
}


def reversed_key(key: bytes) -> bytes:
    half = (len(key) - 4) // 2
    return key[half : 2 * half] + key[:half] + key[-2:] + key[-4:-2]


def ends_of(key: bytes) -> tuple[Endpoint, Endpoint]:
    half = (len(key) - 4) // 2
    ports = struct.unpack("!HH", key[-4:])
    hosts = (str(ip_address(key[:half])), str(ip_address(key[half : 2 * half])))
    return Endpoint(hosts[0], ports[0]), Endpoint(hosts[1], ports[1])
