"""What another process may hear of an error here: a kind, and nothing else.

An exception's own text may name a file, a label, a column, a value, or what a data set has spent.  It stays in the log
of this host.  The last words of an agent, the causes in its reports of edges and the reason of a coordinator that
cannot write all come from :func:`told`.  Beside it a peer hears only the answers of the gate, which speak of what that
peer itself sent: :func:`answered`.
"""

from __future__ import annotations

from dpgt_node.errors import DpgtError, NoAgreement, PeerError, PeerLost, RefusedError, Untrusted

A_BUG = "ends with a bug"
SAYS_MORE = "its own log says more"
_ALONE: tuple[type[PeerError], ...] = (NoAgreement, PeerLost, RefusedError, Untrusted)
_CALLS = {
    "UNAVAILABLE": "the other end cannot be reached",
    "DEADLINE_EXCEEDED": "the other end does not answer in time",
    "PERMISSION_DENIED": "the other end refuses the call",
    "UNAUTHENTICATED": "the other end refuses the call",
    "RESOURCE_EXHAUSTED": "the other end takes no more calls",
}


def told(error: BaseException) -> str:
    """One line, the same for all errors of a class; of a call that broke, by its status.  Never its own text."""
    if isinstance(error, PeerError) and not isinstance(error, _ALONE):
        return _CALLS.get(error.grpc_status, PeerError.told)
    kind = type(error).told if isinstance(error, DpgtError) else A_BUG
    return f"{kind}; {SAYS_MORE}"


def answered(error: PeerError) -> str:
    """What the caller of a server here hears: the gate's own words about what it sent; of any other kind, ``told``."""
    return str(error) if type(error) is PeerError else told(error)
