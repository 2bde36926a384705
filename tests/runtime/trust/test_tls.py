"""Certificates prove identities at both ends, on real sockets, whatever address is dialled."""

from __future__ import annotations

import datetime
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from dpgt_node.errors import ConfigError, PeerError
from dpgt_node.protocol.messages import ExchangeReply, Received
from dpgt_node.runtime.trust import tls
from dpgt_node.runtime.trust.certificates import serial_name, target_name_override
from dpgt_node.runtime.trust.credentials import Credentials
from dpgt_node.runtime.trust.files import Files
from dpgt_node.wire import services


@pytest.fixture(scope="module")
def authority() -> tls.CertificateAuthority:
    return tls.CertificateAuthority.create()


def paths(folder: Path) -> tuple[Path, Path, Path]:
    return folder / tls.CA_FILE, folder / tls.CERT_FILE, folder / tls.KEY_FILE


def folder_for(
    authority: tls.CertificateAuthority, parent: Path, identity: str, hosts: tuple[str, ...] = ()
) -> tuple[Path, Path, Path]:
    folder = parent / identity.replace(":", "-")
    authority.write_folder(folder, identity, hosts)
    return paths(folder)


class Echo:
    """Notes who called and sends every frame's size back."""

    def __init__(self) -> None:
        self.identities: list[str | None] = []

    async def exchange(self, stream: services.ServerStream[bytes, ExchangeReply]) -> None:
        self.identities.append(stream.identity)
        assert stream.secure
        stream.agent_name()
        while (frame := await stream.read()) is not None:
            assert isinstance(frame, bytes)
            await stream.write(Received(len(frame)))


@asynccontextmanager
async def serving(files: tuple[Path, Path, Path]) -> AsyncIterator[tuple[Echo, str]]:
    echo = Echo()
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    server.add_generic_rpc_handlers([services.agent_handler(echo)])
    port = services.bind(server, "127.0.0.1:0", Credentials(Files(*files)).server_credentials(), "test")
    await server.start()
    try:
        yield echo, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def talk(address: str, files: tuple[Path, Path, Path] | None, expected: str, frame: bytes = b"\x12\x00") -> int:
    """One frame to whoever listens at ``address``, who must prove to be ``expected``; its size, as told back."""
    override = ("grpc.ssl_target_name_override", target_name_override(expected))
    ours = grpc.ssl_channel_credentials() if files is None else Credentials(Files(*files)).channel_credentials()
    async with grpc.aio.secure_channel(address, ours, options=(*services.CHANNEL_OPTIONS, override)) as channel:
        call = services.exchange(channel, "ignored-where-certificates-are-used")
        await call.write(frame)
        reply = await call.read()
        assert isinstance(reply, Received)
        await call.done_writing()
        assert await call.read() is None
        return reply.frames


@pytest.mark.parametrize("name", ["agent-2", "A_b.c-9", "a" * 63, "1..x"])
async def test_both_ends_prove_their_identity(authority: tls.CertificateAuthority, tmp_path: Path, name: str) -> None:
    server = folder_for(authority, tmp_path, f"dpgt:agent:{name}")
    client = folder_for(authority, tmp_path, "dpgt:agent:Caller.1")
    frame = os.urandom(300_000)
    async with serving(server) as (echo, address):
        assert await talk(address, client, f"dpgt:agent:{name}", frame) == len(frame)
    assert echo.identities == ["dpgt:agent:Caller.1"]


@pytest.mark.parametrize("pinned", ["dpgt:agent:agent-3", "dpgt:coordinator", "dpgt:operator", "dpgt:agent:agent-22"])
async def test_a_server_that_is_somebody_else_is_refused(
    authority: tls.CertificateAuthority, tmp_path: Path, pinned: str
) -> None:
    """The dialled address is the same and right; only the pin differs."""
    server = folder_for(authority, tmp_path, "dpgt:agent:agent-2", hosts=("example.org", "10.0.0.2"))
    client = folder_for(authority, tmp_path, "dpgt:agent:agent-1")
    async with serving(server) as (echo, address):
        with pytest.raises(PeerError) as caught:
            await talk(address, client, pinned)
        assert caught.value.grpc_status == "UNAVAILABLE"
        assert echo.identities == []
        assert await talk(address, client, "dpgt:agent:agent-2") == 2


