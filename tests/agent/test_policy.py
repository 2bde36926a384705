"""The owner's policy against every kind of run: contradictions, caps, what earlier runs count."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node import figures
from dpgt_node.agent.noise import account_for
from dpgt_node.agent.policy import Verdict, judge
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import Policy, parse_run
from dpgt_node.privacy.accountants.composition import Spent, add_up, tally
from dpgt_node.privacy.accountants.registry import APPROXIMATE, PURE, SOUND
from tests.oracles.composition import epsilon_of_mu, least, mu_of

RUN = """
name = "policy"
[algorithm]
mechanism = "{mechanism}"
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.2
gamma = 0.02
p_m = 1.0
[noise]
scale_zeta = 3.0
scale_eta = {eta}
law = "{law}"
multiplier = {multiplier}
[graph]
agents = 2
R = [[0, 1], [1, 0]]
C = [[0, 1], [1, 0]]
[data]
dataset = "quadratic"
dimension = 3
[privacy]
{C}
delta = {delta}
"""


def run_of(mechanism="noise-once", law="laplace", K=9, delta=1e-5, eta=2.0, multiplier=1.0, C="C = 1.0"):
    values = {"mechanism": mechanism, "law": law, "K": K, "delta": delta, "eta": eta}
    return parse_run(RUN.format(**values, multiplier=multiplier, C=C), "run.toml", Path("/"))


def account_of(run):
    return account_for(run, Topology.from_config(run.graph), Schedule.from_config(run), 0, None, 3)


def believing(policy):
    """Toys have no clip that would enforce C, so the owner believes the declared one."""
    return replace(policy, allow_declared=True)


def verdict(policy, run=None, spent=(), samples=None):
    run, policy = run_of() if run is None else run, believing(policy)
    return judge(policy, run, account_of(run), spent, samples=samples)


def spent(delta=1e-5, **epsilon):
    return Spent("earlier", epsilon, delta)


# --- contradictions: named, whatever the run costs --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "run", "words"),
    [
        (Policy(mechanisms=("public-state", "noise-once")), {"mechanism": "paper"},
         "mechanism paper is not allowed (mechanisms = public-state, noise-once)"),
        (Policy(noise_min=2.5), {}, "the noise scale of y is 2, below noise_min = 2.5"),
        (Policy(noise_min=3.5), {"mechanism": "paper"}, "the noise scale of x is 3, below noise_min = 3.5"),
        (Policy(noise_min=1e-9), {"multiplier": 0.0}, "the noise scale of y is 0, below noise_min"),
        (Policy(1.0, accountant="gdp"), {}, "no value under accountant gdp (gdp: needs Gaussian noise; the law is"),
        (Policy(1.0, accountant="lemma5"), {}, "lemma5: describes the releases of paper and published-point only"),
        (Policy(1.0), {"C": ""}, "no value under any sound accountant"),
        (Policy(1.0), {"C": ""}, "set clip_l1"),
        (Policy(delta_max=1e-5), {"mechanism": "paper", "law": "gaussian"}, "must be taken at a released point"),
    ],
)  # fmt: skip
def test_a_contradiction_is_named(policy, run, words):
    problems = verdict(policy, run_of(**run)).problems
    assert any(words in problem for problem in problems), problems


def test_contradictions_come_together():
    policy = Policy(1.0, mechanisms=("noise-once",), noise_min=9.0)
    assert len(verdict(policy, run_of("paper", C="")).problems) == 4  # the mechanism, x, y, no value


def test_without_a_policy_everything_goes_and_a_warning_says_so():
    found = verdict(Policy())
    assert found == Verdict((), None, None, None, ("no [policy] epsilon_max: nothing caps what this agent releases",))
    assert "accountant = tight has no effect" in verdict(Policy(accountant="tight")).warnings[0]
    assert verdict(Policy(mechanisms=("noise-once",), noise_min=2.0)).problems == ()


# --- what the run file must not choose: C, and who sees private states -----------------------------------------------

ANY = [Policy(epsilon_max=8.0), Policy(delta_max=1e-3)]


@pytest.mark.parametrize("policy", ANY, ids=str)
def test_a_declared_C_satisfies_no_policy_unless_the_owner_believes_it(policy):
    """Whoever writes the run file would choose epsilon: C = 1e-6 makes any run cheap."""
    run = run_of(C="C = 1e-6")
    refused = judge(policy, run, account_of(run), [], samples=None)
    assert any("C = 1e-06 is declared, not enforced, so the run counts as unbounded" in p for p in refused.problems)
    assert judge(replace(policy, allow_declared=True), run, account_of(run), [], samples=None).problems == ()
    enforced = run_of(C="clip_l1 = 5e-7")
    assert judge(policy, enforced, account_of(enforced), [], samples=None).problems == ()


def test_an_earlier_run_on_a_declared_C_uses_up_every_budget():
    run, earlier = run_of(C="clip_l1 = 0.5"), [spent(tight=1e-9), Spent("declared", {"tight": 1e-9}, 1e-5, True)]
    found = judge(Policy(1e9), run, account_of(run), earlier, samples=None)
    assert found.budget_through == -1
    assert "earlier run declared on this data set has no finite epsilon (its C was declared" in found.shortfall
    assert judge(Policy(1e9, allow_declared=True), run, account_of(run), earlier, samples=None).shortfall is None


@pytest.mark.parametrize("policy", [*ANY, Policy(mechanisms=("noise-once",)), Policy(noise_min=1e-9)], ids=str)
def test_a_study_is_refused_under_a_policy_unless_the_owner_allows_it(policy):
    run = run_of(C="clip_l1 = 0.5")
    study = replace(run, evaluate=replace(run.evaluate, metrics="study"))
    account = account_of(run)
    assert judge(policy, run, account, [], samples=None).problems == ()
    refused = judge(policy, study, account, [], samples=None)
    assert any('metrics = "study" gives the coordinator x_final' in problem for problem in refused.problems)
    allowed = judge(replace(policy, allow_study=True), study, account, [], samples=None)
    assert allowed.problems == () and any("which no epsilon covers" in line for line in allowed.warnings)


def test_a_cap_by_a_conditional_accountant_is_called_no_guarantee():
    costs = {"lemma5": [1.0, 2.0, 3.0, 4.0], "tight": [9.0] * 4}
    policy = Policy(3.0, accountant="lemma5", allow_declared=True)
    found = judge(policy, run_of(K=3), FakeAccount(costs), [], samples=None)
    assert any("no proof stands behind its values, so this cap is no guarantee" in line for line in found.warnings)
    assert found.total.conditional and found.total.recipe == "lemma5 (conditional)"
    assert found.shortfall.startswith("this run costs 4") and "under lemma5 (conditional)" in found.shortfall
    again = judge(policy, run_of(K=3), FakeAccount(costs), [spent(lemma5=0.5)], samples=None)
    assert "1 earlier run on this data set 0.5 (none) (conditional)" in again.shortfall
    sound = judge(replace(policy, accountant="tight"), run_of(K=3), FakeAccount(costs), [], samples=None)
    assert not sound.total.conditional and not any("no proof" in line for line in sound.warnings)


def test_a_delta_of_exactly_1_over_D_is_refused_and_a_sum_of_deltas_that_is():
    run = run_of(law="gaussian", C="clip_l2 = 0.5", delta=0.005)
    assert "add up to 0.005, at or above 1/D = 1/200" in verdict(Policy(1e9), run, samples=200).shortfall
    assert verdict(Policy(1e9), run, samples=199).shortfall is None
    assert verdict(Policy(1e9, 0.005), run, samples=200).shortfall is None, "the owner allows it by name"
    two = verdict(Policy(1e9), run, spent=[spent(0.005, gdp=0.1)], samples=100)
    assert "add up to 0.01, at or above 1/D = 1/100" in two.shortfall


def test_all_numbers_of_a_shortfall_are_at_one_delta():
    run = run_of(law="gaussian", C="clip_l2 = 0.5", delta=0.9)
    found = verdict(Policy(1e-3, 1e-5, "gdp"), run)
    whole = found.total
    assert whole.epsilon > account_of(run).total("gdp") and float(whole.delta) == 1e-5
    assert found.shortfall.startswith(f"this run costs {figures.epsilon(whole.epsilon)} (")
    assert "under gdp and delta 1e-05: " in found.shortfall and found.shortfall.count("delta") == 1
    again = verdict(Policy(1e-3, None, "gdp"), run_of(law="gaussian", C="clip_l2 = 0.5"), spent=[spent(1e-5, gdp=0.5)])
    alone = account_of(run_of(law="gaussian", C="clip_l2 = 0.5")).total("gdp")
    numbers = [float(n) for n in re.findall(r"([\d.e+-]+) \((?:strong|moderate|weak|none)\)", again.shortfall)]
    assert "under gdp and delta 2e-05, with" in again.shortfall and again.shortfall.count("delta") == 1
    mine, whole_again, earlier = numbers
    assert mine < alone and earlier < 0.5 and max(mine, earlier) < whole_again < mine + earlier


def test_a_smallest_noise_without_a_clip_is_said_to_limit_nothing():
    words = "noise_min limits nothing by itself"
    assert any(words in line for line in verdict(Policy(noise_min=1.0)).warnings)
    clipped = run_of(C="clip_l1 = 0.5")
    assert not any(words in line for line in verdict(Policy(noise_min=1.0), clipped).warnings)


def test_permissions_alone_are_no_policy():
    assert not Policy().limits and not Policy(allow_study=True, allow_declared=True).limits
    assert all(policy.limits for policy in [*ANY, Policy(accountant="tight")])


# --- caps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["published-point", "public-state", "noise-once"])
@pytest.mark.parametrize(("law", "accountant"), [("laplace", "tight"), ("laplace", "zcdp"), ("gaussian", "gdp")])
def test_exactly_the_cap_passes_and_one_round_more_does_not(mechanism, law, accountant):
    run, longer = run_of(mechanism, law), run_of(mechanism, law, K=10)
    cap = account_of(run).total(accountant)
    allowed = verdict(Policy(cap, accountant=accountant), run)
    assert (allowed.problems, allowed.shortfall, allowed.budget_through) == ((), None, run.K)
    over = verdict(Policy(cap, accountant=accountant), longer)
    assert over.problems == () and f"under {accountant}" in over.shortfall
    if accountant == "tight":  # the others may bound a prefix of a longer run by a little more
        assert over.budget_through == 9 and "covers rounds 0..9 of 10" in over.shortfall
    assert over.budget_through in (8, 9)


def test_three_runs_of_a_third_each_fit_and_a_fourth_does_not():
    cost = account_of(run_of()).total("tight")
    policy = Policy(3 * cost, accountant="tight")
    for earlier in range(5):
        found = verdict(policy, spent=[spent(tight=cost)] * earlier)
        assert (found.shortfall is None) == (earlier < 3)
        assert found.budget_through == (9 if earlier < 3 else -1)
    assert ", 3 earlier runs on this data set " in verdict(policy, spent=[spent(tight=cost)] * 3).shortfall


def test_the_smallest_sound_accountant_is_taken_unless_one_is_named():
    run = run_of("paper")
    account = account_of(run)
    assert account.total("lemma5") is not None and account.total("corrected") is None
    assert verdict(Policy(1e9), run).problems, "lemma5 is conditional: only by name"
    assert verdict(Policy(1e9, accountant="lemma5"), run).accountant == "lemma5"
    laplace = account_of(run_of(K=300))
    assert laplace.total("zcdp") < laplace.total("tight")
    assert verdict(Policy(1e9), run_of(K=300)).accountant == "zcdp"
    # The run file's delta of 1e-5 is too much, but zcdp says what the run costs at the owner's 1e-6, too.
    owner = verdict(Policy(1e9, delta_max=1e-6), run_of(K=300))
    assert owner.accountant == "zcdp" and owner.total.delta == Fraction("1e-6")
    assert laplace.total("zcdp") < owner.total.epsilon < laplace.total("tight")
    assert verdict(Policy(1e9, delta_max=1e-60), run_of(K=300)).accountant == "tight"


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_cap_on_delta_alone_does_not_let_an_infinite_epsilon_pass(law):
    found = verdict(Policy(delta_max=1e-3), run_of(law=law, multiplier=0.0))
    assert found.budget_through == -1
    assert "any finite epsilon covers no round" in found.shortfall


def test_noise_that_is_off_is_within_no_cap():
    found = verdict(Policy(1e300), run_of(multiplier=0.0))
    assert found.budget_through == -1 and "its noise is off" in found.shortfall


# --- deltas -----------------------------------------------------------------------------------------------------------


def test_deltas_add_as_they_were_written():
    run = run_of(law="gaussian")
    for earlier, samples, fits in ((2, 33_333, True), (3, 25_001, False), (3, 25_000, False), (3, 24_999, True)):
        found = verdict(Policy(1e9), run, [spent(gdp=0.1)] * earlier, samples=samples)
        assert (found.shortfall is None) == fits
        assert found.total is None or found.total.delta == Fraction("1e-5") * (earlier + 1)
    over = verdict(Policy(1e9), run, [spent(gdp=0.1)] * 3, samples=25_001)
    assert "add up to 4e-05, at or above 1/D = 1/25001" in over.shortfall


def test_a_stated_delta_is_the_whole_budget_s_whatever_the_run_files_say():
    """Composed runs are converted once, at the owner's delta: neither their number nor their own deltas use it up."""
    run = run_of(law="gaussian")
    mu = math.sqrt(9 * mu_of(0.1, 1e-5) ** 2 + mu_of(account_of(run).total("gdp"), 1e-5) ** 2)
    found = verdict(Policy(1e9, delta_max=1e-6), run, [spent(gdp=0.1)] * 9)
    assert found.shortfall is None and found.total.delta == Fraction("1e-6")
    assert found.total.epsilon == pytest.approx(epsilon_of_mu(mu, 1e-6), rel=1e-7)
    assert found.total.recipe.startswith("gdp x10 composed: mu ")
    assert verdict(Policy(delta_max=3e-5), run, [spent(gdp=0.1)] * 3).shortfall is None


