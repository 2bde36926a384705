"""Streams between processes, as state machines see them: what a machine asks of the interpreter, and what it hears.

A call is one bidirectional gRPC stream.  The interpreter (``runtime`` for daemons, the swarm in tests) carries effects
out in order and feeds what happens back as events; a machine never waits, it says by ``next_deadline_ns`` when it wants
a ``Tick``.

    effect   meaning                                                  event that follows
    -----------------------------------------------------------------------------------------------------------------
    Dial     open a call to a peer                                    Opened, or Ended with the reason
    Write    send one message, after those written before             Taken when the transport took all of it
    Hold     read nothing more: flow control holds the peer           -
    ReadOn   read on                                                  Heard
    End      end a call from this side; ``error`` is told to a caller none: the call is forgotten

Contracts: events of one call come in order; ``Ended`` comes at most once and is the last of its call; no event comes of
a call that the machine ended.  What was written into a call that broke is lost: machines say it again in the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpgt_node.errors import PeerError


@dataclass(frozen=True, slots=True)
class Call:
    """One call.  ``peer``: the agent's name as its certificate proves it, or "coordinator".

    ``number``: unique for (``dialled``, ``peer``) in the life of a process.  ``dialled``: this side opened it.
    """

    peer: str
    number: int
    dialled: bool


# --- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepted:
    """A peer opened ``call``.  ``address``: where it came from, for log lines."""

    call: Call
    address: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """A dialled call may be written to."""

    call: Call


@dataclass(frozen=True, slots=True)
class Heard:
    """One decoded message of ``messages``, which passed the gate in ``wire``."""

    call: Call
    message: object


@dataclass(frozen=True, slots=True)
class Taken:
    """The transport took everything that was written to ``call`` so far."""

    call: Call


@dataclass(frozen=True, slots=True)
class Ended:
    """The call is over.  ``error``: why, None where the peer ended it in order."""

    call: Call
    error: PeerError | None = None


# --- effects ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dial:
    """Open ``call`` to its peer, which listens on ``address`` (HOST:PORT)."""

    call: Call
    address: str


@dataclass(frozen=True, slots=True)
class Write:
    """Send one message of ``messages``."""

    call: Call
    message: object


@dataclass(frozen=True, slots=True)
class Hold:
    """Take nothing more from ``call`` until ``ReadOn``."""

    call: Call


@dataclass(frozen=True, slots=True)
class ReadOn:
    """Read on."""

    call: Call


@dataclass(frozen=True, slots=True)
class End:
    """End ``call``.  ``error``: told to the peer as the status of a call that it opened; None: an ordinary end."""

    call: Call
    error: PeerError | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """One line for the process's log; no secret, no vector."""

    level: Literal["debug", "info", "warning", "error"]
    text: str
