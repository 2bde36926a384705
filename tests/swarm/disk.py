"""A state directory as the real store keeps it: commits are whole or absent, a round is durable once, payloads are
pruned no further than the checkpoint.  A state that is written beside the rounds is a file first, and then the row that
names it.
"""

from __future__ import annotations

from dataclasses import replace

from dpgt_node.errors import StoreError
from dpgt_node.protocol.agent.session_types import Held
from dpgt_node.protocol.types import LedgerRow, Payload, Recovered, RoundRecord, State
from dpgt_node.types import F64
from tests.swarm.pairs import PairDisk


class Disk:
    """One agent's durable memory.  It outlives the process; ``full`` and ``lies`` are its faults.

    ``full``: nothing can be written.  ``lies``: the next commit becomes durable and then reports a failure.
    ``torn``: stored bytes no longer have their hash.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.run_id: bytes | None = None
        self.rounds: dict[int, RoundRecord] = {}
        self.kept_from = 0
        self.ledger: list[LedgerRow] = []
        self.states: dict[int, State] = {}
        """Files, and states in rows."""
        self.newest: int | None = None
        """The state that a row names."""
        self.final: F64 | None = None
        self.full = self.lies = self.torn = False
        self.pairs = PairDisk()

    def copy(self) -> Disk:
        """A backup."""
        other = Disk(self.name)
        other.run_id, other.newest, other.final = self.run_id, self.newest, self.final
        other.states = dict(self.states)
        other.rounds, other.kept_from, other.ledger = dict(self.rounds), self.kept_from, list(self.ledger)
        other.pairs = self.pairs.copy()
        return other

    @property
    def checkpoint(self) -> State | None:
        """What a restart would go on from."""
        return None if self.newest is None else self.states.get(self.newest)

    @property
    def released(self) -> int:
        """The last durable round, -1 for none."""
        return max(self.rounds, default=-1)

    def head(self, k: int) -> bytes:
        """What stands for the head of the ledger after round ``k``; empty: it never had that round."""
        return self.rounds[k].payloads[-1].sha256 if k in self.rounds else b""

    def held(self, K: int) -> Held:
        """What a process finds when it starts; files that no row names go.  StoreError: it cannot be read."""
        self.states = {k: state for k, state in self.states.items() if k == self.newest}
        if self.run_id is None:
            return Held()
        if self.final is not None:
            return Held(self.run_id, K, K, K, finished=True)
        recovered = self.recover()
        if recovered is None:
            return Held(self.run_id)
        k = recovered.checkpoint.k
        return Held(self.run_id, k + len(recovered.records) - 1, k - 1, k - 1)

    def begin_run(self, run_id: bytes) -> None:
        """Remember the run."""
        if self.run_id is None:
            self._write("the run")
            self.run_id = run_id

    def commit_round(self, record: RoundRecord) -> None:
        """All of a round's record or nothing.  RuntimeError: the round is durable already."""
        self._write(f"round {record.k}")
        if record.k in self.rounds:
            raise RuntimeError(f"round {record.k} is durable already; it is drawn once")
        self.rounds[record.k] = replace(record, checkpoint=None)
        self.ledger.extend(record.rows)
        self.pairs.advance(record.k)
        if record.checkpoint is not None:
            self.states, self.newest = {record.k: record.checkpoint}, record.k

    def write_state(self, state: State) -> None:
        """The file of a state."""
        self._write(f"the state of round {state.k}")
        self.states[state.k] = replace(state, vectors={name: v.copy() for name, v in state.vectors.items()})

    def keep_state(self, k: int) -> None:
        """The row that names it; the state before it goes."""
        self._write(f"the state of round {k}")
        if self.newest is not None:
            self.states.pop(self.newest, None)
        self.newest = k

    def reported(self, what: str) -> None:
        """Whether a write that is durable is also said to be."""
        if self.lies:
            self.lies = False
            raise StoreError(f"{self.name}: {what} cannot be made durable: input/output error")

    def recover(self) -> Recovered | None:
        """The last checkpoint and every round from it on."""
        if self.torn:
            raise StoreError(f"{self.name}: a stored vector is torn")
        state = self.checkpoint
        if state is None:
            if self.rounds or self.newest is not None:
                raise StoreError(f"{self.name}: the checkpoint is missing")
            return None
        found = sorted(k for k in self.rounds if k >= state.k)
        if found != list(range(state.k, state.k + len(found))):
            raise StoreError(f"{self.name}: rounds are missing after the checkpoint of round {state.k}")
        for k in found:
            self.payloads(k)
        return Recovered(state, tuple(self.rounds[k] for k in found))

    def payloads(self, k: int) -> tuple[Payload, ...]:
        """What was sent in round ``k``.  StoreError when they were pruned or never there."""
        if k not in self.rounds:
            raise StoreError(f"{self.name}: round {k} is not here")
        if k < self.kept_from:
            raise StoreError(f"{self.name}: round {k} was pruned")
        return self.rounds[k].payloads

    def prune(self, through: int) -> None:
        """Drop payloads of rounds <= ``through``, never those that ``recover`` needs."""
        self._write("a pruned round")
        self.kept_from = max(self.kept_from, min(through, self.checkpoint.k - 1 if self.checkpoint else -1) + 1)

    def finish_run(self, x: F64) -> None:
        """x_{i,K+1} is durable from here on."""
        self._write("the result")
        self.final = x

    def _write(self, what: str) -> None:
        if self.full:
            raise StoreError(f"{self.name}: {what} cannot be made durable: no space left on device")
