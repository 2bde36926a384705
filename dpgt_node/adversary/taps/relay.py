"""TCP relays: what arrives at one address goes on to another, in both directions, and somebody may watch."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from dataclasses import field
from types import TracebackType
from typing import Protocol, Self

from dpgt_node.adversary.decode.conversation import Endpoint, Side
from dpgt_node.config import format_address, parse_address
from dpgt_node.errors import ConfigError
from dpgt_node.values import dataclass

_READ_BYTES = 256 << 10
_SOCKET_BYTES = 256 << 10
"""Of each socket's buffers: what waits in a relay holds up the pings behind it, and peers give up after seconds."""
CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Relay:
    """One listening end.  ``listen`` (port 0: any) and ``target`` are HOST:PORT.

    ``accept``, ``dial``: TLS towards whoever connects, and towards the target, whose certificate must be of
    ``target_name``; None: none.  ``client_ip`` and ``server``: who the two ends are in a recording, None for their
    real addresses.
    """

    listen: str
    target: str
    accept: ssl.SSLContext | None = field(default=None, repr=False)
    dial: ssl.SSLContext | None = field(default=None, repr=False)
    target_name: str | None = None
    client_ip: str | None = None
    server: Endpoint | None = None


class Watcher(Protocol):
    """Is told of one connection; an OSError of its ends the connection."""

    def opened(self) -> None:
        """Both ends are connected."""
        ...

    def refused(self) -> None:
        """The target does not answer."""
        ...

    def said(self, side: Side, data: bytes) -> None:
        """``data`` is about to go on."""
        ...

    def closed(self, side: Side) -> None:
        """``side`` has nothing more to say."""
        ...

    def reset(self, side: Side) -> None:
        """``side`` broke off."""
        ...


class Unwatched:
    """Nobody looks."""

    def opened(self) -> None:
        pass

    refused = opened

    def said(self, side: Side, data: bytes) -> None:
        pass

    def closed(self, side: Side) -> None:
        pass

    reset = closed


class Relays:
    """Async context manager: every relay listens while it is open; leaving it ends all connections.

    ``addresses``: where, in the order of ``relays``.  ConfigError, naming ``option``, for an address that cannot be
    listened on.
    """

    def __init__(self, relays: Sequence[Relay], *, option: str) -> None:
        self._relays = tuple(relays)
        self._option = option
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.addresses: tuple[str, ...] = ()

    def watch(self, relay: Relay, client: Endpoint, server: Endpoint) -> Watcher:
        """Who watches a connection of ``relay`` between these two."""
        return Unwatched()

    async def __aenter__(self) -> Self:
        try:
            for relay in self._relays:
                await self._listen(relay)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def _listen(self, relay: Relay) -> None:
        host, port = parse_address(relay.listen)
        try:
            server = await asyncio.start_server(
                lambda reader, writer: self._accept(relay, reader, writer),
                host,
                port,
                limit=_READ_BYTES,
                ssl=relay.accept,
            )
        except OSError as error:
            raise ConfigError.one(
                "command line", self._option, f"cannot listen on {relay.listen}: {error.strerror or error}"
            ) from error
        for listening in server.sockets:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)  # those it accepts have it too
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        self._servers.append(server)
        self.addresses += (format_address(host, int(server.sockets[0].getsockname()[1])),)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(relay, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = parse_address(relay.target)
        client = _endpoint(writer.get_extra_info("peername"))
        try:
            async with asyncio.timeout(CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(
                    host, port, limit=_READ_BYTES, ssl=relay.dial, server_hostname=relay.target_name
                )
        except (OSError, TimeoutError):
            watcher = self.watch(relay, client, _endpoint(writer.get_extra_info("sockname")))
            with contextlib.suppress(OSError):
                watcher.refused()
            writer.transport.abort()
            return
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            far_writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
        watcher = self.watch(relay, client, _endpoint(far_writer.get_extra_info("peername")))
        ends = (writer, far_writer)
        try:
            watcher.opened()
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump("client", watcher, reader, far_writer))
                both.create_task(_pump("server", watcher, far_reader, writer))
            for end in ends:  # what is buffered still leaves
                end.close()
            await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)
        except* OSError:
            pass  # one end broke off, or the watcher cannot go on: neither end may believe that the other one listens
        finally:
            for end in ends:
                end.transport.abort()


async def _pump(side: Side, watcher: Watcher, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            watcher.said(side, data)
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        watcher.reset(side)
        raise
    watcher.closed(side)
    with contextlib.suppress(OSError):  # the other end is gone already
        if writer.can_write_eof():
            writer.write_eof()
        else:  # TLS has no half-closed connections
            writer.close()


def _endpoint(address: tuple[str, int]) -> Endpoint:
    return Endpoint(address[0].partition("%")[0], address[1])
