"""What ``dpgt status`` is answered: nothing of a private run, costs of what is done, and the time that is left."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dpgt_node.config import RunConfig
from dpgt_node.errors import ExitCode
from dpgt_node.protocol.coordinator.barrier import (
    AgentDone,
    AgentEdges,
    AgentGone,
    AgentJoined,
    Conclude,
    CoordinatorMachine,
    CoordinatorPhase,
    PauseRequested,
    ResumeRequested,
    StopRun,
)
from dpgt_node.protocol.liveness import EdgeReport, Lack, Trouble
from dpgt_node.protocol.messages import StatusReply
from dpgt_node.runtime.coordinator import status
from tests.runtime.cluster import make_run

SECOND = 10**9


def answered(*troubles: Trouble, study: bool = True, accountant: str = "gdp", loss: str = "stop") -> StatusReply:
    """Agent-1 did round 7, agent-2 round 5, agent-3 none; 100 s after the machine's beginning."""
    recorder = SimpleNamespace(
        accuracy={"agent-1": 0.9, "agent-2": 0.8, "agent-3": None},
        consensus=0.125,
        accountant=accountant,
        spent=lambda name, k: float(k),
        worth=lambda name, k: "strong",
        delta_warning=lambda: None,
    )
    done = {"agent-1": 7, "agent-2": 5, "agent-3": -1}
    machine = SimpleNamespace(
        phase=CoordinatorPhase.RUNNING, k=5, troubles=lambda _: troubles, done=done.__getitem__,
        connected=lambda name: name != "agent-3", waits_for=lambda name: (), waiting_for=lambda: (),
        heard_ns=lambda name: 0, standstill=lambda now: "",
    )  # fmt: skip
    run = make_run()
    run = replace(run, runtime=replace(run.runtime, on_agent_loss=loss, round_timeout_s=20.0))
    return of(machine, run, SimpleNamespace(recorder=recorder, study=study), 100)


def of(
    machine: Any, run: RunConfig, results: Any, now_s: int, samples: Any = None, conclusion: Any = None
) -> StatusReply:
    coordination: Any = SimpleNamespace(
        barrier=machine, conclusion=conclusion, state="running", awake_ns=lambda now: now, samples=samples or {},
        last_seen_s=lambda name, now: 1.0,
    )  # fmt: skip
    return status.reply(run, bytes(16), coordination, results, 8.0, None, now_s * SECOND)


def test_costs_are_of_rounds_that_are_done_and_measures_of_data_are_of_studies_alone() -> None:
    study, private = answered(), answered(study=False)
    assert [a.accuracy_test for a in study.agents] == [0.9, 0.8, None] and study.consensus_error == 0.125
    assert {a.accuracy_test for a in private.agents} == {None} and private.consensus_error is None
    for reply in (study, private):
        assert [(a.epsilon, a.k) for a in reply.agents] == [(7.0, 7), (5.0, 5), (-1.0, -1)] and reply.k == 4
    assert study.delta == 1e-5 and answered(accountant="tight").delta is None


@pytest.mark.parametrize("kind", ["left", "silent", "cut"])
def test_the_first_who_is_lost_says_when_the_run_ends(kind: Any) -> None:
    lost = [Trouble(kind, "agent-2", None, since_s * SECOND, 0, "agent-2 is lost for") for since_s in (90, 95)]
    assert answered(*lost).gives_up_s == 10.0 and answered(*lost, loss="wait").gives_up_s is None
    assert answered(replace(lost[0], kind="slow")).gives_up_s is None, "who is slow is there"
    assert answered(replace(lost[0], kind="slow"), lost[1]).gives_up_s == 15.0
    assert answered(replace(lost[0], kind="slow")).rounds_per_second == 8.0 and not answered(lost[0]).rounds_per_second
    missing = {a.name: a.missing_s for a in answered(lost[0]).agents}
    assert missing == {"agent-1": None, "agent-2": None if kind == "cut" else 10.0, "agent-3": None}


