"""Writes transcripts (:mod:`dpgt_node.wire.transcript`), entry by entry as vectors are seen."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from dpgt_node.wire.codec import DTYPE_NUMBER, STREAM_NUMBER
from dpgt_node.wire.fields import varint
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2, transcript_pb2
from dpgt_node.wire.transcript import (
    LENGTH,
    MAGIC,
    MAX_ENTRY_BYTES,
    VANTAGE,
    Counts,
    Header,
    Seen,
    Transcript,
    TranscriptError,
)

_ENTRY_SEEN, _SEEN_VECTOR, _VECTOR_DATA = b"\x12", b"\x0a", b"\x4a"  # fields 2, 1 and 9, length-delimited


class TranscriptWriter:
    """Appends to a new file at ``path`` (replaced if it is there); ``close`` writes the end, and only then is it whole.

    As a context manager it closes when the block succeeds and leaves a file without an end when it fails.

    ``known``: go on with a file that is there and has this header; ``known`` gets each of its entries, up to the first
    one that is not whole.  What a crash tore off is cut off, and an end too.
    """

    def __init__(self, path: Path, header: Header, *, known: Callable[[Seen], None] | None = None) -> None:
        self.path = path
        self._counts = Counts()
        self._run_id = header.run_id
        if known is not None and (size := self._known(header, known)):
            self._file: BinaryIO = path.open("r+b")
            self._file.truncate(size)
            self._file.seek(size)
            return
        self._file = path.open("wb")
        self._file.write(MAGIC)
        message = transcript_pb2.TranscriptEntry()
        message.header.vantage = VANTAGE[header.vantage]  # type: ignore[assignment]
        message.header.observers.extend(header.observers)
        for link in header.links:
            message.header.links.add(sender=link.sender, receiver=link.receiver)
        message.header.channel = header.channel
        message.header.run_id = header.run_id
        message.header.source = header.source
        message.header.coordinates.extend(header.coordinates)
        self._append(message.SerializeToString())

    def write(self, entry: Seen) -> int:
        """Append one vector; where in the file its number of copies is, for ``recount``.

        The values go from where they are into the file: protobuf would copy them three times.
        """
        vector = agent_pb2.Vector(
            run_id=self._run_id,
            sender=entry.sender,
            round=entry.k,
            stream=STREAM_NUMBER[entry.stream],  # type: ignore[arg-type]
            dtype=DTYPE_NUMBER[entry.dtype],  # type: ignore[arg-type]
            dimension=entry.dimension,
            nbytes=entry.nbytes,
            sha256=entry.sha256,
        ).SerializeToString()
        data = memoryview(b"" if entry.data is None else entry.data).cast("B")
        if data.nbytes:
            vector += _VECTOR_DATA + varint(data.nbytes)
        to = transcript_pb2.Seen(receiver=entry.receiver, time_ns=entry.time_ns, own=entry.own, copies=entry.copies)
        for start, end in entry.missing:
            to.missing.add(start=start, end=end)
        last = transcript_pb2.Seen(digest_only=entry.data is None, sha256_seen=entry.sha256_seen).SerializeToString()
        tail = to.SerializeToString() + last
        inner = _SEEN_VECTOR + varint(len(vector) + data.nbytes) + vector
        outer = _ENTRY_SEEN + varint(len(inner) + data.nbytes + len(tail)) + inner
        self._append(outer, data, tail)
        self._count(entry)
        return self._file.tell() - len(last) - 1

    def recount(self, at: int, copies: int) -> None:
        """The vector written at ``at`` was seen ``copies`` times (127: or more); it was written with less than 128."""
        self._file.seek(at)
        self._file.write(bytes((min(copies, 127),)))
        self._file.seek(0, os.SEEK_END)

    def flush(self, *, sync: bool = False) -> None:
        """What was written survives this process; ``sync``: this machine."""
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())

    def abandon(self) -> None:
        """Leave the file without an end: whoever reads it is told that it was cut short."""
        self._file.close()

    def _known(self, header: Header, known: Callable[[Seen], None]) -> int:
        """Bytes of the file that are whole; 0: it is not there, or another one."""
        try:
            before = Transcript(self.path)
        except TranscriptError:
            return 0
        if before.header != header:
            return 0
        size = 0
        for at, entry in before.whole():
            size = at
            if entry is not None:
                self._count(entry)
                known(entry)
        return size

    def _count(self, entry: Seen) -> None:
        counts = self._counts
        self._counts = replace(
            counts,
            messages=counts.messages + 1,
            complete=counts.complete + entry.complete,
            with_holes=counts.with_holes + bool(entry.missing),
        )

    def close(self, *, segments_lost: int = 0, foreign: int = 0, conflicting: int = 0, sync: bool = False) -> Counts:
        """Write the end; what was counted.  ``sync``: as for ``flush``.  Again: nothing happens."""
        if not self._file.closed:
            self._counts = replace(self._counts, segments_lost=segments_lost, foreign=foreign, conflicting=conflicting)
            message = transcript_pb2.TranscriptEntry()
            for name in Counts.__slots__:
                setattr(message.end, name, getattr(self._counts, name))
            self._append(message.SerializeToString())
            self.flush(sync=sync)
            self._file.close()
        return self._counts

    def _append(self, *parts: bytes | memoryview) -> None:
        size = sum(map(len, parts))
        if size > MAX_ENTRY_BYTES:
            raise TranscriptError(
                f"{self.path}: a vector above 2 GiB does not fit into a transcript; keep digests only"
            )
        self._file.write(LENGTH.pack(size))
        for part in parts:
            self._file.write(part)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()
