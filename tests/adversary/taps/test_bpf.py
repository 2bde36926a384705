"""The port filter, run by the kernel: a filter on a socket pair sees what it would see on an interface."""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import ExitStack

import pytest

from dpgt_node.adversary.taps.bpf import MAX_PORTS, REJECT_ALL, Line, assembled, port_filter

SO_ATTACH_FILTER = 26
PORTS = (7101, 7102)


def ethernet(kind: int, packet: bytes) -> bytes:
    return bytes(12) + struct.pack(">H", kind) + packet


def ipv4(source: int, target: int, *, protocol: int = 6, fragment: int = 0, options: bytes = b"") -> bytes:
    head = struct.pack(">BBHHHBBH8x", 0x45 + len(options) // 4, 0, 40, 1, fragment, 64, protocol, 0)
    return ethernet(0x0800, head + options + struct.pack(">HH", source, target) + bytes(16))


def ipv6(source: int, target: int, *, protocol: int = 6) -> bytes:
    head = struct.pack(">IHBB32x", 6 << 28, 20, protocol, 64)
    return ethernet(0x86DD, head + struct.pack(">HH", source, target) + bytes(16))


def kept(lines: tuple[Line, ...], frame: bytes) -> int:
    """How many bytes of ``frame`` get through."""
    with ExitStack() as stack:
        here, there = (stack.enter_context(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        program = ctypes.create_string_buffer(assembled(lines))
        descriptor = struct.pack("@HP", len(lines), ctypes.addressof(program))
        there.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, descriptor)
        here.settimeout(0)
        there.settimeout(0)
        try:
            here.send(frame)
            return len(there.recv(1 << 17))
        except (BlockingIOError, PermissionError):  # which one depends on where the kernel applies it
            return 0


@pytest.mark.parametrize("port", PORTS)
def test_both_ways_of_every_port_pass(port: int) -> None:
    lines = port_filter(PORTS, 1 << 18)
    for frame in (ipv4(port, 5), ipv4(5, port), ipv6(port, 5), ipv6(5, port), ipv4(5, port, options=bytes(12))):
        assert kept(lines, frame) == len(frame)


@pytest.mark.parametrize(
    "frame",
    [
        ipv4(5, 6),
        ipv6(5, 6),
        ipv4(5, 7101, protocol=17),
        ipv6(5, 7101, protocol=17),
        ipv4(5, 7101, fragment=100),
        ethernet(0x0806, ipv4(5, 7101)[14:]),
        ipv4(5, 6, options=struct.pack(">HHI", 7101, 7102, 0)),
        b"short",
    ],
    ids=["v4", "v6", "udp", "udp6", "fragment", "arp", "options", "short"],
)
def test_nothing_else_does(frame: bytes) -> None:
    assert kept(port_filter(PORTS, 1 << 18), frame) == 0


def test_the_largest_filter_reaches_all_its_ports() -> None:
    ports = range(20_000, 20_000 + MAX_PORTS)
    lines = port_filter(ports, 1 << 18)
    for port in (ports[0], ports[-1]):
        for frame in (ipv4(port, 5), ipv4(5, port), ipv6(port, 5), ipv6(5, port)):
            assert kept(lines, frame) == len(frame)
    assert kept(lines, ipv4(5, ports[-1] + 1)) == kept(lines, ipv6(5, ports[0] - 1)) == 0


def test_after_rejecting_all_nothing_passes() -> None:
    assert kept(REJECT_ALL, ipv4(5, 7101)) == 0


def test_too_many_ports_are_said() -> None:
    with pytest.raises(ValueError, match=f"{MAX_PORTS + 1} ports"):
        port_filter(range(1, MAX_PORTS + 2), 100)


def test_without_ports_all_of_tcp_passes_and_nothing_else() -> None:
    lines = port_filter((), 1 << 18)
    for frame in (ipv4(5, 6), ipv6(6, 5), ipv4(5, 6, options=bytes(12))):
        assert kept(lines, frame) == len(frame)
    for frame in (
        ipv4(5, 6, protocol=17),
        ipv6(5, 6, protocol=17),
        ipv4(5, 6, fragment=100),
        ethernet(0x0806, bytes(60)),
    ):
        assert kept(lines, frame) == 0
