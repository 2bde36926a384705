"""Hostile bytes at the decoders: the kept corpus, a fixed share of the fuzzer, and proof that its judge can tell.

``make fuzz`` runs the same harness on millions of inputs; see tests/fuzz.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.errors import PeerError
from dpgt_node.wire import codec
from tests.fuzz.cases import PROFILES, small_limits
from tests.fuzz.harness import bounded, check
from tests.fuzz.mutate import generate, mutate
from tests.fuzz.stream import run, shares
from tests.oracles.gate import Expectation, Judge
from tests.wire import vectors

CORPUS = sorted((Path(__file__).parents[1] / "fuzz" / "corpus").iterdir())
SHARE = 6_000  # inputs of each of the seeds below


def test_the_corpus_is_small() -> None:
    assert 30 < len(CORPUS) < 300
    assert sum(path.stat().st_size for path in CORPUS) < 500_000


def test_every_input_of_the_corpus_is_handled() -> None:
    with small_limits(codec):
        for path in CORPUS:
            data = path.read_bytes()
            assert path.name == hashlib.sha256(data).hexdigest()[:16]
            check(data)
            bounded(data)


@pytest.mark.parametrize("seed", [1, 2])
def test_inputs_that_are_nearly_right(seed: int) -> None:
    counts = run(seed, SHARE)
    print(shares(counts))
    assert counts["header passed"] >= 0.3 * counts["inputs"]
    assert counts["calls with a header passed"] >= 0.3 * counts["calls"]
    assert counts["refused"] >= 0.3 * counts["inputs"]


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_changes_that_hypothesis_chooses(rng: Random, times: int) -> None:
    data = generate(rng)
    for _ in range(times):
        data = mutate(data, rng)
    with small_limits(codec):
        check(data)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    with small_limits(codec):
        check(data)


# --- the limits of the real protocol ----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([8_192, 8_193, 150_000]))
def test_the_judge_agrees_at_the_real_limits(rng: Random, d: int) -> None:
    """Vectors at and above 64 KiB, chunks of up to 1 MiB, with a value, a cut or a byte changed here and there."""
    first = vectors.payload("X", 0, d)
    if rng.random() < 0.3:
        values = np.array(first.array())
        values[rng.randrange(d)] = rng.choice((np.nan, np.inf, -0.0))
        first = codec.study_payload(0, values)
    frames = [*codec.encode_vectors(vectors.RUN_ID, vectors.SENDER, [first, vectors.payload("Y", 0, d)])]
    at = rng.randrange(len(frames))
    match rng.randrange(5):
        case 0:
            frames.insert(at, frames[rng.randrange(len(frames))])
        case 1:
            del frames[at]
        case 2:
            changed = bytearray(frames[at])
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            frames[at] = bytes(changed)
        case 3:
            frames[at] = frames[at][: rng.randrange(len(frames[at]))]
    judge = Judge(Expectation(vectors.RUN_ID, vectors.SENDER, {1: ("X", 0), 2: ("Y", 0)}, 10, 1, d, False))
    reassembler = codec.Reassembler(vectors.gate(d))
    for frame in frames:
        expected = judge.judge(frame)
        try:
            got = [(p.stream, p.k, bytes(p.data)) for p in reassembler.feed(frame)]
        except PeerError:
            assert expected is None
            break
        assert got == expected


# --- mutants: each rule of the gate, left out, is found ---------------------------------------------------------------

RULES = {
    "run id": ("if vector.run_id != gate.run_id:", "if False:"),
    "sender": ("if vector.sender != gate.sender:", "if False:"),
    "stream of the edge": ("self._streams.get(vector.stream)", "_STREAM_NAME.get(vector.stream)"),
    "a gap": ("k == expected)", "k >= expected)"),
    "a repetition": ("k == expected)", "k <= expected)"),
    "a repetition of a study vector": ("(k >= expected if", "(True if"),
    "round window": ("if not low <= k <= high:", "if False:"),
    "dtype": ("if vector.dtype != DTYPE_NUMBER[gate.dtype]:", "if False:"),
    "dimension": ("if vector.dimension != gate.dimension:", "if False:"),
    "nbytes": ("if vector.nbytes != self._nbytes:", "if False:"),
    "size of the data": (" or len(data) != self._nbytes:", ":"),
    "inline data of a large vector": ("if self._nbytes > INLINE_BYTES or", "if"),
    "a small vector in chunks": ("if self._nbytes <= INLINE_BYTES:", "if False:"),
    "length of the hash": ("if len(vector.sha256) != 32:", "if False:"),
    "not finite": ("if not valid(np.frombuffer(data, dtype=self._dtype), payload.codes):", "if False:"),
    "not finite in a chunk": ("if not valid(vector.values[vector.checked : whole], self._gate.codes):", "if False:"),
    "not finite across chunks": ("vector.checked = whole", "vector.checked = -(-end // self._dtype.itemsize)"),
    "hash": ("if hashlib.sha256(data).digest() != payload.sha256:", "if False:"),
    "hash of chunks": ("if vector.digest.digest() != opened.sha256:", "if False:"),
    "a header between chunks": ("if self._open is not None:", "if False:"),
    "size of a chunk": ("if not 1 <= chunk.nbytes <= CHUNK_BYTES:", "if False:"),
    "a chunk beyond the end": ("if end > self._nbytes:", "if False:"),
    "bytes after a chunk": ("if declared != body.nbytes:", "if False:"),
    "a chunk's length at its shortest": ("if byte == 0 and position > 1:", "if False:"),
    "a chunk beside vectors": ("if parsed.chunk or not 1 <= count <= 2:", "if not 1 <= count <= 2:"),
    "three vectors": ("not 1 <= count <= 2:", "not 1 <= count:"),
    "two rounds in a frame": ("if count == 2 and vectors[0].round != vectors[1].round:", "if False:"),
    "size of a header frame": (
        "if view.nbytes > (most := self._room.frame_bytes(_MAX_HEADER_FRAME)):",
        "if most := 0:",
    ),
    "nothing after a refusal": ("self._broken, self._open = True, None", "self._open = None"),
    "a part of a vector that travels whole": ("if vector.from_byte and self._nbytes <= INLINE_BYTES:", "if False:"),
    "the vector that was broken off": ("elif kept is None or kept.payload != header:", "elif kept is None:"),
    "the byte where it broke off": ("elif kept.received != vector.from_byte:", "elif False:"),
    "what a refused call began is dropped": (
        "            self._kept.vector = None\n            self.stop()",
        "            self.stop()",
    ),
    "rounds go on": ("self._next[stream] = payload.k + 1", "pass"),
    "rounds go on after chunks": ("self._next[opened.stream] = opened.k + 1", "pass"),
    "the bytes that were sent": ("vector.view[vector.received : end] = chunk", "vector.view[: chunk.nbytes] = chunk"),
}
BY_SEED, SEEDS = 4_000, 6


def mutant(old: str, new: str) -> types.ModuleType:
    source = inspect.getsource(codec)
    assert source.count(old) == 1, f"{old!r} is in the codec {source.count(old)} times"
    module = types.ModuleType(codec.__name__)
    module.__dict__["__name__"] = codec.__name__  # dataclasses look their module up
    exec(compile(source.replace(old, new), "mutant", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("rule", RULES)
def test_a_gate_without_a_rule_is_found(rule: str) -> None:
    broken = mutant(*RULES[rule])
    with pytest.raises(BaseException, match=r".") as caught:
        for seed in range(3, 3 + SEEDS):
            run(seed, BY_SEED, broken)
    assert any("input" in note for note in caught.value.__notes__), "it was the input, not the set-up, that failed"


def test_the_profiles_are_both_inline_and_chunked() -> None:
    large = [p for p in PROFILES if p.nbytes > 64]
    assert {p.dtype for p in large} == {p.dtype for p in PROFILES} == {"float64", "float32"}
    assert {p.study for p in large} == {True, False} and 0 < len(large) < len(PROFILES)
