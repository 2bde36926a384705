"""``dpgt init``: a run file from data and an epsilon, of whose conditions none fails, and which says what to expect."""

from __future__ import annotations

import csv
import json
import re
import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from dpgt_node import cli
from dpgt_node.accounts.account import totals
from dpgt_node.agent.noise import accounts_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.cli import dpgt
from dpgt_node.cli.beginning.draft import Draft, rounded
from dpgt_node.cli.beginning.init import _contradictions, _next
from dpgt_node.cli.beginning.made import Made, _forecast
from dpgt_node.cli.beginning.made import said as shown
from dpgt_node.config import check_node_in_run, demo_toml, load_node, load_run, parse_run
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.synthetic import table_like
from dpgt_node.learning.oracle import build_oracle, sample_counts
from dpgt_node.sim.own_rows import OwnRows
from dpgt_node.sim.plans.alike import Alike
from dpgt_node.sim.plans.rehearsal import Outcome
from dpgt_node.sim.plans.staying import Staying
from tests.learning.data.files import write_pictures

KINDS = ("oak", "elm", "ash")


def table(path: Path, rows: int = 600, *, gaps: bool = False) -> Path:
    """Trees: their height and girth, a word for where they stand, a number of each, and remarks of many words."""
    rng = np.random.default_rng(3)
    kind = rng.integers(3, size=rows)
    height = np.array([20, 12, 30])[kind] + 2.0 * rng.standard_normal(rows)
    girth = np.array([90, 40, 60])[kind] + 8.0 * rng.standard_normal(rows)
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["number", "height", "girth", "site", "remark", "kind"])
        for i in range(rows):
            cell = "" if gaps and i % 50 == 0 else f"{height[i]:.1f}"
            lines.writerow([i, cell, f"{girth[i]:.0f}", ["wet", "dry"][i % 2], f"seen {i}", KINDS[kind[i]]])
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    table(folder / "trees.csv")
    table(folder / "gaps.csv", 200, gaps=True)
    (folder / "twice.csv").write_text("a,a,b,kind\n1,2,3,x\n4,5,7,y\n0,9,1,x\n")
    made = table_like(6, 4, 300, 60)
    np.savez(
        folder / "t.npz", x_train=made.x_train, y_train=made.y_train + 1, x_test=made.x_test, y_test=made.y_test + 1
    )
    write_pictures(folder / "pictures")
    return folder


def flat(text: str) -> str:
    """On one line, comments too."""
    return " ".join(text.replace("\n# ", "\n").split())


def begun(out: Path, *arguments: str) -> None:
    assert cli.run(["init", *arguments, "--out", str(out)]) == 0


TABLE = ("--label", "kind", "--bounds", "table")
GRID = [
    (("trees.csv", *TABLE), "2", "0.1"),
    (("trees.csv", "--delta", "0", *TABLE), "3", "3"),
    (("trees.csv", "--label", "kind"), "3", "30"),
    (("gaps.csv", *TABLE, "--missing", "middle"), "5", "1"),
    (("t.npz",), "2", "8"),
    (("pictures",), "2", "10"),
]


@pytest.mark.parametrize(("given", "agents", "epsilon"), GRID)
def test_no_condition_fails_for_what_it_writes_and_it_costs_what_was_asked(
    given: tuple[str, ...], agents: str, epsilon: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path / "run.toml", "--data", str(data / given[0]), *given[1:], "--agents", agents, "--epsilon", epsilon)
    said = " ".join(capsys.readouterr().out.split())
    assert "Expected test accuracy" in said or "expect guessing" in said
    assert cli.run(["check", str(tmp_path / "run.toml")]) == 0
    assert "; none of the paper's fails." in flat(capsys.readouterr().out)
    run = load_run(tmp_path / "run.toml")
    schedule, topology = Schedule.from_config(run), Topology.from_config(run.graph)
    accounts = accounts_for(run, topology, schedule, sample_counts(run), build_oracle(run, 0).dimension)
    costs = totals(accounts)["tight" if "--delta" in given else "gdp"]
    assert max(cost for cost in costs if cost is not None) == pytest.approx(float(epsilon), rel=1e-6)
    assert run.n == int(agents)
    assert run.runtime.barrier_every == 16
    assert "\n# barrier_every: agents go through up to 16 rounds" in (tmp_path / "run.toml").read_text()


