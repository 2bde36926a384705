"""Epsilon towards so many colluding others, where pairs of agents share noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.accounts.towards import Sharing, Towards, sharing, shown, towards_whom
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


def towards(made: AgentAccount, config: model.RunConfig, name: str, t: int, k: int = K, i: int = 0) -> float:
    shared, cost = sharing(config), made.cost(name, k)
    assert shared is not None and cost is not None
    return shared[i].towards(name, cost, 1e-5, t)


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
    config = run(s)
    made = account(config)
    found = [towards(made, config, "gdp", t) for t in range(5)]
    assert found == pytest.approx(epsilons, abs=1e-5)
    assert found[-1] == made.total("gdp") == account(run(s, r=None)).total("gdp"), "what everybody else learns stays"
    mu = math.sqrt(41) * 0.04 / D / s
    for t in range(5):
        rho = mu * mu * oracle.worst(0, [1.0] * 5, 2.0, oracle.complete(5), t) / 2
        assert towards(made, config, "zcdp", t) == pytest.approx(zcdp_epsilon(rho, 1e-5), rel=2e-6)
        assert towards(made, config, "zcdp", t) >= zcdp_epsilon(rho, 1e-5)
        assert found[t] >= gdp_epsilon(mu * math.sqrt(oracle.worst(0, [1.0] * 5, 2.0, oracle.complete(5), t)), 1e-5)


def test_rounds_and_releases_add_up_towards_every_coalition() -> None:
    config = run(5e-5, release_every=10)
    made = account(config)
    for t in range(5):
        curve = [towards(made, config, "gdp", t, k) for k in range(-1, K + 1)]
        assert curve[0] == 0.0 and curve == sorted(curve)
        for releases, k in ((1, 0), (1, 9), (2, 10), (5, K)):
            mu = math.sqrt(releases * oracle.worst(0, [1.0] * 5, 2.0, oracle.complete(5), t)) * 0.04 / D / 5e-5
            least = gdp_epsilon(mu, 1e-5)
            assert least <= curve[k + 1] <= least * (1 + 3e-6)


def test_an_agent_is_hidden_by_its_own_partners_only() -> None:
    config = run(5e-5, graph=((1, 2), (2, 3), (2, 4), (2, 5)))
    middle, end = account(config, 1), account(config, 2)
    hub = [towards(middle, config, "gdp", t, i=1) for t in range(5)]
    leaf = [towards(end, config, "gdp", t, i=2) for t in range(5)]
    assert hub[0] < leaf[0] < leaf[1] == leaf[4] == end.total("gdp") and hub[4] == middle.total("gdp")
    edges = [(i - 1, j - 1) for i, j in ((1, 2), (2, 3), (2, 4), (2, 5))]
    mu = math.sqrt(41 * oracle.worst(2, [1.0] * 5, 2.0, edges, 0)) * 0.04 / D / 5e-5
    assert leaf[0] >= gdp_epsilon(mu, 1e-5)


def test_no_table_without_shared_noise_or_without_values() -> None:
    names = run(5e-5).graph.agents

    def whom(r: int | None, **costs: float | None) -> Towards | None:
        return towards_whom(run(5e-5, r=r), {name: costs for name in names}, dict.fromkeys(names, D))

    assert whom(None, gdp=1.0, zcdp=1.2) is None and whom(2, gdp=None, zcdp=None, tight=1.0) is None
    assert whom(2, gdp=math.inf, zcdp=math.inf) is None
    found = towards_whom(run(5e-5), {names[2]: {"gdp": 1.0, "zcdp": 1.2}}, {names[2]: D})
    assert found is not None and found.words == (("strong",) * 5,)
    found = towards_whom(run(5e-5), {names[2]: {"gdp": 1.0, "zcdp": 1.2}}, {names[2]: 100_000})
    assert found is not None and found.words == (("none",) * 5,), "delta is 1/D"
    assert found is not None and found.accountant == "gdp" and len(found.epsilon) == 1 and found.epsilon[0][-1] == 1.0
    only = whom(2, gdp=None, zcdp=1.2)
    assert only is not None and only.accountant == "zcdp"


def test_pure_epsilon_gains_nothing_and_nothing_is_below_the_grids_price() -> None:
    one = Sharing(2, 4, 4)
    assert one.towards("tight", 1.5, 1e-5, 0) == 1.5
    assert one.towards("gdp", 0.0, 1e-5, 0) == 0.0 and one.towards("gdp", math.inf, 1e-5, 0) == math.inf


def test_many_agents_have_a_short_table() -> None:
    assert shown(4) == (0, 1, 2, 3, 4) and shown(99) == (0, 1, 25, 50, 75, 98, 99)
    for found in map(shown, range(1, 40)):
        assert found[0] == 0 and list(found) == sorted(set(found))
    assert [shown(others)[-1] for others in range(1, 40)] == list(range(1, 40))
