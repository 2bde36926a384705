"""Epsilon towards so many colluding others, where pairs of agents share noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.privacy.accountants.concentrated import zcdp_epsilon
from dpgt_node.privacy.accountants.gaussian import gdp_epsilon
from tests.oracles import cancelling as oracle
from tests.sim import cases

K, D = 40, 12_000


def run(s: float, r: int | None = 2, graph: Any = None, **scheme: Any) -> model.RunConfig:
    config = cases.run("the demo's ring with chords", K=K)
    eta = model.NoiseStream("constant", (s,) * 5)
    return replace(
        config,
        algorithm=replace(config.algorithm, mechanism="noise-once"),
        scheme=replace(config.scheme, samples="full", **scheme),
        privacy=model.Privacy(clip_l2=0.02),
        noise=replace(config.noise, law="gaussian", eta=eta, cancel=r, mask_graph=graph),
    )


def account(config: model.RunConfig, i: int = 0) -> AgentAccount:
    return account_for(config, Topology.from_config(config.graph), Schedule.from_config(config), i, D, 3930)


@pytest.mark.parametrize(
    ("s", "epsilons"),
    [
        (4.318307691e-05, (0.89055, 1.00000, 1.15891, 1.41957, 1.96757)),
        (3.885334344e-05, (1.0, 1.12315, 1.30206, 1.59579, 2.21437)),
    ],
)
def test_the_table_of_five_agents(s: float, epsilons: tuple[float, ...]) -> None:
    made = account(run(s))
    found = [made.towards("gdp", t) for t in range(5)]
    assert found == pytest.approx(epsilons, abs=1e-5)
    assert found[-1] == made.total("gdp") == account(run(s, r=None)).total("gdp"), "what everybody else learns stays"
    mu = math.sqrt(41) * 0.04 / D / s
    for t in range(5):
        rho = mu * mu * oracle.worst(0, [1.0] * 5, 2.0, oracle.complete(5), t) / 2
        assert made.towards("zcdp", t) == pytest.approx(zcdp_epsilon(rho, 1e-5), rel=2e-6)


def test_rounds_and_releases_add_up_towards_every_coalition() -> None:
    made = account(run(5e-5, release_every=10))
    for t in range(5):
        curve = [made.towards("gdp", t, k) for k in range(-1, K + 1)]
        assert curve[0] == 0.0 and curve == sorted(curve)  # type: ignore[type-var]
        for releases, k in ((1, 0), (1, 9), (2, 10), (5, K)):
            mu = math.sqrt(releases * oracle.worst(0, [1.0] * 5, 2.0, oracle.complete(5), t)) * 0.04 / D / 5e-5
            assert made.towards("gdp", t, k) == pytest.approx(gdp_epsilon(mu, 1e-5), rel=3e-6)


def test_an_agent_is_hidden_by_its_own_partners_only() -> None:
    config = run(5e-5, graph=((1, 2), (2, 3), (2, 4), (2, 5)))
    middle, end = account(config, 1), account(config, 2)
    assert [end.towards("gdp", t) == end.total("gdp") for t in range(5)] == [False, True, True, True, True]
    assert middle.towards("gdp", 0) < end.towards("gdp", 0)  # type: ignore[operator]
    assert middle.towards("gdp", 4) == middle.total("gdp")
    edges = [(i - 1, j - 1) for i, j in ((1, 2), (2, 3), (2, 4), (2, 5))]
    exact = oracle.worst(2, [1.0] * 5, 2.0, edges, 0)
    mu = math.sqrt(41 * exact) * 0.04 / D / 5e-5
    assert end.towards("gdp", 0) >= gdp_epsilon(mu, 1e-5)  # type: ignore[operator]


def test_without_shared_noise_every_coalition_learns_the_same() -> None:
    made = account(run(5e-5, r=None))
    assert {made.towards("gdp", t) for t in range(5)} == {made.total("gdp")}


def test_what_has_no_value_has_none_towards_anybody() -> None:
    made = account(run(5e-5))
    assert made.towards("tight", 0) is None is made.total("tight")


def test_the_grid_is_charged() -> None:
    """At a scale so large that epsilon is 0, what is left is the price of the grid."""
    made = account(run(1e3))
    assert made.total("gdp") == 0.0 and made.towards("gdp", 4) == 0.0 == made.towards("gdp", 0)
    low = account(run(5e-5))
    assert low.towards("gdp", 0) > 0.0  # type: ignore[operator]
