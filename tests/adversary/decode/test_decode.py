"""Captures to transcripts: what crossed the link comes out, what was missed is a hole of just that, and nothing is
ever made up; each of these checks is shown to catch a decoder that does it wrong.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node.adversary.decode import http2, messages, tally, tcp, vectors
from dpgt_node.adversary.decode.decoder import Decoded, Decoder, Keep, decode
from dpgt_node.adversary.decode.packets import LINKTYPE_RAW, Capture, PcapError
from dpgt_node.adversary.decode.stages import Gap, Item, Segment
from dpgt_node.adversary.decode.tally import Rounds
from dpgt_node.errors import PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.types import Payload
from dpgt_node.wire import convert
from dpgt_node.wire.codec import CHUNK_BYTES, encode_vectors
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2
from dpgt_node.wire.overheard import predicted, read_vectors
from dpgt_node.wire.transcript import Link, Seen, Transcript, TranscriptError
from tests.adversary.decode import wires as w
from tests.fuzz.http2 import DATA, frame, message

Payloads = list[list[Payload]]


def run(d: int, K: int, streams: str = "XY", *, seed: int = 0, dtype: Any = "float32") -> Payloads:
    return [[w.payload(s, k, d, dtype, seed) for s in streams] for k in range(K)]  # type: ignore[arg-type]


def faults(payloads: Payloads, entries: Iterable[Seen]) -> list[str]:
    """Entries that say what was not sent; the dumb oracle of every test here."""
    sent = {(p.stream, p.k): p for these in payloads for p in these}
    wrong = []
    for entry in entries:
        what = f"{entry.stream} {entry.k}"
        if (entry.stream, entry.k) not in sent:
            wrong.append(f"{what} was never sent")
            continue
        truth = sent[entry.stream, entry.k]
        mask = np.ones(truth.nbytes, dtype=bool)
        for start, end in entry.missing:
            mask[start:end] = False
        if entry.data is None or not np.array_equal(
            np.frombuffer(entry.data, np.uint8)[mask], np.frombuffer(truth.data, np.uint8)[mask]
        ):
            wrong.append(f"{what} has bytes that were not sent")
        if not entry.missing and entry.sha256_seen != truth.sha256:
            wrong.append(f"{what}: another hash")
    return wrong


def missed(payloads: Payloads, entries: Sequence[Seen]) -> int:
    """Bytes of values that no entry has."""
    found = {(e.stream, e.k): sum(end - start for start, end in e.missing) for e in entries}
    return sum(found.get((p.stream, p.k), p.nbytes) for these in payloads for p in these)


# d, largest DATA frame: inline in one or in many segments, chunked in frames of many sizes, several chunks
SHAPES = [(3, 16384), (1500, 16384), (8000, 16384), (30_000, 16384), (30_000, 400_000), (300_000, 200_000)]


@pytest.mark.parametrize(("d", "largest"), SHAPES)
@pytest.mark.parametrize("mss", [1448, 65_483])
def test_every_payload_comes_out(tmp_path: Path, d: int, largest: int, mss: int) -> None:
    payloads = run(d, 3)
    talk = w.exchange(payloads, largest=largest, talk=w.Talk(mss=mss))
    found, entries = w.decoded(tmp_path, talk.wires)
    assert (found.messages, found.complete, found.with_holes, found.rounds) == (6, 6, 0, 3)
    assert (found.segments_lost, found.foreign, found.resent, found.orphan_bytes) == (0, 0, 0, 0)
    assert found.agents == ("agent-1", "agent-2") and found.run_id == w.RUN
    assert not faults(payloads, entries) and all(e.complete and e.receiver == "agent-2" for e in entries)
    assert [e.time_ns for e in entries] == sorted(e.time_ns for e in entries) and entries[0].time_ns > 1.7e18


@pytest.mark.parametrize("twist", ["ipv6", "twice", "shuffled", "wrap", "raw"])
def test_disorder_costs_nothing(tmp_path: Path, twist: str) -> None:
    payloads = run(30_000, 2)
    talk = w.Talk(first=(2**32 - 50_000, 7) if twist == "wrap" else (1, 1))
    if twist == "ipv6":
        talk.client, talk.server = ("fd00::1", 1), ("fd00::2", 2)
    if twist == "raw":
        talk.link = LINKTYPE_RAW
    wires = w.exchange(payloads, talk=talk).wires
    if twist == "twice":
        wires = [wire for wire in wires for _ in range(2)]
    if twist == "shuffled":
        rng = random.Random(1)
        wires = [wires[i] for i in sorted(range(len(wires)), key=lambda i: i + rng.random() * 6)]
    found, entries = w.decoded(tmp_path, wires, link=talk.link)
    assert found.complete == 4 and found.segments_lost == 0 and not faults(payloads, entries)


@pytest.mark.parametrize(
    ("d", "largest", "streams"), [(30_000, 16384, "XY"), (30_000, 400_000, "X"), (8000, 9000, "Y")]
)
def test_one_lost_segment_costs_only_its_own_coordinates(tmp_path: Path, d: int, largest: int, streams: str) -> None:
    """Every segment in turn, those with the headers of frames, messages and vectors too."""
    payloads = run(d, 3, streams)
    talk = w.exchange(payloads, largest=largest)
    sent = [i for i, wire in enumerate(talk.wires) if wire.data and not wire.side][1:]  # the first: no values
    for lost in random.Random(d).sample(sent, 40) + sent[:2] + sent[-1:]:
        found, entries = w.decoded(tmp_path, talk.wires[:lost] + talk.wires[lost + 1 :])
        assert found.segments_lost == 1 and not faults(payloads, entries)
        assert found.messages == 3 * len(streams) and found.with_holes <= 2
        assert missed(payloads, entries) <= len(talk.wires[lost].data)


# --- properties: whatever is missed, no byte is made up; each broken decoder below breaks this


def trial(seed: int, folder: Path) -> tuple[Payloads, Decoded, list[Seen]]:
    rng = random.Random(seed)
    payloads = run(
        rng.choice((3, 100, 300, 5000, 20_000)), rng.randint(1, 5), rng.choice(("XY", "X", "Y")), seed=seed,
        dtype=rng.choice(("float32", "float64", "int8")),
    )  # fmt: skip
    talk = w.Talk(mss=rng.choice((536, 1448, 9000, 65_483)))
    wires = w.exchange(payloads, seed=seed, largest=rng.choice((100, 16384, 200_000)), talk=talk).wires
    if rng.random() < 0.4:
        wires = wires[rng.randrange(len(wires)) :]
    share = rng.choice((0.01, 0.1, 0.2, 0.4))
    wires = [wire for wire in wires if rng.random() > share]
    if rng.random() < 0.4:
        wires = [wires[i] for i in sorted(range(len(wires)), key=lambda i: i + rng.random() * 5)]
    return payloads, *w.decoded(folder, wires)


def hunt(seeds: Iterable[int]) -> str:
    """The first seed whose transcript says what was not sent."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            try:
                payloads, found, entries = trial(seed, Path(folder))
            except AssertionError as error:
                return f"seed {seed}: {error!r}"
            if wrong := faults(payloads, entries):
                return f"seed {seed}: {wrong[0]}"
            counted = found.complete + found.with_holes + found.unverified + found.wrong_hash
            if counted != found.messages or found.wrong_hash:
                return f"seed {seed}: the counts do not add up"
    return ""


