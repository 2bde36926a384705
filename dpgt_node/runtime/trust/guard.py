"""The server's side of trust: whose call is let in, which calls are cut when a list changes, and one log line each."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpgt_node.errors import PeerError
from dpgt_node.values import dataclass
from dpgt_node.wire.services import Caller

if TYPE_CHECKING:
    from cryptography import x509

    from dpgt_node.runtime.trust.credentials import Credentials

log = logging.getLogger(__name__)

MAX_REFUSALS = 256
MAX_REFUSALS_EACH = 8
MAX_CALLS_EACH = 16
"""Open calls of one caller: an honest agent has three at most, and as many again while it reconnects."""
_NO_REFUSAL = frozenset({"UNAVAILABLE", "CANCELLED"})
"""A peer that went away, or this process that leaves: nobody was refused."""


class Refusals:
    """Says each refusal once, whatever its retries; bounded, because the refused decide how many there are."""

    def __init__(self) -> None:
        self._said: dict[str, set[str]] = {}
        self._full = False

    def note(self, who: str, address: str, reason: str) -> None:
        """Log that ``who`` (a proven identity, or what stands for one) at ``address`` was refused for ``reason``."""
        said = self._said.get(who)
        if said is None:
            if len(self._said) >= MAX_REFUSALS:
                if not self._full:
                    self._full = True
                    log.warning("refused more than %d callers: no further ones are logged", MAX_REFUSALS)
                return
            said = self._said[who] = set()
        if reason in said or len(said) > MAX_REFUSALS_EACH:
            return
        said.add(reason)
        if len(said) > MAX_REFUSALS_EACH:
            log.warning("refused %s for ever new reasons: no further ones are logged", who)
        else:
            log.warning("refused %s at %s: %s", who, address, reason)


def _who(caller: Caller) -> str:
    """Proven, or without TLS as it says, or else where it calls from."""
    if caller.identity is not None:
        return caller.identity
    try:
        return caller.agent_name()
    except PeerError:
        return caller.address.rpartition(":")[0]


@dataclass(slots=True, eq=False)
class _Call:
    certificate: x509.Certificate
    task: asyncio.Task[object]
    cut: bool = False


class Guard:
    """Wraps every call of a server: ``with guard(caller): ...``."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._open: set[_Call] = set()
        self._calls: Counter[str] = Counter()
        self.refusals = Refusals()

    @contextmanager
    def __call__(self, caller: Caller) -> Iterator[None]:
        """Refuses a revoked certificate, at the start of a call or in its midst.  Notes whoever is refused in it."""
        call, who = self._enter(caller), _who(caller)
        self._calls[who] += 1
        try:
            if self._calls[who] > MAX_CALLS_EACH:
                raise PeerError(f"more than {MAX_CALLS_EACH} calls at a time", grpc_status="RESOURCE_EXHAUSTED")
            if call is not None:
                self._check(call)
            try:
                yield
            except asyncio.CancelledError:
                if call is None or not call.cut:
                    raise
            if call is not None and call.cut:
                call.task.uncancel()
                self._check(call)
        except PeerError as error:
            if error.grpc_status not in _NO_REFUSAL:
                self.refusals.note(who, caller.address, str(error))
            raise
        finally:
            self._calls[who] -= 1
            if not self._calls[who]:
                del self._calls[who]
            if call is not None:
                self._open.discard(call)

    def _enter(self, caller: Caller) -> _Call | None:
        pem, task = caller.certificate_pem, asyncio.current_task()
        if self._credentials is None or pem is None or task is None:
            return None
        from cryptography import x509

        call = _Call(x509.load_pem_x509_certificate(pem), task)
        self._open.add(call)
        return call

    def _revoked(self, call: _Call) -> bool:
        from dpgt_node.runtime.trust.certificates import key_of

        assert self._credentials is not None
        return key_of(call.certificate) in self._credentials.material().revoked

    def _check(self, call: _Call) -> None:
        if self._revoked(call):
            # Others of this certificate may still be open: the list is news, and its owner's last word would end a run.
            self._cut_revoked(besides=call)
            message = f"this certificate is revoked (serial {call.certificate.serial_number:x})"
            raise PeerError(message, grpc_status="PERMISSION_DENIED")

    def recheck(self) -> None:
        """A new revocation list: end the open calls of whom it names."""
        self._cut_revoked()

    def _cut_revoked(self, besides: _Call | None = None) -> None:
        for call in tuple(self._open):
            if call is not besides and not call.cut and self._revoked(call):
                call.cut = True
                call.task.cancel()
