"""What a tap has of TLS without its keys: who sends to whom, one stream or two, how large a vector is, who is slow.

No payload is recovered, and none is needed: a ClientHello names who is dialled, record headers tell sizes, packets tell
times.  R and C cannot be told apart (an edge with one stream is in either), nor d from the width of a value, except by
the rule by which runs choose it (float64 below d = 1e5, float32 from there on).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from dpgt_node.adversary.attack import Finding, Options, Result, Verdict
from dpgt_node.adversary.decode.packets import Capture, PcapError, open_capture
from dpgt_node.adversary.decode.periods import Messages, equal_messages
from dpgt_node.adversary.decode.reports import Reports, lags, of_lags
from dpgt_node.adversary.decode.reports import findings as of_reports
from dpgt_node.adversary.decode.stages import Connection
from dpgt_node.adversary.decode.tcp import Reassembly
from dpgt_node.adversary.decode.tls.records import RecordSizes
from dpgt_node.adversary.inference.observation import Facts, Observation
from dpgt_node.config import RunConfig
from dpgt_node.protocol.pace import span
from dpgt_node.protocol.types import Payload
from dpgt_node.record.truth import Truth
from dpgt_node.types import I64, Stream, WireDtype
from dpgt_node.values import dataclass
from dpgt_node.wire.codec import DTYPE, encode_vectors
from dpgt_node.wire.transcript import TranscriptError

_AGENT = re.compile(r"(.+)\.agent\.dpgt")
_COORDINATOR = "coordinator.dpgt"
_FRAME_BYTES, _PREFIX_BYTES = 9, 5
_INLINE_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 20
_FLOAT32_FROM = 100_000
_PAIRED = 1.6
"""A message that is so many times as large as the smallest one holds two vectors."""
_UNLIKE, _ALIKE = 3.0, 1.5


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """One link.  ``streams``: 1 or 2; None: it cannot be told.  ``vector_bytes``: size of one vector's values.
    ``starts_ns``: when each round's first byte came by.
    """

    sender: str
    receiver: str
    rounds: int
    streams: int | None
    vector_bytes: float | None
    starts_ns: I64 = field(repr=False)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was learned.  ``edges``: (sender, receiver), the union of both graphs.  ``vector_bytes``: of the values of
    one vector.  ``dtype``: by the rule of "auto", None where both are possible.  ``step_s``: of one round.  ``lag_s``:
    how long after the first sender of a round an agent sends, the median over rounds.  ``round_bytes``: the most that a
    link carries in one, framing included.  ``reports``: what an agent says to the coordinator of each;
    ``report_lag_s``: how much later than the first one it does so.
    """

    edges: frozenset[tuple[str, str]]
    links: tuple[LinkTraffic, ...]
    vector_bytes: float | None
    dtype: WireDtype | None
    rounds: int
    step_s: float | None
    lag_s: dict[str, float]
    bytes_lost: int
    notes: tuple[str, ...]
    round_bytes: float | None = None
    reports: dict[str, Reports] = field(default_factory=dict)
    report_lag_s: dict[str, float] = field(default_factory=dict)

    def dimension(self, dtype: WireDtype) -> int | None:
        """d, if values have this type."""
        return None if self.vector_bytes is None else round(self.vector_bytes / DTYPE[dtype].itemsize)


def observe(paths: Sequence[Path]) -> Traffic:
    """The traffic in captures of one run.  PcapError: not a capture, cut short, or without TLS between agents."""
    seen: list[tuple[Connection, RecordSizes]] = []

    def opened(connection: Connection) -> tuple[RecordSizes, RecordSizes]:
        there, back = RecordSizes(), RecordSizes()
        seen.append((connection, there))
        seen.append((connection, back))
        return there, back

    reassembly = Reassembly(opened)
    for path in paths:
        with open_capture(path) as stream:
            for packet in Capture(stream, str(path)):
                reassembly.feed(packet)
    reassembly.close()
    flows = _flows(seen)
    if not flows:
        named = ", ".join(map(str, paths))
        raise PcapError(f"{named}: no TLS between agents in it; without TLS, dpgt eavesdrop decode reads what they say")
    return _learned(flows, _reports(seen), reassembly.counts.bytes_lost)


@dataclass(frozen=True, slots=True)
class _Flow:
    sender: str
    receiver: str
    messages: Messages | None
    carried: int


