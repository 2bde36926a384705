"""gRPC messages out of one direction of one call, with masks of what was not seen.

A message is five bytes (compressed or not, length) and its body.  Bytes that the tap missed are zeros and a hole in
the mask.  Where a prefix was missed, the reader above predicts the next message's size; where an HTTP/2 frame header
was missed, the size of the hole is only likely: what follows it counts once the message's end was found in its place.
Bytes count only where their place is certain: from a message's beginning up to the first such hole, and back from its
end to the last one.  What lies between two of them counts if no hole was smaller than it was taken.
"""

from __future__ import annotations

import re
from typing import Protocol

from dpgt_node.values import dataclass

PREFIX_BYTES = 5
MAX_BODY_BYTES = 8 << 20
_LOOK_BYTES = 512
_SHIFT_BYTES = 256
_SIGN_BYTES = 16
_LIKELY = re.compile(rb"(?=\x00\x00[\x00-\x7f][\x00-\xff]{2}[\x0a\x12])", re.DOTALL)
_LIKELY_VECTORS = re.compile(rb"(?=\x00\x00[\x00-\x03][\x00-\xff]{2}\x0a)", re.DOTALL)
_CHUNK_SIGN = b"\x00\x00\x10\x00\x04\x12\x80\x80\x40"  # a chunk of 1 MiB, as all but a vector's last one are
_REGION_BYTES = 2 << 20
_CHUNKED_REGION_BYTES = 128 << 20
_VECTOR = b"\x0a\x10"  # a vector begins with its run id, 16 bytes

Holes = list[tuple[int, int]]


def likely_prefix(data: bytes | bytearray, at: int = 0) -> bool:
    """Whether a message of vectors or a chunk may begin at ``at``: its two lengths agree.  Bytes of values pass for one
    about once in 2^40.
    """
    if len(data) < at + PREFIX_BYTES + 4 or data[at]:
        return False
    size = int.from_bytes(data[at + 1 : at + 5], "big")
    tag, declared, width = data[at + 5], 0, 0
    while True:
        if width == 4 or at + 6 + width >= len(data):
            return False
        byte = data[at + 6 + width]
        declared |= (byte & 0x7F) << 7 * width
        width += 1
        if byte < 0x80:
            break
    held = 1 + width + declared
    if tag == 0x12:
        return held == size and declared > 0
    begins = data[at + 6 + width : at + 8 + width]
    return tag == 0x0A and held <= size <= 2 * held + 16 and size < 1 << 18 and begins == _VECTOR[: len(begins)]


@dataclass(frozen=True, slots=True)
class Message:
    """One message.  ``body`` is only valid until the next one.  ``start``: where its prefix begins among the call's
    bytes, as far as that is known.  ``holes``: ranges of ``body`` that were not seen, ascending, disjoint.
    ``predicted``: the prefix was not seen, the size is the reader's own prediction.
    """

    body: memoryview
    start: int
    holes: Holes
    predicted: bool
    time_ns: int


@dataclass(frozen=True, slots=True)
class Region:
    """What came between two points where messages were found, the second one the beginning of a frame of vectors.

    ``raw``: prefixes and bodies, as far as they were seen; ``holes``: ranges of it that were not.  ``whole``: it begins
    where a message begins.  ``sure``: from here on no hole's size was guessed.
    """

    raw: bytearray
    holes: Holes
    whole: bool
    sure: int
    time_ns: int


class Reader(Protocol):
    """Takes the messages of one direction of a call."""

    def message(self, message: Message) -> None: ...

    def expected(self) -> tuple[int, bool] | None:
        """Size of the next body in bytes, if it can be known before it was seen, and whether it is certain."""
        ...

    def compressed(self) -> None:
        """A message that says it is compressed was left out."""
        ...

    @property
    def keeps_regions(self) -> bool:
        """Whether a chunk says nothing now, because nobody knows whose it is: only a header will."""
        ...

    def region(self, region: Region) -> None:
        """What could not be told apart, in front of a frame of vectors that comes next."""
        ...

    def close(self) -> None:
        """The call has ended, or what follows cannot be told."""
        ...


