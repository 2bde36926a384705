"""What TLS shows without its keys: whom the client asks for, and how much each record carries."""

from __future__ import annotations

from array import array

from dpgt_node.adversary.decode.stages import Gap, Item, Segment

_HEADER = 5
_OVERHEAD = 22
"""Bytes that a record of TLS 1.3 is longer than what it carries."""
_MAX_RECORD = (1 << 14) + 256
_CCS, _HANDSHAKE, _DATA = 20, 22, 23
_DATA_HEADER = b"\x17\x03\x03"
_HELLO = b"\x16\x03"
_SERVER_NAME = 0


class RecordSizes:
    """A sink (:class:`dpgt_node.adversary.decode.stages.Sink`) of one direction of a connection.

    ``tls``: whether it is TLS, None while nothing was seen.  ``server_name``: what a client asks for, empty if not
    seen.  ``times_ns``, ``carried``: of each record of application data, when it began and the bytes inside.
    ``lost``: bytes that were not seen; a record whose bounds are known counts whole, others are estimated.
    """

    def __init__(self) -> None:
        self.tls: bool | None = None
        self.server_name = ""
        self.times_ns = array("q")
        self.carried = array("q")
        self.lost = 0
        self._head = bytearray()
        self._body = bytearray()
        self._skip = 0  # bytes that are left of a record
        self._wanted = False  # its body is read
        self._astray = 0  # bytes since it is not known where records begin; 0: it is known
        self._buffer = bytearray()  # while it is not

    def feed(self, item: Item) -> None:
        if isinstance(item, Gap):
            self._lose(item.end - item.start)
            return
        if self.tls is None:
            self.tls = bytes(item.data[:2]) == _HELLO[: len(item.data)]
            if not self.tls:  # or it began before the tap did
                self._astray = 1
        view = memoryview(item.data)
        while view.nbytes:
            if self._astray:
                view = self._find(view)
            elif self._skip:
                taken = view[: self._skip]
                if self._wanted:
                    self._body += taken
                self._skip -= taken.nbytes
                view = view[taken.nbytes :]
                if self._wanted and not self._skip:
                    self.server_name = self.server_name or server_name(bytes(self._body))
                    self._wanted = False
            else:
                need = _HEADER - len(self._head)
                self._head += view[:need]
                view = view[need:]
                if len(self._head) == _HEADER:
                    self._begin(item)

    def close(self) -> None:
        pass

    def _begin(self, item: Segment) -> None:
        kind, size = self._head[0], int.from_bytes(self._head[3:5], "big")
        if not _CCS <= kind <= _DATA or self._head[1] != 3 or size > _MAX_RECORD:
            self._astray = len(self._head)
            self._head.clear()
            return
        self._head.clear()
        self._skip = size
        if kind == _DATA:
            self.times_ns.append(item.time_ns)
            self.carried.append(max(0, size + _HEADER - _OVERHEAD))
        elif kind == _HANDSHAKE and not self.server_name:
            self._wanted = True
            self._body.clear()

    def _lose(self, size: int) -> None:
        self.lost += size
        self._wanted = False
        if self._astray:
            self._astray += size + len(self._buffer)
            self._buffer.clear()
        elif self._skip >= size and not self._head:
            self._skip -= size
        else:
            self._astray = size - self._skip + len(self._head)
            self._skip = 0
            self._head.clear()

    def _find(self, view: memoryview) -> memoryview:
        """Look for a header behind whose record another one begins; what follows it."""
        self._buffer += view
        at = self._buffer.find(_DATA_HEADER)
        while 0 <= at <= len(self._buffer) - _HEADER:
            end = at + _HEADER + int.from_bytes(self._buffer[at + 3 : at + 5], "big")
            if end - at <= _HEADER + _MAX_RECORD:
                if len(self._buffer) < end + len(_DATA_HEADER):
                    break
                if self._buffer[end : end + len(_DATA_HEADER)] == _DATA_HEADER:
                    return self._found(at)
            at = self._buffer.find(_DATA_HEADER, at + 1)
        if at < 0 and len(self._buffer) > 4 * _MAX_RECORD:
            self._astray += len(self._buffer) - 2
            del self._buffer[:-2]
        return view[:0]

    def _found(self, at: int) -> memoryview:
        if self.tls:
            missed = self._astray + at
            records = -(-missed // (_MAX_RECORD + _HEADER))
            if missed > _OVERHEAD * records and len(self.carried):
                self.times_ns.append(self.times_ns[-1])
                self.carried.append(missed - _OVERHEAD * records)
        self.tls = True
        self._astray = 0
        rest = memoryview(bytes(self._buffer[at:]))
        self._buffer.clear()
        return rest


def server_name(hello: bytes) -> str:
    """The name that a ClientHello asks for (RFC 6066); empty for none, or for something else."""
    try:
        at = 4 + 2 + 32
        at += 1 + hello[at]
        at += 2 + int.from_bytes(hello[at : at + 2], "big")
        at += 1 + hello[at]
        end = at + 2 + int.from_bytes(hello[at : at + 2], "big")
        at += 2
        while at + 4 <= min(end, len(hello)):
            kind, size = int.from_bytes(hello[at : at + 2], "big"), int.from_bytes(hello[at + 2 : at + 4], "big")
            if kind == _SERVER_NAME and hello[0] == 1:
                length = int.from_bytes(hello[at + 7 : at + 9], "big")
                name = hello[at + 9 : at + 9 + length].decode("ascii")
                return name if name.isprintable() else ""
            at += 4 + size
    except (IndexError, UnicodeDecodeError):
        pass
    return ""
