"""Messages of both services as frozen values.  Units and ranges are those of ``proto/dpgt/v1/*.proto``.

``k`` is a round of Algorithm 1 (the proto field ``round``).  Rounds that may be -1 mean "none yet".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from dpgt_node.protocol.digests import Dispute as Dispute
from dpgt_node.protocol.digests import shown
from dpgt_node.protocol.done import Done as Done
from dpgt_node.protocol.done import Dones as Dones
from dpgt_node.protocol.liveness import EdgeReport
from dpgt_node.protocol.outliers import Outlier as Outlier
from dpgt_node.protocol.pace import Slowest
from dpgt_node.types import Stream
from dpgt_node.values import dataclass

PROTOCOL_VERSION = 1

RefusalKind = Literal["policy", "run-hash", "identity", "version", "data", "other"]
Action = Literal["pause", "resume", "stop"]

# --- agent to agent -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first ``nbytes`` bytes of a vector of round ``k``, of which ``sha256`` is the whole one's, have arrived."""

    stream: Stream
    k: int
    nbytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Resume:
    """First reply of Exchange: the receiver lacks X from ``x_from`` and Y from ``y_from`` on (0..K+1).

    It once mixed every round below ``mixed_before``, also when it lacks them now, because it replays.  ``prefix``: of
    the vector that an earlier call broke off, where it is kept.  ``x_last``, ``y_last``: digests of the rounds before
    ``x_from`` and ``y_from``, as they arrived in this life of the process; empty: they did not.
    """

    receiver: str
    run_id: bytes
    x_from: int
    y_from: int
    mixed_before: int = 0
    prefix: Prefix | None = None
    x_last: bytes = b""
    y_last: bytes = b""


@dataclass(frozen=True, slots=True)
class Received:
    """So many ``frames`` of this call arrived; what they brought is not yet durable."""

    frames: int


ExchangeReply = Resume | Received

# --- agent to coordinator -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """First message of Join.

    ``samples``: D_i or None without a data set.  ``last_released_round`` (stored), ``last_done_round`` (mixed) and
    ``last_durable_round`` (never asked for again): -1..K.  ``run_id``: 16 bytes of the
    unfinished run in the store, or empty.  ``instance``: 16 random bytes, new with each start of the process.
    """

    name: str
    run_sha256: str
    run_json: str = field(repr=False)
    advertise: str
    samples: int | None
    dimension: int
    shape_sha256: str
    last_released_round: int
    last_done_round: int
    last_durable_round: int
    finished: bool
    run_id: bytes
    instance: bytes
    package_version: str
    protocol_version: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Ready:
    """Answer to Welcome: this agent takes part; without it nobody releases anything."""


@dataclass(frozen=True, slots=True)
class MetricsReport:
    """Metrics of x_{i,k} before round k's release; ``epsilon`` by accountant name, after round k-1.

    None: not applicable.  NaN is sent as None; infinite is allowed.
    """

    k: int
    loss_train: float | None = None
    accuracy_train: float | None = None
    accuracy_test: float | None = None
    grad_norm: float | None = None
    epsilon: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FinishedReport:
    """The agent's results.  Nothing of x_{i,K+1} itself, not even a hash: it is private and was never paid for."""

    status: Literal["finished", "stopped"]
    releases: int
    bytes_sent: int
    epsilon: Mapping[str, float | None]
    metrics: MetricsReport


@dataclass(frozen=True, slots=True)
class Refusal:
    """The agent does not take part."""

    kind: RefusalKind
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The agent ends with an error in mid-run; ``exit_code`` 1..255."""

    exit_code: int
    message: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life, either way."""


@dataclass(frozen=True, slots=True)
class KeyOffer:
    """Where noise cancels: the X25519 ``key`` (32 bytes) of agent ``name`` for this run.

    ``signature``: ECDSA with SHA-256 by the key of ``certificate`` (X.509, DER), over what ``runtime.trust.agreement``
    says.
    """

    name: str
    key: bytes
    certificate: bytes = field(repr=False)
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyProofs:
    """That this agent has agreed on a key with each of its partners: a proof (32 bytes) for each, by name."""

    proofs: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Disowned:
    """Agent ``receiver`` says that it holds ``stream`` of round ``k`` of this agent, which never sent it.

    ``theirs``, ``ours``: digests of what each of both has; empty: none, or not known.
    """

    receiver: str
    stream: Stream
    k: int
    theirs: bytes
    ours: bytes

    def line(self, sender: str) -> str:
        """What agent ``sender`` says with it, and what follows."""
        theirs = f" ({shown(self.theirs)})" if self.theirs else ""
        ours = f"sent {shown(self.ours)}" if self.ours else "never sent one"
        return (
            f"{self.receiver} says that it holds {self.stream} of round {self.k} of {sender}{theirs}, and {sender} "
            f"says that it {ours}: somebody sends with its certificate, or one of both does not say what is so"
        )


