"""An agent's own log: where it stands, and nothing that was computed from its data."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.runtime.agent.standing import Cost, Standing
from tests.runtime.cluster import cluster, make_run

COST = Cost("gdp", 1e-5, 3.2, 7.5, "moderate")


def test_the_line_says_round_rate_eta_cost_and_who_is_late() -> None:
    running = Standing("running", 120, 200, 80.0, COST, ())
    assert running.line() == (
        "running: round 120 of 200, 80 rounds/s, ETA 1 s, epsilon (gdp, delta 1e-05) 3.2 of 7.5 (moderate)"
    )
    late = replace(running, rounds_per_second=0.0, late=("agent-2", "agent-3"))
    assert late.line().endswith("late: agent-2, agent-3") and "ETA" not in late.line()
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
    from dpgt_node.protocol.agent.machine import Phase
    from dpgt_node.runtime.agent.standing import Watch

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
