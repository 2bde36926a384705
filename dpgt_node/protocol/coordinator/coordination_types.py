"""Vocabulary of the coordinator's whole machine, beside that of calls (``calls``) and of the barrier
(``barrier_types``).

    effect         the interpreter                                            event that follows
    ---------------------------------------------------------------------------------------------------------------
    NoteHead       makes an agent's ledger head durable                       -
    BeginResults   opens the outputs of the run                               -
    KeepMetrics    takes an agent's metrics                                   -
    KeepRow        writes the row that an agent's round makes                 -
    KeepResult     takes an agent's last report                               ResultKept or ResultRejected
    KeepCompared   makes durable what comparing digests came to               -
    KeepPause      makes durable whether the run is paused                    -
    Moved          tells how fast the run goes                                -
    Answer         answers the operator's request that was asked last         -
    Conclude       writes summary and report                                  Closed
    Exit           takes the server down                                      none: the machine is over

Effects of a step are carried out in order.  One that the file system refuses is the last: those after it are dropped,
and a ``StopRun`` is the next event, so that nobody acts on what was not kept.
"""

from __future__ import annotations

from enum import auto

from dpgt_node.errors import PeerError
from dpgt_node.protocol import calls as c
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.coordinator import barrier_types as co
from dpgt_node.protocol.coordinator.comparison import Compared
from dpgt_node.protocol.phases import Phases
from dpgt_node.protocol.types import Tick
from dpgt_node.values import value


class Stage(Phases):
    """Where a run stands; see the table of ``coordination``."""

    OPEN = auto()
    CLOSING = auto()
    PARTING = auto()
    LATE = auto()
    OVER = auto()


# --- events -------------------------------------------------------------------------------------------------------


@value(frozen=True, slots=True)
class Asked:
    """An operator asks for something, and may."""

    request: m.ControlRequest


@value(frozen=True, slots=True)
class ResultKept:
    """The result of agent ``name`` is durable."""

    name: str


@value(frozen=True, slots=True)
class ResultRejected:
    """The report that came over ``call`` cannot be: ``error`` says why."""

    call: c.Call
    error: PeerError


@value(frozen=True, slots=True)
class Closed:
    """The end of the run is durable.  ``conclude``: how it ended, after all that writing it may have changed."""

    conclude: co.Conclude


CoordinationEvent = (
    c.Accepted
    | c.Heard
    | c.Taken
    | c.Ended
    | co.AgentHeard
    | co.StopRun
    | Asked
    | ResultKept
    | ResultRejected
    | Closed
    | Tick
)

# --- effects ------------------------------------------------------------------------------------------------------


@value(frozen=True, slots=True)
class NoteHead:
    """``head``: of the ledger of agent ``name`` after its round ``k``, 32 bytes."""

    name: str
    k: int
    head: bytes


@value(frozen=True, slots=True)
class BeginResults:
    """Every agent is here, ``registers`` in row order, and the run is in round ``k``."""

    registers: tuple[m.Register, ...]
    k: int


@value(frozen=True, slots=True)
class KeepMetrics:
    """``report`` came from agent ``name``."""

    name: str
    report: m.MetricsReport


@value(frozen=True, slots=True)
class KeepRow:
    """Agent ``name`` has reached round ``k``, which has a row of metrics, in a run where they stay with the agents."""

    name: str
    k: int


@value(frozen=True, slots=True)
class KeepResult:
    """Agent ``name``, done with every round, reports its result over ``call``."""

    call: c.Call
    name: str
    report: m.FinishedReport


@value(frozen=True, slots=True)
class KeepCompared:
    """All that comparing digests came to so far."""

    found: Compared


@value(frozen=True, slots=True)
class KeepPause:
    """A coordinator that is started again has the barrier shut, or not."""

    paused: bool


@value(frozen=True, slots=True)
class Moved:
    """The run is in round ``k``."""

    k: int


@value(frozen=True, slots=True)
class Answer:
    """To the operator."""

    reply: m.ControlReply


@value(frozen=True, slots=True)
class Exit:
    """Everybody heard how the run ended, or had the time to."""


CoordinationEffect = (
    c.Write
    | c.Hold
    | c.ReadOn
    | c.End
    | c.Note
    | NoteHead
    | BeginResults
    | KeepMetrics
    | KeepRow
    | KeepResult
    | KeepCompared
    | KeepPause
    | Moved
    | Answer
    | co.Conclude
    | Exit
)
