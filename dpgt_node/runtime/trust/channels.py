"""Channels, servers and credentials for one process: mTLS that pins identities, or explicitly none.

What reads certificates is imported where there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from dpgt_node.errors import PeerError, Untrusted
from dpgt_node.runtime.trust.files import Files
from dpgt_node.runtime.trust.guard import Guard
from dpgt_node.wire import services

if TYPE_CHECKING:
    from dpgt_node.runtime.trust.credentials import Credentials
    from dpgt_node.runtime.trust.pinned import Dial

COORDINATOR_IDENTITY = "dpgt:coordinator"
OPERATOR_IDENTITY = "dpgt:operator"

Opened = AbstractAsyncContextManager[grpc.aio.Channel]


class Security:
    """What a process proves itself with and demands of others; without files no TLS at all (--insecure)."""

    def __init__(self, ca: Path | None = None, cert: Path | None = None, key: Path | None = None) -> None:
        self.ca, self.cert, self.key = ca, cert, key
        self.credentials: Credentials | None = None
        if ca is not None and cert is not None and key is not None:
            from dpgt_node.runtime.trust.credentials import Credentials

            self.credentials = Credentials(Files(ca, cert, key))
        self.guard = Guard(self.credentials)
        self.patience_s = 0.0
        """T of the run whose vectors travel on the channels."""
        self._dials: set[Dial] = set()

    @classmethod
    def from_folder(cls, folder: Path | None) -> Security:
        """The PEM files of a start-up folder, or no TLS for None."""
        if folder is None:
            return cls()
        files = Files.of(folder)
        return cls(files.ca, files.cert, files.key)

    @property
    def secure(self) -> bool:
        """Whether TLS is used."""
        return self.credentials is not None

    def server_credentials(self) -> grpc.ServerCredentials | None:
        """Demands and verifies a client certificate; None without TLS.  ConfigError for files that are wrong."""
        return None if self.credentials is None else self.credentials.server_credentials()

    def opener(self, identity: str, *, vector_bytes: int = 0) -> Callable[[str], grpc.aio.Channel]:
        """Opens channels whose other end must prove to be ``identity``, whatever address it is dialled by.
        ``vector_bytes``: of the vectors that travel on them, 0: none.

        For a process among its own on one machine: knows nothing of revocation (see :meth:`dialler`).
        """
        credentials = self.credentials
        if credentials is None:
            options = services.channel_options(self.patience_s, vector_bytes)
            return lambda address: grpc.aio.insecure_channel(services.target(address), options=options)
        from dpgt_node.runtime.trust import pinned

        name = pinned.name_of(credentials, identity)
        return lambda address: pinned.channel(credentials, name, address, self.patience_s, vector_bytes)

    def dialler(self, identity: str, *, vector_bytes: int = 0) -> Callable[[str], Opened]:
        """Like ``opener``, for ``async with``: a revoked certificate at the other end is refused inside the handshake,
        one that is revoked later ends what uses the channel (Untrusted), and a connection that does not come up or
        breaks for want of trust says why.  Each opening presents the newest certificate.
        """
        credentials = self.credentials
        if credentials is None:
            open_channel = self.opener(identity, vector_bytes=vector_bytes)
            return lambda address: _PlainDial(open_channel, address)
        from dpgt_node.runtime.trust import pinned

        pinned.name_of(credentials, identity)
        return lambda address: pinned.Dial(credentials, identity, address, self._dials, self.patience_s, vector_bytes)

    async def watch(self) -> None:
        """Take up renewed files and new revocation lists until cancelled; without TLS, nothing."""
        if self.credentials is not None:
            await self.credentials.watch(self._recheck)

    def _recheck(self) -> None:
        self.guard.recheck()
        for dial in tuple(self._dials):
            dial.recheck()


class _PlainDial:
    """One channel without TLS while it is used.  An end that speaks TLS only closes it, and neither side hears why."""

    def __init__(self, opener: Callable[[str], grpc.aio.Channel], address: str) -> None:
        self._opener = opener
        self._address = address
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> grpc.aio.Channel:
        self._channel = self._opener(self._address)
        return self._channel

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._channel is not None
        await self._channel.close()
        if not isinstance(error, PeerError) or error.grpc_status != "UNAVAILABLE":
            return
        from dpgt_node.runtime.trust import probe

        if await probe.speaks_tls(self._address, timeout_s=probe.EXPLAIN_S):
            why = (
                "speaks TLS, and this process does not: leave insecure out, and give certificates (--tls DIR, or [tls])"
            )
            raise Untrusted(f"{self._address} {why}") from error


def agent_identity(name: str) -> str:
    """URI SAN of an agent's certificate."""
    return f"dpgt:agent:{name}"