AgentMessage = (
    Register
    | Ready
    | Done
    | Dones
    | MetricsReport
    | FinishedReport
    | Refusal
    | Failed
    | Heartbeat
    | EdgeReport
    | KeyOffer
    | KeyProofs
    | Disowned
    | Outlier
)

# --- coordinator to agent -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """Registration accepted; ``go_through`` -1..K.

    ``ledger_head``: what the coordinator remembers of this agent, the head of its ledger after round
    ``ledger_round``; empty and -1: nothing.
    """

    run_id: bytes
    run_sha256: str
    run_json: str = field(repr=False)
    go_through: int
    package_version: str
    protocol_version: int = PROTOCOL_VERSION
    ledger_round: int = -1
    ledger_head: bytes = b""


@dataclass(frozen=True, slots=True)
class Refused:
    """The run does not take place for this agent; ``reason`` names who refused and why."""

    kind: RefusalKind
    reason: str


@dataclass(frozen=True, slots=True)
class Start:
    """Every agent registered; ``peers``: name -> HOST:PORT of every agent of the run."""

    peers: Mapping[str, str]
    go_through: int


@dataclass(frozen=True, slots=True)
class GoMessage:
    """Rounds up to and including ``through`` may be released."""

    through: int


@dataclass(frozen=True, slots=True)
class AllDurableMessage:
    """Every agent durably finished all rounds <= ``through`` (-1..K)."""

    through: int


@dataclass(frozen=True, slots=True)
class StopMessage:
    """End the run after the current round with ``exit_code`` (0..255)."""

    reason: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Everything was received: the agent may exit."""


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Every agent's offer, as it came, in row order."""

    offers: tuple[KeyOffer, ...]


@dataclass(frozen=True, slots=True)
class KeyProof:
    """What agent ``sender`` proves to the one who reads this."""

    sender: str
    proof: bytes = field(repr=False)


CoordinatorMessage = (
    Welcome
    | Refused
    | Start
    | GoMessage
    | AllDurableMessage
    | StopMessage
    | Goodbye
    | Heartbeat
    | KeyRing
    | KeyProof
    | Dispute
)

# --- operators ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UploadReply:
    """``vectors``: complete vectors accepted in this call so far."""

    vectors: int


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Where does the run stand?  ``watcher``: a number of whoever asks until the run is over; 0: asks once."""

    watcher: int = 0


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One agent as the coordinator sees it.  ``last_seen_s`` None: never seen.  ``epsilon``: see StatusReply.

    ``state``: absent, here, left, silent, cut or slow.  ``missing_s``: since its last sign of life, for one that left
    or is silent; since it is waited for, where it never came.  ``waits_for``: in-neighbours whose vectors its round
    lacks.  ``strength``: the word for its epsilon.
    """

    name: str
    connected: bool
    k: int
    last_seen_s: float | None = None
    accuracy_test: float | None = None
    epsilon: float | None = None
    state: str = "here"
    missing_s: float | None = None
    waits_for: tuple[str, ...] = ()
    strength: str = ""


@dataclass(frozen=True, slots=True)
class StatusReply:
    """``state``: one lower-case word.  ``k``: last round every agent finished (-1..K).  ``K``: the last there is.

    ``accountant``: whose epsilon the agents' is, None while none has a value; ``delta``: of that accountant, None where
    its epsilon is pure; ``adjacency``: the relation between data sets that it is about, in words.  ``delta_warning``:
    what is said of a delta of 1/D or more, whatever accountant it is; empty where there is none.  ``gives_up_s``: when
    the run ends unless who is missing comes; None: it waits for ever, or for nobody.
    """

    state: str
    k: int
    K: int
    run_id: bytes
    name: str
    rounds_per_second: float
    agents: tuple[AgentStatus, ...]
    consensus_error: float | None = None
    reason: str = ""
    accountant: str | None = None
    delta: float | None = None
    adjacency: str = ""
    delta_warning: str = ""
    gives_up_s: float | None = None
    slowest: Slowest | None = None

    @property
    def over(self) -> bool:
        """Whether ``state`` is an end, and that is durable."""
        return self.state not in ("waiting", "running", "paused", "stopping", "ended")


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """Pause, resume or stop the run."""

    action: Action
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ControlReply:
    """``ok`` False: the action does not apply in this state; ``message`` says why."""

    ok: bool
    message: str
