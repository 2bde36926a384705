"""What the operating system says about addresses, folders, disks and limits.  Each check leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from dpgt_node.config import NodeConfig, format_address, is_wildcard, parse_address
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.disk import free_bytes, readable
from dpgt_node.values import dataclass
from dpgt_node.wire.server import why_not_listen

CONNECT_S = 5.0
FILES_BASE = 128
"""Descriptors a daemon needs whatever its neighbours: libraries, database, logs, listening sockets."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and what to do about it."""

    status: Literal["passed", "warning", "failed", "unknown"]
    found: str
    todo: str = ""


def passed(found: str) -> Finding:
    return Finding("passed", found)


def warned(found: str, todo: str) -> Finding:
    return Finding("warning", found, todo)


def failed(found: str, todo: str) -> Finding:
    return Finding("failed", found, todo)


def unknown(found: str, todo: str) -> Finding:
    """Not for this host to know."""
    return Finding("unknown", found, todo)


# --- addresses --------------------------------------------------------------------------------------------------------


_AN_ADDRESS = "listen = an address that this host has; 0.0.0.0 is all of them, and advertise then says which"
_TO_LISTEN = {
    errno.EADDRINUSE: "end the process that has it (is this agent running already?), or take another port",
    errno.EACCES: "a port from 1024 on, or the capability NET_BIND_SERVICE",
}


def listens(host: str, port: int) -> Finding:
    """Whether this process could listen there now."""
    address = format_address(host, port)
    if (error := why_not_listen(host, port)) is None:
        return passed(f"{address} is free")
    return failed(f"{address}: {error.strerror or error}", _TO_LISTEN.get(error.errno or 0, _AN_ADDRESS))


def advertised(config: NodeConfig) -> Iterator[tuple[str, Finding]]:
    """Whether what others are told to dial makes sense from here: (what is added to the check's name, finding)."""
    if config.advertise is None:
        host, _ = parse_address(config.listen)
        if is_wildcard(host):
            yield "", failed("missing, and listen is a wildcard", "advertise = an address that others dial")
        else:
            yield from _dialled(host, "the address it listens on")
        return
    host, _ = parse_address(config.advertise)
    yield from _dialled(host, config.advertise)


def _dialled(host: str, what: str) -> Iterator[tuple[str, Finding]]:
    if is_wildcard(host):
        yield "", failed(f"{what} is a wildcard", "an address that others can dial")
        return
    try:
        found = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        yield "", failed(f"{host}: {error.strerror}", "a name that every host of the run resolves, or an IP address")
        return
    yield "", passed(f"{what}: {', '.join(found)}")
    if all(_loopback(address) for address in found):
        yield " reach", warned(f"{host} is this machine only", "an address of the network, if agents run elsewhere")
    elif all(why_not_listen(address, 0) is not None for address in found):
        todo = "fine behind a NAT or a load balancer that forwards the port; else this host's own address"
        yield " reach", warned(f"no interface of this host has {', '.join(found)}", todo)


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


async def reaches(host: str, port: int) -> Finding:
    """Whether a TCP connection comes up."""
    address = format_address(host, port)
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return passed(f"{address} answers")
    except ConnectionRefusedError:
        return unknown(f"{address}: the host answers, but nobody listens there", "fine before it is started")
    except TimeoutError:
        return failed(f"{address}: no answer within {CONNECT_S:g} s", "a firewall? a wrong address?")
    except socket.gaierror as error:
        return failed(f"{host}: {error.strerror}", "coordinator = a name that this host resolves, or an IP address")
    except OSError as error:
        return failed(f"{address}: {error.strerror or error}", "routes and firewalls between the hosts")


# --- folders and disks ------------------------------------------------------------------------------------------------


def _existing(path: Path) -> Path:
    """``path`` or its nearest parent that is there."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def writable(path: Path) -> Finding:
    """Whether files can be made in ``path``, or ``path`` itself can be made."""
    place = _existing(path)
    if not place.is_dir():
        return failed(f"{place} is a file", "the path of a folder")
    name = place / f".dpgt-doctor.{os.getpid()}"
    try:
        with name.open("xb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return failed(f"{place}: {error.strerror}", f"let user {os.geteuid()} write there, or another folder")
    finally:
        name.unlink(missing_ok=True)
    return passed(f"{path} can be written" if place == path.absolute() else f"{path} can be made")


def unlocked(state_dir: Path) -> Finding:
    """Whether no process holds the state directory.  A lock ends with its process, so none is ever stale."""
    try:
        file = os.open(state_dir / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return passed("fresh")
    except OSError as error:
        return failed(f"{state_dir / 'lock'}: {error.strerror}", "let this user read the state directory")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return failed(f"{state_dir} is in use by another process", "end it (fuser), or a state_dir of its own")
    finally:
        os.close(file)
    return passed("nobody has it")


def mount_of(path: Path) -> tuple[str, str] | None:
    """(kind of file system, where it is mounted) of ``path``; None where the system does not say."""
    place = os.path.realpath(_existing(path))
    best: tuple[str, str] | None = None
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best[1])):
            best = after.split()[0], point
    return best


_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})


def keeps(path: Path, durability: str) -> Finding:
    """Whether the file system can keep what ``durability`` promises."""
    found = mount_of(path)
    if found is None:
        return unknown("the system does not say", "a local disk")
    kind, point = found
    words = f"{kind} at {point}"
    if kind in _MEMORY and durability == "power":
        return failed(f"{words} is memory: a power cut forgets what was released", "a state_dir on a disk")
    if kind in _MEMORY:
        todo = "a state_dir on a disk, unless a restart of the machine may forget what was released"
        return warned(f"{words} is memory", todo)
    if kind in _REMOTE:
        return warned(f"{words} is a network file system", "SQLite's and our locks want a local disk")
    return passed(words)


def free_space(path: Path, need_bytes: int | None) -> Finding:
    """Whether the disk has room; ``need_bytes`` None: what the run needs is not known."""
    free = free_bytes(path)
    if free is None:
        return unknown(f"how much is free is not known: the file system of {path} does not say", "take a local disk")
    words = f"{readable(free)} free for {path}"
    if need_bytes is None:
        return unknown(
            f"{words}; what the run needs is not known here: that depends on the model's size",
            "compare it with what dpgt check says on a host that has the data",
        )
    words += f", the run needs {readable(need_bytes)} at most"
    if free < need_bytes:
        return failed(words, "a larger disk, or fewer rounds")
    return passed(words) if free > 2 * need_bytes else warned(words, "little room for anything else")


def require_files(connections: int, source: str) -> None:
    """ConfigError with what :func:`open_files` finds wrong: without descriptors a run hangs, and nothing says why."""
    found = open_files(connections)
    if found.status == "failed":
        raise ConfigError.one(source, "open files", f"{found.found}: {found.todo}")


def open_files(connections: int) -> Finding:
    """Whether the limit on open files leaves room for ``connections`` connections, each way."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = FILES_BASE + 4 * connections
    words = f"limit {'none' if soft == resource.RLIM_INFINITY else soft}, about {need} needed"
    if soft != resource.RLIM_INFINITY and soft < need:
        return failed(words, f"ulimit -n {need}, LimitNOFILE= in the unit, or nofile of the container")
    return passed(words)
