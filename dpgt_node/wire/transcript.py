"""Transcripts: what one vantage point saw of a run, as typed values and as a file (``transcript.proto``).

Written by taps, by semi-honest agents and by the simulator, read by attacks: the same format for all, so that an
attack does not know where its input comes from, except through :class:`Header`, which every report repeats.

A file is read as a stream: a full run of a large model does not fit into memory.  A file that was cut short, or that
holds an entry out of place, is a TranscriptError: no attack ever runs on a silent part of what was seen.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self

import numpy as np
from google.protobuf.message import DecodeError

from dpgt_node.errors import DpgtError, ExitCode, PeerError
from dpgt_node.types import F64, Stream, WireDtype
from dpgt_node.wire.codec import DTYPE, DTYPE_NUMBER, STREAM_NUMBER
from dpgt_node.wire.fields import MAX_DIMENSION, bytes_field, name_field, require, text_field, varint
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2, transcript_pb2

Vantage = Literal["eavesdropper", "semi-honest", "coalition"]
Channel = Literal["plain", "tls", "tls+keys", "agent"]
MAGIC = b"DPGTTR1\n"
MAX_ENTRY_BYTES = (2 << 30) - 1
_ENTRY_SEEN, _SEEN_VECTOR, _VECTOR_DATA = b"\x12", b"\x0a", b"\x4a"  # fields 2, 1 and 9, length-delimited
_LENGTH = struct.Struct(">I")
_VANTAGE: dict[Vantage, int] = {"eavesdropper": 1, "semi-honest": 2, "coalition": 3}
_CHANNELS: tuple[Channel, ...] = ("plain", "tls", "tls+keys", "agent")
_STREAMS: dict[int, Stream] = {number: name for name, number in STREAM_NUMBER.items()}
_DTYPES: dict[int, WireDtype] = {number: name for name, number in DTYPE_NUMBER.items()}


class TranscriptError(DpgtError):
    """A transcript that cannot be used: cut short, malformed, or of something else than it was taken for."""

    exit_code = ExitCode.CONFIG


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link between two agents, by name."""

    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class Header:
    """Who looked, where from.

    ``observers``: names of the agents that looked, sorted (none: an eavesdropper).  ``links``: those an eavesdropper
    tapped, empty for all.  ``run_id``: 16 bytes, or empty when nothing of a run was decoded.  ``coordinates``: the only
    ones whose values were kept, ascending; empty: all.
    """

    vantage: Vantage
    observers: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    channel: Channel = "plain"
    run_id: bytes = b""
    source: str = ""
    coordinates: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Seen:
    """One released vector on one edge.

    ``data``: little-endian values, zeros where ``missing`` (byte ranges [start, end), ascending) says that they were
    not seen; None when only the digest was kept; of ``coordinates`` alone unless that is empty.  ``sha256``: what the
    sender declared, zeros where that was not seen; ``sha256_seen``: of what was seen, empty where bytes are missing.
    ``receiver`` is empty when it is not known.
    """

    sender: str
    receiver: str
    k: int
    stream: Stream
    dtype: WireDtype
    dimension: int
    data: bytes | memoryview | None = field(repr=False)
    sha256: bytes
    sha256_seen: bytes
    time_ns: int = 0
    missing: tuple[tuple[int, int], ...] = ()
    own: bool = False
    copies: int = 1
    coordinates: tuple[int, ...] = field(default=(), repr=False)

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return self.dimension * DTYPE[self.dtype].itemsize

    @property
    def complete(self) -> bool:
        """Every byte was seen, and they have the hash that the sender declared."""
        return not self.missing and self.sha256 == self.sha256_seen

    def array(self) -> F64:
        """The values, float64, shape (dimension,); NaN for every coordinate that misses a byte or was not kept.

        Raises TranscriptError when only the digest was kept.
        """
        if self.data is None:
            raise TranscriptError(f"{self.stream} of round {self.k} of {self.sender}: only its digest was kept")
        size = DTYPE[self.dtype].itemsize
        values = np.frombuffer(self.data, dtype=f"<f{size}").astype(np.float64)
        if self.coordinates:
            kept, values = values, np.full(self.dimension, np.nan)
            values[np.array(self.coordinates)] = kept
        for start, end in self.missing:
            values[start // size : -(-end // size)] = np.nan
        return values


@dataclass(frozen=True, slots=True)
class Counts:
    """What a vantage point counted: entries; those complete; those with missing bytes; TCP segments lost; foreign
    connections or messages; copies of one (sender, round, stream) with other bytes.
    """

    messages: int = 0
    complete: int = 0
    with_holes: int = 0
    segments_lost: int = 0
    foreign: int = 0
    conflicting: int = 0


def seen(
    sender: str,
    receiver: str,
    k: int,
    stream: Stream,
    dtype: WireDtype,
    data: bytes | memoryview,
    *,
    sha256: bytes | None = None,
    missing: tuple[tuple[int, int], ...] = (),
    time_ns: int = 0,
    own: bool = False,
) -> Seen:
    """A Seen of ``data``, its digest computed; ``sha256`` None: as the data have it."""
    digest = b"" if missing else hashlib.sha256(data).digest()
    size = data.nbytes if isinstance(data, memoryview) else len(data)
    declared = digest if sha256 is None else sha256
    return Seen(
        sender,
        receiver,
        k,
        stream,
        dtype,
        size // DTYPE[dtype].itemsize,
        data,
        declared,
        digest,
        time_ns=time_ns,
        missing=missing,
        own=own,
    )


def without_values(entry: Seen) -> Seen:
    """The same with only its digest."""
    return replace(entry, data=None)


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
        message.header.vantage = _VANTAGE[header.vantage]  # type: ignore[assignment]
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
        self._file.write(_LENGTH.pack(size))
        for part in parts:
            self._file.write(part)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class Transcript:
    """A transcript file.  The header is read at once; iterating reads entry by entry, any number of times.

    Raises TranscriptError naming file and byte for anything that is not exactly a transcript, and at the end of an
    iteration when the file has no end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._counts: Counts | None = None
        with self._open() as file:
            self.header = self._header(self._read(file))

    def __iter__(self) -> Iterator[Seen]:
        with self._open() as file:
            self._read(file)
            while True:
                at = file.tell()
                message = self._read(file)
                kind = message.WhichOneof("kind")
                if kind == "end":
                    if file.read(1):
                        raise TranscriptError(f"{self.path}: something follows its end at byte {at}")
                    self._counts = _counts(message.end)
                    return
                if kind != "seen":
                    raise TranscriptError(f"{self.path}: an entry of kind {kind} at byte {at}")
                yield self._checked(at, message.seen)

    def whole(self) -> Iterator[tuple[int, Seen | None]]:
        """Of a file that may be torn: the byte where the header ends (and None), then where each entry ends that is
        whole, its hash included.
        """
        with self._open() as file:
            self._read(file)
            yield file.tell(), None
            while True:
                at = file.tell()
                try:
                    message = self._read(file)
                    if message.WhichOneof("kind") != "seen":
                        return
                    entry = self._checked(at, message.seen)
                except TranscriptError:
                    return
                yield file.tell(), entry

    def counts(self) -> Counts:
        """What the observer counted; reads the whole file, unless somebody did."""
        if self._counts is None:
            with self._open() as file:
                message = self._read(file)
                while message.WhichOneof("kind") != "end":
                    message = self._read(file)
                self._counts = _counts(message.end)
        return self._counts

    # --- reading

    def _open(self) -> BinaryIO:
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise TranscriptError(f"{self.path}: cannot be read: {error.strerror}") from error
        if file.read(len(MAGIC)) != MAGIC:
            file.close()
            raise TranscriptError(f"{self.path}: not a transcript of this version (dpgt eavesdrop decode makes one)")
        return file

    def _read(self, file: BinaryIO) -> transcript_pb2.TranscriptEntry:
        at = file.tell()
        prefix = file.read(_LENGTH.size)
        if len(prefix) == _LENGTH.size:
            (size,) = _LENGTH.unpack(prefix)
            data = file.read(size) if size <= MAX_ENTRY_BYTES else b""
            if len(data) == size:
                try:
                    return transcript_pb2.TranscriptEntry.FromString(data)
                except (
                    DecodeError,
                    ValueError,
                ) as error:  # ValueError: invalid UTF-8 in the pure-Python implementation
                    raise TranscriptError(f"{self.path}: no valid entry at byte {at}") from error
        raise TranscriptError(f"{self.path}: cut short at byte {at}: the observer did not end")

    def _header(self, message: transcript_pb2.TranscriptEntry) -> Header:
        try:
            require(message.WhichOneof("kind") == "header", "the first entry is no header")
            head = message.header
            vantage = {number: name for name, number in _VANTAGE.items()}.get(head.vantage)
            channel = {name: name for name in _CHANNELS}.get(head.channel)  # type: ignore[call-overload]
            if vantage is None or channel is None:
                raise PeerError("its vantage point or channel is not known")
            return Header(
                vantage,
                tuple(name_field(name, "observer") for name in head.observers),
                tuple(Link(name_field(k.sender, "sender"), name_field(k.receiver, "receiver")) for k in head.links),
                channel,
                bytes_field(head.run_id, "run id", 0, 16),
                text_field(head.source, "source"),
                _ascending(head.coordinates),
            )
        except PeerError as error:
            raise TranscriptError(f"{self.path}: {error}") from error

    def _checked(self, at: int, entry: transcript_pb2.Seen) -> Seen:
        vector = entry.vector
        try:
            require(vector.run_id == self.header.run_id, f"a vector of run {vector.run_id.hex()}")
            stream, dtype = _STREAMS.get(vector.stream), _DTYPES.get(vector.dtype)
            if stream is None or dtype is None:
                raise PeerError(f"stream {vector.stream} or dtype {vector.dtype} is not known")
            size = DTYPE[dtype].itemsize
            require(1 <= vector.dimension <= MAX_DIMENSION, f"dimension {vector.dimension}")
            require(vector.nbytes == vector.dimension * size, f"nbytes {vector.nbytes} of {vector.dimension} {dtype}")
            chosen = self.header.coordinates
            require(not chosen or chosen[-1] < vector.dimension, f"no coordinate {chosen[-1:]} in {vector.dimension}")
            kept = 0 if entry.digest_only else len(chosen) * size or vector.nbytes
            require(len(vector.data) == kept, f"{len(vector.data)} bytes of data")
            missing = tuple((hole.start, hole.end) for hole in entry.missing)
            last = 0
            for start, end in missing:
                require(last <= start < end <= vector.nbytes, f"missing bytes {start} to {end}")
                last = end
            require(entry.copies >= 1, "copies 0")
            if vector.data and not missing and not chosen:  # what is kept in part, nobody can check
                intact = hashlib.sha256(vector.data).digest() == entry.sha256_seen
                require(intact, f"damaged: {stream} of round {vector.round} of {vector.sender} has another hash")
            return Seen(
                sender=name_field(vector.sender, "sender"),
                receiver=name_field(entry.receiver, "receiver") if entry.receiver else "",
                k=vector.round,
                stream=stream,
                dtype=dtype,
                dimension=vector.dimension,
                data=None if entry.digest_only else vector.data,
                sha256=bytes_field(vector.sha256, "sha256", 32),
                sha256_seen=bytes_field(entry.sha256_seen, "sha256 seen", 0 if missing else 32),
                time_ns=entry.time_ns,
                missing=missing,
                own=entry.own,
                copies=entry.copies,
                coordinates=() if entry.digest_only else chosen,
            )
        except PeerError as error:
            raise TranscriptError(f"{self.path}: entry at byte {at}: {error}") from error


def _counts(end: transcript_pb2.TranscriptEnd) -> Counts:
    return Counts(*(int(getattr(end, name)) for name in Counts.__slots__))


def _ascending(coordinates: Iterable[int]) -> tuple[int, ...]:
    found = tuple(coordinates)
    require(all(a < b for a, b in pairwise(found)), "coordinates that do not ascend")
    return found
