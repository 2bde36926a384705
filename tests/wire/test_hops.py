"""On its way in a message meets no thread of gRPC's own pool: counted by how often those were woken."""

from __future__ import annotations

import os
import subprocess
import sys

MESSAGES = 1000
ECHO = f"""
import dpgt_node.cli
import asyncio, pathlib, grpc.aio
from dpgt_node.wire import services

async def echo(_, context):
    while (message := await context.read()) is not grpc.aio.EOF:
        await context.write(message)

def woken():
    found = 0
    for task in pathlib.Path("/proc/self/task").iterdir():
        status = (task / "status").read_text()
        if status.startswith("Name:\\tevent_engine"):
            found += int(status.partition("\\nvoluntary_ctxt_switches:")[2].split()[0])
    return found

async def main():
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    handler = grpc.method_handlers_generic_handler("e.E", {{"E": grpc.stream_stream_rpc_method_handler(echo)}})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{{port}}", options=services.CHANNEL_OPTIONS) as channel:
        call = channel.stream_stream("/e.E/E")()
        for _ in range({MESSAGES}):
            await call.write(b"x")
            await call.read()
        print(woken())
    await server.stop(0)

asyncio.run(main())
"""


def woken(**environment: str) -> int:
    """How often the pool's threads were, in a process that sends ``MESSAGES`` there and back."""
    around = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"} | environment
    done = subprocess.run([sys.executable, "-c", ECHO], env=around, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_message_meets_no_pool_of_threads() -> None:
    """Its timers wake it all the same, a few times a second; with gRPC's own choice each message does, each way."""
    ours, its_own = woken(), woken(GRPC_EXPERIMENTS="")
    assert its_own > MESSAGES
    assert ours < its_own / 3, (ours, its_own)