def test_nothing_is_made_up() -> None:
    assert hunt([*range(60), 74, 94]) == ""  # the last ones: of what lies between two holes of a likely size


class Heard:
    """A reader of messages: their holes, and the regions that were found."""

    def __init__(self) -> None:
        self.holes: list[messages.Holes] = []
        self.regions: list[messages.Region] = []
        self.keeps_regions = True

    def message(self, one: messages.Message) -> None:
        self.holes.append(one.holes)

    def region(self, region: messages.Region) -> None:
        self.regions.append(region)

    def expected(self) -> None:
        return None

    def compressed(self) -> None:
        raise AssertionError("nothing is compressed")

    def close(self) -> None: ...


@pytest.mark.parametrize("broken", [False, True])
def test_what_was_read_wrongly_since_a_hole_is_not_used(broken: bool) -> None:
    """Nobody knows from where on: not even what came before the hole counts."""
    header, chunk, *_ = encode_vectors(w.RUN, "agent-1", [w.payload("X", 0, 20_000)])
    body = b"\x12\xd0\x0f" + bytes(2000)
    for last in (message(chunk), b""):
        heard = Heard()
        reader = messages.Messages(heard, at_start=True)  # type: ignore[arg-type]
        reader.data(memoryview(message(body)[:505]), 1)
        reader.gap(100, sure=False, clean=True, broken=broken)
        reader.data(memoryview(message(body)[605:] + last), 2)
        reader.close(ended=False)
        kept = [(500, 600)] if last else [(500, len(body))]
        assert heard.holes[0] == ([(0, len(body))] if broken else kept)
    heard = Heard()
    reader = messages.Messages(heard, at_start=True)  # type: ignore[arg-type]
    reader.data(memoryview(b"\x00\x00"), 1)  # in the midst of a prefix, and nobody can foretell it
    reader.gap(50, sure=True)
    reader.gap(10, sure=False, clean=True, broken=broken)
    reader.data(memoryview(bytes(300) + message(header) + message(chunk)), 2)
    reader.close(ended=False)
    assert [region.whole for region in heard.regions] == [not broken]


