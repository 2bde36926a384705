"""Vocabulary of the seam: events come in, immutable effects go out, in order.

Contracts (architecture.md, section 4), which every interpreter of effects must keep:

1. A ``Persist`` is durable before any later ``Send`` of the same tuple, or of a later tuple, leaves.
2. One ``DrawRelease`` per (run, agent, round): whatever was persisted is resent, never redrawn.
3. Effects of one tuple are interpreted in order.
4. Vectors that come in as events passed the one validation gate in ``wire``: inside, only assertions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Literal, get_args

import numpy as np

from dpgt_node.protocol.outliers import Outlier
from dpgt_node.protocol.pace import Spent
from dpgt_node.types import F64, I64, Codes, Floats, Stream, WireDtype
from dpgt_node.values import value

_LITTLE_ENDIAN = {name: np.dtype(name).newbyteorder("<") for name in get_args(WireDtype)}


@value(frozen=True, slots=True)
class Payload:
    """The exact bytes of one released vector.

    ``data``: little-endian ``dtype`` values, ``dimension * itemsize`` bytes.  ``sha256``: 32 bytes, of ``data``.
    ``codes``: what the integers stand for; None where the values are numbers themselves.
    """

    stream: Stream
    k: int
    dtype: WireDtype
    dimension: int
    data: bytes | memoryview = field(repr=False)
    sha256: bytes
    codes: Codes | None = None

    @property
    def nbytes(self) -> int:
        return len(self.data) if isinstance(self.data, bytes) else self.data.nbytes

    def floats(self) -> Floats:
        """The released values (dimension,), what all who get them mix; may be read-only, in the memory of ``data``."""
        raw = np.frombuffer(self.data, dtype=_LITTLE_ENDIAN[self.dtype])
        return raw if self.codes is None else self.codes.values(raw)

    def array(self) -> F64:
        """The same as float64, a new array."""
        return self.floats().astype(np.float64, copy=self.codes is None)


@value(frozen=True, slots=True)
class LedgerRow:
    """One charged release: appended before a byte leaves, never changed.

    ``scale``: noise scale sigma (0 when the noise is off).  ``sensitivity``: the L1 shift Lemma 4 charges for this
    release (None where no C is known).  ``cost``: cumulative epsilon by accountant name after this row
    (float("inf") allowed).
    """

    k: int
    stream: Stream
    mechanism: str
    law: str
    scale: float
    sensitivity: float | None
    sha256: bytes
    cost: dict[str, float | None]


@value(frozen=True, slots=True)
class State:
    """One agent at the start of round ``k``: the vectors of its method by name, float64, never changed in place.

    ``batch``: the indices that g_k was sampled from (empty when there is no data set).  ``pending``: noise decides
    where or what g_k is, so the state is complete only once round k is released; before that it is neither stored nor
    mixed.
    """

    k: int
    vectors: Mapping[str, F64] = field(repr=False)
    batch: I64 = field(repr=False)
    pending: bool = False


@value(frozen=True, slots=True)
class RoundRecord:
    """Everything that commits together before round ``k`` leaves: payloads, ledger rows, batch, maybe the state.

    ``payloads``: one a stream, in the order in which the method sends them.  ``noisy_gradient``: g~_k, float64 (d,),
    the one perturbed value that all of them are functions of, where they do not tell it; None for the other methods.
    """

    k: int
    payloads: tuple[Payload, ...]
    rows: tuple[LedgerRow, ...]
    batch: I64 = field(repr=False)
    checkpoint: State | None
    noisy_gradient: F64 | None = field(default=None, repr=False)

    def on(self, stream: Stream) -> Payload:
        """What was sent on ``stream``; KeyError where nothing is."""
        return on(stream, self.payloads)


def on(stream: Stream, payloads: Iterable[Payload]) -> Payload:
    """The payload of ``stream``; KeyError where there is none."""
    for payload in payloads:
        if payload.stream == stream:
            return payload
    raise KeyError(stream)


@value(frozen=True, slots=True)
class Recovered:
    """What a state directory holds of an unfinished run: the last checkpoint and every record from its round on."""

    checkpoint: State
    records: tuple[RoundRecord, ...]


# --- events of an agent -------------------------------------------------------------------------------------------


@value(frozen=True, slots=True)
class Started:
    """The run began: every agent registered.  ``go_through``: last round that may be released."""

    go_through: int


@value(frozen=True, slots=True)
class Go:
    """The barrier opened up to and including round ``through``."""

    through: int


@value(frozen=True, slots=True)
class AllDurable:
    """Every agent durably finished all rounds <= ``through``: their payloads may be dropped."""

    through: int


@value(frozen=True, slots=True)
class StopRequested:
    """The coordinator or the operator asked for a stop."""

    reason: str


@value(frozen=True, slots=True)
class VectorReceived:
    """A neighbour's released vector, complete, validated."""

    sender: int
    payload: Payload


@value(frozen=True, slots=True)
class Advanced:
    """Answer to ``Advance``: the state at the start of the next round, g and batch included.

    ``outliers``: in-neighbours to be named for what came in.
    """

    state: State
    outliers: tuple[Outlier, ...] = ()


@value(frozen=True, slots=True)
class FinalReady:
    """Answer to ``AdvanceFinal``: x_{i,K+1}, the result of the run."""

    x: F64 = field(repr=False)


