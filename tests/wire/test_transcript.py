"""Transcript files: what goes in comes out, and nothing that is not whole does."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.wire.transcript import (
    MAGIC,
    Counts,
    Header,
    Link,
    Seen,
    Transcript,
    TranscriptError,
    seen,
)
from dpgt_node.wire.transcript_writer import TranscriptWriter

RUN = bytes(range(16))
HEADER = Header("eavesdropper", links=(Link("agent-1", "agent-2"),), run_id=RUN, source="capture.pcap")


def entry(k: int = 3, **changes: object) -> Seen:
    values = np.array([1.5, -2.0, 4.25])
    return replace(seen("agent-1", "agent-2", k, "X", "float64", values.tobytes(), time_ns=7), **changes)  # type: ignore[arg-type]


def written(path: Path, *entries: Seen, header: Header = HEADER) -> Path:
    with TranscriptWriter(path, header) as writer:
        for one in entries:
            writer.write(one)
    return path


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    holed = replace(entry(4), missing=((8, 12),), sha256_seen=b"")
    wrong = replace(entry(5), sha256=bytes(32))
    path = written(tmp_path / "t", entry(), holed, wrong, entry(6, data=None))
    transcript = Transcript(path)
    assert transcript.header == HEADER
    first, second, third, fourth = transcript
    assert first == entry() and first.complete
    assert np.array_equal(first.array(), [1.5, -2.0, 4.25])
    assert np.array_equal(second.array(), [1.5, np.nan, 4.25], equal_nan=True) and not second.complete
    assert not third.complete
    assert fourth.complete and fourth.data is None
    with pytest.raises(TranscriptError, match="only its digest"):
        fourth.array()
    assert transcript.counts() == Counts(messages=4, complete=2, with_holes=1)
    assert len(list(transcript)) == 4  # again


def test_float32_is_widened(tmp_path: Path) -> None:
    data = np.array([1.5, 3.0], dtype="<f4").tobytes()
    (got,) = Transcript(written(tmp_path / "t", seen("a", "", 0, "Y", "float32", data, own=True)))
    assert got.array().dtype == np.float64 and got.dimension == 2 and got.own and got.receiver == ""


def test_an_observer_that_did_not_end_is_named(tmp_path: Path) -> None:
    writer = TranscriptWriter(tmp_path / "t", HEADER)
    writer.write(entry())
    writer._file.flush()
    with pytest.raises(TranscriptError, match="cut short"):
        list(Transcript(tmp_path / "t"))
    writer.close(segments_lost=2, foreign=1, conflicting=3)
    assert Transcript(tmp_path / "t").counts() == Counts(1, 1, 0, 2, 1, 3)


def test_no_file_cut_anywhere_is_taken_for_whole(tmp_path: Path) -> None:
    whole = written(tmp_path / "t", entry(), entry(4)).read_bytes()
    for cut in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:cut])
        with pytest.raises(TranscriptError):
            list(Transcript(tmp_path / "cut"))
    (tmp_path / "cut").write_bytes(whole + b"x")
    with pytest.raises(TranscriptError, match="follows its end"):
        list(Transcript(tmp_path / "cut"))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"sha256": b"short"}, "sha256"),
        ({"dimension": 4}, "bytes of data"),
        ({"missing": ((4, 4),)}, "missing bytes"),
        ({"missing": ((8, 16), (4, 6)), "sha256_seen": b""}, "missing bytes"),
        ({"missing": ((8, 1000),), "sha256_seen": b""}, "missing bytes"),
        ({"receiver": "../x"}, "receiver"),
        ({"sender": ""}, "sender"),
        ({"copies": 0}, "copies"),
    ],
)
def test_an_entry_that_cannot_be_is_named(tmp_path: Path, wrong: dict[str, object], named: str) -> None:
    path = written(tmp_path / "t", entry(**wrong))
    with pytest.raises(TranscriptError, match=named):
        list(Transcript(path))


def test_other_files_are_not_transcripts(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xd4\xc3\xb2\xa1 a pcap")
    with pytest.raises(TranscriptError, match="not a transcript"):
        Transcript(tmp_path / "t")
    with pytest.raises(TranscriptError, match="cannot be read"):
        Transcript(tmp_path / "absent")
    (tmp_path / "t").write_bytes(MAGIC + struct.pack(">I", 3) + b"\xff\xff\xff")
    with pytest.raises(TranscriptError, match="no valid entry at byte 8"):
        Transcript(tmp_path / "t")


def test_an_entry_of_another_run_is_named(tmp_path: Path) -> None:
    one = written(tmp_path / "one", entry()).read_bytes()
    other = written(tmp_path / "two", header=replace(HEADER, run_id=bytes(16))).read_bytes()
    size = struct.unpack(">I", one[8:12])[0]
    other_size = struct.unpack(">I", other[8:12])[0]
    (tmp_path / "mixed").write_bytes(other[: 12 + other_size] + one[12 + size :])
    with pytest.raises(TranscriptError, match="a vector of run"):
        list(Transcript(tmp_path / "mixed"))


def test_a_torn_file_is_gone_on_with_from_its_last_whole_entry(tmp_path: Path) -> None:
    """Cut anywhere, zeros behind it or not: what was whole stays, once, and the rest is written again."""
    entries = [entry(k) for k in range(3)]
    whole = written(tmp_path / "whole", *entries).read_bytes()
    ends = [end for end, _ in Transcript(tmp_path / "whole").whole()]
    assert len(ends) == 4  # the header's and three entries'
    for cut in range(len(whole) + 1):
        path = tmp_path / "t"
        path.write_bytes(whole[:cut] + bytes(cut % 3 * 5))
        known: list[Seen] = []
        with TranscriptWriter(path, HEADER, known=known.append) as writer:
            assert known == entries[: max(0, sum(end <= cut for end in ends) - 1)]
            for one in entries[len(known) :]:
                writer.write(one)
        assert path.read_bytes() == whole


def test_what_a_flipped_bit_spoiled_is_not_known(tmp_path: Path) -> None:
    path = written(tmp_path / "t", entry(0), entry(1))
    ends = [end for end, _ in Transcript(path).whole()]
    data = bytearray(path.read_bytes())
    data[data.index(np.float64(4.25).tobytes())] ^= 1
    path.write_bytes(data)
    assert [end for end, _ in Transcript(path).whole()] == ends[:1]


@pytest.mark.parametrize("header", [replace(HEADER, run_id=bytes(16)), replace(HEADER, source="another")])
def test_a_file_of_another_header_is_begun_anew(tmp_path: Path, header: Header) -> None:
    path = written(tmp_path / "t", entry(0))
    known: list[Seen] = []
    TranscriptWriter(path, header, known=known.append).close()
    assert known == [] and list(Transcript(path)) == [] and Transcript(path).header == header


def test_the_clock_and_a_digest_survive_going_on(tmp_path: Path) -> None:
    path = tmp_path / "t"
    first = TranscriptWriter(path, HEADER)
    first.write(entry(0, data=None))
    first.write(replace(entry(1), missing=((0, 8),), sha256_seen=b""))
    first.flush(sync=True)
    with pytest.raises(TranscriptError, match="did not end"):
        list(Transcript(path))
    first.abandon()
    second = TranscriptWriter(path, HEADER, known=lambda _: None)
    assert second.close(conflicting=2) == Counts(messages=2, complete=1, with_holes=1, conflicting=2)
    assert [e.time_ns for e in Transcript(path)] == [7, 7]


def test_only_some_coordinates_are_kept(tmp_path: Path) -> None:
    kept = entry(data=np.array([1.5, 4.25]).tobytes(), coordinates=(0, 2))
    path = written(tmp_path / "t", kept, entry(4, data=None), header=replace(HEADER, coordinates=(0, 2)))
    first, second = Transcript(path)
    assert first == kept and first.complete
    assert np.array_equal(first.array(), [1.5, np.nan, 4.25], equal_nan=True)
    assert second.data is None and second.coordinates == ()
    with pytest.raises(TranscriptError, match="no coordinate"):
        list(Transcript(written(tmp_path / "u", kept, header=replace(HEADER, coordinates=(0, 9)))))
    with pytest.raises(TranscriptError, match="ascend"):
        Transcript(written(tmp_path / "v", header=replace(HEADER, coordinates=(2, 0))))


def test_copies_are_counted_after_the_vector_was_written(tmp_path: Path) -> None:
    holed = replace(entry(4), missing=((8, 12),), sha256_seen=b"")
    with TranscriptWriter(tmp_path / "t", HEADER) as writer:
        places = [writer.write(one) for one in (entry(), holed, entry(6, data=None))]
        for at, copies in zip(places, (3, 127, 500), strict=True):
            writer.recount(at, copies)
        writer.write(entry(7))
    assert [one.copies for one in Transcript(tmp_path / "t")] == [3, 127, 127, 1]


def test_damage_is_no_evidence(tmp_path: Path) -> None:
    """A flipped bit would else be an agent's low-order bits, or a second copy that differs."""
    path = written(tmp_path / "t", entry())
    whole = bytearray(path.read_bytes())
    whole[whole.index(np.array([1.5]).tobytes()) + 6] ^= 1
    path.write_bytes(whole)
    with pytest.raises(TranscriptError, match="damaged: X of round 3 of agent-1"):
        list(Transcript(path))
