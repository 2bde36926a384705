"""The trade-off of Gaussian noise against decimal arithmetic of as many digits as it takes."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache

import numpy as np
import pytest

from dpgt_node.privacy.accountants import gaussian
from tests.oracles import accountants as oracle
from tests.privacy.agreement import modules

DELTAS = (1e-30, 1e-9, 1e-5, 0.01, 0.5, 0.999)
SIZES = (1e-12, 1e-3, 0.0624, 0.0626, 0.5, 3.0, 11.0)
"""mu on both sides of where the formula changes."""
BEYOND = (-0.1, 1e-14, 1e-9, 1e-4, 0.1, 20.0)
"""How far above the mu that delta alone pays for, as a part of it."""
RELATIVE, OF_DELTA = Decimal("1e-9"), Decimal("1e-13")
"""How far an epsilon may lie above the least one.  The second counts where delta pays for nearly all of mu."""


@cache
def exact(mu: float, epsilon: float) -> Decimal:
    return oracle.gdp_delta(mu, epsilon)


def disagreements(m, deltas=DELTAS, sizes=SIZES, beyond=BEYOND) -> list[str]:
    """Where an epsilon, a delta or a mu is on the wrong side, or further from the exact one than it may be."""
    found = []
    for delta in deltas:
        free = math.sqrt(2.0 * math.pi) * delta
        for mu in (*sizes, *(free * (1.0 + part) for part in beyond)):
            epsilon = m.gdp_epsilon(mu, delta)
            if exact(mu, epsilon) > Decimal(delta):
                found.append(f"epsilon({mu}, {delta}) = {epsilon} is too low")
            slack = RELATIVE * Decimal(epsilon) + OF_DELTA * Decimal(delta)
            lower = float(Decimal(epsilon) - slack)
            if lower > 0.0 and exact(mu, lower) <= Decimal(delta):
                found.append(f"epsilon({mu}, {delta}) = {epsilon} is too high")
            size = m.gdp_mu(epsilon, delta)
            if exact(size, epsilon) > Decimal(delta):
                found.append(f"mu({epsilon}, {delta}) = {size} is too high")
            above = m.gdp_mu_above(epsilon, delta)
            if not mu <= above or exact(above, epsilon) <= Decimal(delta) or above > size * (1.0 + 1e-9):
                found.append(f"mu above({epsilon}, {delta}) = {above}")
            if exact(size * (1.0 + 1e-9), epsilon) <= Decimal(delta):
                found.append(f"mu({epsilon}, {delta}) = {size} is too low")
            for at in (epsilon, 1.05 * epsilon + 0.1 * mu):
                is_, claimed = exact(mu, at), m.gdp_delta(mu, at)
                if not is_ <= Decimal(claimed) <= is_ * (1 + Decimal("1e-11")) + Decimal("1e-320"):
                    found.append(f"delta({mu}, {at}) = {claimed}")
    return found


def test_every_value_is_a_bound_and_a_close_one() -> None:
    assert disagreements(gaussian) == []
    assert disagreements(gaussian, (1e-300,), (3.0,), (1e-9,)) == [], "a second a value"


def test_random_settings_are_bounds_and_close() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        delta = float(10.0 ** rng.uniform(-15, -0.01))
        sizes = [float(10.0 ** rng.uniform(-6, 1.0))]
        assert disagreements(gaussian, (delta,), sizes, (float(10.0 ** rng.uniform(-14, 1)),)) == []


def test_the_oracle_knows_what_is_known() -> None:
    # Phi(1) - Phi(-1) and Phi(1/2) - Phi(-1/2), to more digits than a table has.
    assert str(oracle.gdp_delta(2.0, 0.0)).startswith("0.682689492137085897170465091264")
    assert str(oracle.gdp_delta(1.0, 0.0)).startswith("0.382924922548026207275409221216")


@pytest.mark.parametrize("mu", [1e10, 1e20, 1e100, 1e150])
def test_tiny_noise_costs_mu_squared_over_two(mu: float) -> None:
    for delta in (1e-300, 1e-5, 0.4):
        assert mu * mu / 2.0 <= gaussian.gdp_epsilon(mu, delta) <= mu * mu / 2.0 * (1.0 + 1e-8)


def test_the_ends_of_the_range() -> None:
    least = math.ulp(0.0)
    for delta in (least, 1e-300, 0.5, 1.0 - 2.0**-53):
        assert gaussian.gdp_epsilon(math.inf, delta) == gaussian.gdp_epsilon(1e200, delta) == math.inf
        assert gaussian.gdp_epsilon(0.0, delta) == gaussian.gdp_epsilon(delta, delta) == 0.0
        for epsilon in (0.0, least, 1e-300, 1.0, 1e300):
            assert gaussian.gdp_epsilon(gaussian.gdp_mu(epsilon, delta), delta) <= epsilon * (1.0 + 1e-9)
    assert gaussian.gdp_delta(0.0, 1.0) == 0.0 and gaussian.gdp_delta(math.inf, 1.0) == 1.0
    assert 0.0 < gaussian.gdp_delta(1.0, 1e6) < 1e-300, "a bound above 0, not 0"


def test_every_search_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = gaussian._excess, []

    def counted(mu: float, u: float, allowed: float) -> object:
        asked.append(u)
        assert len(asked) <= 1300, "the search does not end"
        return real(mu, u, allowed)

    monkeypatch.setattr(gaussian, "_excess", counted)
    longest = 0
    for delta in (1e-300, 1e-5, 0.3):
        free = math.sqrt(2.0 * math.pi) * delta
        for mu in (free * (1 + 1e-15), free * (1 + 1e-12), 2.5066283e-5, 2.5067e-5, 1.0, 1e100):
            asked.clear()
            gaussian.gdp_epsilon(mu, delta)
            longest = max(longest, len(asked))
        for epsilon in (0.0, 1e-300, 1e-30, 1.0, 1e300):
            asked.clear()
            gaussian.gdp_mu(epsilon, delta)
    assert longest <= 150


def test_rows_that_start_from_their_predecessor_say_the_same() -> None:
    norms = np.concatenate((np.zeros(2), np.geomspace(1e-6, 40.0, 400)))
    rows = gaussian.gdp(norms, 1e-5)
    alone = [gaussian.gdp_epsilon(mu, 1e-5) for mu in norms.tolist()]
    np.testing.assert_allclose(rows, alone, rtol=1e-11, atol=1e-18)
    assert (np.diff(rows) >= 0.0).all()


def test_the_prototypes_noise_levels() -> None:
    # privacy.md, section 8: mu of (epsilon, 1e-5), four digits rounded down.
    for epsilon, mu in ((1.0, 0.2680), (0.5, 0.1422), (3.0, 0.7191)):
        assert mu <= gaussian.gdp_mu(epsilon, 1e-5) < mu + 1e-4


MUTANTS = [
    ("t, s = u - 0.5 * mu, u + 0.5 * mu", "t, s = u + 0.5 * mu, u + 0.5 * mu"),
    ("first, second = 0.5 * math.erfc(t / _SQRT2), math.exp(log_phi) * far", "first, second = 0.5 * math.erfc(t), far"),
    ("size, error = near - far, near_error", "size, error = near - 1.001 * far, near_error"),
    ("math.exp(0.5 * x * x) * math.erfc(x / _SQRT2)", "math.erfc(x / _SQRT2)"),
    ("ratio = n / (x + ratio)", "ratio = 0.5 * n / (x + ratio)"),
    ("values.append(1.0 - u * first)", "values.append(1.0 - 0.999 * u * first)"),
    ("weight *= square / ((n + 1) * (n + 2))", "weight = 0.0"),
    ("return self.log + self.error <= 0.0", "return self.log - self.error <= 0.0"),
    ("return self.log + self.error <= 0.0", "return True"),
    ("(_log_ratio(mu, allowed), -_LOG_SQRT_2PI)", "(_log_ratio(mu, allowed), -_LOG_SQRT_2PI - 0.01)"),
    ("return mu * high * (1.0 + 2.0 * U)", "return mu * low"),
    ("        if fits(middle):", "        if not fits(middle):"),
    ("        if exceeds(middle):", "        if not exceeds(middle):"),
    ("point.log - point.error > 0.0", "point.log + 0.01 > 0.0"),
    ("math.sqrt(-2.0 * math.log(delta))", "math.sqrt(-math.log(delta))"),
]


@pytest.mark.parametrize(("old", "new"), MUTANTS, ids=[new.strip() for _, new in MUTANTS])
def test_a_broken_formula_is_noticed(old: str, new: str) -> None:
    mutant = modules("gaussian", old, new).gaussian
    try:
        found = disagreements(mutant, (1e-12, 1e-5, 0.5), (1e-3, 0.5, 3.0), (-0.1, 1e-14, 1e-4, 0.1))
    except (ArithmeticError, ValueError):
        return
    assert found
