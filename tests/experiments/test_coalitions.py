"""Lower bounds of what coalitions learn of one agent, from releases of whole runs: just below the claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.coalitions import Coalition, conduct
from dpgt_node.privacy.laws import pairs
from dpgt_node.sim.scripted import together
from tests.sim import cases

SECRET = "c0a1"
D = 3_000


def run(r: int | None = 2, *, method: str = "dpgt", graph: Any = None) -> model.RunConfig:
    config = cases.run("the demo's ring with chords", K=4, data=model.Data("zeros", params={"dimension": D}))
    eta = model.NoiseStream("constant", (1.0,) * 5)
    return replace(
        config,
        algorithm=replace(config.algorithm, method=method, mechanism="noise-once"),
        scheme=replace(config.scheme, release_every=2),
        noise=replace(config.noise, law="gaussian", eta=eta, cancel=r, mask_graph=graph),
        privacy=model.Privacy(clip_l2=0.5),
    )


def of(config: model.RunConfig, colluding: int, index: int = 1) -> Coalition:
    return Coalition.of(config, index, colluding, dimension=D, samples=None, secret=SECRET)


@pytest.mark.parametrize("method", ["dpgt", "atc-dsgd"])
@pytest.mark.parametrize("colluding", [0, 1, 4])
def test_what_a_coalition_proves_is_just_below_the_claim(colluding: int, method: str) -> None:
    coalition = of(run(method=method), colluding)
    trials = coalition.kept_in(None)
    conduct(coalition, trials, 9_000)
    audit = coalition.judge(trials, 9_000)
    (claim,) = [one for one in audit.claims if one.accountant == "gdp"]
    assert not audit.refuted and claim.realised is not None
    assert 0.75 * claim.claimed < claim.realised <= claim.claimed
    # T has mean +-mu^2/2 and variance mu^2.
    absent, present = trials.worlds(9_000)
    mu2 = 3 * (1 + 4) / (1 + (5 - colluding) * 4)
    assert present.mean() == pytest.approx(mu2 / 2, abs=5 * (mu2 / 9000) ** 0.5) and -absent.mean() > 0.45 * mu2
    assert present.var() == pytest.approx(mu2, rel=0.1)


def test_a_coalition_that_does_not_take_off_what_it_knows_sees_less(monkeypatch: pytest.MonkeyPatch) -> None:
    coalition = of(run(), 4)
    vectors = together(coalition.run, coalition._oracles(np.ones(D)), SECRET)
    with_keys = coalition.ratios(vectors, SECRET)
    monkeypatch.setattr(Coalition, "_known", lambda *_: np.zeros(D))
    without = coalition.ratios(vectors, SECRET)
    assert with_keys.std() < 0.3 * without.std()


def test_a_stream_used_twice_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds share one stream: what two releases differ by shows it, and the claim towards nobody falls."""
    monkeypatch.setattr(pairs.TestPairKeys, "key", lambda self, partner, k: bytes([self._agent ^ partner]) * 32)
    coalition = of(run(r=15), 0)
    vectors = together(coalition.run, coalition._oracles(np.zeros(D)), SECRET)
    released = [values for _, values in coalition._released_of(1, vectors)]
    assert (released[1] - released[0]).std() < 2.0, "own noise alone is left"


@pytest.mark.parametrize("graph", [((1, 2), (2, 3), (3, 4), (4, 5))])
def test_the_worst_coalition_is_of_partners(graph: Any) -> None:
    assert of(run(graph=graph), 1).members == {0} and of(run(graph=graph), 2).members == {0, 2}
    assert of(run(graph=graph), 4).members == {0, 2, 3, 4}


def test_what_cannot_be_audited() -> None:
    with pytest.raises(ConfigError, match="nobody shares noise"):
        of(run(None), 1)
    with pytest.raises(ConfigError, match="must be 0 to 4"):
        of(run(), 5)
    with pytest.raises(ConfigError, match="no adjacency constant"):
        of(replace(run(), privacy=model.Privacy()), 1)