class Messages:
    """Bytes of DATA frames of one direction of a call, in order, to messages for ``reader``.

    ``at_start``: the first byte is a message's; else something that looks like a message of vectors is looked for.
    """

    def __init__(self, reader: Reader, *, at_start: bool) -> None:
        self._reader = reader
        self._buffer = bytearray(1 << 12)
        self._view = memoryview(self._buffer)
        self._at = 0  # among the call's bytes, where this message begins
        self._fill = 0  # bytes of it so far, prefix included
        self._size = 0  # of it, prefix included; 0: not known yet
        self._predicted = False
        self._guessed = False  # its size is a prediction that only what follows can confirm
        self._broken = False  # bytes behind an unsure hole were read wrongly, nobody knows from where on
        self._compressed = False
        self._holes: Holes = []
        self._unsure: Holes = []  # those of its holes whose size is only likely
        self._clean = False  # what follows the last of them is data
        self._look: bytearray | None = None  # what follows a message whose end is in doubt
        self._lost = not at_start
        self._pending = bytearray()  # what came since
        self._missing: Holes = []  # its holes
        self._whole = False  # it begins where a message begins
        self._sure = 0  # in it, behind the last hole whose size is only likely
        self._looked = 0  # so far no message begins in it
        self._chunks = False  # there are chunks of vectors in it
        self._time = 0

    def data(self, data: memoryview, time_ns: int) -> None:
        self._time = time_ns
        at, size = 0, len(data)
        while at < size:
            if self._look is not None:
                taken = min(size - at, _LOOK_BYTES - len(self._look))
                self._look += data[at : at + taken]
                at += taken
                if len(self._look) >= _LOOK_BYTES:
                    self._settle()
            elif self._lost:
                self._pending += data[at:]
                self._find()
                return
            else:
                goal = self._size or PREFIX_BYTES
                taken = min(goal - self._fill, size - at)
                self._view[self._fill : self._fill + taken] = data[at : at + taken]
                self._fill += taken
                at += taken
                if self._fill == goal:
                    self._reached()

    def gap(self, size: int, *, sure: bool, clean: bool = False, broken: bool = False) -> None:
        """``size`` bytes were not seen; not ``sure``: at most so many, and unless ``clean`` a little of what follows
        may be no data.  ``broken``: what came since the last such hole was read wrongly, nobody knows from where on.
        """
        if self._look is not None:
            if self._place(last=False) is None:  # nothing to tell its end by
                size, sure = size + len(self._look), False
                self._drop_doubtful()
            else:
                self._settle()
        self._clean = self._clean if sure else clean
        self._broken = self._broken or broken
        if not size and not sure and self._fill and not self._lost:
            if self._size:
                self._hole(0, sure)
            else:
                self._lose()  # in the midst of a prefix
        while size and not self._lost:
            if not self._size and not self._predict():
                self._lose()
                break
            taken = min(size, self._size - self._fill)
            self._hole(taken, sure)
            size -= taken
            if self._fill == self._size:
                sure = sure and not self._unsure
                self._drop_doubtful()
        if self._lost:
            self._pass_over(size, sure)
        elif not sure and not self._fill:
            self._look = bytearray()  # the next message begins about here

    def close(self, *, ended: bool) -> None:
        """No byte follows; ``ended``: because the sender said so, at the end of a message."""
        if self._look is not None:
            self._settle(last=ended)
        if self._size:
            self._hole(self._size - self._fill, True)
            self._drop_doubtful()
        self._reader.close()

    # --- one message

    def _reached(self) -> None:
        """The prefix is there, or all of the message."""
        if self._size and (self._unsure or self._guessed):
            self._look = bytearray()
            return
        if self._size:
            self._hand_on()
            return
        size = int.from_bytes(self._buffer[1:PREFIX_BYTES], "big")
        if self._buffer[0] > 1 or size > MAX_BODY_BYTES:
            self._lose()
            return
        self._compressed = self._buffer[0] == 1
        self._make_room(PREFIX_BYTES + size)
        if not size:
            self._hand_on()

    def _make_room(self, size: int) -> None:
        self._size = size
        if size > len(self._buffer):
            buffer = bytearray(size)
            buffer[: self._fill] = self._view[: self._fill]
            self._buffer, self._view = buffer, memoryview(buffer)

    def _predict(self) -> bool:
        expected = self._reader.expected()
        if expected is None:
            return False
        self._predicted, self._guessed = True, not expected[1]
        self._make_room(PREFIX_BYTES + expected[0])
        return True

    def _hole(self, size: int, sure: bool) -> None:
        hole = self._fill, self._fill + size
        if size:
            self._view[hole[0] : hole[1]] = bytes(size)
            self._holes.append(hole)
            self._fill = hole[1]
        if not sure:
            self._unsure.append(hole)

    def _hand_on(self) -> None:
        body = self._view[PREFIX_BYTES : self._size]
        holes = [(max(a - PREFIX_BYTES, 0), b - PREFIX_BYTES) for a, b in joined(self._holes) if b > PREFIX_BYTES]
        message = Message(body, self._at, holes, self._predicted, self._time)
        compressed = self._compressed
        self._next(self._size)
        if compressed:
            self._reader.compressed()
        else:
            self._reader.message(message)

    def _next(self, size: int) -> None:
        self._at += size
        self._fill = self._size = 0
        self._holes, self._unsure = [], []
        self._predicted = self._guessed = self._compressed = self._broken = False

    # --- in doubt

    def _place(self, *, last: bool) -> int | None:
        """Where in what follows the next message begins; ``last``: nothing follows that, so it may be its end."""
        look = self._look or bytearray()
        shifts = range(min(_SHIFT_BYTES, len(look)) + 1)
        end = len(look) if last and len(look) <= _SHIFT_BYTES else None
        return next((shift for shift in shifts if likely_prefix(look, shift)), end)

    def _settle(self, *, last: bool = False) -> None:
        """Where the message in doubt ends, or where the next one begins, by what follows."""
        shift = self._place(last=last)
        look, self._look = self._look or bytearray(), None
        if shift is not None and self._size and not self._shift(look, shift):
            shift = None
        if shift is None:
            self._drop_doubtful()
            self._lose()
        elif self._size:
            self._hand_on()
        if len(look) > (shift or 0):
            self.data(memoryview(look)[shift or 0 :], self._time)

    def _shift(self, look: bytearray, shift: int) -> bool:
        """Unsure holes were ``shift`` bytes smaller together, or so many bytes behind them were no data (the rest of a
        frame header that began in one); False: it cannot be.

        At shift 0 all holes are right, for none is larger than it was taken.  Else nobody knows which hole it was: what
        lies between the first and the last one is not used.  Of what was read wrongly, nothing is.
        """
        if self._guessed and shift:
            return False
        if self._broken:
            self._blank(0, self._size)
            return True
        if not shift:
            return True
        self._blank(self._unsure[0][1], self._unsure[-1][0])
        start, end = self._unsure[-1]
        keep = end - shift if self._clean else end  # what came first behind the hole
        if keep < start:
            return False
        moved = bytes(self._view[end : self._size]) + look[:shift]
        self._view[keep : self._size] = moved[keep - end + shift :]
        later = [(max(a - shift, keep), b - shift) if a >= end else (a, min(b, keep)) for a, b in self._holes]
        self._holes = [(a, b) for a, b in later if b > a]
        return True

    def _drop_doubtful(self) -> None:
        """Hand the message on without what came behind an unsure hole."""
        self._look = None
        if self._size:
            if self._guessed or self._broken:
                self._blank(0, self._size)
            elif self._unsure:
                self._blank(self._unsure[0][1], self._size)
            self._hand_on()

    def _blank(self, start: int, end: int) -> None:
        if end > start:
            self._view[start:end] = bytes(end - start)
            self._holes.append((start, end))

    # --- lost

    def _lose(self) -> None:
        """It is not known where the next message begins; what there is of a prefix begins the search."""
        self._restart(bytearray(self._view[: self._fill]))
        self._whole = not self._unsure
        self._next(0)
        self._lost = True

    def _restart(self, pending: bytearray) -> None:
        self._pending, self._missing = pending, []
        self._whole, self._sure, self._looked, self._chunks = False, 0, 0, False

    def _pass_over(self, size: int, sure: bool) -> None:
        """A hole while it is not known where messages begin."""
        start = len(self._pending)
        if not self._reader.keeps_regions or start + size > self._most:
            self._at += start + size
            self._restart(bytearray())
            return
        self._pending += bytes(size)
        if size:
            self._missing.append((start, start + size))
        self._looked = len(self._pending)
        self._whole = self._whole and not self._broken
        if not sure:
            self._sure = len(self._pending)

    def _find(self) -> None:
        """Look for the beginning of a message; where regions are kept, for that of vectors."""
        pending, regions = self._pending, self._reader.keeps_regions
        for found in (_LIKELY_VECTORS if regions else _LIKELY).finditer(pending, self._looked):
            at = found.start()
            if len(pending) < at + _SIGN_BYTES:
                break  # too early to tell
            if likely_prefix(pending, at):
                self._found(at, regions)
                return
        self._chunks = self._chunks or pending.find(_CHUNK_SIGN, self._looked) >= 0
        self._looked = max(self._looked, len(pending) - _SIGN_BYTES)
        if not regions or len(pending) > self._most:
            self._at += self._looked
            self._restart(pending[self._looked :])

    @property
    def _most(self) -> int:
        return _CHUNKED_REGION_BYTES if self._chunks else _REGION_BYTES

    def _found(self, at: int, regions: bool) -> None:
        pending = self._pending
        if regions and at:
            self._reader.region(Region(pending[:at], self._missing, self._whole, self._sure, self._time))
        self._lost = False
        self._at += at
        self._restart(bytearray())
        self.data(memoryview(pending)[at:], self._time)


def joined(holes: Holes) -> Holes:
    """The same ranges, ascending and disjoint."""
    result: Holes = []
    for start, end in sorted(holes):
        if result and result[-1][1] >= start:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result
