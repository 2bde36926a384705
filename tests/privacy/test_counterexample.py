"""The counterexample to Lemma 5, and how fast softmax gradients really move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.privacy.accountant import AgentAccount
from dpgt_node.privacy.accountants.curvature import softmax_hessian_l1
from tests.algo.cases import run
from tests.oracles import counterexample, softmax


def account(mechanism: str, Lam: float | None = None) -> AgentAccount:
    c = counterexample
    # S1 with exponents of (nearly) zero: constant steps and scales (k+1)^0.1.
    scheme = model.SchemeS1(c.ALPHA, c.BETA, c.GAMMA, 1.0, 1e-300, 1e-300, 1e-300, 0.0, samples=c.M)
    config = run(scheme, R=c.R, C=c.C, K=c.K, p_zeta=0.1, p_eta=0.1, privacy=model.Privacy(C=c.CONSTANT))
    config = replace(config, algorithm=model.Algorithm(c.K, mechanism=mechanism))
    return AgentAccount(config, Topology.from_config(config.graph), Schedule.from_config(config), 0, c.M, Lam=Lam)


def test_lemma5_is_refuted_under_paper() -> None:
    assert account("paper").total("lemma5") == pytest.approx(0.00357, abs=5e-6)
    for offset in (1.0, -1.0):
        ratios = counterexample.log_ratios("paper", 600, 1, offset * counterexample.CONSTANT / counterexample.M)
        assert 200 < np.median(ratios) < 240
        assert ratios.min() > 100  # every single transcript tells the data sets apart


def test_the_corrected_recursion_holds_there() -> None:
    claim = account("paper", Lam=1.6).total("corrected")
    assert claim is not None and 200 < claim < 5000
    assert np.abs(counterexample.log_ratios("paper", 600, 4)).max() <= claim


@pytest.mark.parametrize("mechanism", ["published-point", "public-state", "noise-once"])
def test_tight_is_never_exceeded_under_the_public_mechanisms(mechanism: str) -> None:
    tight = account(mechanism).total("tight")
    for offset in (1.0, -1.0):
        ratios = counterexample.log_ratios(mechanism, 600, 2, offset * counterexample.CONSTANT / counterexample.M)
        assert np.abs(ratios).max() <= tight
        # The same in large: a realised ratio near the claim, free of rounding.
        large = counterexample.log_ratios(mechanism, 600, 3, offset * 0.5)
        assert 1e-3 * tight < np.abs(large).max() / (0.5 * counterexample.M / counterexample.CONSTANT) <= tight


def test_softmax_gradients_move_no_faster_than_lam() -> None:
    rng = np.random.default_rng(0)
    fastest = 0.0
    for _ in range(300):
        p, classes, bias = int(rng.integers(1, 5)), int(rng.integers(2, 4)), float(rng.choice([0.0, 1.0, -2.0]))
        phi = rng.standard_normal(p) * (rng.random(p) < 0.7)
        Lam = softmax_hessian_l1(np.abs(phi).sum(), np.abs(phi).max(), bias)
        n = classes * p + (classes if bias else 0)
        x = rng.standard_normal(n) * rng.choice([0.0, 1.0])
        step = rng.standard_normal(n) * 1e-3
        if rng.random() < 0.5:
            step *= np.arange(n) == rng.integers(n)
        g = [softmax.sample_gradient(v, phi, 0, classes, bias) for v in (x, x + step)]
        moved, size = np.abs(g[0] - g[1]).sum(), np.abs(step).sum()
        if Lam and size:
            assert moved <= Lam * size * (1 + 1e-9)
            fastest = max(fastest, moved / size / Lam)
            # Clipping at most doubles it.
            clipped = [softmax.clipped(v, 1, 0.9 * np.abs(g[0]).sum()) for v in g]
            assert np.abs(clipped[0] - clipped[1]).sum() <= 2 * Lam * size * (1 + 1e-9)
    assert fastest > 0.99