def test_composed_runs_fit_where_their_sum_would_not():
    run = run_of(law="gaussian")
    cost = account_of(run).total("gdp")
    for earlier in (1, 4, 19):
        past = [spent(gdp=cost)] * earlier
        whole = epsilon_of_mu(math.sqrt(earlier + 1) * mu_of(cost, 1e-5), 1e-5)
        assert whole < 0.9 * (earlier + 1) * cost
        assert verdict(Policy(whole * (1 + 1e-6), 1e-5, "gdp"), run, past).shortfall is None
        short = verdict(Policy(whole * (1 - 1e-4), 1e-5, "gdp"), run, past)
        assert short.budget_through == run.K - 1 and f"(gdp x{earlier + 1} composed: mu " in short.shortfall


def test_an_earlier_run_counts_without_delta_where_the_cap_asks_for_it():
    run = run_of(law="gaussian")
    both = [spent(tight=0.02, zcdp=0.01)]
    cost, samples = account_of(run).total("gdp"), 60_000  # 1/D is 1.67e-5: one delta of 1e-5 fits, two do not
    wide = verdict(Policy(0.021 + cost), run, both, samples=samples)
    assert wide.shortfall is None and wide.accountant == "gdp" and wide.total.delta == Fraction("1e-5")
    assert verdict(Policy(0.015 + cost), run, both, samples=49_999).shortfall is None
    assert wide.total.epsilon == pytest.approx(0.02 + cost) and wide.total.recipe == "sum of tight, gdp"
    assert verdict(Policy(0.019 + cost), run, both, samples=samples).shortfall is not None


