"""One word beside every epsilon, the same in every output; never a protecting one where nothing is proven."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from dpgt_node import cli
from dpgt_node.cli.common import reddened
from dpgt_node.cli.running.ended import print_summary
from dpgt_node.config import load_run
from dpgt_node.privacy.strength import strength
from dpgt_node.record.summary import load_summary

PRIVATE = (Path(__file__).parents[2] / "examples" / "demo-private.toml").read_text()
SMALL = PRIVATE.replace("iterations = 100", "iterations = 3").replace("every = 10", "every = 1")
Said = Callable[..., str]

# name: what replaces what in the run file, whether under a test keystream, the word.
CASES = {
    "weak": (("scale_eta = 0.02102", "scale_eta = 0.005"), False, "weak"),
    "moderate": (("scale_eta = 0.02102", "scale_eta = 0.01"), False, "moderate"),
    "strong": (("scale_eta = 0.02102", "scale_eta = 0.05"), False, "strong"),
    "large": (("scale_eta = 0.02102", "scale_eta = 0.001"), False, "none"),
    "noise off": (("multiplier = 1.0", "multiplier = 0.0"), False, "none"),
    "declared": (("clip_l2 = 0.5", "C = 0.01"), False, "none"),
    "delta": (("delta = 1e-5", "delta = 0.01"), False, "none"),
    "test keystream": (("scale_eta = 0.02102", "scale_eta = 0.05"), True, "none"),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path, str]:
    (old, new), test, word = CASES[request.param]
    folder = tmp_path_factory.mktemp("glance")
    assert SMALL.count(old) == 1
    (folder / "run.toml").write_text(SMALL.replace(old, new))
    keystream = ["--test-keystream", "00" * 16] if test else []
    assert cli.run(["simulate", str(folder / "run.toml"), "--out", str(folder / "out"), *keystream]) == 0
    return request.param, folder / "run.toml", folder / "out", word


BARE = re.compile(r"(?:\| |<td>|[│┃] *)(?:[\d.,]+(?:e[+-]?\d+)?|inf|infinite)(?= \||</td>| *[│┃])")
"""A cell of a table of epsilons that holds a value and no word."""


def shown(text: str) -> set[str]:
    return set(re.findall(r"\((strong|moderate|weak|none)\)", text))


def test_files_and_outputs_say_the_word(
    case: tuple[str, Path, Path, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name, run_file, out, word = case
    summary = load_summary(out)
    assert summary is not None
    data = json.loads((out / "summary.json").read_text())
    assert {agent["strength"] for agent in data["agents"]} == {word}
    page = (out / "report.html").read_text() if (out / "report.html").exists() else None
    if page is None:
        assert cli.run(["report", str(out)]) == 0
        page = (out / "report.html").read_text()
    if name == "noise off":  # no accountant has anything to say
        assert "epsilon infinite: no protection" in page and not shown(page)
        assert "What every accountant says" not in page
    else:
        assert not BARE.findall(page.split("What every accountant says")[1].split("</table>")[0])
        assert word in shown(page) and (word == "none" or "tile void" not in page)
    assert cli.run(["status", "--run", str(out)]) == 0
    said = capsys.readouterr().out
    # zcdp has no value that leads where delta is 1/D; nothing is shown then
    assert shown(said) == ({word} if name != "delta" else set())
    assert cli.run(["check", str(run_file)]) == 0
    text = capsys.readouterr().out
    if name != "test keystream":  # of which a run file knows nothing
        assert word in shown(text) or (name == "noise off" and "Privacy: none. The noise is off" in text)
        assert cli.run(["check", str(run_file), "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert word in found["strength"]["gdp"] and (found["delta_warning"] is not None) == (name == "delta")
    if name == "delta":
        assert summary.headline is None and "WARNING: delta = 0.01 is 1/D = 1/288 or more" in text
        assert "1/D = 1/288 or more" in page
    if name != "declared":
        exported = ["export", str(out), "--agent", "agent-1", "--as", "final", "--out", str(tmp_path / "model")]
        assert cli.run(exported) == 0
        statement = (tmp_path / "model" / "PRIVACY.md").read_text()
        assert json.loads((tmp_path / "model" / "privacy.json").read_text())["strength"] == word
        assert not BARE.findall(statement), "a table of PRIVACY.md has an epsilon without its word"
        assert shown(statement) == {word} or "**No guarantee: " in statement or "(none)" in statement


def test_a_test_keystream_makes_every_epsilon_infinite(case: tuple[str, Path, Path, str]) -> None:
    name, run_file, out, _ = case
    summary = load_summary(out)
    assert summary is not None
    found = {value for agent in summary.agents for value in agent.epsilon.values() if value is not None}
    rows = (out / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("epsilon_gdp")
    cells = {row.split(",")[column] for row in rows[1:]}
    endless = name in ("noise off", "test keystream")
    assert (found == {float("inf")}) == endless and (cells <= {"inf", "0.0"} and "inf" in cells) == endless
    assert (load_run(run_file).noise.multiplier == 0.0) == (name == "noise off")


def test_a_number_has_the_word_of_the_one_function(case: tuple[str, Path, Path, str]) -> None:
    _, run_file, out, word = case
    summary, privacy = load_summary(out), load_run(run_file).privacy
    assert summary is not None
    if summary.headline is not None:
        D, values = summary.privacy.samples, [agent.epsilon[summary.headline] for agent in summary.agents]
        assert D == 288
        assert {
            strength(summary.headline, value, privacy.delta, samples=D, enforced=privacy.enforced) for value in values
        } == {word}


def test_a_cell_without_a_word_is_seen() -> None:
    """The pattern above: a value alone in a cell, of any of the tables."""
    for cell in ("| 2.75 |", "<td>51,010</td>", "│ 0.66 │", "│ infinite │", "| 1.2e+17 |"):
        assert BARE.findall(cell)
    for cell in ("| 2.75 (weak) |", "<td>51,010 (none)</td>", "│ 0.66 (strong) │", "| - |", "<td>agent-1</td>"):
        assert not BARE.findall(cell)


def test_the_report_of_a_run_judges_every_agent(case: tuple[str, Path, Path, str]) -> None:
    """The table of agents has a column for each accountant; whoever has no word there is seen."""
    name, _, out, _ = case
    tables = re.findall(r"<table.*?</table>", (out / "report.html").read_text(), re.DOTALL)
    (table,) = [one for one in tables if "<th>test accuracy" in one]
    heads, *rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    columns = [i for i, head in enumerate(re.findall(r"<th[^>]*>(.*?)</th>", heads)) if "epsilon (" in head]
    assert bool(columns) == (name != "noise off") and len(rows) == 5
    for row in rows:
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        assert all(shown(cells[i]) for i in columns), cells


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose tightest accountant is pure, at a delta of more than 1/D, which another one uses."""
    folder = tmp_path_factory.mktemp("pure")
    text = (
        SMALL.replace('"gaussian"', '"laplace"').replace("clip_l2", "clip_l1").replace("delta = 1e-5", "delta = 0.01")
    )
    (folder / "run.toml").write_text(text)
    assert cli.run(["simulate", str(folder / "run.toml"), "--out", str(folder / "out")]) == 0
    return folder / "out"


