"""A tap on a network interface of this machine: AF_PACKET from the standard library, to a capture file.

Needs Linux and root (CAP_NET_RAW).  A frame that the kernel had no room for makes the capture a failure: what is read
later must not look like all that was sent.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dpgt_node.adversary.decode.packets import PcapWriter
from dpgt_node.adversary.taps.bpf import REJECT_ALL, Line, assembled, port_filter
from dpgt_node.adversary.taps.errors import CaptureError
from dpgt_node.errors import ConfigError
from dpgt_node.values import dataclass

SNAP_BYTES = 262_144
"""Longest frame kept whole: loopback hands on segments of 64 KiB and more before they are cut for a wire."""
BUFFER_BYTES = 512 << 20
"""Asked of the kernel for frames that wait to be read; its own default loses a burst of 45 MB."""

_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 1, 6, 23
_PACKET_MR_PROMISC = 1
_PACKET_OUTGOING = 4
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 26, 33, 35
_SIOCGIFHWADDR = 0x8927
_ETHERNET, _LOOPBACK = 1, 772
_TIMESPEC = struct.Struct("@qq")
_POLL_MS = 100


@dataclass(frozen=True, slots=True)
class Captured:
    """What a live tap ends with: frames and bytes written, frames that the kernel dropped, frames cut at the snap
    length.
    """

    frames: int
    nbytes: int
    dropped: int
    cut: int


class LiveTap:
    """Captures TCP of ``ports`` (none: all) on ``interface`` from the moment it is made until ``close``.

    ConfigError where this machine, or this user, cannot: it says what is missing.  ``buffer_bytes``: of the kernel's
    queue of frames that wait to be read.
    """

    def __init__(self, interface: str, ports: Sequence[int], *, buffer_bytes: int = BUFFER_BYTES) -> None:
        if sys.platform != "linux":
            raise ConfigError.one("command line", "--interface", "a live tap needs Linux; elsewhere: --proxy, tcpdump")
        try:
            lines = port_filter(ports, SNAP_BYTES + 1)
        except ValueError as error:
            raise ConfigError.one("command line", "--port", str(error)) from error
        try:
            # Protocol 0: nothing arrives before the filter is there and the socket is bound to one interface.
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError as error:
            raise ConfigError.one(
                "command line", "--interface", "a live tap needs root (CAP_NET_RAW); without it: --proxy"
            ) from error
        try:
            self._set_up(interface, lines, buffer_bytes)
        except BaseException:
            self._socket.close()
            raise

    def _set_up(self, interface: str, lines: tuple[Line, ...], buffer_bytes: int) -> None:
        try:
            index = socket.if_nametoindex(interface)
        except OSError as error:
            raise ConfigError.one("command line", "--interface", f"there is no {interface} here") from error
        kind = self._kind(interface)
        if kind not in (_ETHERNET, _LOOPBACK):
            raise ConfigError.one(
                "command line", "--interface", f"{interface} is no Ethernet (kind {kind}): capture it with tcpdump"
            )
        self._loopback = kind == _LOOPBACK
        self._attach(lines)
        with contextlib.suppress(PermissionError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, min(buffer_bytes, (1 << 30) - 1))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        if self._loopback:  # each frame comes by twice there, going out and coming in
            with contextlib.suppress(OSError):  # before Linux 4.20: told apart one by one
                self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        else:
            member = struct.pack("@iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
            self._socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, member)
        self._socket.bind((interface, _ETH_P_ALL))
        self._socket.setblocking(False)

    def _kind(self, interface: str) -> int:
        request = struct.pack("@16sH22x", interface.encode(), 0)
        return int(struct.unpack_from("@H", fcntl.ioctl(self._socket, _SIOCGIFHWADDR, request), 16)[0])

    def _attach(self, lines: tuple[Line, ...]) -> None:
        program = ctypes.create_string_buffer(assembled(lines))
        descriptor = struct.pack("@HP", len(lines), ctypes.addressof(program))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, descriptor)

    def close(self) -> None:
        self._socket.close()

    def record(self, path: Path, stop: Callable[[], bool]) -> Captured:
        """Write every frame to a capture file at ``path`` until ``stop()`` (asked ten times a second), then what was
        still waiting in the kernel.

        CaptureError when frames were lost or cut; the file is kept beside ``path``, with ``.partial`` in its name.
        """
        buffer = bytearray(SNAP_BYTES)
        view = memoryview(buffer)
        frames = nbytes = cut = 0
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        with PcapWriter(path) as pcap:
            draining = False
            while True:
                try:
                    size, extra, flags, sender = self._socket.recvmsg_into((buffer,), 64)
                except BlockingIOError:
                    if draining:
                        break
                    if stop():
                        self._attach(REJECT_ALL)  # what is in the queue is all that there will be
                        draining = True
                    else:
                        poll.poll(_POLL_MS)
                    continue
                if not draining and frames % 256 == 0 and stop():  # a link that is never silent ends as well
                    self._attach(REJECT_ALL)
                    draining = True
                if self._loopback and sender[2] == _PACKET_OUTGOING:
                    continue
                cut += bool(flags & socket.MSG_TRUNC)
                pcap.write(_time_ns(extra), view[:size])
                frames += 1
                nbytes += size
        captured = Captured(frames, nbytes, self.dropped(), cut)
        if captured.dropped or captured.cut:
            partial = path.with_name(f"{path.stem}.partial{path.suffix}")
            path.replace(partial)
            raise CaptureError(
                f"the tap lost {captured.dropped} of {captured.frames + captured.dropped} frames and cut "
                f"{captured.cut}: what it has is in {partial}; tap fewer ports, or a link that is less fast"
            )
        return captured

    def dropped(self) -> int:
        """Frames that the kernel had no room for since this was last asked."""
        raw = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        return int(struct.unpack("@II", raw)[1])


def _time_ns(extra: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(data[: _TIMESPEC.size])
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()