def test_without_delta_max_a_delta_must_still_mean_something():
    run = run_of(law="gaussian", delta=0.01)
    assert verdict(Policy(1e9), run, samples=99).shortfall is None
    assert "above 1/D = 1/101, which guarantees nothing" in verdict(Policy(1e9), run, samples=101).shortfall
    assert any("the delta of this data set is 0.01" in line for line in verdict(Policy(1e9), run).warnings)


# --- earlier runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "epsilon", [{}, {"lemma5": 3.0}, {"tight": None}, {"tight": math.inf, "zcdp": math.inf}], ids=str
)
def test_an_earlier_run_without_an_epsilon_leaves_no_budget(epsilon):
    found = verdict(Policy(1e9), spent=[spent(tight=1.0), spent(**epsilon)])
    assert (
        found.budget_through == -1 and "earlier run earlier on this data set has no finite epsilon" in found.shortfall
    )


def test_a_named_accountant_counts_other_runs_by_a_sound_one_where_it_says_nothing():
    other = [spent(corrected=4.0, tight=None, lemma5=7.0), spent(tight=1.0, zcdp=0.5)]
    assert tally(other, PURE, "tight").epsilon == 5.0
    assert tally(other, PURE, "lemma5").epsilon == 8.0
    assert tally(other, SOUND, None).epsilon == 4.5 and tally(other, SOUND, None).delta == Fraction("1e-05")
    assert tally([], PURE).epsilon == 0.0


