"""The weighted sum of what came in, by numpy and by the compiled loops: the same bits, number by number."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dpgt_node.algo.methods import sums
from dpgt_node.privacy.laws.compiled import COMPILED_FROM

EDGES = ((0, 1 / 3), (2, 0.1), (3, 0.7))
STEP = 0.3


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
