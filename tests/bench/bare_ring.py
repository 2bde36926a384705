"""The least a gRPC deployment of this shape can cost: n processes in a ring, open streams, mTLS, a barrier every round.

    python -m tests.bench.bare_ring --agents 5 --rounds 2000 --bytes 1760

Every agent sends one message of ``--bytes`` to the next agent and, when its own input came, one short message to the
coordinator, which answers all agents when all reported.  No vectors are made, checked, hashed, stored or mixed.
Prints one line of JSON: rounds per second from the first barrier to the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import grpc.aio

from dpgt_node.runtime.process import tune_malloc
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, Security, agent_identity
from dpgt_node.runtime.trust.tls import CertificateAuthority
from dpgt_node.wire import services

BARRIER = bytes(10)


async def coordinator(folder: Path, n: int, rounds: int) -> None:
    done = 0
    opened = asyncio.Event()
    begin = [0.0]
    arrived = 0
    finished = asyncio.Event()

    async def join(_: object, context) -> None:
        nonlocal arrived, done, opened
        arrived += 1
        while arrived < n:
            await asyncio.sleep(0.01)
        begin[0] = begin[0] or time.monotonic()
        await context.write(BARRIER)
        for k in range(rounds):
            await context.read()
            done += 1
            event = opened
            if done == n:
                done, opened = 0, asyncio.Event()
                if k == rounds - 1:
                    print(json.dumps({"rounds_per_second": rounds / (time.monotonic() - begin[0])}), flush=True)
                    finished.set()
                event.set()
            else:
                await event.wait()
            await context.write(BARRIER)

    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    handler = grpc.method_handlers_generic_handler("b.C", {"J": grpc.stream_stream_rpc_method_handler(join)})
    server.add_generic_rpc_handlers((handler,))
    security = Security.from_folder(folder / "coordinator")
    port = server.add_secure_port("127.0.0.1:0", security.server_credentials())
    await server.start()
    (folder / "address").write_text(f"127.0.0.1:{port}")
    await finished.wait()
    await asyncio.sleep(0.2)
    await server.stop(0)


async def agent(folder: Path, i: int, n: int, rounds: int, nbytes: int) -> None:
    inputs: asyncio.Queue[bytes] = asyncio.Queue()

    async def exchange(_: object, context) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            inputs.put_nowait(message)

    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    handler = grpc.method_handlers_generic_handler("b.A", {"E": grpc.stream_stream_rpc_method_handler(exchange)})
    server.add_generic_rpc_handlers((handler,))
    security = Security.from_folder(folder / f"agent-{i}")
    port = server.add_secure_port("127.0.0.1:0", security.server_credentials())
    await server.start()
    (folder / f"port-{i}").write_text(str(port))
    target = folder / f"port-{(i + 1) % n}"
    while not (target.exists() and target.read_text() and (folder / "address").exists()):
        await asyncio.sleep(0.01)
    peer = security.opener(agent_identity(f"agent-{(i + 1) % n}"))(f"127.0.0.1:{target.read_text()}")
    barrier = security.opener(COORDINATOR_IDENTITY)((folder / "address").read_text())
    out = peer.stream_stream("/b.A/E")()
    up = barrier.stream_stream("/b.C/J")()
    await up.read()
    body = bytes(nbytes)
    for _ in range(rounds):
        await out.write(body)
        await inputs.get()
        await up.write(BARRIER)
        await up.read()
    await server.stop(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=1760)
    parser.add_argument("--role", default="")
    parser.add_argument("--folder", type=Path)
    o = parser.parse_args()
    if o.role:
        tune_malloc()
        job = (
            coordinator(o.folder, o.agents, o.rounds)
            if o.role == "c"
            else agent(o.folder, int(o.role), o.agents, o.rounds, o.bytes)
        )
        asyncio.run(job)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = CertificateAuthority.create()
        authority.write_folder(folder / "coordinator", COORDINATOR_IDENTITY, ["127.0.0.1"])
        for i in range(o.agents):
            authority.write_folder(folder / f"agent-{i}", agent_identity(f"agent-{i}"), ["127.0.0.1"])
        command = [sys.executable, "-m", "tests.bench.bare_ring", "--folder", name, "--agents", str(o.agents)]
        command += ["--rounds", str(o.rounds), "--bytes", str(o.bytes)]
        children = [
            subprocess.Popen([*command, "--role", role], stderr=subprocess.DEVNULL)
            for role in ["c", *map(str, range(o.agents))]
        ]
        for child in children:
            child.wait()


if __name__ == "__main__":
    main()
