"""Fitted rates: right for curves with known rates; ensembles against the rules; digraphs that hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.algo.graph import Topology, separated
from dpgt_node.algo.methods import METHODS
from dpgt_node.experiments.families import conduct, table1
from dpgt_node.experiments.families.runs.engine import Pool
from dpgt_node.experiments.families.runs.folder import Folder
from dpgt_node.experiments.families.runs.measured import Measured
from dpgt_node.experiments.families.runs.problems import Ensemble, FiniteSums, PlSine, Quadratics, Rate, fitted
from dpgt_node.experiments.families.section_iv import Settings
from dpgt_node.experiments.families.table1 import ENTRIES, FAMILY, Fit, judge

TINY = Settings(iterations=1, seeds=2)
KS = [100, 200, 400, 800, 1600]


def entry(label: str, problem: str) -> table1.Entry:
    return next(one for one in ENTRIES if one.label == label and one.problem == problem)


def test_a_power_and_an_exponential_are_fitted_exactly():
    power = fitted(KS, [3.0 * (K + 1) ** -0.5 for K in KS], against_log=True)
    assert power is not None and power.whole == pytest.approx(-0.5) and power.late == pytest.approx(-0.5)
    exponential = fitted(KS, [3.0 * math.exp(-0.01 * K) for K in KS], against_log=False)
    assert exponential is not None and exponential.early == pytest.approx(-0.01)
    assert fitted(KS, [1.0, math.inf, 1.0, 1.0, 1.0], against_log=True) is None
    assert fitted(KS, [1.0, 0.0, 1.0, 1.0, 1.0], against_log=True) is None


@pytest.mark.parametrize(
    ("claimed", "rates", "verdict"),
    [
        ("O(1/K^(1/3))", [Rate(-0.40, 0, 0), Rate(-0.41, 0, 0), Rate(-0.42, 0, 0)], "reproduced"),
        ("O(1/K^(1/3))", [Rate(-0.20, 0, 0), Rate(-0.21, 0, 0), Rate(-0.22, 0, 0)], "not reproduced"),
        ("O(1/K^(1/3))", [Rate(-0.2, 0, 0), Rate(-0.5, 0, 0), Rate(-0.3, 0, 0)], "too close to call"),
        ("O(rho^K)", [Rate(0, -0.01, -0.01), Rate(0, -0.011, 0.009)], "not reproduced"),
        ("O(rho^K)", [Rate(0, -0.01, -0.01), Rate(0, -0.0101, -0.0101)], "reproduced"),
        ("O(rho^K)", [Rate(0, -0.01, -0.0001), Rate(0, -0.0101, -0.0001)], "not reproduced"),
        ("O(rho^K) to a neighbourhood", [Rate(0, -0.01, -0.0001), Rate(0, -0.0101, 0.0)], "reproduced"),
        ("O(rho^K) to a neighbourhood", [Rate(0, -0.01, -0.01), Rate(0, -0.0101, -0.01)], "not reproduced"),
        ("O(1)", [Rate(0, 0, -0.1), Rate(0, 0, -0.11)], "reproduced"),
        ("O(1)", [Rate(0, 0, 0.5), Rate(0, 0, 0.51)], "not reproduced"),
    ],
)
def test_verdicts_about_rates(claimed, rates, verdict):
    assert judge(claimed, rates).verdict == verdict


def test_no_claim_no_verdict():
    with pytest.raises(ValueError):
        judge("-", [Rate(-1.0, -1.0, -1.0)])


def test_the_interval_is_students():
    fit = Fit.over([1.0, 2.0, 3.0])
    assert fit.mean == 2.0 and fit.high == pytest.approx(2.0 + 4.302653 / math.sqrt(3), rel=1e-6)
    assert Fit.over([1.0]) == Fit(1.0, 1.0, 1.0)


def test_every_digraph_is_strongly_connected_and_another_one():
    run = [entry("S-AB", "finite-sums").run(TINY, graph) for graph in range(3)]
    topologies = [Topology.from_config(one.graph) for one in run]
    for topology in topologies:
        assert not separated(topology.names, topology.R) and not separated(topology.names, topology.C)
    assert len({one.R.tobytes() for one in topologies}) == 3


def test_repetitions_are_independent_and_each_is_the_rule():
    """Without noise and with exact gradients every repetition is one and the same run: that of a single repetition."""
    run = entry("ATC-DSGD", "quadratics").run(TINY, 0)
    quiet = replace(run, noise=replace(run.noise, multiplier=0.0), algorithm=replace(run.algorithm, iterations=20))

    class Exact(Quadratics):
        def gradient(self, x, m, rng):
            return self._h * (x - self._b)

    many, one = Ensemble(quiet, Exact(run.n), 3, 1), Ensemble(quiet, Exact(run.n), 1, 2)
    for k in range(21):
        many.step(k)
        one.step(k)
    assert many.error() == pytest.approx(np.repeat(one.error(), 3, axis=1), rel=1e-12)
    noisy = Ensemble(replace(run, algorithm=replace(run.algorithm, iterations=5)), Quadratics(run.n), 3, 1)
    for k in range(6):
        noisy.step(k)
    assert len({round(float(v), 12) for v in noisy.error()[0]}) == 3


def test_gradients_vanish_on_average_at_the_minimiser():
    rng = np.random.default_rng(0)
    for problem in (Quadratics(4), FiniteSums(4)):
        best = np.broadcast_to(problem._best, (4, 2000, problem.d)).copy()
        assert problem.error(best) == pytest.approx(0.0)
        mean = problem.gradient(best, 1, rng).mean(axis=(0, 1))
        assert np.abs(mean).max() < 0.1
    assert PlSine(4).error(np.zeros((4, 1, 1))) == pytest.approx(0.0)


def test_a_table_of_gradients_moves_as_saga_says():
    run = entry("GT-SAGA", "finite-sums").run(TINY, 0)
    one = Ensemble(run, FiniteSums(run.n), 2, 3)
    x = np.random.default_rng(1).standard_normal((run.n, 8))
    before = one.table(x)
    moved = x + 1.0
    found = one.exchanged(1, moved, before)
    after = found.table.reshape(run.n, 2, 20, 4)
    assert found.drift.reshape(run.n, 2, 4) == pytest.approx((after - before.reshape(after.shape)).mean(axis=2))
    changed = np.any(after != before.reshape(after.shape), axis=3)
    assert changed.sum(axis=2).tolist() == [[1, 1]] * run.n


def test_the_family_end_to_end(tmp_path):
    folder = Folder(tmp_path)
    assert conduct.conduct(folder, ["table1"], TINY, Pool(None, ""), None) == ()
    page = conduct.write(folder).read_text()
    assert "Fitted slopes" in page and "95 % over graphs" in page
    section = FAMILY.section(TINY, Measured(folder))
    here = [one for one in ENTRIES if one.method in METHODS]
    assert [row[1] for row in section.tables[0].rows] == [one.label for one in here]
    assert len(section.claims) == sum(one.claimed != "-" for one in here)
    assert len(section.pending) == len(ENTRIES) - len(here)
