"""What commands say of noise that cancels."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.experiments import trials

RUN = """
name = "five"
[algorithm]
iterations = 8
mechanism = "noise-once"
[scheme]
kind = "S2"
alpha = 0.3
beta = 0.3
gamma = 1.0
p_m = 1.0
samples = 100
[noise]
law = "gaussian"
scale_eta = 0.01
cancel = 2
mask_graph = [[1, 2], [1, 3]]
[graph]
agents = 3
R = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
C = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
[data]
dataset = "digits"
[privacy]
clip_l2 = 0.05
"""

WORD = ("strong", "moderate", "weak", "none")
WORDS = re.compile(rf"\d \((?:{'|'.join(WORD)})\)")


def run_file(folder: Path, text: str = RUN) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_check_says_towards_whom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", str(run_file(tmp_path)), "--all"]) == 0
    said = capsys.readouterr().out
    assert "Epsilon towards any t of the other agents and the coordinator together (gdp, delta 1e-05)" in said
    table = said.split("Epsilon towards")[1].split("it rests on")[0]
    assert len(WORDS.findall(table)) == 6, "a word beside each epsilon"
    assert "agent-2, agent-3" in said and "t = 1" in said and "all 2" in said
    for words in ("two honest agents at least", "a quantum computer", "whoever admits agents may be many of them"):
        assert words in said
    assert cli.run(["check", "--format", "json", str(run_file(tmp_path))]) == 0
    found = json.loads(capsys.readouterr().out)
    towards = found["towards"]
    assert towards["colluding"] == [0, 1, 2] and len(towards["assumptions"]) == 4
    epsilons = found["privacy"]["epsilon"]["gdp"] if "privacy" in found else found["epsilon"]["gdp"]
    assert [row[-1] for row in towards["epsilon"]] == epsilons
    by_t = found["epsilon_towards"]
    assert by_t["t"] == [0, 1, 2] and by_t["epsilon"][-1] == epsilons
    assert [[row[j] for row in towards["epsilon"]] for j in range(3)] == by_t["epsilon"]
    assert [len(row) for row in towards["strength"]] == [3, 3, 3] and set().union(*towards["strength"]) <= {*WORD}
    (hub, one, other) = towards["epsilon"]
    assert one == other and hub[0] < one[0] < one[1] == one[2] and hub[1] < hub[2]


def test_a_run_without_shared_noise_has_no_such_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = RUN.replace("cancel = 2\n", "").replace("mask_graph = [[1, 2], [1, 3]]\n", "")
    assert cli.run(["check", str(run_file(tmp_path, text))]) == 0
    assert "towards" not in capsys.readouterr().out


def test_a_run_says_towards_whom_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, model = tmp_path / "out", tmp_path / "model"
    title = "Epsilon towards any t of the other agents and the coordinator together (gdp, delta 1e-05)"
    assert cli.run(["simulate", str(run_file(tmp_path)), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert title in said and "all 2" in said and "two honest agents at least" in said
    page = (out / "report.html").read_text()
    assert "Towards whom" in page and "all 2" in page and "a quantum computer would undo" in page
    assert cli.run(["export", str(out), "--out", str(model), "--agent", "agent-2"]) == 0
    statement, data = (model / "PRIVACY.md").read_text(), json.loads((model / "privacy.json").read_text())
    assert title in statement and "For t below 2 it rests on this" in statement and "two honest agents" in statement
    table = statement.split(title)[1].split("it rests on")[0]
    assert len(WORDS.findall(table)) == 9 and not re.search(r"\| [\d.]+ \|", table)
    table = page.split("Towards whom")[1].split("</table>")[0]
    # agents with equal rows share one; of each, three numbers
    assert len(WORDS.findall(table)) == 3 * (table.count("<tr") - 1) > 0
    table = said.split(title)[1].split("it rests on")[0]
    assert len(WORDS.findall(table)) == 6
    (least, one, most), charged = data["towards"]["epsilon"][1], data["agents"][1]["epsilon"]["gdp"]
    assert least < one == most == charged
    by_t = json.loads((out / "summary.json").read_text())["epsilon_towards"]
    assert by_t["t"] == [0, 1, 2] and [row[1] for row in by_t["epsilon"]] == [least, one, most]
    capsys.readouterr()
    # Under a test keystream nothing is hidden from anybody.
    text = RUN + '[evaluate]\nmetrics = "study"\n'
    assert (
        cli.run(["simulate", str(run_file(tmp_path, text)), "--out", str(tmp_path / "t"), "--test-keystream", "00"])
        == 0
    )
    assert title not in capsys.readouterr().out
    assert "Towards whom" not in (tmp_path / "t" / "report.html").read_text()


def test_an_audit_of_a_coalition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = RUN.replace("samples = 100", 'samples = "full"').replace("scale_eta = 0.01", "scale_eta = 0.0004")
    text += '[evaluate]\nmetrics = "study"\n'
    run = str(run_file(tmp_path, text))
    bounds = []
    for more in (("--colluding", "0"), ("--colluding", "1"), ()):  # by default all others
        arguments = ["--agent", "agent-2", "--runs", "3000", "--test-keystream", "07" * 32, "--format", "json"]
        assert cli.run(["eavesdrop", "audit", run, *arguments, *more]) == 0
        found = json.loads(capsys.readouterr().out)
        (claim,) = [one for one in found["claims"] if one["accountant"] == "gdp"]
        assert 0.6 * claim["claimed"] < claim["realised"] <= claim["claimed"]
        bounds.append(claim["claimed"])
    assert bounds == sorted(bounds) and bounds[0] < bounds[1] == bounds[2]
    assert cli.run(["eavesdrop", "audit", run, "--labels", "4"]) == 2 and "--labels" in capsys.readouterr().err
    monkeypatch.setattr(trials, "AFFORDABLE", 60)
    assert cli.run(["eavesdrop", "audit", run, "--test-keystream", "07" * 32]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"650 trials a world, not 10000: these have {31 * 3 * 9} rounds, and more" in said, "all agents' rounds"
    assert "more than 60 take long. --runs 10000 makes them" in said
    assert "Not audited where noise is shared: the agents' own clip" in said
    assert cli.run(["eavesdrop", "audit", "none.dpgt", "--run", run]) == 2
    assert "audit RUN.toml with --colluding T" in capsys.readouterr().err
    plain = text.replace("cancel = 2\n", "").replace("mask_graph = [[1, 2], [1, 3]]\n", "")
    assert cli.run(["eavesdrop", "audit", str(run_file(tmp_path, plain)), "--colluding", "1"]) == 2
    assert "nobody shares noise" in capsys.readouterr().err


def test_a_launch_that_cannot_share_noise_soundly_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.run(["launch", str(run_file(tmp_path)), "--out", str(out), "--insecure", "--durability", "process"]) == 2
    said = capsys.readouterr().err
    assert "command line: --insecure: leaves agents without certificates, which [noise] cancel needs" in said
    assert 'command line: --durability: must be "power" with [noise] cancel' in said, "all problems at once"
    assert not out.exists()
    assert cli.run(["simulate", str(run_file(tmp_path)), "--out", str(out)]) == 0
