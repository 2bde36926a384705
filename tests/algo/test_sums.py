"""The weighted sum of what came in, by numpy and by the compiled loops: the same bits, number by number."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dpgt_node.algo.methods import sums
from dpgt_node.algo.methods.base import combined
from dpgt_node.algo.methods.dpgt import Steps, own_y
from dpgt_node.privacy.laws.compiled import COMPILED_FROM

EDGES = ((0, 1 / 3), (2, 0.1), (3, 0.7))
STEP, KEPT = 0.3, 0.9
LOOPS = {
    "_WEIGH": sums.weigh, "_FINISH": sums.finish, "_KEEP": sums.keep, "_STEP_ON": sums.step_on, "_TRACK": sums.track,
}  # fmt: skip


def vectors(d: int, dtype: str) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(1)
    found = {j: (rng.normal(size=d) * np.geomspace(1e-30, 1e30, d)).astype(dtype) for j, _ in EDGES}
    for v in found.values():
        v.setflags(write=False)
    return found


def expected(edges, received, start, at) -> list[float]:
    """In Python's own floats."""
    right = start.tolist()
    for i in range(at.start, at.stop):
        total = None
        for j, weight in edges:
            term = float(received[j][i]) * weight
            total = term if total is None else total + term
        right[i] += total * STEP
    return right


@pytest.mark.parametrize("many", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
@pytest.mark.parametrize("loops", ["numpy", "loops"])
def test_number_by_number(monkeypatch, loops, dtype, many):
    if loops == "loops":
        monkeypatch.setattr(sums, "_WEIGH", SimpleNamespace(of=lambda d: sums.weigh))
        monkeypatch.setattr(sums, "_FINISH", SimpleNamespace(of=lambda d: sums.finish))
    received, at = vectors(60, dtype), slice(7, 55)
    start = np.random.default_rng(2).normal(size=60)
    into = start.copy()
    sums.add_mixed(EDGES[:many], received, STEP, into[at], at)
    assert into.tolist() == expected(EDGES[:many], received, start, at)


@pytest.mark.fast
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_compiled_from_some_size_on(monkeypatch, dtype):
    received, start = vectors(COMPILED_FROM, dtype), np.random.default_rng(2).normal(size=COMPILED_FROM)
    found = []
    for loops in ("compiled", "numpy"):
        if loops == "numpy":
            monkeypatch.setattr(sums, "_WEIGH", SimpleNamespace(of=lambda d: None))
        for many in (1, 3):
            into = start.copy()
            for begin in range(0, COMPILED_FROM, 1 << 14):
                at = slice(begin, begin + (1 << 14))
                sums.add_mixed(EDGES[:many], received, STEP, into[at], at)
            found.append(into.tobytes())
    assert found[:2] == found[2:]
    assert sums._FINISH.ready


def whole(many: int, less: float | None, vectors_of: dict[int, np.ndarray], v: np.ndarray, other: np.ndarray) -> list:
    """(alg,1) in Python's own floats, number by number."""
    right = []
    for i in range(v.size):
        value, total = float(v[i]) * KEPT, None
        for j, weight in EDGES[:many]:
            term = float(vectors_of[j][i]) * weight
            total = term if total is None else total + term
        value = value if total is None else value + total * STEP
        right.append(value if less is None else value - less * float(other[i]))
    return right


def both(many: int, less: float | None, found: dict, v: np.ndarray, other: np.ndarray) -> np.ndarray:
    mix = sums.Received(EDGES[:many], found) if many else None
    return combined(KEPT, v, STEP, mix, 16, 0.0 if less is None else less, None if less is None else other)


@pytest.fixture
def plain_loops(monkeypatch):
    for name, loop in LOOPS.items():
        monkeypatch.setattr(sums, name, SimpleNamespace(of=lambda d, loop=loop: loop))


@pytest.mark.parametrize("many", [0, 1, 2, 3])
@pytest.mark.parametrize("less", [None, 0.0, 0.7])
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_a_whole_equation_in_one_pass(monkeypatch, plain_loops, dtype, less, many):
    monkeypatch.setattr(sums, "_BLOCK", 16)
    monkeypatch.setattr(sums, "add_mixed", None)  # nothing is left to numpy
    found, (v, other) = vectors(60, dtype), np.random.default_rng(3).normal(size=(2, 60))
    assert both(many, less, found, v, other).tolist() == whole(many, less, found, v, other)


def test_what_tracks_in_one_pass(plain_loops):
    y, g, g_next = np.random.default_rng(4).normal(size=(3, 40))
    steps = Steps(0.1, 0.2, 0.3, 0.4, 0.25)
    assert own_y(steps, y, g, g_next, 16).tolist() == [a * 0.75 + (c - b) for a, b, c in zip(y, g, g_next, strict=True)]
    assert own_y(steps, y, g, None, 16).tolist() == [a * 0.75 - b for a, b in zip(y, g, strict=True)]


@pytest.mark.parametrize(
    ("kept", "v", "other"),
    [(np.float64(0.5) * np.ones((2, 1)), np.ones((2, 60)), np.ones(60)), (0.5, np.ones((2, 60)), np.ones(60)),
     (0.5, np.ones((2, 60)), np.ones((2, 60))), (0.5, np.ones(60), np.ones(60, np.float32))],
)  # fmt: skip
def test_what_is_not_of_one_agent_is_left_to_numpy(plain_loops, kept, v, other):
    found, out = vectors(60, "<f8"), np.full(v.shape, 7.0)
    assert not sums.Received(EDGES, found).combine(kept, v, STEP, 0.1, other, out)
    assert not sums.kept_part(kept, v, STEP, 0.1, other, out)
    assert not sums.tracked(kept, v, other, other, out)
    assert (out == 7.0).all()


@pytest.mark.fast
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_equations_compiled_from_some_size_on(monkeypatch, dtype):
    d = COMPILED_FROM + 5
    found, (v, other, g) = vectors(d, dtype), np.random.default_rng(3).normal(size=(3, d))
    v[7], other[7] = -0.0, 0.0  # signs of zero are bits, too
    steps, results = Steps(0.1, 0.2, 0.3, 0.4, 0.25), []
    for loops in ("compiled", "numpy"):
        if loops == "numpy":
            assert all(getattr(sums, name).ready for name in LOOPS if name != "_FINISH")
            for name in LOOPS:
                monkeypatch.setattr(sums, name, SimpleNamespace(of=lambda d: None))
        each = [both(many, less, found, v, other) for many in range(4) for less in (None, 0.0, 0.7)]
        each += [own_y(steps, v, g, last, 1 << 14) for last in (None, other)]
        results.append([one.tobytes() for one in each])
    assert results[0] == results[1]
