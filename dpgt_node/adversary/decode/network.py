"""Below TCP: where a packet's IP header is, what it carries, and who sent it to whom.

The key of a direction is addresses and ports as they stand in the packet: source, destination, ports.
"""

from __future__ import annotations

import struct
from ipaddress import ip_address

from dpgt_node.adversary.decode.packets import (
    LINKTYPE_LOOP,
    LINKTYPE_NULL,
    LINKTYPE_RAW,
    LINKTYPE_SLL,
    LINKTYPE_SLL2,
)
from dpgt_node.adversary.decode.stages import Endpoint

FRAGMENT = 44
_EXTENSIONS = (0, 43, 60)


def ip_header(link: int, data: memoryview) -> tuple[int, int]:
    """Where the IP header is, and its version; version 0: no IP."""
    size = len(data)
    if link == LINKTYPE_RAW:
        at = 0
    elif link in (LINKTYPE_NULL, LINKTYPE_LOOP):
        at = 4
    elif link == LINKTYPE_SLL:
        at = 16
    elif link == LINKTYPE_SLL2:
        at = 20
    else:
        at = 14
        while size >= at and data[at - 2 : at].tobytes() in (b"\x81\x00", b"\x88\xa8"):
            at += 4
        if size >= at and data[at - 2 : at].tobytes() not in (b"\x08\x00", b"\x86\xdd"):
            return 0, 0
    version = data[at] >> 4 if size > at else 0
    return at, version if version in (4, 6) else 0


def ipv6_payload(data: memoryview, ip: int, length: int) -> tuple[int, int, int]:
    """Where the payload of an IPv6 packet begins and ends, and its protocol."""
    size = int.from_bytes(data[ip + 4 : ip + 6], "big")
    end = ip + 40 + size if size else length
    protocol, at = data[ip + 6], ip + 40
    while protocol in _EXTENSIONS and at + 8 <= len(data):
        protocol, at = data[at], at + 8 + data[at + 1] * 8
    return at, end, protocol


def reversed_key(key: bytes) -> bytes:
    half = (len(key) - 4) // 2
    return key[half : 2 * half] + key[:half] + key[-2:] + key[-4:-2]


def ends_of(key: bytes) -> tuple[Endpoint, Endpoint]:
    half = (len(key) - 4) // 2
    ports = struct.unpack("!HH", key[-4:])
    hosts = (str(ip_address(key[:half])), str(ip_address(key[half : 2 * half])))
    return Endpoint(hosts[0], ports[0]), Endpoint(hosts[1], ports[1])
