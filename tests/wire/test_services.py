"""Both services over real sockets: values in, values out, and no exception of gRPC's on the way."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest

from dpgt_node.errors import Broken, ConfigError, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.wire import services
from dpgt_node.wire.codec import Reassembler, encode_vectors, study_payload
from tests.wire.vectors import LARGE, RUN_ID, SENDER, gate, payload, uploaded

NOBODY = m.StatusReply("waiting", -1, 5, RUN_ID, "test", 0.0, ())


class Coordinator:
    """Answers the way a test wants."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.over = asyncio.Event()
        self.refusal: PeerError | None = None

    async def join(self, stream: services.ServerStream[m.AgentMessage, m.CoordinatorMessage]) -> None:
        try:
            self.heard.append(stream.agent_name())
            if self.refusal is not None:
                raise self.refusal
            while (message := await stream.read()) is not None:
                self.heard.append(message)
                if isinstance(message, m.Done):
                    await stream.write(m.GoMessage(message.k + 1))
        finally:
            self.over.set()

    async def upload(self, stream: services.ServerStream[bytes, m.UploadReply]) -> None:
        reassembler = Reassembler(gate(LARGE, streams="X", study=True))
        count = 0
        while (frame := await stream.read()) is not None:
            if taken := len(reassembler.feed(frame)):
                count += taken
                await stream.write(m.UploadReply(count))
        if (broken := reassembler.finish()) is not None:
            raise PeerError(broken, grpc_status="ABORTED")

    async def status(self, request: m.StatusRequest, caller: services.Caller) -> m.StatusReply:
        assert not caller.secure and caller.identity is None
        return NOBODY

    async def control(self, request: m.ControlRequest, caller: services.Caller) -> m.ControlReply:
        if request.action == "stop":
            raise PeerError("only operators may stop", grpc_status="PERMISSION_DENIED")
        return m.ControlReply(True, request.action + request.reason)


class Agent:
    def __init__(self) -> None:
        self.broken: list[str | None] = []
        self.over = asyncio.Event()

    async def exchange(self, stream: services.ServerStream[bytes, m.ExchangeReply]) -> None:
        try:
            await stream.write(m.Resume("agent-2", RUN_ID, 0, 0))
            reassembler = Reassembler(gate(LARGE))
            try:
                while (frame := await stream.read()) is not None:
                    for got in reassembler.feed(frame):
                        await stream.write(m.Received(got.k))
            finally:
                self.broken.append(reassembler.finish())
        finally:
            self.over.set()


@asynccontextmanager
async def serving(handler: grpc.GenericRpcHandler) -> AsyncIterator[tuple[grpc.aio.Server, grpc.aio.Channel]]:
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    server.add_generic_rpc_handlers([handler])
    port = services.bind(server, "127.0.0.1:0", None, "test")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=services.CHANNEL_OPTIONS) as channel:
        yield server, channel
    await server.stop(None)


async def test_a_call_has_one_writer_and_sends_its_headers_once() -> None:
    """A writer that is cancelled with the headers under way leaves them to the next one; nothing else is lost."""

    class Desk(Coordinator):
        async def join(self, stream: services.ServerStream[m.AgentMessage, m.CoordinatorMessage]) -> None:
            first = asyncio.ensure_future(stream.write(m.GoMessage(1)))
            await asyncio.sleep(0)  # its turn: the headers are on their way
            with pytest.raises(Broken, match="one writer at a time"):
                await stream.write(m.GoMessage(2))
            first.cancel()
            await asyncio.wait([first])
            for k in (3, 4):
                await stream.write(m.GoMessage(k))

    async with asyncio.timeout(20), serving(services.coordinator_handler(Desk())) as (_, channel):
        call = services.join(channel, "agent-1")
        assert [await call.read() for _ in range(3)] == [m.GoMessage(3), m.GoMessage(4), None]


async def test_join_carries_values_both_ways() -> None:
    coordinator = Coordinator()
    async with serving(services.coordinator_handler(coordinator)) as (_, channel):
        call = services.join(channel, "agent-1")
        for k in range(3):
            await call.write(m.Done(k, k - 1, 100 * k))
            assert await call.read() == m.GoMessage(k + 1)
        await call.write(m.Failed(70, "a bug"))
        await call.done_writing()
        assert await call.read() is None
    assert coordinator.heard == [
        "agent-1",
        m.Done(0, -1, 0),
        m.Done(1, 0, 100),
        m.Done(2, 1, 200),
        m.Failed(70, "a bug"),
    ]


