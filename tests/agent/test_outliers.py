"""What noise alone makes of a distance between released vectors: the alarm's floor, against noise that is drawn."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.outliers import Outliers
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.config.mixing.robust import Robust
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.types import Stream
from tests.sim import cases

D = 20_000
ROBUST = Robust("self-clip", None, 1, "norm-clip", 1.0)


def run_of(mechanism: str, law: str = "laplace") -> model.RunConfig:
    run = cases.run("self-loops everywhere")
    algorithm = replace(run.algorithm, mechanism=mechanism)
    return replace(run, robust=ROBUST, algorithm=algorithm, noise=replace(run.noise, law=law))  # type: ignore[arg-type]


def floor(run: model.RunConfig, stream: Stream, d: int = D) -> float:
    """At agent-2, of agent-3."""
    return Outliers(run, Schedule.from_config(run), 1, d)._noise(stream, 2, 0)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_the_floor_is_the_root_mean_square_of_what_is_drawn(law: str) -> None:
    run = run_of("paper", law)
    sampler, schedule = sampler_for(run), Schedule.from_config(run)

    def drawn(stream: Stream, i: int) -> np.ndarray:
        return sampler.perturb(np.zeros(D), schedule.sigma(stream, i, 0), TestKeystream("ab", i).stream(0, stream))

    both = float(np.linalg.norm(drawn("X", 2) - drawn("X", 1)))
    assert floor(run, "X") == pytest.approx(both, rel=0.05)
    assert floor(run, "Y") == pytest.approx(float(np.linalg.norm(drawn("Y", 2))), rel=0.05), "its centre is 0"
    assert floor(run, "X", 4 * D) == pytest.approx(2 * floor(run, "X"))


def test_the_floor_is_of_what_is_drawn_on_the_vector_itself() -> None:
    for mechanism, x, y in (
        ("published-point", True, True),
        ("public-state", False, True),
        ("noise-once", False, True),
    ):
        run = run_of(mechanism)
        assert (floor(run, "X") > 0.0, floor(run, "Y") > 0.0) == (x, y)
    quiet = run_of("paper")
    assert floor(replace(quiet, noise=replace(quiet.noise, multiplier=0.0)), "X") == 0.0


def test_the_floor_is_of_the_round_and_the_radius_of_the_stream() -> None:
    run = run_of("paper")
    seldom = run_of("noise-once")
    seldom = replace(seldom, scheme=replace(seldom.scheme, releases=(0, 2)))
    watch = Outliers(seldom, Schedule.from_config(seldom), 1, D)
    assert watch._noise("Y", 2, 1) == 0.0 < watch._noise("Y", 2, 0) == watch._noise("Y", 2, 2)
    quiet = replace(run, noise=replace(run.noise, multiplier=0.0))
    watch = Outliers(quiet, Schedule.from_config(quiet), 1, D)
    said = [one for k in range(6) for one in watch.after(k, {"X": {2: 3.1}, "Y": {2: 3.1}})]
    assert [(one.sender, one.stream) for one in said] == [("agent-3", "Y")], "x has no radius, and one in-neighbour"


def test_who_has_more_noise_than_the_others_is_not_named_for_it() -> None:
    run = run_of("paper")
    noise = replace(run.noise, zeta=model.NoiseStream("constant", (0.01, 0.01, 1.0)))
    watch = Outliers(replace(run, noise=noise), Schedule.from_config(replace(run, noise=noise)), 1, D)
    far = {0: 0.02 * math.sqrt(D), 2: math.sqrt(2 * D)}
    assert not [said for k in range(20) for said in watch.after(k, {"X": far})]
    plain = Outliers(run, Schedule.from_config(run), 1, D)
    assert [said for k in range(20) for said in plain.after(k, {"X": far})], "with as little noise as the others it is"
