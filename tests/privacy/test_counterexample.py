"""The counterexample to Lemma 5."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from tests.algo.cases import run
from tests.oracles import counterexample
from tests.oracles.accountants import corrected


def account(mechanism: str) -> AgentAccount:
    c = counterexample
    # S1 with exponents of (nearly) zero: constant steps and scales (k+1)^0.1.
    scheme = model.SchemeS1(c.ALPHA, c.BETA, c.GAMMA, 1.0, 1e-300, 1e-300, 1e-300, 0.0, samples=c.M)
    config = run(scheme, R=c.R, C=c.C, K=c.K, p_zeta=0.1, p_eta=0.1, privacy=model.Privacy(C=c.CONSTANT))
    config = replace(config, algorithm=model.Algorithm(c.K, mechanism=mechanism))
    return AgentAccount(config, Topology.from_config(config.graph), Schedule.from_config(config), 0, c.M)


def test_lemma5_is_refuted_under_paper() -> None:
    assert account("paper").total("lemma5") == pytest.approx(0.00357, abs=5e-6)
    for offset in (1.0, -1.0):
        ratios = counterexample.log_ratios("paper", 600, 1, offset * counterexample.CONSTANT / counterexample.M)
        assert 200 < np.median(ratios) < 240
        assert ratios.min() > 100  # every single transcript tells the data sets apart


def test_the_corrected_recursion_holds_there() -> None:
    c = counterexample
    a = b = c.ALPHA * float(np.asarray(c.R)[0].sum())
    scales = (np.arange(c.K + 1) + 1.0) ** 0.1
    claim = corrected(a, b, c.GAMMA, c.M, c.CONSTANT, c.K, 1.6, scales, scales)
    assert claim == pytest.approx(2463, rel=1e-3)
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
