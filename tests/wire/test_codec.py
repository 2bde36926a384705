"""Vectors over the wire: what goes in comes out, bit for bit, and nothing else gets through the gate."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.errors import PeerError
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Stream, WireDtype
from dpgt_node.wire import codec
from dpgt_node.wire.codec import CHUNK_BYTES, INLINE_BYTES, Gate, Reassembler, encode_vectors, study_payload
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2
from dpgt_node.wire.kept import Kept
from tests.wire.vectors import LARGE, RUN_ID, SENDER, chunk, edited, feed_all, gate, payload, with_data

Edit = Callable[[agent_pb2.Vector], None]

# --- round trips --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "nbytes", [8, 800, INLINE_BYTES, INLINE_BYTES + 8, CHUNK_BYTES, CHUNK_BYTES + 8, 3 * CHUNK_BYTES]
)
def test_vectors_arrive_bit_for_bit(nbytes: int, dtype: WireDtype) -> None:
    d = nbytes // (8 if dtype == "float64" else 4)
    reassembler = Reassembler(gate(d, dtype))
    sent = [(payload("X", k, d, dtype), payload("Y", k, d, dtype)) for k in range(3)]
    for pair in sent:
        frames = list(encode_vectors(RUN_ID, SENDER, pair))
        assert len(frames) == (1 if nbytes <= INLINE_BYTES else 2 * (1 + -(-nbytes // CHUNK_BYTES)))
        received = feed_all(reassembler, frames)
        assert tuple(received) == pair
        for got, want in zip(received, pair, strict=True):
            assert np.array_equal(got.array(), want.array())
    assert reassembler.finish() is None


@settings(max_examples=60)
@given(st.data())
def test_any_dimension_and_any_chunking(data: st.DataObject) -> None:
    """Other implementations may cut elsewhere, even inside a value; the bytes are the same."""
    d = data.draw(st.integers(INLINE_BYTES // 4 + 1, 40_000))
    sent = payload("Y", 0, d, "float32", seed=d)
    header, *_ = encode_vectors(RUN_ID, SENDER, [sent])
    cuts = sorted(data.draw(st.sets(st.integers(1, sent.nbytes - 1), max_size=6)))
    pieces = [bytes(sent.data[a:b]) for a, b in zip([0, *cuts], [*cuts, sent.nbytes], strict=True)]
    assert feed_all(Reassembler(gate(d, "float32")), [header, *map(chunk, pieces)]) == [sent]


@pytest.mark.parametrize("size", [1, 127, 128, 16_383, 16_384, CHUNK_BYTES - 1, CHUNK_BYTES])
def test_hand_written_chunk_frames_are_protobuf(size: int) -> None:
    sent = payload("X", 0, LARGE)
    frames = list(encode_vectors(RUN_ID, SENDER, [sent]))
    for frame in frames[1:]:
        assert chunk(agent_pb2.Frame.FromString(frame).chunk) == frame
    body = bytes(size)
    assert codec._chunk_prefix(size) + body == chunk(body)
    assert codec._chunk_body(memoryview(chunk(body))) == body


# --- calls that break in the midst of a vector ----------------------------------------------------------------------


def broken_off(sent: Payload, chunks: int) -> tuple[Kept, Reassembler]:
    """What an edge keeps, and the reader of a call that broke behind so many chunks of ``sent``."""
    kept = Kept()
    reader = Reassembler(gate(LARGE), kept)
    assert feed_all(reader, list(encode_vectors(RUN_ID, SENDER, [sent]))[: 1 + chunks]) == []
    return kept, reader


def test_a_vector_goes_on_where_a_call_broke_it_off_as_often_as_that_happens() -> None:
    sent = payload("X", 0, LARGE)
    kept, _ = broken_off(sent, 1)
    for received in (1, 2):
        reader = Reassembler(gate(LARGE), kept)
        prefix = kept.prefix({"X": 0, "Y": 0})
        assert prefix is not None and prefix.nbytes == received * CHUNK_BYTES
        frames = list(encode_vectors(RUN_ID, SENDER, [sent, payload("Y", 0, LARGE)], prefix=prefix))
        assert sum(map(len, frames[1 : 4 - received])) < sent.nbytes - prefix.nbytes + 20, "what is there is not sent"
        if received == 1:
            assert feed_all(reader, frames[:2]) == []
    assert feed_all(reader, frames) == [sent, payload("Y", 0, LARGE)]
    assert kept.vector is None and kept.prefix({"X": 1, "Y": 1}) is None, "what is whole is not kept as well"


def test_another_release_of_the_round_begins_anew_and_a_prefix_of_it_is_not_gone_on_with() -> None:
    first, redrawn = payload("X", 0, LARGE), payload("X", 0, LARGE, seed=1)
    kept, _ = broken_off(first, 1)
    reader = Reassembler(gate(LARGE), kept)
    prefix = kept.prefix({"X": 0, "Y": 0})
    frames = list(encode_vectors(RUN_ID, SENDER, [redrawn], prefix=prefix))
    assert agent_pb2.Frame.FromString(frames[0]).vectors[0].from_byte == 0
    assert feed_all(reader, frames[:3]) == []
    there = kept.prefix({"X": 0, "Y": 0})
    assert there is not None and (there.nbytes, there.sha256) == (2 * CHUNK_BYTES, redrawn.sha256), "the later one"
    assert feed_all(reader, frames[3:]) == [redrawn]
    kept, _ = broken_off(first, 1)
    forged = edited(frames[0], lambda vector: setattr(vector, "from_byte", CHUNK_BYTES))
    with pytest.raises(PeerError, match="which nobody asked for"):
        Reassembler(gate(LARGE), kept).feed(forged)
    assert kept.vector is None, "after a refusal it begins anew"


def test_bytes_that_do_not_make_the_vector_are_dropped_with_it() -> None:
    sent = payload("X", 0, LARGE)
    kept, _ = broken_off(sent, 2)
    assert kept.vector is not None
    kept.vector.view[0] ^= 1
    kept.vector.digest = hashlib.sha256(kept.vector.view[: kept.vector.received])
    frames = list(encode_vectors(RUN_ID, SENDER, [sent], prefix=kept.prefix({"X": 0})))
    with pytest.raises(PeerError, match="does not have the sha256"):
        feed_all(Reassembler(gate(LARGE), kept), frames)
    assert kept.vector is None


def test_only_the_vector_that_comes_next_is_kept() -> None:
    lacks: tuple[tuple[dict[Stream, int], bool], ...] = (
        ({"X": 0}, True), ({"X": 0, "Y": 0}, True), ({"X": 0, "Y": 1}, True), ({"X": 1, "Y": 0}, False),
    )  # fmt: skip
    for first, comes_next in lacks:
        kept, _ = broken_off(payload("X", 0, LARGE), 1)
        assert (kept.prefix(first) is not None, kept.vector is not None) == (comes_next, comes_next)
    kept, _ = broken_off(payload("Y", 0, LARGE), 1)
    assert kept.prefix({"X": 0, "Y": 0}) is None and kept.vector is None


def test_a_call_that_was_replaced_writes_no_more_into_the_vector() -> None:
    sent = payload("X", 0, LARGE)
    kept, old = broken_off(sent, 1)
    reader = Reassembler(gate(LARGE), kept)
    header, *chunks = encode_vectors(RUN_ID, SENDER, [sent], prefix=kept.prefix({"X": 0, "Y": 0}))
    assert reader.feed(header) == []
    with pytest.raises(PeerError, match="a frame after one that was refused"):
        old.feed(chunks[0])
    assert feed_all(reader, chunks) == [sent]


def test_chunks_begin_at_the_very_byte_that_is_lacking() -> None:
    """A sender of another chunk size may have broken off anywhere, in the midst of a value too."""
    sent = payload("X", 0, LARGE)
    for received in (1, 83, CHUNK_BYTES + 5, sent.nbytes - 1):
        header, *_ = encode_vectors(RUN_ID, SENDER, [sent])
        kept = Kept()
        data = bytes(sent.data[:received])
        pieces = [chunk(data[at : at + CHUNK_BYTES]) for at in range(0, received, CHUNK_BYTES)]
        assert feed_all(Reassembler(gate(LARGE), kept), [header, *pieces]) == []
        reader, prefix = Reassembler(gate(LARGE), kept), kept.prefix({"X": 0, "Y": 0})
        assert prefix is not None and prefix.nbytes == received
        assert feed_all(reader, encode_vectors(RUN_ID, SENDER, [sent], prefix=prefix)) == [sent]


def test_frames_may_be_memoryviews() -> None:
    for d in (10, LARGE):
        sent = payload("X", 0, d)
        assert feed_all(Reassembler(gate(d)), map(memoryview, encode_vectors(RUN_ID, SENDER, [sent]))) == [sent]


def test_received_bytes_cannot_be_changed() -> None:
    sent = payload("X", 0, LARGE)
    (received,) = feed_all(Reassembler(gate(LARGE)), encode_vectors(RUN_ID, SENDER, [sent]))
    assert isinstance(received.data, memoryview) and received.data.readonly


def test_study_vectors_may_leave_out_rounds_but_not_go_back() -> None:
    x = np.random.default_rng(0).normal(size=20)
    reassembler = Reassembler(gate(20, streams="X", study=True, window=(0, 100)))
    for k in (0, 10, 11):
        (got,) = feed_all(reassembler, encode_vectors(RUN_ID, SENDER, [study_payload(k, x + k)], study=True))
        assert (got.k, got.stream, got.dtype) == (k, "X", "float64")
        assert np.array_equal(got.array(), x + k)
    with pytest.raises(PeerError, match="X of round 11 from agent-1, expected round 12"):
        feed_all(reassembler, encode_vectors(RUN_ID, SENDER, [study_payload(11, x)], study=True))


def test_study_payload_takes_any_layout() -> None:
    """A Fortran-ordered or strided array must not be reordered silently."""
    x = np.arange(40.0).reshape(4, 10)[:, 3]
    assert np.array_equal(study_payload(0, x).array(), x)


@pytest.mark.parametrize("study", [False, True])
def test_agents_and_the_coordinator_do_not_take_each_others_vectors(study: bool) -> None:
    frames = encode_vectors(RUN_ID, SENDER, [payload("X", 0, 5)], study=not study)
    name = "X" if study else "STUDY"
    with pytest.raises(PeerError, match=f"stream {name} is not on the edge"):
        feed_all(Reassembler(gate(5, streams="X", study=study)), frames)


# --- the gate, check by check -------------------------------------------------------------------------------------


def setting(**fields: Any) -> Edit:
    def edit(vector: agent_pb2.Vector) -> None:
        for name, value in fields.items():
            setattr(vector, name, value)

    return edit


def doubles(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


INF, NAN = float("inf"), float("nan")
HEADER_FAULTS: dict[str, tuple[Edit, str, str]] = {
    "another run": (setting(run_id=b"\xff" * 16), "FAILED_PRECONDITION", "vector of run 'ffff.*this is run 000102"),
    "no run": (setting(run_id=b""), "FAILED_PRECONDITION", "vector of run ''"),
    "long run": (setting(run_id=b"r" * 60_000), "FAILED_PRECONDITION", r"vector of run '7272.*\.\.\."),
    "another sender": (setting(sender="agent-2"), "PERMISSION_DENIED", "sender 'agent-2' on the call of agent-1"),
    "a sender in other case": (setting(sender="Agent-1"), "PERMISSION_DENIED", "sender 'Agent-1' on the call"),
    "a study vector": (setting(stream=3), "PERMISSION_DENIED", "stream STUDY is not on the edge from agent-1"),
    "no stream": (setting(stream=0), "PERMISSION_DENIED", "stream 0 is not on the edge"),
    "an unknown stream": (setting(stream=77), "PERMISSION_DENIED", "stream 77 is not on the edge"),
    "an earlier round": (setting(round=2), "OUT_OF_RANGE", "X of round 2 from agent-1, expected round 3"),
    "a later round": (setting(round=4), "OUT_OF_RANGE", "X of round 4 from agent-1, expected round 3"),
    "a huge round": (setting(round=2**32 - 1), "OUT_OF_RANGE", "expected round 3"),
    "another dtype": (setting(dtype=2), "INVALID_ARGUMENT", r"dtype number 2 \(float32\), this run has float64"),
    "no dtype": (setting(dtype=0), "INVALID_ARGUMENT", r"dtype number 0 \(not known here\)"),
    "a smaller dimension": (setting(dimension=3), "INVALID_ARGUMENT", "dimension 3, this run has"),
    "a huge dimension": (setting(dimension=2**63), "INVALID_ARGUMENT", "dimension 9223372036854775808, this run has"),
    "fewer bytes": (setting(nbytes=24), "INVALID_ARGUMENT", "nbytes 24, "),
    "a huge size": (setting(nbytes=2**62), "INVALID_ARGUMENT", "nbytes 4611686018427387904, "),
    "a short hash": (setting(sha256=b"short"), "INVALID_ARGUMENT", "sha256 of 5 bytes"),
}
VALUE_FAULTS: dict[str, tuple[Edit, str, str]] = {
    "NaN": (
        with_data(doubles(1, NAN, 3, 4)),
        "INVALID_ARGUMENT",
        "X of round 3 from agent-1 holds a value that is not",
    ),
    "infinity": (with_data(doubles(1, 2, 3, INF)), "INVALID_ARGUMENT", "holds a value that is not finite"),
    "minus infinity": (with_data(doubles(-INF, 2, 3, 4)), "INVALID_ARGUMENT", "holds a value that is not finite"),
    "too few values": (with_data(doubles(1, 2, 3)), "INVALID_ARGUMENT", "inline data of 24 bytes for a vector of 32"),
    "too many values": (
        with_data(doubles(*range(5))),
        "INVALID_ARGUMENT",
        "inline data of 40 bytes for a vector of 32",
    ),
    "half a value more": (with_data(doubles(*range(4)) + b"1234"), "INVALID_ARGUMENT", "inline data of 36 bytes"),
    "no values": (with_data(b""), "INVALID_ARGUMENT", "no data in the header of a vector of 32 bytes"),
    "one bit off": (
        setting(data=doubles(1, 2, 3, 4)),
        "DATA_LOSS",
        "X of round 3 from agent-1 does not have the sha256",
    ),
}


def refused(reassembler: Reassembler, frame: bytes | memoryview) -> PeerError:
    with pytest.raises(PeerError) as caught:
        reassembler.feed(frame)
    assert len(str(caught.value)) < 300, "must fit a gRPC status"
    return caught.value


@pytest.mark.parametrize(("edit", "status", "message"), HEADER_FAULTS.values(), ids=HEADER_FAULTS)
@pytest.mark.parametrize("d", [4, LARGE])
def test_headers_that_are_refused(d: int, edit: Edit, status: str, message: str) -> None:
    """One field off at a time, everything else right; the message shows which check it was."""
    frame, *_ = encode_vectors(RUN_ID, SENDER, [payload("X", 3, d)])
    assert Reassembler(gate(d, window=(3, 5))).feed(frame) is not None  # as it was, it is accepted
    error = refused(Reassembler(gate(d, window=(3, 5))), edited(frame, edit))
    assert error.grpc_status == status
    with pytest.raises(PeerError, match=message):
        raise error


@pytest.mark.parametrize(("edit", "status", "message"), VALUE_FAULTS.values(), ids=VALUE_FAULTS)
def test_values_that_are_refused(edit: Edit, status: str, message: str) -> None:
    (frame,) = encode_vectors(RUN_ID, SENDER, [payload("X", 3, 4)])
    error = refused(Reassembler(gate(4, window=(3, 5))), edited(frame, edit))
    assert error.grpc_status == status
    with pytest.raises(PeerError, match=message):
        raise error


@pytest.mark.parametrize("index", [0, 1])
def test_the_second_vector_of_a_frame_is_checked_like_the_first(index: int) -> None:
    (frame,) = encode_vectors(RUN_ID, SENDER, [payload("X", 0, 4), payload("Y", 0, 4)])
    for name, (edit, _, message) in VALUE_FAULTS.items():
        if name != "no values":
            error = refused(Reassembler(gate(4)), edited(frame, edit, index))
            assert "XY"[index] + " of round 0" in str(error) or "inline data" in str(error), message


@pytest.mark.parametrize(("streams", "sent"), [("X", "Y"), ("Y", "X"), ("", "X"), ("", "Y")])
def test_edges_carry_only_their_own_streams(streams: str, sent: Stream) -> None:
    """X from an agent that is no R-in-neighbour, Y from one that is no C-in-neighbour."""
    allowed: list[Stream] = [s for s in ("X", "Y") if s in streams]
    (frame,) = encode_vectors(RUN_ID, SENDER, [payload(sent, 0, 4)])
    error = refused(Reassembler(gate(4, streams=allowed)), frame)
    assert error.grpc_status == "PERMISSION_DENIED"
    assert f"stream {sent} is not on the edge from agent-1" in str(error)
    (both,) = encode_vectors(RUN_ID, SENDER, [payload("X", 0, 4), payload("Y", 0, 4)])
    assert "is not on the edge" in str(refused(Reassembler(gate(4, streams=allowed)), both))


@pytest.mark.parametrize("d", [4, LARGE])
def test_a_repeated_round_is_refused(d: int) -> None:
    """A doubled y would change the sum of all y for ever, even when every other field is right."""
    frames = list(encode_vectors(RUN_ID, SENDER, [payload("Y", 0, d)]))
    reassembler = Reassembler(gate(d))
    feed_all(reassembler, frames)
    assert "Y of round 0 from agent-1, expected round 1" in str(refused(reassembler, frames[0]))


def test_a_vector_twice_in_one_frame_is_refused() -> None:
    (frame,) = encode_vectors(RUN_ID, SENDER, [payload("Y", 0, 4), payload("Y", 0, 4)])
    assert "Y of round 0 from agent-1, expected round 1" in str(refused(Reassembler(gate(4)), frame))


def test_two_rounds_in_one_frame_are_refused() -> None:
    (frame,) = encode_vectors(RUN_ID, SENDER, [payload("X", 0, 4), payload("Y", 1, 4)])
    assert "frame with rounds 0 and 1" in str(refused(Reassembler(gate(4)), frame))


def test_streams_count_their_rounds_separately() -> None:
    """After a break one stream may lag behind the other."""
    low = {"X": 2, "Y": 0}
    reassembler = Reassembler(Gate(RUN_ID, SENDER, frozenset("XY"), "float64", 4, lambda stream: (low[stream], 9)))
    sent = [payload("Y", 0, 4), payload("Y", 1, 4), payload("X", 2, 4), payload("Y", 2, 4)]
    assert feed_all(reassembler, (f for p in sent for f in encode_vectors(RUN_ID, SENDER, [p]))) == sent


def test_the_window_is_asked_each_time() -> None:
    high = 0
    reassembler = Reassembler(Gate(RUN_ID, SENDER, frozenset("X"), "float64", 4, lambda _: (0, high)))
    first, second, third = (next(encode_vectors(RUN_ID, SENDER, [payload("X", k, 4)])) for k in range(3))
    assert len(reassembler.feed(first)) == 1
    high = 1
    assert len(reassembler.feed(second)) == 1
    error = refused(reassembler, third)
    assert (error.grpc_status, str(error)) == (
        "OUT_OF_RANGE",
        "X of round 2 from agent-1 is outside the window of rounds 0 to 1",
    )


def test_after_a_refusal_nothing_gets_in() -> None:
    """Else the first vector of a refused frame would count as received, and the next round would leave a gap."""
    reassembler = Reassembler(gate(4))
    broken = payload("Y", 0, 4)
    (pair,) = encode_vectors(RUN_ID, SENDER, [payload("X", 0, 4), broken])
    assert "does not have the sha256" in str(refused(reassembler, edited(pair, setting(sha256=bytes(32)), 1)))
    for k in (0, 1):
        for frame in encode_vectors(RUN_ID, SENDER, [payload("X", k, 4), payload("Y", k, 4)]):
            assert str(refused(reassembler, frame)) == "a frame after one that was refused"


# --- framing ------------------------------------------------------------------------------------------------------


def large_frames() -> tuple[Payload, list[bytes]]:
    sent = payload("X", 0, LARGE)
    return sent, list(encode_vectors(RUN_ID, SENDER, [sent]))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"", "empty frame"),
        (chunk(b"abc"), "a chunk arrived without a header"),
        (b"\x12", "chunk frame without a valid length"),
        (b"\x12\x80", "chunk frame without a valid length"),
        (b"\x12\xff\xff\xff\xff\xff\x01", "chunk frame without a valid length"),
        (b"\x12\x05abc", "chunk frame declares 5 bytes and holds 3"),
        (b"\x12\x02abc", "chunk frame declares 2 bytes and holds 3"),
        (b"\x12\x83\x00abc", "chunk frame with a length longer than it need be"),
        (chunk(b"abc") + chunk(b"d"), "chunk frame declares 3 bytes and holds 6"),
        (b"\x0a\x00" + chunk(b"abc"), "frame with 1 vectors and a chunk of 3 bytes"),
        (b"\x0a\x00" * 3, "frame with 3 vectors and a chunk of 0 bytes"),
        (b"\x1a\x00", "frame with 0 vectors"),
        (b"\x0a\x7f", r"frame is not valid protobuf \(2 bytes\)"),
        (b"\x0a\x04\x12\x02\xff\xfe", "frame is not valid protobuf"),  # sender is not UTF-8
        (b"\x0a\x00" * 70_000, "header frame of 140000 bytes; the limit is"),
    ],
)
def test_frames_that_are_refused(frame: bytes, message: str) -> None:
    with pytest.raises(PeerError, match=message):
        raise refused(Reassembler(gate(4)), frame)


def test_two_chunked_headers_in_one_frame_are_refused() -> None:
    _, frames = large_frames()
    assert "inline data of 0 bytes" in str(refused(Reassembler(gate(LARGE)), frames[0] + frames[0]))


def test_a_large_vector_does_not_travel_inline() -> None:
    """A frame within the limit cannot hold it, but may pretend to."""
    _, frames = large_frames()
    frame = edited(frames[0], setting(data=b"1234"))
    assert "inline data of 4 bytes for a vector of 2400000" in str(refused(Reassembler(gate(LARGE)), frame))


@pytest.mark.parametrize("size", [0, CHUNK_BYTES + 1])
def test_chunk_sizes_are_bounded(size: int) -> None:
    _, frames = large_frames()
    reassembler = Reassembler(gate(LARGE))
    reassembler.feed(frames[0])
    assert f"chunk of {size} bytes; allowed are 1 to 1048576" in str(
        refused(reassembler, b"\x12\x00" if size == 0 else chunk(bytes(size)))
    )


def test_more_bytes_than_declared_are_refused() -> None:
    _, frames = large_frames()
    reassembler = Reassembler(gate(LARGE))
    feed_all(reassembler, frames[:-1])
    error = refused(reassembler, chunk(bytes(302_849)))
    assert "2400001 bytes of chunks for X of round 0 (2097152 of 2400000 bytes)" in str(error)


def test_a_header_between_chunks_is_refused() -> None:
    _, frames = large_frames()
    reassembler = Reassembler(gate(LARGE))
    feed_all(reassembler, frames[:2])
    message = "a header arrived while X of round 0 (1048576 of 2400000 bytes) was incomplete"
    assert str(refused(reassembler, frames[0])) == message


def test_a_bit_flipped_in_a_chunk_is_found_at_the_end() -> None:
    _, frames = large_frames()
    broken = bytearray(frames[2])
    broken[5000] ^= 1
    reassembler = Reassembler(gate(LARGE))
    feed_all(reassembler, [frames[0], frames[1], bytes(broken)])
    error = refused(reassembler, frames[3])
    assert error.grpc_status == "DATA_LOSS" and "X of round 0 from agent-1 does not have the sha256" in str(error)


@pytest.mark.parametrize("position", [0, 1, LARGE // 2, CHUNK_BYTES // 8, LARGE - 1])
def test_not_finite_in_any_chunk(position: int) -> None:
    values = np.ones(LARGE)
    values[position] = np.nan
    data = values.tobytes()
    sent = Payload("X", 0, "float64", LARGE, data, hashlib.sha256(data).digest())
    with pytest.raises(PeerError, match="X of round 0 from agent-1 holds a value that is not finite"):
        feed_all(Reassembler(gate(LARGE)), encode_vectors(RUN_ID, SENDER, [sent]))


def test_not_finite_in_a_value_cut_by_chunks() -> None:
    values = np.ones(LARGE)
    values[10] = np.nan
    data = values.tobytes()
    header, *_ = encode_vectors(
        RUN_ID, SENDER, [Payload("X", 0, "float64", LARGE, data, hashlib.sha256(data).digest())]
    )
    reassembler = Reassembler(gate(LARGE))
    feed_all(reassembler, [header, chunk(data[:83])])
    assert "not finite" in str(refused(reassembler, chunk(data[83:90])))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_end_in_mid_vector_is_noticed(count: int) -> None:
    """A killed client looks like a normal end of stream: only a complete vector counts."""
    sent, frames = large_frames()
    reassembler = Reassembler(gate(LARGE))
    assert feed_all(reassembler, frames[:count]) == []
    assert "X of round 0" in (reassembler.finish() or "")
    assert feed_all(reassembler, frames[count:]) == [sent]
    assert reassembler.finish() is None


# --- memory -------------------------------------------------------------------------------------------------------


def peak_bytes(job: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_nothing_is_allocated_for_a_size_that_is_not_the_runs() -> None:
    _, frames = large_frames()
    frame = edited(frames[0], setting(dimension=1 << 29, nbytes=1 << 32))
    assert peak_bytes(lambda: refused(Reassembler(gate(LARGE)), frame)) < 100_000


def test_nothing_is_allocated_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds for study uploads too, whose dimension the peer itself registered."""
    monkeypatch.setattr(codec, "MAX_VECTOR_BYTES", 8 * LARGE - 1)
    _, frames = large_frames()

    def attempt() -> None:
        error = refused(Reassembler(gate(LARGE)), frames[0])
        assert error.grpc_status == "RESOURCE_EXHAUSTED"
        assert "vector of 2400000 bytes; the limit is 2399999" in str(error)

    assert peak_bytes(attempt) < 100_000