def test_the_reason_says_whom_the_run_waits_for_and_nothing_while_it_moves() -> None:
    run = make_run(3)
    names = run.graph.agents
    machine = CoordinatorMachine(
        names, 3, barrier_every=1, register_timeout_ns=300 * SECOND, liveness_ns=60 * SECOND, on_agent_loss="wait",
        now_ns=0,
    )  # fmt: skip
    nothing = SimpleNamespace(recorder=None, study=True)

    def said(now_s: int, samples: Any = None) -> tuple[str, float]:
        reply = of(machine, run, nothing, now_s, samples)
        return reply.reason, reply.rounds_per_second

    assert said(0) == ("it has not begun: waiting for agent-1, agent-2, agent-3", 0.0)
    assert said(0, {"agent-1": None})[0].startswith("the coordinator was started again: waiting for agent-1")
    for name in names:
        machine.step(AgentJoined(name, -1, -1), 0)
    assert said(5) == ("", 8.0), "everybody is here and at work"
    machine.step(AgentDone("agent-1", 0, 0), 5 * SECOND)
    machine.step(AgentEdges("agent-2", EdgeReport(0, 2 * SECOND, (Lack("agent-3", None),))), 7 * SECOND)
    assert said(10) == ("", 8.0) and said(11) == ("round 0 has waited 6.0 s for agent-3", 8.0)
    machine.step(PauseRequested(), 11 * SECOND)
    assert said(11) == ("agents finish round 0 and wait for `dpgt resume`", 0.0)
    for name in names[1:]:
        machine.step(AgentDone(name, 0, 0), 12 * SECOND)
    assert said(40) == ("waiting for `dpgt resume`", 0.0), "a pause is nobody's fault"
    machine.step(AgentGone("agent-2"), 40 * SECOND)
    assert said(43)[0] == "agent-2 left in round 1 and has been away for 31.0 s; waiting for `dpgt resume`"
    machine.step(AgentJoined("agent-2", 0, 0), 43 * SECOND)
    machine.step(ResumeRequested(), 41 * SECOND)
    for name in names:
        machine.step(AgentGone(name), 42 * SECOND)
    assert said(43)[0].count("has been away") == 3 and said(43)[1] == 0.0
    machine.step(AgentJoined("agent-1", 0, 0), 44 * SECOND)
    machine.step(StopRun("stopped by the operator", ExitCode.STOPPED), 44 * SECOND)
    assert said(44) == ("stopped by the operator; waiting for agent-1 to end", 0.0)
    over = of(machine, run, nothing, 45, conclusion=Conclude("finished", ExitCode.DONE, "every agent finished"))
    assert (over.reason, over.rounds_per_second) == ("every agent finished", 8.0)


def test_the_last_round_is_waited_for_and_then_the_end() -> None:
    machine = CoordinatorMachine(
        ["agent-1", "agent-2"], 0, barrier_every=1, register_timeout_ns=300 * SECOND, liveness_ns=60 * SECOND,
        on_agent_loss="wait", now_ns=0,
    )  # fmt: skip
    for name in ("agent-1", "agent-2"):
        machine.step(AgentJoined(name, -1, -1), 0)
    machine.step(AgentDone("agent-1", 0, 0), 0)
    assert machine.standstill(10 * SECOND) == "round 0 has waited 10.0 s for agent-2"
    machine.step(AgentDone("agent-2", 0, 0), 10 * SECOND)
    assert machine.standstill(20 * SECOND) == "the end of the run has waited 10.0 s for agent-1, agent-2"


def test_of_many_agents_a_few_are_named() -> None:
    lost = [Trouble("left", f"agent-{i}", None, 0, 0, f"agent-{i} is lost for") for i in range(24)]
    assert answered(*lost).reason.endswith("agent-2 is lost for 100.0 s; and 21 more")
    machine = CoordinatorMachine(
        [f"agent-{i + 1}" for i in range(24)], 3, barrier_every=1, register_timeout_ns=300 * SECOND,
        liveness_ns=60 * SECOND, on_agent_loss="wait", now_ns=0,
    )  # fmt: skip
    reply = of(machine, make_run(), SimpleNamespace(recorder=None, study=True), 1)
    assert reply.reason.endswith("waiting for agent-1, agent-2, agent-3 and 21 more")
