"""The kernel's classic packet filter: a program that lets through TCP of some ports."""

from __future__ import annotations

import struct
from collections.abc import Iterable

MAX_PORTS = 100
"""A conditional jump reaches 255 instructions."""
_LDH_ABS, _LDB_ABS, _LDH_IND, _LDX_IP_HEADER = 0x28, 0x30, 0x48, 0xB1
_JEQ, _JSET, _RET = 0x15, 0x45, 0x06
_IP, _IPV6, _TCP = 0x0800, 0x86DD, 6

Line = tuple[str, int, int, str, str]
"""(label or "", opcode, operand, label to go to if true, if false); "": the next line."""
REJECT_ALL: tuple[Line, ...] = (("", _RET, 0, "", ""),)


def port_filter(ports: Iterable[int], snap_bytes: int) -> tuple[Line, ...]:
    """Keeps ``snap_bytes`` of each Ethernet frame with TCP over IPv4, or over IPv6 without extension headers, from or
    to one of ``ports`` (none: any port); of a fragmented packet the first fragment alone.  ValueError for too many.
    """
    wanted = sorted(set(ports))
    if len(wanted) > MAX_PORTS:
        raise ValueError(f"{len(wanted)} ports; a filter has at most {MAX_PORTS}")

    def either(family: str, load: int, *offsets: int) -> Iterable[Line]:
        for offset in offsets:
            yield "", load, offset, "", ""
            for port in wanted:
                yield "", _JEQ, port, f"keep{family}", ""
        if wanted:
            yield f"drop{family}", _RET, 0, "", ""
        yield f"keep{family}", _RET, snap_bytes, "", ""
        if not wanted:
            yield f"drop{family}", _RET, 0, "", ""

    return (
        ("", _LDH_ABS, 12, "", ""),
        ("", _JEQ, _IPV6, "six", ""),
        ("", _JEQ, _IP, "", "drop4"),
        ("", _LDB_ABS, 23, "", ""),
        ("", _JEQ, _TCP, "", "drop4"),
        ("", _LDH_ABS, 20, "", ""),
        ("", _JSET, 0x1FFF, "drop4", ""),
        ("", _LDX_IP_HEADER, 14, "", ""),
        *either("4", _LDH_IND, 14, 16),
        ("six", _LDB_ABS, 20, "", ""),
        ("", _JEQ, _TCP, "", "drop6"),
        *either("6", _LDH_ABS, 54, 56),
    )


def assembled(lines: tuple[Line, ...]) -> bytes:
    """As the kernel takes it: struct sock_filter for each line."""
    at = {label: i for i, (label, *_) in enumerate(lines) if label}
    program = []
    for i, (_, code, operand, true, false) in enumerate(lines):
        jumps = [0 if not label else at[label] - i - 1 for label in (true, false)]
        program.append(struct.pack("@HBBI", code, *jumps, operand))
    return b"".join(program)
