"""A family from run files to its page, on digits with a tiny K: what is kept, shared, resumed, and said."""

from __future__ import annotations

import csv
import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import load_run, run_sha256, to_toml
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.families import conduct
from dpgt_node.experiments.families.catalogue import FAMILIES
from dpgt_node.experiments.families.runs import epsilons
from dpgt_node.experiments.families.runs import job as job_module
from dpgt_node.experiments.families.runs.engine import Pool
from dpgt_node.experiments.families.runs.folder import Folder
from dpgt_node.experiments.families.runs.job import Job, carry_out
from dpgt_node.experiments.families.runs.measured import Measured
from dpgt_node.experiments.families.section_iv import Settings, run_of
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.tight import TIGHT
from dpgt_node.privacy.mechanisms import NOISE_ONCE, PAPER, PUBLISHED_POINT

HERE = Pool(None, "in this process")
TINY = Settings("digits", iterations=4, seeds=2)


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """fig3, carried out and written."""
    path = tmp_path_factory.mktemp("experiment") / "out"
    folder = Folder(path)
    assert conduct.conduct(folder, ["fig3"], TINY, HERE, None) == ()
    conduct.write(folder)
    return path


@pytest.mark.parametrize(("model", "kept"), [("mlp", False), ("softmax", True)])
def test_a_network_finds_no_matrices_of_the_run_before(model, kept, monkeypatch):
    """They lie in cycles; to look for such costs more than a small run."""

    class Held:
        def __init__(self) -> None:
            self.itself = self

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    run = run_of(TINY, "S2", 0.9996)
    text = to_toml(replace(run, model=replace(run.model, name=model)), absolute_paths=True)
    monkeypatch.setattr(job_module, "_simulate", stop)
    gc.disable()
    try:
        left = weakref.ref(Held())
        with pytest.raises(KeyboardInterrupt):
            carry_out(text, "ab" * 16, "fast", None)
        assert (left() is not None) == kept
    finally:
        gc.enable()


def test_one_folder_a_run_with_everything_to_make_it_again(out):
    jobs = FAMILIES["fig3"].jobs(TINY, Measured(Folder(out)))
    assert {path.name for path in (out / "runs").iterdir()} == {job.name for job in jobs}
    job = next(job for job in jobs if job.kind == "fast")
    folder = out / "runs" / job.name
    assert run_sha256(load_run(folder / "run.toml")) == run_sha256(job.run)
    about = json.loads((folder / "job.json").read_text())
    assert about["keystream"] == job.keystream and about["n"] == 5 and about["d"] == 650
    again = carry_out((folder / "run.toml").read_text(), about["keystream"], about["kind"], None)
    assert columns(again["metrics.csv"].decode()) == columns((folder / "metrics.csv").read_text())


def columns(text: str) -> list[tuple[str, str, str]]:
    return [(row["agent"], row["k"], row["accuracy_test"]) for row in csv.DictReader(text.splitlines())]


def test_what_is_there_is_not_done_again_and_what_is_gone_is(out, monkeypatch):
    done: list[str] = []

    def counted(*arguments):
        done.append(arguments[0])
        return carry_out(*arguments)

    monkeypatch.setattr(conduct, "carry_out", counted)
    conduct.conduct(Folder(out), ["fig3"], TINY, HERE, None)
    assert done == []
    gone = next(path for path in (out / "runs").iterdir() if "seed1" in path.name)
    gone.rename(out.parent / "gone")
    conduct.conduct(Folder(out), ["fig3"], TINY, HERE, None)
    assert len(done) == 1 and gone.is_dir()


def test_families_share_runs(out):
    shared = {job.name for job in FAMILIES["fig4"].jobs(TINY, Measured(Folder(out)))}
    assert len(shared & {path.name for path in (out / "runs").iterdir()}) == 5  # S2 at .9996: two seeds, epsilon, alone


def test_the_page_has_pictures_claims_and_links_and_loads_nothing(out):
    page = (out / "index.html").read_text()
    assert "default-src 'none'" in page and 'src="http' not in page
    for job in FAMILIES["fig3"].jobs(TINY, Measured(Folder(out))):
        assert f'href="runs/{job.name}/run.toml"' in page, job.name
    for words in ("n = 5, K = 4, m = 2 of D = 287, d = 650, laplace noise", "seeds 0, 1", "digest of their run files"):
        assert words in page
    claims = json.loads((out / "claims.json").read_text())["claims"]
    assert {claim["id"] for claim in claims} == {"fig3.1", "fig3.2"}
    assert all(claim["reason"] and claim["measured"] for claim in claims)
    assert "| fig3.2: The smaller the privacy noise" in (out / "CLAIMS.md").read_text()
    for end in ("png", "svg", "csv"):
        assert (out / "fig3" / f"accuracy-test.{end}").stat().st_size > 100


def test_a_curve_is_the_worst_agent_over_seeds(out):
    job, other = (job for job in FAMILIES["fig3"].jobs(TINY, Measured(Folder(out)))[:2])
    worst = []
    for one in (job, other):
        rows = list(csv.DictReader((out / "runs" / one.name / "metrics.csv").open()))
        worst.append(min(float(row["accuracy_test"]) for row in rows if row["k"] == "5"))
    drawn = list(csv.DictReader((out / "fig3" / "accuracy-test.csv").open()))
    last = [row for row in drawn if row["line"] == "S2, p = 0.9994" and float(row["x"]) == 5.0]
    assert [float(last[0][name]) for name in ("mean", "least", "largest")] == [sum(worst) / 2, min(worst), max(worst)]


