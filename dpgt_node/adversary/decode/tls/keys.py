"""TLS 1.3 with its session keys: records to plaintext, between TCP and HTTP/2 (RFC 8446; key logs as NSS writes them).

A record is opened with the sequence number that authenticates it, so nothing is ever guessed: a lost segment costs the
records it was part of and no other, because the next record header is looked for until one opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from dpgt_node.adversary.decode.stages import Connection, Endpoint, Gap, Item, Segment
from dpgt_node.adversary.decode.tls.secrets import RECORD_HEADER, SUITES, Chain, KeyLog
from dpgt_node.values import dataclass

Side = Literal["CLIENT", "SERVER"]
_SIDES: tuple[Side, Side] = ("CLIENT", "SERVER")
_OVERHEAD = RECORD_HEADER + 16 + 1
"""Bytes that a record is longer than what it carries: header, authentication tag, inner type (nobody here pads)."""
_MAX_RECORD = (1 << 14) + 256
_CCS, _HANDSHAKE, _DATA = 20, 22, 23
_HELLO = b"\x16\x03"
_DATA_HEADER = b"\x17\x03\x03"
_CLIENT_HELLO, _SERVER_HELLO, _FINISHED, _KEY_UPDATE = 1, 2, 20, 24
_PATIENCE_BYTES = 1 << 20
"""So much of a connection whose beginning is missing is kept before every key of the log is tried on it."""
_MAX_MISSED = 1 << 14
"""Records that one direction may have sent before the tap started, at most."""


@dataclass(slots=True)
class TlsCounts:
    """``connections`` with TLS; those of them ``without_keys``; records opened; records lost, as far as is known."""

    connections: int = 0
    without_keys: int = 0
    records: int = 0
    records_lost: int = 0


class Decryptor:
    """Makes the stages of connections, with what is in ``keys`` by then; connections without TLS pass as they are."""

    def __init__(self, keys: KeyLog) -> None:
        self.keys = keys
        self._seen: dict[frozenset[Endpoint], _Session] = {}
        self.counts = TlsCounts()

    def open(self, connection: Connection) -> tuple[_Direction, _Direction]:
        session = _Session(self.keys, self.counts)
        ends = frozenset(connection.ends)
        if connection.opened:
            self._seen[ends] = session
        elif ends in self._seen:  # what strays in after its end is of the same session: no need to try all the others
            session.random, session.suite = self._seen[ends].random, self._seen[ends].suite
        client, server = (_Direction(session, side, hasty=not connection.opened) for side in _SIDES)
        return client, server


class _Session:
    """What both directions know: who the client is (its random) and with what they encrypt."""

    def __init__(self, keys: KeyLog, counts: TlsCounts) -> None:
        self._keys = keys
        self.counts = counts
        self.random: bytes | None = None
        self.suite: int | None = None
        self.counted = False
        self.unknown = False

    def found_tls(self) -> None:
        """Count the connection, once."""
        if not self.counted:
            self.counted = True
            self.counts.connections += 1

    def give_up(self) -> None:
        """None of the keys is of this connection; said once."""
        if not self.unknown:
            self.unknown = True
            self.counts.without_keys += 1

    @property
    def ready(self) -> bool:
        """Whether its hellos were seen and its keys are known."""
        return self.random is not None and self.suite is not None

    def chain(self, side: Side) -> Chain | None:
        """The keys of one direction, from the handshake on; None when the log does not have them."""
        assert self.random is not None and self.suite is not None
        first = self._keys.secrets.get((f"{side}_HANDSHAKE_TRAFFIC_SECRET", self.random))
        then = self._keys.secrets.get((f"{side}_TRAFFIC_SECRET_0", self.random))
        if then is None or self.suite not in SUITES:
            return None
        return Chain(self.suite, first, then)

    def guesses(self, *, begun: bool) -> Iterator[Chain]:
        """Keys of every session in the log, for a connection whose beginning was not seen; or, where it has ``begun``,
        whose other side was not.
        """
        for (label, random), secret in self._keys.secrets.items():
            if label.endswith("_TRAFFIC_SECRET_0") and self.random in (None, random):
                before = label.replace("_TRAFFIC_SECRET_0", "_HANDSHAKE_TRAFFIC_SECRET")
                handshake = self._keys.secrets.get((before, random)) if begun else None
                for suite in (0x1302,) if len(secret) == 48 else (0x1301, 0x1303):
                    if self.suite in (None, suite):
                        yield Chain(suite, handshake, secret)


class _Direction:
    """A stage (:class:`dpgt_node.adversary.decode.stages.Stage`): what one side sent, opened."""

    def __init__(self, session: _Session, side: Side, *, hasty: bool) -> None:
        self._session = session
        self._side = side
        self._hasty = hasty  # no hello to wait for
        self._chain: Chain | None = None
        self._plain: bool | None = None  # no TLS at all; None: nothing seen yet
        self._buffer = bytearray()
        self._start = 0  # offset of the buffer's first byte
        self._held: list[Item] = []  # until it is clear what this is
        self._lost_from: int | None = None  # from here on it is not known where records begin
        self._skip_to = 0  # end of a record that misses bytes, and that is noted as lost
        self._skipped = 0  # records lost since the last one that was opened, whose bounds are known
        self._skipped_bytes = 0
        self._messages = bytearray()
        self._out = 0
        self._time_ns = 0

    def feed(self, item: Item) -> Iterable[Item]:
        if self._plain is None:
            return list(self._begin(item))
        if self._plain:
            return (item,)
        if isinstance(item, Gap):
            self._lose(item)
            return ()
        self._time_ns = item.time_ns
        if not self._buffer:
            self._start = item.offset
        self._buffer += item.data
        return list(self._advance(last=False))

    def _begin(self, item: Item | None) -> Iterator[Item]:
        """Is this TLS, and does it begin here?  What it begins with waits until that is clear; None: no more comes."""
        if isinstance(item, Segment):
            begins = not self._hasty or bytes(item.data[:2]) == _HELLO[: len(item.data)]
            if not self._held and begins:
                self._plain = bytes(item.data[:2]) != _HELLO[: len(item.data)]
                self._hasty = False
        if self._plain is None:
            self._hasty = True
            if item is not None:
                self._held.append(replace(item, data=bytes(item.data)) if isinstance(item, Segment) else item)
            seen = b"".join(part.data for part in self._held if isinstance(part, Segment))
            if _like_tls(seen):
                self._plain = False
            elif item is None or len(seen) > 2 * _MAX_RECORD:
                self._plain = True
            else:
                return
        elif item is not None:
            self._held.append(item)
        if not self._plain:
            self._session.found_tls()
            if self._hasty:
                first = self._held[0]
                self._lost_from = first.offset if isinstance(first, Segment) else first.start
        held, self._held = self._held, []
        for part in held:
            yield from self.feed(part)

    def close(self) -> Iterable[Item]:
        if self._plain is None:
            yield from self._begin(None)
        if self._plain:
            return
        yield from self._advance(last=True)
        if self._session.unknown or self._chain is None:
            return
        nbytes = self._skipped_bytes + len(self._buffer)
        if self._lost_from is not None:
            nbytes += self._start - self._lost_from
        if nbytes > _OVERHEAD:  # how many records these were is not known: at least one
            lost = self._skipped + (self._lost_from is not None or bool(self._buffer))
            self._session.counts.records_lost += lost
            yield Gap(self._out, self._out + max(1, nbytes - _OVERHEAD * lost))

    # --- where records begin ------------------------------------------------------------------------------------

    def _lose(self, gap: Gap) -> None:
        """Bytes are missing: what is left of the record they are in says where it ends, or nothing does."""
        self._messages.clear()
        if self._lost_from is None and self._skip_to < gap.end:
            begin = max(self._start if self._buffer else gap.start, self._skip_to)
            known = len(self._buffer) >= RECORD_HEADER
            end = begin + RECORD_HEADER + int.from_bytes(self._buffer[3:5], "big") if known else begin
            if end >= gap.end:
                self._note_lost(end - begin)
                self._skip_to = end
            else:
                self._lost_from = begin
        self._buffer.clear()
        self._start = gap.end

    def _note_lost(self, nbytes: int) -> None:
        self._skipped += 1
        self._skipped_bytes += nbytes

    def _advance(self, *, last: bool) -> Iterator[Item]:
        while True:
            if self._skip_to > self._start:  # the rest of a record that misses bytes
                size = min(len(self._buffer), self._skip_to - self._start)
                self._drop(size)
                if self._skip_to > self._start:
                    return
            if self._session.unknown:
                self._buffer.clear()
                return
            if self._lost_from is not None and not self._seek(last=last):
                return
            record = self._record()
            if record is None:
                return
            made = self._take(record, last=last)
            if made is None:
                return
            yield from made

    def _drop(self, size: int) -> None:
        del self._buffer[:size]
        self._start += size

    def _seek(self, *, last: bool) -> bool:
        """Drop what cannot be the beginning of a record; whether a candidate is there."""
        at = self._buffer.find(_DATA_HEADER)
        while at >= 0:
            if len(self._buffer) < at + RECORD_HEADER:
                break
            end = at + RECORD_HEADER + int.from_bytes(self._buffer[at + 3 : at + 5], "big")
            if end <= at + RECORD_HEADER + _MAX_RECORD:
                behind = bytes(self._buffer[end : end + len(_DATA_HEADER)])
                if _DATA_HEADER.startswith(behind):
                    self._drop(at)
                    return behind == _DATA_HEADER or last or not self._hasty
            at = self._buffer.find(_DATA_HEADER, at + 1)
        self._drop(at if at >= 0 else max(0, len(self._buffer) - len(_DATA_HEADER) + 1))
        return False

    def _record(self) -> bytes | None:
        if len(self._buffer) < RECORD_HEADER:
            return None
        size = RECORD_HEADER + int.from_bytes(self._buffer[3:5], "big")
        with memoryview(self._buffer) as view:
            return bytes(view[:size]) if len(view) >= size else None

    # --- what is in them ----------------------------------------------------------------------------------------

    def _take(self, record: bytes, *, last: bool) -> list[Item] | None:
        """What the record at the start of the buffer gives; None: it has to wait."""
        if not record.startswith(_DATA_HEADER):
            if not _CCS <= record[0] <= _DATA:  # no record begins here
                self._lost_from = self._start
                self._drop(1)
                return []
            if record[0] == _HANDSHAKE:
                self._hello(record[RECORD_HEADER:])
            self._drop(len(record))
            return []
        found = self._opened(memoryview(record), last=last)
        if found is None:
            if self._lost_from is not None:  # it only looked like a record
                self._drop(1)
                return []
            if self._chain is not None:
                self._note_lost(len(record))
                self._drop(len(record))
                return []
            return None
        plain, lost = found
        made = self._gap_before(lost)
        self._drop(len(record))
        self._session.counts.records += 1
        content = plain.rstrip(b"\0")
        kind, body = content[-1] if content else 0, content[:-1]
        if kind == _DATA:
            made.append(Segment(self._out, body, self._time_ns))
            self._out += len(body)
        elif kind == _HANDSHAKE:
            self._say(body)
        return made

    def _gap_before(self, lost: int) -> list[Item]:
        """The bytes that ``lost`` records before this one held."""
        nbytes = self._skipped_bytes
        if self._lost_from is not None:
            nbytes += self._start - self._lost_from
        self._skipped = self._skipped_bytes = 0
        self._lost_from = None
        self._session.counts.records_lost += lost
        size = nbytes - _OVERHEAD * lost
        if not lost or size <= 0 or self._chain is None or self._chain.in_handshake:
            return []
        self._messages.clear()
        start = self._out
        self._out += size
        return [Gap(start, self._out)]

    def _opened(self, record: memoryview, *, last: bool) -> tuple[bytes, int] | None:
        if self._chain is None and self._session.ready and not self._hasty:
            self._chain = self._session.chain(self._side)
            if self._chain is None:
                self._session.give_up()
                return None
        if self._chain is None:
            if self._hasty or last or len(self._buffer) > _PATIENCE_BYTES:
                return self._guessed(record)
            return None
        unknown = 0 if self._lost_from is None else (self._start - self._lost_from) // _OVERHEAD
        return self._chain.open(record, self._skipped + unknown)

    def _guessed(self, record: memoryview) -> tuple[bytes, int] | None:
        """Try every key of the log: the connection's beginning was not seen."""
        for chain in self._session.guesses(begun=not self._hasty):
            found = chain.open(record, _MAX_MISSED)
            if found is not None:
                self._chain, self._hasty, self._lost_from = chain, False, self._start
                return found[0], 0
        self._session.give_up()
        return None

    def _hello(self, body: bytes) -> None:
        if body[:1] == bytes((_CLIENT_HELLO,)) and len(body) >= 38:
            self._session.random = body[6:38]
        elif body[:1] == bytes((_SERVER_HELLO,)) and len(body) > 39:
            at = 39 + body[38]
            self._session.suite = int.from_bytes(body[at : at + 2], "big")

    def _say(self, body: bytes) -> None:
        """Handshake messages change keys."""
        assert self._chain is not None
        self._messages += body
        while len(self._messages) >= 4:
            size = 4 + int.from_bytes(self._messages[1:4], "big")
            if len(self._messages) < size:
                return
            kind = self._messages[0]
            del self._messages[:size]
            if (kind == _FINISHED and self._chain.in_handshake) or (kind == _KEY_UPDATE):
                self._chain.go_on()


def _like_tls(data: bytes) -> bool:
    """Whether the middle of a connection looks like TLS: a record's header, and where that record ends another one."""
    at = data.find(_DATA_HEADER)
    while 0 <= at <= len(data) - RECORD_HEADER:
        end = at + RECORD_HEADER + int.from_bytes(data[at + 3 : at + 5], "big")
        if end - at <= RECORD_HEADER + _MAX_RECORD and data[end : end + len(_DATA_HEADER)] == _DATA_HEADER:
            return True
        at = data.find(_DATA_HEADER, at + 1)
    return False
