"""What a server gives to strangers, and what of gRPC would otherwise give way to them, on raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from dpgt_node.protocol import messages as m
from dpgt_node.runtime.trust.channels import Security
from dpgt_node.runtime.trust.tls import CertificateAuthority
from dpgt_node.wire import server as server_module
from dpgt_node.wire import services
from dpgt_node.wire.health import serve_health
from tests.fuzz import http2
from tests.wire.test_services import NOBODY, Coordinator

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
PATH = f"/{services.COORDINATOR_SERVICE}/".encode()
NOT_TEXT = b"/\xff\x00\xfe"


@asynccontextmanager
async def serving(security: Security | None = None, *, peers: int = 1) -> AsyncIterator[int]:
    server = services.server(peers)
    server.add_generic_rpc_handlers([services.coordinator_handler(Coordinator())])
    await serve_health(server, services.COORDINATOR_SERVICE)
    credentials = None if security is None else security.server_credentials()
    port = services.bind(server, "127.0.0.1:0", credentials, "test")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)
        # The core's last words to a loop that is closed would be logged in the midst of some other test.
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left, timeout=5.0)


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


def post(path: bytes, stream: int = 1, *more: tuple[bytes, bytes]) -> bytes:
    return http2.frame(http2.HEADERS, http2.END_HEADERS, stream, http2.request(path, more))


EMPTY = http2.frame(http2.DATA, http2.END_STREAM, 1, http2.message(b""))


async def until(reader: asyncio.StreamReader, what: bytes) -> bytes:
    """Everything up to ``what``; AssertionError when it never comes."""
    got = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(LIMIT_S):
            while what not in got:
                part = await reader.read(65_536)
                if not part:
                    break
                got += part
    assert what in got, got
    return got


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Everything the server says until it closes the connection, which it must."""
    got = b""
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65_536):
                got += part
    return got


async def well(port: int) -> None:
    """The server answers."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=services.CHANNEL_OPTIONS) as channel:
        assert await services.status(channel, timeout_s=LIMIT_S, wait_for_ready=True) == NOBODY


# --- what would reach further than its own call -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [NOT_TEXT, b"/", PATH, PATH + b"Shutdown", b"Status", PATH + b"Status\x00", b"/" + b"a" * 3000]
)
async def test_calls_of_unknown_methods_end_nothing_but_themselves(path: bytes) -> None:
    async with serving() as port:
        for _ in range(3):
            reader, writer = await connect(port)
            writer.write(http2.opening() + post(path) + EMPTY)
            await until(reader, b"grpc-status\x0212")  # UNIMPLEMENTED
            writer.close()
        await well(port)


GRPCS_OWN = """
import asyncio, grpc, grpc.aio
from tests.fuzz import http2
from tests.wire.test_server import NOT_TEXT, post, until
async def main():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(http2.opening() + post(NOT_TEXT))
    await until(reader, bytes((http2.GOAWAY, 0, 0, 0, 0, 0)))
    writer.close()
    await server.wait_for_termination()
