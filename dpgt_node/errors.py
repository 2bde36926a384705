"""Who is to blame is a type: the operator, a remote peer, the privacy budget.

A broken invariant is none of these: it crashes (exit 70).  Each error carries the exit code that
scripts rely on; see ``docs/reference/commands.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import ClassVar, TypeVar

from dpgt_node.values import dataclass

T = TypeVar("T")


class ExitCode(IntEnum):
    """Process exit codes of every ``dpgt`` verb."""

    DONE = 0
    CHECK_FAILED = 1
    CONFIG = 2
    REFUSED = 3
    BUDGET = 4
    STOPPED = 5
    PEER_LOST = 6
    BUG = 70


class DpgtError(Exception):
    """Base of the errors that end a command with one line and an exit code.

    ``told``: all that another process may hear of such an error.  It belongs to the class, so no detail of one error
    can be in it; ``protocol.told`` reads it.
    """

    exit_code: ExitCode = ExitCode.BUG
    told: ClassVar[str] = "cannot go on"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration: where it stands and what to do.

    ``source`` is the file (or ``"command line"``), ``key`` the dotted key (``"graph.R"``, may be empty).
    """

    source: str
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.source}: {self.key}" if self.key else self.source
        return f"{where}: {self.message}"


class ConfigError(DpgtError):
    """The operator's input is wrong.  Carries every problem found, not only the first."""

    exit_code = ExitCode.CONFIG
    told = "cannot use its data, its model or its settings"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    @classmethod
    def one(cls, source: str, key: str, message: str) -> ConfigError:
        """A ConfigError with a single problem."""
        return cls([Problem(source, key, message)])

    def of_run_file(self, source: object, key: str | None = None, only: Collection[str] | None = None) -> ConfigError:
        """The same, where those who found a problem knew its source as "run file" alone: its name is ``source``.

        ``key``: to blame instead of each problem's own.  ``only``: problems of these keys, None: of all.
        """
        return type(self)(
            Problem(str(source), one.key if key is None else key, one.message)
            if one.source == "run file" and (only is None or one.key in only)
            else one
            for one in self.problems
        )


@contextmanager
def naming_run_file(source: object, key: str | None = None, only: Collection[str] | None = None) -> Iterator[None]:
    """Problems that come up get the run file's name, as :meth:`ConfigError.of_run_file` gives it."""
    try:
        yield
    except ConfigError as error:
        raise error.of_run_file(source, key, only) from error


def attempt(problems: list[Problem], make: Callable[[], T]) -> T | None:
    """What ``make`` gives; None where it cannot, and ``problems`` then has its reasons too."""
    try:
        return make()
    except ConfigError as error:
        problems.extend(error.problems)
        return None


class PeerError(DpgtError):
    """A remote process broke the protocol, refused, or could not be reached.

    ``grpc_status`` is the name of the gRPC status code answered to that peer, e.g. ``"PERMISSION_DENIED"``.
    """

    exit_code = ExitCode.REFUSED
    told = "a call to another process broke"

    def __init__(self, message: str, *, grpc_status: str = "FAILED_PRECONDITION") -> None:
        self.grpc_status = grpc_status
        super().__init__(message)


class Untrusted(PeerError):
    """The connection comes up, but one of the two ends does not believe the other's certificate.

    Tried again (UNAVAILABLE), because a renewal or a clock may cure it, but never for ever.
    """

    told = "meets a certificate that is not trusted"

    def __init__(self, message: str) -> None:
        super().__init__(message, grpc_status="UNAVAILABLE")


class RefusedError(PeerError):
    """A run was refused before it began; the message names who refused and why."""

    exit_code = ExitCode.REFUSED
    told = "the policy of the data's owner forbids this run"


class NoAgreement(PeerError):
    """Two agents that were to share noise could not agree on a key, so the run must not start.

    ``peer``: whose offer or proof it was, which everybody may hear.
    """

    told = "cannot agree on a key with another agent"

    def __init__(self, peer: str, message: str) -> None:
        self.peer = peer
        super().__init__(message)


class PeerLost(PeerError):
    """A peer was lost in mid-run."""

    exit_code = ExitCode.PEER_LOST
    told = "lost a neighbour"


class BudgetReached(DpgtError):
    """The privacy budget does not cover the next round: a clean stop."""

    exit_code = ExitCode.BUDGET
    told = "the privacy budget does not cover the next round"


class Broken(AssertionError):
    """An invariant that guards a release does not hold: a bug, and going on could lose or double a round.

    It fails as an ``assert`` does, and ``python -O`` cannot take it away.
    """


def invariant(holds: bool, what: str) -> None:
    """Raise Broken, saying ``what`` should hold, unless it does."""
    if not holds:
        raise Broken(what)


OPTIMISED = "python -O and PYTHONOPTIMIZE take away checks that guard a release: run Python without them"


def keep_checks() -> None:
    """Raise ImportError under ``python -O``.  Called where the packages load that draw, store or send releases."""
    if not __debug__:
        raise ImportError(OPTIMISED)


class StoreError(DpgtError):
    """The state directory cannot be read or written (disk full, torn file, foreign version)."""

    exit_code = ExitCode.CONFIG
    told = "cannot use its state directory"


class StaleState(StoreError):
    """The state directory is an old copy, or another one: what it would draw was drawn before."""

    told = "has a state directory that is older than the run, or another one"
