"""Servers, clients and certificates of tests about trust: real sockets, certificates of any date and use."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from dpgt_node.errors import PeerError
from dpgt_node.protocol.messages import ExchangeReply, Received
from dpgt_node.runtime.trust.channels import Security, agent_identity
from dpgt_node.runtime.trust.credentials import Material
from dpgt_node.runtime.trust.files import Files
from dpgt_node.runtime.trust.guard import Guard
from dpgt_node.runtime.trust.pki import Registry
from dpgt_node.runtime.trust.tls import CertificateAuthority, Validity
from dpgt_node.wire import services

NOW = datetime.datetime.now(datetime.UTC)
HOUR = datetime.timedelta(hours=1)
DATES: dict[str, Validity] = {
    "good": (NOW - HOUR, NOW + 1000 * HOUR),
    "expired": (NOW - 100 * HOUR, NOW - 50 * HOUR),
    "not yet valid": (NOW + 3 * HOUR, NOW + 1000 * HOUR),
}


TRIES = 5


class Echo:
    """Sends every frame's size back."""

    def __init__(self) -> None:
        self.heard: list[str | None] = []

    async def exchange(self, stream: services.ServerStream[bytes, ExchangeReply]) -> None:
        self.heard.append(stream.identity)
        try:
            while (frame := await stream.read()) is not None:
                await stream.write(Received(len(frame)))
        except asyncio.CancelledError:
            return


@asynccontextmanager
async def serving(
    credentials: grpc.ServerCredentials | None, guard: Guard | None = None, listen: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[Echo, str]]:
    """An Echo, and where it listens."""
    echo = Echo()
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    server.add_generic_rpc_handlers([services.agent_handler(echo, guard or Guard(None))])
    port = services.bind(server, listen, credentials, "test")
    await server.start()
    try:
        yield echo, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def served_by(security: Security) -> AsyncIterator[tuple[Echo, str]]:
    """The same, as a daemon does it."""
    async with serving(security.server_credentials(), security.guard) as found:
        watch = asyncio.ensure_future(security.watch())
        try:
            yield found
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)


async def say(call: services.ClientStream[bytes, ExchangeReply], size: int = 2) -> int:
    """One frame there, its size back."""
    await call.write(b"\0" * size)
    reply = await call.read()
    assert isinstance(reply, Received)
    return reply.frames


async def talk(security: Security, address: str, name: str = "agent-2") -> str:
    """ "" when ``name`` answers at ``address``, else the error's words.

    gRPC loses them, now and then, where a server refuses a call that the client is just writing to: then, as agents do,
    it calls again.
    """
    for _ in range(TRIES):
        try:
            async with security.dialler(agent_identity(name))(address) as channel:
                await say(services.exchange(channel, "-"))
        except PeerError as error:
            said = f"{error.grpc_status}: {error}"
            if not said.startswith("UNAVAILABLE: ") or not said.endswith("ended the call in mid-write"):
                return said
        else:
            return ""
    return said


def registry(folder: Path) -> Registry:
    return Registry.create(folder / "authority")


def enrol(made: Registry, folder: Path, name: str) -> Security:
    """An agent's start-up folder, and what it makes of it."""
    made.issue(agent_identity(name), [], folder / name, days=10)
    return Security.from_folder(folder / name)


def serial(security: Security) -> int:
    assert security.credentials is not None
    return security.credentials.material().certificate.serial_number


def as_if_good(security: Security, folder: Path) -> Security:
    """Its files, taken as they are, without the checks that would refuse them at a start."""
    files = Files.of(folder)
    ca, cert, key = (path.read_bytes() for path in (files.ca, files.cert, files.key))
    assert security.credentials is not None
    held = security.credentials
    authorities = tuple(x509.load_pem_x509_certificates(ca))
    held._material = Material(ca, cert, x509.load_pem_x509_certificate(cert), authorities, frozenset(), key)
    held._stamp = held.files.stamp()
    return security


def minted(authority: CertificateAuthority, folder: Path, name: str, dates: str) -> Security:
    """A start-up folder with a certificate of these dates, and what a process without checks makes of it."""
    authority.write_folder(folder, agent_identity(name), valid=DATES[dates])
    return as_if_good(Security.from_folder(folder), folder)


def resigned(authority: CertificateAuthority, folder: Path, *changed: x509.ExtensionType) -> Security:
    """The certificate in ``folder`` again, with these extensions in place of those of the same kind."""
    old = x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())
    builder = (
        x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), old.serial_number)
        .not_valid_before(old.not_valid_before_utc)
        .not_valid_after(old.not_valid_after_utc)
    )
    instead = {type(extension): extension for extension in changed}
    for extension in old.extensions:
        builder = builder.add_extension(instead.get(type(extension.value), extension.value), extension.critical)
    made = builder.sign(authority._key, hashes.SHA256())
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return as_if_good(Security.from_folder(folder), folder)


@asynccontextmanager
async def relay(*targets: str) -> AsyncIterator[str]:
    """A man in the middle: connection i goes to target i, all later ones to the last."""
    count = 0
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        host, _, port = targets[min(count, len(targets) - 1)].rpartition(":")
        count += 1
        there, back = await asyncio.open_connection(host, int(port))
        for job in (pump(reader, back), pump(there, writer)):
            task = asyncio.ensure_future(job)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
