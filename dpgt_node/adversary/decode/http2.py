"""HTTP/2 out of one direction of a connection: frames, and which calls their data belong to.

Header compression is not undone: round, sender and stream are inside the messages, and grpc's core writes the path of
a method in plain text when it first names it.  Where a frame header was missed, or the tap started in mid-connection,
the next header is looked for by its type, flags and stream where data of this kind do not show these by chance, by the
header that must follow it, and by what it carries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from dpgt_node.adversary.decode.messages import Messages, Reader, likely_prefix
from dpgt_node.adversary.decode.stages import Gap, Item

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER_BYTES = 9
_DATA, _HEADERS, _PRIORITY, _RST, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _CONTINUATION = range(10)
_OF_STREAMS = (_DATA, _HEADERS, _PRIORITY, _RST, _PUSH, _CONTINUATION)
_END_STREAM, _PADDED = 1, 8
_MAX_FRAME_BYTES = 16 << 20
_FRUITLESS_BYTES = 32 << 20
_LIKE_BYTES = 2048
_CHANCE = 1e-11  # of taking data for a frame's header, a byte
_MAX_CALLS = 256
_MAX_BLOCK_BYTES = 16 << 10
_PATH = re.compile(rb"/[A-Za-z][A-Za-z0-9_.]*/[A-Za-z]\w*")
_CONTROL = rb"[\x04\x06\x07\x08][\x00\x01]\x00{4}"
# Looking ahead: a match must not hide one that begins inside it.
_ANY = re.compile(rb"(?s)(?=[\x00\x01\x03\x08][\x00\x01\x04\x05]\x00\x00.[\x01-\xff]|" + _CONTROL + rb")")


class Calls:
    """What both directions of a connection know: the numbers of its calls so far, and who must be told what.

    ``reader(stream)``: who takes the messages of a call.  ``named(stream, path)``: a call is of this method.
    ``foreign(what)``: what flows here is something else.
    """

    def __init__(
        self,
        reader: Callable[[int], Reader],
        named: Callable[[int, str], None],
        foreign: Callable[[str], None],
        streams: set[int],
    ) -> None:
        self.reader, self.named, self.foreign, self.streams = reader, named, foreign, streams


class Frames:
    """A sink for one direction.  ``at_start``: the first byte is the connection's first in this direction."""

    def __init__(self, calls: Calls, *, at_start: bool) -> None:
        self._calls = calls
        self._open: dict[int, Messages] = {}
        self._begun: set[int] = set()  # calls whose headers were seen, and nothing was missed since
        self._intact = at_start  # no frame header was missed
        self._first = at_start
        self._synced = at_start  # frames were found
        self._dead = False
        self._head = bytearray()
        self._left = 0  # bytes of the frame's payload that are to come
        self._call: Messages | None = None  # whose they are
        self._ending = 0  # the call that ends with this frame
        self._torn = False  # and that its sender broke off
        self._block: tuple[int, bytearray] | None = None  # a header block
        self._last: Messages | None = None  # the call whose data came last
        self._time = 0
        self._search: bytearray | None = None if at_start else bytearray()
        self._from = 0  # where in _search to look
        self._missed = 0  # bytes missed in front of _search, which begin with a frame's header
        self._owed = 0  # at least so many of them are headers
        self._fruitless = 0
        self._recent = b""  # some of what was seen last: what data are like
        self._doubtful = False  # what is searched may hide a header
        self._broken = False  # what was read since the last hole is wrong somewhere

    def feed(self, item: Item) -> None:
        """The next bytes, or how many were missed."""
        if self._dead:
            return
        if isinstance(item, Gap):
            self._gap(item.end - item.start)
            return
        self._time = item.time_ns
        data = memoryview(item.data)
        if self._first:
            data = self._opening(data)
        if self._search is not None:
            self._search += data
            self._find()
        else:
            self._frames(data)

    def close(self) -> None:
        if self._search is not None and not self._dead:
            self._find(last=True)
        if self._search is not None and not self._dead:
            if self._synced:
                self._hand_over(self._search)
            elif self._search or self._fruitless:
                self._die("no HTTP/2 in what was seen of it")
        for call in self._open.values():
            call.close(ended=False)
        self._open.clear()

    def _die(self, what: str) -> None:
        self._dead = True
        self._head, self._search = bytearray(), None
        self._calls.foreign(what)

    # --- frames in order

    def _opening(self, data: memoryview) -> memoryview:
        """What a connection says first: a client's preface is left out, what is not HTTP/2 is named."""
        self._head += data
        known = bytes(self._head[: len(PREFACE)])
        if len(known) < len(PREFACE) and PREFACE.startswith(known):
            return data[:0]
        self._first = False
        rest = memoryview(self._head)[len(PREFACE) if known == PREFACE else 0 :]
        self._head = bytearray()
        if _is_tls(known):
            self._die("TLS")
        elif known != PREFACE and len(known) >= _HEADER_BYTES and known[3:9] != b"\x04\x00\x00\x00\x00\x00":
            self._die(f"not HTTP/2: it begins with {known[:8]!r}")
        return data[:0] if self._dead else rest

    def _frames(self, data: memoryview) -> None:
        at, size = 0, len(data)
        self._recent = bytes(data[:_LIKE_BYTES])
        while at < size:
            if self._left:
                taken = min(self._left, size - at)
                self._left -= taken
                if self._call is not None:
                    self._call.data(data[at : at + taken], self._time)
                elif self._block is not None and len(self._block[1]) < _MAX_BLOCK_BYTES:
                    self._block[1].extend(data[at : at + taken])
                at += taken
                if not self._left:
                    self._frame_end()
                continue
            taken = min(_HEADER_BYTES - len(self._head), size - at)
            self._head += data[at : at + taken]
            at += taken
            if len(self._head) == _HEADER_BYTES:
                header, self._head = self._head, bytearray()
                if not self._header(header):
                    self._lose(0, 0)
                    self._broken = True
                    self._search = header + data[at:]
                    self._from = 1
                    self._find()
                    return

    def _header(self, header: bytearray) -> bool:
        """A frame begins; False: no frame can begin like this."""
        size, kind, flags, stream = _fields(header, 0)
        if (
            kind > _CONTINUATION
            or size > _MAX_FRAME_BYTES
            or (kind != _WINDOW and (kind in _OF_STREAMS) != bool(stream))
            or not (self._intact or self._sensible(header, 0))
        ):
            return False
        self._left = size
        if kind == _DATA and not flags & _PADDED:
            self._call = self._last = self._of(stream)
        elif kind == _HEADERS:
            self._calls.streams.add(stream)
            self._begun.add(stream)
            self._last = self._last or self._of(stream)  # whose data they will be, most likely
            self._block = stream, bytearray()
        if kind == _RST or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self._ending, self._torn = stream, kind == _RST
        if not size:
            self._frame_end()
        return True

    def _of(self, stream: int) -> Messages:
        call = self._open.get(stream)
        if call is None:
            self._calls.streams.add(stream)
            call = Messages(self._calls.reader(stream), at_start=self._intact or stream in self._begun)
            self._open[stream] = call
            if len(self._open) > _MAX_CALLS:
                self._end(next(iter(self._open)), ended=False)
        return call

    def _frame_end(self) -> None:
        if self._block is not None and (path := _PATH.search(self._block[1])):
            self._calls.named(self._block[0], path.group().decode("ascii"))
        if self._ending:
            self._end(self._ending, ended=not self._torn)
        self._call = self._block = None
        self._ending = 0

    def _end(self, stream: int, *, ended: bool) -> None:
        call = self._open.pop(stream, None)
        if call is not None:
            call.close(ended=ended)
            self._last = None if self._last is call else self._last

    # --- holes

    def _gap(self, size: int) -> None:
        self._first = False
        if self._search is not None:
            self._find(last=True)
        if self._search is not None:
            rest = len(self._search) - _HEADER_BYTES + 1  # in the last of it a header may begin
            if self._synced and rest > 0:
                self._hand_over(self._search[:rest])
                self._missed, self._owed = size + _HEADER_BYTES - 1, 0
            else:
                self._missed += len(self._search) + size
            self._search, self._from = bytearray(), 0
            return
        taken = min(size, self._left)
        if taken:
            if self._call is not None:
                self._call.gap(taken, sure=True)
            self._left -= taken
            if not self._left:
                self._block = None
                self._frame_end()
        if size > taken:
            self._lose(len(self._head) + size - taken, _HEADER_BYTES)
            self._head = bytearray()

    def _lose(self, missed: int, owed: int) -> None:
        """It is not known where the next frame begins."""
        self._intact = False
        self._begun.clear()
        self._search, self._from = bytearray(), 0
        self._missed, self._owed = missed, owed

    def _hand_over(self, data: bytearray) -> None:
        """What came between a hole and the next header belongs to a frame whose header was missed: of the call whose
        data came last, most likely.
        """
        if self._last is not None:
            rest = memoryview(data)[max(0, self._owed - self._missed) :]
            missed = max(0, self._missed - self._owed)
            if self._doubtful:
                missed, rest = missed + len(rest), rest[:0]
            self._last.gap(missed, sure=False, clean=not rest, broken=self._broken)
            self._last.data(rest, self._time)
        self._broken = self._doubtful = False

    def _find(self, *, last: bool = False) -> None:
        """Look for a frame header in what followed a hole.  ``last``: nothing follows that could confirm it."""
        search = self._search
        if search is None:
            return
        if not self._synced and not self._fruitless and _is_tls(bytes(search[:5])):
            self._die("TLS")
            return
        for found in _pattern(frozenset(self._calls.streams)).finditer(search, self._from + 3):
            at = found.start() - 3
            self._from = at
            verdict = self._plausible(search, at, last)
            if verdict is None:
                return
            if verdict:
                self._search = None
                if self._synced:
                    self._hand_over(search[:at])
                self._synced = True
                self._frames(memoryview(search)[at:])
                return
        self._from = max(self._from, len(search) - _HEADER_BYTES)
        if len(search) < (_MAX_FRAME_BYTES if self._synced else 1 << 16):
            return
        if self._synced:
            self._hand_over(search)
            self._missed = self._owed = 0
        self._fruitless += len(search)
        self._search, self._from = search[-_HEADER_BYTES:] if not self._synced else bytearray(), 0
        if self._fruitless > _FRUITLESS_BYTES:
            self._die("no HTTP/2 in what was seen of it")

    def _plausible(self, search: bytearray, at: int, last: bool) -> bool | None:
        """Whether a frame begins at ``at``; None: what follows will tell."""
        if len(search) < at + _HEADER_BYTES:
            return False if last else None
        if not self._sensible(search, at):
            return False
        size, kind, _, _ = _fields(search, at)
        if kind == _DATA and likely_prefix(search, at + _HEADER_BYTES):
            return True
        if self._chance(search, at) > _CHANCE:
            self._doubtful = True
            return False
        after = at + _HEADER_BYTES + size
        if self._synced:
            return True
        if len(search) < after + _HEADER_BYTES:
            return False if last else None
        return self._sensible(search, after)

    def _chance(self, search: bytearray, at: int) -> float:
        """How often bytes of data, as they are here, pass for type, flags and stream of the header at ``at``: about
        2^-48 for noise, often where most of them are zeros and ones.
        """
        like = self._recent + bytes(search[:_LIKE_BYTES])
        return math.prod((like.count(byte) + 1) / (len(like) + 256) for byte in search[at + 3 : at + _HEADER_BYTES])

    def _sensible(self, data: bytearray, at: int) -> bool:
        size, kind, flags, stream = _fields(data, at)
        known = self._calls.streams
        if kind == _WINDOW:
            return size == 4 and not flags and (not stream or not known or stream in known)
        if not stream:
            fits = {_SETTINGS: size <= 180 and not size % 6, _PING: size == 8, _GOAWAY: 8 <= size < 1024}
            return flags <= 1 and fits.get(kind, False)
        if kind == _HEADERS:
            return 0 < size < 1 << 16 and not flags & ~0x2D and stream % 2 == 1
        if self._synced and known and stream not in known:
            return False
        if kind == _DATA:
            return flags <= 1 and (0 < size <= _MAX_FRAME_BYTES or flags == 1) and stream % 2 == 1
        return kind == _RST and size == 4 and not flags


def _fields(data: bytearray, at: int) -> tuple[int, int, int, int]:
    """Size, type, flags and stream of the frame header at ``at``."""
    size = int.from_bytes(data[at : at + 3], "big")
    return size, data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big") & 0x7FFF_FFFF


def _is_tls(data: bytes) -> bool:
    return len(data) >= 5 and 20 <= data[0] <= 23 and data[1] == 3 and 1 <= data[2] <= 4 and data[3] <= 0x41


def _pattern(streams: frozenset[int]) -> re.Pattern[bytes]:
    """Type, flags and stream of a frame: of one of ``streams``; where none is known, of any low odd one."""
    if not 0 < len(streams) <= 16:
        return _ANY
    known = b"|".join(re.escape(stream.to_bytes(4, "big")) for stream in sorted(streams))
    return re.compile(rb"(?s)(?=[\x00\x01\x03\x08][\x00\x01\x04\x05](?:" + known + rb")|" + _CONTROL + rb")")
