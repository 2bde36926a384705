"""The certificate authority of one deployment: issues certificates that name an identity, signs revocation lists."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpgt_node.durable import write_whole
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.trust.certificates import serial_name, target_name_override
from dpgt_node.runtime.trust.files import CA_FILE, CERT_FILE, KEY_FILE

_SKEW = datetime.timedelta(hours=1)  # a host whose clock is behind accepts a fresh certificate
_KEY_USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip

Validity = tuple[datetime.datetime, datetime.datetime]
"""First and last instant, aware of their time zone."""


def alternative_names(own: Iterable[str], identity: str, hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    """``identity`` as URI, the DNS names ``own``, this machine's, and ``hosts``.

    ValueError for a host that is no name or address, or one below .dpgt, which would be somebody's identity.
    """
    dns = [*own, "localhost"]
    addresses = ["127.0.0.1", "::1"]
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


def valid_for(days: float) -> Validity:
    """From an hour ago (clocks differ) for ``days`` from now."""
    now = datetime.datetime.now(datetime.UTC)
    return now - _SKEW, now + datetime.timedelta(days=days)


def _builder(
    subject: str, issuer: x509.Name | None, key: ec.EllipticCurvePublicKey, serial: int, valid: Validity
) -> x509.CertificateBuilder:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS #8, PEM, not encrypted: for a file of mode 0600."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class CertificateAuthority:
    """Signs the certificates of one deployment."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, *, days: float = 3650) -> CertificateAuthority:
        """A fresh CA (EC P-256), valid for ``days`` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder("dpgt CA", None, key.public_key(), x509.random_serial_number(), valid_for(days))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, folder: Path) -> CertificateAuthority:
        """The authority that ``save`` wrote.  ConfigError when its files are not there or do not fit."""
        try:
            certificate = x509.load_pem_x509_certificate((folder / CA_FILE).read_bytes())
            key = serialization.load_pem_private_key((folder / KEY_FILE).read_bytes(), password=None)
        except OSError as error:
            message = f"cannot be read ({error.strerror}): name the folder where the authority's key is kept"
            raise ConfigError.one(str(error.filename or folder), "", message) from error
        except (ValueError, TypeError):
            raise ConfigError.one(str(folder), "", "holds no authority: ca.pem and key.pem, PEM") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ConfigError.one(str(folder / KEY_FILE), "", f"is not the key of {folder / CA_FILE}")
        return cls(key, certificate)

    def save(self, folder: Path) -> None:
        """Write certificate and key; folder 0700 and key 0600 from the start.  May raise OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, pem in ((KEY_FILE, private_pem(self._key)), (CA_FILE, self.cert_pem)):
            write_whole(folder / name, (pem,), "power")

    @property
    def certificate(self) -> x509.Certificate:
        return self._certificate

    @property
    def cert_pem(self) -> bytes:
        """The CA's own certificate, PEM: what every peer trusts."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, identity: str, hosts: Iterable[str] = (), *, days: float = 365, valid: Validity | None = None
    ) -> tuple[bytes, bytes]:
        """(certificate, private key), PEM, for ``identity``, also valid for localhost and ``hosts`` (names and IPs).

        Both a server's and a client's certificate, valid for ``days`` from now (or exactly ``valid``), at most as long
        as the authority.  ValueError for something that is no identity or a host name that would be one.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        return self.certify(key.public_key(), identity, hosts, days=days, valid=valid), private_pem(key)

    def certify(
        self,
        key: ec.EllipticCurvePublicKey,
        identity: str,
        hosts: Iterable[str] = (),
        *,
        days: float = 365,
        valid: Validity | None = None,
    ) -> bytes:
        """The certificate, PEM, of somebody else's ``key``; the rest as in :meth:`issue`."""
        serial = x509.random_serial_number()
        names = alternative_names((target_name_override(identity), serial_name(serial)), identity, hosts)
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        start, end = valid_for(days) if valid is None else valid
        end = min(end, self._certificate.not_valid_after_utc)
        certificate = (
            _builder(identity[:64], self._certificate.subject, key, serial, (start, end))
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(both, critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def revocation_list(self, revoked: Mapping[int, datetime.datetime]) -> bytes:
        """An X.509 CRL, PEM: serial numbers and since when.  It does not expire before the authority."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(datetime.datetime.now(datetime.UTC))
            .next_update(self._certificate.not_valid_after_utc)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.CRLNumber(len(revoked)), critical=False)
        )
        for serial, since in sorted(revoked.items()):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since).build()
            builder = builder.add_revoked_certificate(entry)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def write_folder(
        self,
        folder: Path,
        identity: str,
        hosts: Iterable[str] = (),
        *,
        days: float = 365,
        valid: Validity | None = None,
    ) -> bytes:
        """Issue a certificate and put it into ``folder`` (see ``put``); the certificate, PEM.  May raise OSError."""
        certificate, key = self.issue(identity, hosts, days=days, valid=valid)
        self.put(folder, certificate, key)
        return certificate

    def put(self, folder: Path, certificate: bytes | None, key: bytes | None) -> None:
        """Write ca.pem, key.pem and cert.pem, mode 0600 from the start, each replaced at once.  May raise OSError.

        None leaves a file out: the host makes its own key.  The certificate last: a process that looks in between sees
        a pair that does not fit and keeps its own.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, pem in ((CA_FILE, self.cert_pem), (KEY_FILE, key), (CERT_FILE, certificate)):
            if pem is not None:
                write_whole(folder / name, (pem,), "process")
