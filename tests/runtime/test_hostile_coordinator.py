"""A coordinator that lies, over real sockets with mTLS: who notices, and that nothing leaves."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.errors import ExitCode, PeerLost, StaleState
from dpgt_node.protocol.agent.session_types import Terms
from dpgt_node.protocol.clock import SECOND
from dpgt_node.protocol.coordinator.membership import Membership
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.agent.node import Node
from dpgt_node.runtime.coordinator.heads import Heads
from tests.runtime.cluster import LIMIT_S, cluster, make_run


@pytest.fixture(autouse=True)
def _short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.2)


async def test_swapped_addresses_reach_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Everybody is told the address of somebody else: the certificate there is another one, so no vector leaves."""
    addresses, terms = Membership.addresses, Node._terms

    def swapped(self: Membership) -> dict[str, str]:
        told = addresses(self)
        return dict(zip(told, [*list(told.values())[1:], next(iter(told.values()))], strict=True))

    def soon(self: Node) -> Terms:
        return replace(terms(self), distrust_ns=SECOND // 2)

    monkeypatch.setattr(Membership, "addresses", swapped)
    monkeypatch.setattr(Node, "_terms", soon)
    with caplog.at_level(logging.WARNING):
        async with cluster(tmp_path, make_run(5), secure=True) as c:
            c.start_all()
            assert c.serving is not None
            async with asyncio.timeout(LIMIT_S):
                outcome = await c.serving
                ends = await asyncio.gather(*c.agents.values(), return_exceptions=True)
            machines = [node.session.agent for node in c.nodes.values() if node.session is not None]
    assert outcome.conclude.exit_code is ExitCode.PEER_LOST and any(isinstance(end, PeerLost) for end in ends)
    assert [machine.released_through for machine in machines if machine is not None] == [-1] * 3, (
        "nobody draws before every out-neighbour has said what it lacks"
    )


async def test_a_ledger_head_that_never_was_ends_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Heads, "known", lambda self: {"agent-1": (0, b"l" * 32)})
    async with cluster(tmp_path, make_run(5), secure=True) as c:
        c.start_all()
        assert c.serving is not None
        async with asyncio.timeout(LIMIT_S):
            outcome = await c.serving
            ends = await asyncio.gather(*c.agents.values(), return_exceptions=True)
    assert isinstance(ends[0], StaleState) and "remembers a ledger of agent-1 through round 0" in str(ends[0])
    assert outcome.conclude.exit_code is ExitCode.REFUSED and "agent-1" in outcome.conclude.reason
