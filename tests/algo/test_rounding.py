"""Rounding to a grid by public randomness: what it draws, and that it favours neither side."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpgt_node.algo.methods import rounding
from dpgt_node.algo.methods.base import at, column
from dpgt_node.algo.methods.rounding import Rounding
from dpgt_node.config import model
from dpgt_node.types import F64
from tests.sim import cases

STEP, D = 0.25, 40_000


def run() -> model.RunConfig:
    return cases.run("two agents", K=3)


def test_the_uniform_numbers_are_their_definition_at_one_agent_and_at_all() -> None:
    d, k, seed = 5, 3, rounding.seed(run())
    expected = []
    for agent in range(2):
        key = hashlib.sha256(seed + f"|{agent}|{k}|rounding".encode()).digest()[:16]
        data = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * d))
        words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, 8 * d, 8)]
        expected.append([(word >> 11) / 2**53 for word in words])
        assert Rounding(run(), 2, at(agent), STEP).uniforms(k, d).tolist() == [expected[agent]]
    assert Rounding(run(), 2, column, STEP).uniforms(k, d).tolist() == expected


def check() -> None:
    """Means over many coordinates, on both sides of 0 and at the ends of a step."""
    q = Rounding(run(), 2, at(1), STEP)
    for k, v in enumerate((-1.2, -0.26, -0.25, 0.0, 0.01, 0.125, 0.248, 3.3)):
        found = q(k, np.full(D, v))
        below = np.floor(v / STEP) * STEP
        assert set(found.tolist()) <= {below, below + STEP}
        p = (v - below) / STEP
        assert (found != below).mean() == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / D) + 1e-12)


def test_it_is_unbiased() -> None:
    check()


def _half(self: Rounding, k: int, d: int) -> F64:
    return 0.5 * UNIFORMS(self, k, d)


def _nearest(self: Rounding, k: int, d: int) -> F64:
    return np.full((1, d), 0.5)


UNIFORMS = Rounding.uniforms


@pytest.mark.parametrize("mutant", [_half, _nearest])
def test_a_bias_is_noticed(mutant: Callable[..., F64], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rounding, "uniforms", mutant)
    with pytest.raises(AssertionError):
        check()


def test_agents_rounds_and_runs_have_numbers_of_their_own() -> None:
    first = Rounding(run(), 2, at(0), STEP).uniforms(0, 8)
    longer = replace(run(), algorithm=replace(run().algorithm, iterations=4))
    others = [
        Rounding(run(), 2, at(1), STEP).uniforms(0, 8),
        Rounding(run(), 2, at(0), STEP).uniforms(1, 8),
        Rounding(longer, 2, at(0), STEP).uniforms(0, 8),
    ]
    assert not any((first == other).any() for other in others)
