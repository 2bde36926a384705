"""Captures to a transcript: packets, TCP, HTTP/2, gRPC messages, released vectors, in one pass and bounded memory."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from dpgt_node.adversary.decode.http2 import Calls, Frames
from dpgt_node.adversary.decode.packets import Capture, Packet
from dpgt_node.adversary.decode.sighting import Sighting
from dpgt_node.adversary.decode.stages import Connection, Endpoint, Piped, Sink, Stages
from dpgt_node.adversary.decode.tally import Edge, Statistics, Tally
from dpgt_node.adversary.decode.tcp import Reassembly, TcpCounts
from dpgt_node.adversary.decode.tls.keys import Decryptor, TlsCounts
from dpgt_node.adversary.decode.tls.secrets import KeyLog
from dpgt_node.adversary.decode.vectors import Vectors
from dpgt_node.errors import ConfigError
from dpgt_node.protocol.messages import Resume
from dpgt_node.types import Stream, WireDtype
from dpgt_node.values import dataclass
from dpgt_node.wire.codec import DTYPE
from dpgt_node.wire.overheard import Overheard
from dpgt_node.wire.transcript import Channel, Header, Link, Seen
from dpgt_node.wire.transcript_writer import TranscriptWriter

_MAX_REASONS = 64


@dataclass(frozen=True, slots=True)
class Keep:
    """What of the values goes into the transcript: all, only digests, or these coordinates."""

    kind: Literal["all", "digests", "coordinates"] = "all"
    coordinates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a capture held.

    ``messages``: (agent, round, stream) on one edge, of which ``complete`` have every byte and the declared hash,
    ``with_holes`` lack bytes.  ``foreign``: connections and messages that are something else, ``named``: what they are.
    ``capture_dropped``: packets that the tap itself says it lost.  ``orphan_bytes``: of values of vectors whose header
    was sent before the tap began.  ``study``: private x_{i,k} that a study run uploaded past the tap; not kept.
    ``elsewhere``: vectors on links that are not tapped.  ``ours``: vectors (sightings) of the run that is meant,
    whatever became of them; ``strangers``: those of other runs, or of agents that the run does not have.
    ``tls_connections``: those of which nothing was opened; ``tls``: what the keys opened, where there are any.
    """

    run_id: bytes
    channel: Channel
    messages: int
    complete: int
    with_holes: int
    agents: tuple[str, ...]
    rounds: int
    segments_lost: int
    bytes_lost: int
    resent: int
    conflicting: int
    wrong_hash: int
    unverified: int
    bytes: int
    foreign: int
    named: Mapping[str, int]
    study: int
    elsewhere: int
    ours: int
    strangers: int
    orphan_bytes: int
    capture_dropped: int
    tls_connections: int
    tls: TlsCounts | None
    tcp: TcpCounts
    edges: tuple[Edge, ...]
    statistics: Mapping[tuple[str, Stream], Statistics] = field(repr=False)


