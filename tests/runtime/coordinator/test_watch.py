"""What an operator sees of a run that goes on: recent spans, the log line, events that outlive the process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dpgt_node.protocol.messages import AgentStatus, StatusReply
from dpgt_node.protocol.pace import Pace, Slowest
from dpgt_node.runtime.coordinator.watch import EVENTS_FILE, EVENTS_KEPT, Events, Recent, fields, line, no_accuracy
from tests.runtime.cluster import make_run

AGENTS = (
    AgentStatus("agent-1", True, 120, 0.1, 0.9, 7.5, strength="weak"),
    AgentStatus("agent-2", True, 120, 0.1, 0.861, 7.25, strength="weak"),
)
REPLY = StatusReply("running", 120, 200, bytes(16), "digits", 80.0, AGENTS, accountant="gdp", delta=1e-5)


def test_the_line_says_round_rate_eta_worst_epsilon_slowest_and_who_is_late() -> None:
    slow = replace(REPLY, slowest=Slowest("agent-2", "compute", 0.004, 0.6))
    assert line(slow) == (
        "running: round 120 of 200, 80 rounds/s, ETA 1 s, worst test accuracy 0.861 (agent-2), "
        "epsilon (gdp, delta 1e-05) 7.5 (weak), slowest: agent-2, compute (4 ms a round, 60% of it)"
    )
    local = replace(REPLY, agents=tuple(replace(a, accuracy_test=None) for a in AGENTS))
    assert "accuracy: local" in line(local, "accuracy: local") and "accuracy" not in line(local)
    toy = make_run()
    digits = replace(toy, data=replace(toy.data, dataset="digits"))
    kept = replace(digits, evaluate=replace(digits.evaluate, metrics="local"))
    assert no_accuracy(toy) == 'no accuracy: "quadratic" is a formula'
    assert (no_accuracy(digits), no_accuracy(kept)) == ("", "accuracy: local")
    gone = replace(AGENTS[1], connected=False, state="left", missing_s=3.0)
    said = line(replace(REPLY, agents=(AGENTS[0], gone)))
    assert "1 of 2 agents connected" in said and said.endswith("late: agent-2")
    waiting = replace(REPLY, state="waiting", k=-1, agents=(AGENTS[0], replace(gone, state="absent", epsilon=None)))
    assert line(waiting).startswith("waiting, 1 of 2 agents connected") and "ETA" not in line(waiting)
    assert line(replace(REPLY, rounds_per_second=0.0)).startswith("running: round 120 of 200, worst test accuracy")
    document = fields(slow)
    assert (document["k"], document["worst_agent"], document["epsilon"], document["late"]) == (120, "agent-2", 7.5, [])
    assert fields(replace(slow, rounds_per_second=4.0))["eta_s"] == 20.0, "80 rounds are left"


def test_recent_spans_are_of_the_last_seconds_and_of_the_last_round_where_that_is_longer() -> None:
    pace = Pace(["a"])
    recent = Recent(pace)
    assert recent.rounds() == {} and recent.slowest() is None
    pace.done("a", 1, (100, 0, 0, 0, 0, 0))
    recent.sample(0.0)
    for second in range(1, 9):
        pace.done("a", 10, (0, 0, 50, 0, 0, 0))
        recent.sample(float(second))
    (rounds, spans) = recent.rounds()["a"]
    assert (rounds, spans) == (50, (0, 0, 250, 0, 0, 0)), "of five seconds, the first round is not among them"
    for second in range(9, 40):
        recent.sample(float(second))
    assert recent.rounds()["a"] == (10, (0, 0, 50, 0, 0, 0))
    assert (found := recent.slowest()) is not None and (found.agent, found.phase) == ("a", "noise")


def test_events_outlive_the_process_and_what_is_torn_is_passed_over(tmp_path: Path) -> None:
    first = Events(tmp_path, clock=lambda: 12.5)
    first.note("warning", "agent-2 left at round 3")
    first.close()
    first.note("info", "after the end")  # kept in memory alone
    with (tmp_path / EVENTS_FILE).open("a") as file:
        file.write('[13, "info"]\n[14, "in')
    again = Events(tmp_path)
    assert [(e.wall_s, e.level, e.text) for e in again.kept] == [(12.5, "warning", "agent-2 left at round 3")]
    for i in range(EVENTS_KEPT + 5):
        again.note("info", str(i))
    assert len(again.kept) == EVENTS_KEPT
    again.close()
    assert list(Events(tmp_path).kept)[-1].text == str(EVENTS_KEPT + 4), "the last ones"
