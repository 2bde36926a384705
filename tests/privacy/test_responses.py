"""How gradients enter noisy states: against dense impulse responses, brute-force sums, and planted mistakes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node.privacy.accountants import pure
from dpgt_node.privacy.accountants.responses import pair as pair_module
from dpgt_node.privacy.accountants.responses import state as state_module
from dpgt_node.privacy.accountants.responses import variation as variation_module
from dpgt_node.privacy.accountants.responses.response import Steps
from dpgt_node.types import F64
from tests.oracles import states

UNIT, C = 0.3, 2.0


def drawn(K: int) -> tuple[Steps, F64, F64]:
    rng = np.random.default_rng(K)
    steps = Steps(*(rng.uniform(low, high, K + 1) for low, high in ((0, 0.9), (0, 0.9), (0.1, 1), (0.2, 1))))
    return steps, rng.uniform(0.1, 2, K + 1), rng.uniform(0.1, 2, K + 1)


def dense(steps: Steps, kind: str) -> list[F64]:
    found = states.impulses(steps.a.tolist(), steps.b.tolist(), (steps.gamma * steps.share).tolist())
    return [found["x"]] if kind == "State" else [found["px"], found["ps"]]


def bounds(value: F64, exact: F64) -> None:
    """Never below, and above by rounding alone."""
    assert (value >= exact * (1 - 1e-14)).all()
    np.testing.assert_allclose(value, exact, rtol=1e-10, atol=1e-300)


def check(make: Callable[[Steps], Any], K: int) -> None:
    steps, sx, sy = drawn(K)
    response, none = make(steps), np.zeros(K + 1)
    A = dense(steps, type(response).__name__)
    S = (sx, sy)[: len(A)]
    shifts = response.shifts(UNIT)
    for found, of in zip((shifts.x, shifts.y), A, strict=False):
        bounds(found, UNIT * np.abs(of).sum(1))
    if len(A) == 1:
        assert not shifts.y.any()
    bounds(
        response.weights(UNIT, sx, sy, none, none),
        UNIT * sum((np.abs(of) / s[:, None]).sum(0) for of, s in zip(A, S, strict=True)),  # type: ignore[arg-type]
    )
    left = np.linspace(0.1, 0.2, K + 1)
    more = response.weights(UNIT, sx, sy, left, left) - response.weights(UNIT, sx, sy, none, none)
    later = np.append(np.cumsum(left[:0:-1])[::-1], 0.0)
    np.testing.assert_allclose(more, len(A) * later, rtol=1e-9, atol=1e-12)
    M = sum((of / s[:, None]).T @ (of / s[:, None]) for of, s in zip(A, S, strict=True))
    rows = np.abs(M).sum(1)
    norms = response.norms(sx, sy)
    exact = np.cumsum(rows)
    if K:
        inner, rows = M[:K, :K], rows[:K]  # type: ignore[index]
        d = np.diag(inner)
        if len(A) == 2:
            np.testing.assert_allclose(response.gram(sx**-2, sy**-2)[1][:K], d, rtol=1e-10)
        weighted = [np.ones(K), d] if len(A) == 1 else [np.ones(K), d, rows]
        exact = exact[:K]
        for w in weighted:  # looked at where it can win at the end
            if (d / w).max() * w.sum() < exact[-1]:
                exact = np.minimum(exact, np.linalg.eigvalsh(inner / np.sqrt(np.outer(w, w)))[-1] * np.cumsum(w))
        exact = np.append(exact, exact[-1])
    np.testing.assert_allclose(norms**2, exact, rtol=1e-9)
    assert (norms**2 >= exact * (1 - 1e-14)).all()
    # The worst transcript that gradients of norm share UNIT can make is within the bound.
    for seed in range(3):
        g = np.random.default_rng(seed).choice((-1.0, 1.0), K + 1)
        assert sum(float(np.square(of @ g / s).sum()) for of, s in zip(A, S, strict=True)) <= norms[-1] ** 2 * (
            1 + 1e-9
        )
    m = 5
    moves = np.full(K + 1, C)
    moves[0] = steps.share[0] * C / m
    raw = states.impulses(steps.a.tolist(), steps.b.tolist(), steps.gamma.tolist())
    corrected = response.corrected(m, C)
    if len(A) == 1:
        bounds(corrected.x, np.abs(raw["x"]) @ moves)
    else:
        assert (corrected.x >= np.abs(raw["px"]) @ moves * (1 - 1e-14)).all()
        bounds(corrected.y, raw["ps"] @ moves)


@pytest.mark.parametrize("K", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("make", [state_module.State, pair_module.Pair])
def test_the_responses_are_those_of_the_recursions(make: Callable[[Steps], Any], K: int) -> None:
    check(make, K)


def test_the_pair_at_equal_steps_is_algorithm_1_in_its_own_words() -> None:
    """y_k = (s_{k+1} - s_k)/gamma without noise: x answers to a gradient as Algorithm 1's does."""
    from dpgt_node.privacy.accountants import kernels

    K, a, b, gamma = 30, 0.1, 0.05, 0.2
    found = pair_module.Pair(Steps.constant(a, b, gamma, K)).shifts(1.0).x
    of = kernels.published_point(a, b, gamma, K)
    np.testing.assert_allclose(found[1:], np.cumsum(np.abs(of.x)), rtol=1e-10)


