"""``dpgt plan``: valid TOML that check accepts and that costs what it says."""

from __future__ import annotations

import csv
import json
import re
import threading
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.cli import plan as plan_module
from dpgt_node.config import SchemeS2, load_run, parse_run, to_toml
from dpgt_node.sim.plans import everyround, planning, recipe
from dpgt_node.sim.plans.rehearsal import Rehearsal, Shape
from tests.learning.data.files import write_idx

RUN = """
name = "to be planned"
[algorithm]
iterations = 7
[scheme]
kind = "S1"
a1 = 0.1
a2 = 0.1
a3 = 0.1
a4 = 1.0
p_alpha = 0.5
p_beta = 0.5
p_gamma = 0.5
p_m = 1.0
[noise]
multiplier = 0.0
[graph]
agents = 3
R = [[0,0,1],[1,0,0],[0,1,0]]
C = [[0,0,1],[1,0,0],[0,1,0]]
[data]
dataset = "digits"
normalise = "l2"
[model]
bias = 0.2
[privacy]
clip_l2 = 1.0
[evaluate]
metrics = "study"
"""


def flat(text: str) -> str:
    """On one line, comments too."""
    return " ".join(text.replace("\n# ", "\n").split())


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(everyround, "ROUNDS", (4, 12))
    monkeypatch.setattr(everyround, "STEPS", (0.25, 0.75))
    monkeypatch.setattr(everyround, "_FINALISTS", 2)
    monkeypatch.setattr(recipe, "GRADIENTS", (1, 3, 8))
    monkeypatch.setattr(recipe, "_FIRST", (8, 1))
    monkeypatch.setattr(recipe, "_SCAN", tuple(4.0**e for e in range(-1, 6)))
    monkeypatch.setattr(planning.Planner.plan, "__defaults__", (3,))
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    return path