def test_a_table_is_learnt_at_the_epsilon_and_the_reasons_stand_in_the_file(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path / "run.toml", "--data", str(data / "trees.csv"), *TABLE, "--epsilon", "3")
    text = (tmp_path / "run.toml").read_text()
    document = tomllib.loads(text)["data"]
    assert document["columns"] == ["height", "girth", "site"] and document["classes"] == ["ash", "elm", "oak"]
    assert document["categories"] == {"site": ["dry", "wet"]} and set(document["bounds"]) == {"height", "girth"}
    assert "'number' (numbers the rows), 'remark' (600 different words)" in flat(text)
    assert "epsilon does not cover them" in flat(text) and document["bounds_from"] == "table"
    out, capsys_text = tmp_path / "out", capsys.readouterr().out
    copied = capsys_text.replace(" \\\n    ", " ")  # commands go on after a backslash
    assert all(len(line) <= 80 or str(tmp_path) in line for line in (*capsys_text.splitlines(), *text.splitlines()))
    assert re.search(r"with 51 draws of the noise, the worst agent's .* Alone, .* 120 test rows\.", flat(capsys_text))
    assert "no epsilon covers what you decide by them" in flat(capsys_text)
    assert f"dpgt launch {tmp_path / 'run.toml'} --out runs/first" in copied
    assert copied.rstrip().endswith("dpgt predict model --data new.csv")
    assert cli.run(["simulate", str(tmp_path / "run.toml"), "--out", str(out)]) == 0
    assert cli.run(["export", str(out), "--out", str(tmp_path / "m")]) == 0
    assert "(`bounds_from`): the run file shows them, and no epsilon covers" in (tmp_path / "m/PRIVACY.md").read_text()
    assert cli.run(["check", str(tmp_path / "run.toml")]) == 0
    assert "Looked at: The rows themselves: bounds of columns" in flat(capsys.readouterr().out)
    capsys.readouterr()
    assert cli.run(["evaluate", str(tmp_path / "m"), "--run", str(tmp_path / "run.toml")]) == 0
    accuracy = re.search(r"accuracy ([\d.]+) %", capsys.readouterr().out)
    assert accuracy is not None and float(accuracy[1]) > 80.0


def test_where_nothing_learns_it_says_so_and_from_which_epsilon_on(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path / "run.toml", "--data", str(data / "trees.csv"), *TABLE, "--agents", "5", "--epsilon", "0.01")
    said = " ".join(capsys.readouterr().out.split())
    assert "WARNING: nothing learns on the rows here" in said
    found = re.search(r"nothing learns at epsilon = 0.01 from 96 samples .* guessing .* epsilon = (\S+) on", said)
    assert found is not None and 0.01 < float(found[1]) < 3.0
    first = said[said.index("Next, since nothing learns: a larger epsilon") :].replace(" \\", "")
    assert f"--bounds table --epsilon {2 * float(found[1]):.2g} --out {tmp_path / 'run-again.toml'}" in first
    assert first.index("dpgt init --data") < first.index("What was written, all the same: dpgt launch")