def test_a_large_vector_is_copied_once_on_each_side() -> None:
    sent, frames = large_frames()
    one_chunk = peak_bytes(lambda: [len(frame) for frame in encode_vectors(RUN_ID, SENDER, [sent])])
    assert one_chunk < 2 * CHUNK_BYTES + 100_000  # one frame being made while the last one is let go
    reassembler = Reassembler(gate(LARGE))
    assert peak_bytes(lambda: feed_all(reassembler, frames)) < sent.nbytes + CHUNK_BYTES  # plus one boolean a value


# --- anything at all ----------------------------------------------------------------------------------------------


def survives(frames: list[bytes], d: int) -> None:
    """Whatever comes in: payloads that are right, or PeerError with a gRPC status; nothing else."""
    reassembler = Reassembler(gate(d))
    try:
        for received in feed_all(reassembler, frames):
            assert received.nbytes == 8 * d and np.isfinite(received.array()).all()
            assert hashlib.sha256(received.data).digest() == received.sha256
        reassembler.finish()
    except PeerError as error:
        assert grpc.StatusCode[error.grpc_status] is not grpc.StatusCode.OK


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_random_bytes(frames: list[bytes]) -> None:
    survives(frames, 4)


@st.composite
def mutated(draw: st.DrawFn, originals: list[bytes]) -> list[bytes]:
    """Frames with bytes changed, cut, inserted; frames dropped, doubled, swapped."""
    frames = [bytearray(frame) for frame in draw(st.lists(st.sampled_from(originals), min_size=1, max_size=6))]
    for _ in range(draw(st.integers(0, 4))):
        frame = draw(st.sampled_from(frames))
        at = draw(st.integers(0, max(0, min(len(frame) - 1, 400))))
        match draw(st.sampled_from(["set", "cut", "insert", "remove"])):
            case "set" if frame:
                frame[at] = draw(st.integers(0, 255))
            case "cut":
                del frame[at:]
            case "insert":
                frame[at:at] = draw(st.binary(max_size=12))
            case _:
                del frame[at : at + draw(st.integers(1, 12))]
    return [bytes(frame) for frame in frames]


SMALL_FRAMES = [next(encode_vectors(RUN_ID, SENDER, [payload("X", k, 4), payload("Y", k, 4)])) for k in range(3)]
CHUNKED_D = INLINE_BYTES // 8 + 100
CHUNKED_FRAMES = [
    frame
    for k in range(2)
    for header, body in [encode_vectors(RUN_ID, SENDER, [payload("X", k, CHUNKED_D)])]
    for frame in (header, chunk(body[4:1000]), chunk(body[1000:]), body)
]


@settings(max_examples=400)
@given(mutated(SMALL_FRAMES))
def test_mutated_small_frames(frames: list[bytes]) -> None:
    survives(frames, 4)


@settings(max_examples=200)
@given(mutated(CHUNKED_FRAMES))
def test_mutated_chunked_frames(frames: list[bytes]) -> None:
    survives(frames, CHUNKED_D)