async def test_unary_calls() -> None:
    async with serving(services.coordinator_handler(Coordinator())) as (_, channel):
        assert await services.status(channel, timeout_s=20) == NOBODY
        reply = await services.control(channel, m.ControlRequest("pause", "!"), timeout_s=20)
        assert reply == m.ControlReply(True, "pause!")
        with pytest.raises(PeerError, match="only operators may stop") as caught:
            await services.control(channel, m.ControlRequest("stop"), timeout_s=20)
        assert caught.value.grpc_status == "PERMISSION_DENIED"


async def test_exchange_carries_frames_unchanged() -> None:
    agent = Agent()
    async with serving(services.agent_handler(agent)) as (_, channel):
        call = services.exchange(channel, SENDER)
        assert await call.read() == m.Resume("agent-2", RUN_ID, 0, 0)
        for k in range(2):
            for frame in encode_vectors(RUN_ID, SENDER, [payload("X", k, LARGE), payload("Y", k, LARGE)]):
                await call.write(frame)
            assert [await call.read(), await call.read()] == [m.Received(k)] * 2
        await call.done_writing()
        assert await call.read() is None
    assert agent.broken == [None]


async def test_upload_counts_vectors() -> None:
    def frames(rounds: Iterable[int]) -> list[bytes]:
        vectors = (study_payload(k, np.full(LARGE, float(k))) for k in rounds)
        return [frame for v in vectors for frame in encode_vectors(RUN_ID, SENDER, [v], study=True)]

    async with serving(services.coordinator_handler(Coordinator())) as (_, channel):
        assert await uploaded(channel, SENDER, frames([0, 4])) == [1, 2]
        with pytest.raises(PeerError, match=r"X of round 3 .* was incomplete") as caught:
            await uploaded(channel, SENDER, frames([3])[:-1])
        assert caught.value.grpc_status == "ABORTED"


async def test_a_refusal_in_mid_upload_is_no_internal_error() -> None:
    """One in ten of these calls ends before the client's write does, and gRPC then invents a status."""

    class Refuses(Coordinator):
        async def upload(self, stream: services.ServerStream[bytes, m.UploadReply]) -> None:
            raise PeerError("not now", grpc_status="FAILED_PRECONDITION")

    large = study_payload(0, np.zeros(1_000_000))
    async with serving(services.coordinator_handler(Refuses())) as (_, channel):
        for _ in range(100):
            with pytest.raises(PeerError) as caught:
                await uploaded(channel, SENDER, encode_vectors(RUN_ID, SENDER, [large], study=True))
            assert caught.value.grpc_status in ("FAILED_PRECONDITION", "UNAVAILABLE"), str(caught.value)


async def test_a_refusal_of_any_length_arrives_with_its_status() -> None:
    """gRPC would replace the status by INTERNAL when the details are too long for a header."""
    coordinator = Coordinator()
    coordinator.refusal = PeerError("no, because " + "x" * 20_000, grpc_status="ALREADY_EXISTS")
    async with serving(services.coordinator_handler(coordinator)) as (_, channel):
        with pytest.raises(PeerError, match="no, because xxx") as caught:
            await services.join(channel, "agent-1").read()
    assert caught.value.grpc_status == "ALREADY_EXISTS"


@pytest.mark.parametrize("garbage", [b"\xff", b"", b"\x0a\x02\x08\x01"])
async def test_garbage_on_join_is_answered_not_raised(garbage: bytes) -> None:
    async with serving(services.coordinator_handler(Coordinator())) as (_, channel):
        call: Any = channel.stream_stream(f"/{services.COORDINATOR_SERVICE}/Join")(
            metadata=grpc.aio.Metadata((services.NAME_METADATA, "agent-1"))
        )
        await call.write(garbage)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", ["Status", "Control"])
