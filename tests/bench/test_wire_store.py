"""Hot paths of the wire and the store in microseconds (-s shows them; nothing is asserted about time)."""

from __future__ import annotations

import contextlib
import hashlib
import statistics
import time
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.protocol import messages as m
from dpgt_node.protocol.types import LedgerRow, Payload, RoundRecord
from dpgt_node.runtime.store.ledger import Terms
from dpgt_node.runtime.store.store import Durability, Store
from dpgt_node.types import Stream, WireDtype
from dpgt_node.wire import convert
from dpgt_node.wire.codec import Gate, Reassembler, encode_vectors
from tests.states import tracking

pytestmark = pytest.mark.bench
RUN = bytes(16)
TERMS = Terms("default", 1e-5, "replace-one")


def show(what: str, seconds: float) -> None:
    print(f"{what:<72} {seconds * 1e6:10.1f} us")


def best(what: str, job: Callable[[], object], number: int = 1000) -> None:
    show(what, min(timeit.repeat(job, number=number, repeat=30)) / number)


def payload(stream: Stream, k: int, d: int, dtype: WireDtype) -> Payload:
    data = np.random.default_rng(k).normal(size=d).astype("<f8" if dtype == "float64" else "<f4").tobytes()
    return Payload(stream, k, dtype, d, data, hashlib.sha256(data).digest())


def gate(d: int, dtype: WireDtype) -> Gate:
    return Gate(RUN, "agent-1", frozenset({"X", "Y"}), dtype, d, lambda _: (0, 10))


def test_small_frames() -> None:
    pair = (payload("X", 0, 100, "float64"), payload("Y", 0, 100, "float64"))
    (frame,) = encode_vectors(RUN, "agent-1", pair)
    print()
    best("frame of X and Y, d = 100, float64: encode", lambda: next(encode_vectors(RUN, "agent-1", pair)))
    best("  decode and gate", lambda: Reassembler(gate(100, "float64")).feed(frame))
    done, go = m.Done(7, 6, 123_456), m.GoMessage(8)
    done_bytes, go_bytes = convert.encode_agent_message(done), convert.encode_coordinator_message(go)
    best("Done: encode", lambda: convert.encode_agent_message(done))
    best("Done: decode", lambda: convert.decode_agent_message(done_bytes))
    best("Go: encode", lambda: convert.encode_coordinator_message(go))
    best("Go: decode", lambda: convert.decode_coordinator_message(go_bytes))


def test_large_vector() -> None:
    sent = payload("X", 0, 11_175_370, "float32")
    print()

    def encode() -> None:
        for _ in encode_vectors(RUN, "agent-1", [sent]):
            pass

    frames = list(encode_vectors(RUN, "agent-1", [sent]))

    def reassemble() -> None:
        reassembler = Reassembler(gate(sent.dimension, "float32"))
        for frame in frames:
            reassembler.feed(frame)

    best("vector of 44.7 MB, float32: encode in 1 MiB chunks", encode, number=1)
    best("  reassemble, hash, check", reassemble, number=1)
    best("  of which sha256", lambda: hashlib.sha256(sent.data).digest(), number=1)


@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_commit_round(tmp_path: Path, durability: Durability, checkpoint: bool) -> None:
    d, rounds = 100, 2000 if durability == "process" else 300
    x, y = payload("X", 0, d, "float64"), payload("Y", 0, d, "float64")
    vector, batch = np.random.default_rng(0).normal(size=d), np.arange(55)
    cost = {"lemma5": 1.25, "corrected": None, "tight": None, "amplified": None, "zcdp": None, "gdp": None}

    def record(k: int) -> RoundRecord:
        rows = tuple(LedgerRow(k, p.stream, "paper", "laplace", 0.1, 2.0, p.sha256, cost) for p in (x, y))
        state = tracking(k, vector, vector, vector, vector, vector, batch) if checkpoint or k == 0 else None
        x_k, y_k = (Payload(p.stream, k, "float64", d, p.data, p.sha256) for p in (x, y))
        return RoundRecord(k, (x_k, y_k), rows, batch, state)

    records = [record(k) for k in range(rounds)]
    seconds = []
    with contextlib.closing(Store(tmp_path, durability)) as store:
        store.begin_run(RUN, "0" * 64, "agent-1", TERMS)
        for each in records:
            start = time.perf_counter()
            store.commit_round(RUN, each)
            seconds.append(time.perf_counter() - start)
    print()
    what = f"commit of a round, d = {d}, {durability}, {'with' if checkpoint else 'without'} checkpoint"
    show(f"{what}: median", statistics.median(seconds))
    show(f"{what}: mean", statistics.mean(seconds))
