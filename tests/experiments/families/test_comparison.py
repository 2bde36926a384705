"""Figs. 5 and 6: what they compare, on digits with a tiny K, and the numbers of the paper's own setting."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dpgt_node.algo.methods import METHODS
from dpgt_node.experiments.families import comparison, conduct, rivals
from dpgt_node.experiments.families.comparison import _below, _both_readings
from dpgt_node.experiments.families.family import Arm
from dpgt_node.experiments.families.runs import epsilons
from dpgt_node.experiments.families.runs.engine import Pool
from dpgt_node.experiments.families.runs.folder import Folder
from dpgt_node.experiments.families.section_iv import Settings, run_of
from dpgt_node.experiments.families.verdicts import TEST, TRAIN, Score
from dpgt_node.privacy.accountants.responses.same_point import SAME_POINT
from dpgt_node.privacy.accountants.tight import TIGHT

TINY = Settings("digits", iterations=3, seeds=1)


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("comparison") / "out"
    folder = Folder(path)
    assert conduct.conduct(folder, ["fig5", "fig6"], TINY, Pool(None, ""), None) == ()
    conduct.write(folder)
    return path


def test_every_form_of_every_method_here_has_its_curve_and_the_others_are_named(out):
    labels = {row["line"] for row in csv.DictReader((out / "fig5" / "accuracy-test.csv").open())}
    for form in rivals.forms():
        assert f"{form.label}, {form.rival.cite}" in labels
    assert {"Algorithm 1, S2", "no communication, the same noise", "alone, no noise, model kept at home"} <= labels
    page = (out / "index.html").read_text()
    for rival in rivals.RIVALS:
        assert rival.here == (rival.method in METHODS) and (rival.here or rival.pending in page)


def test_one_claim_a_named_rival_and_both_charges(out):
    claims = json.loads((out / "claims.json").read_text())["claims"]
    named = {form.rival.cite for form in rivals.forms() if form.rival.named}
    assert named == {c["id"].split(".")[1] for c in claims if c["family"] == "fig5"} - {"beside"}
    readings = [c["reading"] for c in claims if c["id"] == "fig6.kang2021weighted"]
    assert {"rival with 1/m" in r for r in readings} == {True, False} and any("Lemma 5" in r for r in readings)


def test_rivals_cost_what_the_closed_forms_say():
    """Gradient noise once: sum of (C/m)/sigma_i over K + 1 rounds, m = 55, and 55 times that without 1/m."""
    run = run_of(Settings("digits"), "S2", 0.9996, method="atc-dsgd")
    rows = list(csv.DictReader(epsilons.table(run, (2000,), None, both=True).splitlines()))
    found = {row["charge"]: float(row["epsilon"]) for row in rows if row["accountant"] == TIGHT.name}
    assert found[epsilons.WITH] == pytest.approx(2001 / 55 / 0.9996**2000, rel=1e-5)
    assert found[epsilons.WITHOUT] == pytest.approx(55 * found[epsilons.WITH], rel=1e-5)


def test_what_fig_6b_hinges_on():
    claim = comparison._ternary()
    assert claim.verdict == "not decidable from the paper"
    for value in ("r = 28.36", "r = 1,560", "r = 6.177", "r = 339.7"):
        assert value in claim.measured


def test_readings_of_s1_are_told_apart_where_they_differ():
    assert list(_both_readings({"S1": 1.0, "S2": 2.0}, 3.0)) == ["S1 with its own parameters or with those of S2"]
    differ = _both_readings({"S1": 5.0, "S2": 2.0}, 3.0)
    assert [one.verdict for one in differ.values()] == ["not reproduced", "reproduced"]
    assert _below({"S1": 3.0}, 3.0).verdict == "not reproduced"


class Known:
    """What was measured, told by the test."""

    def __init__(self, areas=None, costs=()):
        self._areas, self._costs = areas or {}, costs

    def scores(self, jobs):
        values = {TRAIN: self._areas[jobs], TEST: self._areas[jobs]}
        return [Score(values, values)]

    def costs(self, job):
        return self._costs


def test_a_race_is_won_by_the_arm_that_is_named_first():
    ours, theirs = Arm("ours", ("a",)), Arm("theirs", ("b",))
    for area, verdict in ((0.9, "reproduced"), (0.1, "not reproduced")):
        known = Known({ours.jobs: area, theirs.jobs: 0.5})
        assert comparison._race(known, "fig5.x", "faster", ours, theirs, "").verdict == verdict


def test_a_sound_epsilon_comes_before_a_conditional_one_and_that_before_one_at_a_delta():
    run = run_of(TINY, "S2", 0.9996, method="sampled-dsgd")
    rows = [("gdp", 1.0), (SAME_POINT.name, 2.0), (TIGHT.name, 3.0)]
    costs = [epsilons.Cost(3, 55, run.algorithm.mechanism, epsilons.WITH, *row) for row in rows]
    told = ["gdp, delta = 1e-05", f"{SAME_POINT.name}, conditional", TIGHT.name]
    for most, (row, words) in enumerate(zip(rows, told, strict=True), start=1):
        found = comparison._best(Known(costs=costs[:most]), conduct.Job(run, 0), epsilons.WITH)
        assert found == {3: (row[1], words)}


def test_what_a_method_cannot_do_is_listed_and_does_not_end_the_family(tmp_path, monkeypatch):
    real = conduct.refused

    def some(jobs, data_root):
        found = real(jobs, data_root)
        return found | {job.name: "graph: too few edges" for job in jobs if "atc-dsgd" in job.name}

    few = tuple(form for form in rivals.forms() if form.rival.method in ("atc-dsgd", "weighted-sgd"))
    monkeypatch.setattr(rivals, "forms", lambda: few)
    monkeypatch.setattr(conduct, "refused", some)
    folder = Folder(tmp_path)
    assert conduct.conduct(folder, ["fig5"], TINY, Pool(None, ""), None) == ()
    assert "refused: graph: too few edges" in conduct.write(folder).read_text()
    assert not [path for path in (tmp_path / "runs").iterdir() if "atc-dsgd" in path.name]


def test_a_run_that_simulate_would_refuse_is_refused():
    """S1's alpha is no average of neighbours for so short a run."""
    run = run_of(TINY, "S1", 0.1)
    job = conduct.Job(run, 0)
    assert "a_i = alpha r_i in [0, 1)" in conduct.refused([job], None)[job.name]
    assert conduct.refused([conduct.Job(run_of(TINY, "S2", 0.9996), 0)], None) == {}
    assert conduct.refused([conduct.Job(run, 0, "epsilon", lengths=(3,))], None) == {}


