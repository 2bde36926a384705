"""Transcripts: what one vantage point saw of a run, as typed values and as a file (``transcript.proto``).

Written by taps, by semi-honest agents and by the simulator, read by attacks: the same format for all, so that an
attack does not know where its input comes from, except through :class:`Header`, which every report repeats.

A file is read as a stream: a full run of a large model does not fit into memory.  A file that was cut short, or that
holds an entry out of place, is a TranscriptError: no attack ever runs on a silent part of what was seen.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from google.protobuf.message import DecodeError

from dpgt_node.errors import DpgtError, ExitCode, PeerError
from dpgt_node.types import F64, Stream, WireDtype
from dpgt_node.values import dataclass
from dpgt_node.wire.codec import DTYPE, DTYPE_NAME, STREAM_NUMBER
from dpgt_node.wire.fields import MAX_DIMENSION, bytes_field, name_field, require, text_field
from dpgt_node.wire.gen.dpgt.v1 import transcript_pb2

Vantage = Literal["eavesdropper", "semi-honest", "coalition"]
Channel = Literal["plain", "tls", "tls+keys", "agent"]
MAGIC = b"DPGTTR1\n"
MAX_ENTRY_BYTES = (2 << 30) - 1
LENGTH = struct.Struct(">I")
VANTAGE: dict[Vantage, int] = {"eavesdropper": 1, "semi-honest": 2, "coalition": 3}
_CHANNELS: tuple[Channel, ...] = ("plain", "tls", "tls+keys", "agent")
_STREAMS: dict[int, Stream] = {number: name for name, number in STREAM_NUMBER.items()}


class TranscriptError(DpgtError):
    """A transcript that cannot be used: cut short, malformed, or of something else than it was taken for."""

    exit_code = ExitCode.CONFIG


@dataclass(frozen=True, slots=True)
class Link:
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
        return self.dimension * DTYPE[self.dtype].itemsize

    @property
    def complete(self) -> bool:
        """Every byte was seen, and they have the hash that the sender declared."""
        return not self.missing and self.sha256 == self.sha256_seen

    def array(self) -> F64:
        """The values, or codes, float64, shape (dimension,); NaN for each that misses a byte or was not kept.

        Raises TranscriptError when only the digest was kept.
        """
        if self.data is None:
            raise TranscriptError(f"{self.stream} of round {self.k} of {self.sender}: only its digest was kept")
        size = DTYPE[self.dtype].itemsize
        values = np.frombuffer(self.data, dtype=DTYPE[self.dtype]).astype(np.float64)
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
        prefix = file.read(LENGTH.size)
        if len(prefix) == LENGTH.size:
            (size,) = LENGTH.unpack(prefix)
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
            vantage = {number: name for name, number in VANTAGE.items()}.get(head.vantage)
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
            stream, dtype = _STREAMS.get(vector.stream), DTYPE_NAME.get(vector.dtype)
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
