"""Several runs on one data set: amounts got back from epsilons, their sums beside plain sums and exact composition."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.privacy.accountants import composition, concentrated, gaussian, pure
from dpgt_node.privacy.accountants.composition import Part, Spent, add_up, tally, total
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE, PURE, SOUND
from tests.oracles import composition as oracle
from tests.oracles.accountants import gdp_delta

DELTA = 1e-5
deltas = st.sampled_from([1e-9, 1e-6, 1e-5, 1e-3, 0.1])
mus = st.floats(1e-3, 30.0)


def gdp(mu: float, delta: float = DELTA) -> Spent:
    """A Gaussian run that says what an accountant of its law would say."""
    return Spent(f"mu {mu}", {"gdp": gaussian.gdp_epsilon(mu, delta), "zcdp": zcdp_of(mu * mu / 2, delta)}, delta)


def zcdp_of(rho: float, delta: float = DELTA) -> float:
    return concentrated.zcdp_epsilon(rho, delta)


def plain_sum(spent: list[Spent], kinds: tuple[str, ...] = SOUND) -> tuple[float, Fraction]:
    """What a ledger said before: every run by its smallest value, deltas added."""
    chosen = [min((v, n) for n, v in run.epsilon.items() if n in kinds and v is not None) for run in spent]
    delta = sum(
        (Fraction(repr(r.delta)) for r, (_, n) in zip(spent, chosen, strict=True) if n in APPROXIMATE), Fraction(0)
    )
    return add_up(v for v, _ in chosen), delta


# --- amounts ----------------------------------------------------------------------------------------------------------


@given(mus, deltas)
def test_mu_is_got_back_from_above(mu: float, delta: float) -> None:
    epsilon = gaussian.gdp_epsilon(mu, delta)
    back = gaussian.gdp_mu_above(epsilon, delta)
    assert mu <= back
    if epsilon > 0.0:
        assert back <= mu * (1 + 1e-7)
        assert back == pytest.approx(oracle.mu_of(epsilon, delta), rel=1e-7)
    square = ACCOUNTANTS["gdp"].amounts(epsilon, delta)
    assert Fraction(square["mu"]) >= Fraction(mu) ** 2 and Fraction(square["rho"]) >= Fraction(mu) ** 2 / 2


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.7, 3.0, 40.0])
def test_a_run_is_counted_with_more_than_any_that_its_epsilon_allows(epsilon: float, delta: float) -> None:
    """In as many digits as it takes: a run may have every mu whose delta is small enough, up to the last bit."""
    mu = math.sqrt(ACCOUNTANTS["gdp"].amounts(epsilon, delta)["mu"])
    assert gdp_delta(mu, epsilon) > Decimal(delta)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_where_epsilon_is_0_it_is_the_largest_mu_that_costs_nothing(delta: float) -> None:
    back = gaussian.gdp_mu_above(0.0, delta)
    assert gaussian.gdp_delta(back, 0.0) > delta > oracle.delta_of_mu(back * (1 - 1e-13 / delta - 1e-6), 0.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(math.inf, DELTA), (0.0, 1.0), (3.0, 1.0)])
def test_where_nothing_is_excluded_mu_is_infinite(epsilon: float, delta: float) -> None:
    assert gaussian.gdp_mu_above(epsilon, delta) == math.inf


@given(st.floats(1e-12, 1e6), deltas)
def test_rho_is_got_back_from_above(rho: float, delta: float) -> None:
    back = concentrated.zcdp_rho(zcdp_of(rho, delta), delta)
    assert rho <= back <= rho * (1 + 1e-12)
    assert concentrated.zcdp_rho(0.0, delta) < 1e-300 and concentrated.zcdp_rho(math.inf, delta) == math.inf
    assert concentrated.zcdp_rho(rho, 1.0) == pytest.approx(rho), "of a delta that is not known"


@given(st.floats(1e-3, 60.0))
def test_a_pure_epsilon_in_the_other_kinds(epsilon: float) -> None:
    amounts = pure.amounts(epsilon, DELTA)
    assert oracle.rho_of_pure(epsilon) <= amounts["rho"] * (1 + 1e-9)
    assert amounts["rho"] <= min(epsilon * epsilon / 2, epsilon) * (1 + 1e-12)
    for alpha in (1.001, 1.5, 2.0, 7.0, 100.0):
        assert oracle.renyi(epsilon, alpha) <= alpha * amounts["rho"] * (1 + 1e-9) + 1e-12
    mu = math.sqrt(amounts["mu"])
    if epsilon < 30.0:
        assert mu == pytest.approx(oracle.mu_of_pure(epsilon), rel=1e-6)
    for e in np.linspace(0.0, 1.5 * epsilon, 7):  # delta(e) of randomised response lies below that of mu-GDP
        exact = max(0.0, (math.exp(epsilon - e) - 1.0) / (math.exp(epsilon - e) + math.exp(-e)))
        assert exact <= gaussian.gdp_delta(mu, float(e)) + 1e-12
    assert pure.amounts(math.inf, DELTA)["mu"] == math.inf == pure.amounts(601.0, DELTA)["mu"]


# --- together ---------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.tuples(mus, deltas), min_size=1, max_size=20))
def test_gaussian_runs_lie_between_exact_composition_and_the_plain_sum(runs: list[tuple[float, float]]) -> None:
    spent = [gdp(mu, delta) for mu, delta in runs]
    found = tally(spent, SOUND)
    before, at = plain_sum(spent)
    assert found.epsilon <= before and found.delta <= at
    if found.delta < 1:
        mu = math.sqrt(math.fsum(mu * mu for mu, _ in runs))
        exact = oracle.epsilon_of_mu(mu, float(found.delta))
        assert exact * (1 - 1e-9) <= found.epsilon
        composed = [run.epsilon["gdp"] for run in spent if (run.epsilon["gdp"] or 0.0) > 0.0]
        if len(composed) == len(runs):
            assert found.epsilon <= exact * (1 + 1e-6)


values = st.just(0.0) | st.floats(1e-3, 6.0)
priced = st.dictionaries(st.sampled_from(SOUND), values, min_size=1)


@settings(deadline=None)
@given(st.lists(st.tuples(priced, st.sampled_from([1e-6, 1e-5])), min_size=1, max_size=4))
def test_whatever_the_kinds_it_is_at_most_the_plain_sum_and_at_least_every_way_there_is(runs) -> None:
    spent = [Spent("r", epsilon, delta) for epsilon, delta in runs]
    for kinds in (PURE, SOUND):
        if not all(run.epsilon.keys() & set(kinds) for run in spent):
            assert tally(spent, kinds).unbounded == "r" or kinds is SOUND
            continue
        found, (before, at) = tally(spent, kinds), plain_sum(spent, kinds)
        assert found.epsilon <= before
        assert found.delta <= sum(Fraction(repr(run.delta)) for run in spent)
        assert found.epsilon < before or found.delta <= at
    if all(run.epsilon.keys() & set(SOUND) for run in spent):
        assert tally(spent, SOUND).epsilon >= oracle.least(runs, None) * (1 - 1e-9) - 1e-12


def test_what_the_recipes_say() -> None:
    found = tally([gdp(0.1)] * 3, SOUND)
    assert found.recipe == "gdp x3 composed: mu 0.1732" and found.delta == Fraction("3e-5")
    assert found.epsilon == pytest.approx(oracle.epsilon_of_mu(0.1 * math.sqrt(3), 3e-5), rel=1e-9)
    laplace = [Spent("a", {"zcdp": zcdp_of(0.01), "tight": 5.0}, DELTA)] * 2
    assert tally(laplace, SOUND).recipe == "zcdp x2 composed: rho 0.02"
    assert (
        tally([*laplace, Spent("g", {"gdp": gdp(0.2).epsilon["gdp"]}, DELTA)], SOUND).recipe
        == "zcdp x2, gdp composed: rho 0.04"
    )
    pure_one = Spent("c", {"tight": 0.1}, DELTA)
    both = [Spent("d", {name: 0.1}, DELTA) for name in ("zcdp", "gdp")]
    assert tally([*both, *both, pure_one], SOUND).recipe == "zcdp x2, gdp x2 composed: rho 0.00149; plus tight"
    small = Spent("b", {"tight": 0.001}, DELTA)
    assert tally([small, small], SOUND).recipe == "sum of tight x2" and tally([small], SOUND).recipe == "tight"
    assert tally([small, *[gdp(0.5)] * 2], SOUND).recipe == "tight, gdp x2 composed: mu 0.7071"
    assert tally([Spent("c", {"tight": 0.9}, DELTA), *[gdp(0.5)] * 2], PURE).unbounded == "mu 0.5"
    assert tally([], SOUND).epsilon == 0.0


def test_a_stated_delta_is_the_total_whatever_the_run_files_say() -> None:
    exact = oracle.epsilon_of_mu(0.2, 1e-7)
    for delta in (1e-3, 1e-5, 1e-9):
        found = tally([gdp(0.1, delta)] * 4, SOUND, delta_max=Fraction("1e-7"))
        assert found.delta == Fraction("1e-7")
        assert found.epsilon == pytest.approx(exact, rel=1e-4) and found.epsilon >= exact * (1 - 1e-9)
    pure_runs = [Spent("p", {"tight": 0.05}, DELTA)] * 400
    composed = tally(pure_runs, SOUND, delta_max=Fraction("1e-5"))
    assert composed.epsilon < 6.0 < tally(pure_runs, SOUND).epsilon and tally(pure_runs, SOUND).delta == 0


def test_kinds_that_are_composed_apart_share_a_stated_delta() -> None:
    whole, mine = Fraction("1e-5"), Fraction("2e-6")
    parts = [
        Part("mu", 0.04, Fraction("0.1"), "gdp"),
        Part("rho", 0.01, Fraction("0.1"), "zcdp"),
        Part(None, 0.3, mine, "gdp"),
    ]
    found = total(parts, whole)
    assert found is not None and found.delta == whole
    each = float(whole - mine) / 2
    exact = 0.3 + oracle.epsilon_of_mu(0.2, each) + oracle.epsilon_of_rho(0.01, each)
    assert found.epsilon == pytest.approx(exact, rel=1e-9)
    assert total(parts, mine) is None, "nothing is left to share"


@given(st.lists(deltas, min_size=1, max_size=30))
def test_a_sum_of_deltas_is_rounded_down(of_runs: list[float]) -> None:
    """The larger float at the same sum would give a smaller epsilon than the delta that is claimed."""
    exact = sum(map(composition.as_written, of_runs), Fraction(0))
    found = composition._below(exact)
    assert Fraction(found) <= exact < Fraction(math.nextafter(found, math.inf))


def test_a_named_accountant_counts_in_its_own_kind_only() -> None:
    runs = [Spent("r", {"tight": 0.05, "zcdp": 4.0, "gdp": 5.0}, DELTA)] * 9
    assert tally(runs, ("tight",), "tight", Fraction("0.1")).recipe == "sum of tight x9"
    assert tally(runs, ("zcdp",), "zcdp").recipe.startswith("zcdp x9 composed: rho ")
    assert tally(runs, ("gdp",), "gdp").recipe.startswith("gdp x9 composed: mu ")
    assert tally([Spent("r", {"lemma5": 3.0}, DELTA)] * 2, ("lemma5",), "lemma5").epsilon == 6.0
    assert tally([Spent("r", {"lemma5": 3.0}, DELTA)], SOUND).unbounded == "r"


def test_rows_of_a_version_that_recorded_no_delta_are_added_as_before() -> None:
    old = [Spent("old", {"zcdp": 0.5, "gdp": 0.4}, 1.0), gdp(0.1)]
    found = tally(old, SOUND)
    assert found.recipe == "sum of gdp x2" and found.delta == Fraction("1.00001")
    rho = 0.5 + oracle.rho_of(old[1].epsilon["zcdp"], DELTA)  # whatever the delta was, rho is at most epsilon
    owner = tally(old, SOUND, delta_max=Fraction("1e-5"))
    assert owner.delta == Fraction("1e-5") and owner.epsilon == pytest.approx(oracle.epsilon_of_rho(rho, 1e-5))


# --- mutants ----------------------------------------------------------------------------------------------------------


def mu_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """mu, not its square: far too much."""
    change(monkeypatch, amounts=lambda e, d: {"mu": gaussian.gdp_mu_above(e, d)}, measured=lambda amount: amount)


def root_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, measured=lambda amount: amount)


def found_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """mu from below is less than what a run may have spent."""
    change(monkeypatch, amounts=lambda e, d: {"mu": (gaussian.gdp_mu(e, d) * (1 - 1e-6)) ** 2})


def converted_before_it_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "ways", lambda others: [composition.Way((), others)])


def delta_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = composition.total
    monkeypatch.setattr(
        composition,
        "total",
        lambda parts, cap=None: replace(made, delta=parts[0].delta) if (made := real(parts, cap)) else made,
    )


def delta_of_everybody_given_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    real = composition.total
    monkeypatch.setattr(
        composition, "total", lambda parts, cap=None: real([replace(p, delta=2 * p.delta) for p in parts], cap)
    )


def change(monkeypatch: pytest.MonkeyPatch, **how) -> None:
    mutant = replace(ACCOUNTANTS["gdp"], **how)
    composition._amounts.cache_clear()
    monkeypatch.setattr(composition, "ACCOUNTANTS", {**ACCOUNTANTS, "gdp": mutant})
    monkeypatch.setattr(composition, "_COMPOSERS", {**composition._COMPOSERS, "mu": mutant})


def wrong() -> bool:
    """Whether three Gaussian runs cost anything but what they cost."""
    found = tally([Spent("r", {"gdp": gaussian.gdp_epsilon(0.3, DELTA)}, DELTA)] * 3, SOUND)
    exact = oracle.epsilon_of_mu(0.3 * math.sqrt(3), 3e-5)
    return found.delta != Fraction("3e-5") or not exact * (1 - 1e-9) <= found.epsilon <= exact * (1 + 1e-6)


@pytest.mark.parametrize(
    "mutant",
    [
        mu_added,
        root_forgotten,
        found_below,
        converted_before_it_is_added,
        delta_counted_once,
        delta_of_everybody_given_to_each,
    ],
)
def test_a_mutant_is_noticed(mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not wrong()
    mutant(monkeypatch)
    assert wrong()
    composition._amounts.cache_clear()
