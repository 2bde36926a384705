"""The authority's own folder: its key, what it issued, what it revoked; and what a certificate file says.

DIR/authority/ (0700) holds ca.pem, key.pem (0600), crl.pem once something is revoked, and issued/SERIAL.pem: every
certificate, no private key.  issued/SERIAL.csr is the request for one whose key its host made.  The start-up folders
lie beside it, one a process.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from dpgt_node.config.model import RunConfig
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.durable import write_whole
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.trust import requests
from dpgt_node.runtime.trust.certificates import (
    UNREADABLE,
    Revoked,
    authority_problem,
    fingerprint,
    is_authority,
    judge,
    key_of,
    names_of,
    read_revoked,
    serial_name,
    target_name_override,
)
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, OPERATOR_IDENTITY, agent_identity
from dpgt_node.runtime.trust.files import CA_FILE, CERT_FILE, CRL_FILE, KEY_FILE
from dpgt_node.runtime.trust.requests import LOOPBACK, Request, key_fingerprint
from dpgt_node.runtime.trust.tls import CertificateAuthority
from dpgt_node.values import dataclass

AUTHORITY = "authority"
COORDINATOR, OPERATOR = "coordinator", "operator"
_ISSUED = "issued"


def identity_of(name: str) -> str:
    """The identity of a start-up folder's name: coordinator, operator, or an agent's."""
    roles = {COORDINATOR: COORDINATOR_IDENTITY, OPERATOR: OPERATOR_IDENTITY}
    return roles.get(name) or agent_identity(name)


def name_of(certificate: x509.Certificate) -> str:
    """The name whose identity ``certificate`` carries; ConfigError without one."""
    identities = names_of(certificate).identities
    if len(identities) != 1:
        raise ConfigError.one(f"serial {certificate.serial_number:x}", "", "does not hold exactly one dpgt: identity")
    return name_of_identity(identities[0])


def name_of_identity(identity: str) -> str:
    """The reverse of ``identity_of``."""
    return identity.rpartition(":")[2]


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a PEM file.  ConfigError when there is none."""
    return read_certificates(path)[0]


def read_certificates(path: Path) -> list[x509.Certificate]:
    """Every certificate of a PEM file, at least one.  ConfigError when there is none."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise ConfigError.one(str(path), "", f"cannot be read: {error.strerror}") from error
    except ValueError:
        raise ConfigError.one(str(path), "", "holds no PEM certificate") from None


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The host names and addresses it was issued for, without those that every certificate has."""
    names = names_of(certificate)
    own = {serial_name(certificate.serial_number), *LOOPBACK, *map(target_name_override, names.identities)}
    return tuple(host for host in (*names.dns, *names.ip) if host not in own)


