"""Messages of one direction of a call to released vectors, with masks of the values that were not seen.

A vector's header says whose it is.  Where a header was missed, and the vector is the next one after a vector whose
header was seen, the order of the protocol says it (rounds are consecutive on a call); its hash stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from dpgt_node.adversary.decode.messages import PREFIX_BYTES, Message, Region, joined
from dpgt_node.adversary.decode.sighting import Missing, Sighting
from dpgt_node.errors import PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.types import Stream
from dpgt_node.wire import convert
from dpgt_node.wire.codec import CHUNK_BYTES
from dpgt_node.wire.overheard import (
    CHUNK_TAG,
    VECTOR_TAG,
    Overheard,
    chunk_frame_bytes,
    predicted,
    read_chunk,
    read_vectors,
)

MAX_VECTOR_BYTES = (2 << 30) - (1 << 20)
"""What fits into an entry of a transcript."""
_SLACK_BYTES = 512
_START_TAG = 0x1A


class Host(Protocol):
    """Who is told what a direction of a call carries."""

    def vector(self, sighting: Sighting) -> None:
        """A vector ended."""
        ...

    def begins(self, head: Overheard, reader: Vectors) -> None:
        """``reader`` saw the header of a vector in chunks."""
        ...

    def resume(self, message: m.Resume) -> None:
        """The sender of this direction is the receiver of vectors, and says who it is."""
        ...

    def peers(self, addresses: Mapping[str, str]) -> None:
        """The coordinator said where everybody is."""
        ...

    def foreign(self, what: str) -> None:
        """A message that is not of this protocol."""
        ...

    def orphan(self, size: int) -> None:
        """``size`` bytes of values of a vector nobody knows: its header was before the tap's time."""
        ...


class _Open:
    """A vector whose chunks are coming."""

    __slots__ = ("at", "chunk", "data", "head", "missing", "next", "time_ns", "unsure", "view")

    def __init__(self, head: Overheard, at: int) -> None:
        self.head = head
        self.data = bytearray(head.nbytes)
        self.view = memoryview(self.data)
        self.missing: list[tuple[int, int]] = []
        self.next = head.from_byte  # values so far, in bytes
        self.skip(0, self.next)
        self.at = at  # where the next message should begin
        self.chunk = min(CHUNK_BYTES, head.nbytes)
        self.unsure: int | None = None  # from here on the number of chunks that were missed is only likely
        self.time_ns = 0

    def blank_unsure(self) -> None:
        """Forget values whose place only the vector's end could have confirmed."""
        if self.unsure is not None:
            self.missing = [(a, min(b, self.unsure)) for a, b in self.missing if a < self.unsure]
            self.view[self.unsure : self.next] = bytes(self.next - self.unsure)
            self.skip(self.unsure, self.next)

    def skip(self, start: int, end: int) -> None:
        """Bytes of values that were not seen."""
        if self.missing and self.missing[-1][1] >= start:
            self.missing[-1] = self.missing[-1][0], end
        elif end > start:
            self.missing.append((start, end))


