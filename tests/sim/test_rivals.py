"""The trivial rivals of a run: alone, and one holder of all samples at the same epsilon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.accounts.account import totals
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import load_run
from dpgt_node.config.model import Evaluation, Noise, SchemeS2
from dpgt_node.errors import ConfigError
from dpgt_node.learning.alone import alone
from dpgt_node.learning.data.shards import run_dataset
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.record.rivals import Rivals
from dpgt_node.sim.fast import FastRun
from dpgt_node.sim.rivals import central, central_run, check_rivals, rivals, trivial
from tests.learning.cases import run

SAMPLES = (288, 288, 288, 287, 287)


def private():
    return load_run(Path(__file__).parents[2] / "examples" / "demo-private.toml")


def test_every_agent_alone():
    made = replace(run("digits"), evaluate=Evaluation(10, "study"))
    found = {name: alone(made, i) for i, name in enumerate(made.graph.agents)}
    assert rivals(made, None).alone == {
        name: one.metrics.accuracy_test for name, one in found.items() if one is not None
    }


def test_the_largest_class_of_the_test_set_by_hand():
    made = replace(run("digits"), evaluate=Evaluation(10, "study"))
    labels = run_dataset(made).y_test.tolist()
    share = max(map(labels.count, set(labels))) / len(labels)
    assert trivial(made, None) == Rivals({}, share) and share > 0.1
    assert rivals(made, None).largest_class == share
    assert trivial(replace(made, evaluate=Evaluation(10, "local")), None) is None
    assert trivial(replace(run("quadratic"), evaluate=Evaluation(10, "study")), None) is None


def test_what_has_no_rival_is_refused():
    with pytest.raises(ConfigError, match="no samples to train on alone"):
        check_rivals(replace(run("quadratic", dimension=3), evaluate=Evaluation(10, "study")), "command line")
    with pytest.raises(ConfigError, match=r'metrics = "study"'):
        check_rivals(run("digits"), "command line")


@pytest.mark.parametrize("mechanism", ["noise-once", "public-state", "published-point"])
def test_one_holder_of_everything_costs_what_the_dearest_agent_costs(mechanism):
    made = private()
    made = replace(made, algorithm=replace(made.algorithm, mechanism=mechanism, iterations=9))
    made = replace(made, noise=Noise(made.noise.eta, made.noise.eta, law="gaussian"))
    single = central_run(made, SAMPLES, 640)
    assert single.n == 1 and single.privacy == made.privacy and single.K == made.K
    topology, schedule = Topology.from_config(single.graph), Schedule.from_config(single)
    cost = account_for(single, topology, schedule, 0, sum(SAMPLES), 640).total("gdp")
    topology, schedule = Topology.from_config(made.graph), Schedule.from_config(made)
    dearest = max(totals([account_for(made, topology, schedule, i, D, 640) for i, D in enumerate(SAMPLES)])["gdp"])
    assert cost == pytest.approx(dearest, rel=1e-8) and cost <= dearest


@pytest.mark.parametrize("every", [1, 8])
def test_without_noise_it_goes_where_the_mean_of_the_agents_goes(every):
    made = private()
    assert isinstance(made.scheme, SchemeS2)
    scheme = replace(made.scheme, gamma=0.5, release_every=every)
    made = replace(made, scheme=scheme)
    single = replace(central_run(made, SAMPLES, 640), noise=replace(made.noise, multiplier=0.0, eta=None))
    quiet = replace(made, noise=replace(made.noise, multiplier=0.0))
    ends = []
    for each in (single, quiet):
        state = FastRun(each, [build_oracle(each, i) for i in range(each.n)], None)
        while state.k <= each.K:
            state.step()
        ends.append(state.x.mean(axis=0))
    assert np.linalg.norm(ends[0] - ends[1]) < 0.05 * np.linalg.norm(ends[1])


def test_it_shares_noise_with_nobody():
    made = private()
    shared = replace(made, noise=replace(made.noise, cancel=2))
    single = central_run(shared, SAMPLES, 640)
    assert single.noise.cancel is None and single.noise.eta == central_run(made, SAMPLES, 640).noise.eta


def test_it_learns(tmp_path):
    found = central(private(), None)
    assert found is not None and found > 0.88


def test_a_run_without_a_sound_epsilon_has_no_central_rival():
    made = private()
    with pytest.raises(ConfigError, match="no epsilon to compare"):
        central_run(replace(made, privacy=replace(made.privacy, clip_l2=None)), SAMPLES, 640)
