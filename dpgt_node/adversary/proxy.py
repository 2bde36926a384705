"""A tap without root: TCP relays that links are dialled through, and that write what passes as a capture file.

Bytes are only relayed, so TLS passes as it is.  Each byte is in the file before it goes on.  Addresses in the file are
those of the connection, or made-up ones that tell agents apart where all of them live at 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from dpgt_node.adversary.conversation import Conversation, Endpoint, Side
from dpgt_node.adversary.errors import CaptureError
from dpgt_node.adversary.packets import LINKTYPE_RAW, PcapWriter
from dpgt_node.config import format_address, parse_address
from dpgt_node.errors import ConfigError

_READ_BYTES = 256 << 10
CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Relay:
    """One listening end.  ``listen`` (port 0: any) and ``target`` are HOST:PORT; ``client_ip`` and ``server``: who the
    two ends are in the file, None for their real addresses.
    """

    listen: str
    target: str
    client_ip: str | None = None
    server: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """What a tap has seen so far: connections, those whose target did not answer, bytes relayed."""

    connections: int = 0
    refused: int = 0
    bytes_relayed: int = 0


class ProxyTap:
    """Async context manager: every relay of ``relays`` listens while it is open.

    ``addresses``: where, in the order of ``relays``.  ConfigError for an address that cannot be listened on.  Leaving
    it ends all connections; CaptureError when the file at ``path`` could not be written to the end.
    """

    def __init__(self, path: Path, relays: Sequence[Relay]) -> None:
        self._path = path
        self._relays = tuple(relays)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: PcapWriter | None = None
        self._connections = self._refused = self._bytes = 0
        self.addresses: tuple[str, ...] = ()
        self.failed = asyncio.Event()
        """Set when nothing is relayed any more because nothing can be written."""
        self._failure: OSError | None = None

    @property
    def tally(self) -> Tally:
        """So far."""
        return Tally(self._connections, self._refused, self._bytes)

    async def __aenter__(self) -> Self:
        self._writer = PcapWriter(self._path, linktype=LINKTYPE_RAW)
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
        if self._failure is not None and error is None:
            raise CaptureError(
                f"{self._path} is only the beginning of what passed ({self._failure.strerror}): the tap stopped there"
            ) from self._failure

    async def _listen(self, relay: Relay) -> None:
        host, port = parse_address(relay.listen)
        parse_address(relay.target)
        # All bytes of one connection go through one task a direction; the server only starts it.
        try:
            server = await asyncio.start_server(
                lambda reader, writer: self._accept(relay, reader, writer), host, port, limit=_READ_BYTES
            )
        except OSError as error:
            raise ConfigError.one("command line", "--proxy", f"cannot listen on {relay.listen}: {error}") from error
        self._servers.append(server)
        bound = server.sockets[0].getsockname()
        self.addresses += (format_address(host, int(bound[1])),)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                self._fail(error)

    def _accept(self, relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(relay, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- one connection -----------------------------------------------------------------------------------------

    async def _serve(self, relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = parse_address(relay.target)
        peer = writer.get_extra_info("peername")
        try:
            async with asyncio.timeout(CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(host, port, limit=_READ_BYTES)
        except (OSError, TimeoutError):
            self._refused += 1
            conversation = _conversation(relay, peer, writer.get_extra_info("sockname"))
            with contextlib.suppress(OSError):
                self._record(conversation.refused())
            writer.transport.abort()
            return
        self._connections += 1
        conversation = _conversation(relay, peer, far_writer.get_extra_info("peername"))
        ends = (writer, far_writer)
        try:
            self._record(conversation.opened())
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump("client", conversation, reader, far_writer))
                both.create_task(self._pump("server", conversation, far_reader, writer))
            for end in ends:  # what is buffered still leaves
                end.close()
            await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)
        except* OSError:
            pass  # one end broke off, or the file is full: neither end may believe that the other one still listens
        finally:
            for end in ends:
                end.transport.abort()

    async def _pump(
        self, side: Side, conversation: Conversation, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(_READ_BYTES):
                self._record(conversation.said(side, data))
                self._bytes += len(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            self._record(conversation.reset(side))
            raise
        self._record(conversation.closed(side))
        with contextlib.suppress(OSError):  # the other end is gone already
            writer.write_eof()

    def _record(self, packets: Iterable[bytes]) -> None:
        assert self._writer is not None
        if self._failure is not None:
            raise self._failure
        now_ns = time.time_ns()
        try:
            for packet in packets:
                self._writer.write(now_ns, packet)
        except OSError as error:
            self._fail(error)
            raise

    def _fail(self, error: OSError) -> None:
        if self._failure is None:
            self._failure = error
        self.failed.set()


def _conversation(relay: Relay, client: tuple[str, int], server: tuple[str, int]) -> Conversation:
    real = Endpoint(server[0].partition("%")[0], server[1])
    shown = relay.server or real
    ip = relay.client_ip or client[0].partition("%")[0]
    if (":" in ip) != (":" in shown.ip):  # dialled by IPv6, goes on by IPv4: no packet has one of each
        ip = _mapped(ip) if ":" in shown.ip else ip
        shown = Endpoint(_mapped(shown.ip), shown.port) if ":" in ip else shown
    return Conversation(Endpoint(ip, client[1]), shown)


def _mapped(ip: str) -> str:
    return ip if ":" in ip else f"::ffff:{ip}"


def agent_ip(index: int) -> str:
    """The made-up address of the ``index``-th agent (from 0), 10.77.0.1 onwards."""
    high, low = divmod(index, 250)
    return f"10.77.{high}.{low + 1}"


AGENT_PORT = 7100
"""Where agents listen in captures and networks that this project makes up."""


def link_relay(listen: str, target: str, sender: int, receiver: int) -> Relay:
    """A relay of the link from the ``sender``-th to the ``receiver``-th agent, told apart by made-up addresses."""
    return Relay(listen, target, agent_ip(sender), Endpoint(agent_ip(receiver), AGENT_PORT))