@pytest.mark.long
def test_nothing_is_made_up_in_many_runs() -> None:
    assert hunt(range(60, 3000)) == ""


def _no_gaps(self: tcp.Reassembly, direction: Any, size: int) -> None:
    self._deliver(direction)
    direction.offset += size
    direction.next = (direction.next + size) & 0xFFFFFFFF


def _always_sure(real: Callable[..., None]) -> Callable[..., None]:
    return lambda self, size, *, sure, clean=False, broken=False: real(self, size, sure=True)


def _no_holes(real: Callable[..., None]) -> Callable[..., None]:
    return lambda self, message: real(self, replace(message, holes=[]))


MUTANTS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "holes close up": (tcp.Reassembly, "_skip", lambda _: _no_gaps),
    "a likely size is taken for the true one": (messages.Messages, "gap", _always_sure),
    "masks are forgotten": (vectors.Vectors, "message", _no_holes),
    "a message ends wherever it should": (messages.Messages, "_place", lambda _: lambda *_, **__: 0),
    "a shift is not made": (messages.Messages, "_shift", lambda _: lambda *_: True),
    "what lies between holes is used": (messages.Messages, "_blank", lambda _: lambda *_: None),
    "data pass for headers of frames": (http2, "_CHANCE", lambda _: 1.0),
    "late segments are appended": (
        tcp.Reassembly, "_wait", lambda _: lambda self, d, start, data, t: (d.take(data, t), None)[1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_decoder_that_makes_things_up_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, change = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))
    assert hunt(range(400)) != ""


def test_garbage_on_the_wire_is_no_crash(tmp_path: Path) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        payloads = run(rng.choice((50, 3000, 20_000)), 2, seed=seed)
        wires = []
        for wire in w.exchange(payloads, seed=seed).wires:
            raw = bytearray(wire.packet)
            if rng.random() < 0.1:
                for _ in range(3):
                    raw[rng.randrange(len(raw))] = rng.randrange(256)
                del raw[rng.choice((len(raw), rng.randrange(len(raw)))) :]
            wires.append(replace(wire, packet=bytes(raw)))
        found, entries = w.decoded(tmp_path, wires)
        good = [e for e in entries if e.complete]
        assert not faults(payloads, good) and found.complete == len({(e.stream, e.k) for e in good})


# --- taps that start late, connections that come again


