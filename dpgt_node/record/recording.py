"""What agents write down for a study of adversaries: ``[adversary]`` of the run file.  Daemons and the simulator alike.

    STATE_DIR/transcript        of a semi-honest agent: every released vector that it received, and its own releases
    STATE_DIR/truth/*.npz       the ground truth, a file a round (:mod:`dpgt_node.record.truth`)

Exact also when the agent is killed at any instant.  Other agents keep what they sent of a round until this one has
stored a checkpoint of a later round, and send it again; its own releases from the checkpoint on are in its store.  So
whatever was recorded of the rounds before a checkpoint must reach the disk before the checkpoint does (``flush``), and
what a crash tears off after that comes again.  A transcript gets its end when the agent's run has ended; one without an
end is refused by its readers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.config.model import RunConfig
from dpgt_node.durable import replaced, sync_folder
from dpgt_node.errors import StoreError
from dpgt_node.protocol.types import Payload, Recovered, RoundRecord, State
from dpgt_node.record import truth
from dpgt_node.types import Stream
from dpgt_node.wire.transcript import Header, Seen, Transcript, TranscriptError, seen
from dpgt_node.wire.transcript_writer import TranscriptWriter

log = logging.getLogger(__name__)

TRANSCRIPT = "transcript"
TRUTH = "truth"


class Recording:
    """Of agent ``index`` of ``run``, in ``state_dir``.  ``sync``: against power cuts too.  ``now_ns``: the time, in
    nanoseconds since 1970; 0: not known.  OSError: the disk; StoreError: what was recorded before is not there now.
    """

    def __init__(
        self,
        state_dir: Path,
        run: RunConfig,
        topology: Topology,
        index: int,
        run_id: bytes,
        work: AgentWork,
        *,
        source: str,
        sync: bool = False,
        now_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self.state_dir = state_dir
        self._names = topology.names
        self._name = topology.names[index]
        self._folder = state_dir / TRUTH
        self._run_id, self._last, self._work = run_id, run.K, work
        self._sync, self._now_ns = sync, now_ns
        self._truth = run.adversary.truth
        self._transcript: _Transcript | None = None
        if self._name in run.adversary.semi_honest:
            network = network_of(run, topology)
            edges = [(self._names[j], stream) for j, streams in network.senders(index).items() for stream in streams]
            edges += [(self._name, stream) for stream in network.streams]
            header = Header("semi-honest", (self._name,), channel="agent", run_id=run_id, source=source)
            self._transcript = _Transcript(state_dir / TRANSCRIPT, header, self._name, edges)

    def begin(self, recovered: Recovered | None, *, anew: bool = False) -> None:
        """Before anything else happens; ``recovered``: what the store holds of this run.

        ``anew``: rounds from the checkpoint on may be drawn again, as simulations do that were killed: what was
        recorded of them goes.
        """
        low = recovered.checkpoint.k if recovered else 0
        if self._transcript is not None:
            self._transcript.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if anew:
                self._transcript.cut(low)
            self._transcript.open(low)
        if self._truth:
            truth.begin(self._folder, self._run_id)
            if anew:
                truth.cut(self._folder, low)
            self._whole_truth(low)
        if recovered is not None:
            self._own(recovered.records)
            self.replayed(recovered.checkpoint)

    def received(self, sender: int, payload: Payload) -> None:
        """A vector of an in-neighbour came; again, after either side crashed: nothing happens."""
        if self._transcript is not None:
            self._transcript.add(self._names[sender], payload, self._now_ns())

    def flush(self) -> None:
        """Before a checkpoint is stored: what was recorded so far survives."""
        if self._transcript is not None:
            self._transcript.flush(self._sync)
        if self._truth and self._sync:
            sync_folder(self._folder)

    def released(self, record: RoundRecord, state: State) -> None:
        """A round is durable; ``state``: its complete state."""
        self._own((record,))
        if record.checkpoint is not None:
            self.kept(record.checkpoint.k)
        self.replayed(state)

    def kept(self, k: int) -> None:
        """A checkpoint of round ``k`` is stored: what comes before it does not come again."""
        if self._transcript is not None:
            self._transcript.forget(k)

    def replayed(self, state: State) -> None:
        """The complete state of a round that is durable."""
        if not self._truth:
            return
        found = self._work.private(state, truth.SAMPLES_BYTES)
        values = truth.TruthRound(state.k, found.x, found.y, found.g, state.batch, found.labels, found.samples)
        truth.write_round(self._folder, values, sync=self._sync)

    def finish(self) -> None:
        """Before the result is saved: everything is there, and the transcript gets its end."""
        if self._transcript is not None:
            self._transcript.check(self._last + 1)
        if self._truth:
            self._whole_truth(self._last + 1)
        self.close(ended=True)
        self.flush()

    def close(self, *, ended: bool) -> None:
        """The agent leaves; ``ended``: its run did, finished or stopped or out of budget.  Again: nothing happens."""
        if self._transcript is not None:
            self._transcript.close(ended=ended, sync=self._sync)

    def _own(self, records: Sequence[RoundRecord]) -> None:
        if self._transcript is None:
            return
        for record in records:
            for payload in record.payloads:
                self._transcript.add(self._name, payload, self._now_ns())

    def _whole_truth(self, before: int) -> None:
        there = set(truth.AgentTruth(self._folder).rounds())
        _require(self._folder, next((k for k in range(before) if k not in there), None))


class _Transcript:
    """A transcript that grows by one round after another of each (sender, stream)."""

    def __init__(self, path: Path, header: Header, own: str, edges: Sequence[tuple[str, Stream]]) -> None:
        self.path = path
        self._header, self._own = header, own
        self._next: dict[tuple[str, Stream], int] = dict.fromkeys(edges, 0)
        # Hashes of the rounds that may come again: a copy with other bytes is what a check for retries looks for.
        self._recent: dict[tuple[str, Stream, int], bytes] = {}
        self._conflicting = 0
        self._writer: TranscriptWriter | None = None

    def open(self, low: int) -> None:
        """Go on with what is there; rounds from ``low`` on come again."""
        self._writer = TranscriptWriter(self.path, self._header, known=self._known)
        self._writer.flush()  # its readers are told from now on that it has no end yet
        self.check(low)
        self.forget(low)

    def cut(self, low: int) -> None:
        """Drop what was seen of rounds from ``low`` on."""
        try:
            before = Transcript(self.path)
        except TranscriptError:
            return  # not there, or torn: whether that matters is seen when it is opened
        if before.header != self._header:
            return
        with replaced(self.path, "process") as part:
            writer = TranscriptWriter(part, self._header)
            for _, entry in before.whole():
                if entry is not None and entry.k < low:
                    writer.write(entry)
            writer.abandon()

    def add(self, sender: str, payload: Payload, time_ns: int) -> None:
        """The vector of ``payload.k``, unless it is there."""
        key = (sender, payload.stream)
        before = self._recent.get((*key, payload.k))
        if self._writer is None or before == payload.sha256 or (before is None and payload.k < self._next[key]):
            return
        own = sender == self._own
        entry = seen(
            sender,
            "" if own else self._own,
            payload.k,
            payload.stream,
            payload.dtype,
            payload.data,
            sha256=payload.sha256,
            time_ns=time_ns,
            own=own,
        )
        if before is None and payload.k > self._next[key]:
            _require(self.path, self._next[key])
        self._writer.write(entry)
        self._known(entry)

    def flush(self, sync: bool) -> None:
        if self._writer is not None:
            self._writer.flush(sync=sync)
            if sync:
                sync_folder(self.path.parent)

    def forget(self, before: int) -> None:
        """Rounds before this one do not come again."""
        self._recent = {key: sha256 for key, sha256 in self._recent.items() if key[2] >= before}

    def check(self, rounds: int) -> None:
        """StoreError unless rounds 0..rounds - 1 of everything are there."""
        _require(self.path, min((k for k in self._next.values() if k < rounds), default=None))

    def close(self, *, ended: bool, sync: bool) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if ended:
            writer.close(conflicting=self._conflicting, sync=sync)
        else:
            writer.abandon()
            log.warning("%s: unfinished, and its readers are told so", self.path)

    def _known(self, entry: Seen) -> None:
        key = (entry.sender, entry.stream)
        if entry.k == self._next.get(key):
            self._next[key] += 1
            self._recent[(*key, entry.k)] = entry.sha256
        else:
            self._conflicting += 1


def _require(where: Path, absent: int | None) -> None:
    if absent is not None:
        raise StoreError(
            f"{where}: round {absent} is missing, and nobody can send it again: put the file back as it was, or start "
            "a new run"
        )
