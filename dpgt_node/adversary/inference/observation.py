"""What an adversary works on: the public facts of a run, and the released vectors that it saw of it.

The adversary knows the run file (graphs, steps, noise scales, architecture) and the wire format; it never has an
agent, its data or its noise.  Ground truth reaches only reports (:mod:`dpgt_node.record.truth`).
"""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import codes_of, network_of
from dpgt_node.algo.methods.base import Network, at
from dpgt_node.algo.methods.dpgt import Steps
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.types import F64, I64, Stream, WireDtype
from dpgt_node.values import dataclass
from dpgt_node.wire.transcript import Counts, Header, Link, Seen, Transcript, TranscriptError


@dataclass(frozen=True, slots=True)
class Facts:
    """What everybody knows of a run: its file, and what follows from it."""

    run: RunConfig
    topology: Topology
    schedule: Schedule
    network: Network

    @classmethod
    def of(cls, run: RunConfig) -> Facts:
        topology = Topology.from_config(run.graph)
        return cls(run, topology, Schedule.from_config(run), network_of(run, topology))

    @property
    def names(self) -> tuple[str, ...]:
        """Agents, in the order of the rows of R and C."""
        return self.run.graph.agents

    def steps(self, i: int) -> Steps[float]:
        """Steps of agent ``i`` under Algorithm 1; a = alpha r_i and b = beta c_i as in privacy.md.  attacks.md works
        with rho = 1 - a and hold = 1 - b.
        """
        return Steps.of(self.topology, self.schedule, at(i))


