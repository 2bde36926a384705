"""What sizes and times tell, from streams that are made up; tests/e2e/test_tap.py and tests/hosts have real runs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.decode.conversation import Conversation, Endpoint
from dpgt_node.adversary.decode.packets import LINKTYPE_RAW, PcapError, PcapWriter
from dpgt_node.adversary.decode.periods import Messages, equal_messages
from dpgt_node.adversary.decode.stages import Gap, Segment
from dpgt_node.adversary.decode.tls.records import RecordSizes, server_name
from dpgt_node.adversary.decode.traffic import TrafficAttack, analyse, observe
from dpgt_node.adversary.taps.proxy import AGENT_PORT, host_ip
from dpgt_node.config import parse_run
from tests.adversary.decode.tlstalk import Talk, talk

RECORD = 16_284
MS = 1_000_000


def carried(vector: int, rounds: int, streams: int, seed: int) -> list[tuple[int, int]]:
    """(time, bytes) of records as gRPC makes them of a link: settings, a call, then rounds with pings strewn in."""
    dice = random.Random(seed)
    found = [(0, 82), (MS, 9), (2 * MS, 252)]
    for k in range(rounds):
        now = (k + 1) * 50 * MS
        for _ in range(streams):
            records = [89 + dice.choice([0, 2, 26])]
            if vector <= 65_536:
                records = []
            rest = vector + 27 + (89 if vector <= 65_536 else 0)
            while rest > 0:
                records.append(min(rest, RECORD if dice.random() < 0.9 else dice.randrange(100, RECORD)))
                rest -= records[-1]
            for size in records:
                now += MS // 10
                found += [(now, size)] if dice.random() < 0.95 else [(now, 17), (now, size)]
    return found


@pytest.mark.parametrize("vector", [70_000, 240_000, 1_100_000, 4 << 20])
@pytest.mark.parametrize("streams", [1, 2])
def test_vectors_are_counted_and_weighed(vector: int, streams: int) -> None:
    records = carried(vector, 20, streams, vector)
    found = equal_messages(*zip(*records, strict=True))
    assert found is not None and found.chunked
    assert found.count == 20 * streams
    assert abs(found.nbytes - vector) < 0.01 * vector
    assert np.median(np.diff(found.starts_ns[::streams])) == pytest.approx(50 * MS, rel=0.1)


def test_whole_messages_are_counted_and_weighed() -> None:
    found = equal_messages(*zip(*carried(5_200, 30, 1, 1), strict=True))
    assert found is not None and not found.chunked and found.count == 30 and abs(found.nbytes - 5_316) < 30


def test_what_has_no_equal_messages_is_not_measured() -> None:
    dice = random.Random(3)
    sizes = [dice.randrange(100, RECORD) for _ in range(400)]
    assert equal_messages(range(400), sizes) is None
    assert equal_messages([], []) is None and equal_messages([1, 2], [5_000, 5_000]) is None


def test_an_incomplete_end_does_not_matter() -> None:
    records = carried(240_000, 20, 1, 5)
    found = equal_messages(*zip(*records[:-7], strict=True))
    assert isinstance(found, Messages) and found.count in (19, 20) and abs(found.nbytes - 240_116) < 60


# --- records of real TLS


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Talk:
    dice = random.Random(1)
    return talk(
        tmp_path_factory.mktemp("tls"), None, [(0, dice.randbytes(dice.choice([50, 40_000]))) for _ in range(30)]
    )


def sizes_of(spoken: Talk, side: int, *, lose: frozenset[int] = frozenset(), start: int = 0) -> RecordSizes:
    sizes, at = RecordSizes(), 0
    data = b"".join(part for who, part in spoken.wire if who == side)
    for number, i in enumerate(range(0, len(data), 1448)):
        part = data[i : i + 1448]
        if i >= start:
            sizes.feed(Gap(at, at + len(part)) if number in lose else Segment(at, part, i))
            at += len(part)
    sizes.close()
    return sizes


def test_the_name_that_is_asked_for_and_every_size(spoken: Talk) -> None:
    there, back = sizes_of(spoken, 0), sizes_of(spoken, 1)
    assert there.tls and there.server_name == "b.agent.dpgt" and back.server_name == ""
    data = b"".join(part for who, part in spoken.wire if who == 0)
    at, expected = 0, []
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        expected += [size - 17] if data[at] == 23 else []
        at += 5 + size
    assert list(there.carried) == expected
    assert list(there.times_ns) == sorted(there.times_ns)


@pytest.mark.parametrize("seed", range(10))
def test_lost_segments_cost_few_bytes_of_the_sum(spoken: Talk, seed: int) -> None:
    segments = sum(len(part) for who, part in spoken.wire if who == 0) // 1448
    lose = frozenset(random.Random(seed).sample(range(3, segments - 2), 5))
    whole, holed = sizes_of(spoken, 0), sizes_of(spoken, 0, lose=lose)
    assert holed.lost == 5 * 1448
    assert abs(sum(holed.carried) - sum(whole.carried)) <= 5 * 22 * 2


def test_a_tap_that_comes_late_counts_from_the_next_record_on(spoken: Talk) -> None:
    whole, late = list(sizes_of(spoken, 0).carried), sizes_of(spoken, 0, start=100 * 1448)
    assert late.tls and whole[-len(late.carried) :] == list(late.carried) and len(late.carried) > 5


def test_no_hello_has_no_name() -> None:
    for hello in (b"", b"\x01", b"\x02" + bytes(200), bytes(500), b"\x01\x00\x01\x00\x03\x03" + b"\xff" * 300):
        assert server_name(hello) == ""


# --- captures


def test_a_capture_without_tls_is_refused(tmp_path: Path) -> None:
    with PcapWriter(tmp_path / "a.pcap", LINKTYPE_RAW) as pcap:
        conversation = Conversation(Endpoint(host_ip(1), 5000), Endpoint(host_ip(2), AGENT_PORT))
        for packet in (*conversation.opened(), *conversation.said("client", b"PRI * HTTP/2.0" + bytes(500))):
            pcap.write(1, packet)
    with pytest.raises(PcapError, match="no TLS between agents in it"):
        observe([tmp_path / "a.pcap"])


def hello(name: str) -> bytes:
    """A ClientHello that asks for ``name``, in a record."""
    listed = b"\0" + len(name).to_bytes(2, "big") + name.encode()
    entry = (len(listed)).to_bytes(2, "big") + listed
    extension = b"\0\0" + len(entry).to_bytes(2, "big") + entry
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + len(extension).to_bytes(2, "big") + extension
    return b"\x16\3\1" + (4 + len(body)).to_bytes(2, "big") + b"\1" + len(body).to_bytes(3, "big") + body


RUN = """
name = "made-up"
[algorithm]
iterations = 19
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.1
gamma = 0.1
p_m = 1.0
[noise]
multiplier = 0
[graph]
agents = 3
R = [[0,0,1],[1,0,0],[0,1,0]]
C = [[0,0,1],[1,0,{}],[1,1,0]]
[data]
dataset = "quadratic"
dimension = 30000
"""


def capture(path: Path, links: dict[tuple[int, int], int]) -> None:
    """Streams by (sender, receiver), and each agent's connection to the coordinator."""
    packets: list[tuple[int, bytes]] = []
    for (sender, receiver), streams in links.items():
        name = f"agent-{receiver}.agent.dpgt" if receiver else "coordinator.dpgt"
        there = Endpoint(host_ip(receiver or 9), AGENT_PORT)
        conversation = Conversation(Endpoint(host_ip(sender), 40_000 + receiver), there)
        packets += [(0, p) for p in (*conversation.opened(), *conversation.said("client", hello(name)))]
        for time_ns, size in carried(240_000, 20, streams, sender) if receiver else [(5 * MS, 300)]:
            record = b"\x17\3\3" + (size + 17).to_bytes(2, "big") + bytes(size + 17)
            late = 7 * MS if sender == 3 else 0
            packets += [(time_ns + late, p) for p in conversation.said("client", record)]
    with PcapWriter(path, LINKTYPE_RAW) as pcap:
        for time_ns, packet in sorted(packets, key=lambda p: p[0]):
            pcap.write(time_ns, packet)