class Vectors:
    """Reader of one direction of a call."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._open: _Open | None = None
        self._last: tuple[Overheard, ...] = ()  # the headers that came last: one, or X and Y of a round
        self._guessed = False  # they were not seen but follow from those before
        self._order: tuple[Stream | None, ...] = ()  # of vectors that come one by one, those of a round
        self._region: Region | None = None  # of a vector whose header was not seen
        self._after: tuple[Overheard, ...] = ()  # the headers that followed it
        self._end = 0  # where the message after the last vector should begin

    # --- the messages' reader

    def expected(self) -> tuple[int, bool] | None:
        """Size of the next frame, when the last one says what must follow; a header's is certain only afterwards: a
        stream may begin later than the other one.
        """
        if self._open is not None:
            return chunk_frame_bytes(min(self._open.chunk, self._open.head.nbytes - self._open.next)), True
        following = self._following()
        return (predicted(*following)[0], False) if following else None

    def message(self, message: Message) -> None:
        """A frame, or another message of the protocol."""
        body, holes = message.body, message.holes
        tag = -1 if not body or (holes and holes[0][0] == 0) else body[0]
        if self._open is not None and tag in (CHUNK_TAG, -1) and body:
            self._chunk(self._open, message)
        elif tag in (VECTOR_TAG, -1) and body:
            self._heads(message)
        elif tag == CHUNK_TAG and len(body) > 64 and not holes:
            self._stray_chunk(body)
        elif tag == _START_TAG and len(body) > 16 and not holes:
            self._start(bytes(body))

    def compressed(self) -> None:
        """A compressed message: no agent sends one."""
        self._host.foreign("a compressed message")

    @property
    def keeps_regions(self) -> bool:
        """Whether what comes belongs to a vector whose header was not seen."""
        return self._open is None

    def region(self, region: Region) -> None:
        """A vector without its header; those that follow will tell whose it was."""
        self._forget_region()
        self._region, self._after = region, ()

    def close(self) -> None:
        self.abandon()
        self._forget_region()

    # --- headers

    def _heads(self, message: Message) -> None:
        body = message.body
        try:
            found = read_vectors(body, message.holes)
        except PeerError as error:
            self._other(message, error)
            return
        heads = self._repaired(message, found) if message.holes else found
        if not heads:
            return
        self.abandon()
        seen = bool(found)
        self._learn(heads, seen)
        self._resolve()
        end = message.start + PREFIX_BYTES + len(body)
        self._end = end
        if heads[0].nbytes > MAX_VECTOR_BYTES:
            self._host.foreign(f"a vector of {heads[0].nbytes} bytes, more than a transcript takes")
        elif heads[0].values is None:
            self._host.begins(heads[0], self)
            self._open = _Open(heads[0], end)
        else:
            for head in heads:
                self._inline(message, head)

    def _inline(self, message: Message, head: Overheard) -> None:
        start, end = head.values or (0, 0)
        missing = tuple((max(a, start) - start, min(b, end) - start) for a, b in message.holes if a < end and b > start)
        self._host.vector(Sighting(head, memoryview(bytes(message.body[start:end])), missing, message.time_ns))

    def _repaired(self, message: Message, found: tuple[Overheard, ...]) -> tuple[Overheard, ...]:
        """The headers of a frame with holes, from those that were seen, in it or before it."""
        size = len(message.body)
        if found:
            like, k = found[0], found[0].k
            if like.values is None:
                return found
            patterns: list[tuple[Sequence[Overheard], int]] = [
                ([replace(like, stream=stream) for stream in streams], k) for streams in (("X", "Y"), (like.stream,))
            ]
        else:
            following = self._following()
            # Where a message begins may be overestimated, never by less than what would lie in between.
            if following is None or self._guessed or not 0 <= message.start - self._end < PREFIX_BYTES + size:
                return ()
            patterns = [following]
        for pattern, k in patterns:
            expected, heads = predicted(pattern, k)
            if expected == size:
                seen = {head.stream: head for head in found}
                return tuple(seen.get(head.stream, head) for head in heads)
        return found

    def _learn(self, heads: tuple[Overheard, ...], seen: bool) -> None:
        """Which vectors make a round on this call: those of one frame, or those that come one by one."""
        before, self._last, self._guessed = self._last, heads, not seen
        if self._region is not None and not self._after:
            self._after = heads
            return
        head = heads[0]
        if head.values is None and before and head.stream is not None and before[0].stream is not None:
            if head.stream != before[0].stream:
                self._order = "X", "Y"
            elif head.k == before[0].k + 1:
                self._order = (head.stream,)

    def _following(self) -> tuple[tuple[Overheard, ...], int] | None:
        """What must come after the last headers, and its round."""
        last = self._last
        if not last or last[0].stream is None or (last[0].values is None and not self._order):
            return None
        if last[0].values is not None or len(self._order) == 1:
            return last, last[0].k + 1
        return (replace(last[0], stream=other(last[0].stream)),), last[0].k + (last[0].stream == "Y")

    # --- a vector without its header

    def _forget_region(self) -> None:
        if self._region is not None:
            missing = sum(end - start for start, end in self._region.holes)
            self._host.orphan(len(self._region.raw) - missing)
            self._region = None

    def _resolve(self) -> None:
        """Whose the region was, when the order of the vectors is known: it ends where the next header begins."""
        region, after = self._region, self._after
        if region is None or not after:
            return
        head = after[0]
        if head.values is None and not self._order:
            return
        if head.values is not None or len(self._order) == 1:
            pattern, k = after, head.k - 1
        else:
            pattern, k = (replace(head, stream=other(head.stream)),), head.k - (head.stream == "X")
        if k < 0 or head.stream is None:
            self._forget_region()
            return
        self._region = None
        for whose, pieces, size in layout(pattern, k):
            shift = len(region.raw) - size
            # What first follows a hole of a likely size may be the rest of a frame header.
            trusted = 0 if not region.sure or (region.whole and not shift) else region.sure + _SLACK_BYTES
            if shift < 0:  # it may begin with the header of a vector that goes on in its midst
                trusted = max(trusted, _SLACK_BYTES)
            data, missing = cut(region, pieces, shift, trusted, whose.nbytes)
            self._host.vector(Sighting(whose, memoryview(data), missing, region.time_ns))

    # --- chunks

    def _chunk(self, vector: _Open, message: Message) -> None:
        body, holes = message.body, message.holes
        if message.start != vector.at and vector.unsure is None:
            vector.unsure = vector.next
        offset = vector.next + self._jumped(vector, message) * vector.chunk
        size = min(vector.chunk, vector.head.nbytes - offset)
        try:
            start, end = read_chunk(body) if not (holes and holes[0][0] < 5) else (len(body) - size, len(body))
        except PeerError as error:
            self._host.foreign(f"in a vector's chunks: {error}")
            return
        if size <= 0 or len(body) != chunk_frame_bytes(size) or end - start != size:
            self._host.foreign("more bytes in chunks than the vector's header says")
            self.abandon()
            return
        vector.skip(vector.next, offset)
        vector.view[offset : offset + size] = body[start:end]
        for a, b in holes:
            if b > start:
                vector.skip(offset + max(a, start) - start, offset + b - start)
        vector.next = offset + size
        vector.at = message.start + PREFIX_BYTES + len(body)
        if not (holes and holes[-1][1] == len(body)):
            vector.time_ns = message.time_ns
        if vector.next == vector.head.nbytes:
            self._end = vector.at
            self._done(vector)

    def _jumped(self, vector: _Open, message: Message) -> int:
        """How many chunks were missed in between altogether."""
        stride = PREFIX_BYTES + chunk_frame_bytes(vector.chunk)
        return max(0, round((message.start - vector.at) / stride))

    def _stray_chunk(self, body: memoryview) -> None:
        try:
            start, end = read_chunk(body)
        except PeerError:
            return
        self._host.orphan(end - start)

    def abandon(self) -> None:
        """The vector that is open will not be completed: chunks behind some that were missed may be others."""
        if self._open is not None:
            self._open.blank_unsure()
            self._open.skip(self._open.next, self._open.head.nbytes)
            self._done(self._open)

    def _done(self, vector: _Open) -> None:
        self._open = None
        self._host.vector(Sighting(vector.head, vector.view, tuple(vector.missing), vector.time_ns))

    # --- other messages

    def _other(self, message: Message, error: PeerError) -> None:
        """What begins like a frame of vectors and is none."""
        if message.holes:
            return
        body = bytes(message.body)
        for decode in (convert.decode_exchange_reply, convert.decode_agent_message, convert.decode_coordinator_message):
            try:
                found = decode(body)
            except PeerError:
                continue
            if isinstance(found, m.Resume):
                self._host.resume(found)
            elif isinstance(found, m.Register | m.Welcome) and found.protocol_version != m.PROTOCOL_VERSION:
                self._host.foreign(f"protocol version {found.protocol_version} (this reads {m.PROTOCOL_VERSION})")
            return
        if body[2:4] == b"\x0a\x10" or body[3:5] == b"\x0a\x10" or body[4:6] == b"\x0a\x10":
            self._host.foreign(f"not a frame of this protocol version: {error}")

    def _start(self, body: bytes) -> None:
        try:
            found = convert.decode_coordinator_message(body)
        except PeerError:
            return
        if isinstance(found, m.Start):
            self._host.peers(found.peers)


def other(stream: Stream | None) -> Stream:
    """The other stream of a round."""
    return "X" if stream == "Y" else "Y"


Pieces = list[tuple[int, int, int]]


def layout(pattern: Sequence[Overheard], k: int) -> list[tuple[Overheard, Pieces, int]]:
    """The vectors of round ``k`` like ``pattern``, as on the wire: each with pieces of values (offset, position on the
    wire, size), and the size of it all.
    """
    size, heads = predicted(pattern, k)
    at = PREFIX_BYTES + size
    if heads[0].values is not None:
        return [(head, [(0, PREFIX_BYTES + (head.values or (0, 0))[0], head.nbytes)], at) for head in heads]
    pieces = []
    for offset in range(0, heads[0].nbytes, CHUNK_BYTES):
        size = min(CHUNK_BYTES, heads[0].nbytes - offset)
        at += PREFIX_BYTES + chunk_frame_bytes(size)
        pieces.append((offset, at - size, size))
    return [(heads[0], pieces, at)]


def cut(region: Region, pieces: Pieces, shift: int, trusted: int, nbytes: int) -> tuple[bytearray, Missing]:
    """The values of a vector whose place in ``region`` is ``shift`` after that in ``pieces``, and what is missing of
    them; nothing before ``trusted`` is used.
    """
    data = bytearray(nbytes)
    missing: list[tuple[int, int]] = []
    for offset, position, size in pieces:
        start = position + shift
        first = min(max(start, trusted, 0), start + size)
        if first > start:
            missing.append((offset, offset + first - start))
        data[offset + first - start : offset + size] = region.raw[first : start + size]
        missing += [
            (offset + max(a, first) - start, offset + min(b, start + size) - start)
            for a, b in region.holes
            if a < start + size and b > first
        ]
    return data, tuple(joined(missing))
