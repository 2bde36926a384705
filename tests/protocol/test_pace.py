"""Where rounds take their time: what an agent counts, what the coordinator adds up, who is called slowest."""

from __future__ import annotations

from dpgt_node.protocol import types as t
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.pace import MAX_US, OWN, PHASES, Pace, Slowest, slowest, span, speed
from tests.protocol.cases import machine, payload, release, state

US = 1000


def told(agent: AgentMachine, event: t.AgentEvent, at_us: int) -> list[t.ReportDone]:
    return [effect for effect in agent.step(event, at_us * US) if isinstance(effect, t.ReportDone)]


def test_each_span_goes_to_the_phase_that_the_agent_was_in() -> None:
    agent = machine(1)
    told(agent, t.Started(-1), 1_000_000)  # what was before counts for nothing
    told(agent, t.Advanced(state(0)), 1_000_003)
    told(agent, t.Go(0), 1_000_010)
    told(agent, release(0), 1_000_031)
    told(agent, t.Persisted(0), 1_000_036)
    told(agent, t.VectorReceived(1, payload("X", 0)), 1_000_050)
    done = told(agent, t.VectorReceived(1, payload("Y", 0)), 1_000_136)
    assert [d.spent for d in done] == [(3, 7, 21, 5, 100, 0)]


def test_an_evaluation_is_no_part_of_the_phase_it_falls_into_and_a_report_counts_once() -> None:
    agent = machine(1)
    told(agent, t.Started(1), 0)
    told(agent, t.Advanced(state(0)), 2)
    told(agent, t.Evaluating(40 * US), 50)  # of 48 us of drawing
    told(agent, release(0), 51)
    told(agent, t.Persisted(0), 52)
    told(agent, t.VectorReceived(1, payload("X", 0)), 52)
    (done,) = told(agent, t.VectorReceived(1, payload("Y", 0)), 60)
    assert done.spent == (2, 0, 9, 1, 8, 40) and sum(done.spent) == 60
    told(agent, t.Advanced(state(1)), 61)
    told(agent, release(1), 61)
    told(agent, t.Persisted(1), 61)
    told(agent, t.VectorReceived(1, payload("X", 1)), 61)
    told(agent, t.VectorReceived(1, payload("Y", 1)), 61)
    (last,) = told(agent, t.FinalSaved(), 90)
    assert last.spent == (30, 0, 0, 0, 0, 0), "the end is its own work"


def test_a_span_beyond_the_field_is_said_as_the_largest() -> None:
    agent = machine(1)
    told(agent, t.Started(1), 0)
    for event in (t.Advanced(state(0)), release(0), t.Persisted(0), t.VectorReceived(1, payload("X", 0))):
        told(agent, event, 0)
    (done,) = told(agent, t.VectorReceived(1, payload("Y", 0)), MAX_US + 5)
    assert done.spent[PHASES.index("exchange")] == MAX_US


def test_the_coordinator_adds_up_rounds_once() -> None:
    pace = Pace(["a", "b"])
    pace.done("a", 2, (1, 2, 3, 4, 5, 6))
    pace.done("a", 0, (9,) * 6)  # said again
    pace.done("a", 1, ())  # not measured
    pace.done("a", 1, (1, 1, 1, 1, 1, 1))
    assert (pace.agents["a"].rounds, pace.agents["a"].total_us) == (3, [2, 3, 4, 5, 6, 7])
    assert pace.agents["a"].last_us == (1,) * 6 and pace.agents["b"].rounds == 0


def test_the_slowest_is_who_works_longest_a_round_not_who_waits() -> None:
    waits, works = (10, 900, 10, 10, 900, 0), (600, 0, 100, 50, 250, 0)
    assert slowest({"waits": (1, waits), "works": (2, tuple(2 * us for us in works))}) == Slowest(
        "works", "compute", 600e-6, 0.6
    )
    often = (10, tuple(10 * us for us in (200, 0, 0, 0, 800, 0)))
    assert (found := slowest({"often": often, "works": (1, works)})) is not None and found.agent == "works"
    held_up = {"waits": (1, waits), "works": (1, (600, 9000, 100, 50, 2500, 0))}
    assert (found := slowest(held_up)) is not None and (found.agent, found.phase) == ("works", "compute"), "no barrier"
    assert found.share == 600 / 12250
    assert slowest({}) is None and slowest({"a": (0, works), "b": (1, (0, 9, 0, 0, 9, 0))}) is None
    assert {PHASES[i] for i in range(len(PHASES))} - {PHASES[i] for i in OWN} == {"barrier", "exchange"}
    assert Slowest("a", "store", 0.0123, 0.5).line() == "slowest: a, store (12 ms a round, 50% of it)"


def test_times_and_speeds_are_plain_numbers() -> None:
    seconds = (0.0, 4e-7, 25e-6, 0.0042, 0.0123, 0.0996, 0.2, 0.45, 0.9994, 0.9996, 1.7, 75.0)
    shown = [
        "0 ms",
        "0 ms",
        "0.025 ms",
        "4.2 ms",
        "12 ms",
        "100 ms",
        "200 ms",
        "450 ms",
        "999 ms",
        "1.0 s",
        "1.7 s",
        "75.0 s",
    ]
    assert [span(s) for s in seconds] == shown
    assert [speed(r) for r in (0.25, 80.0, 999.4, 999.6, 12345.0)] == ["0.25", "80", "999", "1,000", "12,345"]
