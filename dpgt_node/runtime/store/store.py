"""An agent's durable memory: one SQLite database (WAL) and a folder of large files in its state directory.

A release is durable before a byte of it leaves, and is drawn once: payloads, ledger rows and batch of a round, and a
small state, commit in one transaction, files first, and a second commit of the same round fails on the primary key.  A
large state is a file that is written beside whatever else happens, and counts from a transaction of its own on.

Durability "process": survives the end of the process at any instruction (``kill -9``), not a power cut.  "power":
every commit, file and new folder is fsynced before it counts.  One process at a time, held by a lock on ``lock``;
``ledger.read_ledger`` may look on.  Synchronous; usable from any thread, one call at a time but for ``write_state``.

A store that opened is whole as far as it can know: SQLite's structure, the ledger's chain and its charge for every
round were checked (half a second for 10^5 rows each), and what is read later is checked against hashes and seals.
What it cannot know, that it is an old or a forked copy, others tell it: see ``head_after``.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from dpgt_node.durable import Durability
from dpgt_node.errors import StoreError, invariant
from dpgt_node.protocol.types import LedgerRow, Payload, Recovered, RoundRecord, State
from dpgt_node.runtime.store import keyed
from dpgt_node.runtime.store.faults import DAMAGED, blamed
from dpgt_node.runtime.store.finals import X_FINAL, checked_final, write_final
from dpgt_node.runtime.store.keyed import OwnerKey
from dpgt_node.runtime.store.ledger import (
    DATABASE,
    TEST,
    Charge,
    Ledger,
    Terms,
    as_charged,
    head_after,
    select_charges,
    select_ledger,
    select_rows,
    select_terms,
)
from dpgt_node.runtime.store.opening import Transaction, connected, locked
from dpgt_node.runtime.store.rounds.blobs import BlobFolder
from dpgt_node.runtime.store.rounds.pruning import Pruning
from dpgt_node.runtime.store.rounds.records import (
    BLOBS,
    File,
    StoredState,
    checkpoint_of,
    large_files,
    record_of,
    replace_state,
    stored,
    stored_state,
)
from dpgt_node.runtime.store.runs import RunInfo, select_runs
from dpgt_node.runtime.store.schema import (
    INSERT_LEDGER,
    INSERT_PAYLOADS,
    INSERT_ROUND,
    INSERT_RUN,
    ROUNDS_MAX,
    SELECT_PAYLOADS,
    UPDATE_TERMS,
    round_key,
)
from dpgt_node.runtime.store.terms import continued, sealed, written
from dpgt_node.runtime.trust.pair_table import PairTable
from dpgt_node.types import F64


class Store:
    """Opens or creates the state directory, and verifies it.

    StoreError: cannot be read or written, in use, damaged, of another program or version.  LedgerBroken.  ``key``: the
    owner's, which signs every head.  ``sign``: it vouches for the ledger as it stands, whoever wrote that.
    """

    def __init__(
        self, state_dir: Path, durability: Durability, key: OwnerKey | None = None, *, sign: bool = False
    ) -> None:
        self._state_dir = state_dir
        self._durability: Durability = durability
        self._key = key
        with contextlib.ExitStack() as undo, self._blamed("cannot be opened"):
            self._lock = locked(state_dir, durability)
            undo.callback(os.close, self._lock)
            self._blobs = BlobFolder(state_dir / BLOBS, durability)
            self._db = connected(state_dir / DATABASE, durability)
            undo.callback(self._db.close)
            runs = select_terms(self._db)
            self._ids = {run_id: number for number, (run_id, _) in runs.items()}
            self._terms = dict(runs.values())
            self._text: tuple[Terms | None, str] = (None, "")
            self._pruning = Pruning(state_dir, durability, self._db, self._transaction, self._blobs)
            self.pairs = PairTable(self._db, self._transaction)
            self._verify(signed=not sign)
            if sign and key is not None:
                key.sign(self._db, self._head)
            self._blobs.sweep(large_files(self._db, self._ids))
            undo.pop_all()

    def _verify(self, *, signed: bool = True) -> None:
        self._verified = self._state_of_database()
        self._charges, self._head = select_charges(self._db, self._state_dir / DATABASE)
        self._spent = {charge.run_id: dict(charge.cost) for charge in self._charges}
        if signed:
            keyed.check(self._db, self._head, self._key, self._state_dir / DATABASE)

    def _state_of_database(self) -> tuple[int, int]:
        """Changes with every commit, ours or another's."""
        return self._db.total_changes, self._db.execute("PRAGMA data_version").fetchone()[0]

    def _blamed(self, what: str) -> contextlib.AbstractContextManager[None]:
        return blamed(self._state_dir, what)

    def _transaction(self) -> Transaction:
        return Transaction(self._db)

    def close(self) -> None:
        """Release the directory; the store is of no more use.  Harmless when it is closed."""
        with contextlib.suppress(OSError):
            self._blobs.drop_spares()
        self._db.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    # --- runs

    def begin_run(
        self,
        run_id: bytes,
        run_sha256: str,
        name: str,
        terms: Terms,
        *,
        shard_sha256: bytes = b"",
        average_from: int | None = None,
    ) -> None:
        """Remember a run (16 bytes; hex hash of its canonical run file) of agent ``name`` and what its charges mean.

        ``shard_sha256``: of the data; the seal of ``terms`` is made of it.  ``average_from``: the first round whose x̆
        counts in ``x_released.sum`` (see ``report.released``); None: no sum.  Again with the same hash, agent and
        terms: nothing happens.  OtherTerms: something was released already, under other terms.
        """
        if average_from is not None:
            self._pruning.average_from[run_id] = average_from
        query = "SELECT run_sha256, data_id, name, salt FROM runs WHERE run_id = ?"
        with self._blamed("cannot record the run"):
            known = self._db.execute(query, (run_id,)).fetchone()
            if known is None:
                now, salt = sealed(terms, shard_sha256, 0, select_runs(self._db))
                values = (run_id, run_sha256, name, now.data_id, *written(now, salt))
                with self._transaction() as db:
                    (self._ids[run_id],) = db.execute(INSERT_RUN, values).fetchone()
                self._terms[run_id] = now
            elif known[0] != run_sha256:
                raise StoreError(
                    f"{self._state_dir}: run {run_id.hex()} was begun with another run file: go on with that one, or "
                    "give this run a state_dir of its own"
                )
            elif known[1] != terms.data_id:
                raise StoreError(
                    f'{self._state_dir}: run {run_id.hex()} was begun on data set "{known[1]}", not "{terms.data_id}": '
                    "set [data] id back, or give this data a state_dir of its own"
                )
            else:
                self._check_owner(known[2], name, run_id)
                self._go_on(run_id, terms, shard_sha256, known[3])

    def _go_on(self, run_id: bytes, terms: Terms, shard_sha256: bytes, salt: bytes) -> None:
        """OtherTerms, unless nothing was released yet; a run of an older version gets the terms that it did not have.

        A finished run releases nothing more, whatever became of its data.
        """
        if self.is_finished(run_id):
            return
        charged = self._db.execute("SELECT count(*) FROM ledger").fetchone()[0] if self.releases(run_id) else None
        known = (self._state_dir, run_id, self._terms[run_id], terms, shard_sha256, salt, charged)
        now = continued(*known, select_runs(self._db))
        if now is not None:
            with self._transaction() as db:
                db.execute(UPDATE_TERMS, (*written(*now), self._ids[run_id]))
            self._terms[run_id] = now[0]

    def runs(self) -> tuple[RunInfo, ...]:
        with self._blamed("cannot be read"):
            return select_runs(self._db)

    def find_run(self, run_sha256: str, name: str) -> bytes | None:
        """The newest run of this run file, finished or not: others may still have to finish it.

        StoreError: it was begun as another agent than ``name``.
        """
        found = [run for run in self.runs() if run.run_sha256 == run_sha256]
        if not found:
            return None
        self._check_owner(found[-1].name, name, found[-1].run_id)
        return found[-1].run_id

    def _check_owner(self, owner: str, name: str, run_id: bytes) -> None:
        if owner != name:
            raise StoreError(
                f"{self._state_dir}: the state directory of {owner} in run {run_id.hex()}, not of {name}: "
                "give each agent a state_dir of its own"
            )

    def is_finished(self, run_id: bytes) -> bool:
        """Whether ``finish_run`` was completed for this run."""
        return any(run.run_id == run_id and run.finished for run in self.runs())

    def releases(self, run_id: bytes) -> int:
        """Payloads made durable in this run: one a stream and round."""
        with self._blamed("cannot be read"):
            query = "SELECT count(x_sha256) + count(y_sha256) FROM rounds WHERE id BETWEEN ? AND ?"
            return int(self._db.execute(query, self._span(run_id)).fetchone()[0])

    def _span(self, run_id: bytes, first: int = 0, last: int = ROUNDS_MAX - 1) -> tuple[int, int]:
        """The keys of rounds ``first`` to ``last``; of a run that is not known, none."""
        run = self._ids.get(run_id)
        return (0, -1) if run is None else (round_key(run, first), round_key(run, last))

    def finish_run(self, run_id: bytes, x_final: F64) -> Path:
        """Write x_{i,K+1} (float64, shape (d,)) to STATE_DIR/x_final.npy at once, then mark the run finished."""
        path = self._state_dir / X_FINAL
        with self._blamed("cannot save the result"):
            digest = write_final(path, x_final, self._durability)
            with self._transaction() as db:
                db.execute("UPDATE runs SET x_final_sha256 = ? WHERE id = ?", (digest, self._ids[run_id]))
        return path

    def final(self, run_id: bytes) -> F64:
        """x_{i,K+1} of a finished run.  StoreError when x_final.npy is missing, torn or of another run."""
        with self._blamed("the result cannot be read"):
            query = "SELECT x_final_sha256 FROM runs WHERE run_id = ?"
            row = self._db.execute(query, (run_id,)).fetchone()
            return checked_final(self._state_dir / X_FINAL, None if row is None else row[0], run_id)

    # --- rounds

    def commit_round(self, run_id: bytes, record: RoundRecord) -> None:
        """Make ``record`` durable, all of it or nothing.

        StoreError: the disk is full or broken, and this process must not go on with the round.  RuntimeError: the
        round is durable already; whatever was drawn a second time must never leave.
        """
        run, k, terms = self._ids[run_id], record.k, self._terms[run_id]
        invariant(terms.since is not None, "a run goes on after begin_run")
        charged = as_charged(record.rows, self._spent.get(run_id, {}), hides=terms.keystream != TEST)
        if self._text[0] is not terms:
            self._text = (terms, terms.text(run_id))
        new, old = stored(run, run_id, record, charged, self._head, self._text[1]), list[str]()
        with self._blamed(f"round {k} cannot be made durable"):
            try:
                with self._transaction() as db:
                    db.execute(INSERT_ROUND, new.round)  # first: a second draw must not reach the files
                    db.execute(INSERT_PAYLOADS, new.payloads)
                    db.executemany(INSERT_LEDGER, new.charged)
                    self.pairs.advance(db, run, k)
                    if self._key is not None:
                        self._key.sign(db, new.head)
                    if new.state is not None:
                        old = replace_state(db, run_id, new.state)
                    self._write(new.files)
            except sqlite3.IntegrityError as error:
                raise RuntimeError(f"round {k} of run {run_id.hex()} is durable already; it is drawn once") from error
            self._head = new.head
            self.pairs.advanced(run, k)
            if charged:
                self._spent[run_id] = charged[-1].cost
            self._blobs.remove(old)

    def write_state(self, run_id: bytes, state: State) -> StoredState:
        """Write the state before a round where it is a file; it counts once ``keep_state`` returned.

        While it runs other methods may be called, this one not.  StoreError as of ``commit_round``.
        """
        new = stored_state(self._ids[run_id], run_id, state)
        with self._blamed(f"the state of round {state.k} cannot be made durable"):
            try:  # not by ``_write``: what it removes is looked up among files that another thread maps
                for name, parts in new.files:
                    self._blobs.write(name, parts)
            except BaseException:
                with contextlib.suppress(OSError):
                    self._blobs.drop_spares()  # the disk may be full
                raise
        return new

    def keep_state(self, run_id: bytes, new: StoredState) -> None:
        """The run's checkpoint is ``new`` from here on, what ``write_state`` gave; the one before goes.

        StoreError as of ``commit_round``.  Broken: its round is not durable, or the one before is newer.
        """
        with self._blamed(f"the state of round {new.k} cannot be made durable"):
            with self._transaction() as db:
                known = db.execute("SELECT 1 FROM rounds WHERE id = ?", self._span(run_id, new.k, new.k)[:1])
                invariant(known.fetchone() is not None, "a state is kept once its round is durable")
                old = replace_state(db, run_id, new)
            self._blobs.remove(old)

    def _write(self, files: Sequence[File]) -> None:
        """All of them or none.  A failed COMMIT leaves them for the next start: it may have reached the disk."""
        try:
            for name, parts in files:
                self._blobs.write(name, parts)
        except BaseException:
            with contextlib.suppress(OSError):
                self._blobs.remove(name for name, _ in files)
                self._blobs.drop_spares()  # the disk may be full
            raise

    def payloads(self, run_id: bytes, k: int) -> tuple[Payload, ...]:
        """What was sent in round ``k``, for resends, checked.  StoreError: none, pruned, or torn."""
        with self._blamed(f"round {k} cannot be read"):
            found = self._db.execute(SELECT_PAYLOADS, self._span(run_id, k, k)).fetchone()
            if found is None:
                known = self._db.execute("SELECT 1 FROM rounds WHERE id = ?", self._span(run_id, k, k)[:1]).fetchone()
                why = "was pruned: every agent had it" if known else "is not here"
                raise StoreError(f"{self._state_dir}: round {k} of run {run_id.hex()} {why}")
            return record_of(self._state_dir, self._blobs, run_id, found, ()).payloads

    def recover(self, run_id: bytes) -> Recovered | None:
        """The last checkpoint of the run and every durable round from it on (their ``checkpoint`` is None), checked
        against their hashes and seals.  None when nothing was committed.  StoreError names what is torn.
        """
        run = self._ids.get(run_id, -1)
        with self._blamed("cannot be read"):
            last = self._db.execute(
                "SELECT max(id) FROM rounds WHERE id BETWEEN ? AND ?", self._span(run_id)
            ).fetchone()
            row = self._db.execute("SELECT * FROM checkpoints WHERE run = ?", (run,)).fetchone()
            if row is None:
                if last[0] is not None:
                    raise StoreError(f"{self._state_dir}: the checkpoint of run {run_id.hex()} is missing; {DAMAGED}")
                return None
            state = checkpoint_of(self._state_dir, self._blobs, run_id, *row[1:])
            found = self._db.execute(SELECT_PAYLOADS, self._span(run_id, state.k)).fetchall()
            here = [key % ROUNDS_MAX for key, *_ in found]
            if not here or last[0] is None or here != list(range(state.k, last[0] % ROUNDS_MAX + 1)):
                raise StoreError(
                    f"{self._state_dir}: rounds are missing after the checkpoint of round {state.k}; {DAMAGED}"
                )
            charged: dict[int, list[LedgerRow]] = {k: [] for k in here}
            for each in select_rows(self._db, run, state.k):
                charged[each.k].append(each)
            records = (
                record_of(self._state_dir, self._blobs, run_id, row, charged[k])
                for k, row in zip(here, found, strict=True)
            )
            return Recovered(state, tuple(records))

    def prune(self, run_id: bytes, through: int) -> None:
        """Drop payload bytes and batches of rounds <= ``through``; hashes and ledger rows stay.

        What ``recover`` needs (rounds from the last checkpoint on) stays too, whatever ``through`` says.  The x̆ that go
        are counted in the sum first.
        """
        with self._blamed("cannot be pruned"):
            self._pruning.prune(self._ids[run_id], run_id, through)

    # --- ledger

    def ledger(self, run_id: bytes | None = None) -> Ledger:
        """The ledger, its chain verified; the entries of one run, or of all.  LedgerBroken names the first bad row."""
        with self._blamed("cannot be read"):
            return select_ledger(self._db, run_id, self._state_dir / DATABASE)

    def charges(self) -> tuple[Charge, ...]:
        """What every run has cost so far, the chain verified.  LedgerBroken names the first bad row."""
        with self._blamed("cannot be read"):
            if self._state_of_database() != self._verified:
                self._verify()
        return self._charges

    @property
    def head(self) -> bytes:
        """The chain's head after everything committed so far, 32 bytes; NO_HEAD at the start."""
        return self._head

    def head_after(self, run_id: bytes, k: int) -> bytes:
        """The chain's head after round ``k`` of the run, empty where there is no such round.

        Others who remember another head find out an old copy of this directory (no round ``k`` yet) and a forked one
        (another round ``k``).
        """
        with self._blamed("cannot be read"):
            return head_after(self._db, self._ids.get(run_id, -1), k) or b""
