"""Inputs that are nearly right: valid calls and messages, and changes to one field, frame or value of them.

Bytes changed at random die in the parser or at the first comparison.  These get past the header, because all but one
thing is right: protobuf is taken apart, one field becomes something of its own type (limits, lengths, names, NaN), and
it is put together again, with a hash and sizes that match where that is what it takes to get further.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.liveness import Down, EdgeReport, Lack
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Stream
from dpgt_node.wire import codec
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2
from tests.fuzz.cases import (
    BREAK,
    CHUNK_BYTES,
    DECODERS,
    KINDS,
    MAX_FRAMES,
    PROFILES,
    RUN_ID,
    SENDER,
    join,
    kind_of,
    small_limits,
    split,
)

HEX = "0123456789abcdef" * 4
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1.0 + 2**-50, 1e308, 5e-324, math.inf, -math.inf, math.nan)
TEXTS = (
    "", "x", "agent-1", "agent-2", "Agent-1", "a" * 63, "a" * 64, "a.b_c-d", "-a", "agent 1", "agent-1\n", "é",
    "\x00", "a\nERROR the run is over", "\x1b[2J", "a" * 1000, "a" * 1001, HEX, HEX.upper(), HEX[:-1], "{}",
    "127.0.0.1:1", "[::1]:65535", "host:0", "host:65536", "host:000080", "host:00008099999", ":1", "host", "a b:1",
    "finished", "stopped", "running", "Running", "lemma5", "gdp", "\u2028", "\u202e", "a:" + "9" * 5000,
    "1" * 300 + ":1",
)  # fmt: skip
SIZES = (0, 1, 15, 16, 17, 31, 32, 33, 64, 200)


def whole(low: int, high: int) -> tuple[int, ...]:
    near = (-1, 0, 1, 2, 3, 4, 5, 8, 9, 10, 20, 32, 33, 100, 101, 160, 255, 256, 2**31, 2**32 - 1, 2**32, 2**53, 2**63)
    return tuple(v for v in (*near, low, high, high // 8) if low <= v <= high)


_WHOLE = {
    FieldDescriptor.TYPE_UINT32: whole(0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: whole(0, 2**64 - 1),
    FieldDescriptor.TYPE_INT64: whole(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_ENUM: whole(-(2**31), 2**31 - 1),
}


# --- any message ------------------------------------------------------------------------------------------------------


def scalar(field: FieldDescriptor, rng: Random) -> Any:
    """Some value of the field's type."""
    if field.type in _WHOLE:
        return rng.choice(_WHOLE[field.type]) if rng.random() < 0.9 or field.type == FieldDescriptor.TYPE_ENUM else (
            rng.randrange(2**31)
        )  # fmt: skip
    if field.type == FieldDescriptor.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return rng.choice(REALS)
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(TEXTS)
    return rng.choice((RUN_ID, rng.randbytes(rng.choice(SIZES))))


def change_field(message: Any, rng: Random) -> None:
    """Change one field of ``message`` or of a message inside it."""
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    field = rng.choice(fields)
    present = [f for f, _ in message.ListFields()]
    if present and rng.random() < 0.7:
        field = rng.choice(present)
    inner = field.type == FieldDescriptor.TYPE_MESSAGE
    value = getattr(message, field.name)
    if field.is_repeated:
        if inner and field.message_type.GetOptions().map_entry:
            if rng.random() < 0.3 and value:
                del value[rng.choice(sorted(value))]
            else:
                value[rng.choice(TEXTS)] = scalar(field.message_type.fields_by_name["value"], rng)
            return
        act = rng.randrange(4)
        if not inner:
            if value and act == 1:
                del value[rng.randrange(len(value))]
            else:
                value.append(scalar(field, rng))
        elif act == 0 or not value:
            value.add()
        elif act == 1:
            del value[rng.randrange(len(value))]
        elif act == 2:
            value.append(rng.choice(list(value)))
        else:
            change_field(rng.choice(list(value)), rng)
    elif inner:
        if message.HasField(field.name) and rng.random() < 0.15:
            message.ClearField(field.name)
        else:
            value.SetInParent()
            change_field(value, rng)
    elif rng.random() < 0.1:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, scalar(field, rng))


# --- valid ones -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _payload(stream: Stream, k: int, profile: int, variant: int) -> Payload:
    """Values by ``variant``: ordinary ones, edges of the format, or one that is not finite."""
    p = PROFILES[profile]
    rng = Random(f"{stream}{k}{profile}{variant}")
    values = [rng.uniform(-2, 2) for _ in range(p.dimension)]
    special = {4: math.nan, 5: math.inf, 6: -math.inf, 7: 0.0, 8: -0.0, 9: 1e-310, 10: 3e38}
    if variant in special:
        values[rng.randrange(p.dimension)] = special[variant]
    data = struct.pack(f"<{p.dimension}{'d' if p.dtype == 'float64' else 'f'}", *values)
    return Payload(stream, k, p.dtype, p.dimension, data, hashlib.sha256(data).digest())