# --- against a dumb oracle --------------------------------------------------------------------------------------------


@dataclass
class FakeAccount:
    """Costs by accountant and round, nothing else."""

    costs: dict[str, list[float]]
    streams: tuple[str, ...] = field(default=("Y",))

    def total(self, name):
        return self.costs[name][-1] if name in self.costs else None

    def cost(self, name, k):
        return self.costs[name][k]

    def why_not(self, name):
        return "no"

    def charged_streams(self):
        return self.streams

    def scale(self, stream, k):
        return 1.0


amounts = st.floats(0.0, 4.0) | st.integers(0, 8).map(lambda n: n / 2)
pasts = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(SOUND), amounts, min_size=1), st.sampled_from([1e-5, 2e-5])), max_size=2
)
curves = st.dictionaries(st.sampled_from(SOUND), st.lists(amounts, min_size=4, max_size=4).map(sorted), min_size=1)


def oracle(policy, costs, past, delta):
    """The last round that plain sums cover, over every way to choose an accountant for every run."""
    ways = [(Fraction(0), Fraction(0))]
    for epsilon, its_delta in past:
        named = policy.accountant if policy.accountant in epsilon else None
        names = [named] if named else list(epsilon)
        ways = [
            (e + Fraction(epsilon[a]), d + (Fraction(repr(its_delta)) if a in APPROXIMATE else 0))
            for e, d in ways
            for a in names
        ]
    best = -1
    for a in [policy.accountant] if policy.accountant else costs:
        for e, d in ways:
            if d + (Fraction(repr(delta)) if a in APPROXIMATE else 0) > Fraction(repr(policy.delta_max)):
                continue
            for k in range(4):
                if e + Fraction(costs[a][k]) <= Fraction(policy.epsilon_max) * (1 + Fraction(1, 2**19)):
                    best = max(best, k)
    return best