@value(frozen=True, slots=True)
class ReleaseReady:
    """Round k was drawn, once: what is sent, and rows that are ready to be charged; ``state`` is complete."""

    state: State
    payloads: tuple[Payload, ...]
    rows: tuple[LedgerRow, ...]
    noisy_gradient: F64 | None = field(default=None, repr=False)

    @property
    def k(self) -> int:
        return self.state.k

    def on(self, stream: Stream) -> Payload:
        """What is sent on ``stream``; KeyError where nothing is."""
        return on(stream, self.payloads)


@value(frozen=True, slots=True)
class Persisted:
    """The record of round ``k`` is durable.  ``head``: of the ledger after it, 32 bytes."""

    k: int
    head: bytes = field(default=b"", repr=False)


@value(frozen=True, slots=True)
class StateKept:
    """The state of round ``k`` is durable: a restart goes on from there."""

    k: int


@value(frozen=True, slots=True)
class PeerNeeds:
    """An out-neighbour (re)connected and asks for rounds >= x_from of X, >= y_from of Y.

    It once mixed every round below ``mixed_before``, perhaps before a crash.  ``x_last``, ``y_last``: digests of what
    it holds of the rounds before those; empty: not known.
    """

    peer: int
    x_from: int
    y_from: int
    mixed_before: int = 0
    x_last: bytes = b""
    y_last: bytes = b""

    def first(self, stream: Stream) -> int:
        """The first round that it lacks of ``stream``."""
        return self.x_from if stream == "X" else self.y_from


@value(frozen=True, slots=True)
class PeerGone:
    """The stream to an out-neighbour broke: nothing is sent to it until it asks again."""

    peer: int


@value(frozen=True, slots=True)
class FinalSaved:
    """x_final.npy is durable."""


@value(frozen=True, slots=True)
class Dismissed:
    """The coordinator has everything: no peer will ask for a payload again."""


@value(frozen=True, slots=True)
class Evaluating:
    """Of the time since the step before, ``for_ns`` went into an evaluation that the round waited for."""

    for_ns: int


@value(frozen=True, slots=True)
class Tick:
    """A deadline passed; ``now_ns`` of the step says when."""


AgentEvent = (
    Started | Go | AllDurable | StopRequested | VectorReceived | Advanced | FinalReady | ReleaseReady | Persisted
    | StateKept | PeerNeeds | PeerGone | FinalSaved | Dismissed | Evaluating | Tick
)  # fmt: skip


# --- effects of an agent ------------------------------------------------------------------------------------------


@value(frozen=True, slots=True)
class Advance:
    """Go from round k to k+1 by the method's equations.

    ``state`` None: make the state of round 0 at the public x_0.  ``received``: by stream, released values by sender
    index.  ``own``: what the agent itself released in round k.  ``record``: what round k+1 released before a crash; its
    batch and whatever else was drawn for it are taken from there.  None: a fresh batch.
    """

    state: State | None
    received: Mapping[Stream, Mapping[int, Floats]] = field(default_factory=dict, repr=False)
    own: tuple[Payload, ...] = field(default=(), repr=False)
    record: RoundRecord | None = field(default=None, repr=False)


@value(frozen=True, slots=True)
class AdvanceFinal:
    """x_{K+1}; g_{K+1} and whatever needs it do not exist."""

    state: State
    received: Mapping[Stream, Mapping[int, Floats]] = field(repr=False)
    own: tuple[Payload, ...] = field(repr=False)


@value(frozen=True, slots=True)
class DrawRelease:
    """Draw the noise of round k once, encode what is sent, make the ledger rows."""

    state: State


@value(frozen=True, slots=True)
class Persist:
    """Make ``record`` durable, then answer ``Persisted``."""

    record: RoundRecord


@value(frozen=True, slots=True)
class KeepState:
    """Make ``state`` durable, whose round is, beside whatever follows; then answer ``StateKept``."""

    state: State

    @property
    def k(self) -> int:
        return self.state.k


@value(frozen=True, slots=True)
class Send:
    """Send these payloads of one round to one out-neighbour, in one message when they are small."""

    peer: int
    payloads: tuple[Payload, ...]


@value(frozen=True, slots=True)
class Resend:
    """Read the stored bytes of round ``k`` and send them again to ``peer``."""

    peer: int
    k: int
    streams: tuple[Stream, ...]


@value(frozen=True, slots=True)
class ReportStall:
    """Round ``k`` waits for these (sender, stream) pairs since ``since_ns``."""

    k: int
    missing: tuple[tuple[int, Stream], ...]
    since_ns: int


@value(frozen=True, slots=True)
class Evaluate:
    """Study or local metrics of x_{i,k}; never feeds back into the run."""

    k: int
    x: F64 = field(repr=False)


@value(frozen=True, slots=True)
class ReportDone:
    """Tell the coordinator that round ``k`` is done here; rounds <= ``durable_through`` will not be asked for again.

    ``spent``: what the rounds since the report before took.
    """

    k: int
    durable_through: int
    spent: Spent = field(default=(), compare=False)


@value(frozen=True, slots=True)
class Prune:
    """Payload bytes of rounds <= ``through`` may be dropped; hashes and ledger rows stay for ever."""

    through: int


@value(frozen=True, slots=True)
class SaveFinal:
    """Write x_{i,K+1} to x_final.npy and mark the run finished in the store."""

    x: F64 = field(repr=False)


@value(frozen=True, slots=True)
class Finish:
    """The machine is done.  "budget": the owner's budget covers no further round."""

    status: Literal["finished", "stopped", "budget"]
    reason: str


AgentEffect = (
    Advance | AdvanceFinal | DrawRelease | Persist | KeepState | Send | Resend | Evaluate | ReportDone | ReportStall
    | Prune | SaveFinal | Finish
)  # fmt: skip
