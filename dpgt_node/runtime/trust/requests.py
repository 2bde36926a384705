"""Signing requests: a host makes its own key, and asks the authority for a certificate of it (PKCS #10).

The private key never leaves the host.  A request says who asks and by which addresses the host is reached, and is
signed with the key itself.  It proves that whoever made it holds the key, and nothing about who that is: the
fingerprint of the key, compared out of band, does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.oid import NameOID

from dpgt_node.config import format_address, parse_address
from dpgt_node.durable import make_folder, write_new
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.trust.certificates import UNREADABLE, Names, names_of, target_name_override
from dpgt_node.runtime.trust.files import CERT_FILE, KEY_FILE
from dpgt_node.runtime.trust.tls import alternative_names, private_pem
from dpgt_node.values import dataclass

REQUEST_FILE = "request.pem"
MAX_BYTES = 64 << 10
"""Of a request's file; one of ours has less than 2 kB."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""What every certificate is valid for, asked or not."""
_CURVES = (ec.SECP256R1, ec.SECP384R1)


def key_fingerprint(key: PublicKeyTypes) -> str:
    """SHA-256 of a public key as DER (SubjectPublicKeyInfo), hex: what two people read to each other."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


@dataclass(frozen=True, slots=True)
class Request:
    """What a request says, its signature verified.  ``hosts``: names and addresses; ``fingerprint``: of its key.

    ``hosts`` leaves ``LOOPBACK`` out.
    """

    identity: str
    hosts: tuple[str, ...]
    key: ec.EllipticCurvePublicKey
    pem: bytes

    @property
    def fingerprint(self) -> str:
        return key_fingerprint(self.key)


def make(folder: Path, identity: str, hosts: Iterable[str]) -> Request:
    """A fresh key (EC P-256, mode 0600) in ``folder`` and a request for it.  Nothing that is there is overwritten.

    ConfigError for a folder that holds a key, a certificate or a request, and for hosts that no certificate may name.
    May raise OSError.
    """
    for name in (KEY_FILE, CERT_FILE, REQUEST_FILE):
        if (folder / name).exists() or (folder / name).is_symlink():
            message = "is there already and stays as it is: choose a new folder"
            raise ConfigError.one(str(folder / name), "", message)
    try:
        names = alternative_names([target_name_override(identity)], identity, hosts)
    except ValueError as error:
        raise ConfigError.one("command line", "--host", str(error)) from error
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity[:64])])
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject).add_extension(names, critical=False)
    pem = asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    make_folder(folder, "power")
    write_new(folder / KEY_FILE, private_pem(key))
    write_new(folder / REQUEST_FILE, pem)
    return parse(pem)


def is_one(path: Path) -> bool:
    """Whether the file ``path`` calls itself a request."""
    try:
        with path.open("rb") as file:
            return b"BEGIN CERTIFICATE REQUEST" in file.read(MAX_BYTES)
    except OSError:
        return False


def read(path: Path) -> Request:
    """The request in the file ``path``.  ConfigError says what is wrong with it."""
    try:
        with path.open("rb") as file:
            pem = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError.one(str(path), "", f"cannot be read: {error.strerror}") from error
    try:
        if len(pem) > MAX_BYTES:
            raise ValueError(f"has more than {MAX_BYTES} bytes: no request has")
        return parse(pem)
    except ValueError as error:
        raise ConfigError.one(str(path), "", str(error)) from None


def parse(pem: bytes) -> Request:
    """What ``pem`` asks for.  ValueError: garbage, not signed with its own key, a weak key, not exactly one identity.

    Who made it chose every byte, so only identity and hosts are taken over; all other extensions are left.
    """
    try:
        asked = x509.load_pem_x509_csr(pem)
        key, signed = asked.public_key(), asked.is_signature_valid
        names = _names(asked)
    except (*UNREADABLE, InvalidSignature):
        raise ValueError("holds no PEM certificate request that can be read") from None
    if not signed:
        raise ValueError("is not signed with its own key: it was changed, or made for somebody else's key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, _CURVES):
        raise ValueError(f"is for {_described(key)}: a key on P-256 or P-384 is needed (dpgt pki request makes one)")
    if len(names.identities) != 1:
        raise ValueError("does not ask for exactly one dpgt: identity")
    identity = names.identities[0]
    try:
        own = {target_name_override(identity), *LOOPBACK}
    except ValueError as error:
        raise ValueError(f"asks for an identity that is none: {str(error)[:200]}") from None
    hosts = tuple(host for host in (*names.dns, *names.ip) if host not in own)
    alternative_names((), identity, hosts)
    for host in hosts:
        parse_address(format_address(host, 1))
    return Request(identity, hosts, key, pem)


def _names(asked: x509.CertificateSigningRequest) -> Names:
    try:
        return names_of(asked)
    except (*UNREADABLE, x509.ExtensionNotFound):
        raise ValueError from None


def _described(key: PublicKeyTypes) -> str:
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"a key on {key.curve.name}"
    size = getattr(key, "key_size", None)
    kind = type(key).__name__.lstrip("_").removesuffix("PublicKey")
    return f"a key of kind {kind}" + (f" with {size} bits" if isinstance(size, int) else "")