@pytest.mark.parametrize(("d", "largest"), SHAPES)
def test_a_tap_that_starts_in_mid_connection(tmp_path: Path, d: int, largest: int) -> None:
    payloads = run(d, 4)
    talk = w.exchange(payloads, largest=largest)
    total = sum(p.nbytes for these in payloads for p in these)
    for start in random.Random(d).choices(range(9, len(talk.wires) - len(talk.wires) // 3), k=4):
        found, entries = w.decoded(tmp_path, talk.wires[start:])
        assert not faults(payloads, entries) and found.complete >= 1
        late = sum(len(wire.data) for wire in talk.wires[:start] if not wire.side)
        assert missed(payloads, entries) <= min(total, late + 2 * largest)
        assert {e.receiver for e in entries} == {""}


def test_who_received_is_known_from_another_connection_or_from_the_coordinator(tmp_path: Path) -> None:
    payloads = run(20, 3)
    late = w.exchange(payloads, talk=w.Talk(client=("127.0.0.1", 50_000))).wires[7:]
    other = w.exchange(payloads, sender="agent-3").wires
    found, entries = w.decoded(tmp_path, [*other, *late])
    assert {(e.sender, e.receiver) for e in entries} == {("agent-3", "agent-2"), ("agent-1", "agent-2")}
    start = convert.encode_coordinator_message(m.Start({"agent-9": "127.0.0.1:7000"}, 3))
    told = w.Talk(server=("127.0.0.1", 6000)).open().say(0, w.opening())
    told.say(1, frame(4, 0, 0) + frame(DATA, 0, 1, message(start)))
    found, entries = w.decoded(tmp_path, [*told.wires, *late])
    assert {(e.sender, e.receiver) for e in entries} == {("agent-1", "agent-9")} and found.agents[1] == "agent-9"


def test_resends_are_copies_and_may_complete_what_was_cut_off(tmp_path: Path) -> None:
    payloads = run(30_000, 3)
    first = w.exchange(payloads)
    cut = first.wires[: len(first.wires) // 2]  # the sender was killed there
    again = w.exchange(payloads, talk=w.Talk(client=("127.0.0.1", 50_000), first=(5, 5)))
    found, entries = w.decoded(tmp_path, [*cut, *again.wires])
    assert (found.messages, found.complete, found.with_holes) == (6, 6, 0)
    assert found.resent >= 2 and found.conflicting == 0 and not faults(payloads, entries)
    assert {(e.stream, e.k): e.copies for e in entries if e.complete}["X", 0] == 2
    assert sum(1 for e in entries if e.complete) == 6


def parts(payloads: Payloads, *cuts: int, sender: str = "agent-1", to: int = 2, port: int = 40_000) -> list[w.Wire]:
    """One large vector over a connection for each part: it breaks behind chunk ``cuts[n]`` and goes on in the next."""
    (sent,) = payloads[0]
    server = ("127.0.0.1", 7000 + to - 2)
    wires: list[w.Wire] = []
    received = 0
    for number, cut in enumerate((*cuts, sent.nbytes)):
        prefix = m.Prefix(sent.stream, sent.k, received, sent.sha256) if received else None
        header, *chunks = encode_vectors(w.RUN, sender, [sent], prefix=prefix)
        taken = chunks[: (cut * CHUNK_BYTES - received) // CHUNK_BYTES]
        received += len(taken) * CHUNK_BYTES
        client = ("127.0.0.1", port + number)
        talk = w.Talk(client=client, server=server, first=(5 + number, 5), clock=10**9 * (number + 1)).open()
        talk.say(0, w.opening()).say(1, w.answer(f"agent-{to}"))
        talk.say(0, w.in_frames([header, *taken], random.Random(number), 16384))
        wires += talk.wires
    return wires


def test_a_vector_in_parts_over_several_connections_is_one(tmp_path: Path) -> None:
    payloads = run(1_000_000, 1, "X")
    wires = parts(payloads, 1, 3)
    found, (entry,) = w.decoded(tmp_path, wires)
    assert (found.messages, found.complete, found.resent, found.conflicting) == (1, 1, 0, 0)
    assert (entry.copies, entry.complete) == (1, True) and not faults(payloads, [entry])
    for missed_connection, start, end in ((10**9, 0, 1), (2 * 10**9, 1, 3)):
        rest = [wire for wire in wires if not missed_connection <= wire.time_ns < missed_connection + 10**9]
        found, entries = w.decoded(tmp_path, rest)
        assert found.with_holes == 1 and not faults(payloads, entries)
        assert {hole for entry in entries for hole in entry.missing} == {(start * CHUNK_BYTES, end * CHUNK_BYTES)}
    found, entries = w.decoded(tmp_path, [wire for wire in wires if wire.time_ns < 3 * 10**9])
    assert found.with_holes == 1 and not faults(payloads, entries), "what was cut off and never went on is written too"
    assert missed(payloads, entries) == payloads[0][0].nbytes - 3 * CHUNK_BYTES


def test_parts_are_of_one_sender_and_one_receiver(tmp_path: Path) -> None:
    """At the same time a vector goes to two neighbours, and another one comes from a second sender."""
    payloads, others = run(1_000_000, 1, "X"), run(1_000_000, 1, "X", seed=1)
    wires = [
        *parts(payloads, 1),
        *parts(payloads, 2, to=3, port=50_000),
        *parts(others, 1, sender="agent-3", port=60_000),
    ]
    found, entries = w.decoded(tmp_path, sorted(wires, key=lambda wire: wire.time_ns))
    assert (found.messages, found.complete, found.with_holes, found.resent) == (3, 3, 0, 0)
    assert not faults(payloads, [e for e in entries if e.sender == "agent-1"])
    assert not faults(others, [e for e in entries if e.sender == "agent-3"])
    assert {(e.sender, e.receiver) for e in entries if e.complete} == {
        ("agent-1", "agent-2"), ("agent-1", "agent-3"), ("agent-3", "agent-2"),
    }  # fmt: skip


def test_what_follows_a_part_is_whole_and_a_part_has_bytes_to_come() -> None:
    sent = w.payload("X", 3, 1_000_000)
    header, *_ = encode_vectors(w.RUN, "agent-1", [sent], prefix=m.Prefix("X", 3, CHUNK_BYTES, sent.sha256))
    (head,) = read_vectors(memoryview(header))
    assert head.from_byte == CHUNK_BYTES
    assert [one.from_byte for one in predicted([head], 4)[1]] == [0]
    frame = agent_pb2.Frame.FromString(header)
    frame.vectors[0].from_byte = sent.nbytes
    with pytest.raises(PeerError, match="from byte 4000000 on"):
        read_vectors(memoryview(frame.SerializeToString()))


def test_a_part_whose_header_was_missed_is_not_taken_for_a_whole_vector(tmp_path: Path) -> None:
    """Its header, or the first bytes of that: what is left of it is no value of the part before."""
    payloads = run(700_000, 4, "X")
    (sent,) = payloads[0]
    first = [wire for wire in parts(payloads[:1], 1) if wire.time_ns < 2 * 10**9]
    header, *chunks = encode_vectors(w.RUN, "agent-1", [sent], prefix=m.Prefix("X", 0, CHUNK_BYTES, sent.sha256))
    said = w.in_frames([header, *chunks], random.Random(1), 16384)
    for start, end in ((0, 1448), (12, 60)):  # the second hole lies within a frame: its size is certain
        talk = w.Talk(client=("127.0.0.1", 40_001), first=(6, 5), clock=2 * 10**9).open()
        talk.say(0, w.opening()).say(1, w.answer("agent-2"))
        talk.say(0, said[:start]).say(0, said[start:end]).say(0, said[end:])
        w.rounds(talk, "agent-1", payloads[1:], random.Random(3))
        _, entries = w.decoded(tmp_path, [*first, *(wire for wire in talk.wires if wire.data != said[start:end])])
        assert not faults(payloads, entries), (start, end)
        assert {e.k for e in entries if e.complete} == {1, 2, 3}


def test_a_part_of_another_release_is_not_joined(tmp_path: Path) -> None:
    payloads, redrawn = run(1_000_000, 1, "X"), run(1_000_000, 1, "X", seed=1)
    wires = [wire for wire in parts(payloads, 1) if wire.time_ns < 2 * 10**9]
    wires += [wire for wire in parts(redrawn, 1) if wire.time_ns >= 2 * 10**9]
    found, entries = w.decoded(tmp_path, wires)
    assert (found.messages, found.complete) == (1, 0) and len(entries) >= 1
    assert not faults(payloads, entries[:1])


def test_copies_with_other_bytes_are_conflicting(tmp_path: Path) -> None:
    one, other = run(300, 2, "X"), run(300, 2, "X", seed=1)
    to_2 = w.exchange(one).wires
    to_3 = w.exchange([one[0], other[1]], receiver="agent-3", talk=w.Talk(server=("127.0.0.1", 7001))).wires
    found, entries = w.decoded(tmp_path, [*to_2, *to_3])
    assert (found.messages, found.complete, found.conflicting) == (4, 4, 1)
    assert Transcript(tmp_path / "wires.transcript").counts().conflicting == 1
    assert len({e.sha256_seen for e in entries if e.k == 1}) == 2  # the evidence is kept


# --- what is not this run's


def counts(found: Decoded, word: str) -> int:
    return sum(count for what, count in found.named.items() if word in what)


def test_foreign_traffic_is_counted_and_named(tmp_path: Path) -> None:
    payloads = run(300, 2)
    talks = [w.exchange(payloads).wires]
    for number, first in enumerate((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", bytes(range(64)))):
        talks.append(w.Talk(client=("127.0.0.1", 100 + number)).open().say(0, first).end().wires)
    another = w.Talk(client=("127.0.0.1", 99)).open().say(0, w.opening())
    talks.append(w.rounds(another, "agent-7", run(300, 2), random.Random(0), run=bytes(15) + b"\1").wires)
    compressed = frame(DATA, 0, 1, message(b"\x0a\x03abc", compressed=1))
    talks.append(w.Talk(client=("127.0.0.1", 98)).open().say(0, w.opening() + compressed).wires)
    newer = bytearray(next(encode_vectors(w.RUN, "agent-1", payloads[0])))
    newer[newer.index(b"\x20\x01")] = 0x28  # another field where the stream was
    talks.append(w.Talk(client=("127.0.0.1", 97)).open().say(0, w.opening() + frame(0, 0, 1, message(newer))).wires)
    register = convert.encode_agent_message(
        m.Register(
            "agent-1",
            "0" * 64,
            "{}",
            "h:1",
            None,
            3,
            "0" * 64,
            -1,
            -1,
            -1,
            False,
            b"",
            bytes(16),
            "1",
            protocol_version=9,
        )
    )
    talks.append(w.Talk(client=("127.0.0.1", 96)).open().say(0, w.opening() + frame(0, 0, 1, message(register))).wires)
    strange = w.opening().replace(b"dpgt.v1.Agent/", b"other.v1.Api/x")
    talks.append(w.Talk(client=("127.0.0.1", 95)).open().say(0, strange).wires)
    found, entries = w.decoded(tmp_path, [wire for wires in talks for wire in wires])
    assert found.complete == 4 and not faults(payloads, entries) and found.tls_connections == 1
    assert counts(found, "not HTTP/2") == 2 and counts(found, f"run {'00' * 15}01") == 4
    assert counts(found, "compressed") == 1 and counts(found, "protocol version") == 2
    assert counts(found, "/other.v1.Api/xExchange") == 1
    assert found.foreign == sum(found.named.values()) == Transcript(tmp_path / "wires.transcript").counts().foreign


def test_the_run_and_its_agents_can_be_chosen(tmp_path: Path) -> None:
    mine, other = w.exchange(run(9, 2)), w.Talk(client=("127.0.0.1", 9)).open().say(0, w.opening())
    w.rounds(other, "agent-1", run(9, 2), random.Random(0), run=bytes(16))
    wires = [*mine.wires, *other.wires]
    assert w.decoded(tmp_path, wires)[0].run_id == w.RUN
    found, _ = w.decoded(tmp_path, wires, run_id=bytes(16))
    assert (found.run_id, found.messages, found.foreign) == (bytes(16), 4, 4)
    found, _ = w.decoded(tmp_path, wires, senders=frozenset({"agent-5"}))
    assert (found.messages, counts(found, "not in the run file")) == (0, 4)


def test_only_the_tapped_links(tmp_path: Path) -> None:
    wires = [*w.exchange(run(9, 2)).wires, *w.exchange(run(9, 2), sender="agent-3").wires]
    found, entries = w.decoded(tmp_path, wires, links=(Link("agent-3", "agent-2"),))
    assert {e.sender for e in entries} == {"agent-3"} and (found.messages, found.elsewhere) == (4, 4)
    assert Transcript(tmp_path / "wires.transcript").header.links == (Link("agent-3", "agent-2"),)


def test_private_vectors_of_a_study_run_are_counted_and_left_out(tmp_path: Path) -> None:
    talk = w.exchange(run(20_000, 1))
    upload = w.Talk(server=("127.0.0.1", 6000)).open().say(0, w.opening().replace(b"Agent/Ex", b"Coord/Ex"))
    payload = run(20_000, 1, "X", seed=5)[0][0]
    upload.say(0, w.in_frames(encode_vectors(w.RUN, "agent-1", [payload], study=True), random.Random(0), 16384))
    found, entries = w.decoded(tmp_path, [*talk.wires, *upload.wires])
    assert (found.messages, found.study, len(entries)) == (2, 1, 2)


def test_a_wrong_hash_is_neither_complete_nor_a_hole(tmp_path: Path) -> None:
    (good,) = run(100, 1, "X")
    bad = replace(good[0], sha256=bytes(32))
    found, entries = w.decoded(tmp_path, w.exchange([[bad]]).wires)
    assert (found.messages, found.complete, found.with_holes, found.wrong_hash) == (1, 0, 0, 1)
    assert not entries[0].complete and entries[0].sha256_seen == good[0].sha256


# --- what is kept, and the end


def test_what_of_the_values_is_kept(tmp_path: Path) -> None:
    payloads = run(20_000, 2)
    talk = w.exchange(payloads)
    lost = next(i for i, wire in enumerate(talk.wires) if i > 60 and wire.data)
    lossy = talk.wires[:lost] + talk.wires[lost + 1 :]
    found, entries = w.decoded(tmp_path, lossy, keep=Keep("digests"))
    assert {e.data for e in entries} == {None} and found.complete == 3
    whole, full = w.decoded(tmp_path, lossy)
    chosen = (0, 7, 11_000, 19_999)
    found, entries = w.decoded(tmp_path, lossy, keep=Keep("coordinates", chosen))
    assert (found.complete, found.with_holes) == (whole.complete, whole.with_holes) == (3, 1)
    assert (tmp_path / "wires.transcript").stat().st_size < 2000
    for entry, other in zip(entries, full, strict=True):
        assert np.array_equal(entry.array()[list(chosen)], other.array()[list(chosen)], equal_nan=True)
        assert np.isnan(entry.array()).sum() == 20_000 - len(chosen) + np.isnan(other.array()[list(chosen)]).sum()
    for stream in ("X", "Y"):
        norms = [np.linalg.norm(p.array()) for these in payloads for p in these if p.stream == stream]
        one = whole.statistics["agent-1", stream]  # type: ignore[index]
        assert one.count == sum(e.complete for e in full if e.stream == stream)
        assert min(norms) - 1e-3 <= one.norm_min <= one.norm_mean <= one.norm_max <= max(norms) + 1e-3


def test_statistics_are_of_each_release_once(tmp_path: Path) -> None:
    payloads = run(4000, 5, "X")
    to_2 = w.exchange(payloads).wires
    to_3 = w.exchange(payloads, receiver="agent-3", talk=w.Talk(server=("127.0.0.1", 7001))).wires
    one = w.decoded(tmp_path, [*to_2, *to_3])[0].statistics["agent-1", "X"]
    values = np.array([these[0].array() for these in payloads])
    norms = np.linalg.norm(values, axis=1)
    assert one.count == 5 and one.norm_last == pytest.approx(norms[-1])
    assert one.mean == pytest.approx(values.mean(), abs=1e-7)
    assert (one.norm_mean, one.norm_min, one.norm_max) == pytest.approx((norms.mean(), norms.min(), norms.max()))


def test_a_capture_that_was_cut_leaves_no_transcript_that_anybody_takes(tmp_path: Path) -> None:
    path = w.write_pcap(tmp_path / "x.pcap", w.exchange(run(300, 3)).wires)
    path.write_bytes(path.read_bytes()[:-700])
    out = tmp_path / "t"
    with path.open("rb") as stream, pytest.raises(PcapError, match=r"x\.pcap: cut short"):
        decode([Capture(stream, "x.pcap")], Decoder(out))
    with pytest.raises(TranscriptError, match="cut short"):
        list(Transcript(out))


def test_parts_of_a_capture_are_merged_by_time(tmp_path: Path) -> None:
    payloads = run(5000, 3)
    wires = w.exchange(payloads).wires
    parts = [wires[::2], wires[1::2]]
    paths = [w.write_pcap(tmp_path / f"{i}.pcap", part) for i, part in enumerate(parts)]
    with paths[0].open("rb") as one, paths[1].open("rb") as two:
        found = decode([Capture(one, "1"), Capture(two, "2")], Decoder(tmp_path / "t"))
    assert (found.complete, found.segments_lost) == (6, 0)


class Shift:
    """A stage that undoes a cipher, and is told of gaps."""

    def __init__(self) -> None:
        self.gaps = 0

    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Gap):
            self.gaps += 1
            return [item]
        return [Segment(item.offset, bytes(255 - byte for byte in bytes(item.data)), item.time_ns)]

    def close(self) -> Iterable[Item]:
        return []


class Shifts:
    def open(self, _: object) -> tuple[Shift, Shift]:
        return Shift(), Shift()


def test_a_decryptor_stands_between_tcp_and_http2(tmp_path: Path) -> None:
    payloads = run(3000, 2)
    wires = [
        replace(wire, packet=wire.packet[:54] + bytes(255 - byte for byte in wire.packet[54:]))
        for wire in w.exchange(payloads).wires
    ]
    found, entries = w.decoded(tmp_path, wires, stages=Shifts())
    assert (found.complete, found.channel) == (4, "tls+keys") and not faults(payloads, entries)
    found, _ = w.decoded(tmp_path, [*wires[:20], *wires[21:]], stages=Shifts())
    assert (found.messages, found.with_holes, found.segments_lost) == (4, 1, 1)


def test_memory_does_not_grow_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "_WINDOW", 50)
    talk = w.exchange(run(3, 200, "X"), talk=w.Talk(mss=60_000))
    found, _ = w.decoded(tmp_path, [*talk.wires, *w.exchange(run(3, 10, "X"), talk=w.Talk(first=(5, 5))).wires])
    assert (found.messages, found.rounds, found.resent, found.conflicting) == (200, 200, 10, 0)
    decoder = Decoder(tmp_path / "t")
    with (tmp_path / "wires.pcap").open("rb") as stream:
        decode([Capture(stream, "x")], decoder)
    assert len(decoder._tally._crossed["agent-1", "agent-2", "X"].recent) == 50


def test_rounds_are_ranges() -> None:
    rng = random.Random(3)
    rounds, truth = Rounds(), set[int]()
    for _ in range(500):
        k = rng.randrange(200)
        assert rounds.add(k) == (k not in truth)
        truth.add(k)
        assert len(rounds) == len(truth)
    for k in range(200):
        rounds.add(k)
    assert len(rounds) == 200 and rounds._starts == [0]
