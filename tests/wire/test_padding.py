"""Rounds that are alike: sizes, what a receiver makes of them, what it refuses, and shapes that are wrong."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.config.privacy.traffic import Traffic
from dpgt_node.errors import PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.dummies import Dummy
from dpgt_node.protocol.messages import Prefix
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Codes, Stream, WireDtype
from dpgt_node.wire import codec, convert
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2, coordinator_pb2
from dpgt_node.wire.kept import Kept
from dpgt_node.wire.traffic import shape as shape_module
from dpgt_node.wire.traffic.padding import LEAST, in_units, padded, padding, reply_unit, report_unit
from dpgt_node.wire.traffic.shape import FRAME_BYTES, Shape
from tests.runtime.cluster import make_run

RUN_ID = bytes(range(16))
NAMES = ("a", "agent-with-a-name-of-sixty-three-characters-0123456789-abcdefghi")
K = 10**6
ROUNDS = (0, 128, K)
EDGES: tuple[tuple[Stream, ...], ...] = ((), ("X",), ("Y",), ("X", "Y"))


def payload(stream: Stream, k: int, d: int, dtype: WireDtype = "float64", codes: Codes | None = None) -> Payload:
    dice = np.random.default_rng([k, d, stream == "X"])
    values = dice.normal(size=d) if codes is None else dice.integers(codes.low, codes.high + 1, d)
    data = values.astype(dtype).tobytes()
    return Payload(stream, k, dtype, d, data, hashlib.sha256(data).digest(), codes)


def receiver(shape: Shape | None, sender: str, streams: Sequence[Stream], d: int, k: int) -> codec.Reassembler:
    limits = None if shape is None else shape.limits()
    gate = codec.Gate(RUN_ID, sender, frozenset(streams), "float64", d, lambda _: (k, K), limits=limits)
    return codec.Reassembler(gate)


def sent(shape: Shape, sender: str, streams: Sequence[Stream], d: int, k: int) -> tuple[list[Payload], list[bytes]]:
    vectors = [payload(stream, k, d) for stream in streams]
    return vectors, list(shape.frames(RUN_ID, sender, vectors or [Dummy.of(k)], k))


def test_padding_is_as_long_as_asked_and_dropped_by_protobuf() -> None:
    assert padding(0) == b""
    for nbytes in (*range(LEAST, 300), *range(16_380, 16_395), 2_097_155, 2_097_158):
        made = padding(nbytes)
        assert len(made) == nbytes and not agent_pb2.Frame.FromString(made).padding.strip(b"\0")
        reply = convert.encode_exchange_reply(m.Received(7)) + made
        assert convert.decode_exchange_reply(reply) == m.Received(7)
    with pytest.raises(ValueError, match="no padding has"):
        padding(LEAST - 1)


def assert_alike(traffic: Traffic, d: int) -> None:
    """Whatever edge, agent and round: frames are as many and as long, and sum up to what the run file asks for."""
    shape = Shape(traffic, NAMES, ("X", "Y"), "float64", d, K)
    lengths = set()
    for sender, streams, k in itertools.product(NAMES, EDGES, ROUNDS):
        vectors, frames = sent(shape, sender, streams, d, k)
        lengths.add(tuple(map(len, frames)))
        gate = receiver(shape, sender, streams, d, k)
        found = [one for frame in frames for one in gate.feed(frame)]
        assert [one for one in found if not isinstance(one, Dummy)] == vectors
        assert len(found) == 2 and {one.k for one in found} == {k} and {one.nbytes for one in found} == {8 * d}
        assert gate.finish() is None
    (each,) = lengths
    assert sum(each) == shape.round_bytes and max(each) <= FRAME_BYTES + 8
    if isinstance(traffic.pad_to, int):
        assert shape.round_bytes % traffic.pad_to == 0 and shape.round_bytes - shape.vectors_bytes < 2 * traffic.pad_to
    elif traffic.pad_to is not None:
        assert shape.round_bytes.bit_count() == 1 and shape.round_bytes < 2 * (shape.vectors_bytes + LEAST)


PADDINGS = [
    Traffic(cover="all-pairs"),
    Traffic(64),
    Traffic(1024),
    Traffic(100_003),
    Traffic(1 << 20),
    Traffic(3 << 20),
    Traffic("power-of-two"),
]


@pytest.mark.parametrize("traffic", PADDINGS, ids=lambda one: str(one.pad_to))
@pytest.mark.parametrize("d", [1, 8192, 8193])
def test_every_round_is_as_long_on_every_edge(traffic: Traffic, d: int) -> None:
    assert_alike(traffic, d)


def test_vectors_of_several_chunks_too() -> None:
    assert_alike(Traffic(1 << 20), 150_000)


@pytest.mark.parametrize("short", [1, 4, LEAST + 1])
@pytest.mark.parametrize("d", [100, 8193])
def test_a_last_frame_that_is_short_is_found(monkeypatch: pytest.MonkeyPatch, d: int, short: int) -> None:
    def too_short(data: bytes, nbytes: int) -> bytes:
        return padded(data, nbytes - short) if nbytes - short - len(data) >= LEAST else data

    monkeypatch.setattr(shape_module, "padded", too_short)
    with pytest.raises((AssertionError, ValueError)):
        assert_alike(Traffic(1024), d)


def test_sizes_of_codes_say_nothing_of_them() -> None:
    """Extreme and zero codes are as long, as they are without padding."""
    codes = Codes(1.0, 0.0, -300, 300)
    for traffic in (Traffic("power-of-two"), Traffic(cover="all-pairs")):
        shape = Shape(traffic, NAMES, ("X",), "int16", 50, K, codes)
        made = [payload("X", 3, 50, "int16", codes)]
        for value in (0, 1, -300, 300):
            data = np.full(50, value, "<i2").tobytes()
            made.append(Payload("X", 3, "int16", 50, data, hashlib.sha256(data).digest(), codes))
        assert len({sum(map(len, shape.frames(RUN_ID, "a", [one], 3))) for one in made}) == 1
        assert len({sum(map(len, codec.encode_vectors(RUN_ID, "a", [one]))) for one in made}) == 1


def test_a_vector_goes_on_in_its_midst_beside_a_dummy() -> None:
    d = 200_000
    shape = Shape(Traffic(1 << 16), NAMES, ("X", "Y"), "float64", d, K)
    vectors, frames = sent(shape, "a", ("Y",), d, 5)
    kept = Kept()
    gate = codec.Gate(RUN_ID, "a", frozenset(("Y",)), "float64", d, lambda _: (5, K), limits=shape.limits())
    first = codec.Reassembler(gate, kept)
    found = [one for frame in frames[:-1] for one in first.feed(frame)]
    assert [type(one) for one in found] == [Dummy]
    again = codec.Reassembler(gate, kept)
    prefix = kept.prefix({"Y": 5})
    assert isinstance(prefix, Prefix) and prefix.nbytes == 1 << 20
    frames = list(shape.frames(RUN_ID, "a", vectors, 5, prefix))
    found = [one for frame in frames for one in again.feed(frame)]
    assert [one for one in found if not isinstance(one, Dummy)] == vectors
    assert sum(map(len, frames)) == shape.round_bytes - codec.chunk_frame_bytes(prefix.nbytes)


# --- what is refused


def frame_of(*vectors: Payload, sender: str = "a") -> bytes:
    (frame,) = codec.encode_vectors(RUN_ID, sender, vectors)
    return frame


def dummy(k: int, **changes: object) -> bytes:
    """The frame of a dummy of 3 values, with ``changes`` to its header."""
    zeros = Dummy("X", k, "float64", 3, bytes(24), bytes(32))
    frame = agent_pb2.Frame.FromString(frame_of(zeros))
    for name, value in changes.items():
        setattr(frame.vectors[0], name, value)
    return frame.SerializeToString()


def test_a_run_that_does_not_pad_takes_neither_padding_nor_dummies() -> None:
    for frame in (
        padding(50),
        padded(frame_of(payload("X", 0, 3)), 300),
        dummy(0),
        frame_of(payload("X", 0, 3), Dummy("Y", 0, "float64", 3, bytes(24), bytes(32))),
    ):
        with pytest.raises(PeerError):
            receiver(None, "a", ("X", "Y"), 3, 0).feed(frame)


LOUD = agent_pb2.Frame(padding=b"\0\0secret").SerializeToString()
REFUSED: dict[str, list[bytes]] = {
    "padding that is not zeros": [LOUD],
    "padding that is not zeros, beside a vector": [frame_of(payload("X", 0, 3)) + LOUD],
    "dummy that is not zeros": [dummy(0, data=bytes(23) + b"x")],
    "that says something": [dummy(0, sha256=bytes(31) + b"x")],
    "that says something, from byte 5 on": [dummy(0, from_byte=5)],
    "dummies of round 4": [dummy(4)] * 3,
    "dummy of round 3 after round 4": [dummy(4), dummy(3)],
    "dummy of round 1000001": [dummy(K + 1)],
    "frames of padding in a row": [padding(200)] * 3,
    "of run": [dummy(0, run_id=bytes(16))],
    "of sender": [dummy(0, sender="b")],
    "dimension 4": [dummy(0, dimension=4)],
    "nbytes 32": [dummy(0, nbytes=32)],
    "inline data of 16 bytes": [dummy(0, data=bytes(16))],
    "header frame of 1048577 bytes": [padding(FRAME_BYTES + 1)],
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_says_something_or_too_much_is_refused(words: str) -> None:
    gate = receiver(Shape(Traffic(1024), NAMES, ("X", "Y"), "float64", 3, K), "a", ("X",), 3, 0)
    *before, last = REFUSED[words]
    for frame in before:
        gate.feed(frame)
    with pytest.raises(PeerError) as caught:
        gate.feed(last)
    assert words.partition(", ")[0] in str(caught.value)


def test_a_dummy_in_chunks_must_be_zeros() -> None:
    shape = Shape(Traffic(1024), NAMES, ("X",), "float64", 9000, K)
    header, chunk = list(codec.encode_vectors(RUN_ID, "a", [Dummy("X", 0, "float64", 9000, bytes(72_000), bytes(32))]))
    gate = receiver(shape, "a", (), 9000, 0)
    assert gate.feed(header) == []
    with pytest.raises(PeerError, match="dummy that is not zeros"):
        gate.feed(chunk[:-1] + b"\1")


# --- messages of other calls


def test_messages_of_other_calls_are_multiples_of_a_unit() -> None:
    run = make_run()
    assert (report_unit(run), reply_unit(run)) == (0, 0)
    assert in_units(convert.encode_agent_message, 0) is convert.encode_agent_message
    full = m.Resume("n" * 63, RUN_ID, 2**32 - 1, 2**32 - 1, 2**32 - 1, Prefix("X", 2**32 - 1, 2**32 - 1, bytes(32)))
    full = m.Resume(*(getattr(full, name) for name in full.__slots__[:6]), bytes(16), bytes(16))
    encode = in_units(convert.encode_exchange_reply, 256)
    for reply in (full, m.Received(1), m.Received(2**40), m.Resume("a", RUN_ID, 0, 0)):
        assert len(encode(reply)) == 256 and convert.decode_exchange_reply(encode(reply)) == reply
    done = m.Done(2**31, 2**31, 2**50, bytes(32), (2**32 - 1,) * 6, bytes(range(160)))
    for word in (done, m.Heartbeat(), m.Ready(), m.Done(0, -1, 0)):
        data = in_units(convert.encode_agent_message, 1024)(word)
        assert len(data) == 1024 and convert.decode_agent_message(data) == word
    go = in_units(convert.encode_coordinator_message, 1024)(m.GoMessage(5))
    assert len(go) == 1024 and convert.decode_coordinator_message(go) == m.GoMessage(5)
    assert coordinator_pb2.CoordinatorMessage.FromString(go).go.through == 5


def test_the_report_of_a_full_graph_is_one_unit() -> None:
    for n in (2, 5, 100):
        run = make_run()
        run = replace(run, graph=replace(run.graph, agents=tuple(map(str, range(n)))), traffic=Traffic(64))
        words = bytes(16 * 2 * n)
        done = m.Done(10**7, 10**7, 2**63, bytes(32), (2**32 - 1,) * 6, words)
        assert len(in_units(convert.encode_agent_message, report_unit(run))(done)) == report_unit(run)
