"""The files a process proves itself with, checked when they are read and read again when they change.

A renewed certificate or a new revocation list takes effect without a restart: at the next handshake, and for lists
also on connections that are open (:meth:`Credentials.watch`).  Files that are wrong at a start are a ConfigError; files
that go wrong later are named in the log, and the last good ones stay.
"""

from __future__ import annotations

import asyncio
import codecs
import datetime
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from dpgt_node.errors import ConfigError, Problem
from dpgt_node.runtime.trust.certificates import (
    UNREADABLE,
    Revoked,
    authority_problem,
    dates_problem,
    fingerprint,
    instant,
    issued_by,
    judge,
    names_of,
    read_revoked,
    span,
)
from dpgt_node.runtime.trust.files import Files, Stamp, key_mode_problem
from dpgt_node.values import dataclass

log = logging.getLogger(__name__)

POLL_S = 2.0
WARN = datetime.timedelta(days=14)
"""A certificate with less left is worth a warning, or with less than a fifth of its life where that is shorter."""


@dataclass(frozen=True, slots=True)
class Material:
    """One consistent reading of the files.  No repr shows the key."""

    ca_pem: bytes
    cert_pem: bytes
    certificate: x509.Certificate
    authorities: tuple[x509.Certificate, ...]
    revoked: Revoked
    key_pem: bytes

    def __repr__(self) -> str:
        return f"Material({self.identity}, serial {self.certificate.serial_number:x})"

    @property
    def identity(self) -> str:
        return names_of(self.certificate).identities[0]


def _read(path: Path, problems: list[Problem]) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as error:
        problems.append(Problem(str(path), "", f"cannot be read: {error.strerror}"))
        return b""
    if raw.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # TLS libraries find nothing then
        problems.append(Problem(str(path), "", "begins with a byte order mark: save it as plain ASCII"))
        return b""
    return raw


def load(files: Files) -> Material:
    """The files' contents.  ConfigError with everything wrong about them: gRPC itself would only say, for ever, that no
    connection came up.
    """
    problems: list[Problem] = []
    ca_pem, cert_pem, key_pem = (_read(path, problems) for path in (files.ca, files.cert, files.key))
    crl_pem = _read(files.crl, problems) if files.crl.exists() else None
    if (open_mode := key_mode_problem(files.key)) is not None:
        problems.append(Problem(str(files.key), "", ": ".join(open_mode)))
    if problems:
        raise ConfigError(problems)
    try:
        authorities = tuple(x509.load_pem_x509_certificates(ca_pem))
        for authority in authorities:
            authority.public_key()
    except UNREADABLE:
        raise ConfigError.one(str(files.ca), "", "holds no PEM certificate that can be read") from None
    try:
        certificate = x509.load_pem_x509_certificates(cert_pem)[0]
        public = certificate.public_key()
    except UNREADABLE:
        raise ConfigError.one(str(files.cert), "", "holds no PEM certificate that can be read") from None
    try:
        private = serialization.load_pem_private_key(key_pem, password=None)
    except UNREADABLE:
        raise ConfigError.one(str(files.key), "", "holds no unencrypted PEM private key") from None
    revoked: Revoked = frozenset()
    if crl_pem is not None:
        try:
            revoked = read_revoked(crl_pem, authorities)
        except ValueError as error:
            raise ConfigError.one(str(files.crl), "", str(error)) from None
    if private.public_key() != public:
        problems.append(Problem(str(files.key), "", f"is not the key of {files.cert}"))
    now = datetime.datetime.now(datetime.UTC)
    for authority in authorities:
        if (message := authority_problem(authority, now)) is not None:
            problems.append(Problem(str(files.ca), "", message))
    if any(issued_by(certificate, authority) for authority in authorities):
        reasons = judge(certificate, authorities, revoked, now=now, uses=("server", "client"))
    else:
        reasons = [f"was not issued by a CA in {files.ca}"]
    problems += [Problem(str(files.cert), "", reason) for reason in reasons]
    if problems:
        raise ConfigError(problems)
    return Material(ca_pem, cert_pem, certificate, authorities, revoked, key_pem)