def test_the_plan_is_a_run_file_that_costs_what_it_says(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", str(run_file), "--epsilon", "8"]) == 0
    out, err = capsys.readouterr()
    assert "what to release" in flat(err) and "rehearsing" in flat(err)
    planned = tmp_path / "planned.toml"
    planned.write_text(out)
    document = tomllib.loads(out)
    assert document["algorithm"]["mechanism"] == "noise-once" and document["noise"]["law"] == "gaussian"
    assert document["scheme"]["kind"] == "S2" and document["scheme"]["samples"] == "full"
    run = load_run(planned)
    assert parse_run(to_toml(run), "again", tmp_path) == run
    assert run.graph == load_run(run_file).graph and run.data == load_run(run_file).data

    assert cli.run(["check", str(planned)]) == 0
    assert "; none of the paper's fails." in flat(capsys.readouterr().out)
    assert cli.run(["check", str(planned), "--format", "json"]) == 0
    epsilon = json.loads(capsys.readouterr().out)["epsilon"]
    assert all(8.0 * (1 - 1e-6) <= value <= 8.0 for value in epsilon["gdp"])
    # Reasons and every agent under every accountant with a value; never a bare epsilon.
    head = "# dpgt plan: every agent's whole transcript costs at most epsilon = 8 (gdp, delta = 1e-05)"
    assert flat(out).startswith(head)
    for agent, zcdp in zip(("agent-1", "agent-2", "agent-3"), epsilon["zcdp"], strict=True):
        assert f"#   {agent}  zcdp {zcdp:.4g} (none)   gdp 8 (weak)" in out
    for reason in ("# mechanism noise-once", "# K: ", "# release_every", "# samples", "# gaussian noise", "# metrics"):
        assert f"\n{reason}" in out
    assert "enforced" in flat(out) and "synthetic data of the same shape" in flat(out)
    said = " ".join(line.removeprefix("#").strip() for line in out.splitlines())
    assert "made to be as hard as the 1,438 training samples of digits: where an agent holds some of those" in said


def test_a_plan_chooses_features_and_says_what_it_expects_and_where_learning_begins(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Raw columns of large, unequal means, which no clip fits: what stands there does not have to stay."""
    run_file.write_text(RUN.replace('"digits"\nnormalise = "l2"', '"npz:t.npz"').replace("bias = 0.2", "bias = 1.0"))
    command = ["plan", str(run_file), "--epsilon", "1", "--shape", "6,3,400"]
    assert cli.run(command) == 0
    out, err = capsys.readouterr()
    planned = tomllib.loads(out)
    assert planned["data"]["normalise"] in ("l2", "sphere") and planned["model"]["bias"] == 0.2
    assert "\n# features, normalise, bias: the best of raw/none" in out
    expected = re.search(r"Expected test accuracy of the worst agent: about (\d+) %, or (\d+) %", flat(out))
    assert expected is not None and int(expected[1]) < int(expected[2])
    assert float(re.findall(r"Learning begins at about epsilon (\S+)\.(?: |$)", flat(err))[0]) < 1.0
    assert cli.run([*command, "--keep-features"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["data"]["normalise"] == "none"


EXAMPLES = Path(__file__).parents[2] / "examples"
NOT_PLANNED = "has no samples|sets steps and noise of Algorithm 1|reckons with linear mixing|No module named .torch."
SAMPLE = {"quadratic": "1", "spanning-trees": "10"}


@pytest.mark.parametrize(("example", "epsilon"), SAMPLE.items())
def test_check_has_no_warning_for_plans_of_some_examples(
    example: str, epsilon: str, run_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_planned_without_warning(EXAMPLES / f"{example}.toml", epsilon, run_file.parent, monkeypatch, capsys)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", ["0.1", "1", "3", "10"])
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_check_has_no_warning_for_a_plan_of_any_example(
    example: Path, epsilon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_planned_without_warning(example, epsilon, tmp_path, monkeypatch, capsys)


def is_planned_without_warning(
    example: Path, epsilon: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or refused with one of the reasons that an example may have."""
    monkeypatch.setenv("DPGT_DATA", str(folder))
    monkeypatch.syspath_prepend(str(example.parent))
    text = example.read_text()
    shape = [] if 'dataset = "digits"' in text else ["--shape", f"{3072 if 'cifar10' in text else 784},10,3000"]
    code = cli.run(["plan", str(example), "--epsilon", epsilon, *shape])
    out, err = capsys.readouterr()
    if code != 0:
        assert code == 2 and re.search(NOT_PLANNED, err), err
        return
    assert "Expected test accuracy" in flat(out) or "expect guessing" in flat(out) or "is not rehearsed" in flat(out)
    (folder / "planned.toml").write_text(out)
    assert cli.run(["check", str(folder / "planned.toml")]) == 0
    assert "; none of the paper's fails." in flat(capsys.readouterr().out)


def test_declared_constants_and_pure_plans_are_labelled(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_file.write_text(RUN.replace("clip_l2 = 1.0", "C = 2.0"))
    assert cli.run(["plan", str(run_file), "--epsilon", "8", "--delta", "0", "--keep-clip"]) == 0
    out = capsys.readouterr().out
    assert "DECLARED, NOT ENFORCED" in flat(out) and "epsilon = 8 (tight): none" in flat(out)
    assert tomllib.loads(out)["noise"]["law"] == "laplace"


def test_data_that_are_elsewhere_need_a_shape(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_file.write_text(RUN.replace('"digits"', '"npz:not-here.npz"'))
    assert cli.run(["plan", str(run_file), "--epsilon", "8"]) == 2
    assert "not on this machine; give the shape of the data: --shape P,CLASSES,D" in flat(capsys.readouterr().err)
    assert cli.run(["plan", str(run_file), "--epsilon", "8", "--shape", "16,3,500"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["data"]["dataset"] == "npz:not-here.npz"


def test_public_data_and_the_trade_off(run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    public = tmp_path / "public.npz"
    arrays = {f"{kind}_{part}": None for kind in "xy" for part in ("train", "test")}
    for part in ("train", "test"):
        arrays[f"y_{part}"] = y = rng.integers(3, size=300)
        arrays[f"x_{part}"] = rng.random((300, 16)) + np.eye(16)[y]
    np.savez(public, **arrays)
    run_file.write_text(RUN.replace('"digits"', '"npz:not-here.npz"'))
    command = ["plan", str(run_file), "--epsilon", "4", "--shape", "16,3,500", "--public", str(public)]
    assert cli.run([*command, "--pareto", str(tmp_path / "pareto")]) == 0
    out = capsys.readouterr().out
    assert "the public data given" in flat(out) and "synthetic" not in flat(out)
    with (tmp_path / "pareto" / "pareto.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["epsilon"]) for row in rows] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert all(row["accountant"] == "gdp" and 0.0 <= float(row["accuracy_worst"]) <= 1.0 for row in rows)
    assert float(rows[0]["accuracy_mean"]) < float(rows[-1]["accuracy_mean"])
    alone = {row["accuracy_alone"] for row in rows}
    assert len(alone) == 1 and 0.8 < float(alone.pop()) <= 1.0
    drawing = ET.parse(tmp_path / "pareto" / "pareto.svg").getroot()
    assert drawing.tag.endswith("svg")
    text = "".join(drawing.itertext())
    assert "gdp, delta = 1e-05" in text and "the public data given" in text
    assert "worst agent alone, epsilon 0" in text


def test_the_plan_says_where_staying_alone_is_better(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", str(run_file), "--epsilon", "0.3"]) == 0
    out, err = capsys.readouterr()
    said = " ".join(line.removeprefix("#").strip() for line in out.splitlines())
    assert "samples an agent, all classes: training alone costs no privacy and is expected to reach" in said
    verdict = "and no row of the agents, staying alone is better."
    assert verdict in said and verdict in flat(err)
    assert cli.run(["plan", str(run_file), "--epsilon", "30", "--alike", "by-label:2"]) == 0
    out, err = capsys.readouterr()
    assert "divided like by-label (2)" in flat(out) and "Staying alone" not in flat(out + err)
    planned = tmp_path / "planned.toml"
    planned.write_text(out)
    assert cli.run(["check", str(planned), "--alone", "--alike", "by-label:2"]) == 0
    assert "divided like by-label (2): training alone costs no privacy" in capsys.readouterr().out
    assert cli.run(["check", str(planned), "--alone", "--shape", "64,10,90", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["alone"]
    assert (
        found["alike"] == "iid" and found["expected_alone"] > 0.5 and found["expected_worst"] <= found["expected_mean"]
    )


@pytest.mark.parametrize("option", [["--alike", "iid"], ["--shape", "64,10,90"]])
def test_check_compares_only_when_it_is_asked(
    run_file: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["check", str(run_file), *option]) == 2
    assert f"{option[0]}: goes with --alone" in capsys.readouterr().err
    assert cli.run(["check", str(run_file), "--format", "json"]) in (0, 1)
    assert "alone" not in json.loads(capsys.readouterr().out)


S1 = RUN[RUN.index("[scheme]") : RUN.index("[noise]")]
S2 = '[scheme]\nkind = "S2"\nalpha = 0.31\nbeta = 0.17\ngamma = {gamma}\np_m = 0.5\n'


@pytest.mark.parametrize("mechanism", ["noise-once", "public-state", "published-point"])
def test_kept_steps(run_file: Path, mechanism: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_file.write_text(RUN.replace(S1, S2.format(gamma=0.9)))
    command = ["plan", str(run_file), "--epsilon", "4", "--mechanism", mechanism, "--keep-steps"]
    assert cli.run(command) == 0
    out = capsys.readouterr().out
    planned = parse_run(out, "planned", run_file.parent)
    assert planned.K == 7 and planned.scheme == SchemeS2(0.31, 0.17, 0.9, 1.0, samples="full")
    assert "as asked for, with --keep-steps" in flat(out) and "candidates" not in flat(out)
    assert "costs at most epsilon = 4 (gdp, delta = 1e-05)" in flat(out)
    account = [float(line.split("gdp ")[1].split()[0]) for line in out.splitlines() if line.startswith("#   agent")]
    assert len(account) == 3 and all(3.99 < epsilon <= 4.0 for epsilon in account)


def test_a_delta_that_protects_nobody_is_warned_of_on_the_screen(
    run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_file.write_text(RUN.replace(S1, S2.format(gamma=0.9)))
    said = "delta = 0.5 is 1/D = 1/480 or more"
    for delta, warned in (("0.5", True), ("1e-5", False)):
        assert cli.run(["plan", str(run_file), "--epsilon", "4", "--keep-steps", "--delta", delta]) == 0
        out, err = capsys.readouterr()
        assert (f"warning: {said}" in flat(err)) == (f"WARNING: {said}" in flat(out)) == warned


RELEASES = 'releases = [0, 3, 5]\nsettle = 2\nfirst = "class-sums"\nfirst_scale = 0.5\n'


def test_releases_of_the_run_file_are_kept_with_its_steps(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scales are set for the releases there are; which they are, and how they differ, stays as it is."""
    text = RUN.replace(S1, S2.format(gamma=0.9) + RELEASES).replace("iterations = 7", "iterations = 9")
    text = text.replace("[algorithm]", '[algorithm]\nmechanism = "noise-once"')
    text = text.replace("[noise]\n", "[noise]\nby_release = [3.0, 1.0]\n")
    run_file.write_text(text.replace("clip_l2 = 1.0\n", "clip_l2 = 1.0\nby_release = [2.0, 1.0]\n"))
    assert cli.run(["plan", str(run_file), "--epsilon", "4", "--keep-steps"]) == 0
    out = capsys.readouterr().out
    planned, given = parse_run(out, "planned", run_file.parent), load_run(run_file)
    assert planned.scheme == replace(given.scheme, p_m=1.0, samples="full") and planned.K == 9
    assert planned.noise.by_release == (3.0, 1.0) and planned.privacy.by_release == (2.0, 1.0)
    assert "predictor" not in out
    account = [float(line.split("gdp ")[1].split()[0]) for line in out.splitlines() if line.startswith("#   agent")]
    assert len(account) == 3 and all(3.99 < epsilon <= 4.0 for epsilon in account)
    assert cli.run(["plan", str(run_file), "--epsilon", "4", "--keep-steps", "--mechanism", "public-state"]) == 2
    assert "--mechanism: public-state releases in every round" in capsys.readouterr().err
    run_file.write_text(run_file.read_text().replace("clip_l2", "clip_l1"))
    assert cli.run(["plan", str(run_file), "--epsilon", "4", "--keep-steps", "--accountant", "lemma5"]) == 2
    assert "--accountant: lemma5 is for paper, which releases in every round" in capsys.readouterr().err


def test_help_and_refusals_list_the_accountants_of_algorithm_1(
    run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of other methods are known words, and nothing can be planned for them."""
    assert cli.run(["plan", "--help"]) == 0
    offered = "lemma5, corrected, tight, amplified, zcdp, gdp"
    assert f" {offered}. " in flat(capsys.readouterr().out)
    for name in ("binomial", "same-point", "variation"):
        assert cli.run(["plan", str(run_file), "--epsilon", "1", "--accountant", name]) == 2
        said = f"--accountant: must be one of {offered}; {name} says nothing about mechanisms of Algorithm 1"
        assert said in flat(capsys.readouterr().err)


def test_a_folder_that_cannot_be_written_is_refused_first(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", str(run_file), "--epsilon", "0", "--pareto"]
    assert cli.run([*command, "/proc/x"]) == 2
    assert "--pareto: /proc/x cannot be written: No such file or directory" in flat(capsys.readouterr().err)
    assert cli.run([*command, str(tmp_path / "new" / "folder")]) == 2
    assert "--pareto" not in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_kept_steps_that_cannot_run(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_file.write_text(RUN.replace(S1, S2.format(gamma=0.9).replace("0.31", "1.5")))
    assert cli.run(["plan", str(run_file), "--epsilon", "4", "--keep-steps"]) == 2
    assert "scheme.alpha" in capsys.readouterr().err


def test_a_picture_set_is_public_data(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored as bytes, rehearsed on as an agent reads them: numbers in [0, 1]."""
    monkeypatch.setenv("DPGT_DATA", str(tmp_path))
    write_idx(tmp_path / "MNIST" / "raw", 60, 20)
    data = plan_module._public("mnist")
    assert data is not None and data.x_train.dtype == np.uint8
    run_file.write_text(RUN.replace('normalise = "l2"', ""))
    rehearsal = Rehearsal(load_run(run_file), Shape(784, 10, (20, 20, 20)), data)
    for part in (rehearsal._data.x_train, rehearsal._data.x_test):
        assert 0.9 < part.max() <= 1.0


@pytest.mark.parametrize(
    ("old", "new", "options", "says"),
    [
        ("clip_l2 = 1.0", "delta = 1e-6", ["--keep-clip"], "privacy: no clip"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--delta", "0", "--keep-clip"], "privacy.clip_l2: a pure guarantee"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--towards", "3"], "--towards: must be 0 (an eavesdropper) to 2"),
        (
            "clip_l2 = 1.0",
            "clip_l1 = 1.0",
            ["--towards", "1", "--mechanism", "paper"],
            "noise of paper is never shared",
        ),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--epsilon", "-1"], "--epsilon: must be a finite number > 0"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--accountant", "best"], "--accountant: must be one of"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--alike", "very"], "--alike: must be iid, by-label:N"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--shape", "1,2"], "--shape: must be P,CLASSES,D"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--shape", "many,few,some"], "as in 784,10,12000, not 'many,few,some'"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--shape", "64,1,5"], "--shape: CLASSES must be 2 to 10,000, not 1"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--shape", f"64,10,{10**40}"], "--shape: D must be 1 to 1,000,000,000"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--shape", "65,10,5"], "P = 65, but digits, which is here, has 64 numbers"),
        ('"digits"', '"csv:no.csv"\nlabel = "y"\nclasses = 3', ["--shape", "4,2,9"], "run.toml says 3 classes"),
        (
            '"digits"',
            '"csv:no.csv"\nlabel = "y"\ncolumns = ["a", "b"]\ncategories = { b = ["u", "v"] }',
            ["--shape", "2,2,9"],
            "run.toml says 3 numbers a sample",
        ),
        ('"digits"', '"mnist"\nfeatures = "hog"', ["--shape", "64,10,9"], "--shape: P = 64, but mnist"),
        ('"digits"', '"npz:no.npz"\nfeatures = "hog"', ["--shape", "64,10,9"], "P = 64: 'hog' needs samples of 28 x"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--public", "digits"], "--public: must be an .npz file, or one of mnist"),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--keep-steps"], '--keep-steps: needs scheme.kind = "S2"'),
        ("clip_l2 = 1.0", "clip_l2 = 1.0", ["--keep-steps", "--pareto", "x"], "--keep-steps: leaves nothing to search"),
        ('normalise = "l2"\n[model]\nbias = 0.2', "dimension = 3", [], "no samples"),
    ],
)
def test_the_impossible_is_refused(
    run_file: Path, old: str, new: str, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RUN.replace(old, new)
    run_file.write_text(text.replace('"digits"', '"zeros"') if "dimension" in new else text)
    assert cli.run(["plan", str(run_file), "--epsilon", "1", *options]) == 2
    assert says in flat(capsys.readouterr().err)


def test_all_that_is_wrong_is_said_at_once_and_before_anything_is_tried(
    run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_file.write_text(RUN.replace("C = [[0,0,1],[1,0,0],", "C = [[0,0,0],[0,0,0],"))
    options = ["--epsilon", "0", "--delta", "2", "--accountant", "a", "--mechanism", "m", "--towards", "3"]
    options += ["--alike", "very", "--public", "digits", "--shape", "1,2", "--keep-steps", "--pareto", "x"]
    assert cli.run(["plan", str(run_file), *options]) == 2
    out, err = capsys.readouterr()
    named = ["epsilon", "delta", "accountant", "mechanism", "towards", "keep-steps", "keep-steps", "alike", "public"]
    assert re.findall(r"command line: --([a-z-]+): ", err) == [*named, "shape"]
    assert f"{run_file}: graph.C: Assumption 1: roots of C'" in err and f"{run_file}: graph: Assumption 1" in err
    assert len(err.splitlines()) == len(named) + 1 + 2 and not out, "and nothing of what is tried"


def test_a_plan_that_can_learn_nothing_says_so_and_when_it_would(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", str(run_file), "--epsilon", "0.01"]) == 0
    out, err = capsys.readouterr()
    tomllib.loads(out)
    said = "nothing learns at epsilon = 0.01 from 479 samples an agent: expect guessing ("
    assert f"dpgt plan: warning: {said}" in flat(err) and f"WARNING: {said}" in flat(out)
    guessing, reached = (
        float(re.findall(rf"{text}([0-9.]+) %", flat(err))[0]) for text in (r"guessing \(", "this run ")
    )
    assert ("Guessing always says the most frequent class" in flat(err)) == (reached < guessing)
    start = float(re.findall(r"from about epsilon = (\S+) on it would learn", flat(err))[0])
    assert 0.01 < start < 3.0
    planned = tmp_path / "planned.toml"
    planned.write_text(out)
    assert cli.run(["check", str(planned)]) == 0
    assert "; none of the paper's fails." in flat(capsys.readouterr().out)
    assert cli.run(["plan", str(run_file), "--epsilon", str(2 * start)]) == 0
    assert "nothing learns" not in "".join(capsys.readouterr())


def test_epsilon_towards_one_other_is_said_with_what_it_rests_on(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", str(run_file), "--epsilon", "2", "--towards", "1"]) == 0
    out = capsys.readouterr().out
    head = "# dpgt plan: every agent's whole transcript costs at most epsilon = 2 (gdp, delta = 1e-05) towards any 1 of"
    said = flat(out)
    assert said.startswith(head) and "two honest agents at least" in said and "launch with --durability power" in said
    planned = tmp_path / "planned.toml"
    planned.write_text(out)
    assert load_run(planned).noise.cancel is not None
    assert cli.run(["check", str(planned), "--format", "json"]) == 0
    towards = json.loads(capsys.readouterr().out)["towards"]
    one, everybody = (max(row[t] for row in towards["epsilon"]) for t in (1, 2))
    assert 2.0 * (1 - 1e-3) <= one <= 2.0 < everybody


def test_where_nothing_else_is_said_a_plan_says_that_it_is_at_work() -> None:
    """Of thousands of agents one step takes minutes.  Elsewhere it is silent: lines of its own are enough."""
    lines, told = list[str](), threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        told.set()

    with plan_module._at_work(say, 0.001) as progress:
        assert told.wait(60.0)
        progress("a line")
    assert re.fullmatch(r"at work for \d+ s", lines[0]) and "a line" in lines
    count = len(lines)
    with plan_module._at_work(say, 3600.0) as progress:
        progress("another")
    assert lines[count:] == ["another"], "and it ends at once"
