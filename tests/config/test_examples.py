"""The run files that ship: they parse, may start, and are what their first line says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from dpgt_node.accounts.towards import towards_whom
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.theory import check_run, step_warnings
from dpgt_node.config import NoiseStream, Privacy, demo_toml, load_run, parse_run, to_toml
from dpgt_node.learning.oracle import constants, sample_counts

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
SHIPPED = (
    "demo-private demo fashion-private fashion-two-classes frozen mnist-cancelling mnist-hundred mnist-private "
    "mnist-pure mnist-two-classes "
    "paper-s1 paper-s2 "
    "pl-linear-s1 pl-linear-s2 pl-sine-s1 pl-sine-s2 quadratic resnet18 robust spanning-trees "
    "study-attack study-membership zeros"
)


def load(name):
    return load_run(ROOT / "examples" / f"{name}.toml")


def report(name):
    run = load(name)
    L1, mu = constants(run)
    return check_run(
        run, Topology.from_config(run.graph), Schedule.from_config(run), D=sample_counts(run), L1=L1, mu=mu
    )


def test_the_files_are_these():
    assert [path.stem for path in EXAMPLES] == SHIPPED.split()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_may_start_within_the_step_bounds(path):
    run = load_run(path)
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    pictures = run.data.dataset in ("mnist", "fashion-mnist")  # which may not be on this machine
    samples = (60_000 // run.n,) * run.n if pictures else sample_counts(run)
    assert hard_failures(run, topology, schedule, samples) == ()
    assert step_warnings(topology, schedule) == ()
    assert parse_run(to_toml(run), "copy", Path()) == run


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_begins_with_what_it_shows_and_how_to_run_it(path):
    comment = path.read_text().split("\nname =")[0]
    assert comment.startswith("# ")
    assert f"examples/{path.name} --out" in comment or (path.stem == "demo" and comment.endswith("dpgt demo"))


def test_the_packaged_demo_is_the_example():
    assert demo_toml() == (ROOT / "examples" / "demo.toml").read_text()
    assert demo_toml(private=True) == (ROOT / "examples" / "demo-private.toml").read_text()


def test_the_demo_is_the_documented_one():
    run = load("demo")
    assert (run.name, run.K, run.n) == ("digits", 200, 5)
    assert (run.scheme.alpha, run.scheme.beta, run.scheme.gamma, run.scheme.p_m) == (0.1, 0.01, 0.1, 1.002)
    assert run.scheme.samples == 55
    assert run.noise.zeta == run.noise.eta == NoiseStream("constant", (0.1,) * 5)
    assert run.privacy == Privacy(clip_l1=40.0, delta=1e-5)
    assert (run.evaluate.every, run.evaluate.metrics) == (10, "study")


def test_the_private_demo_costs_what_it_says_and_no_noise_is_wasted():
    run, demo = load("demo-private"), load("demo")
    assert (run.graph, run.data, run.privacy.delta) == (demo.graph, demo.data, 1e-5)

    def worst(run):
        topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        accounts = [account_for(run, topology, schedule, i, D, 640) for i, D in enumerate(sample_counts(run))]
        return max(account.total("gdp") for account in accounts)

    assert 7.99 < worst(run) <= 8.0
    less = NoiseStream("constant", (0.02101,) * 5)
    assert worst(replace(run, noise=replace(run.noise, eta=less))) > 8.0


def test_the_run_that_shares_noise_costs_what_it_says_towards_whom():
    run = load("mnist-cancelling")
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    costs = {
        name: account_for(run, topology, schedule, i, 12_000, 3_930).epsilon_after(run.K)
        for i, name in enumerate(run.graph.agents)
    }
    whom = towards_whom(run, costs, dict.fromkeys(costs, 12_000))
    assert whom is not None and len(schedule.releases) == 41 and len(set(whom.epsilon)) == 1
    assert 0.0999 < whom.epsilon[0][1] <= 0.1 and 0.19 < whom.epsilon[0][4] <= 0.1952


def test_the_pure_run_releases_twice_and_costs_what_it_says():
    run = load("mnist-pure")
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    account = account_for(run, topology, schedule, 0, 12_000, 3_930)
    assert list(schedule.releases) == [0, 30] and schedule.sums(0)
    assert account.cost("tight", 0) == account.cost("tight", 29) == pytest.approx(0.5, rel=1e-4)
    assert 0.9999 < account.total("tight") <= 1.0


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("mnist-two-classes", (12_665, 12_089, 11_263, 12_183, 11_800)),
        ("fashion-two-classes", (12_000,) * 5),
        ("mnist-hundred", (600,) * 100),
    ],
)
def test_runs_where_an_exchange_pays_cost_epsilon_1_and_no_noise_is_wasted(name, samples):
    run = load(name)
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    assert len(schedule.releases) == 41 and 8 * 41 - 1 + run.scheme.settle == run.K
    totals = [account_for(run, topology, schedule, i, D, 3_930).total("gdp") for i, D in enumerate(samples)]
    assert all(0.999 < total <= 1.0 for total in totals)


@pytest.mark.parametrize(
    ("name", "steps", "m"), [("paper-s1", (0.04, 0.005, 0.05), 53), ("paper-s2", (0.1, 0.01, 0.1), 55)]
)
def test_the_papers_numbers(name, steps, m):
    run = load(name)
    schedule = Schedule.from_config(run)
    assert run.K == 2000
    assert [float(f"{step:.1g}") for step in (schedule.alpha, schedule.beta, schedule.gamma)] == list(steps)
    assert schedule.m == m
    i = np.arange(1, 6)
    expected = 0.09 + 0.01 * i if name == "paper-s1" else 0.99959 + 1e-5 * i
    for stream in (run.noise.zeta, run.noise.eta):
        assert stream.kind == "exponent"
        np.testing.assert_allclose(stream.values, expected, rtol=1e-12)


def test_spanning_trees_are_far_from_strongly_connected():
    run = load("spanning-trees")
    for matrix in (run.graph.R, run.graph.C):
        graph = nx.from_numpy_array(np.array(matrix).T, create_using=nx.DiGraph)
        assert nx.number_strongly_connected_components(graph) == run.n
    assert Topology.from_config(run.graph).common_roots == (0,)


@pytest.mark.parametrize("name", ["pl-sine-s1", "pl-sine-s2", "pl-linear-s1", "pl-linear-s2"])
def test_toys_that_satisfy_every_condition_of_their_theorems(name):
    assert [row.name for row in report(name).warnings] == []


def test_rates_promised_in_the_comments():
    assert report("pl-sine-s1").rates.exponent == pytest.approx(0.1)
    assert report("pl-linear-s1").rates.exponent == pytest.approx(0.1)
    assert report("pl-linear-s2").rates.factor == pytest.approx(0.9937, abs=5e-5)
    assert 1.0 - report("pl-sine-s2").rates.factor == pytest.approx(2.1e-7, abs=5e-9)
