"""Real sockets for the scripts: servers and callers that say what a script tells them, and texts of what they hear.

gRPC over loopback with the messages of ``proto/`` as bytes; nothing of the product but its generated messages.  A
script hears one connection at a time, so its lines come in the script's order, whichever message was first on a
socket.  Heartbeats and reports of edges come when a clock says so and are left out; so are counters of bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tests.golden.adapter import VERSION, RunConfig, agent_pb2, canonical, coordinator_pb2, costs_of, digest

LIMIT_S = 60.0
RUN_ID = bytes(range(16))
OTHER_RUN = bytes(range(16, 32))
AGENT, COORDINATOR = "dpgt.v1.Agent", "dpgt.v1.Coordinator"
SERVER_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.http2.max_ping_strikes", 0))
"""Daemons ask often whether their connection lives."""
UNTIMED = ("heartbeat", "edges")
"""Kinds of messages that a clock sends."""
LEFT_OUT = ("bytes_sent", "gives_up_s", "last_seen_s", "missing_s", "rounds_per_second", "slowest", "spent_us")
Message = Any


class Names:
    """Words for what is another value in each run: ports, ids, folders, spans of time."""

    def __init__(self, run: RunConfig, folder: Path, *, heads: bool = True) -> None:
        """``heads``: whether ledgers hold nothing whose last bit is the machine's."""
        self.json, self.sha256 = canonical(run)
        self._folder = str(folder)
        self._heads = heads
        self._instances: dict[str, list[bytes]] = {}
        self.places: dict[str, str] = {}
        """What listens at an address."""

    def text(self, words: str) -> str:
        """A sentence without what changes."""
        words = words.replace(self._folder, "DIR")
        words = re.sub(r"127\.0\.0\.1:\d+", lambda found: self.places.get(found[0], "ADDRESS"), words)
        words = re.sub(r"\b\d+\.\d s\b", "N s", words)
        return words.replace(VERSION, "VERSION")

    def field(self, name: str, value: Any) -> str:
        """One field of a message."""
        match name:
            case "run_id":
                return {b"": "none", RUN_ID: "RUN", OTHER_RUN: "OTHER-RUN"}.get(value) or digest(value)
            case "run_json" | "run_sha256":
                return "OURS" if value in (self.json, self.sha256) else digest(value.encode())
            case "package_version":
                return value.replace(VERSION, "VERSION")
            case "advertise":
                return self.places.get(value, "ADDRESS")
            case "shape_sha256":
                return value[:12]
            case "digests" | "x_last" | "y_last":
                return f"{len(value) // 16} of 16 bytes"
            case "ledger_head":
                return "none" if not value else value.hex()[:12] if self._heads else "set"
            case "peers":
                return " ".join(f"{peer}={self.places.get(value[peer], 'ADDRESS')}" for peer in sorted(value))
            case _ if isinstance(value, str):
                return repr(self.text(value))
            case _ if isinstance(value, float):
                return f"{value:.9g}"
            case _:
                return str(value)

    def fields(self, message: Message) -> str:
        """All fields of a message, also those that hold their default."""
        parts = []
        for field in message.DESCRIPTOR.fields:
            name, value = field.name, getattr(message, field.name)
            if name in LEFT_OUT:
                continue
            if name == "instance":
                parts.append(f"instance=#{self._number(message.name, value)}")
            elif name == "epsilon" and field.message_type is not None:
                held = costs_of(value)
                parts.append("epsilon=(" + " ".join(f"{key}={held[key]:.9g}" for key in sorted(held)) + ")")
            elif field.message_type is not None and name != "peers" and not hasattr(value, "DESCRIPTOR"):
                parts += [f"{name}=({self.fields(item)})" for item in value]
            elif field.message_type is not None and name != "peers":
                if name != "prefix" or message.HasField(
                    name
                ):  # scripts are older than it, and one that is absent is no byte
                    parts.append(f"{name}=({self.fields(value)})")
            elif field.enum_type is not None:
                parts.append(f"{name}={field.enum_type.values_by_number[value].name}")
            elif field.has_presence and not message.HasField(name):
                parts.append(f"{name}=-")
            else:
                parts.append(f"{name}={self.field(name, value)}")
        return " ".join(parts)

    def message(self, message: Message) -> str:
        """One line for any message of the protocol."""
        if isinstance(message, agent_pb2.Frame):
            if message.chunk:
                return f"Chunk {len(message.chunk)}:{digest(message.chunk)}"
            return "Frame " + " ".join(map(self._vector, message.vectors))
        inner = getattr(message, kind_of(message), message)
        return f"{inner.DESCRIPTOR.name} {self.fields(inner)}".rstrip()

    def _number(self, agent: str, instance: bytes) -> int:
        """The how-manieth process of an agent this is."""
        known = self._instances.setdefault(agent, [])
        if instance not in known:
            known.append(instance)
        return known.index(instance) + 1

    def _vector(self, v: Message) -> str:
        stream, dtype = agent_pb2.Stream.Name(v.stream), agent_pb2.Dtype.Name(v.dtype)
        true = "" if not v.data or hashlib.sha256(v.data).digest() == v.sha256 else " FALSE-HASH"
        run = "" if v.run_id == RUN_ID else f" run={self.field('run_id', v.run_id)}"
        run += f" from byte {v.from_byte}" if v.from_byte else ""
        return f"[{stream}{v.round} of {v.sender} {dtype}x{v.dimension} {v.sha256.hex()[:12]}{run}{true}]"