@dataclass(frozen=True, slots=True)
class Conflict:
    """A copy of a release (agent index, stream, round) with other bytes than another one, both intact: each was seen
    whole, with the hash that its sender declared.  ``difference``: copy less first.  ``receivers``: of the first and of
    the copy, by name; the sender itself where a transcript is its own.
    """

    sender: int
    stream: Stream
    k: int
    difference: F64 = field(repr=False)
    receivers: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Observation:
    """Released vectors by agent index, stream and round, merged over edges and over transcripts.

    ``headers``: vantage points, one a transcript.  ``counts``: their sums.  ``links``: on which edge what was seen.
    ``copies``: how often each release was seen.  ``conflicts``: intact copies that differ.  ``damaged``: copies whose
    hash is another than declared, or that differ from one that is intact or is as doubtful as they are.  No value of
    theirs is used, and they are no evidence.  ``time_ns``: of the first that was seen, nanoseconds since 1970; 0: not
    known.  ``coordinates``: which ones the vectors hold, (width,); None: all.
    """

    facts: Facts
    headers: tuple[Header, ...]
    counts: Counts
    dimension: int
    dtype: WireDtype
    vectors: dict[tuple[int, Stream, int], F64] = field(repr=False)
    links: frozenset[tuple[Link, Stream]] = field(repr=False)
    copies: dict[tuple[int, Stream, int], int] = field(default_factory=dict, repr=False)
    conflicts: tuple[Conflict, ...] = ()
    time_ns: int = 0
    coordinates: I64 | None = field(default=None, repr=False)
    damaged: int = 0

    @classmethod
    def load(
        cls,
        paths: Sequence[Path],
        run: RunConfig,
        *,
        coordinates: Sequence[int] | None = None,
        run_id: bytes | None = None,
    ) -> Observation:
        """Merge the transcripts at ``paths`` of ONE run of ``run``; ``coordinates`` keeps only those (None: all that
        the transcripts kept).  ``run_id``: of the run that is meant, 16 bytes, where that is known.

        TranscriptError: of different runs or another run than ``run_id``, of other agents than the run's, mixed
        vantage points (an eavesdropper's with an agent's), one transcript twice, an edge or a dimension that the run
        does not have, or values that were not kept.
        """
        facts = Facts.of(run)
        transcripts = [Transcript(path) for path in paths]
        if not transcripts:
            raise TranscriptError("no transcript was given")
        _check_together(transcripts, facts)
        seen_id = transcripts[0].header.run_id
        if run_id is not None and seen_id and seen_id != run_id:
            raise TranscriptError(f"{paths[0]}: of run {seen_id.hex()}, but {run_id.hex()} is the run that was named")
        merge = _Merge(facts, _chosen(transcripts, coordinates))
        for transcript in transcripts:
            for entry in transcript:
                merge.add(transcript.path, entry)
        if merge.shape is None or (merge.damaged and not merge.vectors):
            what = f"all {merge.damaged} are damaged" if merge.damaged else "no vector was seen"
            raise TranscriptError(f"{', '.join(map(str, paths))}: {what} (under TLS, sizes and times are all)")
        return cls(
            facts,
            tuple(transcript.header for transcript in transcripts),
            _total(transcript.counts() for transcript in transcripts),
            merge.shape[0],
            merge.shape[1],
            merge.vectors,
            frozenset(merge.links),
            merge.copies,
            tuple(merge.conflicts),
            merge.time_ns,
            merge.chosen,
            merge.damaged,
        )

    @property
    def run_id(self) -> bytes:
        """Of the run, 16 bytes."""
        return self.headers[0].run_id

    @property
    def vantage(self) -> str:
        """One line for every report: who looked, at what, through which channel."""
        head = self.headers[0]
        if head.vantage == "eavesdropper":
            links = sorted({f"{k.sender}>{k.receiver}" for h in self.headers for k in h.links})
            return f"eavesdropper on {', '.join(links) or 'every link'} ({head.channel})"
        observers = sorted({name for h in self.headers for name in h.observers})
        return ("semi-honest " if len(observers) == 1 else "coalition of ") + ", ".join(observers)

    def series(self, i: int, stream: Stream, through: int | None = None) -> F64:
        """Released ``stream`` of agent ``i``, float64, shape (rounds, coordinates), rounds 0..``through`` (None: K);
        NaN where nothing was seen.
        """
        rounds = (self.facts.run.K if through is None else through) + 1
        width = next(iter(self.vectors.values())).shape[0]
        rows = np.full((rounds, width), np.nan)
        for k in range(rounds):
            vector = self.vectors.get((i, stream, k))
            if vector is not None:
                rows[k] = vector
        return rows

    def missing(self) -> str:
        """What an attack must say about its input: vectors and coordinates that were not seen; empty: none.

        A stream that an agent sends to nobody is none that could be seen.
        """
        network = self.facts.network
        sent = {
            (i, stream) for i in range(len(self.facts.names)) for has in network.peers(i).values() for stream in has
        }
        expected = len(sent) * (self.facts.run.K + 1)
        absent = expected - sum((i, stream) in sent for i, stream, _ in self.vectors)
        holes = sum(1 for v in self.vectors.values() if np.isnan(v).any())
        parts = []
        if absent:
            parts.append(f"{absent} of {expected} vectors were not seen")
        if holes:
            parts.append(f"{holes} vectors have missing coordinates")
        if self.damaged:
            parts.append(f"{self.damaged} damaged copies were left out")
        if self.counts.segments_lost:
            parts.append(f"{self.counts.segments_lost} segments were lost by the tap")
        return "; ".join(parts)


def _check_together(transcripts: Sequence[Transcript], facts: Facts) -> None:
    runs = {t.header.run_id for t in transcripts}
    if len(runs) > 1:
        raise TranscriptError(f"transcripts of different runs: {', '.join(sorted(r.hex() or 'unknown' for r in runs))}")
    kinds = {t.header.vantage == "eavesdropper" for t in transcripts}
    if len(kinds) > 1:
        raise TranscriptError(
            "mixed vantage points: an eavesdropper's transcript and a semi-honest agent's are two adversaries; "
            "attack with one kind, or say what their coalition is by merging agents' transcripts only"
        )
    _check_once(transcripts)
    for t in transcripts:
        strangers = sorted({n for n in t.header.observers} - set(facts.names))
        if strangers:
            raise TranscriptError(f"{t.path}: {', '.join(strangers)} is not in the run file: is it the right one?")


def _check_once(transcripts: Sequence[Transcript]) -> None:
    """Two copies of one file would pass for two looks at every release."""
    if len(transcripts) < 2:
        return
    known: list[Transcript] = []
    for t in transcripts:
        observers = t.header.observers
        same_observer = bool(observers) and observers in [other.header.observers for other in known]
        if same_observer or any(filecmp.cmp(t.path, other.path, shallow=False) for other in known):
            raise TranscriptError(f"{t.path}: the same observer's transcript twice")
        known.append(t)