async def test_garbage_on_unary_calls_is_answered(method: str) -> None:
    async with serving(services.coordinator_handler(Coordinator())) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{services.COORDINATOR_SERVICE}/{method}")(b"\xff")  # type: ignore[var-annotated]
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_bad_vector_ends_the_stream_with_its_status() -> None:
    async with serving(services.agent_handler(Agent())) as (_, channel):
        call = services.exchange(channel, SENDER)
        assert isinstance(await call.read(), m.Resume)
        await call.write(next(encode_vectors(RUN_ID, "agent-9", [payload("X", 0, LARGE)])))
        with pytest.raises(PeerError, match="sender 'agent-9' on the call of agent-1") as caught:
            await call.read()
        assert caught.value.grpc_status == "PERMISSION_DENIED"


@pytest.mark.parametrize("name", ["", "no name", "a" * 64])
async def test_without_certificates_callers_state_their_name(name: str) -> None:
    async with serving(services.coordinator_handler(Coordinator())) as (_, channel):
        with pytest.raises(PeerError, match="states no agent name") as caught:
            await services.join(channel, name).read()
    assert caught.value.grpc_status == "UNAUTHENTICATED"


async def test_a_client_cancelled_in_mid_vector() -> None:
    """Either the handler is cancelled or the stream just ends; in both cases nothing half is handed on."""
    agent = Agent()
    async with serving(services.agent_handler(agent)) as (_, channel):
        call = services.exchange(channel, SENDER)
        assert isinstance(await call.read(), m.Resume)
        header, first, *_ = encode_vectors(RUN_ID, SENDER, [payload("X", 0, LARGE)])
        await call.write(header)
        await call.write(first)
        call.cancel()
        await asyncio.wait_for(agent.over.wait(), 20)
    assert agent.broken[0] is None or "was incomplete" in agent.broken[0]


async def test_a_server_that_goes_away() -> None:
    """A write raises InvalidStateError and a read AioRpcError in grpc.aio; here both are PeerError."""
    async with serving(services.agent_handler(Agent())) as (server, channel):
        call = services.exchange(channel, SENDER)
        assert isinstance(await call.read(), m.Resume)
        await server.stop(None)
        with pytest.raises(PeerError) as caught:
            await call.read()
        assert caught.value.grpc_status in {"UNAVAILABLE", "CANCELLED"}
        with pytest.raises(PeerError) as caught:
            await call.write(b"\x12\x00")
        assert caught.value.grpc_status in {"UNAVAILABLE", "CANCELLED"}
        await call.done_writing()
        call.cancel()


async def test_a_caller_that_goes_away_while_it_is_written_to() -> None:
    class Talker:
        def __init__(self) -> None:
            self.end: BaseException | None = None
            self.over = asyncio.Event()

        async def exchange(self, stream: services.ServerStream[bytes, m.ExchangeReply]) -> None:
            try:
                while True:
                    await stream.write(m.Received(1))
            except BaseException as error:
                self.end = error
                raise
            finally:
                self.over.set()

    talker = Talker()
    async with serving(services.agent_handler(talker)) as (_, channel):
        call = services.exchange(channel, SENDER)
        assert await call.read() == m.Received(1)
        call.cancel()
        await asyncio.wait_for(talker.over.wait(), 20)
    assert isinstance(talker.end, PeerError | asyncio.CancelledError)


