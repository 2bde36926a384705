"""The least a gRPC deployment of this shape can cost: n processes in a ring, open streams, mTLS, a barrier every round.

Every agent sends one message to the next agent and, when its own input came, one short message to the coordinator,
which answers all agents when all reported.  No vectors are made, checked, hashed, stored or mixed.

``python -m dpgt_node.bench.speed.bare_ring JSON`` prints the rounds per second from the first barrier to the last, and
the processor time of a round of an agent and of the coordinator, ms.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dpgt_node.bench.children import ChildFailed, side_by_side
from dpgt_node.runtime.process import taking_turns, tune_malloc
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, Security, agent_identity
from dpgt_node.runtime.trust.tls import CertificateAuthority
from dpgt_node.wire import services

BARRIER = bytes(10)
POLL_S = 0.01


class Coordinator:
    """Answers ``n`` agents when all have reported, ``rounds`` times."""

    def __init__(self, n: int, rounds: int) -> None:
        self._n, self._rounds = n, rounds
        self._here = self._done = 0
        self._begun = asyncio.Event()
        self._opened = asyncio.Event()
        self._finished = asyncio.Event()
        self._begin_s = self._begin_cpu_s = self._end_s = self._end_cpu_s = 0.0

    async def serve(self, folder: Path) -> dict[str, float]:
        server, port = await served(folder / "coordinator", "b.C", "J", self._join)
        write(folder / "address", f"127.0.0.1:{port}")
        await self._finished.wait()
        await asyncio.sleep(0.2)  # the last answers are on their way
        await server.stop(0)
        seconds, cpu_s = self._end_s - self._begin_s, self._end_cpu_s - self._begin_cpu_s
        return {"rounds_per_second": self._rounds / seconds, "cpu_ms": 1e3 * cpu_s / self._rounds}

    async def _join(self, _: object, context: Any) -> None:
        self._here += 1
        if self._here == self._n:
            self._begin_s, self._begin_cpu_s = time.monotonic(), time.process_time()
            self._begun.set()
        await self._begun.wait()
        await context.write(BARRIER)
        for k in range(self._rounds):
            await context.read()
            await self._all_reported(k)
            await context.write(BARRIER)

    async def _all_reported(self, k: int) -> None:
        self._done += 1
        event = self._opened
        if self._done < self._n:
            await event.wait()
            return
        self._done, self._opened = 0, asyncio.Event()
        if k == self._rounds - 1:
            self._end_s, self._end_cpu_s = time.monotonic(), time.process_time()
            self._finished.set()
        event.set()


async def served(folder: Path, service: str, method: str, behave: Any) -> tuple[grpc.aio.Server, int]:
    """A server of one method on a port of its own."""
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    handler: Any = grpc.stream_stream_rpc_method_handler(behave)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    credentials = Security.from_folder(folder).server_credentials()
    if credentials is None:
        raise ChildFailed(f"{folder} has no certificate")
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    return server, port


async def agent(folder: Path, i: int, n: int, rounds: int, frame_bytes: int) -> dict[str, float]:
    inputs: asyncio.Queue[bytes] = asyncio.Queue()

    async def exchange(_: object, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            inputs.put_nowait(message)

    server, port = await served(folder / f"agent-{i}", "b.A", "E", exchange)
    write(folder / f"port-{i}", str(port))
    security = Security.from_folder(folder / f"agent-{i}")
    receiver = (i + 1) % n
    peer = security.opener(agent_identity(f"agent-{receiver}"))(f"127.0.0.1:{await read(folder / f'port-{receiver}')}")
    barrier = security.opener(COORDINATOR_IDENTITY)(await read(folder / "address"))
    out: Any = peer.stream_stream("/b.A/E")()
    up: Any = barrier.stream_stream("/b.C/J")()
    await up.read()
    body, begin_s = bytes(frame_bytes), time.process_time()
    for _ in range(rounds):
        await out.write(body)
        await inputs.get()
        await up.write(BARRIER)
        await up.read()
    cpu_ms = 1e3 * (time.process_time() - begin_s) / rounds
    await server.stop(0)
    return {"cpu_ms": cpu_ms}


def write(path: Path, text: str) -> None:
    """So that a reader sees all of it."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


async def read(path: Path) -> str:
    """Once it is there."""
    while not path.exists():
        await asyncio.sleep(POLL_S)
    return path.read_text()


def measure(folder: Path, agents: int, rounds: int, frame_bytes: int) -> dict[str, float]:
    """One ring, its certificates and addresses in ``folder``.  ChildFailed: a process of it did not finish."""
    authority = CertificateAuthority.create()
    authority.write_folder(folder / "coordinator", COORDINATOR_IDENTITY, ["127.0.0.1"])
    for i in range(agents):
        authority.write_folder(folder / f"agent-{i}", agent_identity(f"agent-{i}"), ["127.0.0.1"])
    common = {"folder": str(folder), "agents": agents, "rounds": rounds, "frame_bytes": frame_bytes}
    with taking_turns(agents + 1):  # as a launch's do
        coordinator, *others = side_by_side("speed.bare_ring", [{**common, "role": role} for role in range(-1, agents)])
    return {
        "rounds_per_second": coordinator["rounds_per_second"],
        "agent_ms": statistics.mean(each["cpu_ms"] for each in others),
        "coordinator_ms": coordinator["cpu_ms"],
    }


def main(given: dict[str, Any]) -> dict[str, float]:
    """The whole ring, or with ``role`` one process of it: -1 is the coordinator."""
    folder, role = Path(given.pop("folder")), given.pop("role", None)
    if role is None:
        return measure(folder, **given)
    tune_malloc()
    if role < 0:
        return asyncio.run(Coordinator(given["agents"], given["rounds"]).serve(folder))
    return asyncio.run(agent(folder, role, given["agents"], given["rounds"], given["frame_bytes"]))


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