def _round(profile: int, k: int, rng: Random, streams: tuple[Stream, ...] | None = None) -> list[bytes]:
    p = PROFILES[profile]
    names = streams or tuple(s for s, first in p.first.items() if k >= first) or tuple(p.first)
    variant = rng.randrange(12) if rng.random() < 0.2 else rng.randrange(4)
    payloads = [_payload(name, k, profile, variant) for name in names]
    return _frames(tuple(payloads), p.study)


@lru_cache(maxsize=4096)
def _frames_cached(payloads: tuple[Payload, ...], study: bool) -> tuple[bytes, ...]:
    with small_limits(codec):
        return tuple(codec.encode_vectors(RUN_ID, SENDER, payloads, study=study))


def _frames(payloads: tuple[Payload, ...], study: bool) -> list[bytes]:
    return list(_frames_cached(payloads, study))


def call(profile: int, rng: Random) -> list[bytes]:
    """The frames of some rounds from the first on, all right but for the odd value that is not finite."""
    p = PROFILES[profile]
    k = min(p.first.values())
    frames: list[bytes] = []
    for _ in range(rng.randint(1, 3)):
        frames += _round(profile, k, rng)
        k += 1 if not p.study else rng.randint(1, 40)
    return frames


def _epsilon(rng: Random) -> dict[str, float | None]:
    return {name: rng.choice((None, 0.0, 1.5, math.inf)) for name in ACCOUNTANTS}


def _metrics(rng: Random) -> m.MetricsReport:
    return m.MetricsReport(rng.randrange(9), rng.choice((None, 0.3)), None, 0.5, 0.1, _epsilon(rng))


def _offer(rng: Random) -> m.KeyOffer:
    return m.KeyOffer(f"agent-{rng.randint(1, 3)}", rng.randbytes(32), rng.randbytes(700), rng.randbytes(71))


_MESSAGES: tuple[tuple[Callable[[Random], Any], ...], ...] = (
    (
        lambda r: m.Done(r.randrange(9), r.randrange(-1, 9), r.randrange(10**9)),
        lambda r: m.Heartbeat(),
        _metrics,
        lambda r: m.Register(
            "agent-1", HEX, '{"a": 1}', "127.0.0.1:7", r.choice((None, 5)), 4, HEX, 3, 2, 1, True,
            r.choice((b"", RUN_ID)), RUN_ID, "0.1.0",
        ),
        lambda r: m.Ready(),
        lambda r: m.FinishedReport("finished", 8, 99, _epsilon(r), _metrics(r)),
        lambda r: m.Refusal("policy", "no"),
        lambda r: m.Failed(70, "a bug"),
        lambda r: EdgeReport(3, 9, (Lack("agent-1", r.choice((None, 5))),), (Down("agent-2", 7, "no route"),)),
        lambda r: _offer(r),
        lambda r: m.KeyProofs({f"agent-{i}": r.randbytes(32) for i in (2, 3)}),
    ),
    (
        lambda r: m.GoMessage(r.randrange(99)),
        lambda r: m.AllDurableMessage(r.randrange(-1, 99)),
        lambda r: m.Heartbeat(),
        lambda r: m.Welcome(RUN_ID, HEX, "{}", 3, "0.1.0"),
        lambda r: m.Refused("data", "no"),
        lambda r: m.Start({"agent-1": "127.0.0.1:7", "agent-2": "[::1]:8"}, -1),
        lambda r: m.StopMessage("enough", 5),
        lambda r: m.Goodbye(),
        lambda r: m.KeyRing(tuple(_offer(r) for _ in range(3))),
        lambda r: m.KeyProof("agent-2", r.randbytes(32)),
    ),
    (
        lambda r: m.Received(r.randrange(99)),
        lambda r: m.Resume("agent-2", RUN_ID, 3, 4),
        lambda r: m.Resume("agent-2", RUN_ID, 3, 4, 1, m.Prefix("Y", 3, r.randrange(1, 99), r.randbytes(32))),
    ),
    (lambda r: m.UploadReply(r.randrange(99)),),
    (lambda r: m.StatusRequest(r.getrandbits(64)),),
    (
        lambda r: m.StatusReply(
            "running", 3, 9, RUN_ID, "a run", 1.5,
            (m.AgentStatus("agent-1", True, 3, 0.5, 0.9, 1.0), m.AgentStatus("agent-2", False, -1)),
            0.1, "waiting for agent-2", "gdp", 1e-5, "one record",
        ),
    ),
    (lambda r: m.ControlRequest(r.choice(("pause", "resume", "stop")), "because"),),
    (lambda r: m.ControlReply(True, "paused"),),
)  # fmt: skip