@pytest.mark.parametrize("error", [PeerError("not now", grpc_status="UNAVAILABLE"), None], ids=["refused", "in order"])
async def test_a_call_that_ends_while_it_is_written_to_has_its_status(
    error: PeerError | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the caller waits for ever on a call that nobody serves, and its edge with it."""

    class Hasty:
        async def exchange(self, stream: services.ServerStream[bytes, m.ExchangeReply]) -> None:
            writing = asyncio.ensure_future(stream.write(m.Received(1)))
            await asyncio.sleep(0)  # it is under way
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            if error is not None:
                raise error

    async with serving(services.agent_handler(Hasty())) as (_, channel):
        call = services.exchange(channel, SENDER)
        async with asyncio.timeout(30):
            if error is None:
                while await call.read() is not None:
                    pass
            else:
                with pytest.raises(PeerError, match="not now"):
                    while True:
                        await call.read()
    assert caplog.text == ""


async def test_nobody_listens() -> None:
    with socket.socket() as taken:  # bound, not listening: nobody else can listen here meanwhile
        taken.bind(("127.0.0.1", 0))
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{taken.getsockname()[1]}", options=services.CHANNEL_OPTIONS
        ) as channel:
            for attempt in (
                services.status(channel, timeout_s=20),
                services.exchange(channel, SENDER).read(),
                services.join(channel, SENDER).write(m.Ready()),
                services.upload(channel, SENDER).write(b"\x12\x00"),
            ):
                with pytest.raises(PeerError) as caught:
                    await attempt
                assert caught.value.grpc_status == "UNAVAILABLE"


async def test_a_busy_port_is_the_operators_problem() -> None:
    first, second = (grpc.aio.server(options=services.SERVER_OPTIONS) for _ in range(2))
    port = services.bind(first, "127.0.0.1:0", None, "node.toml")
    assert port > 0
    await first.start()
    try:
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}") as caught:
            services.bind(second, f"127.0.0.1:{port}", None, "node.toml")
        assert [(p.source, p.key) for p in caught.value.problems] == [("node.toml", "listen")]
    finally:
        await first.stop(None)


async def test_without_the_option_two_servers_share_a_port() -> None:
    """Mutant: this is what the option prevents."""
    options = [(name, 1 if name == "grpc.so_reuseport" else value) for name, value in services.SERVER_OPTIONS]
    first, second = (grpc.aio.server(options=options) for _ in range(2))
    port = services.bind(first, "127.0.0.1:0", None, "node.toml")
    assert services.bind(second, f"127.0.0.1:{port}", None, "node.toml") == port


@pytest.mark.parametrize(
    "listen", ["192.0.2.1:0", "no-such-host.invalid:0", "127.0.0.1:99999", "127.0.0.1", ":1", "127.0.0.1:"]
)
async def test_addresses_that_cannot_be_listened_on(listen: str) -> None:
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    with pytest.raises(ConfigError, match="cannot listen on"):
        services.bind(server, listen, None, "node.toml")


async def test_http_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:9")
    assert os.environ["http_proxy"]
    async with serving(services.coordinator_handler(Coordinator())) as (_, channel):
        assert await services.status(channel, timeout_s=20) == NOBODY


@pytest.mark.parametrize(
    ("names", "identity"),
    [
        ([b"dpgt:agent:a", b"a.agent.dpgt", b"localhost"], "dpgt:agent:a"),
        ([b"localhost", b"dpgt:coordinator"], "dpgt:coordinator"),
        ([b"localhost"], None),
        ([], None),
        ([b"dpgt:agent:a", b"dpgt:agent:b"], None),
    ],
)
def test_identity_from_auth_context(names: list[bytes], identity: str | None) -> None:
    assert services.identity_from_auth_context({"x509_subject_alternative_name": names}) == identity
    assert services.identity_from_auth_context({}) is None


class BreakingCall:
    """What grpc.aio's call does when its connection breaks in the middle of an operation (seen under attack)."""

    async def write(self, _: bytes) -> None:
        raise grpc.aio.InternalError("execute_batch")

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    async def details(self) -> str:
        return "the\nconnection \x1b[2J broke"

    async def done_writing(self) -> None:
        raise grpc.aio.InternalError("execute_batch")


async def test_a_connection_that_breaks_in_the_midst_of_a_write() -> None:
    stream: services.ClientStream[bytes, bytes] = services.ClientStream(BreakingCall(), bytes, bytes, "Join")
    await stream.done_writing()
    with pytest.raises(PeerError) as caught:
        await stream.write(b"x")
    assert caught.value.grpc_status == "UNAVAILABLE"
    assert str(caught.value) == "the; connection ?[2J broke", "what a server says is one printable line"


@pytest.mark.parametrize("host", ["dns", "unix", "ipv4", "vsock"])
async def test_a_host_that_is_called_like_a_scheme_is_a_host(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a host is called to by name; that it is not known here is all that can be wrong with it."""
    async with grpc.aio.insecure_channel(services.target(f"{host}:7"), options=services.CHANNEL_OPTIONS) as channel:
        with pytest.raises(PeerError, match=f"{host}:7"):
            await services.status(channel, timeout_s=20.0)
    known = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: known)
    server = grpc.aio.server()
    assert services.bind(server, f"{host}:0", None, "test") > 0
    await server.stop(0)