@settings(deadline=None)
@given(curves, pasts, amounts.filter(bool), st.sampled_from([1e-5, 2e-5, 5e-5, 1e-3]), st.data())
def test_never_less_than_plain_sums_and_never_more_than_the_best_composition(costs, past, cap, delta_max, data):
    name = data.draw(st.sampled_from([None, *costs]))
    policy = Policy(cap, delta_max, name)
    run = run_of(K=3)
    earlier = [Spent("r", epsilon, delta) for epsilon, delta in past]
    found = judge(policy, run, FakeAccount(costs), earlier, samples=None)
    assert found.budget_through >= oracle(policy, costs, past, run.privacy.delta)
    if found.budget_through >= 0:
        assert best(policy, costs, past, run.privacy.delta, found.budget_through) <= cap * (1 + 1e-5)
    assert (found.shortfall is None) == (found.budget_through == run.K)


def best(policy, costs, past, delta, k):
    """The smallest epsilon through round k over every way to count every run, composed or not."""
    named = policy.accountant
    past = [({named: epsilon[named]} if named in epsilon else epsilon, its_delta) for epsilon, its_delta in past]
    mine = {name: curve[k] for name, curve in costs.items() if named in (None, name)}
    return least([*past, (mine, delta)], Fraction(repr(policy.delta_max)))


