"""Channels, servers and credentials for one process: mTLS that pins identities, or explicitly none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType

import grpc
import grpc.aio

from dpgt_node.errors import ConfigError, PeerError, Untrusted
from dpgt_node.runtime.trust.certificates import key_of, pinned_name, target_name_override
from dpgt_node.runtime.trust.credentials import Credentials, Files
from dpgt_node.runtime.trust.guard import Guard
from dpgt_node.runtime.trust.probe import look, speaks_tls
from dpgt_node.wire import services

COORDINATOR_IDENTITY = "dpgt:coordinator"
OPERATOR_IDENTITY = "dpgt:operator"
EXPLAIN_S = 3.0
"""How long a broken connection may be looked into before it is tried again."""

Opened = AbstractAsyncContextManager[grpc.aio.Channel]


class Security:
    """What a process proves itself with and demands of others; without files no TLS at all (--insecure)."""

    def __init__(self, ca: Path | None = None, cert: Path | None = None, key: Path | None = None) -> None:
        self.ca, self.cert, self.key = ca, cert, key
        whole = ca is not None and cert is not None and key is not None
        self.credentials = Credentials(Files(ca, cert, key)) if whole else None  # type: ignore[arg-type]
        self.guard = Guard(self.credentials)
        self.patience_s = 0.0
        """T of the run whose vectors travel on the channels."""
        self._dials: set[_Dial] = set()

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
        name = self._pin(credentials, identity)
        return lambda address: _channel(credentials, name, address, self.patience_s, vector_bytes)

    def dialler(self, identity: str, *, vector_bytes: int = 0) -> Callable[[str], Opened]:
        """Like ``opener``, for ``async with``: a revoked certificate at the other end is refused inside the handshake,
        one that is revoked later ends what uses the channel (Untrusted), and a connection that does not come up or
        breaks for want of trust says why.  Each opening presents the newest certificate.
        """
        credentials = self.credentials
        if credentials is None:
            open_channel = self.opener(identity, vector_bytes=vector_bytes)
            return lambda address: _PlainDial(open_channel, address)
        self._pin(credentials, identity)
        return lambda address: _Dial(credentials, identity, address, self._dials, self.patience_s, vector_bytes)

    @staticmethod
    def _pin(credentials: Credentials, identity: str) -> str:
        credentials.material()  # files that are wrong are named now, not at the first call
        try:
            return target_name_override(identity)
        except ValueError as error:
            raise ConfigError.one(str(credentials.files.cert), "", f"cannot look for this peer: {error}") from None

    async def watch(self) -> None:
        """Take up renewed files and new revocation lists until cancelled; without TLS, nothing."""
        if self.credentials is not None:
            await self.credentials.watch(self._recheck)

    def _recheck(self) -> None:
        self.guard.recheck()
        for dial in tuple(self._dials):
            dial.recheck()


def _channel(
    credentials: Credentials, name: str, address: str, patience_s: float, vector_bytes: int
) -> grpc.aio.Channel:
    options = (*services.channel_options(patience_s, vector_bytes), ("grpc.ssl_target_name_override", name))
    return grpc.aio.secure_channel(services.target(address), credentials.channel_credentials(), options=options)


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
        if await speaks_tls(self._address, timeout_s=EXPLAIN_S):
            why = (
                "speaks TLS, and this process does not: leave insecure out, and give certificates (--tls DIR, or [tls])"
            )
            raise Untrusted(f"{self._address} {why}") from error


class _Dial:
    """One channel while it is used.  gRPC says UNAVAILABLE of any broken handshake; here it gets its cause."""

    def __init__(
        self,
        credentials: Credentials,
        identity: str,
        address: str,
        dials: set[_Dial],
        patience_s: float,
        vector_bytes: int,
    ) -> None:
        self._credentials = credentials
        self._identity = identity
        self._address = address
        self._dials = dials
        self._patience_s = patience_s
        self._vector_bytes = vector_bytes
        self._channel: grpc.aio.Channel | None = None
        self._task: asyncio.Task[object] | None = None
        self._key: tuple[bytes, int] | None = None
        self._cut = False

    async def __aenter__(self) -> grpc.aio.Channel:
        name = await self._name()
        self._channel = _channel(self._credentials, name, self._address, self._patience_s, self._vector_bytes)
        self._task = asyncio.current_task()
        self._dials.add(self)
        return self._channel

    async def _name(self) -> str:
        """The name to pin.  With a revocation list it is of one certificate, which was seen to be a good one: whoever
        comes between with a stolen one does not have that name.
        """
        if not self._credentials.material().revoked:
            return target_name_override(self._identity)
        seen = await look(self._address, self._credentials, self._identity)
        name = pinned_name(seen)
        if name is None:
            raise Untrusted(
                f"the certificate shown at {self._address} has no name of its own (dpgt pki makes one): with a "
                "revocation list none other is accepted"
            )
        self._key = key_of(seen)
        return name

    def recheck(self) -> None:
        """A new revocation list: whoever is on it, or was never looked at, must prove itself again."""
        if self._cut or self._task is None:
            return
        if self._key is None or self._key in self._credentials.material().revoked:
            self._cut = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._dials.discard(self)
        assert self._channel is not None and self._task is not None
        await self._channel.close()
        if self._cut and not self._task.uncancel() and isinstance(error, asyncio.CancelledError):
            raise Untrusted("the revocation list changed: connecting anew") from error
        if isinstance(error, PeerError) and error.grpc_status == "UNAVAILABLE":
            await self._explain(error)

    async def _explain(self, error: PeerError) -> None:
        try:
            await look(self._address, self._credentials, self._identity, timeout_s=EXPLAIN_S)
        except Untrusted as cause:
            raise cause from error
        except PeerError:
            return  # nobody answers: gRPC's own words say it


def agent_identity(name: str) -> str:
    """URI SAN of an agent's certificate."""
    return f"dpgt:agent:{name}"
