"""Channels of mTLS that pin an identity, and what is looked into where one does not come up."""

from __future__ import annotations

import asyncio
from types import TracebackType

import grpc.aio

from dpgt_node.errors import ConfigError, PeerError, Untrusted
from dpgt_node.runtime.trust import probe
from dpgt_node.runtime.trust.certificates import key_of, pinned_name, target_name_override
from dpgt_node.runtime.trust.credentials import Credentials
from dpgt_node.wire import services


def name_of(credentials: Credentials, identity: str) -> str:
    """The name by which ``identity`` is pinned.  ConfigError for files that are wrong, and for what is no identity."""
    credentials.material()  # files that are wrong are named now, not at the first call
    try:
        return target_name_override(identity)
    except ValueError as error:
        raise ConfigError.one(str(credentials.files.cert), "", f"cannot look for this peer: {error}") from None


def channel(
    credentials: Credentials, name: str, address: str, patience_s: float, vector_bytes: int
) -> grpc.aio.Channel:
    """To ``address``, with the newest certificate; the other end must have ``name``."""
    options = (*services.channel_options(patience_s, vector_bytes), ("grpc.ssl_target_name_override", name))
    return grpc.aio.secure_channel(services.target(address), credentials.channel_credentials(), options=options)


class Dial:
    """One channel while it is used.  gRPC says UNAVAILABLE of any broken handshake; here it gets its cause."""

    def __init__(
        self,
        credentials: Credentials,
        identity: str,
        address: str,
        dials: set[Dial],
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
        self._channel = channel(self._credentials, name, self._address, self._patience_s, self._vector_bytes)
        self._task = asyncio.current_task()
        self._dials.add(self)
        return self._channel

    async def _name(self) -> str:
        """The name to pin.  With a revocation list it is of one certificate, which was seen to be a good one: whoever
        comes between with a stolen one does not have that name.
        """
        if not self._credentials.material().revoked:
            return target_name_override(self._identity)
        seen = await probe.look(self._address, self._credentials, self._identity)
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
            await probe.look(self._address, self._credentials, self._identity, timeout_s=probe.EXPLAIN_S)
        except Untrusted as cause:
            raise cause from error
        except PeerError:
            return  # nobody answers: gRPC's own words say it