def test_delta_is_warned_of_where_a_pure_accountant_leads(
    pure: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    capsys.readouterr()
    assert cli.run(["status", "--run", str(pure)]) == 0
    said = capsys.readouterr().out
    assert "pure)" in said and "WARNING: delta = 0.01 is 1/D = 1/288 or more" in said
    assert cli.run(["status", "--run", str(pure), "--format", "json"]) == 0
    assert "1/D = 1/288" in json.loads(capsys.readouterr().out)["delta_warning"]
    assert cli.run(["export", str(pure), "--agent", "agent-1", "--out", str(tmp_path / "model")]) == 0
    statement = (tmp_path / "model" / "PRIVACY.md").read_text()
    assert "pure (accountant" in statement and "**WARNING: delta = 0.01 is 1/D = 1/288 or more" in statement


@pytest.mark.parametrize("wanted", [True, False])
def test_what_protects_nothing_is_red_unless_colours_are_unwanted(
    pure: Path, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not wanted:
        monkeypatch.setenv("NO_COLOR", "1")
    summary = load_summary(pure)
    assert summary is not None
    screen = io.StringIO()
    print_summary(load_run(pure / "run.toml"), summary, pure, Console(file=screen, force_terminal=True, width=200))
    red, text = "\x1b[31m", screen.getvalue()
    # zcdp needs the delta, which is void; the pure ones are strong
    assert "(none)" in text and "(strong)" in text
    assert (re.search(r"\x1b\[31m *[\d.]+ \(none\)", text) is not None) == wanted and (red in text) == wanted
    assert re.search(r"\x1b\[31m *[\d.]+ \(strong\)", text) is None
    assert not BARE.findall(re.sub(r"\x1b\[[\d;]*m", "", text).split("Epsilon of each agent")[1])
    monkeypatch.setattr("sys.stdout", _Terminal())
    assert (reddened("epsilon 12 (none)") == "epsilon 12 \x1b[31m(none)\x1b[0m") == wanted


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
