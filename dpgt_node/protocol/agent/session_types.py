"""Vocabulary of an agent's session beside that of its machine (``types``) and of calls (``calls``).

    effect      meaning                                            event that answers
    ------------------------------------------------------------------------------------------
    ReadRun     what does the state directory hold of this run?    RunRead or RunRefused
    BeginRun    is the owner's policy for it? then write it down   RunBegun or RunRefused
    ReadRound   the stored bytes of a round                        RoundRead
    Upload      give x_{i,k} of a study run to the coordinator     UploadsTaken, when nothing waits any more
    MakeReport  sum the run up                                     ReportMade
    CheckRing   do the key offers hold? what follows from them?    RingChecked or RunRefused
    KeepKeys    every partner has proved the same key: keep it     KeysKept or RunRefused
    Exit        the process ends                                   none

What is between the session and its parts comes after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import auto
from typing import Protocol

from dpgt_node.errors import DpgtError, ExitCode, PeerLost
from dpgt_node.protocol.calls import Call
from dpgt_node.protocol.messages import AgentMessage, CoordinatorMessage, FinishedReport, KeyOffer, MetricsReport
from dpgt_node.protocol.phases import Phases
from dpgt_node.protocol.types import Payload, Recovered
from dpgt_node.types import F64, Stream
from dpgt_node.values import value

# --- between the shell and the session ----------------------------------------------------------------------------


@value(frozen=True, slots=True)
class Terms:
    """What a session is about.

    ``coordinator``: HOST:PORT.  ``run_source``, ``state_source``: where the run file and the state lie, for messages.
    ``last_round``: K.
    ``first_patience_ns``: for a coordinator that never answered; ``patience_ns``: for one that did, and for silent
    neighbours; ``distrust_ns``: for neighbours that are not believed.
    """

    coordinator: str
    run_json: str
    run_sha256: str
    run_source: str
    state_source: str
    package_version: str
    instance: bytes
    last_round: int
    samples: int | None
    dimension: int
    shape_sha256: str
    heartbeat_ns: int
    first_patience_ns: int
    patience_ns: int
    distrust_ns: int
    farewell_ns: int


@value(frozen=True, slots=True)
class Held:
    """What the state directory held of the run when the process started.

    ``run_id``: empty, or 16 bytes.  Rounds -1..K as in Register.  ``finished``: x_{i,K+1} is durable.
    """

    run_id: bytes = b""
    released: int = -1
    done: int = -1
    durable: int = -1
    finished: bool = False


@value(frozen=True, slots=True)
class Begin:
    """The process serves its neighbours at ``advertise`` (HOST:PORT): the first event of all."""

    advertise: str


@value(frozen=True, slots=True)
class ReadRun:
    """Read what is stored of run ``run_id``, and the head of the ledger after ``ledger_round`` (-1: none wanted)."""

    run_id: bytes
    ledger_round: int


@value(frozen=True, slots=True)
class RunRead:
    """``ledger_head``: after the round that was asked for, empty when the ledger never had it.

    ``final``: x_{i,K+1}, float64 (d,), if the run is finished here.
    """

    ledger_head: bytes
    recovered: Recovered | None
    final: F64 | None = field(default=None, repr=False)


@value(frozen=True, slots=True)
class BeginRun:
    """Hold the run against the owner's policy, unless ``finished``: nothing new is released then.  Write it down."""

    run_id: bytes
    recovered: Recovered | None
    finished: bool


@value(frozen=True, slots=True)
class RunBegun:
    """``budget_through``: the last round that the owner's budget covers, None without a cap.

    ``shortfall``: what it lacks beyond.  ``recorded``: somebody keeps a transcript and wants ``Witness``.
    ``agreement``: where this agent stands with those it shares noise with; None where it shares none.
    """

    budget_through: int | None
    shortfall: str = ""
    recorded: bool = False
    agreement: Agreement | None = None


@value(frozen=True, slots=True)
class Agreement:
    """What the state directory holds of an agreement on keys that others may see.

    ``offer``: the own one, the same for ever.  ``proofs``: the own ones, by partner; empty before there was a ring.
    ``agreed``: every partner has proved that it has the same key, and the keys are durable.
    """

    offer: KeyOffer
    proofs: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    agreed: bool = False


@value(frozen=True, slots=True)
class CheckRing:
    """Check everybody's key offers, pin them, and derive what this agent proves and what it must be proved."""

    offers: tuple[KeyOffer, ...]


@value(frozen=True, slots=True)
class RingChecked:
    """The offers hold, and are pinned.  ``ours``: proofs to send, ``theirs``: proofs to expect; by partner."""

    ours: Mapping[str, bytes] = field(repr=False)
    theirs: Mapping[str, bytes] = field(repr=False)


@value(frozen=True, slots=True)
class KeepKeys:
    """Make the agreed keys durable, and erase the key that they were made with."""


