"""The ternary quantiser: its probabilities, its distance between two inputs, and what breaks them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from dpgt_node.privacy.accountants.responses.variation import product
from dpgt_node.privacy.laws import ternary
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.ternary import TernaryQuantiser
from dpgt_node.types import F64

R = 2.5
DRAWS = 200_000


class Words:
    """A stream that gives the 53 bits it is told."""

    def __init__(self, *words: int) -> None:
        self._data = np.array([word << 11 for word in words], dtype="<u8").tobytes()

    def take(self, nbytes: int) -> bytes:
        data, self._data = self._data[:nbytes], self._data[nbytes:]
        return data


def draw(v: float, quantiser: type = TernaryQuantiser) -> F64:
    return quantiser().perturb(np.full(DRAWS, v), R, CtrStream(bytes(16), bytes(16)))


def check(quantiser: type) -> None:
    for v in (-3.0, -2.5, -1.0, 0.0, 0.3, 2.4, 7.0):
        found = draw(v, quantiser)
        inside = min(max(v, -R), R)
        assert set(found.tolist()) <= {0.0, R * np.sign(v)}
        assert found.mean() == pytest.approx(inside, abs=5 * R / np.sqrt(DRAWS))
        p = abs(inside) / R
        assert np.mean(found != 0.0) == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / DRAWS) + 1e-12)


def test_its_probabilities() -> None:
    check(TernaryQuantiser)


def test_a_threshold_is_met_to_the_last_bit() -> None:
    half, last = 1 << 52, (1 << 53) - 1
    v = np.array([R / 2, R / 2, R, -R, 0.0, R])
    found = TernaryQuantiser().perturb(v, R, Words(half - 1, half, last, last, 0, 0))
    assert found.tolist() == [R, 0.0, R, -R, 0.0, R]


def test_two_inputs_differ_by_their_distance_over_r() -> None:
    """Total variation of the exact laws, over a grid that crosses 0 and both ends."""

    def law(v: float) -> F64:
        inside = min(max(v, -R), R)
        p = abs(inside) / R
        return np.array([p if inside < 0 else 0.0, 1 - p, p if inside > 0 else 0.0])

    grid = np.linspace(-3, 3, 41)
    for v in grid:
        for w in grid:
            assert 0.5 * np.abs(law(v) - law(w)).sum() <= abs(v - w) / R + 1e-12


def worst_delta(moves: list[float], epsilon: float, start: float = 0.0) -> float:
    """Of a run whose coordinate is ``start`` in one world and so much more in the other: every outcome."""

    def law(v: float) -> list[float]:
        p = min(abs(v), R) / R
        return [p if v < 0 else 0.0, 1 - p, p if v > 0 else 0.0]

    rounds = [list(zip(law(start + move), law(start), strict=True)) for move in moves]
    total = 0.0
    for outcome in itertools.product(*rounds):
        p, q = (math.prod(pair[world] for pair in outcome) for world in (0, 1))
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


@pytest.mark.parametrize("moves", [[0.1], [0.4, 0.2, 0.9], [R, 0.1, 0.0]])
def test_no_epsilon_lowers_the_delta_of_a_run(moves: list[float]) -> None:
    """Theorem 7: the delta of ``variation`` is what the worst state has, at any epsilon; no other state has more."""
    told = float(product(np.array(moves) / R)[-1])
    for epsilon in (0.0, 0.5, 3.0, 40.0):
        assert worst_delta(moves, epsilon) == pytest.approx(told, rel=1e-12)
        assert max(worst_delta(moves, epsilon, start) for start in (-0.3, 0.2, 1.0, 2.4)) <= told + 1e-12
    with pytest.raises(AssertionError):  # a state away from 0 is no witness
        assert worst_delta(moves, 3.0, 0.2) == pytest.approx(told, rel=1e-3)


def test_rows_are_drawn_like_agents() -> None:
    v = np.random.default_rng(0).normal(size=(3, 50))
    keys = [bytes([i]) * 16 for i in range(3)]
    rows = TernaryQuantiser().perturb_rows(v, np.full(3, R), [CtrStream(key, bytes(16)) for key in keys])
    for row, one, key in zip(rows, v, keys, strict=True):
        assert (row == TernaryQuantiser().perturb(one, R, CtrStream(key, bytes(16)))).all()


def _unclipped(self: TernaryQuantiser, private: F64, scale: float, stream: CtrStream) -> F64:
    words = np.frombuffer(stream.take(8 * private.size), dtype="<u8") >> np.uint64(11)
    return private * (words < np.abs(private) / scale * 2.0**53)


def _signless(self: TernaryQuantiser, private: F64, scale: float, stream: CtrStream) -> F64:
    words = np.frombuffer(stream.take(8 * private.size), dtype="<u8") >> np.uint64(11)
    return scale * (words < np.abs(np.clip(private, -scale, scale)) / scale * 2.0**53)


def _one_byte(self: TernaryQuantiser, private: F64, scale: float, stream: CtrStream) -> F64:
    words = np.frombuffer(stream.take(private.size), dtype="u1")
    return scale * np.sign(private) * (words < np.floor(np.abs(np.clip(private, -scale, scale)) / scale * 255))


@pytest.mark.parametrize("mutant", [_unclipped, _signless, _one_byte])
def test_planted_mistakes_are_found(mutant: Callable[..., F64]) -> None:
    with pytest.raises(AssertionError):
        check(type("Mutant", (TernaryQuantiser,), {"perturb": mutant}))


def test_a_ledger_calls_it_by_a_name_of_no_law() -> None:
    from dpgt_node.privacy.laws.registry import LAWS

    assert ternary.NAME not in LAWS
