"""What is promised is what the accounts read: never above epsilon, never far below, and one more round is too much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.accounts import planner
from dpgt_node.accounts.account import AgentAccount, agent_accounts
from dpgt_node.accounts.planner import Accounts, Target, calibrate, route
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountants.rounding import within

RING = ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.5, 1.0, 0.0))
CHORD = ((0.0, 0.3, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.2))
L1, L2, DECLARED = model.Privacy(clip_l1=2.0), model.Privacy(clip_l2=0.7), model.Privacy(C=3.0)


def run(
    privacy: model.Privacy = L2, K: int = 9, alpha: float = 0.3, beta: float = 0.2, gamma: float = 0.4
) -> model.RunConfig:
    return model.RunConfig(
        "plan",
        model.Algorithm(K),
        model.SchemeS2(alpha, beta, gamma, 1.0, samples="full"),
        model.Noise(None, None, multiplier=0.0),
        model.Graph(("a", "b", "c"), RING, CHORD),
        model.Data("digits"),
        privacy=privacy,
    )


def accounts(D: Sequence[int] = (40, 41, 77), leftover: float = 0.0) -> Accounts:
    def of(config: model.RunConfig) -> Sequence[AgentAccount]:
        topology, schedule = Topology.from_config(config.graph), Schedule.from_config(config)
        return agent_accounts(config, topology, schedule, D, dimension=10, leftover=lambda scale, norm: leftover)

    return of


def totals(config: model.RunConfig, accountant: str, of: Accounts) -> list[float]:
    found = [account.total(accountant) for account in of(config)]
    assert None not in found
    return [value for value in found if value is not None]


def one_more_round(config: model.RunConfig) -> model.RunConfig:
    return replace(config, algorithm=replace(config.algorithm, iterations=config.K + 1))


def exactly_met(config: model.RunConfig, accountant: str, epsilon: float, of: Accounts) -> bool:
    """Every agent within a millionth below epsilon, no agent above, one more round above the cap for all."""
    costs = totals(config, accountant, of)
    more = totals(one_more_round(config), accountant, of)
    return all(epsilon * (1 - 1e-6) <= cost <= epsilon for cost in costs) and not any(within(c, epsilon) for c in more)


ROUTES = [
    ("noise-once", "gdp", L2),
    ("noise-once", "gdp", L1),
    ("noise-once", "zcdp", L2),
    ("noise-once", "amplified", L1),
    ("noise-once", "tight", DECLARED),
    ("public-state", "gdp", L2),
    ("public-state", "amplified", L1),
    ("published-point", "zcdp", L1),
    ("published-point", "tight", L1),
    ("paper", "corrected", L1),
    ("paper", "lemma5", DECLARED),
]


@pytest.mark.parametrize(("mechanism", "accountant", "privacy"), ROUTES)
@given(
    epsilon=st.floats(1e-3, 1e3),
    K=st.integers(0, 25),
    steps=st.tuples(*[st.floats(0.01, 0.6)] * 2, st.floats(1e-3, 20.0)),
    ratio=st.floats(0.01, 100.0),
    D=st.tuples(*[st.integers(1, 20_000)] * 3),
)
@settings(max_examples=5, deadline=None)
def test_the_promise_is_met_exactly(
    mechanism: str,
    accountant: str,
    privacy: model.Privacy,
    epsilon: float,
    K: int,
    steps: tuple[float, float, float],
    ratio: float,
    D: tuple[int, ...],
) -> None:
    config, of = run(privacy, K, *steps), accounts(D)
    way = route(config, Target(epsilon, 1e-6, accountant, mechanism))
    planned = calibrate(way.apply(config), accountant, epsilon, of, ratio=ratio if way.both_streams else None)
    assert (planned.algorithm.mechanism, planned.noise.multiplier) == (mechanism, 1.0)
    assert planned.privacy.delta == (1e-6 if accountant in ("zcdp", "gdp") else config.privacy.delta)
    assert exactly_met(planned, accountant, epsilon, of)


def test_the_check_above_notices_a_promise_that_is_not_met() -> None:
    config, of = run(), accounts()
    way = route(config, Target(1.0))
    planned = calibrate(way.apply(config), "gdp", 1.0, of)
    assert exactly_met(planned, "gdp", 1.0, of)
    for factor in (1.0 - 1e-5, 1.0 + 1e-5):
        eta = planned.noise.eta
        assert eta is not None
        moved = replace(eta, values=tuple(value * factor for value in eta.values))
        assert not exactly_met(replace(planned, noise=replace(planned.noise, eta=moved)), "gdp", 1.0, of)
    # One agent whose data set is smaller than planned for.
    assert not exactly_met(planned, "gdp", 1.0, accounts((40, 40, 77)))


def test_each_agent_gets_no_more_noise_than_it_needs() -> None:
    planned = calibrate(route(run(), Target(1.0)).apply(run()), "gdp", 1.0, accounts((10, 20, 40)))
    assert planned.noise.eta is not None and planned.noise.zeta is None
    a, b, c = planned.noise.eta.values
    assert a / b == pytest.approx(2.0, rel=1e-6) and b / c == pytest.approx(2.0, rel=1e-6)


def test_noise_matches_the_closed_form_of_one_release_a_round() -> None:
    K, D, epsilon = 9, 40, 0.8
    pure = calibrate(
        route(run(L1, K), Target(epsilon, 0.0)).apply(run(L1, K)), "amplified", epsilon, accounts((D,) * 3)
    )
    assert pure.noise.eta is not None
    assert pure.noise.eta.values[0] == pytest.approx((K + 1) * 4.0 / (D * epsilon), rel=2e-6)


@pytest.mark.parametrize(
    ("privacy", "target", "expected"),
    [
        (L2, Target(1.0), ("noise-once", "gaussian", "gdp", 1e-5)),
        (L1, Target(1.0), ("noise-once", "gaussian", "gdp", 1e-5)),
        (L1, Target(1.0, 0.0), ("noise-once", "laplace", "amplified", 0.0)),
        (DECLARED, Target(1.0, 0.0), ("noise-once", "laplace", "tight", 0.0)),
        (L1, Target(1.0, None, "tight"), ("noise-once", "laplace", "tight", 0.0)),
        (L1, Target(1.0, 1e-7, "zcdp", "published-point"), ("published-point", "gaussian", "zcdp", 1e-7)),
        (L1, Target(1.0, None, None, "paper"), ("paper", "laplace", "corrected", 0.0)),
        (L1, Target(1.0, None, "lemma5"), ("paper", "laplace", "lemma5", 0.0)),
        (L1, Target(1.0, None, None, "public-state"), ("public-state", "gaussian", "gdp", 1e-5)),
    ],
)
def test_the_route(privacy: model.Privacy, target: Target, expected: tuple[str, str, str, float]) -> None:
    way = route(run(privacy), target)
    assert (way.mechanism, way.law, way.accountant, way.delta) == expected
    assert ("DECLARED, NOT ENFORCED" in way.reasons[2]) == (privacy is DECLARED)
    assert ("it is no proof" in way.reasons[1]) == (way.accountant == "lemma5")


@pytest.mark.parametrize(
    ("privacy", "target", "says"),
    [
        (model.Privacy(), Target(1.0), "no clip"),
        (L2, Target(1.0, 0.0), "set clip_l1 instead"),
        (DECLARED, Target(1.0, 0.0, "amplified"), "needs clip_l1"),
        (L1, Target(1.0, 0.0, "gdp"), "needs a delta"),
        (L1, Target(1.0, None, "lemma5", "noise-once"), "lemma5 says nothing about noise-once"),
        (L1, Target(1.0, None, "gdp", "paper"), "paper has lemma5, corrected"),
        (L1, Target(1.0, None, None, "gossip"), "--mechanism: must be one of noise-once"),
        (L1, Target(1.0, None, "rdp"), "must be one of lemma5"),
        (L1, Target(0.0), "--epsilon: must be a finite number > 0"),
        (L1, Target(-1.0), "--epsilon"),
        (L1, Target(math.nan), "--epsilon"),
        (L1, Target(math.inf), "--epsilon"),
        (L1, Target(1.0, 1.0), "--delta"),
        (L1, Target(1.0, -1e-5), "--delta"),
        (L1, Target(1.0, math.nan), "--delta"),
    ],
)
def test_the_impossible_is_refused_by_name(privacy: model.Privacy, target: Target, says: str) -> None:
    with pytest.raises(ConfigError, match=r".") as error:
        route(run(privacy), target)
    assert says in str(error.value)


def test_what_the_sampler_adds_cannot_be_planned_away() -> None:
    config = route(run(L1), Target(1e-3, 0.0)).apply(run(L1))
    with pytest.raises(ConfigError, match=r"out of reach with K = 9.*nearest possible is above 0\.01"):
        calibrate(config, "amplified", 1e-3, accounts(leftover=1e-3))
    assert exactly_met(
        calibrate(config, "amplified", 0.02, accounts(leftover=1e-3)), "amplified", 0.02, accounts(leftover=1e-3)
    )


def test_an_accountant_without_a_value_says_why() -> None:
    config = run(L2)  # clip_l2 bounds no L1 norm
    with pytest.raises(ConfigError, match="tight gives a no guarantee: clip_l2 bounds no L1 norm"):
        calibrate(route(run(L1), Target(1.0, 0.0, "tight")).apply(config), "tight", 1.0, accounts())


def test_the_search_asks_for_few_accounts() -> None:
    asked = 0
    of = accounts()

    def counted(config: model.RunConfig) -> Sequence[AgentAccount]:
        nonlocal asked
        asked += 1
        return of(config)

    rng = np.random.default_rng(0)
    for _ in range(20):
        epsilon = float(10.0 ** rng.uniform(-3, 3))
        calibrate(route(run(), Target(epsilon)).apply(run()), "gdp", epsilon, counted)
    assert asked / 20 < 30
    for epsilon in (1e-300, 1e-30, 1e300):
        asked = 0
        planned = calibrate(route(run(), Target(epsilon)).apply(run()), "gdp", epsilon, counted)
        assert asked <= planner._EVALUATIONS and max(totals(planned, "gdp", of)) <= epsilon
    assert planner.TOLERANCE <= 1e-6