def generate(rng: Random) -> bytes:
    """An input that is right."""
    kind = rng.randrange(KINDS)
    if kind < len(PROFILES) or rng.random() < 0.4:
        profile = kind % len(PROFILES)
        return join(profile, call(profile, rng))
    index = kind - len(PROFILES)
    return bytes((kind,)) + DECODERS[index].encode(rng.choice(_MESSAGES[index])(rng))


# --- changes ----------------------------------------------------------------------------------------------------------


def mutate(data: bytes, rng: Random, scramble: Callable[[bytes, Random], bytes] | None = None) -> bytes:
    """``data`` with one to three changes; ``scramble`` changes raw bytes (default: a byte or two)."""
    if not data or rng.random() < 0.15:
        data = generate(rng)
    scramble = scramble or _scramble
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = kind_of(data)
        if rng.random() < 0.04:
            data = scramble(data, rng) or data
        elif kind < len(PROFILES):
            frames = split(data) or call(kind, rng)
            _change_frames(kind, frames, rng, scramble)
            data = join(kind, frames[:MAX_FRAMES])
        else:
            data = data[:1] + _change_message(data[1:], DECODERS[kind - len(PROFILES)].message, rng, scramble)
    return data


def _change_message(data: bytes, cls: Any, rng: Random, scramble: Callable[[bytes, Random], bytes]) -> bytes:
    if rng.random() < 0.1:
        return scramble(data, rng)
    try:
        message = cls.FromString(data)
    except DecodeError:
        return scramble(data, rng)
    change_field(message, rng)
    out: bytes = message.SerializeToString()
    if rng.random() < 0.02:
        out += out  # protobuf merges: the last of each field counts
    return out


def _change_frames(kind: int, frames: list[bytes], rng: Random, scramble: Callable[[bytes, Random], bytes]) -> None:
    p = PROFILES[kind]
    at = rng.randrange(len(frames))
    last = max(min(p.first.values()), _last_round(frames))
    match rng.randrange(14):
        case 13:
            _break_off(frames, rng)
        case 12:
            _build(kind, frames, rng)
        case 0 | 1:  # what comes next
            frames += _round(kind, last + 1, rng)
        case 2:
            frames.insert(at, frames[rng.randrange(len(frames))])  # twice, or out of order
        case 3:
            del frames[at]
        case 4:
            frames[at] = scramble(frames[at], rng)
        case 5:
            frames += _round(rng.randrange(len(PROFILES)), last + rng.choice((0, 1, 2)), rng)  # another call's
        case 6:
            frames += _round(kind, last + 1, rng, rng.choice((("X",), ("Y",), ("X", "Y"), ("X", "X"), ("Y", "Y"))))
        case 7 if frames[at][:1] == b"\x12":
            _cut_elsewhere(frames, at, rng)
        case 7 | 8:
            frames[at] = scramble(frames[at], rng) if rng.random() < 0.2 else _change_vector(frames[at], rng, "field")
        case 9:
            frames[at] = _change_vector(frames[at], rng, "value")
        case _:
            frames[at] = _change_vector(frames[at], rng, rng.choice(("field", "value", "any")))


def _break_off(frames: list[bytes], rng: Random) -> None:
    """The call ends behind a header or a chunk; another one goes on from there, mostly where it should."""
    headers = [at for at, frame in enumerate(frames[:-1]) if frame[:1] == b"\x0a" and frames[at + 1][:1] == b"\x12"]
    if not headers:
        frames.insert(rng.randrange(len(frames) + 1), BREAK)
        return
    begin = rng.choice(headers)
    end = begin + 1
    while end < len(frames) and frames[end][:1] == b"\x12":
        end += 1
    cut = rng.randrange(begin + 1, end + 1)
    received = sum(len(frame) - 2 for frame in frames[begin + 1 : cut])
    try:
        message = agent_pb2.Frame.FromString(frames[begin])
    except DecodeError:
        return
    if not message.vectors:
        return
    message.vectors[0].from_byte = max(0, received + rng.choice((0, 0, 0, 0, 0, -received, -received, 1, -1)))
    if rng.random() < 0.1:
        message.vectors[0].sha256 = rng.randbytes(32)
    again = frames[begin + 1 : end] if not message.vectors[0].from_byte else frames[cut:end]
    frames[cut:end] = [BREAK, message.SerializeToString(), *again]


