"""Channels, servers and credentials for one process: mTLS that pins identities, or explicitly none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from dpgt_node.runtime.tls import (
    CA_FILE,
    CERT_FILE,
    KEY_FILE,
    channel_credentials,
    server_credentials,
    target_name_override,
)
from dpgt_node.wire import services


@dataclass(frozen=True, slots=True)
class Security:
    """What a process proves itself with; ``None`` paths mean no TLS at all (--insecure)."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def from_folder(cls, folder: Path | None) -> Security:
        """The three PEM files of a start-up folder, or no TLS for None."""
        if folder is None:
            return cls()
        return cls(folder / CA_FILE, folder / CERT_FILE, folder / KEY_FILE)

    @property
    def secure(self) -> bool:
        """Whether TLS is used."""
        return self.ca is not None

    def server_credentials(self) -> grpc.ServerCredentials | None:
        """Demands and verifies a client certificate; None without TLS."""
        if self.ca is None or self.cert is None or self.key is None:
            return None
        return server_credentials(self.ca, self.cert, self.key)

    def opener(self, identity: str) -> Callable[[str], grpc.aio.Channel]:
        """Opens channels whose other end must prove to be ``identity``, whatever address it is dialled by."""
        if self.ca is None or self.cert is None or self.key is None:
            return lambda address: grpc.aio.insecure_channel(address, options=services.CHANNEL_OPTIONS)
        credentials = channel_credentials(self.ca, self.cert, self.key)
        options = (*services.CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", target_name_override(identity)))
        return lambda address: grpc.aio.secure_channel(address, credentials, options=options)


def agent_identity(name: str) -> str:
    """URI SAN of an agent's certificate."""
    return f"dpgt:agent:{name}"


COORDINATOR_IDENTITY = "dpgt:coordinator"
OPERATOR_IDENTITY = "dpgt:operator"