class Registry:
    """The authority and its records, in ``folder``.  Methods that write may raise OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority.load(folder)

    @classmethod
    def create(cls, folder: Path, *, days: float = 3650) -> Registry:
        """A fresh authority, its key in ``folder``."""
        CertificateAuthority.create(days=days).save(folder)
        return cls(folder)

    def issue(self, identity: str, hosts: Iterable[str], into: Path, *, days: float) -> x509.Certificate:
        """A certificate with a new key, recorded and then written into ``into`` with the revocation list there is.

        ValueError as :meth:`CertificateAuthority.issue`.
        """
        self._check_alive()
        pem, key = self.authority.issue(identity, hosts, days=days)
        return self._hand_over(pem, key, into)

    def _check_alive(self) -> None:
        """ConfigError for an authority whose dates have passed: nobody would believe what it signs."""
        problem = authority_problem(self.authority.certificate, datetime.datetime.now(datetime.UTC))
        if problem is not None:
            raise ConfigError.one(str(self.folder / CA_FILE), "", problem)

    def invite(self, into: Path) -> None:
        """Tell a host that will make its own key which authority to believe."""
        self.authority.put(into, None, None)

    def sign(self, asked: Request, into: Path, *, days: float) -> x509.Certificate:
        """The certificate that a host asked for, of the host's own key: recorded, then written into ``into``.

        ConfigError: ``into`` holds a key that is not the one of the request, or somebody else's certificate.
        """
        if (into / KEY_FILE).exists() and not _is_key(into / KEY_FILE, asked):
            raise ConfigError.one(str(into / KEY_FILE), "", "is not the key that was asked for: choose a new folder")
        if (into / CERT_FILE).exists() and not of_key(read_certificate(into / CERT_FILE), asked):
            raise ConfigError.one(str(into / CERT_FILE), "", "is there already, for another key: choose a new folder")
        self._check_alive()
        pem = self.authority.certify(asked.key, asked.identity, asked.hosts, days=days)
        return self._hand_over(pem, None, into, asked.pem)

    def _hand_over(self, pem: bytes, key: bytes | None, into: Path, asked: bytes | None = None) -> x509.Certificate:
        certificate = x509.load_pem_x509_certificate(pem)
        records, serial = self.folder / _ISSUED, f"{certificate.serial_number:x}"
        records.mkdir(mode=0o700, exist_ok=True)
        if asked is not None:
            write_whole(records / f"{serial}.csr", (asked,), "power")
        # The record first: a certificate that nobody remembers could not be revoked by name.
        write_whole(records / f"{serial}.pem", (pem,), "power")
        self.authority.put(into, pem, key)
        if (self.folder / CRL_FILE).exists():
            self.copy_list(into)
        return certificate

    def request_of(self, certificate: x509.Certificate) -> Request | None:
        """What its host asked for, where the host made the key itself.  ConfigError: the record is damaged."""
        path = self.folder / _ISSUED / f"{certificate.serial_number:x}.csr"
        return requests.read(path) if path.exists() else None

    def issued(self, identity: str | None = None) -> list[x509.Certificate]:
        """Every recorded certificate (of ``identity``), oldest first."""
        found = [read_certificate(path) for path in sorted((self.folder / _ISSUED).glob("*.pem"))]
        found = [c for c in found if identity is None or identity in names_of(c).identities]
        return sorted(found, key=lambda c: c.not_valid_before_utc)

    def revoked(self) -> dict[int, datetime.datetime]:
        """Serial numbers on the list, and since when.  ConfigError for a list that is damaged."""
        path = self.folder / CRL_FILE
        if not path.exists():
            return {}
        try:
            pem = path.read_bytes()
            read_revoked(pem, [self.authority.certificate])
            return {e.serial_number: e.revocation_date_utc for e in x509.load_pem_x509_crl(pem)}
        except (OSError, ValueError) as error:
            raise ConfigError.one(str(path), "", f"cannot be used: {error}") from error

    def revoke(self, serials: Iterable[int]) -> None:
        """Write a list that holds ``serials`` too; an earlier date stays."""
        now = datetime.datetime.now(datetime.UTC)
        revoked = dict.fromkeys(serials, now) | self.revoked()
        write_whole(self.folder / CRL_FILE, (self.authority.revocation_list(revoked),), "power")

    def copy_list(self, into: Path) -> None:
        """Put the revocation list beside the ca.pem of a start-up folder."""
        write_whole(into / CRL_FILE, ((self.folder / CRL_FILE).read_bytes(),), "process")


def of_key(certificate: x509.Certificate, asked: Request) -> bool:
    """Whether the certificate is of the key that the request is of."""
    return certificate.public_key() == asked.key


def _is_key(path: Path, asked: Request) -> bool:
    try:
        return serialization.load_pem_private_key(path.read_bytes(), password=None).public_key() == asked.key
    except UNREADABLE:
        return False


def start_up_folders(pki: Path) -> list[Path]:
    """The start-up folders in a folder of ``pki init``, by name."""
    return sorted(p.parent for p in pki.glob(f"*/{CERT_FILE}") if p.parent.name != AUTHORITY)


def who_needs_list(name: str, run: RunConfig | None) -> tuple[str, ...]:
    """Who ever speaks with ``name``, or shares noise with it, and must learn that its certificate is revoked; empty:
    everybody (no run known).
    """
    if name == OPERATOR:
        return (COORDINATOR,)
    if run is None:
        return ()
    agents = run.graph.agents
    if name == COORDINATOR or name not in agents:
        return (COORDINATOR, *agents)
    i = agents.index(name)
    matrices = (run.graph.R, run.graph.C)
    graph = masks(run)
    partners = () if graph is None else graph.partners(i)
    speaks = [j in partners or any(w[i][j] or w[j][i] for w in matrices) for j in range(run.n)]
    return (COORDINATOR, *(agent for j, agent in enumerate(agents) if j != i and speaks[j]))


# --- showing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """What a certificate says.  ``revoked``: None where there is no list to ask; Good: no ``problems``.

    ``key_sha256``: of the public key, as in the request for it.  ``authority``: shown and judged as one that signs.
    """

    source: str
    identity: str | None
    serial: str
    fingerprint_sha256: str
    key_sha256: str
    dns: tuple[str, ...]
    ip: tuple[str, ...]
    not_before: datetime.datetime
    not_after: datetime.datetime
    issuer: str
    revoked: bool | None
    problems: tuple[str, ...]
    authority: bool = False


def _show(
    certificate: x509.Certificate, source: str, authorities: list[x509.Certificate], revoked: Revoked | None
) -> Shown:
    now, names = datetime.datetime.now(datetime.UTC), names_of(certificate)
    trusted = authorities or [certificate]  # a lone file: nothing is known of its issuer
    problems = judge(certificate, trusted, revoked or frozenset(), now=now, uses=("server", "client"))
    if not authorities:
        problems = [text for text in problems if not text.startswith("was not issued")]
    return Shown(
        source,
        names.identities[0] if len(names.identities) == 1 else None,
        f"{certificate.serial_number:x}",
        fingerprint(certificate),
        key_fingerprint(certificate.public_key()),
        names.dns,
        names.ip,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.issuer.rfc4514_string(),
        None if revoked is None else key_of(certificate) in revoked,
        tuple(problems),
    )


def _show_authority(certificate: x509.Certificate, source: str) -> Shown:
    problem = authority_problem(certificate, datetime.datetime.now(datetime.UTC))
    return Shown(
        source,
        None,
        f"{certificate.serial_number:x}",
        fingerprint(certificate),
        key_fingerprint(certificate.public_key()),
        (),
        (),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.issuer.rfc4514_string(),
        None,
        () if problem is None else (problem,),
        authority=True,
    )


def _of_authorities(file: Path) -> bool:
    """Whether ``file`` says whom to believe.  A process's own certificate never does, whatever it holds."""
    if file.name in (CA_FILE, CERT_FILE):
        return file.name == CA_FILE
    return is_authority(read_certificate(file))


