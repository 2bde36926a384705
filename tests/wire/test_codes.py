"""Integers over the wire: what a code stands for, which integers carry it, and what the gate refuses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dpgt_node.errors import PeerError
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Codes
from dpgt_node.wire import codec, overheard, transcript
from dpgt_node.wire.codec import Gate, Reassembler, encode_vectors
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2
from dpgt_node.wire.traffic import small
from dpgt_node.wire.transcript_writer import TranscriptWriter
from tests.oracles.gate import Expectation, Judge
from tests.wire.vectors import RUN_ID, SENDER, feed_all, gate, payload

SMALL, MIDDLE, LARGE = Codes(0.25, -3.0, -5, 100), Codes(2.0**-7, 0.0, 0, 7298), Codes(1e-3, 0.0, -(2**31), 2**31 - 1)
EVERY = (SMALL, MIDDLE, LARGE)
NUMBER = {"int8": 3, "int16": 4, "int32": 5}


def coded(codes: Codes, k: int, d: int, seed: int = 0) -> Payload:
    whole = np.random.default_rng([seed, k]).integers(codes.low, codes.high, d, endpoint=True)
    whole[:2] = codes.low, codes.high
    data = whole.astype(np.dtype(codes.dtype).newbyteorder("<")).tobytes()
    return Payload("X", k, codes.dtype, d, data, hashlib.sha256(data).digest(), codes)


def coded_gate(codes: Codes, d: int) -> Gate:
    return Gate(RUN_ID, SENDER, frozenset({"X"}), codes.dtype, d, lambda _: (0, 10), codes=codes)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(-128, 127, "int8"), (0, 128, "int16"), (-129, 0, "int16"), (0, 32_768, "int32"), (-(2**31), 2**31 - 1, "int32")],
)
def test_the_narrowest_integers_that_hold_the_range(low: int, high: int, dtype: str) -> None:
    assert Codes(1.0, 0.0, low, high).dtype == dtype


@pytest.mark.parametrize("case", [(1.0, 0.0, 1, 0), (1.0, 0.0, 0, 2**31), (0.0, 0.0, 0, 1), (1.0, np.inf, 0, 1)])
def test_codes_that_are_none(case: tuple[float, float, int, int]) -> None:
    with pytest.raises(ValueError, match="codes"):
        Codes(*case)


@pytest.mark.parametrize("codes", EVERY)
def test_every_code_comes_back_from_what_it_stands_for(codes: Codes) -> None:
    whole = np.unique(np.linspace(codes.low, codes.high, 100_001).astype(np.int64))
    assert np.array_equal(codes.nearest(codes.values(whole)), whole)
    assert np.isnan(codes.values(np.array([np.nan]))).all()


@pytest.mark.parametrize("d", [2, 5000, 70_000, 600_000])
@pytest.mark.parametrize("codes", EVERY)
def test_codes_arrive_bit_for_bit_and_stand_for_their_numbers(codes: Codes, d: int) -> None:
    sent = [coded(codes, k, d) for k in range(2)]
    reassembler = Reassembler(coded_gate(codes, d))
    for one in sent:
        assert one.nbytes == d * int(codes.dtype[3:]) // 8
        (got,) = feed_all(reassembler, encode_vectors(RUN_ID, SENDER, [one]))
        assert got == one
        raw = np.frombuffer(got.data, dtype=np.dtype(codes.dtype).newbyteorder("<"))
        assert np.array_equal(got.array(), codes.offset + codes.step * raw.astype(np.float64))


@pytest.mark.parametrize("d", [4, 200_000])
@pytest.mark.parametrize("codes", [SMALL, MIDDLE])
@pytest.mark.parametrize("above", [True, False])
def test_a_code_outside_the_range_is_refused(codes: Codes, above: bool, d: int) -> None:
    wide = Codes(codes.step, codes.offset, codes.low - (not above), codes.high + above)
    frames = list(encode_vectors(RUN_ID, SENDER, [coded(wide, 0, d)]))
    expected = f"X of round 0 from {SENDER} holds a code outside {codes.low} to {codes.high}"
    with pytest.raises(PeerError, match=expected) as caught:
        feed_all(Reassembler(coded_gate(codes, d)), frames)
    assert caught.value.grpc_status == "INVALID_ARGUMENT"


def test_numbers_and_codes_do_not_pass_for_each_other() -> None:
    """A peer that knows no codes sends, and takes, numbers: it is told which dtype was expected."""
    (numbers,) = encode_vectors(RUN_ID, SENDER, [payload("X", 0, 4, "float32")])
    with pytest.raises(PeerError, match=r"dtype number 2 \(float32\), this run has int32"):
        Reassembler(coded_gate(LARGE, 4)).feed(numbers)
    (integers,) = encode_vectors(RUN_ID, SENDER, [coded(LARGE, 0, 4)])
    with pytest.raises(PeerError, match=r"dtype number 5 \(int32\), this run has float32"):
        Reassembler(gate(4, "float32")).feed(integers)
    with pytest.raises(AssertionError):
        Gate(RUN_ID, SENDER, frozenset({"X"}), "int16", 4, lambda _: (0, 10), codes=SMALL)
    with pytest.raises(AssertionError):
        Gate(RUN_ID, SENDER, frozenset({"X"}), "int8", 4, lambda _: (0, 10))


def agree(codes: Codes, d: int, rng: Random) -> bool:
    """The codec and the dumb gate on some frames, one of them often changed; whether they agree."""
    above = rng.random() < 0.5
    low, high = max(codes.low - (not above), -(2**31)), min(codes.high + above, 2**31 - 1)
    wide = Codes(codes.step, codes.offset, low, high)
    sent = coded(codes if rng.random() < 0.6 or wide.dtype != codes.dtype else wide, 0, d, seed=rng.randrange(50))
    frames = [bytes(frame) for frame in encode_vectors(RUN_ID, SENDER, [sent])]
    if rng.random() < 0.6:
        at = rng.randrange(len(frames))
        changed = bytearray(frames[at])
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        frames[at] = bytes(changed)
    if rng.random() < 0.2:
        message = agent_pb2.Frame.FromString(next(iter(encode_vectors(RUN_ID, SENDER, [sent]))))
        message.vectors[0].dtype = rng.randrange(7)  # type: ignore[assignment]
        frames[0] = message.SerializeToString()
    judge = Judge(
        Expectation(RUN_ID, SENDER, {1: ("X", 0)}, 10, NUMBER[codes.dtype], d, False, codes=(codes.low, codes.high))
    )
    reassembler = Reassembler(coded_gate(codes, d))
    for frame in frames:
        try:
            got = [(p.stream, p.k, bytes(p.data)) for p in reassembler.feed(frame)]
        except PeerError:
            return judge.judge(frame) is None
        if judge.judge(frame) != got:
            return False
    return True


@pytest.mark.parametrize("codes", EVERY)
def test_the_gate_is_the_dumb_one_on_changed_frames(codes: Codes) -> None:
    rng = Random(7)
    assert all(agree(codes, rng.choice((2, 9, 9, 9, 70_000)), rng) for _ in range(80))


@pytest.mark.parametrize(
    "mutant",
    [
        lambda values, codes: True,
        lambda values, codes: bool(values.size == 0 or values.max() <= codes.high),
        lambda values, codes: bool(values.size == 0 or codes.low <= values.min()),
        lambda values, codes: bool(values.size == 0 or codes.low < values.min() <= values.max() <= codes.high),
    ],
)
def test_a_gate_with_another_range_is_noticed(
    mutant: Callable[[np.ndarray, Codes], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (codec, small):
        monkeypatch.setattr(module, "valid", mutant)
    rng = Random(7)
    assert not all(agree(SMALL, rng.choice((2, 9)), rng) for _ in range(150))


@pytest.mark.parametrize("d", [6, 70_000])
def test_a_tap_and_a_transcript_keep_codes(d: int, tmp_path: Path) -> None:
    sent = coded(MIDDLE, 3, d)
    frame = next(iter(encode_vectors(RUN_ID, SENDER, [sent])))
    (head,) = overheard.read_vectors(memoryview(frame))
    assert (head.dtype, head.nbytes) == ("int16", 2 * d)
    path = tmp_path / "t"
    with TranscriptWriter(path, transcript.Header("semi-honest", ("b",), run_id=RUN_ID)) as writer:
        writer.write(transcript.seen(SENDER, "b", 3, "X", "int16", sent.data, sha256=sent.sha256))
        writer.write(transcript.seen(SENDER, "b", 4, "X", "int16", sent.data, sha256=sent.sha256, missing=((3, 5),)))
    whole, torn = transcript.Transcript(path)
    assert whole.complete and np.array_equal(MIDDLE.values(whole.array()), sent.array())
    expected = sent.array()
    expected[1:3] = np.nan
    assert np.array_equal(MIDDLE.values(torn.array()), expected, equal_nan=True)
