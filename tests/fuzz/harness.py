"""One input through the decoders, with everything that must hold checked; AssertionError when it does not.

* Nothing but PeerError escapes, with a gRPC status and one printable line that fits it.
* Vectors: exactly those are delivered, frame by frame, that the dumb judge of ``tests/oracles/gate.py`` accepts, with
  the bytes that were sent; after a refusal nothing is delivered any more.
* Messages: what is accepted has no NaN, no text of several lines, and means the same after it was encoded again.
* Work and memory are bounded by the size of the input (``bounded``, for a sample: it is slow).
"""

from __future__ import annotations

import dataclasses
import math
import sys
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from dpgt_node.errors import PeerError
from dpgt_node.types import Stream
from dpgt_node.wire import codec as real_codec
from dpgt_node.wire.kept import Kept
from tests.fuzz.cases import BREAK, DECODERS, PROFILES, Profile, kind_of, split
from tests.oracles.gate import Judge

MAX_ERROR = 400
FRAMES_AFTER = 2  # frames that are still tried after a refusal
ALLOWANCE_BYTES = 150_000  # interpreter noise, and protobuf's own objects for a header frame


@dataclass(frozen=True)
class Outcome:
    """``header``: at least one header (or the message itself) broke no rule.  ``taken``: vectors or messages."""

    vectors: bool
    header: bool
    taken: int
    refused: bool


def check(data: bytes, codec: Any = real_codec) -> Outcome:
    """Run one input."""
    kind = kind_of(data)
    return _call(data, kind, codec) if kind < len(PROFILES) else _message(data, kind - len(PROFILES))


def _call(data: bytes, kind: int, codec: Any) -> Outcome:
    profile = PROFILES[kind]
    kept = Kept()
    reassembler = codec.Reassembler(profile.gate(codec), kept)
    judge = Judge(profile.expectation())
    taken, after = 0, 0
    for frame in split(data):
        if frame == BREAK:
            reassembler, after = _next_call(profile, judge, codec, kept), 0
            continue
        after += judge.dead
        if after > FRAMES_AFTER:
            break
        expected = judge.judge(frame)
        try:
            got = reassembler.feed(frame)
        except PeerError as error:
            _one_line(error)
            assert expected is None, f"refused what the judge accepts: {error}"
            continue
        assert expected is not None, "delivered or passed over what the judge refuses"
        assert [(p.stream, p.k, bytes(p.data)) for p in got] == expected
        for payload in got:
            assert (payload.dtype, payload.dimension) == (profile.dtype, profile.dimension)
            payload.array()
        taken += len(got)
    if not judge.dead:
        assert (reassembler.finish() is None) == (judge.open is None)
    return Outcome(True, judge.headers > 0, taken, judge.dead)


def _next_call(profile: Profile, judge: Judge, codec: Any, kept: Kept) -> Any:
    told = judge.broke()
    lacks: dict[Stream, int] = {
        stream: judge.following.get(number, k) for number, (stream, k) in judge.expect.streams.items()
    }
    if profile.study:
        return codec.Reassembler(profile.gate(codec, lacks))
    reassembler = codec.Reassembler(profile.gate(codec, lacks), kept)
    prefix = kept.prefix(lacks)
    number = {"X": 1, "Y": 2}
    assert told == (prefix and (number[prefix.stream], prefix.k, prefix.nbytes, prefix.sha256))
    return reassembler


def _message(data: bytes, index: int) -> Outcome:
    decoder = DECODERS[index]
    try:
        value = decoder.decode(data[1:])
    except PeerError as error:
        _one_line(error)
        return Outcome(False, False, 0, True)
    for leaf in _leaves(value):
        assert not (isinstance(leaf, float) and math.isnan(leaf))
    for name, text in _texts(value):
        assert text.isprintable(), f"{name} is more than a line: {text!r}"
        assert len(text) <= 1000
    assert decoder.decode(decoder.encode(value)) == value
    return Outcome(False, True, 1, False)


def _one_line(error: PeerError) -> None:
    assert grpc.StatusCode[error.grpc_status] is not grpc.StatusCode.OK
    text = str(error)
    assert text.isprintable() and 0 < len(text) <= MAX_ERROR, text


def _leaves(value: object) -> Iterator[object]:
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text but the run file, which is long and has its own reader; ``name``: of the field it is in."""
    if isinstance(value, str):
        yield name, value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name != "run_json":
                yield from _texts(getattr(value, field.name), field.name)
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _texts(pair, name)
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item, name)


# --- bounds, for a sample ---------------------------------------------------------------------------------------------


def feed_only(data: bytes) -> None:
    """The decoders alone, without what checks them."""
    kind = kind_of(data)
    try:
        if kind >= len(PROFILES):
            DECODERS[kind - len(PROFILES)].decode(data[1:])
            return
        reassembler = real_codec.Reassembler(PROFILES[kind].gate(real_codec))
        for frame in split(data):
            reassembler.feed(frame)
    except PeerError:
        return


def bounded(data: bytes) -> None:
    """Memory at its peak and the number of Python calls, each against a bound that is linear in the input's size.

    A declaration of any size is a few bytes of input: nothing may be allocated for it.
    """
    vector = PROFILES[kind_of(data)].nbytes if kind_of(data) < len(PROFILES) else 0
    tracemalloc.start()
    try:
        feed_only(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= ALLOWANCE_BYTES + 20 * len(data) + 2 * vector, f"{peak} bytes for an input of {len(data)}"
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        feed_only(data)
    finally:
        sys.setprofile(None)
    assert calls <= 500 + 20 * len(data), f"{calls} calls for an input of {len(data)} bytes"
