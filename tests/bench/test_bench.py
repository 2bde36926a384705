"""Every measurement runs in its smallest size and says what it is asked for; nothing here is about time."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dpgt_node.bench.catalogue import CATALOGUE
from dpgt_node.bench.clocks import Clock, watching
from dpgt_node.bench.figures import Around, Row, Spread, in_turn
from dpgt_node.bench.speed import scale, startup
from dpgt_node.bench.speed.rounds import Settings
from dpgt_node.bench.studies.section_iv import SCHEMES
from dpgt_node.cli import bench as verb
from dpgt_node.cli import run as command_line
from dpgt_node.config import parse_run
from dpgt_node.learning.data.partition import partition
from dpgt_node.runtime.store.store import Store
from tests.bench.smallest import DAEMONS, SMALL, bench, columns, pictures, spreads
from tests.e2e import processes

ELSEWHERE = {"utility", "planned", "pays", "attacks", "clipping", "inversion"}
"""The first three below, the others in tests/torch."""


def test_every_measurement_has_its_test() -> None:
    assert CATALOGUE.keys() == SMALL.keys() | DAEMONS.keys() | ELSEWHERE


@pytest.mark.parametrize("agents", [100, 400, 2000])
def test_however_many_agents_share_as_many_samples_as_mnist_has_each_holds_a_batch(agents: int, tmp_path: Path) -> None:
    run = parse_run(scale.run_text(scale.Settings(agents=agents)), "run.toml", tmp_path)
    blocks = partition(run.data.partition, np.arange(60_000) % 10, agents, run.data.seed, run.data.params)
    assert min(map(len, blocks)) >= 10


@pytest.mark.parametrize("name", SMALL)
def test_it_runs_in_its_smallest_size(name: str) -> None:
    found = bench(name, *SMALL[name])
    assert found["failed"] == []
    assert all(each["least"] <= each["median"] <= each["most"] and each["of"] >= 1 for each in spreads(found))


@pytest.mark.e2e
@pytest.mark.parametrize("name", DAEMONS)
def test_it_runs_real_daemons_in_its_smallest_size(name: str) -> None:
    assert bench(name, *DAEMONS[name])["failed"] == []


@pytest.mark.e2e
def test_utility_plans_launches_and_does_nothing_twice(tmp_path: Path) -> None:
    data, out = pictures(tmp_path / "digits.npz", 300, 50, side=28), tmp_path / "out"
    options = (data, "--out", out, "--cell", "white:3", "--draws", "1", "--iterations", "2", "--shape", "784,10,60")
    first = bench("utility", *options)
    assert 0.0 < first["rows"][0]["epsilon at most"] <= 3.0
    assert {"alone, worst agent", "central at this epsilon"} <= first["rows"][0].keys()
    written = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    assert bench("utility", *options)["rows"] == first["rows"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")} == written


def test_planned_judges_the_files_that_it_finds_beside_a_forecast(tmp_path: Path) -> None:
    """Planning has its own tests: a file that is there already is not planned again."""
    kept = tmp_path / "digits-3.toml"
    kept.write_text((Path(__file__).parents[2] / "examples" / "demo-private.toml").read_text(encoding="utf-8"))
    (row,) = bench("planned", "--out", tmp_path, "--cell", "digits-3", "--draws", 1)["rows"]
    assert 0.7 < row["accuracy"]["least"] < 1.0 and 0.5 < row["forecast"] < row["alone, forecast"] < 1.0
    assert row["K"] == 100 and kept.read_text().startswith("# The demo's data")


@pytest.mark.parametrize("fast", [True, pytest.param(False, marks=pytest.mark.e2e)])
def test_pays_puts_the_rivals_beside_the_run_and_does_nothing_twice(tmp_path: Path, fast: bool) -> None:
    text = (Path(__file__).parents[2] / "examples" / "demo-private.toml").read_text(encoding="utf-8")
    run_file, out = tmp_path / "run.toml", tmp_path / "out"
    run_file.write_text(text.replace("iterations = 100 ", "iterations = 9 "), encoding="utf-8")
    draws = 2 if fast else 1  # what a draw launches is a folder of its own either way
    options = (run_file, "--out", out, "--draws", draws, *(["--fast"] if fast else []))
    (row,) = bench("pays", *options)["rows"]
    assert row["accuracy"]["of"] == draws and row["accuracy"]["least"] <= row["mean"] <= row["accuracy"]["most"]
    assert 0.9 < row["alone, worst agent"] <= row["alone, median agent"] < 1.0
    assert row["central at this epsilon"]["of"] == draws and 0.0 < row["epsilon at most"] < 8.0
    written = {path: path.stat().st_mtime_ns for path in out.rglob("*.json")}
    assert bench("pays", *options)["rows"] == [row]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.json")} == written


def test_attacks_find_everything_without_noise(tmp_path: Path) -> None:
    data = pictures(tmp_path / "digits.npz")
    few = ("--rounds", 3, "--labels-rounds", 2, "--membership-rounds", 6, "--draws", 1, "--scale", 0)
    found = bench("attacks", data, *few)
    exact = found["rows"][0]
    assert exact["B"] < 1e-9
    assert len(columns(found)) == 5


# ---------------------------------------------------------------- the verb
def test_without_a_name_it_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["bench"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*CATALOGUE, "all"]
    assert "needs [torch]" in next(line for line in lines if line.startswith("clipping"))
    assert command_line(["bench", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == CATALOGUE.keys()


@pytest.mark.parametrize("name", [*CATALOGUE, "all"])
def test_each_says_what_it_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["bench", name, "--help"]) == 0
    said = capsys.readouterr().out
    assert "--json" in said and "--folder" in said and "--baseline" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing"], "no such command"),
        (["round"], "no such command 'round'. Did you mean 'rounds'"),
        (["rounds", "--agents", "1"], "not in the range"),
        (["startup", "--idle", "0"], "not in the range"),
        (["startup", "--folder", "/nowhere"], "--folder: directory '/nowhere' does not exist"),
        (["durability", "--case", "5,100"], "is N,D,ROUNDS"),
        (["decoder", "--size", "0,1"], "a coordinate and a round"),
        (["utility", "mnist", "--out", "out", "--cell", "white:2"], "none of this study's"),
        (["utility", "mnist"], "--out: is missing"),
        (["rounds", "--gloo"], "--gloo: needs torch"),
        (["scale"], "--model: lenet needs torch"),
        (["noise", "--baseline", "none.json"], "none.json: No such file"),
        (["attacks", "none.npz"], "dpgt bench: command line: DATA.npz: cannot read "),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert command_line(["bench", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_bound_that_is_broken_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def figures(settings: Settings, around: Around) -> Iterator[Row]:
        yield Row("t", {"a": 1.5, "b": Spread.over([3.0, 1.0, 2.0])})
        yield Row("t", {"a": None, "b": "word"}, failed="too much")

    module = SimpleNamespace(Settings=Settings, figures=figures, __doc__="Nothing.")
    monkeypatch.setattr(verb, "importlib", SimpleNamespace(import_module=lambda name: module))
    assert command_line(["bench", "rounds"]) == 1
    said = capsys.readouterr().out
    assert "2 (1 to 3)" in said and "FAILED: too much" in said
    assert command_line(["bench", "rounds", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == ["too much"]
    assert found["rows"][0] == {"table": "t", "a": 1.5, "b": {"median": 2.0, "least": 1.0, "most": 3.0, "of": 3}}


def _measured(monkeypatch: pytest.MonkeyPatch, *rows: Row, missing: str = "") -> None:
    """Every measurement gives ``rows``, but ``missing``."""

    def figures(settings: Settings, around: Around) -> Iterator[Row]:
        yield from rows

    def module(name: str) -> SimpleNamespace:
        if missing and name.endswith(missing):
            raise ModuleNotFoundError("No module named 'torch'")
        return SimpleNamespace(Settings=Settings, figures=figures, __doc__="Nothing.")

    monkeypatch.setattr(verb, "importlib", SimpleNamespace(import_module=module))


def test_a_wide_table_goes_on_below(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each figure stays under its heading, to the right."""
    many = {f"figure {i}": Spread.over([1.0, float(i), 99.0]) for i in range(9)}
    _measured(monkeypatch, Row("t", {"": "first", **many}), Row("t", {"": "second", **dict.fromkeys(many)}))
    assert command_line(["bench", "rounds"]) == 0
    lines = capsys.readouterr().out.partition("\nt\n")[2].splitlines()
    assert len(lines) == 9 and max(map(len, lines)) <= 110
    assert [line[:26].strip() for line in lines] == ["", "", "", "first", "", "", "second", "", ""]
    for heading, figures, unknown in zip(lines[:3], lines[3:6], lines[6:], strict=True):
        ends = [each.end() for each in re.finditer(r"figure \d", heading)]
        assert ends == [each.end() for each in re.finditer(r"\)", figures)]
        assert ends == [each.end() for each in re.finditer(r"-", unknown)]
    assert [int(name) for name in re.findall(r"figure (\d)", "".join(lines))] == list(range(9))


