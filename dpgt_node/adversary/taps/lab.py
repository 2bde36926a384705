"""Hosts that share nothing but a recording switch: a network namespace each, one interface, one address.

A namespace has no name and no process of its own: it is held open by this process and by those that run in it, and a
host's cable is a TAP device whose other end is a descriptor here.  So however this process ends, everything of the
network is gone when it and its children are.

Needs Linux, root, iproute2 and util-linux.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from dpgt_node.adversary.taps.proxy import host_ip
from dpgt_node.errors import ConfigError
from dpgt_node.values import dataclass

_TUN = "/dev/net/tun"
_CLONE_NEWNET = 0x4000_0000
_TUNSETIFF = 0x4004_54CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_QUEUE_FRAMES = 10_000
_LIMIT_S = 60.0
_TOOLS = ("ip", "nsenter")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Host:
    """``ip``: its only address, but for the loopback.  ``enter``: arguments before a command that is to run there."""

    name: str
    ip: str
    mac: bytes
    enter: tuple[str, ...]
    line: int
    """Descriptor of the other end of its cable."""


class Network:
    """Context manager: hosts by name, all cables plugged into nothing yet (see
    :class:`~dpgt_node.adversary.taps.switch.Switch`).

    ConfigError, saying what is missing, on a machine where this cannot be.
    """

    def __init__(self, names: Sequence[str], *, mtu: int = 1500) -> None:
        self._names = tuple(names)
        self._mtu = mtu
        self._descriptors: list[int] = []
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        _require()
        try:
            for number, name in enumerate(self._names, start=1):
                self.hosts[name] = self._boot(number, name)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def _boot(self, number: int, name: str) -> Host:
        namespace, line = _in_thread(lambda: self._boot_here(number))
        self._descriptors += [namespace, line]
        enter = ("nsenter", f"--net=/proc/{os.getpid()}/fd/{namespace}", "--")
        return Host(name, host_ip(number), _mac(number), enter, line)

    def _boot_here(self, number: int) -> tuple[int, int]:
        """Move this thread into a new namespace and plug a cable into it; what it starts is there too."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise _cannot(f"this machine does not let root make network namespaces: {reason}")
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        line = -1
        try:
            line = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            fcntl.ioctl(line, _TUNSETIFF, struct.pack("@16sH22x", b"eth0", _IFF_TAP | _IFF_NO_PI))
            self._configure(number)
        except OSError as error:
            for descriptor in (namespace, line):
                if descriptor >= 0:
                    os.close(descriptor)
            raise _cannot(f"no TAP device in a network namespace: {error}") from error
        return namespace, line

    def _configure(self, number: int) -> None:
        """Neighbours are known beforehand: nobody needs to ask for them, so losses cost nothing but what is lost."""
        lines = [
            "link set lo up",
            f"link set eth0 addrgenmode none address {_text(_mac(number))} mtu {self._mtu}",
            f"link set eth0 txqueuelen {_QUEUE_FRAMES} up",
            f"address add {host_ip(number)}/16 dev eth0",
        ]
        for other in range(1, len(self._names) + 1):
            if other != number:
                lines.append(f"neighbour add {host_ip(other)} lladdr {_text(_mac(other))} dev eth0 nud permanent")
        done = subprocess.run(
            ["ip", "-batch", "-"],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise OSError(0, done.stderr.strip())


def _require() -> None:
    if sys.platform != "linux":
        raise _cannot("network namespaces need Linux")
    if os.geteuid() != 0:
        raise _cannot("it needs root, for network namespaces")
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        raise _cannot(f"there is no {' and no '.join(absent)} here (iproute2, util-linux)")
    if not os.access(_TUN, os.R_OK | os.W_OK):
        raise _cannot(f"there is no {_TUN} here")


def _cannot(why: str) -> ConfigError:
    return ConfigError.one(
        "this machine", "", f"cannot have the lab: {why}. Without it: dpgt launch RUN.toml --out DIR --tap FILE.pcap"
    )


def _in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, in a thread of its own whose namespaces are nobody else's."""
    found: list[T] = []
    raised: list[BaseException] = []

    def body() -> None:
        try:
            found.append(work())
        except BaseException as error:  # carried over to whoever waits
            raised.append(error)

    thread = threading.Thread(target=body, name="dpgt-lab-host")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


def _mac(number: int) -> bytes:
    return b"\x02\x00\x00\x00" + number.to_bytes(2, "big")


def _text(mac: bytes) -> str:
    return mac.hex(":")