def _reports(seen: Sequence[tuple[Connection, RecordSizes]]) -> dict[str, Reports]:
    """Of each agent, on the longest of its calls to the coordinator."""
    found: dict[str, Reports] = {}
    for sender, receiver, sizes in _dialled(seen):
        made = Reports.of(sizes.carried, sizes.times_ns) if receiver == _COORDINATOR else None
        if made is not None and (sender not in found or len(made.times_ns) > len(found[sender].times_ns)):
            found[sender] = made
    return found


def _flows(seen: Sequence[tuple[Connection, RecordSizes]]) -> list[_Flow]:
    """What agents sent each other."""
    return [
        _Flow(sender, receiver, equal_messages(sizes.times_ns, sizes.carried), sum(sizes.carried))
        for sender, receiver, sizes in _dialled(seen)
        if receiver != _COORDINATOR
    ]


def _dialled(seen: Sequence[tuple[Connection, RecordSizes]]) -> list[tuple[str, str, RecordSizes]]:
    """Sender, receiver and the dialling direction of each connection, by name where a name is known."""
    dialled = [(connection, sizes) for connection, sizes in seen[::2] if sizes.tls and len(sizes.carried)]
    servers: dict[str, set[str]] = {}
    named: dict[tuple[str, int], str] = {}
    for connection, sizes in dialled:
        there = connection.ends[1]
        known = _AGENT.fullmatch(sizes.server_name)
        if known is not None:
            named[there.host, there.port] = known[1]
            servers.setdefault(there.host, set()).add(known[1])
        elif sizes.server_name == _COORDINATOR:
            named[there.host, there.port] = sizes.server_name
    found = []
    for connection, sizes in dialled:
        here, there = connection.ends
        receiver = named.get((there.host, there.port), str(there))
        living = servers.get(here.host, set())
        sender = next(iter(living)) if len(living) == 1 else (here.host if not living else str(here))
        found.append((sender, receiver, sizes))
    return found


# --- what follows ----------------------------------------------------------------------------------------------------


def _learned(flows: Sequence[_Flow], told: dict[str, Reports], bytes_lost: int) -> Traffic:
    notes: list[str] = []
    largest: dict[tuple[str, str], _Flow] = {}
    for flow in flows:  # a peer that came back has several connections: the longest one speaks for the link
        before = largest.get((flow.sender, flow.receiver))
        if before is None or flow.carried > before.carried:
            largest[flow.sender, flow.receiver] = flow
    readable = {pair: flow.messages for pair, flow in largest.items() if flow.messages is not None}
    if len(readable) < len(largest):
        notes.append(f"{len(largest) - len(readable)} links have too few equal messages to measure")
    if any(":" in sender for sender, _ in largest):
        notes.append("agents share an address: who is dialled is seen there, not who dials")
    streams = _streams(readable, notes)
    links = []
    for pair in sorted(largest):
        messages, count = readable.get(pair), streams.get(pair)
        if messages is None:
            links.append(LinkTraffic(*pair, 0, None, None, np.zeros(0, dtype=np.int64)))
            continue
        each = (count or 1) if messages.chunked else 1
        starts = messages.starts_ns[::each]
        size = None if count is None and not messages.chunked else _vector_bytes(messages, count or 1, pair[0])
        links.append(LinkTraffic(*pair, len(starts), count, size, starts))
    sizes = [link.vector_bytes for link in links if link.vector_bytes is not None]
    size = float(np.median(sizes)) if sizes else None
    rounds = max((link.rounds for link in links), default=0)
    step_s, lag_s, first = _times(links)
    whole = [m.nbytes * (2 if m.chunked and streams.get(pair) != 1 else 1) for pair, m in readable.items()]
    most, seen = max(whole, default=None), (frozenset(largest), tuple(links), size, _dtype(size))
    return Traffic(*seen, rounds, step_s, lag_s, bytes_lost, tuple(notes), most, told, lags(told, first))