def test_more_rounds_than_samples_are_refused_where_a_sample_arrives_every_round():
    run = run_of(Settings("digits"), "S2", 0.9996, method="online-dsgd")
    jobs = [conduct.Job(run, 0), conduct.Job(run, 0, "epsilon", lengths=(2000,))]
    assert all("K < D" in conduct.refused(jobs, None)[job.name] for job in jobs)


def test_a_delta_is_never_taken_for_an_epsilon(out):
    """The quantiser's accountant gives a delta: its curves stand in a picture of their own."""
    epsilon = {row["line"] for row in csv.DictReader((out / "fig6" / "epsilon.csv").open())}
    delta = list(csv.DictReader((out / "fig6" / "delta.csv").open()))
    assert not any("ternary" in name for name in epsilon)
    assert {row["line"].split(",")[0] for row in delta} == {f"ternary-dsgd (r = {r})" for r in (1, 10, 100)}
    assert all(0.0 <= float(row["mean"]) <= 1.0 for row in delta)
    claims = json.loads((out / "claims.json").read_text())["claims"]
    assert not [c for c in claims if c["id"] == "fig6.wang2023quantization"]


def test_a_method_without_a_pure_epsilon_is_compared_at_its_delta(out):
    claims = json.loads((out / "claims.json").read_text())["claims"]
    told = [c["measured"] for c in claims if c["id"] == "fig6.yan2024killing"]
    assert told and all("delta = 1e-05" in text for text in told)
    assert all("delta" not in c["measured"] for c in claims if c["id"] == "fig6.kang2021weighted")