def test_columns_without_bounds_get_a_hint_and_keep_their_values(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--data", str(data / "trees.csv"), "--label", "kind", "--bounds", "height=0:50", "--epsilon", "0.01")
    begun(tmp_path / "run.toml", *asked)
    document = tomllib.loads((tmp_path / "run.toml").read_text())["data"]
    assert document["bounds"] == {"height": [0.0, 50.0]}
    out, err = capsys.readouterr()
    said = flat(err)
    assert said.count("columns differ in size") == 1, "said once, by init itself"
    assert "have no bounds: state these first" in flat(out)
    again = "--bounds height=0:50 --bounds table --epsilon 0.01 --out"
    assert again in flat(out).replace(" \\", ""), "the remedy, before anything is launched"
    assert "WARNING: 1 of 3 columns reach beyond -1 to 1" in said
    odd = "columns differ in size: 'girth' reaches 1"
    assert odd in said and "where these differ in size, less comes of it" in flat((tmp_path / "run.toml").read_text())
    ready = said[said.index("own rounded outwards, are publicly known:") :].replace(" \\", "")
    assert "--bounds height=0:50 --bounds girth=" in ready and "..." not in ready, "a whole command"
    assert cli.run(["check", str(tmp_path / "run.toml")]) == 0
    assert f"Data: {odd}" in flat(capsys.readouterr().out)


@pytest.mark.parametrize(("delta", "worst"), [(0.5, 0.2), (1e-5, 0.4)])
def test_a_void_delta_and_figures_below_guessing_are_explained_on_the_screen(delta: float, worst: float) -> None:
    plan = SimpleNamespace(
        run=parse_run(demo_toml(), "demo", Path()),
        route=SimpleNamespace(delta=delta),
        target=SimpleNamespace(epsilon=1.0),
        outcome=Outcome(worst, worst),
        chance=0.4,
        begins=None,
    )
    chosen, shape = SimpleNamespace(plan=plan, staying=None, useless=True), SimpleNamespace(samples=(800, 900))
    screen = flat("\n".join(shown(Made(Path("run.toml"), cast(Any, chosen), cast(Any, shape), None, Draft({}), ()))))
    assert ("WARNING: delta = 0.5 is 1/D = 1/900 or more" in screen) == (delta == 0.5)
    assert "expect guessing (40.0 %)" in screen
    assert ("Guessing always says the most frequent class" in screen) == (worst < 0.4)


@pytest.mark.parametrize(("together", "alone"), [(0.992, 0.983), (0.5, 0.6)])
def test_which_verdict_to_believe_is_said_where_the_file_has_the_other_one(together: float, alone: float) -> None:
    def screen(forecast: float) -> str:
        staying = Staying(0.719, Outcome(forecast, forecast), Alike(), 160, "made-up tables", 1.0)
        chosen = SimpleNamespace(plan=None, staying=staying, useless=False, expected="about that.")
        rows = OwnRows((together,), alone, 0.34, 120)
        return " ".join(_forecast(Made(Path("run.toml"), cast(Any, chosen), cast(Any, None), rows, Draft({}), ())))

    ahead, behind = screen(0.8), screen(0.655)
    differs, same = (behind, ahead) if together > alone else (ahead, behind)
    assert "for these rows believe the figures above" in differs and "believe" not in same
    assert ("on made-up tables, staying alone is better: 71.9 % alone, 65.5 % together" in differs) == (
        together > alone
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trees.csv"], "--label: is needed: which of number, height"),
        (
            ["trees.csv", "--label", "knid"],
            "has no column 'knid'; did you mean \"kind\"? Its columns: number, he",
        ),
        (["gaps.csv", "--label", "kind"], r"4 empty cells (4 in 'height'): leave these rows out"),
        (["trees.csv", "--label", "kind", "--bounds", "height=5:3"], "must be COLUMN=LOW:HIGH with LOW below HIGH"),
        (["trees.csv", "--label", "kind", "--bounds", "site=0:3"], "'site': bounds are of columns of numbers"),
        (["trees.csv", "--label", "kind", "--bounds", "hight=5:6"], "has no column 'hight'; did you mean \"height\"?"),
        (["trees.csv", "--label", "remark"], "different labels"),
        (["twice.csv", "--label", "kind"], "twice.csv: has 2 columns 'a', of which nobody can say one"),
        (["twice.csv", "--label", "kind", "--ignore", "a"], "has 2 columns 'a'"),
        (["digits", "--agents", "5000"], "dpgt init: command line: --agents: 5000 agents cannot share"),
        (["t.npz", "--label", "kind"], "is for tables"),
        (["t.npz", "--owners"], "needs a --data for each owner"),
        (["absent.csv", "--label", "kind"], "--data: cannot read"),
        (["absent.npz"], "--data: cannot read"),
        (["t.txt"], "t.txt here. Data are digits, mnist"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: list[str], words: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = arguments[0] if arguments[0] == "digits" else str(data / arguments[0])
    asked = ["init", "--data", name, *arguments[1:], "--out", str(tmp_path / "run.toml")]
    assert cli.run(asked) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line and not (tmp_path / "run.toml").exists()


@pytest.mark.parametrize("bounds", [[], ["--bounds", "table"], ["--bounds", "b=0:9"]])
def test_an_infinite_number_is_told_of_beside_an_empty_cell(
    bounds: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,label\n0.3,1e400,x\n0.7,2.5,y\n,7,x\n")
    assert cli.run(["init", "--data", str(path), "--label", "label", *bounds, "--out", str(tmp_path / "o.toml")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "t.csv: has 1 non-finite value, the first in row 1 of column 'b': it is infinite" in first
    assert "--missing: the data have 1 empty cell (1 in 'a')" in second


def test_a_folder_without_parts_keeps_a_test_share_and_its_commands_work(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "made", each=40)
    (tmp_path / "made/train").rename("flat")
    (tmp_path / "made/test").rename("pictures")  # to predict
    asked = ["--data", "flat", "--agents", "2", "--epsilon", "10", "--format", "json"]
    capsys.readouterr()
    begun(Path("run.toml"), *asked)
    made = json.loads(capsys.readouterr().out)
    assert [one["samples"] for one in made["agents"]] == [32, 32] and made["rows_here"]["tested"] == 16
    for step in made["next"]:
        words = shlex.split(step)[1:]
        assert cli.run(["simulate" if word == "launch" else word for word in words]) == 0, step
    assert "folder:flat, test: accuracy 100.00 %" in capsys.readouterr().out
    assert cli.run(["evaluate", "model", "--data", "flat"]) == 0
    assert "80 samples" in capsys.readouterr().out, "other data without a test part are judged whole"
    run = load_run(Path("run.toml"))
    assert _next(Path("run.toml"), run)[1:3] == [
        "dpgt launch run.toml --out runs/first-2",
        "dpgt export runs/first-2 --out model-2",
    ], "names that are free"
    assert _next(Path("run2.toml"), run)[2] == "dpgt export runs/run2 --out model-run2"
    text = Path("run.toml").read_text()
    Path("run.toml").write_text("\n".join(line for line in text.splitlines() if "test_fraction = " not in line))
    assert cli.run(["simulate", "run.toml", "--out", "runs/second"]) == 0
    assert cli.run(["export", "runs/second", "--out", "m3"]) == 0
    capsys.readouterr()
    assert cli.run(["evaluate", "m3", "--run", "run.toml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no test samples: write test_fraction = 0.2 under [data] before the next run; judge on other" in line


def test_an_odd_picture_is_named_before_anything_is_planned(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pictures(tmp_path / "p")
    Image.new("L", (9, 9)).save(tmp_path / "p/train/cat/odd.png")
    capsys.readouterr()
    assert cli.run(["init", "--data", str(tmp_path / "p"), "--out", str(tmp_path / "run.toml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "odd.png: is 9 x 9 pixels, 12 of 13 pictures are 6 x 7: bring all to one size" in line


def test_owners_are_as_many_as_their_files() -> None:
    for agents, refused in ((None, []), (2, []), (3, ["--owners"]), (1, ["--owners"])):
        assert [option for option, _ in _contradictions(["a", "b"], agents, (), owners=True)] == refused


def test_nothing_is_written_over(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text("mine")
    assert cli.run(["init", "--data", "digits", "--out", str(tmp_path / "run.toml")]) == 2
    assert (tmp_path / "run.toml").read_text() == "mine" and "is there already" in capsys.readouterr().err
    absent = ["init", "--data", str(tmp_path / "nosuch.csv"), "--label", "x", "--out", str(tmp_path / "run.toml")]
    assert cli.run(absent) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "is there already" in first and "--data: cannot read" in second and "nosuch.csv" in second
    wrong = ["init", "--data", "digits", "--epsilon", "nan", "--delta", "2", "--host", "x=y", "--out", absent[-1]]
    assert cli.run(wrong) == 2
    told = [line.split(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told == ["--host", "--epsilon", "--delta", "--out"], "all that is wrong at once"


def test_without_arguments_it_asks(data: Path, tmp_path: Path) -> None:
    told = f"{data / 'trees.csv'}\n\ny\n2\n5\n"  # the last column is the label, unless told otherwise
    done = CliRunner().invoke(dpgt, ["init", "--out", str(tmp_path / "run.toml")], input=told)
    assert done.exit_code == 0, done.output
    run = load_run(tmp_path / "run.toml")
    assert run.n == 2 and run.data.params["label"] == "kind" and "bounds" in run.data.params


def test_all_that_is_wrong_with_a_table_s_options_is_told_of_at_once(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "run.toml"))
    bounds = [word for text in ("girth=5:1", "foo=1:2", "width") for word in ("--bounds", text)]
    asked = ["init", "--data", str(data / "trees.csv"), "--ignore", "zzz", *bounds, *out]
    assert cli.run(asked) == 2
    told = [line.removeprefix("dpgt init: command line: ") for line in capsys.readouterr().err.splitlines()]
    starts = [
        "--label: is needed",
        "--ignore: ",
        "--bounds: must be COLUMN",
        "--bounds: the table",
        "--bounds: must be",
    ]
    assert len(told) == 5 and all(line.startswith(start) for line, start in zip(told, starts, strict=True))
    assert cli.run(["init", "--data", "digits", "--label", "x", "--ignore", "y", *out]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_where_nobody_answers_it_names_the_option(tmp_path: Path) -> None:
    for told in ("", "digits\n"):
        done = CliRunner().invoke(dpgt, ["init", "--out", str(tmp_path / "run.toml")], input=told)
        assert isinstance(done.exception, ConfigError)
        assert str(done.exception).startswith("command line: --data: is needed: nobody answers here")


def test_owners_get_folders_with_their_data_and_a_policy(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(data / "trees.csv"), str(data / "gaps.csv")]
    asked = [word for file in files for word in ("--data", file)]
    capsys.readouterr()
    begun(tmp_path / "hosts", *asked, "--owners", *TABLE, "--missing", "middle", "--epsilon", "4", "--format", "json")
    made = json.loads(capsys.readouterr().out)
    assert [agent["samples"] for agent in made["agents"]] == [480, 160] and made["epsilon"] == 4.0
    assert made["rows_here"]["tested"] == 160 and made["rows_here"]["learns"] and made["expected"]["learns"]
    assert [one["name"] for one in made["rows_here"]["own"]] == ["agent-1", "agent-2"]
    assert made["next"][0].startswith(f"dpgt coordinator --config {tmp_path / 'hosts'}/coordinator/run.toml --listen")
    for name in ("agent-1", "agent-2"):
        folder = tmp_path / "hosts" / name
        assert f"dpgt export {folder}/state --run {folder}/run.toml --out {folder}/model" in made["next"]
        assert f"dpgt evaluate {folder}/model --node {folder}/NODE.toml" in made["next"]
    run = load_run(tmp_path / "hosts" / "coordinator" / "run.toml")
    assert (run.name, run.data.dataset) == ("kind of 2 owners", "csv:own.csv")
    for i, name in enumerate(("agent-1", "agent-2")):
        node = load_node(tmp_path / "hosts" / name / "NODE.toml")
        run = load_run(node.run)
        check_node_in_run(node, run)
        assert node.data_path == Path(files[i]) and node.policy.epsilon_max == 4.0 and node.policy.delta_max == 1e-5
        oracle = build_oracle(run, i, data_path=node.data_path)
        assert (oracle.samples, oracle.tested) == ((480, 120), (160, 40))[i]
    assert cli.run(["doctor", str(tmp_path / "hosts/agent-1/NODE.toml")]) in (0, 1)


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [(4.3, 7.9, (4.0, 8.0)), (0.1, 2.5, (0.0, 3.0)), (278.0, 1680.0, (0.0, 2000.0)), (-0.031, 0.02, (-0.04, 0.02))],
)
def test_ranges_are_rounded_outwards(low: float, high: float, ends: tuple[float, float]) -> None:
    assert rounded(low, high) == ends and rounded(*ends) == ends
