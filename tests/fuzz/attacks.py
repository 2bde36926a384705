"""What a hostile peer can do to a server: each attack is a coroutine that returns how many inputs it sent.

An input is a connection, a request, a frame of HTTP/2 or a message on a stream.  Everything here runs on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio

from dpgt_node.errors import PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, Security, agent_identity
from dpgt_node.wire import codec, services
from tests.fuzz import http2
from tests.fuzz.cases import PROFILES, kind_of, split
from tests.fuzz.mutate import generate, mutate
from tests.wire.vectors import uploaded

BROKEN = (OSError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError, EOFError)
REPLY_S, READY_S = 3.0, 30.0
METHODS = (
    b"/dpgt.v1.Agent/Exchange", b"/dpgt.v1.Coordinator/Join", b"/dpgt.v1.Coordinator/Upload",
    b"/dpgt.v1.Coordinator/Control", b"/dpgt.v1.Coordinator/Status", b"/grpc.health.v1.Health/Check",
    b"/grpc.health.v1.Health/Watch", b"/dpgt.v1.Coordinator/Shutdown", b"/", b"", b"Status", b"/dpgt.v1.Agent/",
    b"/" + b"a" * 3000, b"/\xff\x00\xfe", b"/dpgt.v1.Agent/Exchange\x00",
)  # fmt: skip
# Without TLS anybody may control a run: there is nobody to tell from an operator.
NO_CONTROL = tuple(path for path in METHODS if not path.endswith(b"/Control"))
STATUS = b"/dpgt.v1.Coordinator/Status"
NAMES = (b"agent-9", b"mallory", b"", b"a" * 64, b"agent 9", b"../agent", b"\x80\xff", b"agent-9\n")


@dataclass(frozen=True)
class Target:
    """One server and what the attacker holds.  ``folders``: start-up folders by identity; None: a plain run."""

    host: str
    port: int
    identity: str
    folders: Path | None

    @property
    def methods(self) -> tuple[bytes, ...]:
        return NO_CONTROL if self.folders is None else METHODS

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def security(self, identity: str) -> Security:
        return Security.from_folder(None if self.folders is None else self.folders / identity.replace(":", "-"))

    def context(self, identity: str | None) -> ssl.SSLContext | None:
        """TLS as ``identity``, or without a certificate; None in a plain run."""
        if self.folders is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if identity is not None:
            folder = self.folders / identity.replace(":", "-")
            context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        return context


STRANGER, ENROLLED = agent_identity("agent-9"), agent_identity("agent-3")


async def session(
    target: Target,
    context: ssl.SSLContext | None,
    act: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]],
) -> None:
    """``act`` on one connection; whatever breaks, from the handshake on, ends it quietly."""
    with contextlib.suppress(*BROKEN):
        async with asyncio.timeout(REPLY_S):
            reader, writer = await asyncio.open_connection(target.host, target.port, ssl=context)
        try:
            await act(reader, writer)
        finally:
            writer.transport.abort()


async def drain(reader: asyncio.StreamReader, seconds: float = 0.05) -> bytes:
    """What the server says until it is silent for a while, at most 64 kB."""
    got = b""
    with contextlib.suppress(*BROKEN):
        while len(got) < 65_536:
            async with asyncio.timeout(seconds):
                part = await reader.read(65_536)
            if not part:
                break
            got += part
    return got


# --- before HTTP/2 ----------------------------------------------------------------------------------------------------


async def garbage(target: Target, rng: Random) -> int:
    """Bytes that are no protocol, plain text at a TLS port, HTTP/1.1, half a handshake: a connection each."""
    hello = _client_hello(target)
    upgrade = b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade\r\n"

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        texts = (
            rng.randbytes(rng.choice((1, 9, 500, 20_000))),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\n" + upgrade + b"\r\n",
            http2.PREFACE[: rng.randrange(24)],
            http2.PREFACE + rng.randbytes(200),
            http2.opening(),
            hello,
            hello[: rng.randrange(1, len(hello))],
            hello[:5] + rng.randbytes(len(hello) - 5),
            b"\x16\x03\x01\xff\xff" + rng.randbytes(1000),
            b"\x15\x03\x03\x00\x02\x02\x28",
            b"\x00" * 5000,
        )
        writer.write(rng.choice(texts))
        await writer.drain()
        if rng.random() < 0.3:
            writer.write_eof()
        await drain(reader, 0.02)

    for _ in range(20):
        await session(target, None, act)
    return 20


def _client_hello(target: Target) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = target.context(None) or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def nobody(target: Target, rng: Random) -> int:
    """TLS without a certificate (in a plain run: TLS at all), then a call."""
    context = target.context(None) or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http2.opening() + http2.frame(http2.HEADERS, 5, 1, http2.request(rng.choice(METHODS))))
        await writer.drain()
        await drain(reader, 0.02)

    for _ in range(5):
        await session(target, context, act)
    return 5


# --- HTTP/2 and gRPC framing ------------------------------------------------------------------------------------------


def _call(rng: Random, stream: int, name: bytes, methods: Sequence[bytes]) -> bytes:
    """A request that is wrong in some way, as frames of one stream."""
    more: list[tuple[bytes, bytes]] = [(b"dpgt-agent", name)]
    content = b"application/grpc"
    path = rng.choice(methods)
    match rng.randrange(12):
        case 0:
            content = rng.choice((b"text/html", b"", b"application/grpc+json", b"application/json", b"\xff"))
        case 1:
            more += [(b"x-%d" % i, rng.randbytes(40).hex().encode()) for i in range(rng.choice((10, 100, 150)))]
        case 2:
            more.append((b"grpc-timeout", rng.choice((b"1n", b"99999999H", b"-1S", b"x", b"0S", b"1" * 50))))
        case 3:
            more.append((b"grpc-encoding", rng.choice((b"gzip", b"deflate", b"x"))))
        case 4:
            more.append(rng.choice(((b"Upper", b"x"), (b"a b", b"x"), (b"x-bin", b"!!"), (b":path", b"/again"))))
    head = http2.request(path, more, content_type=content, method=rng.choice((b"POST", b"POST", b"GET", b"PUT")))
    kind = rng.randrange(10)
    if kind == 0:
        return http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, stream, head)
    out = http2.frame(http2.HEADERS, http2.END_HEADERS, stream, head)
    body = bytearray()
    for _ in range(rng.randint(1, 3)):
        data = mutate(generate(rng), rng)
        for part in split(data)[:2] if kind_of(data) < len(PROFILES) else [data[1:]]:
            body += http2.message(part)
    match kind:
        case 1:
            body += http2.message(b"x" * 9, length=rng.choice((0, 3, 100, 2**23 + 1, 2**32 - 1)))
        case 2:
            body += http2.message(b"x" * 9, compressed=rng.choice((1, 2, 255)))
        case 3:
            body = bytearray(rng.randbytes(rng.choice((1, 4, 5, 200))))
    for at in range(0, len(body), 16_384):
        out += http2.frame(http2.DATA, 0, stream, bytes(body[at : at + 16_384]))
    match kind:
        case 4 | 5:
            out += http2.frame(http2.RST, 0, stream, struct.pack(">I", rng.choice((0, 8, 99))))
        case 6:
            out = out[: len(out) - rng.randrange(1, 9)]  # the next frame begins inside this one
        case 7:
            pass  # left open
        case _:
            out += http2.frame(http2.DATA, http2.END_STREAM, stream)
    return out


async def calls(target: Target, rng: Random) -> int:
    """Many wrong requests on one connection, by nobody or by a stranger with a certificate of the deployment."""
    sent = 0

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(http2.opening())
        for number in range(40):
            writer.write(_call(rng, 2 * number + 1, rng.choice(NAMES), target.methods))
            sent += 1
            if number % 8 == 7:
                async with asyncio.timeout(REPLY_S):
                    await writer.drain()
                await drain(reader, 0.005)
            if writer.transport.is_closing():
                return
        await drain(reader, 0.05)

    for _ in range(4):
        await session(target, target.context(STRANGER), act)
    return sent


async def frames(target: Target, rng: Random) -> int:
    """Frames of any kind, flag, stream and length; floods of SETTINGS, PING, CONTINUATION, PRIORITY, WINDOW_UPDATE."""
    sent = 0
    head = http2.request(STATUS)
    more = http2.frame(http2.CONTINUATION, 0, 1, http2.block([(b"a", b"b" * 900)]))
    floods = (
        http2.frame(http2.SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x01"),
        http2.frame(http2.PING, 0, 0, bytes(8)),
        http2.frame(http2.HEADERS, 0, 1, head) + 3 * more,
        http2.frame(http2.PRIORITY, 0, 1, bytes(5)),
        http2.frame(http2.WINDOW, 0, 0, struct.pack(">I", 1)),
    )

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        settings = (b"", b"\x00\x04\x7f\xff\xff\xff", b"\x00\x01\xff\xff\xff\xff", b"\x00\x05")
        writer.write(http2.opening(rng.choice(settings)))
        if rng.random() < 0.5:
            for _ in range(100):
                payload = rng.randbytes(rng.choice((0, 4, 5, 8, 8, 100)))
                length = rng.choice((None, None, None, None, 2**24 - 1, 0))
                stream = rng.choice((0, 1, 1, 2, 3, 2**31 - 1, 2**31))
                writer.write(http2.frame(rng.randrange(12), rng.randrange(256), stream, payload, length=length))
                sent += 1
        else:
            flood = rng.choice(floods)
            for _ in range(20):
                writer.write(flood * 20)
                sent += 20
                async with asyncio.timeout(REPLY_S):
                    await writer.drain()
        await drain(reader)

    await session(target, target.context(STRANGER), act)
    return sent


async def resets(target: Target, rng: Random) -> int:
    """A call opened and reset at once, again and again."""
    sent = 0

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(http2.opening())
        for number in range(300):
            head = http2.request(rng.choice(NO_CONTROL[:6]), [(b"dpgt-agent", b"agent-9")])
            stream = 2 * number + 1
            writer.write(http2.frame(http2.HEADERS, 4, stream, head) + http2.frame(http2.RST, 0, stream, b"\0\0\0\x08"))
            sent += 1
            if number % 50 == 49:
                async with asyncio.timeout(REPLY_S):
                    await writer.drain()
        await drain(reader)

    await session(target, target.context(STRANGER), act)
    return sent


# --- what costs the attacker nothing and might cost the server --------------------------------------------------------


async def hold(target: Target, count: int, until: asyncio.Event) -> int:
    """``count`` connections that say nothing, or half of what they should, and stay until told."""
    writers = []
    for number in range(count):
        try:
            async with asyncio.timeout(REPLY_S):
                _, writer = await asyncio.open_connection(target.host, target.port)
        except BROKEN:
            continue
        writers.append(writer)
        if target.folders is None and number % 2:
            writer.write(http2.opening())
        if number % 100 == 99:
            await asyncio.sleep(0)
    await until.wait()
    for writer in writers:
        writer.transport.abort()
    return count


async def drip(target: Target, count: int, until: asyncio.Event) -> int:
    """Slow loris: ``count`` connections, each a byte now and then of something that begins well."""
    hello = _client_hello(target) if target.folders is not None else http2.opening()
    head = http2.frame(http2.HEADERS, 4, 1, http2.request(METHODS[1], [(b"dpgt-agent", b"agent-9")]))

    async def one(text: bytes) -> None:
        async def act(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for byte in text:
                writer.write(bytes((byte,)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await until.wait()
                if until.is_set() or writer.transport.is_closing():
                    return
            await until.wait()

        await session(target, None, act)

    await asyncio.gather(*(one(hello + (head if target.folders is None else b"")) for _ in range(count)))
    return count


async def idle_streams(target: Target, count: int, until: asyncio.Event) -> int:
    """Calls that are opened and never used, on a few connections."""
    sent = 0
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(4):
            reader, writer = None, None
            with contextlib.suppress(*BROKEN):
                reader, writer = await asyncio.open_connection(target.host, target.port, ssl=target.context(STRANGER))
                stack.callback(writer.transport.abort)
                writer.write(http2.opening())
                for number in range(count // 4):
                    head = http2.request(METHODS[number % 3], [(b"dpgt-agent", b"agent-9")])
                    writer.write(http2.frame(http2.HEADERS, 4, 2 * number + 1, head))
                    sent += 1
                await writer.drain()
                stack.callback(asyncio.ensure_future(drain(reader, 3600)).cancel)
        await until.wait()
    return sent


# --- what only somebody with a certificate (or, in a plain run, anybody) can try --------------------------------------


async def _refused(work: Awaitable[Any]) -> str:
    """The status of a call that must not succeed."""
    try:
        async with asyncio.timeout(20):
            await work
    except PeerError as error:
        return error.grpc_status
    raise AssertionError("a hostile call was answered")


async def impostor_if_there_is_room(target: Target, rng: Random) -> int:
    """The same where all connections may be taken."""
    try:
        return await impostor(target, rng)
    except TimeoutError:
        return 1
    except (AssertionError, PeerError) as error:
        if "UNAVAILABLE" not in (str(error), getattr(error, "grpc_status", "")):
            raise
        return 1


async def impostor(target: Target, rng: Random) -> int:
    """An agent's certificate used for what it does not cover; in a plain run, a name that is not in it."""
    coordinator = target.identity == COORDINATOR_IDENTITY
    enrolled = target.folders is not None
    async with target.security(ENROLLED if enrolled else STRANGER).opener(target.identity)(target.address) as channel:
        async with asyncio.timeout(READY_S):
            await channel.channel_ready()
        if not coordinator:
            if target.identity == agent_identity("agent-2"):  # agent-3 has no edge to it
                status = await _refused(_exchange(channel, "agent-3" if enrolled else "agent-9"))
                assert status == "PERMISSION_DENIED", status
            return 1
        sent = 1
        if enrolled:
            for action in ("stop", "pause", "resume"):
                request = m.ControlRequest(action, "mine")
                status = await _refused(services.control(channel, request, timeout_s=20))
                assert status == "PERMISSION_DENIED", status
        status = await _refused(_upload(channel, "agent-9", rng))
        assert status in ("PERMISSION_DENIED", "FAILED_PRECONDITION", "UNAVAILABLE"), status  # the last: in mid-write
        for first in (
            m.Done(0, 0, 0),
            m.Ready(),
            m.Heartbeat(),
            m.FinishedReport("finished", 1, 1, {}, m.MetricsReport(0)),
        ):
            status = await _refused(_say(channel, "agent-9", first))
            assert status == "INVALID_ARGUMENT", status
            sent += 1
        for name in ("agent-1", "agent-3"):
            if enrolled or name != "agent-3":
                await _twin(channel, name, "agent-9" if not enrolled else "agent-3")
                sent += 1
        return sent + 4


