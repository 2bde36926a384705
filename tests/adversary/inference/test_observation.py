"""What an adversary may be handed: one run, one kind of vantage point, nothing silently dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.config import RunConfig, parse_run
from dpgt_node.wire.transcript import Header, Link, TranscriptError, seen
from dpgt_node.wire.transcript_writer import TranscriptWriter

RUN = parse_run(
    """
[algorithm]
iterations = 2
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.1
gamma = 0.1
p_m = 1.0
[noise]
multiplier = 0.0
[graph]
agents = 2
R = [[0, 1], [1, 0]]
C = [[0, 1], [1, 0]]
[data]
dataset = "zeros"
dimension = 2
""",
    "test",
    Path(),
)
ID = bytes(16)
TAP = Header("eavesdropper", run_id=ID)


def write(path: Path, header: Header, *cells: tuple[str, str, int, list[float]], **more: object) -> Path:
    with TranscriptWriter(path, header) as writer:
        for sender, receiver, k, values in cells:
            data = np.array(values).tobytes()
            writer.write(replace(seen(sender, receiver, k, "X", "float64", data), **more))  # type: ignore[arg-type]
    return path


def load(*paths: Path, run: RunConfig = RUN) -> Observation:
    return Observation.load(paths, run)


def test_it_merges_copies_and_says_what_is_missing(tmp_path: Path) -> None:
    holed = write(tmp_path / "a", TAP, ("agent-1", "agent-2", 1, [0, 5.0]), missing=((0, 8),), sha256_seen=b"")
    whole = write(tmp_path / "b", TAP, ("agent-1", "agent-2", 1, [4.0, 5.0]))
    assert np.isnan(load(holed).series(0, "X")[1]).tolist() == [True, False]
    assert "11 of 12 vectors" in load(holed).missing() and "missing coordinates" in load(holed).missing()
    both = load(holed, whole)
    assert both.series(0, "X")[1].tolist() == [4.0, 5.0] and np.isnan(both.series(0, "X")[[0, 2]]).all()
    assert both.vantage == "eavesdropper on every link (plain)"
    assert (Link("agent-1", "agent-2"), "X") in both.links
    assert Observation.load([whole], RUN, coordinates=[1]).series(0, "X")[1].tolist() == [5.0]


def test_an_intact_copy_is_taken_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    good = write(tmp_path / "good", TAP, ("agent-1", "agent-2", 1, [4.0, 5.0]))
    other = write(tmp_path / "other", TAP, ("agent-1", "agent-2", 1, [4.0, 7.0]))
    wrong_hash = write(tmp_path / "bad", TAP, ("agent-1", "agent-2", 1, [1e300, 5.0]), sha256=bytes(range(32)))
    doubtful = write(tmp_path / "unsure", TAP, ("agent-1", "agent-2", 1, [4.0, 6.0]), sha256=bytes(32))
    holed = write(tmp_path / "holed", TAP, ("agent-1", "agent-2", 1, [0, 6.5]), missing=((0, 8),), sha256_seen=b"")
    with pytest.raises(TranscriptError, match="all 1 are damaged"):
        load(wrong_hash)
    for paths, damaged in (((wrong_hash, good), 1), ((doubtful, good), 1), ((good, doubtful, wrong_hash, holed), 3)):
        for order in (paths, paths[::-1]):
            both = load(*order)
            assert both.series(0, "X")[1].tolist() == [4.0, 5.0]
            assert both.conflicts == () and 1 <= both.damaged <= damaged and "damaged copies" in both.missing()
    for order in ((doubtful, holed), (holed, doubtful)):  # nobody knows which one is right
        both = load(*order)
        assert both.series(0, "X")[1][0] == 4.0 and np.isnan(both.series(0, "X")[1][1])
    (clash,) = load(good, other, holed).conflicts  # two releases, both intact
    assert all(clash.receivers)
    assert clash.k == 1 and clash.difference.tolist() == [0.0, 2.0]


def test_a_coalition_is_several_agents(tmp_path: Path) -> None:
    one = write(
        tmp_path / "a",
        Header("semi-honest", ("agent-1",), channel="agent", run_id=ID),
        ("agent-2", "agent-1", 0, [1, 2]),
    )
    two = write(
        tmp_path / "b",
        Header("semi-honest", ("agent-2",), channel="agent", run_id=ID),
        ("agent-1", "agent-2", 0, [1, 2]),
    )
    assert load(one).vantage == "semi-honest agent-1"
    assert load(one, two).vantage == "coalition of agent-1, agent-2"


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    tap = write(tmp_path / "tap", TAP, ("agent-1", "agent-2", 0, [1, 2]))
    agent = write(tmp_path / "own", Header("semi-honest", ("agent-1",), channel="agent", run_id=ID))
    other = write(tmp_path / "other", replace(TAP, run_id=bytes(15) + b"1"), ("agent-1", "agent-2", 0, [1, 2]))
    with pytest.raises(TranscriptError, match="mixed vantage points"):
        load(tap, agent)
    with pytest.raises(TranscriptError, match="different runs"):
        load(tap, other)
    with pytest.raises(TranscriptError, match="no vector was seen"):
        load(agent)
    with pytest.raises(TranscriptError, match="no transcript"):
        load()


@pytest.mark.parametrize(
    ("cell", "named"),
    [
        (("ward-7", "agent-2", 0, [1.0, 2.0]), "no such agents"),
        (("agent-1", "ward-7", 0, [1.0, 2.0]), "no such agents"),
        (("agent-1", "agent-2", 3, [1.0, 2.0]), "ends at round 2"),
        (("agent-1", "agent-2", 1, [1.0, 2.0, 3.0]), "d = 3"),
    ],
)
def test_a_transcript_of_another_run_file_is_named(
    tmp_path: Path, cell: tuple[str, str, int, list[float]], named: str
) -> None:
    path = write(tmp_path / "t", TAP, ("agent-1", "agent-2", 0, [1, 2]), cell)
    with pytest.raises(TranscriptError, match=named):
        load(path)


def test_the_run_that_is_meant(tmp_path: Path) -> None:
    path = write(tmp_path / "t", TAP, ("agent-1", "agent-2", 0, [1, 2]))
    assert Observation.load([path], RUN, run_id=ID).run_id == ID
    with pytest.raises(TranscriptError, match=f"of run {ID.hex()}, but {bytes(range(16)).hex()}"):
        Observation.load([path], RUN, run_id=bytes(range(16)))


def test_a_copy_is_no_second_look(tmp_path: Path) -> None:
    path = write(tmp_path / "t", TAP, ("agent-1", "agent-2", 0, [1, 2]))
    other = write(tmp_path / "o", TAP, ("agent-1", "agent-2", 1, [1, 2]), ("agent-1", "agent-2", 2, [1, 2]))
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    assert len(load(path, other).headers) == 2
    with pytest.raises(TranscriptError, match="twice"):
        load(path, copy)
    one = Header("semi-honest", ("agent-1",), channel="agent", run_id=ID)
    first = write(tmp_path / "a", one, ("agent-2", "agent-1", 0, [1, 2]))
    second = write(tmp_path / "b", one, ("agent-2", "agent-1", 1, [1, 2]))
    with pytest.raises(TranscriptError, match="twice"):
        load(first, second)