def _reread(files: Files, held: Material) -> Revoked:
    try:
        return read_revoked(files.crl.read_bytes(), held.authorities)
    except (OSError, ValueError):
        return held.revoked


class Credentials:
    """The material of one process.  May be used from any thread, because gRPC asks in threads of its own."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._lock = threading.Lock()
        self._stamp: Stamp | None = None
        self._material: Material | None = None
        self._doubted: Stamp | None = None
        self._said: set[object] = set()

    def material(self) -> Material:
        """What the files hold now, or held when they were last in order.  ConfigError if they never were."""
        with self._lock:
            stamp = self.files.stamp()
            if self._material is not None and stamp == self._stamp:
                return self._material
            try:
                fresh = load(self.files)
            except ConfigError as error:
                if self._material is None:
                    raise
                # Perhaps between two files of a renewal: a complaint only if it is so at the next look as well.
                if self._doubted == stamp:
                    self._say(stamp, logging.ERROR, "%s; going on with the pair there was before", error.problems[0])
                self._doubted = stamp
                # A list counts whatever is wrong with the pair; the stamp stays old, so that the next look tries again.
                fresh = replace(self._material, revoked=_reread(self.files, self._material))
                stamp = self._stamp or stamp
                if fresh.revoked == self._material.revoked:
                    return self._material
            if self._material is not None:
                self._announce(self._material, fresh)
            self._material, self._stamp = fresh, stamp
            return fresh

    def _say(self, what: object, level: int, message: str, *arguments: object) -> None:
        if what not in self._said:
            self._said.add(what)
            log.log(level, message, *arguments)

    def _announce(self, old: Material, new: Material) -> None:
        if new.certificate != old.certificate:
            until = instant(new.certificate.not_valid_after_utc)
            log.info("new certificate: serial %x, valid until %s", new.certificate.serial_number, until)
        if new.revoked != old.revoked:
            log.info("new revocation list: %d certificates", len(new.revoked))

    def server_credentials(self) -> grpc.ServerCredentials:
        """Of a server that demands a certificate of the CA from every client, and shows its newest one."""

        def configuration(of: Material) -> grpc.ServerCertificateConfiguration:
            return grpc.ssl_server_certificate_configuration([(of.key_pem, of.cert_pem)], of.ca_pem)

        shown = first = self.material()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            newest = self.material()
            if newest is shown:
                return None
            shown = newest
            return configuration(newest)

        # The stub's fetcher may not answer None; gRPC's documentation says it means no change.
        make: Callable[..., grpc.ServerCredentials] = grpc.dynamic_ssl_server_credentials
        return make(configuration(first), fetch, require_client_authentication=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Of a client that presents the newest certificate; pin the server with ``target_name_override``."""
        held = self.material()
        return grpc.ssl_channel_credentials(held.ca_pem, private_key=held.key_pem, certificate_chain=held.cert_pem)

    async def watch(self, changed: Callable[[], None]) -> None:
        """Look for new files every two seconds until cancelled; ``changed`` after a new revocation list.

        Warns once that the own certificate is about to expire, and once that it has.
        """
        revoked = self.material().revoked
        while True:
            held = self.material()
            if held.revoked != revoked:
                revoked = held.revoked
                changed()
            self._warn_of_expiry(held.certificate)
            await asyncio.sleep(POLL_S)

    def _warn_of_expiry(self, certificate: x509.Certificate) -> None:
        now, which = datetime.datetime.now(datetime.UTC), fingerprint(certificate)
        if (problem := dates_problem(certificate, now)) is not None:
            message = "%s %s; open connections go on, no new one will come up before it is renewed"
            self._say((which, "expired"), logging.ERROR, message, self.files.cert, problem)
        elif expires_soon(certificate, now):
            left = span(certificate.not_valid_after_utc - now)
            message = "%s expires in %s, on %s: dpgt pki renew"
            until = instant(certificate.not_valid_after_utc)
            self._say((which, "soon"), logging.WARNING, message, self.files.cert, left, until)


def expires_soon(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    """Whether it is time to renew."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return end - now < min(WARN, (end - start) / 5)