def _build(kind: int, frames: list[bytes], rng: Random) -> None:
    """What no encoder writes: several rounds in a frame, a large vector inline, a length with a byte too many, ..."""
    p = PROFILES[kind]
    numbers: dict[int, Stream] = {3: "X"} if p.study else {1: "X", 2: "Y"}
    following = {stream: p.first.get(stream, 0) for stream in numbers.values()}
    for vector in _vectors(frames):
        stream = numbers.get(vector.stream)
        if stream is not None:
            following[stream] = min(int(vector.round), 200) + 1
    chunks = [at for at, frame in enumerate(frames) if frame[:1] == b"\x12" and len(frame) > 2]
    match rng.randrange(6):
        case 0 | 1:  # the next of each stream, whatever their rounds, and perhaps one more
            names = [*p.first, *(rng.choice(tuple(p.first)) for _ in range(rng.randrange(3)))]
            frame = agent_pb2.Frame()
            for name in names:
                for vector in _vectors(_frames((_payload(name, following[name], kind, 0),), p.study)):
                    frame.vectors.add().CopyFrom(vector)
                following[name] += 1
            frames.append(frame.SerializeToString())
        case 2:
            name = rng.choice(tuple(p.first))
            payload = _payload(name, following[name], kind, rng.randrange(12))
            frame = agent_pb2.Frame.FromString(_frames((payload,), p.study)[0])
            frame.vectors[0].data = bytes(payload.data)
            frames.append(frame.SerializeToString())
        case 3 if chunks:
            at = rng.choice(chunks)
            frames[at] = bytes((0x12, frames[at][1] | 0x80, 0)) + frames[at][2:]
        case 4:  # cut inside a value that is not finite
            name = rng.choice(tuple(p.first))
            head, *body = _frames((_payload(name, following[name], kind, rng.choice((4, 5, 6))),), p.study)
            data = b"".join(frame[2:] for frame in body)
            size = rng.randint(CHUNK_BYTES // 3, CHUNK_BYTES)
            cut = [data[at : at + size] for at in range(0, len(data), size)]
            frames += [head, *(agent_pb2.Frame(chunk=piece).SerializeToString() for piece in cut)]
        case _:  # a field of a later version, of any size
            at = rng.randrange(len(frames))
            pad = rng.randbytes(rng.choice((1, 100, 2300)))
            frames[at] += b"\x1a" + (bytes((len(pad) & 0x7F | 0x80, len(pad) >> 7))) + pad


def _vectors(frames: list[bytes]) -> list[Any]:
    found: list[Any] = []
    for frame in frames:
        if frame[:1] == b"\x0a":
            try:
                found += agent_pb2.Frame.FromString(frame).vectors
            except DecodeError:
                continue
    return found


def _last_round(frames: list[bytes]) -> int:
    vectors = _vectors(frames)
    return min(int(vectors[-1].round), 200) if vectors else -1


def _change_vector(frame: bytes, rng: Random, what: str) -> bytes:
    """One field of a header; or a value, with the hash that belongs to it; or anything in the frame."""
    try:
        message = agent_pb2.Frame.FromString(frame)
    except DecodeError:
        return frame
    if not message.vectors or what == "any":
        change_field(message, rng)
        return message.SerializeToString()
    vector = rng.choice(list(message.vectors))
    if what == "field":
        change_field(vector, rng)
        return message.SerializeToString()
    data = bytearray(vector.data)
    if data:
        width = 8 if vector.dtype == agent_pb2.FLOAT64 else 4
        at = rng.randrange(max(1, len(data) // width)) * width
        data[at : at + width] = struct.pack("<d" if width == 8 else "<f", _narrow(rng.choice(REALS), width))
        if rng.random() < 0.2:
            del data[len(data) - rng.randrange(1, 9) :]
    vector.data = bytes(data)
    if rng.random() < 0.8:
        vector.sha256 = hashlib.sha256(vector.data).digest()
    return message.SerializeToString()


def _narrow(value: float, width: int) -> float:
    return value if width == 8 or not math.isfinite(value) or abs(value) < 1e38 else 1e38


def _cut_elsewhere(frames: list[bytes], at: int, rng: Random) -> None:
    """The same bytes in other chunks, or a chunk with a value that is not finite."""
    body = bytearray(frames[at][2:])
    if len(body) >= 8 and rng.random() < 0.2:
        body[-8:] = struct.pack("<d", rng.choice(REALS))
    if len(body) < 2:
        return
    cut = rng.randrange(1, len(body))
    pieces = [bytes(body[:cut]), bytes(body[cut:])]
    if rng.random() < 0.1:
        pieces = [bytes(body) + b"0" * rng.choice((1, CHUNK_BYTES))]
    frames[at : at + 1] = [agent_pb2.Frame(chunk=piece).SerializeToString() for piece in pieces]


def _scramble(data: bytes, rng: Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(4):
            case 0:
                out[at:at] = rng.randbytes(rng.randint(1, 8))
            case 1:
                del out[at : at + rng.randint(1, 8)]
            case 2 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case _ if at < len(out):
                out[at] = rng.choice((0, 1, 0x0A, 0x12, 0x7F, 0x80, 0xFF))
            case _:
                del out[at:]
    return bytes(out)