class Decoder:
    """Packets in, a transcript at ``out``.  ``run_id``: of the run that is meant; None: the first one seen.

    ``senders``: agents of the run, where known; others are foreign.  ``links``: those that are tapped; the rest is left
    out.  ``keys``: of TLS; captures that hold some add them.  ``stages``: a decryptor of another kind.  ``close``
    writes the transcript's end; ``abandon`` leaves it without one, so that nobody takes it for all there was.
    """

    def __init__(
        self,
        out: Path,
        *,
        keep: Keep | None = None,
        run_id: bytes | None = None,
        senders: frozenset[str] = frozenset(),
        links: tuple[Link, ...] = (),
        keys: KeyLog | None = None,
        stages: Stages | None = None,
        ports: frozenset[int] = frozenset(),
        source: str = "",
    ) -> None:
        self._out = out
        self._keep = keep or Keep()
        self._senders = senders
        self._links = links
        self._elsewhere = self._ours = self._strangers = 0
        self._shape: tuple[WireDtype, int] | None = None
        self._decryptor = None if keys is None else Decryptor(keys)
        self._stages: Stages | None = stages or self._decryptor
        self._source = source
        self._writer: TranscriptWriter | None = None
        self._tally = Tally()
        self._parts: dict[tuple[str, str, Stream], tuple[Sighting, str, str]] = {}
        self._readers: dict[tuple[str, str, Stream | None], Vectors] = {}
        self._named: Counter[str] = Counter()
        self._study = self._orphan_bytes = self._tls = 0
        self._tcp = Reassembly(self._connection, ports)
        self.run_id = run_id
        self.receivers: dict[Endpoint, str] = {}

    # --- in

    def feed(self, packet: Packet) -> None:
        self._tcp.feed(packet)

    def flush(self) -> None:
        """Hand on what was held back only to make larger pieces."""
        self._tcp.flush()

    def close(self, *, capture_dropped: int = 0) -> Decoded:
        self._tcp.close()
        for part in self._parts.values():
            self._record(*part)
        tally, counts = self._tally, self._tcp.counts
        channel: Channel = "tls" if not tally.messages and self._tls and not self._stages else self._channel
        self._open(channel).close(
            segments_lost=counts.segments_lost, foreign=self._named.total(), conflicting=tally.conflicting
        )
        whole = tally.complete + tally.wrong_hash + tally.unverified
        return Decoded(
            run_id=self.run_id or b"",
            channel=channel,
            messages=tally.messages,
            complete=tally.complete,
            with_holes=tally.messages - whole,
            agents=tuple(tally.agents),
            rounds=len(tally.rounds),
            segments_lost=counts.segments_lost,
            bytes_lost=counts.bytes_lost,
            resent=tally.resent,
            conflicting=tally.conflicting,
            wrong_hash=tally.wrong_hash,
            unverified=tally.unverified,
            bytes=tally.bytes,
            foreign=self._named.total(),
            named=dict(self._named),
            study=self._study,
            elsewhere=self._elsewhere,
            ours=self._ours,
            strangers=self._strangers,
            orphan_bytes=self._orphan_bytes,
            capture_dropped=capture_dropped,
            tls_connections=self._tls,
            tls=self._decryptor.counts if self._decryptor else None,
            tcp=counts,
            edges=tuple(edge for _, edge in sorted(tally.edges.items())),
            statistics=tally.statistics,
        )

    def secrets(self, log: bytes, name: str) -> None:
        """A capture holds this key log: connections that are opened from here on may be read with it."""
        if self._decryptor is None:
            self._decryptor = Decryptor(KeyLog())
            self._stages = self._stages or self._decryptor
        self._decryptor.keys.add(log, name)

    def abandon(self) -> None:
        """The capture cannot be read on: the transcript stays without an end, and goes where nothing is in it."""
        self._open(self._channel).abandon()
        if not self._tally.messages:
            self._out.unlink(missing_ok=True)

    @property
    def _channel(self) -> Channel:
        unused = self._stages is self._decryptor and not (self._decryptor and self._decryptor.counts.connections)
        return "plain" if unused else "tls+keys"

    # --- what the connections say

    def _connection(self, connection: Connection) -> tuple[Sink, Sink]:
        there, back = _Conversation(self, connection).sinks()
        if self._stages is None:
            return there, back
        stages = self._stages.open(connection)
        return Piped(stages[0], there), Piped(stages[1], back)

    def foreign(self, what: str) -> None:
        """Something that is not of this run's protocol."""
        if what == "TLS":
            self._tls += 1
            return
        known = what in self._named or len(self._named) < _MAX_REASONS
        self._named[what if known else "other reasons"] += 1

    def orphan(self, size: int) -> None:
        """Values of nobody knows which vector."""
        self._orphan_bytes += size

    def begins(self, head: Overheard, where: str, reader: Vectors) -> None:
        """A vector in chunks goes to ``where``.  One that goes on there was broken off in the call before: no end of
        that call need ever be seen.
        """
        edge = head.sender, where, head.stream
        before = self._readers.get(edge)
        if head.from_byte and before is not None and before is not reader:
            before.abandon()
        self._readers[edge] = reader

    def vector(self, sighting: Sighting, receiver: str, where: str) -> None:
        """A vector that went to ``receiver`` (empty: unknown, but always the same at ``where``)."""
        head = sighting.head
        if self.run_id is None:
            self.run_id = head.run_id
        if head.run_id != self.run_id:
            self._strangers += 1
            self.foreign(f"a vector of run {head.run_id.hex()}")
            return
        if self._senders and head.sender not in self._senders:
            self._strangers += 1
            self.foreign(f"a vector of {head.sender}, who is not in the run file")
            return
        self._ours += 1
        if head.stream is None:
            self._study += 1
            return
        if sighting.blank:
            return
        self._shape = self._shape or (head.dtype, head.dimension)
        if self._shape != (head.dtype, head.dimension):
            self.foreign(f"a vector of {head.dimension} {head.dtype} values where others have {self._shape[1]}")
            return
        if self._links and (Link(head.sender, receiver) not in self._links):
            self._elsewhere += 1
            return
        edge = head.sender, where, head.stream
        if (before := self._parts.pop(edge, None)) is not None:
            if sighting.goes_on(before[0]):
                sighting = sighting.joined(before[0])
            else:
                self._record(*before)
        if sighting.cut:
            self._parts[edge] = sighting, receiver, where
        else:
            self._record(sighting, receiver, where)

    def _record(self, sighting: Sighting, receiver: str, where: str) -> None:
        """Count it, and write down what is new."""
        head = sighting.head
        assert head.stream is not None
        digest = b"" if sighting.missing else hashlib.sha256(sighting.data).digest()
        declared = self._tally.declared(head)
        copy, news = self._tally.add(head, receiver or where, digest, sighting.data)
        writer = self._open(self._channel)
        if not news:
            if copy.at is not None:
                writer.recount(copy.at, copy.copies)
            return
        seen = Seen(
            head.sender, receiver, head.k, head.stream, head.dtype, head.dimension, data=self._kept(sighting),
            sha256=declared or bytes(32), sha256_seen=digest, time_ns=sighting.time_ns, missing=sighting.missing,
            coordinates=self._keep.coordinates,
        )  # fmt: skip
        at = writer.write(seen)
        copy.at = at if copy.at is None else copy.at

    def _kept(self, sighting: Sighting) -> memoryview | None:
        if self._keep.kind == "digests":
            return None
        if self._keep.kind == "all":
            return sighting.data
        values = np.frombuffer(sighting.data, dtype=DTYPE[sighting.head.dtype])
        if self._keep.coordinates[-1] >= len(values):
            raise ConfigError.one("command line", "--keep", f"coordinate {self._keep.coordinates[-1]} of {len(values)}")
        return memoryview(values[np.array(self._keep.coordinates)].tobytes())

    def _open(self, channel: Channel) -> TranscriptWriter:
        if self._writer is None:
            header = Header(
                "eavesdropper", links=self._links, channel=channel, run_id=self.run_id or b"",
                source=self._source[:1000], coordinates=self._keep.coordinates,
            )  # fmt: skip
            self._writer = TranscriptWriter(self._out, header)
        return self._writer


