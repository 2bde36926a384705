"""What a run costs whose releases are fewer than its rounds: as much as its releases, wherever they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node import cli
from dpgt_node.accounts.account import AgentAccount
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model, to_toml
from dpgt_node.privacy.accountants.gaussian import gdp_epsilon
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.accountants.rounding import ALLOWANCE
from dpgt_node.privacy.mechanisms import TRACKING
from dpgt_node.types import NoiseLaw
from tests.oracles.composition import epsilon_of_mu
from tests.sim import cases

D, M, SCALES = 40, 8, (0.01, 0.02, 0.03, 0.04, 0.05)


def run(K: int, law: NoiseLaw = "laplace", **scheme: Any) -> model.RunConfig:
    config = cases.run("the demo's ring with chords", K=K)
    return replace(
        config,
        algorithm=replace(config.algorithm, mechanism="noise-once"),
        scheme=replace(config.scheme, samples=M, **scheme),
        privacy=model.Privacy(clip_l1=0.5) if law == "laplace" else model.Privacy(clip_l2=0.5),
        noise=replace(config.noise, law=law, eta=model.NoiseStream("constant", SCALES)),
    )


def account(config: model.RunConfig, i: int = 1) -> AgentAccount:
    return account_for(config, Topology.from_config(config.graph), Schedule.from_config(config), i, D, 7)


def charged(made: AgentAccount, name: str, K: int) -> list[int]:
    """Rounds after which the run costs more than before."""
    curve = [made.cost(name, k) for k in range(-1, K + 1)]
    assert None not in curve
    return [k for k, (before, after) in enumerate(pairwise(curve)) if after > before]  # type: ignore[operator]


def enumerated(config: model.RunConfig, i: int, k: int) -> Fraction:
    """``tight`` after round ``k``: C/(m scale) for every release so far, one by one, in rationals."""
    schedule, scheme = Schedule.from_config(config), config.scheme
    assert scheme.releases is not None and config.noise.eta is not None and config.privacy.clip_l1 is not None
    factors, total = config.noise.by_release or (1.0,), Fraction(0)
    clips = config.privacy.by_release or (1.0,)
    for r, at in enumerate(scheme.releases):
        if at <= k:
            scale = Fraction(config.noise.eta.values[i]) * Fraction(factors[min(r, len(factors) - 1)])
            clip = Fraction(config.privacy.clip_l1) * Fraction(clips[min(r, len(clips) - 1)])
            total += 2 * clip / (schedule.m_for(D) * scale)
    return total


def check_tight(config: model.RunConfig) -> None:
    """Never below the enumeration, and above it by no more than what the sampler and rounding add."""
    made = account(config)
    for k in range(-1, config.K + 1):
        exact, found = enumerated(config, 1, k), made.cost("tight", k)
        assert found is not None and math.isfinite(found)
        assert exact <= Fraction(found) <= exact * Fraction(1 + 2 * ALLOWANCE), k


LISTED: dict[str, Any] = dict(releases=(0, 3, 4, 9), settle=2)
WITH_FACTORS = (2.0, 0.25, 3.0)


def listed() -> model.RunConfig:
    config = run(12, **LISTED)
    return replace(config, noise=replace(config.noise, by_release=WITH_FACTORS))


def clipped() -> model.RunConfig:
    """The same with another clip for each of the first releases."""
    return replace(listed(), privacy=model.Privacy(clip_l1=0.5, by_release=(15.5, 0.3, 1.0)))


def test_tight_is_the_sum_over_releases() -> None:
    check_tight(listed())
    check_tight(clipped())


def test_a_clip_that_is_a_hundredth_of_another_costs_as_its_own_noise_says() -> None:
    """Clip and scale by release cancel: every release costs the same, whatever the accountant."""
    for law in ("laplace", "gaussian"):
        plain = run(12, law, **LISTED)
        factors = (10.0, 0.01, 3.0)
        privacy = replace(plain.privacy, by_release=factors)
        scaled = replace(plain, noise=replace(plain.noise, by_release=factors), privacy=privacy)
        for name in ACCOUNTANTS:
            if account(plain).why_not(name) is None:
                assert account(scaled).total(name) == pytest.approx(account(plain).total(name), rel=1e-4), name


def test_a_clip_and_a_noise_that_decay_alike_cost_what_they_would_cost_without() -> None:
    """dyn-d2p's schedules: mu_k = mu_0 rho_mu^(k/K) under clip_k = clip rho_c^(-k/K) adds up to mu^2 = sum mu_k^2."""
    plain = run(12, "gaussian")
    both = replace(plain, noise=replace(plain.noise, decay=3.0), privacy=replace(plain.privacy, decay=3.0))
    assert account(both).total("gdp") == pytest.approx(account(plain).total("gdp"), rel=1e-4)
    rho_c, rho_mu, K = 3.0, 1.7, 12
    grown = replace(both, noise=replace(both.noise, decay=rho_c * rho_mu))
    mu_0 = 2.0 * 0.5 / (Schedule.from_config(plain).m_for(D) * SCALES[1])
    exact = math.sqrt(sum((mu_0 * rho_mu ** (k / K)) ** 2 for k in range(K + 1)))
    assert account(grown).total("gdp") == pytest.approx(epsilon_of_mu(exact, grown.privacy.delta), rel=1e-4)
    schedule = Schedule.from_config(grown)
    assert schedule.clip_of(12) == pytest.approx(1 / 3) and schedule.sigma("Y", 1, 6) == pytest.approx(
        SCALES[1] / math.sqrt(5.1)
    )


