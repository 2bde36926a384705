"""What a certificate says and whether to believe it: identity, dates, uses, issuer, revocation.

Each certificate names its identity twice: as URI (``dpgt:agent:NAME``), which servers read, and as a DNS name made from
it (``NAME.agent.dpgt``), which clients demand through gRPC's own name check (``grpc.ssl_target_name_override``).  So
both ends prove WHO they are, whatever address was dialled.  A third name, ``SERIAL.serial.dpgt``, is of this very
certificate: a client that knows which one is good can demand it and no other, which is how a revocation reaches into
gRPC's handshake (gRPC for Python takes no revocation list).  Names below ``.dpgt`` are the authority's to give.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from dpgt_node.values import dataclass

_IDENTITY = re.compile(r"dpgt:(?:(coordinator|operator)|agent:([A-Za-z0-9][A-Za-z0-9._-]{0,62}))", re.ASCII)
_CRL = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)

UNREADABLE = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)
"""What parsing a certificate, a key or a list that somebody else made may raise."""
Revoked = frozenset[tuple[bytes, int]]
"""(issuer's name as DER, serial number) of every revoked certificate."""
Use = Literal["server", "client"]


def target_name_override(identity: str) -> str:
    """The DNS name by which a client pins ``identity``, for ``grpc.ssl_target_name_override``.

    Lower case, because DNS names ignore case; agent names are unique ignoring it.  ValueError if ``identity`` is none.
    """
    match = _IDENTITY.fullmatch(identity)
    if match is None:
        raise ValueError(f"{identity!r} is not dpgt:agent:NAME, dpgt:coordinator or dpgt:operator")
    role, name = match.groups()
    return f"{role}.dpgt" if role is not None else f"{name.lower()}.agent.dpgt"


def serial_name(serial: int) -> str:
    """The DNS name of the one certificate with this serial number."""
    return f"{serial:x}.serial.dpgt"


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the certificate as DER, hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


@dataclass(frozen=True, slots=True)
class Names:
    """A certificate's alternative names by kind; ``identities`` are its ``dpgt:`` URIs."""

    identities: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    ip: tuple[str, ...] = ()


def names_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> Names:
    """The names that a certificate carries, or a request for one asks for; one of ``UNREADABLE`` when its extensions
    cannot be read.
    """
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return Names()
    uris = found.get_values_for_type(x509.UniformResourceIdentifier)
    return Names(
        tuple(uri for uri in uris if uri.startswith("dpgt:")),
        tuple(found.get_values_for_type(x509.DNSName)),
        tuple(str(address) for address in found.get_values_for_type(x509.IPAddress)),
    )


def pinned_name(certificate: x509.Certificate) -> str | None:
    """The name that only this certificate has; None for one that another tool made without it."""
    name = serial_name(certificate.serial_number)
    return name if name in names_of(certificate).dns else None


def key_of(certificate: x509.Certificate) -> tuple[bytes, int]:
    """How a revocation list names ``certificate``."""
    return certificate.issuer.public_bytes(), certificate.serial_number


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether ``authority``'s key signed ``certificate``."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def read_revoked(pem: bytes, authorities: Iterable[x509.Certificate]) -> Revoked:
    """Every certificate that the lists in ``pem`` revoke.  ValueError says why a list cannot be believed."""
    blocks = _CRL.findall(pem)
    if not blocks:
        raise ValueError("holds no PEM revocation list (X509 CRL)")
    found: set[tuple[bytes, int]] = set()
    for block in blocks:
        try:
            listed = x509.load_pem_x509_crl(block)
        except UNREADABLE:
            raise ValueError("holds a revocation list that cannot be read") from None
        if not any(_signed(listed, authority) for authority in authorities):
            raise ValueError("holds a revocation list that no trusted authority signed")
        found |= {(listed.issuer.public_bytes(), entry.serial_number) for entry in listed}
    return frozenset(found)


def _signed(listed: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if listed.issuer != authority.subject:
        return False
    try:
        return listed.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except UNREADABLE:
        return False


# --- judging --------------------------------------------------------------------------------------------------------


def instant(when: datetime.datetime) -> str:
    """A point in time as people compare it with a clock."""
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def span(delta: datetime.timedelta) -> str:
    """A length of time in its largest sensible unit, e.g. ``3 days``."""
    seconds = abs(delta.total_seconds())
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def dates_problem(certificate: x509.Certificate, now: datetime.datetime) -> str | None:
    """Why ``certificate`` is not valid at ``now``, with both dates; None when it is."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    clock = f"this host's clock says {instant(now)}"
    if now > end:
        return f"expired on {instant(end)}, {span(now - end)} ago ({clock}; if that is wrong, set it, else renew)"
    if now < start:
        return f"is valid from {instant(start)} on, in {span(start - now)}: is this host's clock right? ({clock})"
    return None


def judge(
    certificate: x509.Certificate,
    authorities: Sequence[x509.Certificate],
    revoked: Revoked,
    *,
    now: datetime.datetime,
    uses: Iterable[Use],
    identity: str | None = None,
) -> list[str]:
    """Everything that speaks against ``certificate``, as predicates ("expired on ...").  Empty: it is to be believed.

    ``identity``: who it must be of; None: anybody, but exactly one.
    """
    try:
        found = names_of(certificate).identities
        reasons = _misuse(certificate, uses)
    except UNREADABLE:
        return ["has extensions that cannot be read"]
    if (dates := dates_problem(certificate, now)) is not None:
        reasons.append(dates)
    if not any(issued_by(certificate, authority) for authority in authorities):
        issuer = _printable(certificate.issuer.rfc4514_string())
        reasons.append(f"was not issued by the authority trusted here (its issuer calls itself {issuer})")
    if key_of(certificate) in revoked:
        reasons.append(f"is revoked (serial {certificate.serial_number:x})")
    if len(found) != 1:
        reasons.append("does not hold exactly one dpgt: identity")
    elif identity is not None and found[0] != identity:
        reasons.append(f"is {_printable(found[0])}'s, not {identity}'s")
    return reasons


def _printable(text: str) -> str:
    """Whoever made the certificate chose it, and it ends in a log or on a terminal."""
    return (text if text.isprintable() else repr(text))[:200]


_KEY_USES = {
    "server": (ExtendedKeyUsageOID.SERVER_AUTH, "to serve (serverAuth)"),
    "client": (ExtendedKeyUsageOID.CLIENT_AUTH, "to call others (clientAuth)"),
}


def _misuse(certificate: x509.Certificate, uses: Iterable[Use]) -> list[str]:
    extensions, reasons = certificate.extensions, []
    try:
        if extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            reasons.append("is an authority's, not a process's (basic constraints: CA)")
    except x509.ExtensionNotFound:
        pass
    try:
        if not extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature:
            reasons.append("is not allowed to sign handshakes (key usage)")
    except x509.ExtensionNotFound:
        pass
    try:
        allowed = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        for use in uses:
            oid, what = _KEY_USES[use]
            if not allowed & {oid, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}:
                reasons.append(f"is not allowed {what}")
    except x509.ExtensionNotFound:
        pass
    return reasons


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether ``certificate`` may sign others (basic constraints)."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, *UNREADABLE):
        return False


def authority_problem(authority: x509.Certificate, now: datetime.datetime) -> str | None:
    """Why nothing that ``authority`` signed can be believed."""
    if not is_authority(authority):
        return "is not an authority's certificate (basic constraints)"
    return dates_problem(authority, now)
