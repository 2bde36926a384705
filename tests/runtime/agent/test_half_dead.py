"""Streams that nobody serves any more, and whoever makes them: a holder of a neighbour's certificate."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest

from dpgt_node.errors import ExitCode
from dpgt_node.protocol.clock import SECOND
from dpgt_node.runtime.agent.node import Node
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, agent_identity
from dpgt_node.wire import services
from tests.runtime.cluster import Cluster, cluster, make_run
from tests.runtime.test_liveness import timed

STREAMS = 100


async def abuse(channel: grpc.aio.Channel, open_call: object) -> None:
    """Open and cancel many streams, each a little further on than the one before."""
    for i in range(STREAMS):
        call = open_call(channel, "agent-1")  # type: ignore[operator]
        if i % 3 == 2:
            await asyncio.sleep(0.001 * (i % 7))
        elif i % 3:
            reading = asyncio.ensure_future(call.read())
            await asyncio.sleep(0.001 * (i % 5))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        call.cancel()


def assert_silent(caplog: pytest.LogCaptureFixture) -> None:
    assert "Traceback" not in caplog.text and "TOO_MANY_OPERATIONS" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


async def ends_whole(c: Cluster) -> None:
    assert (await c.end()).conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


async def test_many_streams_of_a_neighbour_cost_a_moment_and_no_vector(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, timed(make_run(60), 20.0), secure=True) as c:
        c.start_all()
        await c.reached(5)
        opener = c.security(agent_identity("agent-1")).opener(agent_identity("agent-2"))
        async with opener(c.nodes["agent-2"]._advertise) as channel:
            await abuse(channel, services.exchange)
        await ends_whole(c)
    assert_silent(caplog)


async def test_many_streams_to_the_coordinator_cost_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever says nothing on them is no twin."""
    async with cluster(tmp_path, timed(make_run(60), 20.0), secure=True) as c:
        c.start_all()
        await c.reached(5)
        async with c.security(agent_identity("agent-1")).opener(COORDINATOR_IDENTITY)(c.address) as channel:
            await abuse(channel, services.join)
        await ends_whole(c)
    assert_silent(caplog)


async def test_a_stream_that_nobody_reads_any_more_costs_a_moment_and_no_vector(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays open, and its transport takes what is written: nothing tells the sender but the silence.  It is opened
    anew before the coordinator ends the run for it, of which a machine that stands still for a while is no part.
    """
    terms = Node._terms
    monkeypatch.setattr(
        Node, "_terms", lambda node: replace(terms(node), patience_ns=4 * SECOND, heartbeat_ns=SECOND // 2)
    )
    async with cluster(tmp_path, timed(make_run(60), 20.0, "stop")) as c:
        c.start_all()
        await c.reached(5)
        lines = c.nodes["agent-2"]._calls._lines
        (line,) = [line for call, line in lines.items() if call.peer == "agent-1" and not call.dialled]
        line.held = asyncio.Event()  # behind the machine's back
        await ends_whole(c)
    assert caplog.text.count("agent-2 has acknowledged nothing for 2 s (trying again)") >= 1
    assert_silent(caplog)
