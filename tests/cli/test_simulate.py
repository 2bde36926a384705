"""``dpgt simulate``: devices, and simulations that go on after an interruption."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.config import model, to_toml
from dpgt_node.record.metrics import MetricsStore
from dpgt_node.record.rivals import load_rivals
from dpgt_node.record.summary import load_summary
from dpgt_node.wire.transcript import Transcript
from tests.learning.cases import run

KEY = "00112233445566778899"


def run_file(folder: Path, made=None) -> Path:
    path = folder / "run.toml"
    path.write_text(to_toml(made or run("digits")))
    return path


@pytest.mark.parametrize(
    ("made", "what"), [(run("digits"), "softmax"), (run("quadratic", dimension=3), "quadratic")], ids=["model", "toy"]
)
def test_cuda_is_for_torch_models(tmp_path, capsys, made, what):
    assert cli.run(["simulate", str(run_file(tmp_path, made)), "--out", str(tmp_path / "o"), "--device", "cuda"]) == 2
    message = f"cuda computes torch models; '{what}' has a closed form and runs on the CPU: leave it out"
    said = capsys.readouterr()
    assert said.err.splitlines() == [f"dpgt simulate: command line: --device: {message}"]
    assert not said.out and not (tmp_path / "o").exists()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("fast", "observers"), [((), ()), (("--fast",), ()), ((), ("agent-2",))], ids=["as agents", "fast", "recorded"]
)
def test_an_interrupted_simulation_goes_on_with_the_same_command(tmp_path, capsys, fast, observers):
    made = replace(run("digits", K=400), evaluate=model.Evaluation(10, "study"), adversary=model.Adversary(observers))
    command = ["simulate", str(run_file(tmp_path, made)), *fast, "--test-keystream", KEY, "--out"]
    out, whole = tmp_path / "parts", tmp_path / "whole"
    python = [sys.executable, "-m", "dpgt_node"]
    process = subprocess.Popen([*python, *command, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end_s = time.monotonic() + 60
    while not any(row.k >= 20 for row in MetricsStore.read(out)):
        assert time.monotonic() < end_s and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 5
    assert said.splitlines()[-1] == f"dpgt simulate: go on with the same command and --out {out}"
    for folder in (out, whole):
        assert cli.run([*command, str(folder)]) == 0
    parts, all_at_once = load_summary(out), load_summary(whole)
    assert all_at_once.rounds_timed == all_at_once.rounds == parts.rounds == 401 > parts.rounds_timed > 0
    for found in (parts, all_at_once):
        assert found.rounds_per_second == pytest.approx(found.rounds_timed / found.seconds)
    for name in made.graph.agents:
        a, b = (np.load(folder / "agents" / name / "x_final.npy") for folder in (out, whole))
        assert a.tobytes() == b.tobytes()
    keys = [[(row.agent, row.k, row.loss_train) for row in MetricsStore.read(folder)] for folder in (out, whole)]
    assert sorted(keys[0]) == sorted(keys[1])
    transcripts = [folder / "agents" / name / "state/transcript" for folder in (out, whole) for name in observers]
    seen = [{(e.sender, e.stream, e.k, e.sha256) for e in Transcript(path)} for path in transcripts]
    assert seen == [] or (seen[0] == seen[1] and len(seen[0]) == 4 * 401)
    assert cli.run([*command, str(out)]) == 2
    assert "holds this run, finished" in capsys.readouterr().err


def test_alone_stands_beside_the_run(tmp_path, capsys):
    made = replace(run("digits", K=3), evaluate=model.Evaluation(10, "study"))
    command = ["simulate", str(run_file(tmp_path, made)), "--out", str(tmp_path / "o")]
    assert cli.run([*command, "--alone"]) == 0
    rivals = load_rivals(tmp_path / "o")
    assert rivals is not None and set(rivals.alone) == set(made.graph.agents) and rivals.worst > 0.9
    said = capsys.readouterr().out
    assert "Alone, without exchange and noise, at epsilon 0: worst agent" in said
    assert "Staying alone is better here" in said, "noise of scale 0.1 for four rounds"
    page = (tmp_path / "o" / "report.html").read_text()
    assert "<th>alone</th>" in page and "Alone, without exchange" in page
    assert cli.run([*command[:-1], str(tmp_path / "without")]) == 0
    assert "Alone" not in capsys.readouterr().out
    without = load_rivals(tmp_path / "without")
    assert without is not None and not without.alone


@pytest.mark.parametrize("verb", ["simulate", "launch"])
def test_nobody_is_told_what_agents_reach_alone_but_in_a_study(tmp_path, capsys, verb):
    path, out = run_file(tmp_path, run("digits", K=3)), tmp_path / "o"
    assert cli.run([verb, str(path), "--out", str(out), "--alone"]) == 2
    assert 'command line: --alone: is refused unless evaluate.metrics = "study"' in capsys.readouterr().err
    assert not out.exists()


def test_what_agents_began_no_simulation_goes_on_with(tmp_path, capsys):
    from dpgt_node.runtime.coordinator import outdir

    made = replace(run("digits"), evaluate=model.Evaluation(10, "study"))
    path = run_file(tmp_path, made)
    outdir.prepare(tmp_path / "o", cli_run(path), source="test", keystream=None)
    assert cli.run(["simulate", str(path), "--out", str(tmp_path / "o")]) == 2
    assert "began with agents; go on likewise" in capsys.readouterr().err


def test_one_that_was_killed_before_its_first_save_says_that_it_begins_again(tmp_path, capsys):
    from dpgt_node.runtime.coordinator import outdir
    from dpgt_node.sim.saved import SAVED_FILE

    path, out = run_file(tmp_path, run("digits", K=3)), tmp_path / "o"
    outdir.prepare(out, cli_run(path), source="test", keystream=None, by="simulate")  # what kill -9 leaves
    assert cli.run(["simulate", str(path), "--out", str(out)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dpgt simulate: {out}: begins again from round 0") and "(one a minute at most)" in line
    assert cli.run(["simulate", str(path), "--out", str(tmp_path / "fresh")]) == 0
    assert capsys.readouterr().err == ""
    assert not (out / SAVED_FILE).exists()


def cli_run(path: Path) -> model.RunConfig:
    from dpgt_node.cli.common import load_local_run

    return load_local_run(path)
