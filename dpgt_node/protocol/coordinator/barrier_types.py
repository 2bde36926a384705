"""Vocabulary of the coordinator's machine: events come in, immutable effects go out, in order."""

from __future__ import annotations

from typing import Literal

from dpgt_node.errors import ExitCode
from dpgt_node.protocol.liveness import EdgeReport
from dpgt_node.protocol.types import AllDurable, Go, Tick
from dpgt_node.values import value

# --- events ---------------------------------------------------------------------------------------------------------


@value(frozen=True, slots=True)
class AgentJoined:
    """An admitted agent opened its stream.  ``done``: its last finished round, -1 for none; ``finished``: x_final
    exists.  ``released``: the last round its state directory holds a release of (None: ``done``).
    """

    name: str
    done: int
    durable_through: int
    finished: bool = False
    released: int | None = None


@value(frozen=True, slots=True)
class AgentHeard:
    """Any sign of life of an agent."""

    name: str


@value(frozen=True, slots=True)
class AgentEdges:
    """Which of an agent's edges are in trouble; an empty report: none any more."""

    name: str
    report: EdgeReport


@value(frozen=True, slots=True)
class AgentDone:
    """An agent mixed round ``k``; it will not ask for payloads of rounds <= ``durable_through`` again."""

    name: str
    k: int
    durable_through: int


@value(frozen=True, slots=True)
class AgentFinished:
    """An agent's result is durable and its last report arrived."""

    name: str


@value(frozen=True, slots=True)
class AgentGone:
    """An agent's stream broke."""

    name: str


@value(frozen=True, slots=True)
class AgentRefused:
    """An enrolled agent refuses this run, or its copy of the run differs."""

    name: str
    reason: str
    exit_code: ExitCode = ExitCode.REFUSED


@value(frozen=True, slots=True)
class AgentFailed:
    """An agent ends in mid-run by its own fault (budget, divergence, full disk)."""

    name: str
    reason: str
    exit_code: ExitCode


@value(frozen=True, slots=True)
class PauseRequested:
    """Shut the barrier."""


@value(frozen=True, slots=True)
class ResumeRequested:
    """Open the barrier again."""


@value(frozen=True, slots=True)
class StopRun:
    """Stop the run for all."""

    reason: str
    exit_code: ExitCode = ExitCode.STOPPED


CoordinatorEvent = (
    AgentJoined
    | AgentHeard
    | AgentEdges
    | AgentDone
    | AgentFinished
    | AgentGone
    | AgentRefused
    | AgentFailed
    | PauseRequested
    | ResumeRequested
    | StopRun
    | Tick
)


# --- effects --------------------------------------------------------------------------------------------------------


@value(frozen=True, slots=True)
class BroadcastStart:
    """Tell every connected agent all addresses and how far the barrier is open; repeated when an agent rejoined."""

    go_through: int


@value(frozen=True, slots=True)
class Broadcast:
    """Send this to every connected agent."""

    message: Go | AllDurable


@value(frozen=True, slots=True)
class BroadcastStop:
    """Send Stop to every connected agent."""

    reason: str
    exit_code: ExitCode


@value(frozen=True, slots=True)
class Dismiss:
    """Everything arrived: agents may exit."""


@value(frozen=True, slots=True)
class Warn:
    """One line for the operator."""

    message: str


@value(frozen=True, slots=True)
class Conclude:
    status: Literal["finished", "stopped", "refused", "budget", "lost", "failed"]
    exit_code: ExitCode
    reason: str


CoordinatorEffect = BroadcastStart | Broadcast | BroadcastStop | Dismiss | Warn | Conclude