@value(frozen=True, slots=True)
class KeysKept:
    """The agreed keys are durable, and nothing is left that they could be computed from."""


@value(frozen=True, slots=True)
class RunRefused:
    """The owner's policy forbids the run (RefusedError), the state directory is of no use (StoreError), or key offers
    do not hold (NoAgreement).
    """

    error: DpgtError


@value(frozen=True, slots=True)
class ReadRound:
    """Read stored payloads of round ``k``, to be written to ``call``."""

    call: Call
    k: int
    streams: tuple[Stream, ...]


@value(frozen=True, slots=True)
class RoundRead:
    """The payloads that ``ReadRound`` asked for."""

    call: Call
    payloads: tuple[Payload, ...]


@value(frozen=True, slots=True)
class Witness:
    """A vector of agent ``sender`` passes to the agent's machine: what a transcript records."""

    sender: int
    payload: Payload


@value(frozen=True, slots=True)
class Evaluated:
    """x_{i,k} was evaluated.  ``report``: None where metrics stay on the host; ``state``: x_{i,k}, None: not given."""

    k: int
    report: MetricsReport | None = None
    state: F64 | None = field(default=None, repr=False)


@value(frozen=True, slots=True)
class Upload:
    """Give x_{i,k} to the coordinator: again, where one that came back may lack it."""

    k: int
    x: F64 = field(repr=False)


@value(frozen=True, slots=True)
class UploadsTaken:
    """The coordinator took every x that was given so far."""


@value(frozen=True, slots=True)
class MakeReport:
    """Sum the run up; ``bytes_sent``: to neighbours by this process."""

    bytes_sent: int


@value(frozen=True, slots=True)
class ReportMade:
    """The last word about a run that went well."""

    report: FinishedReport


@value(frozen=True, slots=True)
class Broke:
    """Something the shell did for the session failed, and the agent cannot go on."""

    error: DpgtError


@value(frozen=True, slots=True)
class Interrupted:
    """The operator wants this process to end; its state stays as it is and a restart goes on."""


@value(frozen=True, slots=True)
class Exit:
    """The process ends with ``code``, or by raising ``error``, whose code it is."""

    code: ExitCode
    error: DpgtError | None = None


# --- between the session and its parts ----------------------------------------------------------------------------


class Window(Protocol):
    """What the receiving end of an edge asks of the agent's machine."""

    @property
    def mixed_before(self) -> int:
        """Every round of the in-neighbours before this one was mixed."""
        ...

    def needs(self, sender: int) -> tuple[int, int]:
        """First round of X and of Y still lacking from ``sender``."""
        ...

    def window(self) -> tuple[int, int]:
        """Rounds that a vector may carry now, both included."""
        ...


@value(frozen=True, slots=True)
class Admit:
    """Welcome came: in-neighbours may say their rounds of ``run_id``."""

    run_id: bytes
    window: Window


@value(frozen=True, slots=True)
class Moved:
    """The inbox's window moved."""


@value(frozen=True, slots=True)
class Address:
    """Where the peer listens now, HOST:PORT."""

    address: str


@value(frozen=True, slots=True)
class Leave:
    """End what is open and open nothing more."""


@value(frozen=True, slots=True)
class EdgeLost:
    """An out-neighbour is there and cannot be worked with, for longer than is to be borne."""

    error: PeerLost


@value(frozen=True, slots=True)
class Say:
    """Tell the coordinator.  ``first``: it answers Welcome, and lets what waits follow it.

    ``more``: a Done in the midst of a block of rounds; nobody waits for it, and the next ones soon follow.
    """

    message: AgentMessage
    first: bool = False
    more: bool = False


@value(frozen=True, slots=True)
class Repeat:
    """Say the last report again, and with ``metrics`` those of the last evaluations."""

    metrics: bool


@value(frozen=True, slots=True)
class Told:
    """The coordinator said something that is not only a sign of life."""

    message: CoordinatorMessage


@value(frozen=True, slots=True)
class Abandoned:
    """There is no coordinator for this agent: it stays away, or refuses for good."""

    error: DpgtError


@value(frozen=True, slots=True)
class Peers:
    """An agent's place in the graphs: names of all agents, its own index, streams of its in-neighbours by name, and
    whom it shares noise with.  ``covered``: everybody sends to everybody; who has nothing to say sends dummies.
    """

    names: tuple[str, ...]
    index: int
    streams_in: Mapping[str, frozenset[Stream]]
    partners: tuple[str, ...] = ()
    covered: bool = False

    @property
    def name(self) -> str:
        return self.names[self.index]


class SessionPhase(Phases):
    """Where the session stands; see the table of ``session``."""

    STARTING = auto()
    OUTSIDE = auto()
    READING = auto()
    BEGINNING = auto()
    AGREEING = auto()
    INSIDE = auto()
    LEAVING = auto()
    FAREWELL = auto()
    ENDED = auto()