async def _exchange(channel: grpc.aio.Channel, name: str) -> None:
    """Refused before anything is sent; gRPC loses the status of a refusal that comes in the midst of a write."""
    call = services.exchange(channel, name)
    while await call.read() is not None:
        pass


async def _upload(channel: grpc.aio.Channel, name: str, rng: Random) -> None:
    sent = [*codec.encode_vectors(bytes(16), "agent-1", [codec.study_payload(3, _ones())], study=True)]
    await uploaded(channel, name, [*sent, rng.randbytes(30)])


def _ones() -> Any:
    import numpy as np

    return np.ones(3)


async def _say(channel: grpc.aio.Channel, name: str, first: m.AgentMessage) -> None:
    call = services.join(channel, name)
    with contextlib.suppress(PeerError):
        await call.write(first)
    await call.read()


async def _twin(channel: grpc.aio.Channel, register_as: str, caller: str) -> None:
    """A second process of an agent that is here, or a registration in another's name: Refused, and nothing else."""
    call = services.join(channel, caller)
    register = m.Register(
        register_as, "0" * 64, '{"a": 1}', "127.0.0.1:1", 3, 3, "0" * 64, -1, -1, -1, False, b"", bytes(16), "0.1.0"
    )
    await call.write(register)
    answer = await call.read()
    assert isinstance(answer, m.Refused) and answer.kind == "identity", answer
    call.cancel()