@given(st.lists(st.floats(0.0, 1e308), max_size=8))
def test_a_sum_is_never_below_the_sum(values):
    total, exact = add_up(values), sum(map(Fraction, values))
    assert total == math.inf or Fraction(total) >= exact
    assert total == math.inf or Fraction(math.nextafter(total, 0.0)) < exact or total == 0.0


def test_sums_that_are_exact_stay():
    assert add_up([]) == 0.0 and add_up([0.1]) == 0.1 and add_up([0.5, 0.25]) == 0.75
    assert add_up([0.1, math.inf]) == math.inf and add_up([1.7e308, 1.7e308]) == math.inf
    assert Fraction(add_up([0.1, 0.2])) >= Fraction(0.1) + Fraction(0.2)


# --- mutants: a policy that forgets must not pass for one that does not ----------------------------------------------


def forgets_the_past(policy, costs, earlier):
    return judge(policy, run_of(K=3), FakeAccount(costs), [], samples=None)


def forgets_deltas(policy, costs, earlier):
    free = [Spent(run.run, run.epsilon, 1e-300) for run in earlier]
    return judge(policy, run_of(K=3, delta=1e-300), FakeAccount(costs), free, samples=None)


def takes_another_delta_than_the_owner_s(policy, costs, earlier):
    return judge(replace(policy, delta_max=3e-5), run_of(K=3), FakeAccount(costs), earlier, samples=None)


@pytest.mark.parametrize("mutant", [forgets_the_past, forgets_deltas, takes_another_delta_than_the_owner_s])
def test_the_oracle_notices(mutant):
    costs, past = {"gdp": [0.25, 0.5, 0.75, 1.0]}, [({"gdp": 0.5}, 1e-5), ({"gdp": 0.25}, 1e-5)]
    policy = Policy(0.92, 1e-5)
    earlier = [Spent("r", epsilon, delta) for epsilon, delta in past]
    through = judge(policy, run_of(K=3), FakeAccount(costs), earlier, samples=None).budget_through
    assert through == 1 and best(policy, costs, past, 1e-5, through) <= 0.92 * (1 + 1e-5)
    assert best(policy, costs, past, 1e-5, mutant(policy, costs, earlier).budget_through) > 0.92 * (1 + 1e-5)


def test_a_cap_covers_the_free_rounds_up_to_the_release_that_it_does_not():
    """Two of four releases fit: the agent stops before the third, not after the second."""
    run = run_of(K=19)
    run = replace(run, scheme=replace(run.scheme, releases=(0, 5, 11, 16), settle=2))
    account = account_of(run)
    each = account.cost("tight", 0)
    assert each is not None
    verdict = judge(Policy(epsilon_max=2.5 * each, allow_declared=True), run, account, [], samples=None)
    assert verdict.budget_through == 10 and "covers rounds 0..10 of 19" in (verdict.shortfall or "")
    whole = judge(Policy(epsilon_max=4 * each, allow_declared=True), run, account, [], samples=None)
    assert whole.shortfall is None and whole.budget_through == 19
