"""The honest run that goes on under attack, in a process of its own: ``python -m tests.fuzz.world FOLDER``.

A coordinator and three agents over real gRPC.  Says where they listen, then plays rounds; what is left of them at two
thirds waits until a line arrives on standard input, so that the run is alive as long as the attack.  Then it runs to
its end, compares x_final with the simulator bit by bit and says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path

from dpgt_node.protocol import messages as m
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY
from dpgt_node.wire import services
from tests.runtime import cluster as clusters

IDENTITIES = ("dpgt:agent:agent-3", "dpgt:agent:agent-9", "dpgt:operator")
CONTROL_S = 60.0


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


async def control(cluster: clusters.Cluster, action: m.Action) -> None:
    """Ask as the operator does."""
    opener = cluster.security(COORDINATOR_IDENTITY).opener(COORDINATOR_IDENTITY)
    async with opener(cluster.address) as channel:
        await services.control(channel, m.ControlRequest(action), timeout_s=CONTROL_S)


async def main() -> None:
    """One run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--secure", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    clusters.LIMIT_S = 600.0
    run = clusters.make_run(options.rounds)
    async with clusters.cluster(options.folder, run, secure=options.secure) as cluster:
        told = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        cluster.start_all()
        await cluster.reached(options.rounds // 20)
        for identity in IDENTITIES if options.secure else ():
            cluster.security(identity)
        agents = {name: node._advertise for name, node in cluster.nodes.items()}
        say(coordinator=cluster.address, agents=agents, round=cluster.round("agent-1"))

        def two_thirds() -> bool:
            return told.done() or cluster.round("agent-1") >= 2 * options.rounds // 3

        await clusters.eventually("two thirds of the rounds are played", two_thirds)
        if not told.done():
            await control(cluster, "pause")
        await told
        say(round=cluster.round("agent-1"))
        await control(cluster, "resume")
        await cluster.end()
        cluster.assert_simulators_bits()
        say(finished=True, rounds=options.rounds)


if __name__ == "__main__":
    asyncio.run(main())