def test_what_the_sampler_adds_is_that_of_the_scale_it_draws_with() -> None:
    """Not of the scale over its clip's share, by which alone a shift is measured."""
    config = clipped()
    topology, schedule = Topology.from_config(config.graph), Schedule.from_config(config)
    drawn = SCALES[1] * np.array([2.0, 0.25, 3.0, 3.0])

    def total(part: float) -> float:
        made = AgentAccount(config, topology, schedule, 1, D, dimension=7, leftover=lambda scale, norm: part * scale)
        found = made.total("tight")
        assert found is not None
        return found

    assert total(100.0) - total(0.0) == pytest.approx(100.0 * drawn.sum(), rel=1e-6)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_only_releases_cost(law: NoiseLaw) -> None:
    made, speaking = account(run(12, law, **LISTED)), 0
    for name in ACCOUNTANTS:
        if made.why_not(name) is None:
            assert charged(made, name, 12) == list(LISTED["releases"]), name
            speaking += 1
    assert speaking == (3 if law == "laplace" else 2)


def test_gdp_adds_the_squares_of_the_releases() -> None:
    config = run(12, "gaussian", **LISTED)
    config = replace(config, noise=replace(config.noise, by_release=WITH_FACTORS))
    scales = SCALES[1] * np.array([2.0, 0.25, 3.0, 3.0])
    mu = math.sqrt(float(np.sum((2 * 0.5 / (M * scales)) ** 2)))
    assert account(config).total("gdp") == pytest.approx(gdp_epsilon(mu, config.privacy.delta), rel=1e-4)


@settings(deadline=None, max_examples=30)
@given(st.sets(st.integers(1, 60), max_size=6), st.integers(0, 20), st.sampled_from(["laplace", "gaussian"]))
def test_where_the_releases_are_does_not_matter(later: set[int], more: int, law: NoiseLaw) -> None:
    """A run costs what one costs that has its releases and no other round."""
    rounds = (0, *sorted(later))
    apart, compact = account(run(rounds[-1] + more, law, releases=rounds)), account(run(len(rounds) - 1, law))
    for name in ACCOUNTANTS:
        expected = compact.total(name)
        assert (apart.total(name) is None) == (expected is None)
        if expected is not None:
            assert apart.total(name) == pytest.approx(expected, rel=1e-9)


def test_every_other_round() -> None:
    schedule = Schedule.from_config(run(20, release_every=6, settle=3))
    assert list(schedule.releases) == [0, 6, 12]
    assert [schedule.release(k) for k in (0, 1, 6, 12, 18)] == [0, None, 1, 2, None]
    assert [schedule.gamma_at(k) == 0.0 for k in (17, 18, 20)] == [False, True, True]
    assert [schedule.last_release(k) for k in (0, 5, 6, 20)] == [0, 0, 6, 12]
    assert len(Schedule.from_config(run(20, release_every=600)).releases) == 1


def test_what_check_says_of_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(to_toml(run(60, release_every=6, settle=3)), encoding="utf-8")
    assert cli.run(["check", str(file), "--all"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "10 of 61 rounds release: 0, 6, 12, 18, 24, 30, 36, 42, ..., 54; the last 3 settle" in said
    assert f"sum of m_k over all releases: {10 * M}" in said
    assert "the paper's theorems do not speak of rounds that release nothing" in said


def test_the_smallest_scale_is_that_of_any_release() -> None:
    made = account(listed())
    assert made.least_scale("Y") == SCALES[1] * 0.25 and made.scale("Y", 1) == 0.0 and made.scale("Y", 3) > 0.0
    assert made.sensitivity("Y", 1) == 0.0 and made.sensitivity("Y", 3) == 2 * 0.5 / M


# --- what would be wrong ----------------------------------------------------------------------------------------------


def everything(schedule: Schedule, k: int) -> float:
    return 1.0


def nothing_late(schedule: Schedule, k: int) -> float:
    return 1.0 if k in schedule.releases and k != schedule.releases[-1] else 0.0


@pytest.mark.parametrize("share", [everything, nothing_late])
def test_a_charge_too_many_or_too_few_is_caught(
    share: Callable[[Schedule, int], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Schedule, "share", share)
    with pytest.raises(AssertionError):
        check_tight(listed())


@pytest.mark.parametrize("clip", [lambda schedule, release: 1.0, lambda schedule, release: schedule.clips[0]])
def test_a_clip_charged_for_another_release_is_caught(
    clip: Callable[[Schedule, int], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Schedule, "clip_of", clip)
    with pytest.raises(AssertionError):
        check_tight(clipped())


def test_mechanisms_that_charge_every_round_do_so_still() -> None:
    for one in TRACKING:
        config = cases.run("two agents", K=3)
        config = replace(
            config, algorithm=replace(config.algorithm, mechanism=one.name), privacy=model.Privacy(clip_l1=0.5)
        )
        assert Schedule.from_config(config).releases == range(4)
        assert one.accounted.once or account(config, 1).cost("tight" if one.accounted.public_point else "corrected", 3)
