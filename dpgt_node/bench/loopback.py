"""A large vector from one process to another over loopback: raw TCP, and as daemons send it, with and without TLS.

The receiving end hashes and checks as a daemon does, in a thread, and answers when the vector is whole.

``python -m dpgt_node.bench.loopback JSON`` is that end.  It prints its three ports: of raw TCP, without TLS, with TLS.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpgt_node.bench.children import ChildFailed, cpu_s
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.types import Payload
from dpgt_node.runtime.process import tune_malloc
from dpgt_node.runtime.trust.channels import Security, agent_identity
from dpgt_node.runtime.trust.tls import CertificateAuthority
from dpgt_node.wire import services
from dpgt_node.wire.codec import Gate, Reassembler, encode_vectors

RAW, PLAIN, MTLS = "raw TCP", "gRPC, no TLS", "gRPC, mTLS"
SENDER, RECEIVER = "agent-1", "agent-2"
_RUN_ID = bytes(16)


def measure(folder: Path, payloads: list[Payload]) -> dict[str, list[tuple[float, float]]]:
    """(seconds, processor seconds of both ends) of each way for each of ``payloads``, float32, of rounds 0, 1, ..."""
    tune_malloc()
    authority = CertificateAuthority.create()
    for name in (SENDER, RECEIVER):
        authority.write_folder(folder / name, agent_identity(name), ["127.0.0.1"])
    asked = {"folder": str(folder / RECEIVER), "dimension": payloads[0].dimension, "rounds": len(payloads)}
    with _child(asked) as (pid, ports):
        return asyncio.run(_sent(folder / SENDER, ports, pid, payloads))


@contextmanager
def _child(asked: dict[str, Any]) -> Iterator[tuple[int, list[int]]]:
    command = [sys.executable, "-m", "dpgt_node.bench.loopback", json.dumps(asked)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            line = child.stdout.readline()
            if not line:
                raise ChildFailed("the receiving end did not start")
            yield child.pid, json.loads(line)
        finally:
            child.kill()


async def _sent(
    folder: Path, ports: list[int], pid: int, payloads: list[Payload]
) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {RAW: [], PLAIN: [], MTLS: []}
    streams, channels = {}, []
    for way, port, pem in ((PLAIN, ports[1], None), (MTLS, ports[2], folder)):
        opener = Security.from_folder(pem).opener(agent_identity(RECEIVER), vector_bytes=len(payloads[0].data))
        channel = opener(f"127.0.0.1:{port}")
        channels.append(channel)
        streams[way] = services.exchange(channel, SENDER, wait_for_ready=True)
        await streams[way].read()

    def used_s() -> float:
        return time.process_time() + (cpu_s(pid) or 0.0)

    with socket.create_connection(("127.0.0.1", ports[0])) as raw:
        for payload in payloads:
            begin, used = time.perf_counter(), used_s()
            raw.sendall(payload.data)
            raw.recv(1)
            found[RAW].append((time.perf_counter() - begin, used_s() - used))
            for way, stream in streams.items():
                begin, used = time.perf_counter(), used_s()
                for frame in encode_vectors(_RUN_ID, SENDER, [payload]):
                    await stream.write(frame)
                await stream.read()
                found[way].append((time.perf_counter() - begin, used_s() - used))
    for channel in channels:
        await channel.close()
    return found


class _Receiver:
    def __init__(self, gate: Callable[[], Gate]) -> None:
        self._gate = gate

    async def exchange(self, stream: services.ServerStream[bytes, m.ExchangeReply]) -> None:
        await stream.write(m.Received(0))
        reassembler, frames = Reassembler(self._gate()), 0
        while (frame := await stream.read()) is not None:
            frames += 1
            if await asyncio.to_thread(reassembler.feed, frame):
                await stream.write(m.Received(frames))


async def _receive(folder: str, dimension: int, rounds: int) -> None:
    tune_malloc()

    def gate() -> Gate:
        return Gate(_RUN_ID, SENDER, frozenset({"X"}), "float32", dimension, lambda _: (0, rounds))

    raw = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_read, args=(raw, 4 * dimension), daemon=True).start()
    ports, servers = [raw.getsockname()[1]], []
    for pem in (None, Path(folder)):
        server = services.server(1, vector_bytes=4 * dimension)
        server.add_generic_rpc_handlers((services.agent_handler(_Receiver(gate)),))
        ports.append(services.bind(server, "127.0.0.1:0", Security.from_folder(pem).server_credentials(), "bench"))
        await server.start()
        servers.append(server)
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def _read(server: socket.socket, nbytes: int) -> None:
    connection, _ = server.accept()
    buffer = memoryview(bytearray(nbytes))
    while True:
        end = 0
        while end < nbytes:
            came = connection.recv_into(buffer[end:])
            if not came:
                return
            end += came
        connection.sendall(b".")


if __name__ == "__main__":
    asyncio.run(_receive(**json.loads(sys.argv[1])))