async def test_a_client_of_another_ca_is_refused(authority: tls.CertificateAuthority, tmp_path: Path) -> None:
    """It trusts the server's CA, so that it is the server that must refuse."""
    server = folder_for(authority, tmp_path, "dpgt:agent:agent-2")
    stranger = tls.CertificateAuthority.create()
    _, cert, key = folder_for(stranger, tmp_path / "stranger", "dpgt:agent:agent-1")
    async with serving(server) as (echo, address):
        credentials = grpc.ssl_channel_credentials(server[0].read_bytes(), key.read_bytes(), cert.read_bytes())
        options = (*services.CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", "agent-2.agent.dpgt"))
        async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
            with pytest.raises(PeerError) as caught:
                await services.exchange(channel, "agent-1").read()
        assert caught.value.grpc_status == "UNAVAILABLE"
        assert echo.identities == []


async def test_a_client_without_a_certificate_is_refused(authority: tls.CertificateAuthority, tmp_path: Path) -> None:
    server = folder_for(authority, tmp_path, "dpgt:agent:agent-2")
    async with serving(server) as (echo, address):
        credentials = grpc.ssl_channel_credentials(server[0].read_bytes())
        options = (*services.CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", "agent-2.agent.dpgt"))
        async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
            with pytest.raises(PeerError) as caught:
                await services.exchange(channel, "agent-1").read()
        assert caught.value.grpc_status == "UNAVAILABLE"
        assert echo.identities == []


async def test_the_coordinator_is_no_agent(authority: tls.CertificateAuthority, tmp_path: Path) -> None:
    server = folder_for(authority, tmp_path, "dpgt:agent:agent-2")
    client = folder_for(authority, tmp_path, "dpgt:coordinator")
    async with serving(server) as (_, address):
        with pytest.raises(PeerError, match="dpgt:coordinator, not an agent") as caught:
            await talk(address, client, "dpgt:agent:agent-2")
    assert caught.value.grpc_status == "PERMISSION_DENIED"


def test_issued_certificates(authority: tls.CertificateAuthority) -> None:
    cert_pem, _ = authority.issue("dpgt:agent:Agent_1.x", ["node-1.example.org", "10.1.2.3", "fd00::1", "localhost"])
    certificate = x509.load_pem_x509_certificate(cert_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["dpgt:agent:Agent_1.x"]
    own = serial_name(certificate.serial_number)
    dns = ["agent_1.x.agent.dpgt", own, "localhost", "node-1.example.org"]
    assert names.get_values_for_type(x509.DNSName) == dns
    addresses = [str(a) for a in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "::1", "10.1.2.3", "fd00::1"]
    assert certificate.not_valid_before_utc < datetime.datetime.now(datetime.UTC) < certificate.not_valid_after_utc
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_no_certificate_outlives_its_authority(authority: tls.CertificateAuthority) -> None:
    end = authority.certificate.not_valid_after_utc
    for days in (3, 100_000):
        made = x509.load_pem_x509_certificate(authority.issue("dpgt:agent:agent-1", days=days)[0])
        assert made.not_valid_after_utc < end if days == 3 else made.not_valid_after_utc == end


@pytest.mark.parametrize(
    "identity", ["agent-1", "dpgt:agent:", "dpgt:agent:-x", "dpgt:agent:a/b", "dpgt:root", "", "dpgt:agent:ä"]
)
def test_no_certificate_for_what_is_no_identity(authority: tls.CertificateAuthority, identity: str) -> None:
    with pytest.raises(ValueError, match="is not dpgt:agent:NAME"):
        authority.issue(identity)


@pytest.mark.parametrize("host", ["agent-3.agent.dpgt", "coordinator.DPGT", "x.dpgt."])
def test_a_host_name_cannot_be_an_identity(authority: tls.CertificateAuthority, host: str) -> None:
    """Else the owner of agent-2's host could have itself dialled as agent-3."""
    with pytest.raises(ValueError, match=r"names below \.dpgt are identities"):
        authority.issue("dpgt:agent:agent-2", [host])


def test_pinned_names_are_distinct() -> None:
    identities = ["dpgt:coordinator", "dpgt:operator", "dpgt:agent:coordinator", "dpgt:agent:a", "dpgt:agent:a.agent"]
    assert len({target_name_override(i) for i in identities}) == len(identities)
    assert target_name_override("dpgt:agent:A.b") == "a.b.agent.dpgt"


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_keys_are_private(authority: tls.CertificateAuthority, tmp_path: Path) -> None:
    folder_for(authority, tmp_path, "dpgt:coordinator")
    folder = tmp_path / "dpgt-coordinator"
    assert sorted(p.name for p in folder.iterdir()) == [tls.CA_FILE, tls.CERT_FILE, tls.KEY_FILE]
    assert stat.S_IMODE((folder / tls.KEY_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def damaged(kind: str, folder: Path, authority: tls.CertificateAuthority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the start-up folder wrong in one way."""
    ca, cert, key = paths(folder)
    match kind:
        case "missing":
            key.unlink()
        case "no-ca":
            ca.write_text("hello")
        case "no-cert":
            cert.write_bytes(key.read_bytes())
        case "no-key":
            key.write_bytes(cert.read_bytes())
        case "other-key":
            key.write_bytes(authority.issue("dpgt:agent:agent-1")[1])
        case "other-ca":
            ca.write_bytes(tls.CertificateAuthority.create().cert_pem)
        case "expired":
            pem, key_pem = authority.issue("dpgt:agent:agent-1", days=0)
            cert.write_bytes(pem)
            key.write_bytes(key_pem)
        case "early":
            monkeypatch.setattr(tls, "_SKEW", datetime.timedelta(hours=-2))
            pem, key_pem = authority.issue("dpgt:agent:agent-1")
            cert.write_bytes(pem)
            key.write_bytes(key_pem)
        case "no-identity":
            monkeypatch.setattr(
                tls, "alternative_names", lambda *_: x509.SubjectAlternativeName([x509.DNSName("localhost")])
            )
            pem, key_pem = authority.issue("dpgt:agent:agent-1")
            cert.write_bytes(pem)
            key.write_bytes(key_pem)
        case "encrypted-key":
            private = serialization.load_pem_private_key(key.read_bytes(), None)
            protection = serialization.BestAvailableEncryption(b"secret")
            key.write_bytes(
                private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
            )


@pytest.mark.parametrize(
    ("kind", "file", "message"),
    [
        ("missing", "key.pem", "cannot be read: No such file"),
        ("no-ca", "ca.pem", "holds no PEM certificate"),
        ("no-cert", "cert.pem", "holds no PEM certificate"),
        ("no-key", "key.pem", "holds no unencrypted PEM private key"),
        ("encrypted-key", "key.pem", "holds no unencrypted PEM private key"),
        ("other-key", "key.pem", "is not the key of"),
        ("other-ca", "cert.pem", "was not issued by a CA in"),
        ("expired", "cert.pem", "expired on"),
        ("early", "cert.pem", "is this host's clock right"),
        ("no-identity", "cert.pem", "does not hold exactly one dpgt: identity"),
    ],
)
def test_unusable_files_are_named(
    authority: tls.CertificateAuthority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    file: str,
    message: str,
) -> None:
    """gRPC would only say that no connection came up, for ever."""
    authority.write_folder(tmp_path, "dpgt:agent:agent-1")
    files = Files(*paths(tmp_path))
    Credentials(files).server_credentials()
    damaged(kind, tmp_path, authority, monkeypatch)
    for load in (Credentials.server_credentials, Credentials.channel_credentials):
        with pytest.raises(ConfigError, match=message) as caught:
            load(Credentials(files))
        assert [Path(p.source).name for p in caught.value.problems] == [file]
