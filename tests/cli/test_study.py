"""``dpgt eavesdrop study``: real runs behind taps, every step by its own command, one page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.cli import run as dpgt
from dpgt_node.cli.eavesdrop.study import _print, _studied
from dpgt_node.config import load_run
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.report.comparison.page import Row, Table
from dpgt_node.report.study import page
from tests.cli.columns import too_long

RUN = """
name = "few"
[algorithm]
mechanism = "published-point"
iterations = 3
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.1
gamma = 0.3
p_m = 1.0
samples = "full"
[noise]
law = "gaussian"
scale_zeta = 0.5
scale_eta = 0.5
[graph]
agents = 2
R = { generator = "ring" }
C = { generator = "ring" }
[data]
dataset = "npz:few.npz"
classes = 10
[privacy]
clip_l2 = 1.0
[evaluate]
metrics = "study"
"""


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A run file of twenty samples an agent."""
    data = load_dataset("digits")
    x, y = data.x_train, data.y_train
    np.savez(tmp_path / "few.npz", x_train=x[:40], y_train=y[:40], x_test=x[200:290], y_test=y[200:290])
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path / "run.toml"


def study(few: Path, *words: object) -> int:
    out = few.parent / "out"
    return dpgt(["eavesdrop", "study", str(few), "--out", str(out), *map(str, words)])


def test_a_study_is_one_page_and_goes_on(
    few: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launched for real at one noise, stopped before its page, and gone on with."""
    out = few.parent / "out"
    asked = ("--shadows", 12, "--canaries", 60, "--attack", "lira", "--attack", "retries")

    def stopped(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(page, "write_study", stopped)
        assert study(few, *asked) == 5
    made = {path: path.stat().st_mtime_ns for path in sorted(out.rglob("*")) if path.is_file()}
    assert not (out / page.PAGE_FILE).exists()
    capsys.readouterr()
    assert study(few, *asked, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    again = {path: path.stat().st_mtime_ns for path in made}
    assert {path.name for path in made if again[path] != made[path]} == {"run.toml"}  # nothing was done twice
    assert document == json.loads((out / page.JSON_FILE).read_text())
    (one,) = document["grid"]
    assert one["letter"] == "A" and one["factor"] == 1.0 and one["shadows"] == 12 and one["unaudited"] is None
    assert [entry["attack"] for entry in one["attacks"]] == ["lira", "retries"]
    assert {claim["accountant"] for claim in one["claims"]} == {"zcdp", "gdp"}
    assert {finding["check"] for finding in one["findings"]} >= {"ledger", "noise"}
    text = (out / page.PAGE_FILE).read_text()
    for words in (
        "Members found at few false alarms",
        "Claimed against measured",
        "Attacks by verdict",
        "gdp, agent-1",
    ):
        assert words in text
    assert "<script" not in text and not document["refuted"]
    assert "A (noise x 1)" in text and "A (noise x 1), at most" in text
    first = re.search(r"<title>A \(noise x 1\)</title><path [^>]*", text)
    most = re.search(r"<title>A \(noise x 1\), at most</title><path [^>]*", text)
    assert first is not None and most is not None and "--s1" in first[0] and "--s1" in most[0], "one run, one colour"
    assert "stroke-dasharray" in most[0] and "stroke-dasharray" not in first[0]


def test_rows_of_one_attack_are_told_apart_and_verdicts_explained(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [("partly", "agent-1"), ("fails", "agent-2"), ("clean", "the run")]
    rows = [Row(None, "membership", (verdict, "AUC", "0.6", "–", "0.5", "–", whose), ()) for verdict, whose in cells]
    heads = ("verdict", "quantity", "value", "interval", "guessing", "predicted", "agents")
    _print(page.Studied(False, Table(heads, rows), 0), Path("study.html"))
    said = capsys.readouterr().out
    for verdict, whose in cells:
        assert re.search(rf"membership.*{verdict}.*{whose}", said)
    assert "\nclean: the attack looked for a fault" in said and "no power" not in said and not too_long(said)


def test_a_grid_is_simulated_and_what_is_refuted_is_said(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = few.parent / "out"
    asked = ("--simulate", "--grid", "2,0", "--shadows", 0, "--canaries", 0, "--attack", "population")
    assert study(few, *asked) == 0
    document = json.loads((out / page.JSON_FILE).read_text())
    assert [(one["letter"], one["factor"]) for one in document["grid"]] == [("A", 0.0), ("B", 2.0)]
    assert all(one["unaudited"] == "no canary trials were asked for" for one in document["grid"])
    assert [entry["attack"] for entry in document["grid"][0]["attacks"]] == ["population"]
    assert not document["grid"][0]["findings"] and document["grid"][1]["findings"]
    # Evidence that refutes ends in exit code 1, on the page and off it.
    audit = out / "noise-2" / "run" / "adversary" / "audit.json"
    held = json.loads(audit.read_text())
    held["refuted"], held["findings"][0]["verdict"] = True, "refuted"
    audit.write_text(json.dumps(held))
    capsys.readouterr()
    assert study(few, *asked) == 1
    said = capsys.readouterr().out
    assert "REFUTED" in said and said.endswith(f"Page: {out / page.PAGE_FILE}\n") and not too_long(said)
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines() if "population" in line]
    verdicts = [[f["verdict"] for e in one["attacks"] for f in e["findings"]] for one in document["grid"]]
    assert sorted(cells[1] for cells in shown) == sorted(verdict for one in verdicts for verdict in set(one))
    assert all(cells[5].startswith("agent-") for cells in shown), "what tells rows of one attack apart"
    held["refuted"], held["findings"][0]["verdict"] = False, "not refuted"
    audit.write_text(json.dumps(held))
    assert study(few, *asked) == 0
    attacks = audit.with_name("attacks.json")
    found = json.loads(attacks.read_text())
    found["attacks"][0]["findings"][0]["note"] = "REFUTES what is guaranteed: more than is allowed"
    attacks.write_text(json.dumps(found))
    assert study(few, *asked) == 1, "an attack refutes as an audit does"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--grid", "1,x"), "no list of different numbers"),
        (("--grid", "1,1"), "no list of different numbers"),
        (("--grid", "-1"), "no list of different numbers"),
        (("--seed", 3), "holds a study with another run, seed"),
    ],
)
def test_what_cannot_be_studied_is_named(
    few: Path, words: tuple[object, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = few.parent / "out"
    out.mkdir()
    held = {"run": "", "simulate": False, "attacks": [], "shadows": 64, "canaries": 2000, "seed": 0}
    (out / "study-settings.json").write_text(json.dumps(held))
    assert study(few, *words) == 2
    assert said in capsys.readouterr().err


def test_a_grid_is_of_times_the_run_file_s_noise(few: Path) -> None:
    run = load_run(few)
    doubled = replace(run, noise=replace(run.noise, multiplier=2.0))
    assert _studied(doubled, 0.25, True).noise.multiplier == 0.5


def test_a_folder_of_something_else_is_left_alone(few: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (few.parent / "out").mkdir()
    (few.parent / "out" / "mine").write_text("x")
    assert study(few) == 2
    assert "is not empty and holds no study" in capsys.readouterr().err
    few.write_text(RUN.replace("[graph]", "multiplier = 0.0\n[graph]"))
    assert study(few, "--grid", "1,2") == 2
    assert "noise is off" in capsys.readouterr().err