def test_a_run_that_fails_is_on_the_page_and_is_tried_by_the_next_command(tmp_path, monkeypatch):
    folder, real = Folder(tmp_path), carry_out

    def broken(*arguments):
        if "p_eta = 0.9998" in arguments[0] or "0.9998" in arguments[0].split("\n")[0]:
            raise ConfigError.one("here", "", "no luck")
        return real(*arguments)

    monkeypatch.setattr(conduct, "carry_out", broken)
    settings = replace(TINY, seeds=1)
    failed = conduct.conduct(folder, ["fig3"], settings, HERE, None)
    assert len(failed) == 2 and all("0.9998" in name for name in failed)
    page = conduct.write(folder).read_text()
    assert "no luck" in page and "2 of its 9 runs are not there" in page
    monkeypatch.setattr(conduct, "carry_out", real)
    assert conduct.conduct(Folder(tmp_path), ["fig3"], settings, HERE, None) == ()
    assert Folder(tmp_path).status().failed == {} and Folder(tmp_path).status().missing == ()


def test_a_seed_is_a_run_bit_for_bit_and_another_seed_is_another():
    run = run_of(TINY, "S2", 0.9996)
    texts = [carry_out(*Job(run, seed).arguments(None))["metrics.csv"].decode() for seed in (0, 0, 1)]
    first, again, other = map(columns, texts)
    assert first == again != other


def test_epsilon_by_length_is_lemma_5_of_that_length():
    """The reference curve of the paper's Fig. 3e, at two lengths, and the sound values at the same noise."""
    costs = epsilons.table(run_of(Settings("digits"), "S2", 0.9996), (88, 2000), None)
    rows = {(row["K"], row["mechanism"], row["accountant"]): float(row["epsilon"])
            for row in csv.DictReader(costs.splitlines())}  # fmt: skip
    assert rows["88", PAPER.name, LEMMA5.name] == pytest.approx(5684, rel=1e-3)
    assert rows["2000", PAPER.name, LEMMA5.name] == pytest.approx(30701.2, rel=1e-5)
    assert rows["2000", PUBLISHED_POINT.name, TIGHT.name] == pytest.approx(280.5, rel=1e-2)
    assert rows["2000", NOISE_ONCE.name, TIGHT.name] == pytest.approx(80.982, rel=1e-4)


def test_lengths_are_on_both_sides_of_a_step_of_m():
    found = epsilons.lengths(run_of(Settings("digits"), "S1", 0.1).scheme, 2000, (88,))
    assert {88, 215, 216, 2000} <= set(found)
    s2 = epsilons.lengths(run_of(Settings("digits"), "S2", 0.9996).scheme, 2000, (626,))
    assert {693, 694, 805, 806} <= set(s2)  # epsilon is largest just before a step of m
    assert epsilons.lengths(run_of(Settings("digits"), "S1", 0.1).scheme, 5) == (1, 2, 3, 4, 5)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty and holds no experiment"):
        Folder(tmp_path).check_free()
    (tmp_path / "experiment.json").write_text('{"format": 99}')
    with pytest.raises(ConfigError, match="another version"):
        Folder(tmp_path)


def test_a_run_is_kept_once(tmp_path):
    folder = Folder(tmp_path)
    folder.keep("a", {"x": b"1"})
    with pytest.raises(FileExistsError):
        folder.keep("a", {"x": b"2"})
    assert (tmp_path / "runs" / "a" / "x").read_bytes() == b"1"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


def test_a_run_that_was_being_written_when_the_command_was_killed_is_made_anew(out):
    job = FAMILIES["fig3"].jobs(TINY, Measured(Folder(out)))[0]
    half = out / "runs" / f".{job.name}.4711.tmp"
    (out / "runs" / job.name).rename(half)
    (half / "metrics.csv").unlink()
    assert not Folder(out).is_done(job.name)
    assert conduct.conduct(Folder(out), ["fig3"], TINY, HERE, None) == ()
    assert not half.exists() and (out / "runs" / job.name / "metrics.csv").exists()


def test_a_curve_that_cannot_be_at_this_length_is_named_and_the_others_are_shown(tmp_path):
    """(S1) has a_i = 72/(K+1)^0.987 and more: at K = 20 it has no run, and (S2) has."""
    short, folder = replace(TINY, iterations=20, seeds=1, look=50), Folder(tmp_path / "out")
    conduct.check(folder, ["fig4"], short, None)
    assert conduct.conduct(folder, ["fig4"], short, HERE, None) == ()
    page = conduct.write(folder).read_text()
    assert "S1, p = 0.1: refused: scheme.a1: " in page and "Scheme (S2) converges faster than Scheme (S1)" in page
    assert "a curve is missing" in page and "accuracy of 50 samples of each set, evenly spaced" in page
    assert "S2, p = 0.9996" in (tmp_path / "out" / "fig4" / "accuracy-test.csv").read_text()
    assert json.loads((tmp_path / "out" / "claims.json").read_text())["claims"] == []
    with pytest.raises(ConfigError, match=r"scheme.a1"):
        conduct.check(folder, ["fig2"], short, None)


def test_the_dimension_is_asked_of_a_model_that_may_need_two_samples(monkeypatch):
    """A table of epsilons of ResNet18, whose BatchNorm has no gradient of one sample, failed."""
    asked: list[int] = []

    def counted(run, shard, **options):
        asked.append(Schedule.from_config(run).m_for(12_000))
        return build_oracle(run, shard, **options)

    monkeypatch.setattr(epsilons, "build_oracle", counted)
    epsilons.table(run_of(Settings("digits"), "S2", 0.9996), (4,), None)
    assert asked and min(asked) >= 2