TRUE = {(1, 2): 2, (2, 3): 2, (3, 1): 2, (1, 3): 1, (1, 0): 0, (2, 0): 0, (3, 0): 0}


def test_links_streams_dimension_and_who_is_slow(tmp_path: Path) -> None:
    capture(tmp_path / "a.pcap", TRUE)
    run = parse_run(RUN.format(0), "run", tmp_path)
    traffic = observe([tmp_path / "a.pcap"])
    assert {(k.sender, k.receiver): k.streams for k in traffic.links} == {
        (f"agent-{a}", f"agent-{b}"): n for (a, b), n in TRUE.items() if b
    }
    assert traffic.rounds == 20 and traffic.dtype == "float64" and traffic.bytes_lost == 0
    assert traffic.dimension("float64") == pytest.approx(30_000, rel=0.01)
    assert traffic.step_s == pytest.approx(0.05, rel=0.1)
    assert max(traffic.lag_s, key=lambda name: traffic.lag_s[name]) == "agent-3"
    assert traffic.lag_s["agent-3"] == pytest.approx(0.007, rel=0.2)
    result = analyse(tmp_path / "a.pcap", run)
    assert [f.agent for f in result.findings if f.verdict != "succeeds"] == ["agent-1", "agent-2"]  # nobody is slow
    assert all("lag_s" in f.measured for f in result.findings if f.verdict != "succeeds") and result.missing == ""
    assert result.summary.startswith("0 payloads recovered; 4 links, 3 of them with two streams; d = 300")


