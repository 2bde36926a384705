"""Small vectors by hand: the bytes are protobuf's, and the short way takes what the long way takes, no more."""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpgt_node.errors import PeerError
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Codes, Stream, WireDtype
from dpgt_node.wire import codec
from dpgt_node.wire.fields import varint
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2
from dpgt_node.wire.traffic import small
from dpgt_node.wire.traffic.room import Limits
from tests.wire.vectors import RUN_ID, SENDER, edited, gate, payload, with_data

D = 2
K = 127  # the next round takes a byte more
Outcome = list[tuple[object, ...]]


@pytest.mark.parametrize("sender", ["a", "agent-1", "n" * 63])
@pytest.mark.parametrize("k", [0, 1, 127, 128, 300, (1 << 32) - 1])
@pytest.mark.parametrize(("d", "dtype"), [(1, "float64"), (15, "float32"), (200, "float64"), (8_192, "float64")])
def test_frames_are_those_of_protobuf(sender: str, k: int, d: int, dtype: WireDtype) -> None:
    sent = [payload("X", k, d, dtype), payload("Y", k, d, dtype)]
    for run_id, payloads in (
        *((RUN_ID, some) for some in (sent, sent[:1], sent[1:], sent[::-1], [sent[0], payload("Y", 0, d, dtype)])),
        (RUN_ID[::-1], sent),
    ):
        by_runtime = agent_pb2.Frame()
        for each in payloads:
            codec._header(by_runtime, run_id, sender, each, False).data = bytes(each.data)
        assert list(codec.encode_vectors(run_id, sender, payloads)) == [by_runtime.SerializeToString()]


def test_numbers_are_those_of_protobuf() -> None:
    around = [(1 << 7 * size) + off for size in range(1, 6) for off in (-1, 0, 1)]
    assert varint(0) == b"\0", "which protobuf would leave out"
    for value in (*range(1, 200), *range(200, 40_000, 97), *around, (1 << 63) - 1):
        assert varint(value) == agent_pb2.Vector(dimension=value).SerializeToString()[1:]


def forged(edit: Callable[[agent_pb2.Vector], None], of: int = 0) -> bytes:
    """The next frame, with one of its vectors changed."""
    return edited(whole(K), edit, of)


def whole(k: int) -> bytes:
    return next(codec.encode_vectors(RUN_ID, SENDER, [payload("X", k, D), payload("Y", k, D)]))


def frames() -> Iterator[bytes | memoryview]:
    """What may come as the frame of round ``K``: the right one, every bit of it flipped, every length, and forgeries
    that are right but for one thing.
    """
    right = whole(K)
    yield from (right, memoryview(right), b"", right + right, right + b"\0", right + b"\x12\0", b"\x0a\0" + right)
    for at in range(len(right)):
        yield right[:at]
        for bit in range(8):
            yield right[:at] + bytes((right[at] ^ 1 << bit,)) + right[at + 1 :]
    yield from (whole(K - 1), whole(K + 1), next(codec.encode_vectors(RUN_ID, "agent-2", [payload("X", K, D)])))
    x, y = payload("X", K, D), payload("Y", K, D)
    for payloads in ([x], [y], [y, x], [x, x], [x, payload("Y", K + 1, D)]):
        yield next(codec.encode_vectors(RUN_ID, SENDER, payloads))
    for of in range(2):
        for bad in (np.nan, np.inf, -np.inf, 1e308, -0.0):
            yield forged(with_data(np.array([1.0, bad]).tobytes()), of)
        for nbytes in (0, 8, 15, 17, 24):
            yield forged(with_data(bytes(nbytes)), of)
        yield forged(lambda v: setattr(v, "from_byte", 1), of)
        yield forged(lambda v: setattr(v, "sha256", v.sha256[:31]), of)
    for cut in (1, 8, 16):  # right as far as it goes
        message = agent_pb2.Frame.FromString(right)
        with_data(bytes(16 - cut))(message.vectors[1])
        whole_length = message.SerializeToString()
        head = small.Small(RUN_ID, SENDER, 2, 1, D, 16)
        start = len(right) // 2
        sha256 = hashlib.sha256(bytes(16 - cut)).digest()
        yield b"".join((right[:start], head.head(K), sha256, head.middle, bytes(16 - cut)))
        yield whole_length


@dataclass
class Window:
    """Of a gate: the ``first`` rounds of a call by stream, then rounds from 0 to ``high``."""

    first: dict[Stream, int]
    high: int = K + 5
    begun: bool = False

    def __call__(self, stream: Stream) -> tuple[int, int]:
        return 0 if self.begun else self.first[stream], self.high


FIRST: list[tuple[dict[Stream, int], int]] = [
    ({"X": K, "Y": K}, K + 5),
    ({"X": K, "Y": K}, K - 1),
    ({"X": K, "Y": K + 1}, K + 5),
    ({"X": K + 1, "Y": K}, K + 5),
    ({"X": K}, K + 5),
    ({"Y": K}, K + 5),
    ({"X": 0, "Y": 0}, K + 5),
    ({}, K + 5),
]


