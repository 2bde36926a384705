"""Certificates that name an identity, not an address.

Each certificate carries its identity twice: as URI (``dpgt:agent:NAME``), which servers read, and as a DNS name made
from it (``NAME.agent.dpgt``), which clients demand through gRPC's own name check
(``grpc.ssl_target_name_override``).  So both ends prove WHO they are, whatever address was dialled.  Both ends present
certificates; one CA a deployment.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpgt_node.errors import ConfigError, Problem
from dpgt_node.runtime.blobs import write_whole

CA_FILE, CERT_FILE, KEY_FILE = "ca.pem", "cert.pem", "key.pem"
_IDENTITY = re.compile(r"dpgt:(?:(coordinator|operator)|agent:([A-Za-z0-9][A-Za-z0-9._-]{0,62}))", re.ASCII)
_SKEW = datetime.timedelta(hours=1)  # a host whose clock is behind accepts a fresh certificate
_KEY_USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def target_name_override(identity: str) -> str:
    """The DNS name by which a client pins ``identity``, for ``grpc.ssl_target_name_override``.

    Lower case, because DNS names ignore case; agent names are unique ignoring it.  ValueError if ``identity`` is none.
    """
    match = _IDENTITY.fullmatch(identity)
    if match is None:
        raise ValueError(f"{identity!r} is not dpgt:agent:NAME, dpgt:coordinator or dpgt:operator")
    role, name = match.groups()
    return f"{role}.dpgt" if role is not None else f"{name.lower()}.agent.dpgt"


def _names(identity: str, hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    pinned = target_name_override(identity)
    dns, addresses = [pinned, "localhost"], ["127.0.0.1", "::1"]
    for host in hosts:
        try:
            addresses.append(str(ipaddress.ip_address(host)))
        except ValueError:
            if host.lower().rstrip(".").endswith(".dpgt"):  # would be somebody's identity
                raise ValueError(f"host name {host!r}: names below .dpgt are identities") from None
            dns.append(host)
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity)]
    names += [x509.DNSName(name) for name in dict.fromkeys(dns)]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in dict.fromkeys(addresses)]
    return x509.SubjectAlternativeName(names)


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use in allowed for use in _KEY_USES})


def _builder(
    subject: str, issuer: x509.Name | None, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


class CertificateAuthority:
    """Signs the certificates of one deployment; the key stays in memory."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, *, days: int = 3650) -> CertificateAuthority:
        """A fresh CA (EC P-256), valid for ``days`` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder("dpgt CA", None, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @property
    def cert_pem(self) -> bytes:
        """The CA's own certificate, PEM: what every peer trusts."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, identity: str, hosts: Iterable[str] = (), *, days: int = 365) -> tuple[bytes, bytes]:
        """(certificate, private key), PEM, for ``identity``, also valid for localhost and ``hosts`` (names and IPs).

        Both a server's and a client's certificate.  ValueError for something that is no identity or a host name that
        would be one.
        """
        names = _names(identity, hosts)
        key = ec.generate_private_key(ec.SECP256R1())
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(identity[:64], self._certificate.subject, key, days)
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(both, critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate.public_bytes(serialization.Encoding.PEM), key_pem

    def write_folder(self, folder: Path, identity: str, hosts: Iterable[str] = (), *, days: int = 365) -> None:
        """Issue a certificate and write ca.pem, cert.pem and key.pem, mode 0600 from the start.  May raise OSError."""
        certificate, key = self.issue(identity, hosts, days=days)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, pem in ((CA_FILE, self.cert_pem), (CERT_FILE, certificate), (KEY_FILE, key)):
            write_whole(folder / name, (pem,), "process")


# --- using them ---------------------------------------------------------------------------------------------------


def _identities(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if uri.startswith("dpgt:")]


def _read(path: Path, problems: list[Problem]) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problems.append(Problem(str(path), "", f"cannot be read: {error.strerror}"))
        return b""


def _problems_of(ca: Path, cert: Path, key: Path, pems: tuple[bytes, bytes, bytes]) -> list[Problem]:
    """What would make every handshake fail, or prove nothing; gRPC itself would only say that no connection came up."""
    found: list[Problem] = []
    try:
        authorities = x509.load_pem_x509_certificates(pems[0])
    except ValueError:
        return [Problem(str(ca), "", "holds no PEM certificate")]
    try:
        certificate = x509.load_pem_x509_certificates(pems[1])[0]
    except ValueError:
        return [Problem(str(cert), "", "holds no PEM certificate")]
    try:
        private = serialization.load_pem_private_key(pems[2], password=None)
    except (ValueError, TypeError):
        return [Problem(str(key), "", "holds no unencrypted PEM private key")]
    if private.public_key() != certificate.public_key():
        found.append(Problem(str(key), "", f"is not the key of {cert}"))
    now = datetime.datetime.now(datetime.UTC)
    for path, each in ((cert, certificate), *((ca, authority) for authority in authorities)):
        if now > each.not_valid_after_utc:
            found.append(Problem(str(path), "", f"expired on {each.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"))
        elif now < each.not_valid_before_utc:
            start = f"{each.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
            found.append(Problem(str(path), "", f"is valid from {start} on; is this host's clock right?"))
    if not any(_issued_by(certificate, authority) for authority in authorities):
        found.append(Problem(str(cert), "", f"was not issued by a CA in {ca}"))
    if len(_identities(certificate)) != 1:
        found.append(Problem(str(cert), "", "does not hold exactly one dpgt: identity"))
    return found


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def read_identity(cert: Path) -> str:
    """The one identity of a certificate file, e.g. ``dpgt:agent:NAME``.  ConfigError when it has none or several."""
    problems: list[Problem] = []
    pem = _read(cert, problems)
    if problems:
        raise ConfigError(problems)
    try:
        found = _identities(x509.load_pem_x509_certificates(pem)[0])
    except ValueError:
        raise ConfigError.one(str(cert), "", "holds no PEM certificate") from None
    if len(found) != 1:
        raise ConfigError.one(str(cert), "", "does not hold exactly one dpgt: identity")
    return found[0]


def _load(ca: Path, cert: Path, key: Path) -> tuple[bytes, bytes, bytes]:
    problems: list[Problem] = []
    pems = (_read(ca, problems), _read(cert, problems), _read(key, problems))
    problems = problems or _problems_of(ca, cert, key, pems)
    if problems:
        raise ConfigError(problems)
    return pems


def server_credentials(ca: Path, cert: Path, key: Path) -> grpc.ServerCredentials:
    """Credentials of a server that demands a certificate of ``ca`` from every client.

    ConfigError with everything that is wrong with the files: unreadable, expired, not yet valid, of another CA or key.
    """
    ca_pem, cert_pem, key_pem = _load(ca, cert, key)
    return grpc.ssl_server_credentials([(key_pem, cert_pem)], root_certificates=ca_pem, require_client_auth=True)


def channel_credentials(ca: Path, cert: Path, key: Path) -> grpc.ChannelCredentials:
    """Credentials of a client that presents ``cert``; pin the server with ``target_name_override``.

    ConfigError as for ``server_credentials``.
    """
    ca_pem, cert_pem, key_pem = _load(ca, cert, key)
    return grpc.ssl_channel_credentials(root_certificates=ca_pem, private_key=key_pem, certificate_chain=cert_pem)
