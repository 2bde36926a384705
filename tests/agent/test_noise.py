"""Noise whose range a clipped value may leave is refused, whichever release is the tightest."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dpgt_node.agent.noise import check_range
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from tests.sim import cases

REACH = 65_536
"""Of the Gaussian sampler, in scales."""
LARGEST = 60_000.0
"""What y may have to cover: within the reach of a scale of 1."""
K = 99


def run(scales: tuple[float, ...] = (1.0,), clips: tuple[float, ...] = (1.0,), **scheme: Any) -> model.RunConfig:
    config = cases.run("two agents", K=K)
    return replace(
        config,
        algorithm=replace(config.algorithm, mechanism="noise-once"),
        scheme=replace(config.scheme, **scheme),
        privacy=model.Privacy(clip_l2=LARGEST / 2, by_release=clips),
        noise=replace(config.noise, law="gaussian", eta=model.NoiseStream("constant", (1.0, 1.0)), by_release=scales),
    )


def falling(power: float) -> model.RunConfig:
    """S1 with a scale of (k+1)^power."""
    config = run()
    scheme = model.SchemeS1(
        a1=0.1, a2=0.1, a3=0.1, a4=1.0, p_alpha=0.9, p_beta=0.8, p_gamma=0.95, p_m=0.0, samples=1, releases=(0, 50)
    )
    eta = model.NoiseStream("exponent", (power, power))
    return replace(config, scheme=scheme, noise=replace(config.noise, eta=eta))


S1_EVERY = replace(falling(0.0).scheme, releases=None)


def faded(config: model.RunConfig, noise: float, clip: float) -> model.RunConfig:
    privacy = replace(config.privacy, decay=clip)
    return replace(config, noise=replace(config.noise, decay=noise), privacy=privacy)


def check(config: model.RunConfig) -> None:
    check_range(config, Topology.from_config(config.graph), Schedule.from_config(config), 0)


@pytest.mark.parametrize(
    "config",
    [
        run(),
        run((2.0, 1.0)),
        run((0.25, 1.0), (0.25, 1.0)),  # each release by its own clip
        run((1.0, 1.0, 0.5), releases=(0, 9)),  # a third scale that no release has
        falling(0.0),
        falling(-0.02),
        faded(run(), 0.5, 0.5),
    ],
)
def test_noise_that_reaches_every_value_is_allowed(config: model.RunConfig) -> None:
    check(config)


@pytest.mark.parametrize(
    ("config", "scale", "largest"),
    [
        (run((1.0, 1.0, 0.5)), 0.5, LARGEST),
        (run((1.0, 2.0), (1.0, 4.0)), 2.0, 4 * LARGEST),  # not the smallest scale: the smallest for its clip
        (run((1.0, 0.9), (1.0, 2.0), releases=(0, 9)), 0.9, 2 * LARGEST),
        (falling(-0.5), 51**-0.5, LARGEST),  # in the last release alone
        (faded(run(), 2.0, 1.0), 0.5, LARGEST),
        # (k+1)^-0.5 e^(k/20) is least in the middle, at none of the ends
        (faded(replace(falling(-0.5), scheme=S1_EVERY), math.exp(-K / 20), 1.0), 10**-0.5 * math.exp(9 / 20), LARGEST),
    ],
)
def test_noise_that_some_release_would_leave_is_refused(config: model.RunConfig, scale: float, largest: float) -> None:
    with pytest.raises(ConfigError) as refused:
        check(config)
    assert f"scale {scale:g} reaches {REACH * scale:g}, but values of up to {largest:g}" in str(refused.value)
    assert "add up" not in str(refused.value), "of every round alike"


def test_it_says_when_the_number_of_rounds_is_what_takes_a_value_out_of_reach() -> None:
    config = run()
    config = replace(config, algorithm=replace(config.algorithm, mechanism="paper"))
    with pytest.raises(ConfigError) as refused:
        check(config)
    zeta = next(str(one) for one in refused.value.problems if one.key == "noise.scale_zeta")
    assert "in round 0; they add up over 100 rounds): take a larger scale or a smaller clip, or fewer rounds" in zeta
