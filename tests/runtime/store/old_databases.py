"""Databases as versions 1 to 3 of the state directory wrote them.

Of versions 1 and 2 the tables and rows are written out again; of versions 3 and 4 there are whole ones that they wrote
themselves, as text (``old/*.sql``), and of version 3 the rows of today taken back to what it had.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import struct
from pathlib import Path

from dpgt_node.runtime.store.ledger import DATABASE, cost_text, next_head
from tests.runtime.store.records import RUN, SHA, TERMS, opened, record

FILE_BYTES = 1 << 20
TABLES = {
    1: """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, run_id BLOB NOT NULL UNIQUE, run_sha256 TEXT NOT NULL, name TEXT NOT NULL,
    x_final_sha256 BLOB
) STRICT;
CREATE TABLE rounds (
    run INTEGER NOT NULL, k INTEGER NOT NULL, dtype TEXT NOT NULL, dimension INTEGER NOT NULL,
    x_sha256 BLOB NOT NULL, x_data BLOB, x_file TEXT, y_sha256 BLOB NOT NULL, y_data BLOB, y_file TEXT, batch BLOB,
    PRIMARY KEY (run, k)
) STRICT;
""",
    2: """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, run_id BLOB NOT NULL UNIQUE, run_sha256 TEXT NOT NULL, name TEXT NOT NULL,
    data_id TEXT NOT NULL, delta REAL NOT NULL, adjacency TEXT NOT NULL, x_final_sha256 BLOB
) STRICT;
CREATE TABLE rounds (
    run INTEGER NOT NULL, k INTEGER NOT NULL, dtype TEXT NOT NULL, dimension INTEGER NOT NULL,
    x_sha256 BLOB NOT NULL, x_data BLOB, x_file TEXT, y_sha256 BLOB NOT NULL, y_data BLOB, y_file TEXT, batch BLOB,
    g_sha256 BLOB, g_data BLOB, g_file TEXT,
    PRIMARY KEY (run, k)
) STRICT;
""",
}
COMMON = """
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, k INTEGER NOT NULL, stream TEXT NOT NULL, mechanism TEXT NOT NULL,
    law TEXT NOT NULL, scale REAL NOT NULL, sensitivity REAL, sha256 BLOB NOT NULL, cost TEXT NOT NULL,
    head BLOB NOT NULL, UNIQUE (run, k, stream)
) STRICT;
CREATE TABLE checkpoints (
    run INTEGER PRIMARY KEY, k INTEGER NOT NULL, dimension INTEGER NOT NULL, sha256 BLOB NOT NULL, data BLOB,
    file TEXT, batch BLOB NOT NULL
) STRICT;
"""


def write_old(state_dir: Path, version: int, *, d: int, rounds: int, checkpoint: int, pruned: int) -> bytes:
    """Rounds 0.. ``rounds`` - 1 of RUN as ``records.record`` makes them; the head of the ledger.

    ``checkpoint``: of which round; ``pruned``: rounds below it have lost their payloads.
    """
    if version == 3:
        return _write_3(state_dir, d, rounds, checkpoint, pruned)
    blobs = state_dir / "blobs"
    blobs.mkdir(parents=True)
    (state_dir / "lock").touch()

    def stored(name: str, data: bytes) -> tuple[bytes | None, str | None]:
        if len(data) <= FILE_BYTES:
            return data, None
        (blobs / name).write_bytes(data)
        return None, name

    with contextlib.closing(sqlite3.connect(state_dir / DATABASE)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(TABLES[version] + COMMON)
        terms = () if version == 1 else (TERMS.data_id, TERMS.delta, TERMS.adjacency)
        marks = ", ".join("?" * (5 + len(terms)))
        db.execute(f"INSERT INTO runs VALUES ({marks})", (1, RUN, SHA, "agent-1", *terms, None))
        head = bytes(32)
        for k in range(rounds):
            r = record(k, d)
            batch = r.batch.tobytes()
            x, y = (
                stored(f"{RUN.hex()}-{k:010d}-{p.stream}", bytes(p.data)) if k >= pruned else (None, None)
                for p in r.payloads
            )
            row = (1, k, "float64", d, r.on("X").sha256, *x, r.on("Y").sha256, *y, batch if k >= pruned else None)
            row += () if version == 1 else (None, None, None)
            db.execute(f"INSERT INTO rounds VALUES ({', '.join('?' * len(row))})", row)
            for c in r.rows:
                cost = cost_text(c.cost)
                head = next_head(head, f"{RUN.hex()}\n" if version == 1 else TERMS.text_before_5(RUN), c, cost)
                values = (1, k, c.stream, c.mechanism, c.law, c.scale, c.sensitivity, c.sha256, cost, head)
                db.execute(f"INSERT INTO ledger VALUES (NULL, {', '.join('?' * len(values))})", values)
            if k == checkpoint:
                s = r.checkpoint
                assert s is not None
                data = b"".join(v.tobytes() for v in s.vectors.values())
                held = stored(f"{RUN.hex()}-{k:010d}-state", data)
                values = (1, k, d, hashlib.sha256(data).digest(), *held, batch)
                db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        db.execute("PRAGMA application_id = 0x64706774")
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()
    return head


TABLES_3 = """
ALTER TABLE rounds RENAME TO new_rounds;
CREATE TABLE rounds (id INTEGER PRIMARY KEY, x_sha256 BLOB NOT NULL, y_sha256 BLOB NOT NULL) STRICT;
INSERT INTO rounds SELECT id, x_sha256, y_sha256 FROM new_rounds;
DROP TABLE new_rounds;
ALTER TABLE runs RENAME TO new_runs;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, run_id BLOB NOT NULL UNIQUE, run_sha256 TEXT NOT NULL, name TEXT NOT NULL,
    data_id TEXT NOT NULL, delta REAL NOT NULL, adjacency TEXT NOT NULL, x_final_sha256 BLOB
) STRICT;
INSERT INTO runs SELECT id, run_id, run_sha256, name, data_id, delta, adjacency, x_final_sha256 FROM new_runs;
DROP TABLE new_runs;
DROP TABLE checkpoints;
CREATE TABLE checkpoints (
    run INTEGER PRIMARY KEY, k INTEGER NOT NULL, dimension INTEGER NOT NULL, sha256 BLOB NOT NULL, data BLOB,
    batch BLOB NOT NULL, seal BLOB NOT NULL
) STRICT;
DROP TABLE signature;
DROP TABLE agreements;
DROP TABLE pinned_keys;
DROP TABLE pair_keys;
PRAGMA user_version = 3;
"""


def _write_3(state_dir: Path, d: int, rounds: int, checkpoint: int, pruned: int) -> bytes:
    """Version 3 named no vectors in a checkpoint, and every round had an X and a Y."""
    with contextlib.closing(opened(state_dir)) as store:
        for k in range(rounds):
            store.commit_round(RUN, record(k, d, checkpoint=k == checkpoint))
        store.prune(RUN, pruned - 1)
        entries = store.ledger().entries
    with contextlib.closing(sqlite3.connect(state_dir / DATABASE)) as db, db:
        found = db.execute("SELECT run, k, sha256, data, batch FROM checkpoints").fetchall()
        db.executescript(TABLES_3)
        head = bytes(32)
        for number, entry in enumerate(entries, start=1):
            head = next_head(head, TERMS.text_before_5(RUN), entry.row, cost_text(dict(entry.row.cost)))
            db.execute("UPDATE ledger SET head = ? WHERE id = ?", (head, number))
        for run, k, sha256, data, batch in found:
            seal = hashlib.sha256(struct.pack("<16sqq8s", RUN, k, d, b"state") + sha256 + batch).digest()
            db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", (run, k, d, sha256, data, batch, seal))
    return head


def read_text(path: Path, state_dir: Path, version: int = 3) -> None:
    """Make the state directory whose database of ``version`` is in ``path`` as text."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(state_dir / DATABASE)) as db:
        db.executescript(path.read_text(encoding="utf-8"))
        db.executescript(f"PRAGMA application_id = 0x64706774; PRAGMA user_version = {version};")


ADDED = {
    6: ("DROP TABLE signature",),
    7: ("ALTER TABLE rounds DROP COLUMN uncharged",),
    8: ("DROP TABLE agreements", "DROP TABLE pinned_keys", "DROP TABLE pair_keys"),
    9: ("ALTER TABLE runs DROP COLUMN shares",),
}
"""What takes away the tables and columns that a version brought."""


def take_back(state_dir: Path, version: int) -> None:
    """Make a state directory of today one of ``version``, 5 or later."""
    with contextlib.closing(sqlite3.connect(state_dir / DATABASE)) as db, db:
        for brought in sorted(ADDED, reverse=True):
            if brought > version:
                for statement in ADDED[brought]:
                    db.execute(statement)
        db.execute(f"PRAGMA user_version = {version}")
