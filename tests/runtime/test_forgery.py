"""Whoever holds an agent's certificate sends in its name: both ends and the coordinator say so, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.types import Payload
from dpgt_node.record.digests import read_digests
from dpgt_node.record.summary import load_summary
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.trust.channels import agent_identity
from dpgt_node.wire import codec, services
from tests.runtime.cluster import LIMIT_S, Cluster, cluster, make_run

EVIL = np.full(3, 1000.0)


async def mixes_in(c: Cluster, rounds: int) -> int:
    """A rogue with agent-1's certificate gives agent-2 x = 1000 in the next ``rounds`` rounds; the first of them."""
    opener = c.security(agent_identity("agent-1")).opener(agent_identity("agent-2"))
    async with opener(c.nodes["agent-2"]._advertise) as channel:
        call = services.exchange(channel, "agent-1")
        resume = await call.read()
        assert isinstance(resume, m.Resume)
        data = EVIL.tobytes()
        with contextlib.suppress(PeerError, asyncio.TimeoutError):
            for k in range(resume.x_from, resume.x_from + rounds):
                payload = Payload("X", k, "float64", 3, data, hashlib.sha256(data).digest())
                for frame in codec.encode_vectors(resume.run_id, "agent-1", (payload,)):
                    await call.write(frame)
            async with asyncio.timeout(0.5):  # until agent-1 comes back and takes its place again
                while await call.read() is not None:
                    pass
        return resume.x_from


@pytest.mark.parametrize("goes_on", [False, True], ids=["stop", "continue"])
async def test_a_stolen_certificate_is_named_at_both_ends_within_two_rounds(
    tmp_path: Path, goes_on: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.2)
    run = make_run(400)
    run = replace(run, runtime=replace(run.runtime, on_forgery="continue" if goes_on else "stop"))
    with caplog.at_level(logging.WARNING):
        async with cluster(tmp_path, run, secure=True) as c:
            c.start_all()
            await c.reached(5, "agent-2")
            first = await mixes_in(c, 3)
            assert c.serving is not None
            async with asyncio.timeout(LIMIT_S):
                codes = await asyncio.gather(*c.agents.values())
                outcome = await c.serving
    (forgery,) = [one for one in read_digests(c.out).forgeries if one.first.stream == "X"]  # type: ignore[union-attr]
    assert forgery.first.sender == "agent-1" and first <= forgery.first.k <= first + 1
    evil = hashlib.sha256(EVIL.tobytes()).digest()[:16]
    assert dict(forgery.first.words).get("agent-2", evil) == evil
    by_agents = [r.message for r in caplog.records if r.name.endswith("agent.node") and r.levelname == "ERROR"]
    assert len([line for line in by_agents if "of agent-1 is in dispute" in line]) >= 3, "in everybody's log"
    if goes_on:  # else the run is over before agent-1 is back at agent-2
        assert any(line.startswith("agent-2 says that it holds X of round") for line in by_agents)
    events = [json.loads(line) for line in (c.out / "events.jsonl").read_text().splitlines()]
    assert any(level == "error" and "of agent-1" in text for _, level, text in events)
    summary = load_summary(c.out)
    assert (
        summary is not None and summary.digests is not None and summary.digests["forgeries"][0]["sender"] == "agent-1"
    )
    if goes_on:
        assert set(codes) == {ExitCode.DONE} and forgery.rounds >= 1
        assert summary.status == "finished" and summary.digests["rounds_compared"] > 390
    else:
        assert set(codes) == {ExitCode.CHECK_FAILED} and outcome.conclude.exit_code is ExitCode.CHECK_FAILED
        assert "agent-1" in outcome.conclude.reason and summary.rounds <= first + 3