def _streams(found: dict[tuple[str, str], Messages], notes: list[str]) -> dict[tuple[str, str], int | None]:
    """How many vectors a round each link carries."""
    if not found:
        return {}
    chunked = {pair: m for pair, m in found.items() if m.chunked}
    whole = {pair: m for pair, m in found.items() if not m.chunked}
    streams: dict[tuple[str, str], int | None] = {}
    if chunked:  # a message is a vector: count them
        least = min(m.count for m in chunked.values())
        if all(m.count < _PAIRED * least for m in chunked.values()):
            each = _by_times(list(chunked.values()))
            told = "cannot be told (two: half the rounds)" if each is None else "was told by when they come"
            notes.append(f"all links carry as many vectors a round: one or two {told}")
            streams |= dict.fromkeys(chunked, each)
        else:
            streams |= {pair: 2 if m.count >= _PAIRED * least else 1 for pair, m in chunked.items()}
    if whole:  # a message is a round: weigh them
        smallest = min(m.nbytes for m in whole.values())
        if all(m.nbytes < _PAIRED * smallest for m in whole.values()):
            notes.append("all links carry as much a round: one vector or two cannot be told, nor d")
            streams |= dict.fromkeys(whole)
        else:
            streams |= {pair: 2 if m.nbytes >= _PAIRED * smallest else 1 for pair, m in whole.items()}
    return streams


def _by_times(found: Sequence[Messages]) -> int | None:
    """Two, where every other pause between messages is much the shorter one; one, where all are alike."""
    ratios = []
    for messages in found:
        pauses = np.maximum(messages.starts_ns[1:] - messages.ends_ns[:-1], 1_000_000)
        if len(pauses) >= 6:
            halves = float(np.median(pauses[::2])), float(np.median(pauses[1::2]))
            ratios.append(max(halves) / min(halves))
    if not ratios:
        return None
    if min(ratios) > _UNLIKE:
        return 2
    return 1 if max(ratios) < _ALIKE else None


def _vector_bytes(messages: Messages, streams: int, sender: str) -> float:
    """What of a message is values: its framing is public and counted exactly, but for how HTTP/2 cut it."""
    size = messages.nbytes / (1 if messages.chunked else streams)
    for _ in range(3):  # lengths are written with as many bytes as they need
        size = messages.nbytes - _framing(int(size), 1 if messages.chunked else streams, sender)
        size /= 1 if messages.chunked else streams
    return size


