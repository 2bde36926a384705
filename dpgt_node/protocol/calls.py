"""Streams between processes, as state machines see them: what a machine asks of the interpreter, and what it hears.

A call is one bidirectional gRPC stream.  The interpreter (``runtime`` for daemons, the swarm in tests) carries effects
out in order and feeds what happens back as events; a machine never waits, it says by ``next_deadline_ns`` when it wants
a ``Tick``.

    effect   meaning                                                  event that follows
    -----------------------------------------------------------------------------------------------------------------
    Dial     open a call to a peer                                    Opened, or Ended with the reason
    Write    send one message, after those written before             Taken whenever the transport took bytes of it
    Hold     read nothing more: flow control holds the peer           -
    ReadOn   read on                                                  Heard
    End      end a call from this side                                none: the call is forgotten

Contracts: events of one call come in order; ``Ended`` comes at most once and is the last of its call; no event comes of
a call that the machine ended, and no ``Heard`` of one that it holds.  A call is read from its first event on, unless
the step that takes this event holds it.  What was written into a call that broke is lost: machines say it again in the
next one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from dpgt_node.errors import PeerError
from dpgt_node.values import value

COORDINATOR = ":coordinator"
"""The coordinator as the peer of a call: no agent can be named so."""


class Call(NamedTuple):
    """One call.  ``peer``: the agent's name as its certificate proves it, or ``COORDINATOR``.

    ``number``: unique for (``dialled``, ``peer``) in the life of a process.  ``dialled``: this side opened it.
    """

    peer: str
    number: int
    dialled: bool


# --- events -------------------------------------------------------------------------------------------------------


@value(frozen=True, slots=True)
class Accepted:
    """A peer opened ``call``.  ``address``: where it came from, for log lines."""

    call: Call
    address: str = ""


@value(frozen=True, slots=True)
class Opened:
    """A dialled call may be written to."""

    call: Call


@value(frozen=True, slots=True)
class Heard:
    """What came in by one read, through the gate in ``wire``: one of ``messages``.

    On an accepted edge it is the tuple of the payloads that are now complete, empty in the middle of a large one.
    """

    call: Call
    message: object


@value(frozen=True, slots=True)
class Taken:
    """The transport took ``nbytes`` of vectors that were written (0: of anything else).

    ``rest``: messages that are not taken whole yet.
    """

    call: Call
    nbytes: int
    rest: int


@value(frozen=True, slots=True)
class Ended:
    """The call is over.  ``error``: why, None where the peer ended it in order."""

    call: Call
    error: PeerError | None = None


# --- effects ------------------------------------------------------------------------------------------------------


@value(frozen=True, slots=True)
class Dial:
    """Open ``call`` to its peer, which listens on ``address`` (HOST:PORT)."""

    call: Call
    address: str


@value(frozen=True, slots=True)
class Write:
    """Send one message of ``messages``; on a dialled edge, a tuple of payloads of one round."""

    call: Call
    message: object


@value(frozen=True, slots=True)
class Hold:
    """Take nothing more from ``call`` until ``ReadOn``."""

    call: Call


@value(frozen=True, slots=True)
class ReadOn:
    call: Call


@value(frozen=True, slots=True)
class End:
    """End ``call``.  A call that was dialled is dropped, with what was not taken yet.

    One that was accepted ends at once with ``error`` as the status that the peer sees, or without one in order, after
    what was written before.
    """

    call: Call
    error: PeerError | None = None


@value(frozen=True, slots=True)
class Note:
    """One line for the process's log; no secret, no vector."""

    level: Literal["debug", "info", "warning", "error"]
    text: str


CallEvent = Accepted | Opened | Heard | Taken | Ended
CallEffect = Dial | Write | Hold | ReadOn | End
