"""A short run in this process: the daemons' own coordinator and nodes in one event loop, over real gRPC on loopback.

For runs of a second, where starting a process an agent would take longer than the run.  Without TLS.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from dpgt_node.config import NodeConfig, NodeTls, RunConfig
from dpgt_node.durable import Durability
from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.runtime.agent.node import Node, NodeSetup
from dpgt_node.runtime.coordinator.daemon import Outcome
from dpgt_node.runtime.coordinator.outdir import RUN_FILE, read_address
from dpgt_node.runtime.coordinator.serve import serve
from dpgt_node.runtime.launch.launcher import LOOPBACK
from dpgt_node.runtime.launch.places import Place, Places
from dpgt_node.runtime.trust.channels import Security

START_TIMEOUT_S = 30.0


async def run_together(
    run: RunConfig, out: Path, places: Places, data_root: Path | None, *, durability: Durability = "process"
) -> Outcome:
    """Run ``run``, whose channel is "plain", into ``out``, a folder that is not there yet.

    ``places``: where agents listen and whom they dial elsewhere.  ``durability``: of every agent.  What stops a daemon
    stops all and is raised.
    """
    assert run.runtime.channel == "plain", "there are no certificates here"
    stop = asyncio.Event()
    serving = asyncio.ensure_future(serve(run, out, f"{LOOPBACK}:0", None, keystream=None, stop=stop))
    nodes: list[asyncio.Future[ExitCode]] = []
    try:
        address = await _address(out, serving)
        for i, name in enumerate(run.graph.agents):
            node = _node(run, i, out, address, places.get(name, Place()), data_root, durability)
            nodes.append(asyncio.ensure_future(node.serve()))
        await asyncio.gather(*nodes)
        return await serving
    finally:
        for task in nodes:
            task.cancel()
        serving.cancel()
        await asyncio.gather(*nodes, serving, return_exceptions=True)


async def _address(out: Path, serving: asyncio.Future[Outcome]) -> str:
    end_s = asyncio.get_running_loop().time() + START_TIMEOUT_S
    while asyncio.get_running_loop().time() < end_s:
        if serving.done():
            serving.result()
        if (found := read_address(out)) is not None:
            return found.address
        await asyncio.sleep(0.005)
    raise PeerError(f"the coordinator did not listen within {START_TIMEOUT_S:g} s")


def _node(
    run: RunConfig, i: int, out: Path, address: str, place: Place, data_root: Path | None, durability: Durability
) -> Node:
    name = run.graph.agents[i]
    config = NodeConfig(
        name=name,
        run=out / RUN_FILE,
        listen=place.listen or f"{LOOPBACK}:0",
        advertise=None,
        coordinator=address,
        state_dir=out / "agents" / name / "state",
        tls=NodeTls(insecure=True),
        shard=i + 1,
        durability=durability,
    )
    return Node(NodeSetup(config, run, i, build_oracle(run, i, data_root=data_root), Security(), None, place.dial))
