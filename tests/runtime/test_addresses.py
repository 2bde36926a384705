"""Addresses and orders of start: what daemons make of them, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from dpgt_node.errors import ExitCode
from tests.runtime.cluster import cluster, eventually, make_run

AGENTS = ("agent-1", "agent-2", "agent-3")
ORDERS = list(itertools.permutations(("coordinator", *AGENTS)))


@pytest.mark.parametrize("order", ORDERS, ids=["-".join(name[-1] for name in order) for order in ORDERS])
async def test_any_order_of_start(order: tuple[str, ...], tmp_path: Path) -> None:
    """Each process is up, and waits for the others, before the next one starts."""
    async with cluster(tmp_path, make_run(3)) as c:
        assert c.serving is not None
        if order[0] != "coordinator":  # it comes later, at the address that it has now
            c.serving.cancel()
            await asyncio.gather(c.serving, return_exceptions=True)
        for name in order:
            if name != "coordinator":
                c.start(name)
                await eventually(f"{name} listens", lambda name=name: c.nodes[name]._advertise)
            elif order[0] != "coordinator":
                await c.coordinate(listen=c.address)
        assert (await c.end()).conclude.exit_code is ExitCode.DONE
    c.assert_simulators_bits()


async def test_addresses_that_no_certificate_holds(tmp_path: Path) -> None:
    """Certificates are for localhost, 127.0.0.1 and ::1; whoever is dialled elsewhere proves its name all the same."""
    async with cluster(tmp_path, make_run(10), secure=True) as c:
        assert c.serving is not None
        c.serving.cancel()
        await asyncio.gather(c.serving, return_exceptions=True)
        await c.coordinate(listen="127.0.0.2:0")
        for i, name in enumerate(AGENTS, start=3):
            c.start(name, listen=f"127.0.0.{i}:0")
        assert (await c.end()).conclude.exit_code is ExitCode.DONE
        advertised = [node._advertise.rsplit(":", 1)[0] for node in c.nodes.values()]
    assert advertised == ["127.0.0.3", "127.0.0.4", "127.0.0.5"]
    c.assert_simulators_bits()