def kind_of(message: Message) -> str:
    """The word of a message in its oneof; its own name where it has none."""
    return str(message.WhichOneof("kind")) if "kind" in message.DESCRIPTOR.oneofs_by_name else message.DESCRIPTOR.name


class Script:
    """The lines of one scene and what its folders and ports are called."""

    def __init__(self, run: RunConfig, folder: Path, *, heads: bool = True) -> None:
        self.run, self.folder = run, folder
        self.names = Names(run, folder, heads=heads)
        self.lines: list[str] = []
        self._opened: Counter[str] = Counter()

    def title(self, text: str) -> None:
        self.lines.append(f"## {text}")

    def note(self, text: str) -> None:
        self.lines.append(self.names.text(text))

    def label(self, who: str) -> str:
        """The name of the next connection of ``who``."""
        self._opened[who] += 1
        return f"{who}#{self._opened[who]}"

    async def end_of(self, who: str, task: asyncio.Future[Any]) -> None:
        """How a daemon ended: its exit code and its error's words."""
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait([task])
        error = task.exception()
        if error is None:
            self.note(f"{who} ends: exit {int(task.result())}")
        else:
            self.note(f"{who} ends: exit {int(getattr(error, 'exit_code', 70))} {type(error).__name__}: {error}")


class Connection:
    """One call with a daemon: ``<`` is what the script says, ``>`` what the daemon says."""

    def __init__(
        self, script: Script, label: str, write: Callable[[bytes], Any], decode: Callable[[bytes], Any]
    ) -> None:
        self.script, self.label = script, label
        self._write, self._decode = write, decode
        self.came: asyncio.Queue[Message | str] = asyncio.Queue()
        """Messages; at the end a string, how the call ended."""
        self.over: asyncio.Future[tuple[grpc.StatusCode, str] | None] = asyncio.get_running_loop().create_future()
        """Set by the script at a server: return, or abort with this."""

    async def say(self, *messages: Message, raw: bytes | None = None) -> None:
        """Send messages, or bytes that are none."""
        for message in messages:
            self.script.lines.append(f"{self.label} < {self.script.names.message(message)}")
            await self._write(message.SerializeToString())
        if raw is not None:
            self.script.lines.append(f"{self.label} < bytes {raw.hex()}")
            await self._write(raw)

    async def hear(self) -> Message:
        """The daemon's next message that no clock sent.  AssertionError when there is none."""
        async with asyncio.timeout(LIMIT_S):
            while not isinstance(message := await self.came.get(), str) and kind_of(message) in UNTIMED:
                pass
        if isinstance(message, str):
            self.script.lines.append(f"{self.label} > ends: {self.script.names.text(message)}")
            raise AssertionError(f"{self.label} ended: {message}")
        self.script.lines.append(f"{self.label} > {self.script.names.message(message)}")
        return message

    async def until(self, kind: str) -> Message:
        """Hear up to a message of ``kind``."""
        while kind_of(message := await self.hear()) != kind:
            pass
        return message

    async def ends(self) -> None:
        """Hear everything up to the end of the call."""
        with contextlib.suppress(AssertionError):
            while True:
                await self.hear()


