"""One word beside every epsilon, the same in every output; never a protecting one where nothing is proven."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dpgt_node import cli
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
    assert word in shown(page) and (word == "none" or "tile void" not in page)
    assert cli.run(["status", "--run", str(out)]) == 0
    said = capsys.readouterr().out
    # zcdp has no value that leads where delta is 1/D; nothing is shown then
    assert shown(said) == ({word} if name != "delta" else set())
    assert cli.run(["check", str(run_file)]) == 0
    text = capsys.readouterr().out
    if name != "test keystream":  # of which a run file knows nothing
        assert word in shown(text)
        assert cli.run(["check", str(run_file), "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert word in found["strength"]["gdp"] and (found["delta_warning"] is not None) == (name == "delta")
    if name == "delta":
        assert summary.headline is None and "WARNING: delta = 0.01 is 1/D = 1/287 or more" in text
        assert "1/D = 1/287 or more" in page
    if name != "declared":
        exported = ["export", str(out), "--agent", "agent-1", "--as", "final", "--out", str(tmp_path / "model")]
        assert cli.run(exported) == 0
        statement = (tmp_path / "model" / "PRIVACY.md").read_text()
        assert json.loads((tmp_path / "model" / "privacy.json").read_text())["strength"] == word
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
        assert D == 287
        assert {
            strength(summary.headline, value, privacy.delta, samples=D, enforced=privacy.enforced) for value in values
        } == {word}