def fed(reassembler: codec.Reassembler, frame: bytes | memoryview) -> Outcome:
    """What comes of ``frame`` and of three good ones behind it."""
    found: Outcome = []
    for each in (frame, whole(K + 1), next(codec.encode_vectors(RUN_ID, SENDER, [payload("X", K, D)])), whole(K + 1)):
        try:
            found += [(p.stream, p.k, p.dtype, p.dimension, bytes(p.data), p.sha256) for p in reassembler.feed(each)]
        except PeerError as error:
            found.append((str(error), error.grpc_status))
    return found


def compare(module: types.ModuleType) -> int:
    """How many frames went the short way of ``module``; AssertionError where another outcome is the long way's."""
    taken = 0
    for at, (first, high) in enumerate(FIRST):
        for frame in frames() if at == 0 else [*frames()][:9] + [*frames()][-60:]:
            window = Window(first)
            opened = replace(gate(D, streams=tuple(first)), window=window)
            short, long = codec.Reassembler(opened), codec.Reassembler(opened)
            window.begun, window.high = True, high
            assert short._usual is not None
            usual = module.Usual(dict(short._usual._forms), window, "float64", D, None)
            taken += usual.read(frame, dict(short._next)) is not None
            short._usual, long._usual = usual, None
            ours, theirs = fed(short, frame), fed(long, frame)
            assert ours == theirs, (at, bytes(frame).hex())
    return taken


def test_the_short_way_takes_what_the_long_way_takes() -> None:
    assert compare(small) > 5
    assert small.valid(np.full(D, 1.7e308), None), "finite, though their sum is not"


def test_codes_go_the_short_way_too() -> None:
    codes = Codes(0.5, 0.0, -3, 3)
    for value in (-3, 3, 4, -4):
        data = bytes(np.array([0, value], dtype="i1"))
        sent = Payload("X", 1, "int8", D, data, hashlib.sha256(data).digest(), codes)
        reassembler = codec.Reassembler(
            replace(gate(D, streams=("X",), window=(1, 5)), dtype="int8", codes=codes)  # type: ignore[arg-type]
        )
        (frame,) = codec.encode_vectors(RUN_ID, SENDER, [sent])
        if abs(value) == 3:
            assert reassembler.feed(frame) == [sent]
            continue
        with pytest.raises(PeerError, match="holds a code outside -3 to 3"):
            reassembler.feed(frame)


RULES = {
    "bytes": ("if k < 1 or not isinstance(frame, bytes):", "if k < 1:"),
    "streams at one round": ("following[stream] != k or ", ""),
    "window": ("not low <= k <= high or ", ""),
    "head": ("or not frame.startswith(head, end):", "or False:"),
    "middle": ("if not frame.startswith(form.middle, start):", "if False:"),
    "length": ("len(frame) < end or ", ""),
    "hash": ("hashlib.sha256(data).digest() != sha256:", "False:"),
    "finite": ("if not valid(np.frombuffer(data, dtype=self._format), self._codes):", "if False:"),
    "end": ("if end != len(frame):", "if False:"),
    "rounds go on": ("following[stream] = k + 1", "pass"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_short_way_without_a_rule_is_found(rule: str) -> None:
    old, new = RULES[rule]
    source = inspect.getsource(small)
    assert source.count(old) == 1
    module = types.ModuleType(small.__name__)
    exec(compile(source.replace(old, new), "mutant", "exec"), module.__dict__)
    with pytest.raises((AssertionError, AttributeError, ValueError)):
        compare(module)


def inline(d: int, stream: Stream = "X", k: int = 1) -> bytes:
    """One vector in one frame, by the runtime."""
    message, sent = agent_pb2.Frame(), payload(stream, k, d)
    codec._header(message, RUN_ID, SENDER, sent, False).data = bytes(sent.data)
    return message.SerializeToString()


def test_where_other_rules_hold_there_is_no_short_way() -> None:
    """A private state is none of a neighbour's vectors, a large one comes in chunks, and frames of padding in a row
    are counted from the last vector on.
    """
    for frame, opened, words in (
        (inline(D), gate(D, streams=("X",), window=(1, 9), study=True), "stream"),
        (inline(8_193), gate(8_193, streams=("X",), window=(1, 9)), "inline data of"),
    ):
        with pytest.raises(PeerError, match=words):
            codec.Reassembler(opened).feed(frame)
    limits = Limits(frame_bytes=1 << 10, paddings=1, dummies=1, last=9)
    padded = codec.Reassembler(replace(gate(D, streams=("X",), window=(1, 9)), limits=limits))
    nothing = agent_pb2.Frame(padding=bytes(9)).SerializeToString()
    for k in range(1, 4):
        assert padded.feed(nothing) == [] and [sent.k for sent in padded.feed(inline(D, k=k))] == [k]


def test_a_stream_of_its_own() -> None:
    """An edge of one stream goes the short way from its first round on."""
    streams: tuple[Stream, ...] = ("Y",)
    reassembler = codec.Reassembler(gate(D, streams=streams, window=(0, 9)))
    for k in range(3):
        sent = payload("Y", k, D)
        assert reassembler.feed(next(codec.encode_vectors(RUN_ID, SENDER, [sent]))) == [sent]
