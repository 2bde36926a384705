"""A small HTTP server that only answers reads: h11 knows HTTP, asyncio moves the bytes.

GET and HEAD of the paths it was given, no body, no cookie, nothing from elsewhere: every answer forbids a browser to
load anything but this server's own files.  The Host must be an address, ``localhost`` or the name it was told to listen
on, so that a page elsewhere cannot read it through a name of its own that it points here (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import h11

from dpgt_node.config import format_address, is_wildcard, parse_address
from dpgt_node.errors import ConfigError
from dpgt_node.values import dataclass

log = logging.getLogger(__name__)

CONNECTIONS: Final = 32
HEAD_BYTES: Final = 8192
IDLE_S: Final = 15.0
"""How long a request may take to arrive, and a connection be idle between two."""
WRITE_S: Final = 15.0
"""How long a reader may take to take an answer."""
FIELDS: Final = 4
READ_BYTES: Final = 1024

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent: ``body`` of a media type ``kind``, with more ``headers``."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Query = Mapping[str, str]
Page = Callable[[Query], Awaitable[Answer]]


class Refused(Exception):
    """A request that is not answered, with its HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.answer = Answer(f"{why}\n".encode(), status=status)


class HttpServer:
    """Serves ``pages`` by path on ``listen``, HOST:PORT; port 0 takes any free one.  ``key``: whence the address is."""

    def __init__(self, listen: str, key: str) -> None:
        self.pages: dict[str, Page] = {}
        self._key = key
        self._host, self._port = parse_address(listen)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where a browser of this host finds it."""
        host = self._host
        if is_wildcard(host):
            host = "::1" if ":" in host else "127.0.0.1"
        return f"http://{format_address(host, self._port)}/"

    async def start(self) -> None:
        """Listen.  ConfigError where the address cannot be had."""
        try:
            server = await asyncio.start_server(self._accept, self._host, self._port, limit=HEAD_BYTES)
        except OSError as error:
            where = format_address(self._host, self._port)
            message = f"cannot listen on {where}: {error.strerror or error}; choose another port, or 0 for any free one"
            raise ConfigError.one("command line", self._key, message) from error
        self._server, self._port = server, server.sockets[0].getsockname()[1]
        if not _is_loopback(self._host):
            log.warning("%s listens on %s: whoever reaches it can read it, without TLS", self._key, self._host)

    async def close(self) -> None:
        """Answer no more; may be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= CONNECTIONS:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            await self._converse(h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES), reader, writer)
            writer.close()
            async with asyncio.timeout(WRITE_S):  # the last of an answer may wait for a reader that never comes
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._open.discard(task)
            writer.close()

    async def _converse(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            head = False
            try:
                async with asyncio.timeout(IDLE_S):
                    request = await _request(connection, reader)
                if request is None:
                    return
                head = request.method == b"HEAD"
                answer = await self._answer(request)
            except Refused as refused:
                answer = refused.answer
            except h11.RemoteProtocolError as error:
                answer = Answer(b"not a request\n", status=error.error_status_hint)
            if not _may_answer(connection):
                return
            async with asyncio.timeout(WRITE_S):
                writer.write(_sent(connection, answer, head=head))
                await writer.drain()
            if not _goes_on(connection):
                return
            connection.start_next_cycle()

    async def _answer(self, request: h11.Request) -> Answer:
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
        if not self._is_meant(headers.get("host", "")):
            raise Refused(421, "this server is not known by that name; ask for it by its address")
        target = request.target.decode("latin-1")
        parts = urlsplit(target) if target.startswith("/") and not target.startswith("//") else None
        page = None if parts is None else self.pages.get(parts.path)
        if parts is None or page is None:
            raise Refused(404, "no such page")
        try:
            query = dict(parse_qsl(parts.query, max_num_fields=FIELDS))
        except ValueError:
            raise Refused(400, "too many fields") from None
        try:
            return await page(query)
        except (Refused, OSError):
            raise
        except Exception:  # whoever watches a run must not end it
            log.exception("bug in the page %s", parts.path)
            raise Refused(500, "this is a bug; the log of the process says more") from None

    def _is_meant(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self._host.lower()):
            return True
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        return False


def _may_answer(connection: h11.Connection) -> bool:
    return connection.our_state in (h11.IDLE, h11.SEND_RESPONSE)


def _goes_on(connection: h11.Connection) -> bool:
    return connection.our_state is h11.DONE and connection.their_state is h11.DONE


def _has_body(request: h11.Request) -> bool:
    headers = dict(request.headers)
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The next request to its end; None when the other side is gone."""
    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
            if request.method not in (b"GET", b"HEAD"):
                raise Refused(405, "only GET and HEAD")
            if _has_body(request):
                raise Refused(413, "a request has no body here")
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif not isinstance(event, h11.Data):
            return None


def _sent(connection: h11.Connection, answer: Answer, *, head: bool) -> bytes:
    headers = [("Content-Type", answer.kind), ("Content-Length", str(len(answer.body))), *_HEADERS, *answer.headers]
    if answer.status == 405:
        headers.append(("Allow", "GET, HEAD"))
    if connection.their_state is not h11.DONE:  # part of the request is still to come, and nobody reads it
        headers.append(("Connection", "close"))
    parts = [
        connection.send(
            h11.Response(status_code=answer.status, headers=headers, reason=HTTPStatus(answer.status).phrase)
        )
    ]
    if not head:
        parts.append(connection.send(h11.Data(data=answer.body)))
    parts.append(connection.send(h11.EndOfMessage()))
    return b"".join(part for part in parts if part)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