class Caller(Connection):
    """A call that the script opened; ``hang_up`` drops it."""

    def __init__(
        self, script: Script, who: str, address: str, service: str, method: str, name: str, reply: Any
    ) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._call: Any = self._channel.stream_stream(f"/{service}/{method}")(metadata=(("dpgt-agent", name),))
        super().__init__(script, script.label(who), self._write_or_not, reply.FromString)
        self._reader = asyncio.ensure_future(self._read())

    async def _write_or_not(self, data: bytes) -> None:
        # A call that the daemon has ended says so when the script listens.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.InternalError):
            await self._call.write(data)

    async def _read(self) -> None:
        try:
            while (data := await self._call.read()) is not grpc.aio.EOF:
                self.came.put_nowait(self._decode(data))
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass
        code, details = await self._call.code(), await self._call.details()
        self.came.put_nowait(f"{code.name} {details!r}" if details else code.name)

    async def last(self) -> None:
        """Nothing more will be said."""
        await self._call.done_writing()

    async def hang_up(self) -> None:
        """End the call from this side."""
        self.script.lines.append(f"{self.label} < hangs up")
        self._call.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    async def close(self) -> None:
        """At the end of a scene."""
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()


class Server:
    """Serves Agent or Coordinator under a name; every call waits in a queue of its method for the script."""

    def __init__(self, script: Script, name: str, decoders: dict[tuple[str, str], Any]) -> None:
        self.script, self.name = script, name
        self.address = ""
        self._calls: dict[str, asyncio.Queue[Connection]] = {}
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        for (service, method), decoder in decoders.items():
            self._calls[method] = asyncio.Queue()
            serve = self._handler(method, decoder)
            handlers = {method: grpc.stream_stream_rpc_method_handler(serve)}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    def _handler(self, method: str, decoder: Any) -> Any:
        async def serve(_: object, context: Any) -> Any:
            caller = str(dict(context.invocation_metadata() or ()).get("dpgt-agent"))
            connection = Connection(self.script, "", context.write, decoder.FromString)
            connection.caller = caller  # type: ignore[attr-defined]
            self._calls[method].put_nowait(connection)
            reading = asyncio.ensure_future(self._read(context, connection))
            try:
                over = await connection.over
            finally:
                reading.cancel()
            if over is not None:
                await context.abort(*over)

        return serve

    @staticmethod
    async def _read(context: Any, connection: Connection) -> None:
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                connection.came.put_nowait(connection._decode(data))
        finally:
            connection.came.put_nowait("hangs up")

    async def start(self, port: int = 0) -> None:
        self.address = f"127.0.0.1:{self._server.add_insecure_port(f'127.0.0.1:{port}')}"
        self.script.names.places[self.address] = self.name
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(grace=0)

    async def accept(self, method: str, who: str) -> Connection:
        """The next call of ``method``; ``who`` is what the script calls it."""
        async with asyncio.timeout(LIMIT_S):
            connection = await self._calls[method].get()
        connection.label = self.script.label(who)
        self.script.lines.append(f"{connection.label} opens as {connection.caller}")  # type: ignore[attr-defined]
        return connection

    def hang_up(self, connection: Connection, status: str | None = None, details: str = "") -> None:
        """End a call from this side, with a status or well."""
        self.script.lines.append(f"{connection.label} < ends: {status or 'OK'} {details}".rstrip())
        if not connection.over.done():
            connection.over.set_result(None if status is None else (grpc.StatusCode[status], details))


def coordinator_server(script: Script) -> Server:
    """What an agent sees of a coordinator."""
    return Server(
        script,
        "coordinator",
        {(COORDINATOR, "Join"): coordinator_pb2.AgentMessage, (COORDINATOR, "Upload"): agent_pb2.Frame},
    )


def agent_server(script: Script, name: str) -> Server:
    """What an agent sees of an out-neighbour."""
    return Server(script, name, {(AGENT, "Exchange"): agent_pb2.Frame})


async def played(script: Script, scene: Awaitable[None]) -> None:
    """Play a scene; where it cannot go on, its last line says why, and the rest is missing in the script."""
    try:
        await scene
    except (AssertionError, TimeoutError) as error:
        script.note(f"!! {type(error).__name__}: {error}")
