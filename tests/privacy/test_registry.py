"""What every registered accountant and law must do, whoever wrote it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, EPSILONS
from dpgt_node.privacy.accountants.releases import Releases
from dpgt_node.privacy.accountants.rounding import LEAST_COST
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS

K = 9


def releases(mechanism: str, law: str, clip: str | None, scale: float = 0.8, **changes: Any) -> Releases:
    C = None if clip == "l2" else 2.0
    plain: dict[str, Any] = {
        "mechanism": MECHANISMS[mechanism],
        "law": LAWS[law],
        "K": K,
        "a": 0.3,
        "b": 0.2,
        "gamma": 0.4,
        "m": 5,
        "D": 20,
        "C": C,
        "C2": 2.0,
        "clip": clip,
        "delta": 1e-5,
        "noisy": True,
        "scale": lambda stream, k: scale * (1.0 + 0.1 * k),
        "leftover": None,
        "dimension": 7,
        "range": 20.0 * scale,
        "code": BinomialCode(1.0, 129, round((128.0 * scale) ** 2)),
    }
    return Releases(**plain | changes)


SETTINGS = list(itertools.product(ACCOUNTANTS, MECHANISMS, LAWS, ("l1", "l2", None)))


def speaking() -> list[tuple[str, str, str, str | None]]:
    return [(name, *rest) for name, *rest in SETTINGS if ACCOUNTANTS[name].why_not(releases(*rest)) is None]


def test_each_speaks_somewhere_and_is_silent_with_a_reason() -> None:
    assert {name for name, *_ in speaking()} == set(ACCOUNTANTS)
    for name, *rest in SETTINGS:
        r, one = releases(*rest), ACCOUNTANTS[name]
        reason = one.why_not(r)
        assert (one.costs(r) is None) == (reason is not None)
        assert reason is None or (reason and "\n" not in reason and "{" not in reason)


@pytest.mark.parametrize(("name", "mechanism", "law", "clip"), speaking())
def test_a_curve_is_a_budget(name: str, mechanism: str, law: str, clip: str | None) -> None:
    """One value a row, free before anything private left, never falling; more noise costs less."""
    one, r = ACCOUNTANTS[name], releases(mechanism, law, clip)
    curve = one.costs(r)
    assert curve is not None and curve.shape == (2 * (K + 1),) and curve.dtype == np.float64
    assert curve[0] == 0.0 and np.isfinite(curve).all() and (np.diff(curve) >= 0.0).all() and curve[-1] > 0.0
    louder = one.costs(releases(mechanism, law, clip, scale=1.6))
    costs = curve > LEAST_COST
    assert louder is not None and (louder[costs] < curve[costs]).all() and costs.any()
    charged = one.costs(replace(r, leftover=lambda scale, norm: 1e-3))
    # The paper adds up shifts alone, quantisers and coins have no sampler; all others pay for what it leaves over.
    assert charged is not None and (charged >= curve).all()
    assert (charged[-1] > curve[-1]) == (name not in ("lemma5", "variation", "binomial"))
    if one.pure and one.any_batches:
        known = one.costs(replace(r, D=None))
        assert known is not None and (known == curve).all()


@pytest.mark.parametrize(("name", "mechanism", "law", "clip"), speaking())
def test_no_noise_is_no_guarantee(name: str, mechanism: str, law: str, clip: str | None) -> None:
    curve = ACCOUNTANTS[name].costs(replace(releases(mechanism, law, clip), noisy=False))
    assert curve is not None and curve[0] == 0.0 and np.isinf(curve[1:]).all()


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_what_is_not_known_makes_it_silent(name: str) -> None:
    one = ACCOUNTANTS[name]
    rest = next(rest for other, *rest in speaking() if other == name)
    r = releases(*rest)
    assert one.why_not(replace(r, m=None)) is not None and one.why_not(replace(r, C=None, C2=None)) is not None
    assert (one.why_not(replace(r, a=1.5)) is not None) == one.contracts
    assert not one.clip_l1 or one.why_not(replace(r, clip=None)) == one.clip_l1


@pytest.mark.parametrize("name", EPSILONS)
def test_the_goal_of_a_forecast_costs_what_was_asked_for(name: str) -> None:
    """A shift that uses the goal up, measured as the guarantee measures it, is the epsilon that was asked for."""
    one = ACCOUNTANTS[name]
    for epsilon in (0.3, 2.0):
        goal = one.goal(epsilon, 1e-5)
        measured = {"epsilon": goal, "rho": goal**2 / 2.0, "mu": goal, "approximate": goal}[one.guarantee]
        assert one.epsilon_of(measured, 1e-5) == pytest.approx(epsilon, rel=1e-6)


# --- laws


@pytest.mark.parametrize("name", LAWS)
def test_a_sampler_draws_what_its_law_says(name: str) -> None:
    """Cells, exact probabilities and variance of the public value against draws; a wrong scale is noticed."""
    law, scale, n = LAWS[name], 0.7, 200_000
    drawn = law.sampler(None).perturb(np.zeros(n), scale, CtrStream(bytes(16), bytes(16)))
    cells = drawn / law.cell(scale) - 0.5
    assert np.abs(cells - np.rint(cells)).max() < 1e-6
    assert np.var(drawn) / law.variance(scale) == pytest.approx(1.0, rel=0.02)
    assert law.variance(scale) == pytest.approx(law.ideal_variance * scale**2, rel=0.02) and law.variance(0.0) == 0.0
    plain = law.plain(np.random.default_rng(1), n)
    assert np.var(plain) == pytest.approx(law.ideal_variance, rel=0.02)
    few = np.rint(cells).astype(np.int64)[:50]
    near, far = law.log_cells(few, np.zeros(50), scale), law.log_cells(few + 1, np.zeros(50), scale)
    # Neighbouring cells differ by about the slope of the density over one cell, and never by more than a cell allows.
    t = (few + 0.5) * law.cell(scale) / scale
    step = law.log_density(t + law.cell(scale) / scale) - law.log_density(t)
    assert far - near == pytest.approx(step, abs=2e-2)
    for wrong in (0.7, 1.3):
        assert abs(np.var(drawn) / law.variance(wrong * scale) - 1.0) > 0.2


@pytest.mark.parametrize("name", LAWS)
def test_probabilities_add_up(name: str) -> None:
    law, scale = LAWS[name], 1.0
    reach = int(40.0 / law.cell(scale))
    cells = np.arange(-reach, reach, dtype=np.int64)
    total = np.exp(law.log_cells(cells, np.full(cells.size, 0.123), scale)).sum()
    assert total == pytest.approx(1.0, abs=1e-9)