class _Conversation:
    """One connection: who is at its ends, as far as its messages say."""

    def __init__(self, decoder: Decoder, connection: Connection) -> None:
        self.decoder = decoder
        self.connection = connection
        self.receiver = ""
        self._said = False

    def sinks(self) -> tuple[Frames, Frames]:
        """What takes both directions."""
        streams: set[int] = set()
        there, back = (
            Frames(
                Calls(lambda _, d=direction: Vectors(_Side(self, d)), self._call, self._foreign, streams),  # type: ignore[misc]
                at_start=self.connection.opened,
            )
            for direction in (0, 1)
        )
        return there, back

    def _call(self, stream: int, path: str) -> None:
        if not path.startswith(("/dpgt.v1.", "/grpc.health.")):
            self.decoder.foreign(f"a call of {path[:80]}")

    def _foreign(self, what: str) -> None:
        """Of a connection as a whole: once."""
        if not self._said:
            self._said = True
            port = self.connection.ends[1].port
            self.decoder.foreign(what if what == "TLS" else f"a connection to port {port}: {what}")


class _Side:
    """One direction of a call, as its reader's host."""

    def __init__(self, conversation: _Conversation, direction: int) -> None:
        self._of = conversation
        self._from, self._to = conversation.connection.ends[direction], conversation.connection.ends[1 - direction]

    def vector(self, sighting: Sighting) -> None:
        """Whoever is at the other end received it."""
        decoder = self._of.decoder
        receiver = self._of.receiver or decoder.receivers.get(self._to, "")
        decoder.vector(sighting, receiver, str(self._to))

    def begins(self, head: Overheard, reader: Vectors) -> None:
        self._of.decoder.begins(head, str(self._to), reader)

    def resume(self, message: Resume) -> None:
        """Whoever sent this receives vectors, and has this name."""
        self._of.receiver = self._of.decoder.receivers[self._from] = message.receiver

    def peers(self, addresses: Mapping[str, str]) -> None:
        """The coordinator said where everybody is: as far as these are addresses, not names."""
        for name, address in addresses.items():
            host, _, port = address.rpartition(":")
            self._of.decoder.receivers.setdefault(Endpoint(host.strip("[]"), int(port)), name)

    def foreign(self, what: str) -> None:
        self._of.decoder.foreign(what)

    def orphan(self, size: int) -> None:
        self._of.decoder.orphan(size)


def in_order(captures: Sequence[Capture]) -> Iterator[Packet]:
    """Packets of several captures (parts of one, or of several taps) by time."""
    if len(captures) == 1:
        return iter(captures[0])
    return heapq.merge(*captures, key=lambda packet: packet.time_ns)


def decode(captures: Sequence[Capture], decoder: Decoder) -> Decoded:
    """All packets of ``captures`` through ``decoder``; on an error the transcript stays without an end."""
    try:
        for capture in captures:
            capture.before_reading(decoder.flush)
            capture.on_secrets = partial(decoder.secrets, name=f"{capture.name}: embedded keys")
        for packet in in_order(captures):
            decoder.feed(packet)
        return decoder.close(capture_dropped=sum(capture.dropped for capture in captures))
    except BaseException:
        decoder.abandon()
        raise
