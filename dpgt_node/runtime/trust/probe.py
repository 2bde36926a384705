"""One plain TLS handshake, to learn what gRPC does not tell: which certificate answers, or why no connection comes up.

The peer's certificate is judged here and not by the TLS library, so that a refusal says who, what and since when.  The
handshake proves that the other end holds the certificate's key.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl

from cryptography import x509

from dpgt_node.config import parse_address
from dpgt_node.errors import PeerError, Untrusted
from dpgt_node.runtime.trust.certificates import UNREADABLE, dates_problem, judge, target_name_override
from dpgt_node.runtime.trust.credentials import Credentials

TIMEOUT_S = 10.0
EXPLAIN_S = 3.0
"""How long a broken connection may be looked into before it is tried again."""
_CHUNK = 16384


async def look(
    address: str, credentials: Credentials, identity: str, *, timeout_s: float = TIMEOUT_S
) -> x509.Certificate:
    """The certificate of who answers at ``address``, proven and good, of ``identity``; it believes ours as well.

    Untrusted with the cause otherwise; PeerError (UNAVAILABLE) when nobody answers within ``timeout_s``.
    """
    host, port = parse_address(address)
    context = _context(credentials)
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                return await _handshake(reader, writer, context, credentials, address, identity)
            finally:
                writer.close()
    except TimeoutError:
        raise PeerError(f"no answer within {timeout_s:g} s", grpc_status="UNAVAILABLE") from None
    except socket.gaierror as error:
        raise PeerError(f"the name {host} is not known here: {error.strerror}", grpc_status="UNAVAILABLE") from None
    except (OSError, EOFError) as error:
        said = getattr(error, "strerror", None) or str(error) or "the connection was closed"
        raise PeerError(f"cannot connect: {said}", grpc_status="UNAVAILABLE") from None


async def speaks_tls(address: str, *, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether whoever answers at ``address`` begins a TLS handshake; False when nobody answers."""
    host, port = parse_address(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                with contextlib.suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                writer.write(outgoing.read())
                await writer.drain()
                return (await reader.readexactly(2)) in (b"\x16\x03", b"\x15\x03")  # a handshake, or an alert
            finally:
                writer.transport.abort()
                with contextlib.suppress(OSError):  # else asyncio logs a reset that nobody asked for
                    await writer.wait_closed()
    except (OSError, EOFError, ssl.SSLError):
        return False


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # judged below, with words
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(credentials.files.cert, credentials.files.key)
    except (OSError, ssl.SSLError) as error:  # between two files of a renewal
        raise PeerError(f"{credentials.files.cert}: {error}", grpc_status="UNAVAILABLE") from None
    return context


async def _handshake(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    context: ssl.SSLContext,
    credentials: Credentials,
    address: str,
    identity: str,
) -> x509.Certificate:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=target_name_override(identity))

    async def exchange() -> None:
        writer.write(outgoing.read())
        await writer.drain()
        data = await reader.read(_CHUNK)
        if not data:
            raise EOFError
        incoming.write(data)

    try:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await exchange()
        certificate = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        message = f"{address} does not speak TLS as a node does ({reason}): was it started with --insecure?"
        raise Untrusted(message) from None
    except UNREADABLE:
        raise Untrusted(f"the certificate shown at {address} cannot be read") from None
    _believe(certificate, credentials, address, identity)
    try:
        while True:  # in TLS 1.3 the other end judges our certificate later; its first bytes say that it did
            try:
                if tls.read(1):
                    return certificate
                raise EOFError
            except ssl.SSLWantReadError:
                await exchange()
    except (ssl.SSLError, EOFError, ConnectionError):  # a server of gRPC closes without an alert
        raise Untrusted(_refused(credentials, address)) from None


def _believe(certificate: x509.Certificate, credentials: Credentials, address: str, identity: str) -> None:
    held, now = credentials.material(), datetime.datetime.now(datetime.UTC)
    reasons = judge(certificate, held.authorities, held.revoked, now=now, uses=("server",), identity=identity)
    if reasons:
        raise Untrusted(f"the certificate shown at {address} {'; it '.join(reasons)}")


def _refused(credentials: Credentials, address: str) -> str:
    mine = credentials.material().certificate
    own = dates_problem(mine, datetime.datetime.now(datetime.UTC))
    why = (
        f"which {own}"
        if own is not None
        else (f"serial {mine.serial_number:x}, or is ending: does it trust the same authority, and is its clock right?")
    )
    return f"{address} closes the connection where it judges this host's certificate, {why}"