def test_a_link_that_is_not_there_is_said(tmp_path: Path) -> None:
    """The same capture against a run with one link more, then a run whose streams are others."""
    capture(tmp_path / "a.pcap", TRUE)
    found = analyse(tmp_path / "a.pcap", parse_run(RUN.format(1), "run", tmp_path)).findings
    assert found[0].verdict == "partly" and "links not found: agent-3>agent-2" in found[0].note
    assert (found[0].measured["links"], found[0].predicted["links"], found[0].true["links"]) == (4.0, 5.0, 5.0)
    run = parse_run(RUN.format(0), "run", tmp_path)
    covered = analyse(tmp_path / "a.pcap", replace(run, traffic=replace(run.traffic, cover="all-pairs"))).findings
    assert (covered[0].predicted["links"], covered[0].true["links"]) == (6.0, 4.0), "a cover shows every pair"
    links = [one for one in covered if one.note.startswith("to ")]
    assert [one.true["streams"] for one in links] == [2, 1, 2, 2] and not any(one.predicted for one in links)
    capture(tmp_path / "b.pcap", {**TRUE, (1, 3): 2, (1, 2): 1})
    found = analyse(tmp_path / "b.pcap", parse_run(RUN.format(0), "run", tmp_path)).findings
    wrong = [f.note for f in found if f.verdict == "fails" and "lag_s" not in f.measured]
    assert wrong == ["to agent-2", "to agent-3"]


@pytest.mark.parametrize("streams", [1, 2])
def test_where_all_links_are_alike_times_tell(tmp_path: Path, streams: int) -> None:
    capture(tmp_path / "a.pcap", {(1, 2): streams, (2, 3): streams, (3, 1): streams})
    traffic = observe([tmp_path / "a.pcap"])
    assert [link.streams for link in traffic.links] == [streams] * 3 and traffic.rounds == 20
    assert "told by when they come" in traffic.notes[0]


def test_it_is_no_attack_on_transcripts() -> None:
    assert TrafficAttack.needs == {"capture"}
