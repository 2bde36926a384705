"""Checks of the fields of protobuf messages: each raises PeerError, naming the field, or returns the value."""

from __future__ import annotations

import math
import re
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from dpgt_node.errors import PeerError

MAX_MESSAGE_BYTES = 8 << 20
MAX_JSON_BYTES = 4 << 20
MAX_TEXT = 1000
MAX_DIMENSION = 1 << 32
MAX_SAMPLES = 1 << 53
RUN_ID_BYTES = 16
_MAX_ROUND = (1 << 32) - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_HEX64 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_STATE = re.compile(r"[a-z][a-z-]{0,31}", re.ASCII)

M = TypeVar("M", bound=Message)


def shown(text: object) -> str:
    """``repr`` of something a peer sent, cut so that it fits a log line and a gRPC status."""
    quoted = repr(text)
    return quoted if len(quoted) <= 80 else quoted[:77] + "..."


def malformed(message: str) -> PeerError:
    """What a peer gets for bytes that are not the protocol."""
    return PeerError(message, grpc_status="INVALID_ARGUMENT")


def require(condition: bool, message: str) -> None:
    """PeerError with ``message`` unless ``condition``."""
    if not condition:
        raise malformed(message)


def is_name(name: str) -> bool:
    """Whether ``name`` may name an agent: 1 to 63 letters, digits, ``.``, ``_``, ``-``, the first a letter or digit."""
    return _NAME.fullmatch(name) is not None


def parse(cls: type[M], data: bytes, what: str) -> M:
    """Parse protobuf ``data``; PeerError if it is too large or not a ``cls``."""
    if len(data) > MAX_MESSAGE_BYTES:
        message = f"{what} of {len(data)} bytes; the limit is {MAX_MESSAGE_BYTES}"
        raise PeerError(message, grpc_status="RESOURCE_EXHAUSTED")
    try:
        return cls.FromString(data)
    except (DecodeError, ValueError) as error:  # ValueError: invalid UTF-8 in the pure-Python implementation
        raise malformed(f"{what} is not valid protobuf ({len(data)} bytes)") from error


# --- field checks -------------------------------------------------------------------------------------------------


def text_field(value: str, what: str, least: int = 0, most: int = MAX_TEXT) -> str:
    """One line of ``least`` to ``most`` printable characters: it goes into logs and onto terminals."""
    require(least <= len(value) <= most, f"{what} of {len(value)} characters; allowed are {least} to {most}")
    require(value.isprintable(), f"{what} {shown(value)} is not a line of printable characters")
    return value


def name_field(value: str, what: str) -> str:
    require(is_name(value), f"{what} {shown(value)} is not an agent name")
    return value


def state_field(value: str) -> str:
    """One lower-case word."""
    require(_STATE.fullmatch(value) is not None, f"state {shown(value)} is not a word")
    return value


def hex_field(value: str, what: str) -> str:
    """64 lower-case hex digits."""
    require(_HEX64.fullmatch(value) is not None, f"{what} {shown(value)} is not 64 hex digits")
    return value


def bytes_field(value: bytes, what: str, *sizes: int) -> bytes:
    """One of the ``sizes`` in bytes."""
    if len(value) not in sizes:
        raise malformed(f"{what} of {len(value)} bytes; expected {' or '.join(map(str, sizes))}")
    return value


def round_field(value: int, what: str, least: int = 0) -> int:
    """A round, ``least`` (0 or -1) to 2^32 - 1."""
    if not least <= value <= _MAX_ROUND:
        raise malformed(f"{what} {value} is out of range")
    return value


def address_field(value: str, what: str) -> str:
    """HOST:PORT, port 1 to 65535."""
    host, _, port = value.rpartition(":")
    digits = port.isascii() and port.isdigit() and len(port) <= 5
    good = len(value) <= 261 and host != "" and digits and 1 <= int(port) <= 65535
    require(good and host.isprintable() and " " not in host, f"{what} {shown(value)} is not HOST:PORT")
    return value


def json_field(value: str, what: str) -> str:
    """2 bytes to 4 MiB of text; whether it is JSON is the reader's business."""
    require(len(value.encode()) <= MAX_JSON_BYTES, f"{what} is above {MAX_JSON_BYTES} bytes")
    require(len(value) >= 2, f"{what} is empty")
    return value


def real_field(message: Any, name: str, least: float = -math.inf, most: float = math.inf) -> float | None:
    """An optional double of protobuf ``message``: None when absent, never NaN."""
    if not message.HasField(name):
        return None
    value = float(getattr(message, name))
    require(least <= value <= most, f"{name} {value} is out of range")  # false for NaN too
    return value


def varint(value: int) -> bytes:
    """``value``, at least 0, as protobuf writes a number."""
    if value <= 0x7F:
        return value.to_bytes()
    if value <= 0x3FFF:  # as most are
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def no_nan(value: float | None) -> float | None:
    """NaN becomes None: "not applicable"."""
    return None if value is None or math.isnan(value) else value


def one_line(text: str, most: int = MAX_TEXT) -> str:
    """Free text as ``text_field`` takes it: at most ``most`` characters, lines joined, all of it printable."""
    line = text if text.isprintable() else "; ".join(part for part in text.splitlines() if part)
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= most else line[: most - 3] + "..."


def cut(text: str) -> str:
    """The same, and never empty."""
    return one_line(text) or "no reason given"


_UNREACHED: Final = re.compile(
    r"failed to connect to all addresses; last error: \w+: ipv[46]:\S+: "
    r"(?:Failed to connect to remote host: )?(?:connect: )?(.+?)(?: \(\d+\))?"
)
_UNRESOLVED: Final = re.compile(r"errors resolving (\S+): .* os_error:\s*(.+?) syscall:\s*(\w+)\]?")


def cause(details: str) -> str:
    """``Connection refused`` · ``cannot resolve host:7700: Name or service not known (getaddrinfo)``: what gRPC says of
    a call that nobody answered, without its own layers.
    """
    if found := _UNREACHED.fullmatch(details):
        return found[1]
    found = _UNRESOLVED.fullmatch(details)
    return f"cannot resolve {found[1]}: {found[2]} ({found[3]})" if found else details