@pytest.mark.parametrize(("a", "b", "ratio"), [(0.075, 0.0075, 1.0), (0.45, 0.45, 1.0), (0.2, 0.475, 0.2)])
def test_the_squares_of_the_pair_are_close_to_the_worst_transcript(a: float, b: float, ratio: float) -> None:
    """Unit gradients that some transcript may have, found by ascent on the dense matrix, reach nearly all of it."""
    K = 150
    steps, sx, sy = Steps.constant(a, b, 0.1, K), np.ones(K + 1), np.full(K + 1, ratio)
    scaled = [of / s[:, None] for of, s in zip(dense(steps, "Pair"), (sx, sy), strict=True)]
    M = sum(of.T @ of for of in scaled)
    g = np.random.default_rng(0).standard_normal((K + 1, 20))
    for _ in range(200):
        g = M @ g
        g /= np.maximum(np.linalg.norm(g, axis=1, keepdims=True), 1e-300)
    reached = sum(float(np.square(of @ g).sum()) for of in scaled)
    bound = pair_module.Pair(steps).norms(sx, sy)[-1] ** 2
    assert reached * (1 - 1e-12) <= bound <= 1.02 * reached


def test_the_cumulative_delta_is_the_product_rule() -> None:
    each = np.array([0.0, 0.3, 1e-12, 0.5, 0.0])
    kept = np.cumprod(1 - each)
    np.testing.assert_allclose(variation_module.product(each), 1 - kept, rtol=1e-9, atol=1e-15)
    assert (variation_module.product(each) >= 1 - kept).all()
    assert variation_module.product(np.array([0.0, 1.0, 0.1])).tolist() == [0.0, 1.0, 1.0]


MUTANTS = [
    ("state", "reach = abs(1.0 - a) * reach + gamma * moves", "reach = abs(1.0 - a) * (reach + gamma * moves)"),
    ("state", "unit * s.gamma * s.share * _later", "unit * s.gamma * _later"),
    ("state", "for at in range(len(pairs) - 1, 0, -1)", "for at in range(len(pairs) - 2, 0, -1)"),
    ("state", "np.square(1.0 - self.steps.a)", "np.abs(1.0 - self.steps.a)"),
    ("state", "least_traces(rows, (np", "least_traces(diagonal, (np"),
    ("state", "reach * (value * weight) / (pivot", "reach / (pivot"),
    ("pair", "-inject[k - 1], inject[k - 1], inject[k - 1]", "inject[k - 1], inject[k - 1], inject[k - 1]"),
    ("pair", "(1.0 - a) * cx[old] + b * cs[old]", "(1.0 - a) * cx[old] - b * cs[old]"),
    ("pair", "cs[old] *= abs(1.0 - b)", "cs[old] *= abs(1.0 - a)"),
    ("pair", "total[last] += float(of.sum())", "total[last] += float(of[:last].sum())"),
    ("pair", "sign * xx + xs, sign * xs + ss", "xx + sign * xs, sign * xs + ss"),
    ("pair", "rows, (np.ones(K), diagonal, rows)", "rows, (np.ones(K), diagonal)"),
    ("pair", "answers[1] - answers[0]", "answers[1] + answers[0]"),
    ("pair", "xs = keep_a * half[1]", "xs = keep_b * half[1]"),
    ("pair", "qx, qs = xs - xx, ss - xs", "qx, qs = xs + xx, ss + xs"),
    ("pair", "xs += gain * qx * qs", "xs -= gain * qx * qs"),
    ("pair", "b * (half[1] + keep_b * xs)", "b * half[1]"),
    ("pair", "+ b * ss + moves, abs(1.0 - b) * ss + moves", "- b * ss + moves, abs(1.0 - b) * ss + moves"),
]


@pytest.mark.parametrize(("module", "text", "instead"), MUTANTS)
def test_planted_mistakes_are_found(module: str, text: str, instead: str) -> None:
    source = Path({"state": state_module, "pair": pair_module}[module].__file__ or "").read_text()
    assert source.count(text) == 1
    name = f"tests.mutant_{module}"
    spec = importlib.util.spec_from_loader(name, None)
    assert spec is not None
    mutant = importlib.util.module_from_spec(spec)
    sys.modules[name] = mutant  # dataclasses look their module up
    try:
        exec(compile(source.replace(text, instead), name, "exec"), mutant.__dict__)
        with pytest.raises((AssertionError, IndexError)):
            check(*((mutant.State, 5) if module == "state" else (mutant.Pair, 40)))
    finally:
        del sys.modules[name]


def test_a_scale_of_zero_costs_everything() -> None:
    steps, sx, sy = drawn(4)
    sx = sx.copy()
    sx[2] = 0.0
    for make in (state_module.State, pair_module.Pair):
        response = make(steps)
        assert np.isinf(response.norms(sx, sy)[-1])
        curve = pure.released(response.shifts(1.0), sx, sy, np.zeros(5), np.zeros(5))
        assert np.isinf(curve[4:]).all() and np.isfinite(curve[:4]).all()