def _framing(vector_bytes: int, streams: int, sender: str) -> int:
    """Bytes of one message beside its values."""
    d = max(1, vector_bytes // 8)
    named = sender if re.fullmatch(r"[A-Za-z0-9._-]{1,63}", sender) else "agent-1"
    kinds: tuple[Stream, ...] = ("X", "Y")
    data = np.zeros(8 * d, dtype=np.uint8).data.toreadonly()
    payloads = [Payload(stream, 100, "float64", d, data, bytes(32)) for stream in kinds[:streams]]
    first = next(encode_vectors(bytes(16), named, payloads))
    if 8 * d <= _INLINE_BYTES:
        return len(first) - streams * 8 * d + _PREFIX_BYTES + _FRAME_BYTES
    chunks = -(-8 * d // _CHUNK_BYTES)
    return len(first) + (1 + chunks) * (_PREFIX_BYTES + _FRAME_BYTES) + 4 * chunks


def _dtype(vector_bytes: float | None) -> WireDtype | None:
    """Under ``wire_dtype = "auto"``."""
    if vector_bytes is None:
        return None
    if vector_bytes < 0.99 * 4 * _FLOAT32_FROM:
        return "float64"
    return "float32" if vector_bytes > 1.01 * 8 * _FLOAT32_FROM else None


def _times(links: Sequence[LinkTraffic]) -> tuple[float | None, dict[str, float], I64]:
    """Seconds a round takes, how long after the first sender each sender begins, and when the first one did."""
    timed = [link for link in links if link.rounds >= 3]
    if not timed:
        return None, {}, np.zeros(0, dtype=np.int64)
    step = float(np.median(np.concatenate([np.diff(link.starts_ns) for link in timed]))) / 1e9
    rounds = min(link.rounds for link in timed)
    begun: dict[str, I64] = {}
    for link in timed:  # the last ones: a tap that came late missed the first
        starts = link.starts_ns[-rounds:]
        begun[link.sender] = np.minimum(begun[link.sender], starts) if link.sender in begun else starts
    first = np.min(np.stack(list(begun.values())), axis=0)
    lag_s = {sender: float(np.median(starts - first)) / 1e9 for sender, starts in begun.items()}
    return step, lag_s, first


# --- the report ------------------------------------------------------------------------------------------------------


def analyse(paths: Path | Sequence[Path], run: RunConfig | None = None) -> Result:
    """Traffic analysis of captures without keys, as a report; ``run``: what it is compared with."""
    found = observe([paths] if isinstance(paths, Path) else paths)
    facts = None if run is None else Facts.of(run)
    findings = [_overall(found, facts), *(_of_link(link, facts) for link in found.links)]
    findings += of_lags(found.lag_s, found.step_s)
    findings += of_reports(found.reports, found.report_lag_s, found.step_s, facts)
    d = " or ".join(f"d = {found.dimension(t)} ({t})" for t in _possible(found)) or _most(found)
    step = f", {span(found.step_s)} a round" if found.step_s else ""
    two = sum(1 for link in found.links if link.streams == 2)
    summary = (
        f"0 payloads recovered; {len(found.edges)} links, {two} of them with two streams; {d}; "
        f"{found.rounds} rounds{step}"
    )
    missing = f"{found.bytes_lost} bytes were not seen" if found.bytes_lost else ""
    return Result("traffic", summary, tuple(findings), "eavesdropper without keys (tls)", missing)


class TrafficAttack:
    """The entry of the registry of attacks; it works on captures (:func:`analyse`), not on transcripts."""

    name = "traffic"
    needs = frozenset({"capture"})

    def run(self, observation: Observation, truth: Truth | None, options: Options) -> Result:
        """TranscriptError: a transcript has no record sizes."""
        raise TranscriptError("traffic analysis works on captures (FILE.pcap), not on what was decoded from them")


traffic = TrafficAttack()


def _possible(traffic: Traffic) -> tuple[WireDtype, ...]:
    if traffic.vector_bytes is None:
        return ()
    return ("float64", "float32") if traffic.dtype is None else (traffic.dtype,)


def _overall(traffic: Traffic, facts: Facts | None) -> Finding:
    """Of the run.  Predicted: how many links are seen, those of the graph, or of all pairs under a cover."""
    measured: dict[str, float | None] = {
        "payloads_recovered": 0.0,
        "links": float(len(traffic.edges)),
        "rounds": float(traffic.rounds),
        "vector_bytes": traffic.vector_bytes,
        "d_if_float64": _maybe(traffic.dimension("float64")),
        "d_if_float32": _maybe(traffic.dimension("float32")),
        "step_s": traffic.step_s,
    }
    if facts is None:
        return Finding("", "succeeds", measured, {}, "; ".join(traffic.notes))
    names, network = facts.names, facts.network
    true = {(names[j], names[i]) for j in range(len(names)) for i in network.peers(j)}
    edges = {(a, b) for a, b in traffic.edges}
    n, covered = len(names), facts.run.traffic.cover != "none"
    predicted = {"payloads_recovered": 0.0, "links": float(n * (n - 1) if covered else len(true))}
    so = {"links": float(len(true)), "rounds": facts.run.K + 1.0}
    if _lower(edges) == _lower(true):
        return Finding("", "succeeds", measured, predicted, "; ".join(traffic.notes), so)
    notes = (*traffic.notes, f"links not found: {_listed(true - edges)}; found beside: {_listed(edges - true)}")
    return Finding("", "partly", measured, predicted, "; ".join(notes), so)


def _most(traffic: Traffic) -> str:
    if traffic.round_bytes is None:
        return "d unknown"
    return f"d at most {traffic.round_bytes / DTYPE['float64'].itemsize:.0f} (float64)"


def _of_link(link: LinkTraffic, facts: Facts | None) -> Finding:
    measured = {
        "streams": _maybe(link.streams),
        "rounds": float(link.rounds),
        "vector_bytes": link.vector_bytes,
    }
    verdict: Verdict = "partly" if link.streams is None else "succeeds"
    true: dict[str, float | None] = {}
    if facts is not None:
        index = {name.lower(): i for i, name in enumerate(facts.names)}
        sender, receiver = index.get(link.sender.lower()), index.get(link.receiver.lower())
        if sender is not None and receiver is not None:
            streams = facts.network.peers(sender).get(receiver, ())
            true = {"streams": float(len(streams)), "rounds": facts.run.K + 1.0}
            verdict = "succeeds" if link.streams == len(streams) else "partly" if link.streams is None else "fails"
    return Finding(link.sender, verdict, measured, note=f"to {link.receiver}", true=true)


def _maybe(value: int | None) -> float | None:
    return None if value is None else float(value)


def _lower(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Names as certificates have them."""
    return {(a.lower(), b.lower()) for a, b in pairs}


def _listed(pairs: set[tuple[str, str]]) -> str:
    return ", ".join(f"{a}>{b}" for a, b in sorted(pairs)) or "none"
