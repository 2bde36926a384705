"""``dpgt launch`` with real processes: the bits, the files, the ways to end."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest

from dpgt_node import cli
from dpgt_node.config import load_run, run_sha256
from dpgt_node.runtime.store.store import Store
from dpgt_node.sim.simulate import simulate
from tests.e2e.processes import (
    ENDLESS,
    Launch,
    asked,
    dpgt,
    eventually,
    finals,
    interrupted,
    no_traceback,
    quadratic,
    same_bits,
)
from tests.runtime import test_methods as methods
from tests.sim.cases import CARRIED

pytestmark = pytest.mark.e2e

KEY = "00ff"
INTERFACE = (Path(__file__).parents[2] / "docs" / "reference" / "interface.md").read_text()
EPSILONS = {"lemma5", "corrected", "tight", "amplified", "zcdp", "gdp", "binomial", "same-point", "variation"}
COLUMNS = (
    "agent,k,wall_seconds,loss_train,accuracy_train,accuracy_test,grad_norm,consensus_error,"
    "epsilon_lemma5,epsilon_corrected,epsilon_tight,epsilon_amplified,epsilon_zcdp,epsilon_gdp,"
    "epsilon_binomial,epsilon_same-point,epsilon_variation"
)
DIGITS = """
name = "digits"
[algorithm]
iterations = 20
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.01
gamma = 0.1
p_m = 1.002
samples = 55
[noise]
scale_zeta = 0.1
scale_eta = [0.1, 0.2, 0.1, 0.1, 0.1]
[graph]
agents = 5
R = [[0,0,0,0,1],[1,0,0,0,0],[1,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]
C = [[0,0,1,0,1],[1,0,0,0,0],[0,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]
[data]
dataset = "digits"
[privacy]
clip_l1 = 40.0
[evaluate]
every = 8
metrics = "study"
"""
# Common root north: no in-edges in R, no out-edges in C (a = b = 0 there); self-loops; weights all different.
UNEVEN = """
name = "uneven"
[algorithm]
iterations = 20
[scheme]
kind = "S1"
a1 = 0.4
a2 = 0.3
a3 = 0.05
a4 = 1.0
p_alpha = 0.1
p_beta = 0.2
p_gamma = 0.3
p_m = 1.0
[noise]
p_zeta = -0.5
p_eta = [-0.6, -0.7, -0.8, -0.9]
[graph]
agents = ["north", "east", "south", "west"]
R = [[0,0,0,0],[0.7,0.2,0,0.05],[0.3,0.4,0,0],[0,0.25,0.5,0.125]]
C = [[0,0.9,0.1,0.3],[0,0.15,0,0.2],[0,0.6,0,0],[0,0,0.35,0]]
[data]
dataset = "quadratic"
dimension = 7
[evaluate]
every = 3
metrics = "study"
[runtime]
barrier_every = 3
wire_dtype = "float32"
"""
LOCAL = quadratic(3, 25, every=10).replace('metrics = "study"', 'metrics = "local"') + "[runtime]\nchannel = 'plain'\n"


def run_file(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def released(out: Path, name: str) -> tuple[int, int]:
    """(payloads, ledger rows) in the state directory of an agent."""
    store = Store(out / "agents" / name / "state", "process")
    try:
        (run,) = store.runs()
        return store.releases(run.run_id), len(store.ledger(run.run_id).entries)
    finally:
        store.close()


def test_digits_over_mtls_the_simulators_bits_and_every_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_file(tmp_path, DIGITS)
    out = tmp_path / "out"
    with Launch(out, "launch", run, "--test-keystream", KEY, "--format", "json") as launch:
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    answer, sim = json.loads(launch.answer), tmp_path / "sim"
    capsys.readouterr()
    assert cli.run(["simulate", str(run), "--out", str(sim), "--test-keystream", KEY, "--format", "json"]) == 0
    simulated = capsys.readouterr()
    assert "Report: " not in simulated.out + simulated.err and "k 20/20" in simulated.err and "k 20/20" in launch.said
    keys = set(re.findall(r"\w+", re.search(r"`dpgt launch --format json`.*?\{ (.*?) \}, summary \}", INTERFACE)[1]))
    for folder, found in ((out, answer), (sim, json.loads(simulated.out))):
        assert {*found, *found["run"]} == keys | {"summary"}
        assert found["summary"] == json.loads((folder / "summary.json").read_text())
        assert (found["out"], found["report"]) == (str(folder), str(folder / "report.html"))
        assert found["run"] == {"name": "digits", "K": 20, "agents": [f"agent-{i}" for i in range(1, 6)]}
    same_bits(out, tmp_path / "sim")

    names = [f"agent-{i}" for i in range(1, 6)]
    for name, x in finals(out).items():
        assert x.tobytes() == finals(out, state=False)[name].tobytes(), "study runs: the coordinator has a copy"
        assert released(out, name) == (42, 42)

    summary = json.loads((out / "summary.json").read_text())
    assert set(summary) >= {
        "name", "run_id", "status", "method", "mechanism", "rounds", "seconds", "rounds_per_second", "consensus_error",
        "privacy", "agents", "versions",
    }  # fmt: skip
    assert (summary["name"], summary["method"], summary["mechanism"]) == ("digits", "dpgt", "paper")
    assert summary["rounds"] == 21 and summary["keystream"] == "test" and len(bytes.fromhex(summary["run_id"])) == 16
    assert set(summary["privacy"]) >= {"adjacency", "C", "clip_l1", "clip_l2", "enforced", "delta", "law"}
    assert summary["privacy"]["C"] == 80.0 and summary["privacy"]["enforced"] is True
    states = np.stack(list(finals(out).values()))
    error = np.sqrt(np.mean(np.sum((states - states.mean(axis=0)) ** 2, axis=1)))
    assert summary["consensus_error"] == pytest.approx(error, rel=1e-12)
    assert [agent["name"] for agent in summary["agents"]] == names
    for agent in summary["agents"]:
        assert set(agent) >= {"name", "accuracy_test", "loss_train", "epsilon", "releases", "bytes_sent"}
        assert set(agent["epsilon"]) == EPSILONS
        assert agent["epsilon"]["lemma5"] == "inf" and agent["strength"] == "none", "its noise is known to everybody"
        assert agent["releases"] == 42 and agent["bytes_sent"] > 21 * 650 * 8

    assert (out / "metrics.csv").read_text().splitlines()[0] == COLUMNS
    table = rows(out)
    assert sorted((row["agent"], int(row["k"])) for row in table) == sorted(
        (n, k) for n in names for k in (0, 8, 16, 21)
    )
    first, last = table[0], [row for row in table if row["k"] == "21"]
    assert float(first["epsilon_lemma5"]) == 0.0 and float(first["consensus_error"]) == 0.0
    by_name = {agent["name"]: agent for agent in summary["agents"]}
    for row in last:
        assert float(row["accuracy_test"]) == by_name[row["agent"]]["accuracy_test"]
        assert float(row["loss_train"]) == by_name[row["agent"]]["loss_train"]
        assert float(row["epsilon_lemma5"]) == float(by_name[row["agent"]]["epsilon"]["lemma5"]) == math.inf
        assert float(row["consensus_error"]) == summary["consensus_error"]

    assert run_sha256(load_run(out / "run.toml")) == run_sha256(load_run(run))
    assert list((out / "tb").rglob("events.out.tfevents.*"))
    assert "Time by phase of a round" in (out / "report.html").read_text(encoding="utf-8")
    held = json.loads((out / "coordinator.json").read_text())
    assert set(held) == {"address", "tls", "pid"} and Path(held["tls"]).is_dir()
    for name in names:
        folder = out / "agents" / name
        assert {p.name for p in folder.iterdir()} == {"node.toml", "node.pid", "node.log", "state", "x_final.npy"}
        assert not psutil.pid_exists(launch.pid(name))
        key = out / "tls" / "agents" / name / "key.pem"
        assert key.stat().st_mode & 0o777 == 0o600
    assert not psutil.pid_exists(held["pid"])

    # the simulator writes the same numbers; only time and bytes differ
    sim = json.loads((tmp_path / "sim" / "summary.json").read_text())
    for mine, theirs in zip(summary["agents"], sim["agents"], strict=True):
        for key in ("name", "accuracy_test", "loss_train", "epsilon", "releases"):
            assert mine[key] == theirs[key], key
    without_time = [{k: v for k, v in row.items() if k != "wall_seconds"} for row in table]
    others = [{k: v for k, v in row.items() if k != "wall_seconds"} for row in rows(tmp_path / "sim")]
    assert sorted(without_time, key=str) == sorted(others, key=str)


IN_EVERY_SUITE = "dp-dsgt"
"""Two vectors and a draw; of all others tests/runtime/test_methods.py runs the same daemons in one process."""


@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=() if m == IN_EVERY_SUITE else pytest.mark.long) for m in CARRIED if m != "dpgt"],
)
def test_other_methods_give_the_simulators_bits(tmp_path: Path, method: str) -> None:
    run = run_file(tmp_path, methods.text_of(method))
    out = tmp_path / "out"
    with Launch(out, "launch", run, "--insecure", "--test-keystream", KEY) as launch:
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    simulated, _ = simulate(load_run(run), tmp_path / "sim", bytes(16), test_keystream=KEY)
    assert simulated.exit_code == 0
    for name, x in finals(out).items():
        assert x.tobytes() == np.load(tmp_path / "sim" / "agents" / name / "x_final.npy").tobytes()
    methods.assert_releases(method, [out / "agents" / name / "state" for name in launch.names()], out / "summary.json")


def test_noise_that_cancels_gives_the_simulators_bits(tmp_path: Path) -> None:
    text = DIGITS.replace("iterations = 20\n", 'iterations = 12\nmechanism = "noise-once"\n')
    shared = 'law = "gaussian"\ncancel = 2\nmask_graph = [[1, 2], [2, 3], [3, 4], [1, 5], [2, 5]]\n'
    text = re.sub("scale_eta = .*", "scale_eta = 0.2", text).replace("[noise]\n", "[noise]\n" + shared)
    text = text.replace("[scheme]\n", "[scheme]\nrelease_every = 4\nsettle = 3\n")
    run, out = run_file(tmp_path, text), tmp_path / "out"
    with Launch(out, "launch", run, "--test-keystream", KEY) as launch:  # keys are agreed on, and the noise is known
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    assert cli.run(["simulate", str(run), "--out", str(tmp_path / "sim"), "--test-keystream", KEY]) == 0
    same_bits(out, tmp_path / "sim")
    # Without certificates nobody can agree on keys, and it is said before anything starts.
    with Launch(tmp_path / "refused", "launch", run, "--insecure") as launch:
        assert launch.wait() == 2
    assert "leaves agents without certificates" in launch.said


def test_roots_self_loops_weights_float32_and_a_wide_barrier_give_the_simulators_bits(tmp_path: Path) -> None:
    run = run_file(tmp_path, UNEVEN)
    out = tmp_path / "out"
    with Launch(out, "launch", run, "--insecure", "--test-keystream", KEY) as launch:
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    assert cli.run(["simulate", str(run), "--out", str(tmp_path / "sim"), "--test-keystream", KEY]) == 0
    same_bits(out, tmp_path / "sim")
    assert {released(out, name) for name in launch.names()} == {(42, 42)}
    assert {row["k"] for row in rows(out)} == {"0", "3", "6", "9", "12", "15", "18", "21"}
    sent = {a["name"]: a["bytes_sent"] for a in json.loads((out / "summary.json").read_text())["agents"]}
    assert sent["west"] > 0 and sent["north"] > 0
    assert 'channel = "plain"' in (out / "run.toml").read_text() and not (out / "tls").exists()


def test_a_local_run_keeps_every_result_at_its_agent(tmp_path: Path) -> None:
    run = run_file(tmp_path, LOCAL.replace("scale_zeta = 0.1\nscale_eta = 0.01", "multiplier = 0.0"))
    out = tmp_path / "out"
    with Launch(out, "launch", run, "--log-format", "json") as launch:
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    assert cli.run(["simulate", str(run), "--out", str(tmp_path / "sim")]) == 0
    same_bits(out, tmp_path / "sim")
    for log in (out / "coordinator.log", *out.glob("agents/*/node.log")):
        documents = [json.loads(line) for line in log.read_text().splitlines()]
        (*_, last) = (one for one in documents if one.get("event") == "progress")
        assert (last["k"], last["K"]) == (25, 25) and last["logger"] == "dpgt_node.progress", log
        private = ("loss", "accuracy", "grad") if log.name == "node.log" else ()
        assert not any(word in key for one in documents for key in one for word in private)
    assert not list(out.glob("agents/*/x_final.npy")), "x_final leaves an agent only in study runs"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["consensus_error"] is None and summary.get("keystream") is None
    for agent in summary["agents"]:
        assert agent["loss_train"] is None and agent["accuracy_test"] is None and agent["releases"] == 52
        assert agent["epsilon"]["lemma5"] is None, "no C: every epsilon is null"
    table = rows(out)
    assert {int(row["k"]) for row in table} == {0, 10, 20, 26}
    assert all(row["loss_train"] == row["consensus_error"] == row["grad_norm"] == "" for row in table)
    for name in launch.names():
        own = rows(out / "agents" / name / "state")
        assert [int(row["k"]) for row in own] == [0, 10, 20, 26] and all(float(row["loss_train"]) >= 0 for row in own)


def status(out: Path) -> dict[str, object]:
    result = asked("status", "--run", out, "--format", "json")
    assert result.returncode == 0, result.stderr
    document: dict[str, object] = json.loads(result.stdout)
    return document


def test_control_then_stop_then_go_on_to_the_same_bits(tmp_path: Path) -> None:
    # 80 kB a vector: slow enough that the verbs come in time, and work and commits run in threads.
    K = 300
    run = run_file(tmp_path, quadratic(3, K, every=100).replace("dimension = 3", "dimension = 10_000"))
    out = tmp_path / "out"
    with Launch(out, "launch", run, "--test-keystream", KEY) as launch:
        launch.running()
        paused = dpgt("pause", "--run", out)
        assert paused.returncode == 0 and paused.stdout.startswith("paused"), paused
        address = json.loads((out / "coordinator.json").read_text())["address"]
        at = ("--coordinator", address, "--tls", out / "tls" / "coordinator")

        document = status(out)
        assert set(document) >= {"state", "k", "K", "agents"}
        assert document["state"] == "paused" and document["K"] == K and isinstance(document["k"], int)
        agents = document["agents"]
        assert isinstance(agents, list) and [a["name"] for a in agents] == ["agent-1", "agent-2", "agent-3"]
        for agent in agents:
            assert set(agent) >= {"name", "connected", "k", "last_seen_s"}
            assert agent["connected"] is True and agent["k"] <= K and 0 <= agent["last_seen_s"] < 60
        again = eventually("every agent waits at the barrier", lambda: settled(status(out)))
        assert again == status(out)["k"], "nothing moves while paused"
        text = dpgt("status", *at)
        assert text.returncode == 0 and "paused" in text.stdout and "agent-2: connected" in text.stdout

        theirs = ("--coordinator", address, "--tls", out / "tls" / "agents" / "agent-1")
        refused = asked("stop", *theirs)
        assert refused.returncode == 3 and "may not control" in refused.stderr
        second = asked("launch", run, "--out", out, "--test-keystream", KEY)
        assert second.returncode == 2 and second.stderr.strip() == (
            f"dpgt launch: command line: --out: {out} is in use by another run"
        )
        rival = ("--config", out / "run.toml", "--listen", "127.0.0.1:0", "--insecure", "--test-keystream", KEY)
        refused = asked("coordinator", *rival, "--out", out)
        assert refused.returncode == 2 and "is in use by another coordinator" in refused.stderr

        stopped = dpgt("stop", *at)
        assert stopped.returncode == 0, stopped
        assert launch.wait() == 5
    assert "stopped by the operator" in launch.said
    for name in launch.names():
        assert "stopped: stopped by the operator" in launch.log(name)
    no_traceback(launch.everything_said())
    before = json.loads((out / "summary.json").read_text())
    assert before["status"] == "stopped" and before["rounds"] == again + 1
    assert not list(out.glob("agents/*/state/x_final.npy"))

    private = asked("launch", run, "--out", out)
    assert private.returncode == 2 and "--test-keystream" in private.stderr, "half of its noise is known"
    with Launch(out, "launch", run, "--test-keystream", KEY) as launch:
        launch.running(starts=2)
        assert asked("pause", "--run", out).returncode == 0
        assert asked("resume", "--run", out).stdout.strip() == "running"
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    after = json.loads((out / "summary.json").read_text())
    assert after["run_id"] == before["run_id"] and after["rounds"] == K + 1
    assert cli.run(["simulate", str(run), "--out", str(tmp_path / "sim"), "--test-keystream", KEY]) == 0
    same_bits(out, tmp_path / "sim")
    assert {released(out, name) for name in launch.names()} == {(2 * (K + 1), 2 * (K + 1))}
    seen = [(row["agent"], int(row["k"])) for row in rows(out)]
    assert sorted(seen) == sorted((n, k) for n in launch.names() for k in (*range(0, K + 1, 100), K + 1))


def settled(document: dict[str, object]) -> int | None:
    agents = document["agents"]
    assert isinstance(agents, list)
    (k, *others) = {agent["k"] for agent in agents}
    return None if others else k


def test_an_interrupted_launch_exits_5_and_a_launch_through_a_link_touched_nothing_of_it(tmp_path: Path) -> None:
    run = run_file(tmp_path, quadratic(2, ENDLESS))
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with Launch(tmp_path / "out", "launch", run) as launch:
        launch.running()
        kept = [tmp_path / "out" / "coordinator.json", tmp_path / "out" / "tls" / "coordinator" / "cert.pem"]
        before = [path.read_bytes() for path in kept]
        second = asked("launch", run, "--out", tmp_path / "link")
        assert second.returncode == 2 and "in use by another run" in second.stderr
        assert [path.read_bytes() for path in kept] == before
        launch.process.send_signal(signal.SIGINT)  # SIGTERM: tests/cli/test_ends.py
        assert launch.wait() == 5
    interrupted(launch)


def test_an_interrupt_before_anything_listens_exits_5(tmp_path: Path) -> None:
    with Launch(tmp_path / "out", "launch", run_file(tmp_path, quadratic(2, ENDLESS)), "--insecure") as launch:
        eventually("the coordinator is being started", lambda: (launch.out / "coordinator.log").exists())
        launch.process.send_signal(signal.SIGINT)
        assert launch.wait() == 5
    no_traceback(launch.said + launch.log("coordinator"))


@pytest.mark.parametrize("agents", [1, 4])  # a single one is not forked from the nursery
def test_children_die_with_a_killed_launcher(tmp_path: Path, agents: int) -> None:
    with Launch(tmp_path / "out", "launch", run_file(tmp_path, quadratic(agents, ENDLESS)), "--insecure") as launch:
        launch.running()
        children = launch.children()
        assert {launch.pid(name) for name in (*launch.names(), "coordinator")} == {child.pid for child in children}
        if os.sched_getscheduler(0) == os.SCHED_OTHER:  # and nobody chose another for all of this
            crowded = agents + 1 > len(os.sched_getaffinity(0))
            policy = os.SCHED_BATCH if crowded else os.SCHED_OTHER
            assert {os.sched_getscheduler(child.pid) for child in children} == {policy}, "those of a crowd take turns"
        launch.process.kill()
        gone, alive = psutil.wait_procs(children, timeout=60)
        assert not alive and len(gone) == agents + 1


def test_a_killed_node_ends_a_launch_without_restarts_by_name(tmp_path: Path) -> None:
    run = run_file(tmp_path, quadratic(2, ENDLESS))
    with Launch(tmp_path / "out", "launch", run, "--insecure", "--no-restart") as launch:
        launch.running()
        launch.kill("agent-2")
        assert launch.wait() == 6
    assert launch.said.splitlines()[-1].startswith("dpgt launch: agent-2 was lost: killed by SIGKILL")
    assert "agent-2" in launch.log("coordinator") and "agent-2 was lost" in launch.log("agent-1")
    no_traceback(launch.everything_said())


def test_a_node_that_is_told_to_end_leaves_no_traceback(tmp_path: Path) -> None:
    with Launch(tmp_path / "out", "launch", run_file(tmp_path, quadratic(4, ENDLESS))) as launch:
        launch.running()
        os.kill(launch.pid("agent-2"), signal.SIGTERM)
        assert launch.wait() == 5
    assert "interrupted in round" in launch.log("agent-2")
    assert "Exception not handled" not in launch.everything_said()
    no_traceback(launch.everything_said())


def test_a_killed_coordinator_ends_a_launch_without_restarts_by_name(tmp_path: Path) -> None:
    run = run_file(tmp_path, quadratic(2, ENDLESS))
    with Launch(tmp_path / "out", "launch", run, "--insecure", "--no-restart") as launch:
        launch.running()
        launch.kill("coordinator")
        assert launch.wait() == 6
    assert launch.said.splitlines()[-1].startswith("dpgt launch: coordinator was lost: killed by SIGKILL")
    no_traceback(launch.everything_said())


def test_the_private_demo_learns_within_its_epsilon(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    result = dpgt("demo", "--private", "--no-eavesdrop", "--out", out)
    assert result.returncode == 0, result.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["headline"] == "gdp" and summary["privacy"]["enforced"]
    for agent in summary["agents"]:
        assert agent["accuracy_test"] > 0.8, "far below what ten runs reached; the noise is new in each"
        assert 7.9 < agent["epsilon"]["gdp"] <= 8.0 < agent["epsilon"]["zcdp"] < agent["paper_lemma5"]
        assert [agent["epsilon"][name] for name in ("lemma5", "corrected", "tight", "amplified")] == [None] * 4
    assert all((summary["reasons"][name] is None) == (name in ("zcdp", "gdp")) for name in EPSILONS)
    shown = [line for line in result.stdout.splitlines() if "epsilon " in line]
    assert shown and all("epsilon (gdp, " in line for line in shown), "every epsilon has its accountant"
    assert "dpgt demo --private" not in result.stdout and "avesdrop" not in result.stdout
    assert "\x1b" not in result.stdout and "\r" not in result.stdout, "in a pipe"
    assert not (out / "eavesdrop").exists() and not (out / "adversary").exists()
    page = (out / "report.html").read_text()
    assert "What every accountant says" in page and "The paper mechanism at the same scale, K, m and C" in page
