"""What ``dpgt status`` is answered: nothing of a private run, costs of what is done, and the time that is left."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dpgt_node.protocol.coordinator.barrier import CoordinatorPhase
from dpgt_node.protocol.liveness import Trouble
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
        heard_ns=lambda name: 0,
    )  # fmt: skip
    coordination = SimpleNamespace(
        barrier=machine, conclusion=None, state="running", awake_ns=lambda now: now, last_seen_s=lambda name, now: 1.0
    )
    run = make_run()
    run = replace(run, runtime=replace(run.runtime, on_agent_loss=loss, round_timeout_s=20.0))
    results: Any = SimpleNamespace(recorder=recorder, study=study)
    return status.reply(run, bytes(16), coordination, results, 8.0, None, 100 * SECOND)  # type: ignore[arg-type]


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
    missing = {a.name: a.missing_s for a in answered(lost[0]).agents}
    assert missing == {"agent-1": None, "agent-2": None if kind == "cut" else 10.0, "agent-3": None}