async def stranger(target: Target, rng: Random) -> int:
    """Calls of gRPC's own client, as somebody who is not in the run: mutated messages on Join, Exchange and Upload."""
    sent = 0
    async with target.security(STRANGER).opener(target.identity)(target.address) as channel:
        method: Any
        for _ in range(20):
            path = rng.choice(target.methods[:4]).decode()
            streams = path.endswith(("Exchange", "Join", "Upload"))
            method = (channel.stream_stream if streams else channel.stream_unary)(path)
            data = [mutate(generate(rng), rng) for _ in range(rng.randint(1, 4))]
            parts = [part for d in data for part in (split(d) if kind_of(d) < len(PROFILES) else [d[1:]])]
            sent += len(parts)
            call = method(metadata=grpc.aio.Metadata((services.NAME_METADATA, "agent-9")), timeout=10)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.BaseError):
                for part in parts:
                    await call.write(part)
                if rng.random() < 0.7:
                    await call.done_writing()
                    async with asyncio.timeout(10):
                        await call.code()
            call.cancel()
    return sent


ATTACKS: tuple[tuple[Callable[[Target, Random], Awaitable[int]], int], ...] = (
    (garbage, 4),
    (nobody, 3),
    (calls, 12),
    (frames, 10),
    (resets, 4),
    (impostor_if_there_is_room, 1),
    (stranger, 6),
)
"""With how often each is chosen."""
