"""Hot paths of the wire: microseconds a call, and how many times that is a hash of the same vectors.

A frame holds X and Y of one round, float64; the large vector is one X, float32, in chunks of 1 MiB.  Decoding includes
every check of the gate.  The last table sends it from one process to another, which hashes and checks it as a daemon
does; processor time is of both ends, on average.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from dpgt_node.bench.figures import Around, Row, Spread, Value, in_turn, option
from dpgt_node.bench.loopback import RAW, measure
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.types import Payload
from dpgt_node.types import Stream, WireDtype
from dpgt_node.values import dataclass
from dpgt_node.wire import convert
from dpgt_node.wire.codec import Gate, Reassembler, encode_vectors

RUN_ID = bytes(16)
HASH = "sha256 of the same vectors"


@dataclass(frozen=True, slots=True)
class Settings:
    dimension: int = option(100, "Coordinates of the small vectors.", least=1)
    large: int = option(11_175_370, "Coordinates of the large one.", least=1)
    repeat: int = option(30, "Measurements of each.", least=1)
    number: int = option(1000, "Calls in each measurement of a small one.", least=1)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    small, large = _small(settings.dimension), _large(settings.large)
    yield from _rows(f"X and Y of d = {settings.dimension}, float64", small, settings.repeat, settings.number)
    yield from _rows(f"X of d = {settings.large:,}, float32", large, settings.repeat, 1)
    with around.temporary() as folder:
        sent = payload("X", settings.large, "float32")
        found = measure(folder, [replace(sent, k=k) for k in range(settings.repeat + 1)])
    yield from _sent(f"X of d = {settings.large:,}, float32, over loopback", found)


def _rows(table: str, jobs: dict[str, Callable[[], object]], repeat: int, number: int) -> Iterator[Row]:
    seconds = in_turn(jobs, repeat, number)
    for name, each in seconds.items():
        ratio = Spread.ratio(each, seconds[HASH])
        yield Row(table, {"": name, "microseconds": Spread.over(each, 1e6), "times the hash": ratio})


def _sent(table: str, found: dict[str, list[tuple[float, float]]]) -> Iterator[Row]:
    each = {way: values[1:] for way, values in found.items()}  # the first is for caches
    cpu = {way: statistics.mean(used for _, used in values) for way, values in each.items()}
    for way, values in each.items():
        seconds, raw = [s for s, _ in values], [s for s, _ in each[RAW]]
        cells: dict[str, Value] = {
            "": way,
            "ms": Spread.over(seconds, 1e3),
            "times raw TCP": Spread.ratio(seconds, raw),
        }
        yield Row(table, {**cells, "processor ms": 1e3 * cpu[way]})


def _small(d: int) -> dict[str, Callable[[], object]]:
    pair = (payload("X", d, "float64"), payload("Y", d, "float64"))
    (frame,) = encode_vectors(RUN_ID, "agent-1", pair)
    done, go = m.Done(7, 6, 123_456), m.GoMessage(8)
    done_bytes, go_bytes = convert.encode_agent_message(done), convert.encode_coordinator_message(go)
    return {
        HASH: lambda: [hashlib.sha256(one.data).digest() for one in pair],
        "encode the frame": lambda: next(encode_vectors(RUN_ID, "agent-1", pair)),
        "decode the frame": lambda: Reassembler(gate(d, "float64")).feed(frame),
        "encode Done": lambda: convert.encode_agent_message(done),
        "decode Done": lambda: convert.decode_agent_message(done_bytes),
        "encode Go": lambda: convert.encode_coordinator_message(go),
        "decode Go": lambda: convert.decode_coordinator_message(go_bytes),
    }


def _large(d: int) -> dict[str, Callable[[], object]]:
    sent = payload("X", d, "float32")
    frames = list(encode_vectors(RUN_ID, "agent-1", [sent]))

    def encode() -> None:
        for _ in encode_vectors(RUN_ID, "agent-1", [sent]):
            pass

    def decode() -> None:
        reassembler = Reassembler(gate(d, "float32"))
        for frame in frames:
            reassembler.feed(frame)

    return {HASH: lambda: hashlib.sha256(sent.data).digest(), "encode": encode, "decode": decode}


def payload(stream: Stream, d: int, dtype: WireDtype, k: int = 0) -> Payload:
    """Of ``d`` normal numbers, in round ``k``."""
    values = np.random.default_rng((k, stream == "Y")).normal(size=d)
    data = values.astype("<f8" if dtype == "float64" else "<f4").tobytes()
    return Payload(stream, k, dtype, d, data, hashlib.sha256(data).digest())


def gate(d: int, dtype: WireDtype) -> Gate:
    """Of agent-1's edge, open for ten rounds."""
    return Gate(RUN_ID, "agent-1", frozenset({"X", "Y"}), dtype, d, lambda _: (0, 10))
