"""The second cap of a policy: what any so many of the other agents may learn together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpgt_node.accounts.towards import sharing
from dpgt_node.agent.noise import account_for
from dpgt_node.agent.policy import Verdict, judge
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import Policy, model, parse_document
from dpgt_node.privacy.accountants.composition import Spent
from dpgt_node.runtime.agent.budget import spent_on
from dpgt_node.runtime.store.ledger import Charge, Terms
from tests.config.cases import spoiled
from tests.config.test_run_errors import CANCEL

K = 10


def run(**changes: Any) -> model.RunConfig:
    toy = {"data": {"dataset": "quadratic", "dimension": 3}, "privacy": {"clip_l2": 0.05}, "scheme.samples": 1}
    return parse_document(spoiled({**CANCEL, **toy, **changes}), "run.toml", Path("/"))


def asked(policy: Policy, config: model.RunConfig, spent: tuple[Spent, ...] = ()) -> Verdict:
    account = account_for(config, Topology.from_config(config.graph), Schedule.from_config(config), 0, None, 3)
    return judge(policy, config, account, spent, samples=None)


def costs(config: model.RunConfig) -> tuple[float, float]:
    """Of the whole run: towards all others, and towards any one of them."""
    account = account_for(config, Topology.from_config(config.graph), Schedule.from_config(config), 0, None, 3)
    whole, shared = account.total("gdp"), sharing(config)
    assert whole is not None and shared is not None
    return whole, shared[0].towards("gdp", whole, 1e-5, 1)


WHOLE, ONE = costs(run())


def test_the_two_costs_differ() -> None:
    assert ONE < 0.8 * WHOLE


@pytest.mark.parametrize(
    ("most", "some", "through"),
    [
        (WHOLE * 1.001, ONE * 1.001, K),
        (WHOLE * 1.001, ONE * 0.9, "fewer"),  # the second cap decides
        (WHOLE * 0.9, ONE * 1.001, "fewer"),  # the first stays hard
        (None, ONE * 1.001, K),
        (None, ONE * 0.9, "fewer"),
        (WHOLE * 1.001, WHOLE, K),
    ],
)
def test_whichever_covers_fewer_rounds_decides(most: float | None, some: float, through: Any) -> None:
    found = asked(Policy(epsilon_max=most, epsilon_max_colluding=some, colluding=1), run())
    assert found.problems == () and found.accountant == "gdp"
    if through == K:
        assert found.budget_through == K and found.shortfall is None
    else:
        assert found.budget_through is not None and 0 <= found.budget_through < K and found.shortfall is not None
        second = some < ONE
        assert found.shortfall.startswith("towards any 1 of the other agents") is second
        assert ("epsilon_max_colluding = " in found.shortfall) is second
    assert any("two honest agents at least" in line for line in found.warnings)


def test_where_both_caps_cover_as_much_the_one_that_rests_on_no_honest_agent_is_named() -> None:
    found = asked(Policy(epsilon_max=1e-6, epsilon_max_colluding=1e-6, colluding=1), run())
    assert found.budget_through == -1 and found.shortfall is not None
    assert "epsilon_max = 1e-06" in found.shortfall and "towards any" not in found.shortfall


def test_as_many_as_all_others_are_all_others() -> None:
    for t in (2, 3, 1000):
        found = asked(Policy(epsilon_max_colluding=ONE * 1.001, colluding=t), run())
        assert found.budget_through is not None and found.budget_through < K


def test_a_run_without_shared_noise_is_held_to_both_caps_at_its_full_cost() -> None:
    shared = run()
    plain = replace(shared, noise=replace(shared.noise, cancel=None))
    found = asked(Policy(epsilon_max_colluding=ONE * 1.001, colluding=1), plain)
    assert found.budget_through is not None and found.budget_through < K
    assert not any("two honest" in line for line in found.warnings)


def test_earlier_runs_count_for_both() -> None:
    policy = Policy(epsilon_max=WHOLE * 3, epsilon_max_colluding=ONE * 1.2, colluding=1)
    assert asked(policy, run()).budget_through == K
    found = asked(policy, run(), (Spent("earlier", {"gdp": ONE}, 1e-5),))
    assert found.budget_through is not None and found.budget_through < K


def test_what_contradicts_the_policy_is_said_once() -> None:
    policy = Policy(epsilon_max=1.0, epsilon_max_colluding=1.0, colluding=1, mechanisms=("paper",))
    assert len(asked(policy, run()).problems) == 1


def test_earlier_runs_count_for_the_second_cap_with_what_so_many_learn() -> None:
    """Two equal runs: mu^2 adds up towards everybody, and towards any one."""
    shared = sharing(run())
    assert shared is not None
    costs = {"gdp": WHOLE}
    earlier = Spent("earlier", costs, 1e-5, some=shared[0].some(costs, 1e-5, 1))
    policy = Policy(epsilon_max=WHOLE * 3, epsilon_max_colluding=ONE * 1.6, colluding=1, delta_max=1e-5)
    assert asked(policy, run(), (earlier,)).budget_through == K
    found = asked(policy, run(), (replace(earlier, some=None),))
    assert found.budget_through is not None and found.budget_through < K
    terms = Terms("default", 1e-5, "replace-one", shares=shared[0].text)
    charge = Charge(bytes(16), terms, "noise-once", "gaussian", K, costs)
    (one,) = spent_on("default", [charge], 1)
    assert one.some == earlier.some and spent_on("default", [charge])[0].some is None
