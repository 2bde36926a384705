"""A tap without root: relays that links are dialled through, and that write what passes as a capture file.

Bytes are only relayed, so TLS passes as it is.  Each byte is in the file before it goes on.  Addresses in the file are
those of the connection, or made-up ones that tell agents apart where all of them live at 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dpgt_node.adversary.decode.conversation import Conversation, Endpoint, Side
from dpgt_node.adversary.decode.packets import LINKTYPE_RAW, PcapWriter
from dpgt_node.adversary.taps.errors import CaptureError
from dpgt_node.adversary.taps.relay import Relay, Relays
from dpgt_node.values import dataclass

AGENT_PORT = 7100
"""Where agents listen in captures and in networks that are made up here."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a tap has seen so far: connections, those whose target did not answer, bytes relayed."""

    connections: int = 0
    refused: int = 0
    bytes_relayed: int = 0


class ProxyTap(Relays):
    """Relays that write a capture file at ``path``.

    Leaving the context raises CaptureError when the file could not be written to the end.
    """

    def __init__(self, path: Path, relays: Sequence[Relay]) -> None:
        super().__init__(relays, option="--proxy")
        self._path = path
        self._writer: PcapWriter | None = None
        self.connections = self.refused = self.bytes_relayed = 0
        self.failed = asyncio.Event()
        """Set when nothing is relayed any more because nothing can be written."""
        self._failure: OSError | None = None

    @property
    def tally(self) -> Tally:
        return Tally(self.connections, self.refused, self.bytes_relayed)

    def watch(self, relay: Relay, client: Endpoint, server: Endpoint) -> Recorder:
        """Writes down the connection, under the addresses that the relay wants."""
        return Recorder(self, *_shown(relay, client, server))

    async def __aenter__(self) -> Self:
        self._writer = PcapWriter(self._path, linktype=LINKTYPE_RAW)
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        if self._failure is not None and error is None:
            raise CaptureError(
                f"{self._path} is only the beginning of what passed ({self._failure.strerror}): the tap stopped there"
            ) from self._failure

    async def _close(self) -> None:
        await super()._close()
        try:
            if self._writer is not None:
                self._writer.close()
        except OSError as failure:
            self._fail(failure)

    def write(self, packets: Iterable[bytes]) -> None:
        """Append ``packets``, all of this instant.  OSError, now and from then on, when they cannot be written."""
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


class Recorder:
    """Writes one connection down as packets."""

    def __init__(self, tap: ProxyTap, client: Endpoint, server: Endpoint) -> None:
        self._tap = tap
        self._conversation = Conversation(client, server)

    def opened(self) -> None:
        self._tap.connections += 1
        self._tap.write(self._conversation.opened())

    def refused(self) -> None:
        self._tap.refused += 1
        self._tap.write(self._conversation.refused())

    def said(self, side: Side, data: bytes) -> None:
        self._tap.bytes_relayed += len(data)
        self._tap.write(self._conversation.said(side, data))

    def closed(self, side: Side) -> None:
        self._tap.write(self._conversation.closed(side))

    def reset(self, side: Side) -> None:
        self._tap.write(self._conversation.reset(side))


def _shown(relay: Relay, client: Endpoint, server: Endpoint) -> tuple[Endpoint, Endpoint]:
    there = relay.server or server
    ip = relay.client_ip or client.ip
    if (":" in ip) == (":" in there.ip):
        return Endpoint(ip, client.port), there
    # dialled by IPv6, goes on by IPv4 or the other way round: no packet has one of each
    return Endpoint(_mapped(ip), client.port), Endpoint(_mapped(there.ip), there.port)


def _mapped(ip: str) -> str:
    return ip if ":" in ip else f"::ffff:{ip}"


def host_ip(number: int) -> str:
    """The made-up address of the ``number``-th host, from 1: 10.77.0.1 onwards."""
    high, low = divmod(number - 1, 250)
    return f"10.77.{high}.{low + 1}"


def link_relay(listen: str, target: str, sender: int, receiver: int) -> Relay:
    """A relay of the link from the ``sender``-th to the ``receiver``-th agent (from 0), told apart by made-up
    addresses.
    """
    there = Endpoint(host_ip(receiver + 1), AGENT_PORT)
    return Relay(listen, target, client_ip=host_ip(sender + 1), server=there)
