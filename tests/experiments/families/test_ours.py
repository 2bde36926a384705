"""Every method at one epsilon: tuned on training samples alone, by the same budget, at the epsilon that is promised."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.agent.noise import accounts_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import load_run
from dpgt_node.experiments.families import conduct, ours
from dpgt_node.experiments.families.ours import FAMILY, Cell, cells, forms, front, uncovered
from dpgt_node.experiments.families.runs.engine import Pool
from dpgt_node.experiments.families.runs.folder import Folder
from dpgt_node.experiments.families.runs.measured import Measured
from dpgt_node.experiments.families.runs.private import at_epsilon, on_training_samples
from dpgt_node.experiments.families.section_iv import Settings
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.oracle import sample_counts
from dpgt_node.privacy.mechanisms import CODED_COINS, NOISE_ONCE, PAPER

SHARE = Settings("digits", iterations=4, seeds=1, sets=("digits",), agents=(5,), partitions=("iid",), epsilons=(1.0,),
                 budget=2)  # fmt: skip


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """A small fixed share: two methods, one epsilon."""
    path = tmp_path_factory.mktemp("ours") / "out"
    folder = Folder(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "forms", lambda: (("dpgt", NOISE_ONCE.name), ("atc-dsgd", NOISE_ONCE.name)))
        assert conduct.conduct(folder, ["ours"], SHARE, Pool(None, ""), None) == ()
        conduct.write(folder)
    return path


def test_every_run_meets_its_epsilon_and_not_much_less(out):
    about = [json.loads(path.read_text()) for path in (out / "runs").glob("*private*/job.json")]
    assert len(about) == 2 * (2 + 1)  # K is 4 in all of the grid; still each of two candidates is another run
    assert all(0.999 <= one["reached"] <= 1.0 for one in about)


def test_tuning_saw_no_test_sample_and_the_end_no_other(out):
    for path in (out / "runs").glob("*private*"):
        about, run = json.loads((path / "job.json").read_text()), load_run(path / "run.toml")
        assert run.data.dataset.startswith("npz:") == bool(about["tuning"])


def test_the_split_holds_training_samples_alone(tmp_path):
    run = on_training_samples(Cell("dpgt", NOISE_ONCE.name, "digits", 5, "iid", 1.0).run(3, 1.0, 0), tmp_path, None)
    split, whole = (
        np.load(Path(run.data.dataset.removeprefix("npz:")), allow_pickle=False),
        load_dataset("digits", None),
    )
    assert len(split["x_test"]) == len(whole.y_train) // 6
    known = {row.tobytes() for row in np.asarray(whole.x_train, dtype=np.float32)}
    rows = np.concatenate([split["x_train"], split["x_test"]]).reshape(len(whole.y_train), -1)
    assert {row.tobytes() for row in rows} == known


def test_the_page_has_the_table_and_three_pictures_a_place(out):
    page = (out / "index.html").read_text()
    assert "accuracy against epsilon" in page and "accuracy against bytes" in page and "accuracy against rounds" in page
    assert "alone, no noise, model kept at home" in (out / "ours" / "epsilon-digits-5-iid.csv").read_text()
    assert "(gdp)" in page


def test_a_folder_without_claims_counts_none(out):
    claims = (out / "CLAIMS.md").read_text()
    assert claims.startswith("# Every method at the same epsilon\n") and "gt-saga: draws no noise" in claims
    assert "reproduced" not in claims and '"tile"' not in (out / "index.html").read_text()
    rows = [line for line in claims.splitlines() if line.startswith("| digits | 5 | iid | 1 | ")]
    assert len(rows) == 2 and all(" bytes |" in row for row in rows)


def test_the_best_candidate_on_kept_back_samples_is_chosen(out, monkeypatch):
    cell, settings = (
        Cell("atc-dsgd", NOISE_ONCE.name, "digits", 5, "iid", 1.0),
        replace(SHARE, iterations=200, budget=4),
    )
    measured = Measured(Folder(out))
    tried = cell.tuning(settings)
    ends = {job.name: end for (_, _, job), end in zip(tried, (0.4, 0.9, 0.7, 0.2), strict=True)}
    assert len(ends) == 4, "four candidates, each a run of its own"

    class Fake:
        def __init__(self, value: float) -> None:
            self.end = {"test": value}

        def score(self) -> Fake:
            return self

    best = tried[1][2]
    monkeypatch.setattr(measured, "series", lambda job: Fake(ends[job.name]))
    monkeypatch.setattr(measured, "has", lambda jobs: True)
    assert cell.chosen(settings, measured) == tried[1][:2]
    monkeypatch.setattr(measured, "has", lambda jobs: best not in jobs)
    assert cell.chosen(settings, measured) is None, "a candidate is missing"
    monkeypatch.setattr(measured, "failed", lambda job: job == best)
    assert cell.chosen(settings, measured) == tried[2][:2], "it failed, and so it lost"


def test_only_what_a_sound_accountant_covers_is_compared():
    assert ("dpgt", PAPER.name) not in forms() and ("dpgt", NOISE_ONCE.name) in forms()
    assert ("s-ab", PAPER.name) not in forms()


def test_coins_are_the_fewest_for_the_epsilon_and_no_coarser_code_has_as_many():
    run = Cell("quantised-binomial-sgd", CODED_COINS.name, "digits", 5, "iid", 1.0).run(4, 1.0, 0)
    found = at_epsilon(run, 1.0, None)
    levels, trials = (int(found.run.method_options[key]) for key in ("levels", "trials"))

    def epsilon(levels: int, trials: int) -> float:
        one = replace(run, method_options={**run.method_options, "levels": levels, "trials": trials})
        topology, schedule, counts = (
            Topology.from_config(run.graph),
            Schedule.from_config(one),
            sample_counts(run, None),
        )
        return max(account.total("binomial") for account in accounts_for(one, topology, schedule, counts, 650))

    assert trials >= 1024 and found.accountant == "binomial"
    assert epsilon(levels, trials) == found.reached <= 1.0 < epsilon(levels, trials - 1)
    assert epsilon((levels - 1) // 2 + 1, 1024) <= 1.0, "half as fine, fewer coins would do"


def test_what_is_not_compared_has_its_reason():
    told = uncovered()
    assert [line.split(":")[0] for line in told] == ["s-ab", "gt-saga", "gt-svrg", "ternary-dsgd"]
    assert "delta is at least D/r whatever epsilon is" in told[-1]


def test_all_cells_of_the_real_thing():
    places = {cell.place for cell in cells(Settings())}
    assert places == {(d, n, p) for d in ("mnist", "fashion-mnist") for n in (5, 20, 100) for p in ("iid", "dirichlet")}
    assert {cell.epsilon for cell in cells(Settings())} == {0.5, 1.0, 3.0, 8.0}
    assert {cell.method for cell in cells(Settings(methods=("dpgt", "central", "s-ab")))} == {"dpgt", "central"}
    few = ours.candidates(Settings(iterations=40))
    assert few == [(40, 1.0), (40, 0.5), (40, 2.0), (40, 0.25)], "each once, whatever the budget"
    budgets = {len(cell.tuning(Settings())) for cell in cells(Settings())[:3]}
    assert budgets == {8} and FAMILY.partial


def test_a_front_keeps_what_nothing_cheaper_beats():
    assert front([(1, 0.5), (2, 0.4), (2, 0.7), (3, 0.6), (1, 0.3)]) == [(1, 0.5), (2, 0.7)]
    assert front([(1, 0.5)]) == [(1, 0.5)]
