"""Keys that an agent shares with its partners, in its state directory: agreed on once, and going only forward.

Before an agreement there is a private key, which must outlive a restart, because others pin its public half.  When the
agreement is kept it is erased, in the transaction that brings K_ij,0; and the commit of round k puts K_ij,k+1 in the
place of K_ij,k.  So a directory that is copied later tells nothing of what was shared in rounds before.  SQLite zeroes
what it deletes; its log and the disk below may hold older pages until they are written over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field

from dpgt_node.errors import Broken, NoAgreement, PeerError, invariant
from dpgt_node.privacy.laws.pairs import PAIR_KEY_BYTES, Ratchet
from dpgt_node.protocol.messages import KeyOffer, KeyProofs
from dpgt_node.values import dataclass
from dpgt_node.wire import keys


@dataclass(frozen=True, slots=True)
class Begun:
    """What is stored of an agreement.  ``private``: 32 bytes, None once it was kept.  ``proofs``: by partner's name."""

    offer: KeyOffer
    proofs: Mapping[str, bytes]
    private: bytes | None = field(repr=False)


class PairTable:
    """The pairs of one run at a time, see ``open``.  The keys are those of ``privacy.laws.pairs.PairKeys``.

    ``transaction`` begins one on ``db`` and commits it, or rolls it back.
    """

    def __init__(
        self, db: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]
    ) -> None:
        self._db = db
        self._transaction = transaction
        self._run = -1
        self._ratchet: Ratchet | None = None

    def open(self, run_id: bytes) -> Begun | None:
        """What a run that was begun here has, and its keys where it has some; None: no agreement was begun.

        ValueError: what is stored is none.
        """
        (run,) = self._db.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        self._run, self._ratchet = run, None
        row = self._db.execute("SELECT offer, proofs, private FROM agreements WHERE run = ?", (run,)).fetchone()
        if row is None:
            return None
        held = self._db.execute("SELECT partner, k, key FROM pair_keys WHERE run = ?", (run,)).fetchall()
        if row[2] is None:
            rounds = {k for _, k, _ in held}
            invariant(len(rounds) == 1, "the keys of all pairs are of one round")
            self._ratchet = Ratchet({partner: key for partner, _, key in held}, rounds.pop())
        try:
            proofs = {} if row[1] is None else keys.decode_proofs(row[1]).proofs
            return Begun(keys.decode_offer(row[0]), proofs, row[2])
        except PeerError as error:
            raise ValueError(str(error)) from error  # nobody sent it: the directory is damaged

    def begin(self, private: bytes, offer: KeyOffer) -> None:
        """Remember the run's own key, once."""
        data = keys.encode_offer(offer)
        with self._transaction() as db:
            db.execute("INSERT INTO agreements VALUES (?, ?, ?, NULL)", (self._run, private, data))

    def pin(self, ring: Sequence[KeyOffer], proofs: Mapping[str, bytes]) -> None:
        """Remember whose key is which, for ever, and what is proved.  NoAgreement: somebody had another key before."""
        pinned = dict(self._db.execute("SELECT name, key FROM pinned_keys WHERE run = ?", (self._run,)))
        for offer in ring:
            if pinned.get(offer.name, offer.key) != offer.key:
                raise NoAgreement(
                    offer.name,
                    f"{offer.name} offers another key than it did before in this run: it lost its state directory, or "
                    "somebody stands between: begin a new run",
                )
        data = keys.encode_proofs(KeyProofs(proofs))
        with self._transaction() as db:
            rows = [(self._run, offer.name, offer.key) for offer in ring]
            db.executemany("INSERT OR IGNORE INTO pinned_keys VALUES (?, ?, ?)", rows)
            db.execute("UPDATE agreements SET proofs = ? WHERE run = ?", (data, self._run))

    def keep(self, agreed: Mapping[int, bytes]) -> None:
        """K_ij,0 by 0-based partner, in the place of the private key."""
        invariant(all(len(key) == PAIR_KEY_BYTES for key in agreed.values()), "the key of a pair has 32 bytes")
        with self._transaction() as db:
            rows = [(self._run, partner, 0, key) for partner, key in agreed.items()]
            db.executemany("INSERT INTO pair_keys VALUES (?, ?, ?, ?)", rows)
            db.execute("UPDATE agreements SET private = NULL WHERE run = ?", (self._run,))
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the private key is in the log, too
        self._ratchet = Ratchet(agreed)

    def key(self, partner: int, k: int) -> bytes:
        """K_ij,k, 32 bytes, for 0-based agent j = ``partner``.  Broken: it was erased, or nothing was agreed on."""
        if self._ratchet is None:
            raise Broken("no keys were agreed on")
        return self._ratchet.key(partner, k)

    def advance(self, db: sqlite3.Connection, run: int, k: int) -> None:
        """Within the transaction of round ``k``: from here on only the keys of later rounds are there."""
        if self._ratchet is not None and run == self._run:
            rows = [(k + 1, key, run, partner) for partner, key in self._ratchet.keys_of(k + 1).items()]
            db.executemany("UPDATE pair_keys SET k = ?, key = ? WHERE run = ? AND partner = ?", rows)

    def advanced(self, run: int, k: int) -> None:
        """That transaction is durable."""
        if self._ratchet is not None and run == self._run:
            self._ratchet.erase_before(k + 1)
