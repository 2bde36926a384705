"""An agent's own log: where it stands, and nothing that was computed from its data."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpgt_node.privacy.strength import strength
from dpgt_node.protocol.agent.phase import Phase
from dpgt_node.protocol.agent.session_types import SessionPhase
from dpgt_node.protocol.pace import Took
from dpgt_node.runtime.agent import exported
from dpgt_node.runtime.agent import standing as standing_module
from dpgt_node.runtime.agent.standing import Cost, Standing, Watch
from dpgt_node.runtime.watching.progress import Progress
from tests.runtime.cluster import cluster, make_run

COST = Cost("gdp", 1e-5, 3.2, 7.5, "moderate")


def test_the_line_says_round_rate_eta_cost_and_who_is_late() -> None:
    running = Standing("running", 120, 200, 80.0, COST, ())
    assert running.line() == (
        "running: round 120 of 200, 80 rounds/s, ETA 1 s, epsilon (gdp, delta 1e-05) 3.2 of 7.5 (moderate)"
    )
    late = replace(running, rounds_per_second=0.0, late=("agent-2", "agent-3"))
    assert late.line().endswith("late: agent-2, agent-3") and "ETA" not in late.line()
    assert "rounds/s" not in late.line(), "of its first second nobody knows a speed"
    assert late.fields()["late"] == ["agent-2", "agent-3"] and late.fields()["eta_s"] is None
    assert Standing("waiting", -1, 200, 0.0, None, ()).line() == "waiting"


async def test_nodes_say_where_they_stand_until_they_leave(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dpgt_node.progress")
    async with cluster(tmp_path, make_run(40)) as c:
        c.start_all()
        await c.end()
    said = [r.fields for r in caplog.records if set(getattr(r, "fields", ())) == set(Standing.fields(_EMPTY))]
    assert [f["k"] for f in said if f["state"] == "leaving"] == [40] * 3
    words = " ".join(r.getMessage() for r in caplog.records if r.name == "dpgt_node.progress" and "ETA" not in r.msg)
    assert "leaving: round 40 of 40" in words
    private = ("loss", "accuracy", "grad", "norm")
    assert not any(word in key for fields in said for key in fields for word in private)


_EMPTY = Standing("waiting", -1, 0, 0.0, None, ())


async def test_who_does_not_send_is_late_after_a_second(tmp_path: Path) -> None:
    class Agent:
        phase, k, released_through = Phase.EXCHANGING, 7, 7

        def needs(self, sender: int) -> tuple[int, int]:
            return {1: (7, 7), 2: (8, 7)}[sender]  # agent-3 carries X alone, and it is here

    class Session:
        agent = Agent()

    watch = Watch.__new__(Watch)
    watch._session, watch._run, watch._sampled_k = Session(), make_run(), -1  # type: ignore[assignment]
    watch._streams_in = {"agent-2": {"X"}, "agent-3": {"X"}}
    watch._stands_still = False
    assert watch.late() == ()
    watch._stands_still = True
    assert watch.late() == ("agent-2",)


class _Account:
    """Costs 0.5 a round, of 10 in all."""

    def cost(self, name: str, k: int) -> float:
        return 0.5 * (k + 1)

    def total(self, name: str) -> float:
        return 10.0


def watched(*, free: bool = False) -> Any:
    """A watch over an agent that is in round 4 of 30, whose releases are durable to round 3."""
    agent = SimpleNamespace(phase=Phase.EXCHANGING, k=4, released_through=3, inbox_size=2, needs=lambda _: (4, 9))
    watch = Watch.__new__(Watch)
    run = make_run()
    run = replace(run, privacy=replace(run.privacy, clip_l1=1.0))
    watch._run, watch._work, watch._samples, watch._free = run, SimpleNamespace(account=_Account()), 100, free  # type: ignore[assignment]
    watch._accountant, watch._stands_still, watch._sampled_k = "tight", True, 4
    watch._progress, watch._streams_in = SimpleNamespace(rate=lambda: 7.0), {"agent-2": {"X"}, "agent-3": {"Y"}}  # type: ignore[assignment]
    took = Took()
    took.add(5, (1_000_000, 2, 3, 4, 5, 2_500_000))
    outliers = {("agent-3", "Y"): 10}
    inside = SimpleNamespace(agent=agent, bytes_sent=lambda: 99, took=took, outliers=outliers)
    watch._session = SimpleNamespace(agent=agent, phase=SessionPhase.INSIDE, inside=inside)  # type: ignore[assignment]
    return watch


def test_the_cost_is_of_what_was_released_and_everything_where_noise_is_no_secret() -> None:
    standing = watched().standing()
    assert standing.cost == Cost("tight", 1e-5, 2.0, 10.0, strength("tight", 2.0, 1e-5, samples=100, enforced=True))
    assert standing.cost.word != strength("tight", 10.0, 1e-5, samples=100, enforced=True)
    assert (standing.state, standing.k, standing.rounds_per_second) == ("running", 4, 7.0)
    free = watched(free=True).standing().cost
    assert free is not None and (free.spent, free.total) == (math.inf, math.inf)


def test_a_scrape_says_what_the_log_says() -> None:
    watch = watched()
    found = {(one.name.removeprefix("dpgt_node_"), *one.labels): one.value for one in
             exported.samples("agent-1", "r", watch, watch._session)}  # fmt: skip
    assert found["epsilon", "tight"] == 2.0 and found["epsilon_of_run", "tight"] == 10.0
    assert (found["released_rounds",], found["round",], found["last_round",], found["rounds_total",]) == (4, 4, 30, 5)
    assert found["phase_seconds_total", "compute"] == 1.0 and found["phase_seconds_total", "evaluate"] == 2.5
    assert (found["neighbour_late", "agent-2"], found["neighbour_late", "agent-3"]) == (1, 0)
    assert [state for state in exported.STATES if found["state", state]] == ["running"]
    assert found["outlier_rounds_total", "agent-3", "y"] == 10
    assert found["inbox_vectors",] == 2 and found["sent_bytes_total",] == 99 and found["rounds_per_second",] == 7.0


def test_who_stands_still_has_no_speed_of_before() -> None:
    now = [0.0]
    progress = Progress(lambda: now[0])
    for k in range(101):
        now[0] = k / 50
        progress.note(k)
    assert progress.rate() == pytest.approx(50.0)
    now[0] = 6.0
    assert progress.rate() == pytest.approx(50.0), "an evaluation may take that long"
    now[0] = 22.0
    assert progress.rate() == pytest.approx(1 / 20)
    slow = Progress(lambda: now[0])
    for k in range(3):
        now[0] = 60.0 * k
        slow.note(k)
    now[0] = 179.0
    assert slow.rate() == pytest.approx(1 / 60)


async def test_whoever_moves_between_two_samples_does_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "SAMPLE_S", 0)
    watch, said = watched(), []
    watch._progress = Progress()

    def sampled() -> None:
        said.append(watch._stands_still)
        if len(said) < 4:
            watch._session.agent.k += 1

    watch._say = sampled
    task = asyncio.ensure_future(watch._go_on())
    while len(said) < 6:
        await asyncio.sleep(0)
    task.cancel()
    assert said[1:4] == [False] * 3 and said[5] is True