def show(path: Path) -> list[Shown]:
    """Of a certificate file, of a start-up folder, or of everything that ``pki init`` and its like made in a folder.

    Of a file of authorities all, because a process believes each of them.  ConfigError when ``path`` is none of these
    or cannot be read.
    """
    if not path.is_dir():
        if _of_authorities(path):
            return [_show_authority(one, str(path)) for one in read_certificates(path)]
        return [_show_file(path, path.parent)]
    if (path / CERT_FILE).exists():
        return [_show_file(path / CERT_FILE, path)]
    store = path / AUTHORITY if (path / AUTHORITY).is_dir() else path
    records = sorted((store / _ISSUED).glob("*.pem"))
    folders = start_up_folders(path)
    if not records:
        if not folders:
            raise ConfigError.one(str(path), "", "holds no certificate: neither a start-up folder nor one of pki init")
        return [_show_file(folder / CERT_FILE, folder) for folder in folders]
    authorities, revoked = _trust(store)
    where = {fingerprint(read_certificate(folder / CERT_FILE)): str(folder / CERT_FILE) for folder in folders}
    certificates = sorted((read_certificate(record) for record in records), key=lambda c: c.not_valid_before_utc)
    return [
        _show(c, where.get(fingerprint(c), str(store / _ISSUED / f"{c.serial_number:x}.pem")), authorities, revoked)
        for c in certificates
    ]


def _show_file(file: Path, folder: Path) -> Shown:
    certificate = read_certificate(file)
    authorities, revoked = _trust(folder)
    return _show(certificate, str(file), authorities, revoked)


def _trust(folder: Path) -> tuple[list[x509.Certificate], Revoked | None]:
    if not (folder / CA_FILE).exists():
        return [], None
    authorities = [read_certificate(folder / CA_FILE)]
    if not (folder / CRL_FILE).exists():
        return authorities, None
    try:
        return authorities, read_revoked((folder / CRL_FILE).read_bytes(), authorities)
    except (OSError, ValueError) as error:
        raise ConfigError.one(str(folder / CRL_FILE), "", f"cannot be used: {error}") from error