asyncio.run(main())
"""


def test_grpcs_own_server_ends_with_such_a_call() -> None:
    """Mutant: what ``wire.server`` is for.  In a process of its own, because the broken server cannot be stopped."""
    result = subprocess.run([sys.executable, "-c", GRPCS_OWN], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "UnicodeDecodeError" in result.stderr and result.returncode != 0


async def test_unknown_methods_in_any_number_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "UNKNOWN_IN_FLIGHT", 0)
    async with serving() as port:
        reader, writer = await connect(port)
        writer.write(http2.opening() + post(b"/a/b"))
        await until(reader, http2.frame(http2.RST, 0, 1, bytes(4))[:9])
        await well(port)
        writer.close()


async def test_metadata_that_is_no_text_is_refused_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as port:
        reader, writer = await connect(port)
        writer.write(http2.opening() + post(PATH + b"Join", 1, (b"dpgt-agent", b"\x80\xff")) + EMPTY)
        await until(reader, b"grpc-status")
        await well(port)
        writer.close()
    assert [record for record in caplog.records if record.exc_info] == []
    assert "Invalid encoding" not in caplog.text


@pytest.mark.parametrize(("error", "said"), [(asyncio.CancelledError(), 0), (KeyError("x"), 1)])
def test_a_call_that_begins_when_its_server_stops_is_no_traceback(
    caplog: pytest.LogCaptureFixture, error: BaseException, said: int
) -> None:
    try:
        raise error
    except BaseException:
        logging.getLogger("grpc._cython.cygrpc").exception("Exception not handled in servicer method")
    assert len(caplog.records) == said


@pytest.mark.parametrize("method", [b"Check", b"Watch"])
async def test_a_health_check_that_is_no_protobuf_is_answered(method: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as port:
        reader, writer = await connect(port)
        bad = http2.frame(http2.DATA, http2.END_STREAM, 1, http2.message(b"\x0a\x02\xff\xfe"))
        writer.write(http2.opening() + post(b"/grpc.health.v1.Health/" + method) + bad)
        await until(reader, b"grpc-status\x013")  # INVALID_ARGUMENT
        writer.close()
    assert [record for record in caplog.records if record.name.startswith(("grpc", "dpgt"))] == []


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", http2.PREFACE[:5], b"\x16\x03\x01\x02\x00\x01"])
@pytest.mark.parametrize("secure", [False, True])
async def test_who_does_not_come_to_the_point_is_cut_off(
    said: bytes, secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HANDSHAKE_S", 0.2)
    security = None
    if secure:
        CertificateAuthority.create().write_folder(tmp_path, "dpgt:coordinator")
        security = Security.from_folder(tmp_path)
    async with serving(security) as port:
        reader, writer = await connect(port)
        writer.write(said)
        await closed(reader)
        writer.close()


async def test_who_does_not_acknowledge_the_limits_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HANDSHAKE_S", 0.2)
    async with serving() as port:
        reader, writer = await connect(port)
        writer.write(http2.opening() + post(PATH + b"Join", 1, (b"dpgt-agent", b"a")))
        await closed(reader)
        writer.close()
        await well(port)


async def test_a_connection_without_a_call_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "IDLE_S", 0.2)
    async with serving() as port:
        reader, writer = await connect(port)
        writer.write(http2.opening() + http2.frame(http2.SETTINGS, 1, 0))
        # GOAWAY with a ping first; whoever answers no ping is closed after a while anyway
        assert await until(reader, bytes((http2.GOAWAY, 0, 0, 0, 0, 0)))
        writer.close()
        await well(port)


async def test_connections_are_bounded_and_those_there_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SPARE_CONNECTIONS", 12)  # and 8 of the one peer
    async with serving() as port:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=services.CHANNEL_OPTIONS) as channel:
            assert await services.status(channel, timeout_s=LIMIT_S) == NOBODY
            others = [await connect(port) for _ in range(60)]
            for _, writer in others:
                writer.write(http2.opening())
            turned_away = 0
            for reader, _ in others:
                with contextlib.suppress(ConnectionError):
                    async with asyncio.timeout(LIMIT_S):
                        if await reader.read(9):
                            continue
                turned_away += 1
            assert turned_away == 60 - 19
            assert await services.status(channel, timeout_s=LIMIT_S) == NOBODY
            for _, writer in others:
                writer.close()
        await well(port)


async def test_streams_of_a_connection_are_bounded() -> None:
    async with serving() as port:
        reader, writer = await connect(port)
        writer.write(http2.opening())
        await until(reader, b"\x00\x03" + server_module.STREAMS_PER_CONNECTION.to_bytes(4, "big"))
        for number in range(server_module.STREAMS_PER_CONNECTION + 1):
            writer.write(post(PATH + b"Join", 2 * number + 1, (b"dpgt-agent", b"a")))
        last = 2 * server_module.STREAMS_PER_CONNECTION + 1
        await until(reader, http2.frame(http2.RST, 0, last, bytes(4))[:9])
        writer.close()
        await well(port)


async def test_calls_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SPARE_CALLS", 2)  # and 8 of the one peer
    async with serving() as port:
        address = f"127.0.0.1:{port}"
        async with grpc.aio.insecure_channel(address, options=services.CHANNEL_OPTIONS) as channel:
            open_calls = [services.join(channel, f"agent-{n}") for n in range(10)]
            for n, call in enumerate(open_calls):
                await call.write(m.Done(n, 0, 0))
                assert await call.read() == m.GoMessage(n + 1)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(PATH.decode() + "Status")(b"")  # type: ignore[var-annotated]
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            open_calls[0].cancel()

            async def again() -> bool:
                with contextlib.suppress(Exception):
                    return await services.status(channel, timeout_s=LIMIT_S) == NOBODY
                return False

            async with asyncio.timeout(LIMIT_S):
                while not await again():
                    await asyncio.sleep(0.01)
            for call in open_calls:
                call.cancel()


async def test_headers_are_bounded() -> None:
    async with serving() as port:
        reader, writer = await connect(port)
        writer.write(http2.opening())
        await until(reader, b"\x00\x06" + server_module.METADATA_BYTES.to_bytes(4, "big"))
        writer.write(http2.frame(http2.SETTINGS, 1, 0))  # limits hold from the acknowledgement on
        writer.write(post(PATH + b"Status", 1, *((b"x-%d" % n, b"v" * 1000) for n in range(10))) + EMPTY)
        got = await until(reader, bytes((http2.HEADERS, 5, 0, 0, 0, 1)))
        assert b"received metadata size exceeds" in got or b"grpc-status\x018" in got
        writer.close()
        await well(port)


def test_connections_leave_descriptors_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def connections(soft: int, peers: int) -> int:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
        return dict(server_module.limits(peers))["grpc.max_allowed_incoming_connections"]

    assert connections(1024, 5) == 256 + 8 * 5
    assert connections(1024, 100) == 512
    assert connections(resource.RLIM_INFINITY, 100) == 256 + 8 * 100


async def test_tls_without_a_certificate_gets_nowhere(tmp_path: Path) -> None:
    CertificateAuthority.create().write_folder(tmp_path, "dpgt:coordinator")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    async with serving(Security.from_folder(tmp_path)) as port:
        got: Any = b""
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(http2.opening() + post(PATH + b"Status") + EMPTY)
            got = await closed(reader)
        assert b"grpc-status" not in got