def _chosen(transcripts: Sequence[Transcript], coordinates: Sequence[int] | None) -> I64 | None:
    kept = {transcript.header.coordinates for transcript in transcripts}
    if coordinates is None and kept != {()}:
        if len(kept) > 1:
            raise TranscriptError("the transcripts keep different coordinates: say which ones to attack")
        coordinates = kept.pop()
    return None if coordinates is None else np.asarray(coordinates, dtype=np.int64)


class _Merge:
    """Entries of transcripts of one run, put together; ``chosen``: the coordinates that are kept, None: all."""

    def __init__(self, facts: Facts, chosen: I64 | None) -> None:
        self.chosen = chosen
        self.vectors: dict[tuple[int, Stream, int], F64] = {}
        self.links: set[tuple[Link, Stream]] = set()
        self.copies: dict[tuple[int, Stream, int], int] = {}
        self.conflicts: list[Conflict] = []
        self.time_ns = 0
        self.shape: tuple[int, WireDtype] | None = None
        self._last_round, self._codes = facts.run.K, codes_of(facts.run)
        self._index = {name: i for i, name in enumerate(facts.names)}
        self._intact: dict[tuple[int, Stream, int], tuple[bytes, str]] = {}
        self.damaged = 0

    def add(self, path: Path, entry: Seen) -> None:
        """Take in what was seen.  TranscriptError: it is not of this run."""
        self._check(f"{path}: {entry.stream} of round {entry.k} of {entry.sender}", entry)
        if not entry.own:
            self.links.add((Link(entry.sender, entry.receiver), entry.stream))
        if not entry.missing and any(entry.sha256) and not entry.complete:
            self.damaged += 1
            return
        values = entry.array() if self._codes is None else self._codes.values(entry.array())
        if self.chosen is not None:
            values = values[self.chosen]
        key = (self._index[entry.sender], entry.stream, entry.k)
        self.copies[key] = self.copies.get(key, 0) + entry.copies
        self.time_ns = min(self.time_ns or entry.time_ns, entry.time_ns or self.time_ns)
        self._judge(key, values, entry.sha256_seen if entry.complete else b"", entry.receiver or entry.sender)

    def _check(self, where: str, entry: Seen) -> None:
        if entry.sender not in self._index or (entry.receiver and entry.receiver not in self._index):
            raise TranscriptError(f"{where}: the run file has no such agents: is this the right run file?")
        if entry.k > self._last_round:
            raise TranscriptError(f"{where}: the run file ends at round {self._last_round}")
        if self.shape not in (None, (entry.dimension, entry.dtype)):
            raise TranscriptError(f"{where}: d = {entry.dimension} {entry.dtype}, others have {self.shape}")
        self.shape = (entry.dimension, entry.dtype)
        expected = None if self._codes is None else self._codes.dtype
        if (expected is not None or entry.dtype.startswith("int")) and entry.dtype != expected:
            raise TranscriptError(f"{where}: {entry.dtype}, the run file says {expected or 'floating-point numbers'}")
        chosen = self.chosen
        if chosen is not None and chosen.size and not 0 <= chosen.min() <= chosen.max() < entry.dimension:
            raise TranscriptError(f"{where}: d = {entry.dimension}, a chosen coordinate is outside")

    def _judge(self, key: tuple[int, Stream, int], values: F64, intact: bytes, receiver: str) -> None:
        """One more copy, ``intact`` its hash where that vouches for it.  An intact one is taken before others; of two
        others only that in which they agree, and what one alone has.
        """
        before, (known, first) = self.vectors.get(key), self._intact.get(key, (b"", ""))
        if before is None:
            self.vectors[key], self._intact[key] = values, (intact, receiver)
            return
        gap = np.nan_to_num(values - before, nan=0.0)
        if intact and known:
            if intact != known:
                self.conflicts.append(Conflict(*key, gap, (first, receiver)))
            return
        self.damaged += bool(gap.any())
        if intact:
            self.vectors[key], self._intact[key] = values, (intact, receiver)
        elif not known:
            holes = np.isnan(before)
            before[holes] = values[holes]
            before[gap != 0.0] = np.nan


def _total(counts: Iterable[Counts]) -> Counts:
    every = list(counts)
    return Counts(*(sum(getattr(c, name) for c in every) for name in Counts.__slots__))
