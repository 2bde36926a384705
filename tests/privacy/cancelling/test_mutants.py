"""What is wrong in a formula or in a draw is seen, fault by fault."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Callable

import numpy as np
import pytest

from dpgt_node.privacy.cancelling.masks import MaskGraph
from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler
from dpgt_node.privacy.laws.keystream import TestKeystream
from tests.oracles import cancelling as oracle


def mutant(name: str, old: str, new: str) -> types.ModuleType:
    with open(importlib.import_module(name).__file__ or "") as file:
        source = file.read()
    assert source.count(old) == 1, f"the mutant of {name} must name one place: {old!r}"
    module = types.ModuleType("mutant")
    sys.modules["mutant"] = module  # dataclasses look their module up
    exec(compile(source.replace(old, new), "mutant", "exec"), module.__dict__)
    return module


def exposure_holds(m: types.ModuleType) -> bool:
    """Against explicit matrices: never below a coalition's exact share, and equal to it for complete graphs."""
    rng = np.random.default_rng(11)
    for n, r in ((2, 1), (4, 2), (5, 3)):
        for t in range(n):
            exact = oracle.worst(0, [1.0] * n, r, oracle.complete(n), t)
            if not exact * (1 - 1e-12) <= m.share(n - 1, r, t) <= exact * (1 + 1e-9):
                return False
    for _ in range(40):
        s, sigma = np.exp(rng.normal(0, 1, 4)), float(np.exp(rng.normal()))
        for t in range(4):
            claim = m.precision(float(s[0]), [float(v) for v in s[1:]], sigma, t)
            if oracle.worst(0, s, sigma, oracle.complete(4), t) > claim * (1 + 1e-9):
                return False
    try:
        m.precision(0.0, [1.0], 5.0, 0)
    except ValueError:
        return True
    return False


EXPOSURE = [
    ("honest = hiding[: max(len(hiding) - colluding, 0)]", "honest = hiding"),  # a known pair counts as unknown
    ("honest = hiding[: max(len(hiding) - colluding, 0)]", "honest = hiding[min(colluding, len(hiding)) :]"),
    ("max(len(hiding) - colluding, 0)", "max(len(hiding) - colluding + 1, 0)"),
    ("if not own > 0.0:", "if own < 0.0:"),  # own noise missing
    ("(own * own + sum(honest))", "(own * own + sigma * sigma * len(honest))"),
    ("(sigma * sigma + s * s)", "(sigma * sigma)"),
    ("return min(precision(", "return 0.5 * min(precision("),
]


def test_the_formula_holds() -> None:
    from dpgt_node.privacy.cancelling import exposure

    assert exposure_holds(exposure)


@pytest.mark.parametrize(("old", "new"), EXPOSURE, ids=[new for _, new in EXPOSURE])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_wrong_formula_is_seen(old: str, new: str) -> None:
    module = mutant("dpgt_node.privacy.cancelling.exposure", old, new)
    with contextlib.suppress(ZeroDivisionError):
        assert not exposure_holds(module)


def draws_hold(pairs: types.ModuleType, perturb: Callable[..., np.ndarray]) -> bool:
    """Two rounds of three agents: sums cancel in both, and no pair shares the same numbers twice."""
    graph, d, r = MaskGraph.complete(3), 12, 2
    start = {(i, j): bytes([i, j]) * 16 for i, j in graph.edges}
    moved = []
    for k in range(2):
        g, own = np.zeros((3, d)), np.zeros((3, d))
        for i in range(3):
            keys = pairs.Ratchet({j: start[min(i, j), max(i, j)] for j in graph.partners(i)})
            shared = [(1 if i < j else -1, pairs.pair_stream(keys.key(j, k))) for j in graph.partners(i)]
            g[i] = perturb(np.zeros(d), 1.0, TestKeystream("00", i).stream(k, "Y"), shared, r)
            own[i] = GaussianSampler().perturb(np.zeros(d), 1.0, TestKeystream("00", i).stream(k, "Y"))
        if (g.sum(axis=0) != own.sum(axis=0)).any() or (g == own).all():
            return False
        moved.append(g - own)
    return bool((moved[0] != moved[1]).any(axis=1).all())


PAIRS = [
    ("        for _ in range(k - self._k):\n            key = ratchet(key)\n", ""),  # one stream for two releases
    ('return _expand(key, b"dpgt pair next", PAIR_KEY_BYTES)', "return key"),
]
SAMPLER = [
    ("cells += (sign * r) *", "cells += r *"),  # the sign wrong at one end
    ("cells += (sign * r) *", "cells += 0 *"),
    ("_cells(np.zeros(count), np", "_cells(np.zeros(count) + np.random.default_rng().normal(), np"),
]


def test_the_draw_holds() -> None:
    from dpgt_node.privacy.laws import pairs

    assert draws_hold(pairs, GaussianSampler().perturb_shared)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_stream_used_twice_is_seen(old: str, new: str) -> None:
    module = mutant("dpgt_node.privacy.laws.pairs", old, new)
    assert not draws_hold(module, GaussianSampler().perturb_shared)


@pytest.mark.parametrize(("old", "new"), SAMPLER)
def test_noise_that_does_not_cancel_is_seen(old: str, new: str) -> None:
    from dpgt_node.privacy.laws import pairs

    module = mutant("dpgt_node.privacy.laws.gaussian_sampler", old, new)
    assert not draws_hold(pairs, module.GaussianSampler().perturb_shared)


def test_shared_noise_that_depends_on_a_step_size_is_seen() -> None:
    from dpgt_node.privacy.laws import pairs

    alpha = iter((0.3, 0.4, 0.3) * 2)

    def perturb(private, scale, stream, shared, r):
        return GaussianSampler().perturb_shared(private, scale, stream, shared, 1 if next(alpha) > 0.35 else r)

    assert not draws_hold(pairs, perturb)