def test_a_figure_of_one_draw_has_no_spread_and_no_room_for_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    many = {f"figure {i}": Spread.over([float(i)]) for i in range(4)}
    _measured(monkeypatch, Row("t", {"": "first", **many}))
    assert command_line(["bench", "rounds"]) == 0
    lines = capsys.readouterr().out.partition("\nt\n")[2].splitlines()
    assert [line.split() for line in lines[1:]] == [["first", "0", "1", "2", "3"]] and len(lines[0]) <= 80


def test_startup_fits_80_columns_with_every_spread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that has ended waits for nothing: it is in the first table alone."""
    draws = iter(range(1, 9))

    def once(folder: Path, idle_s: float, environment: object) -> Iterator[tuple[str, tuple[float | None, ...]]]:
        draw = next(draws)
        yield "python, numpy, gRPC", (0.1234 * draw, 71.56 * draw, 0.0)
        yield "dpgt check", (0.1234 * draw, None, None)
        yield "agent", (0.1234 * draw, 71.56, 98.76)

    monkeypatch.setattr(startup, "_once", once)
    assert command_line(["bench", "startup", "--repeat", "8"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80 and said.count(" to ") == 5
    names = [[line.split("  ")[0] for line in table.splitlines()[2:]] for table in said.split("\n\n")[1:]]
    assert names == [["python, numpy, gRPC", *rest, "agent"] for rest in (["dpgt check"], [], [])]


def test_a_baseline_stands_beside_each_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (
        Row("t", {"": "a", "d": 5, "s": Spread.over([1.0, 2.0, 3.0]), "bytes": 10, "gone": 1.0}),
        Row("t", {"": "a", "d": 7, "s": Spread.over([8.0]), "bytes": 10}),
        Row("t", {"": "b", "d": 5, "s": None}),
        Row("u", {"": "a", "s": 0.0, "same": 0.5}),
    )
    after = (
        Row("t", {"": "a", "d": 5, "s": Spread.over([3.0, 5.0, 6.0]), "bytes": 20, "new": 1.0}),
        Row("t", {"": "a", "d": 7, "s": Spread.over([4.0]), "bytes": 10}),
        Row("t", {"": "b", "d": 5, "s": 1.0}),
        Row("u", {"": "a", "s": 1.0, "same": 0.5}),
    )
    _measured(monkeypatch, *before)
    assert command_line(["bench", "rounds", "--json"]) == 0
    kept = tmp_path / "kept.json"
    kept.write_text(capsys.readouterr().out)
    _measured(monkeypatch, *after)
    assert command_line(["bench", "rounds", "--repeat", "9", "--baseline", str(kept), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["baseline"]
    assert [tuple(row.values()) for row in found["rows"]] == [
        ("beside the baseline: t", "a, s", 2.0, 5.0, 2.5, "meet"),
        ("beside the baseline: t", "a, bytes", 10.0, 20.0, 2.0, "apart"),
        ("beside the baseline: t", "a, s", 8.0, 4.0, 0.5, "apart"),
        ("beside the baseline: u", "a, s", 0.0, 1.0, None, "apart"),
        ("beside the baseline: u", "a, same", 0.5, 0.5, 1.0, "meet"),
    ]
    assert "repeat was 5, is 9" in found["differs"]
    assert command_line(["bench", "noise", "--baseline", str(kept)]) == 2
    assert "of rounds, not of noise" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"all": 3}', '{"bench": "rounds", "settings": {}, "machine": {}, "rows": [{"table": 1}]}',
     '{"bench": "rounds", "settings": {}, "machine": {}, "rows": [{"table": "t", "a": {"median": "x"}}]}'],
)  # fmt: skip
def test_a_file_that_is_no_baseline_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kept.json").write_text(text)
    assert command_line(["bench", "rounds", "--baseline", str(tmp_path / "kept.json")]) == 2
    assert "not what `dpgt bench NAME --json` prints" in capsys.readouterr().err


def test_all_goes_on_past_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _measured(monkeypatch, Row("t", {"s": 2.5}), missing="resnet18")
    assert command_line(["bench", "all", "--json"]) == 0
    document = json.loads(said := capsys.readouterr().out)
    speed = [name for name, entry in CATALOGUE.items() if entry.module.startswith("speed.")]
    assert [one["bench"] for one in document["all"]] == [name for name in speed if name != "resnet18"]
    assert document["not_measured"] == {"resnet18": "No module named 'torch'"}
    (tmp_path / "kept.json").write_text(said)
    assert command_line(["bench", "rounds", "--baseline", str(tmp_path / "kept.json")]) == 0
    assert "now/baseline" in capsys.readouterr().out
    _measured(monkeypatch, Row("t", {"s": 2.0}, failed="too much"))
    assert command_line(["bench", "all"]) == 1


# ---------------------------------------------------------------- parts
def test_figures_are_finite() -> None:
    for value in (float("nan"), float("inf"), Spread(1.0, 1.0, float("inf"), 1)):
        with pytest.raises(ValueError, match="speed is not finite"):
            Row("table", {"speed": value})


def test_ratios_are_of_pairs() -> None:
    """Of a machine that is three times slower in the second pair."""
    assert Spread.ratio([2.0, 6.0, 2.0], [1.0, 3.0, 1.0]) == Spread(2.0, 2.0, 2.0, 3)


def test_jobs_are_measured_in_turn() -> None:
    calls: list[str] = []
    ticks = iter(range(100))
    jobs = {name: lambda name=name: calls.append(name) for name in "ab"}
    found = in_turn(jobs, repeat=2, number=2, clock=lambda: float(next(ticks)))
    assert "".join(calls) == "ab" + "aabb" * 2
    assert found == {"a": [0.5, 0.5], "b": [0.5, 0.5]}


def test_a_part_inside_another_counts_for_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 1.0, 4.0, 9.0])
    monkeypatch.setattr("dpgt_node.bench.clocks.time.perf_counter", lambda: next(ticks))
    clock = Clock()
    with clock.part("outer"), clock.part("inner"):
        pass
    assert clock.seconds == {"inner": 3.0, "outer": 6.0}


def test_clocks_are_taken_off_again() -> None:
    before = Store.commit_round, Store.payloads
    with watching(Clock(), in_memory=True):
        assert Store.commit_round is not before[0] and Store.payloads is not before[1]
    assert (Store.commit_round, Store.payloads) == before


@pytest.mark.parametrize("name", ["S1", "S2"])
def test_section_iv_has_the_steps_of_the_shipped_run_files(name: str) -> None:
    shipped = processes.ROOT / "examples" / f"paper-{name.lower()}.toml"
    assert tomllib.loads(SCHEMES[name]) == tomllib.loads(shipped.read_text(encoding="utf-8"))["scheme"]


def test_a_long_measurement_says_what_it_is_at(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "_once", lambda *_: [("python, numpy, gRPC", (1.0, 2.0, 3.0))])
    assert command_line(["bench", "startup", "--repeat", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == ["dpgt bench startup: start 1 of 2", "dpgt bench startup: start 2 of 2"]
    assert json.loads(out)["rows"]
