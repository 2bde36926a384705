"""What the recorder says of epsilon: while a run goes on, and in summary.json."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import Privacy, RunConfig
from dpgt_node.learning.common import Metrics
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.record.metrics import MetricsRow, MetricsStore
from dpgt_node.record.recorder import RunRecorder, consensus_error
from tests.report.synthetic import digits_run

K, d = 12, 650
D = (288, 288, 288, 287, 287)


def run_of(mechanism: str, law: Literal["laplace", "gaussian"] = "laplace", **privacy: float) -> RunConfig:
    run = digits_run()
    run = replace(run, algorithm=replace(run.algorithm, mechanism=mechanism, iterations=K))
    return replace(run, noise=replace(run.noise, law=law), privacy=Privacy(**privacy))


def recorder_of(run: RunConfig, out: Path) -> RunRecorder:
    return RunRecorder(out, run, Topology.from_config(run.graph), Schedule.from_config(run), D, dimension=d)


def account(run: RunConfig, i: int) -> AgentAccount:
    return account_for(run, Topology.from_config(run.graph), Schedule.from_config(run), i, D[i], d)


@pytest.mark.parametrize(
    ("run", "headline", "shown"),
    [
        (run_of("noise-once", "gaussian", clip_l2=0.5), "gdp", "gdp"),
        (run_of("noise-once", clip_l1=0.001), "amplified", "amplified"),
        (run_of("noise-once", C=0.002), "tight", "tight"),
        (run_of("public-state", clip_l2=40.0), "zcdp", "zcdp"),
        (run_of("published-point", "gaussian", C=1.0), "gdp", "gdp"),
        (run_of("paper", clip_l1=1.0), "corrected", "corrected"),
        (run_of("paper", C=1.0), None, "lemma5"),
        (run_of("paper"), None, None),
        (run_of("noise-once"), None, None),
    ],
)
def test_the_tightest_sound_accountant_is_shown(
    tmp_path: Path, run: RunConfig, headline: str | None, shown: str | None
) -> None:
    recorder = recorder_of(run, tmp_path)
    assert recorder.accountant is None and recorder.spent("agent-4", 0) is None, "not before it is computed"
    recorder.prepare()
    recorder.prepared()
    assert (recorder.headline(), recorder.accountant) == (headline, shown)
    for k in (-1, 0, K):
        expected = None if shown is None else account(run, 3).cost(shown, k)
        assert recorder.spent("agent-4", k) == expected
    totals = {name: account(run, 3).total(name) for name in ACCOUNTANTS if name != "lemma5"}
    known = [value for value in totals.values() if value is not None]
    assert recorder.spent("agent-4", K) == min(known) if headline is not None else not known


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
def test_summary_says_why_an_accountant_is_null_and_compares_the_paper(
    tmp_path: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(mechanism, clip_l1=40.0)
    recorder = recorder_of(run, tmp_path)
    asked, total = [], AgentAccount.total
    monkeypatch.setattr(AgentAccount, "total", lambda one, name: (asked.append(name), total(one, name))[1])
    summary = recorder.close("00", "stopped", 5, 1.0, None, released_through=4)
    assert len(asked) == run.n * len(ACCOUNTANTS), "once an agent, not once for every pair"
    data = json.loads((tmp_path / "summary.json").read_text())
    assert data["headline"] == summary.headline == recorder.headline()
    for i, agent in enumerate(data["agents"]):
        assert {name: value is None for name, value in agent["epsilon"].items()} == {
            name: reason is not None for name, reason in data["reasons"].items()
        }
        paper = account(run_of("paper", clip_l1=40.0), i).cost("lemma5", 4)
        assert agent["paper_lemma5"] == (None if mechanism == "paper" else paper)
        if mechanism == "published-point":
            assert agent["paper_lemma5"] == agent["epsilon"]["lemma5"]
    assert summary.reasons == {name: account(run, 0).why_not(name) for name in ACCOUNTANTS}


def test_noise_off_is_infinite_under_whatever_applies(tmp_path: Path) -> None:
    run = run_of("paper", clip_l1=40.0)
    recorder = recorder_of(replace(run, noise=replace(run.noise, multiplier=0.0)), tmp_path)
    recorder.prepare()
    recorder.prepared()
    assert recorder.accountant == "corrected" and recorder.spent("agent-1", 3) == math.inf


def test_rows_hold_every_accountant(tmp_path: Path) -> None:
    run = run_of("noise-once", "gaussian", clip_l2=0.5)
    recorder = recorder_of(replace(run, evaluate=replace(run.evaluate, metrics="local")), tmp_path)
    for name in run.graph.agents:
        recorder.evaluated(name, 10, None, 1.0)
    assert MetricsStore.read(tmp_path) == (), "rows wait for the accountants"
    recorder.prepare()
    recorder.prepared()
    rows = MetricsStore.read(tmp_path)
    assert [row.agent for row in rows] == list(run.graph.agents)
    for i, row in enumerate(rows):
        expected = account(run, i).epsilon_after(9)
        assert {name: row.epsilon[name] for name in ACCOUNTANTS} == expected
        assert row.epsilon["gdp"] is not None and row.epsilon["zcdp"] is not None and row.epsilon["tight"] is None


def test_accuracies_of_an_earlier_start_are_known_until_there_are_newer_ones(tmp_path: Path) -> None:
    run, later = run_of("noise-once"), Metrics(0.5, 0.8, 0.25, 0.1)
    first, *others = run.graph.agents
    rows = [MetricsRow(name, k, accuracy_test=k / 100 + i / 8) for k in (20, 10) for i, name in enumerate(others)]
    with MetricsStore(tmp_path) as store:
        store.append(rows)
    recorder = recorder_of(run, tmp_path)
    expected = {first: None} | {name: 0.2 + i / 8 for i, name in enumerate(others)}
    assert recorder.accuracy == expected, "the newest of each, whatever the order of the rows"
    recorder.evaluated(others[0], 30, later, 1.0)
    assert recorder.accuracy == expected | {others[0]: 0.25}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1.0, 1e200, 1e-200, 1e307])
def test_consensus_error_where_squares_overflow(size: float) -> None:
    states = [size * np.array(x) for x in ([3.0, 0.0], [0.0, 4.0], [3.0, 4.0], [0.0, 0.0])]
    expected = size * 2.5 if size > 1e-100 else 0.0  # four corners, each 2.5 from the middle
    assert consensus_error(states) == pytest.approx(expected, rel=1e-15)
    assert not math.isfinite(consensus_error([np.array([np.inf]), np.array([0.0])]))
