"""The read-only server: what it answers, what it refuses, and what it does not let a browser do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from dpgt_node.errors import ConfigError
from dpgt_node.runtime.watching import httpd
from dpgt_node.runtime.watching.httpd import Answer, HttpServer, Query
from dpgt_node.runtime.watching.probes import LIVE, READY, probe_pages
from dpgt_node.runtime.watching.sites import Sites


async def page(query: Query) -> Answer:
    if "bug" in query:
        raise KeyError("secret")
    return Answer(f"here {query.get('a', '')}".encode())


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    server = HttpServer("127.0.0.1:0", "--metrics")
    await server.start()
    server.pages["/a"] = page
    yield server
    await server.close()


async def talk(server: HttpServer, sent: bytes) -> bytes:
    port = int(server.url.split(":")[2].rstrip("/"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(20):
        said = await reader.read()
    writer.close()
    return said


def request(target: str, host: str = "127.0.0.1", method: str = "GET", more: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode()


async def test_it_answers_reads_with_headers_that_keep_a_browser_here(server: HttpServer) -> None:
    said = await talk(server, request("/a?a=b%20c"))
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and body == b"here b c"
    assert b"Content-Security-Policy: default-src 'none'; script-src 'self'" in head
    assert b"Cache-Control: no-store" in head, "figures of a run lie in no cache"
    assert b"X-Content-Type-Options: nosniff" in head and b"Access-Control" not in head and b"Set-Cookie" not in head
    said = await talk(server, request("/a", method="HEAD"))
    assert b"Content-Length: 5\r\n" in said and said.endswith(b"\r\n\r\n")
    twice = f"GET /a HTTP/1.1\r\nHost: localhost:{1}\r\n\r\n".encode() + request("/a?a=2", "[::1]:80")
    assert (await talk(server, twice)).count(b" 200 OK") == 2


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("/a", "rebound.example"), 421),
        (request("/a", "127.0.0.1.example:80"), 421),
        (request("/a", "localhost@evil"), 421),
        (b"GET /a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", 400),
        (request("/b"), 404),
        (request("//a"), 404),
        (request("http://127.0.0.1/a"), 404),
        (request("/../a"), 404),
        (request("/a?" + "&".join(f"{i}=1" for i in range(httpd.FIELDS + 1))), 400),
        (request("/a", method="POST", more="Content-Length: 3\r\n"), 405),
        (request("/a", method="DELETE"), 405),
        (request("/a", more="Content-Length: 3\r\n"), 413),
        (request("/a", more="Transfer-Encoding: chunked\r\n"), 413),
        (request("/a" + "b" * 2 * httpd.HEAD_BYTES), 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (request("/a?bug=1"), 500),
    ],
)
async def test_it_refuses_everything_else(server: HttpServer, sent: bytes, status: int) -> None:
    said = await talk(server, sent)
    assert said.startswith(f"HTTP/1.1 {status} ".encode()), said
    assert b"secret" not in said
    assert b" 200 OK" in await talk(server, request("/a")), "and goes on"


async def test_connections_are_limited_and_a_head_that_never_ends_is_dropped(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httpd, "IDLE_S", 0.3)
    monkeypatch.setattr(httpd, "CONNECTIONS", 2)
    port = int(server.url.split(":")[2].rstrip("/"))
    slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    for _, writer in slow:
        writer.write(b"GET /a HTTP/1.1\r\nHost")
    async with asyncio.timeout(20):
        while len(server._open) < 2:
            await asyncio.sleep(0.001)
        with pytest.raises(OSError):
            if not await talk(server, request("/a")):
                raise OSError("closed without a word")
        for reader, writer in slow:
            with pytest.raises(OSError):
                if not await reader.read():
                    raise OSError("closed without a word")
            writer.close()
        while server._open:
            await asyncio.sleep(0.001)
    assert b" 200 OK" in await talk(server, request("/a"))


async def test_a_reader_that_takes_no_answer_is_dropped_and_an_idle_one_delays_no_end(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def large(_: Query) -> Answer:
        return Answer(bytes(1 << 24))

    server.pages["/large"] = large
    monkeypatch.setattr(httpd, "WRITE_S", 0.2)
    monkeypatch.setattr(httpd, "IDLE_S", 1e4)
    port = int(server.url.split(":")[2].rstrip("/"))
    _, deaf = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    deaf.write(request("/large"))
    async with asyncio.timeout(30):
        while not server._open:
            await asyncio.sleep(0.001)
        while server._open:
            await asyncio.sleep(0.001)
        _, idle = await asyncio.open_connection("127.0.0.1", port)
        while not server._open:
            await asyncio.sleep(0.001)
        await server.close()
    for writer in (deaf, idle):
        writer.close()


async def test_the_last_of_an_answer_waits_no_longer_than_the_rest(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def large(_: Query) -> Answer:
        return Answer(bytes(1 << 24))

    async def at_once(_: asyncio.StreamWriter) -> None:
        """As for an answer that fits into the buffers of this process."""

    server.pages["/large"] = large
    monkeypatch.setattr(httpd, "WRITE_S", 0.2)
    monkeypatch.setattr(asyncio.StreamWriter, "drain", at_once)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.split(":")[2].rstrip("/")), limit=1024)
    writer.write(request("/large"))
    taken = 0
    async with asyncio.timeout(30):
        while not server._open:
            await asyncio.sleep(0.001)
        while server._open:
            await asyncio.sleep(0.001)
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 20):
                taken += len(part)
    writer.close()
    assert taken < 1 << 24


async def test_who_listens_beyond_this_host_is_warned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = {"127.0.0.1": True, "127.9.9.9": True, "::1": True, "localhost": True}
    for host, loopback in (here | {"0.0.0.0": False, "::": False, "10.0.0.1": False, "node.example": False}).items():
        assert httpd._is_loopback(host) == loopback, host
    assert HttpServer("Node.Example:80", "--http")._is_meant("node.example:80"), "its own name, as a browser writes it"
    for beyond in (False, True):
        if beyond:
            monkeypatch.setattr(httpd, "_is_loopback", lambda _: False)
        server = HttpServer("127.0.0.1:0", "--metrics")
        await server.start()
        await server.close()
        warned = [record for record in caplog.records if "whoever reaches it can read it" in record.getMessage()]
        assert bool(warned) == beyond


async def test_a_probe_hears_two_words_and_when_the_daemon_leaves() -> None:
    health = SimpleNamespace(serving=True)
    pages = probe_pages(health)  # type: ignore[arg-type]
    assert await pages[LIVE]({}) == Answer(b"alive\n") and await pages[READY]({}) == Answer(b"ready\n")
    health.serving = False
    assert await pages[LIVE]({}) == Answer(b"alive\n")
    assert await pages[READY]({}) == Answer(b"leaving\n", status=503)


async def test_an_address_that_is_taken_is_an_error_and_one_address_is_one_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = Sites({"--http": "127.0.0.1:0", "--metrics": address})
        with pytest.raises(ConfigError, match="--metrics: cannot listen on"):
            await refused.open()
        assert refused._servers["--http"]._server is None, "nothing listens then"
    sites = Sites({"--http": "127.0.0.1:0", "--metrics": "127.0.0.1:0", "--other": None})
    await sites.open()
    assert len(set(sites.urls().values())) == 1 and not sites.wants("--other")
    await sites.close()
