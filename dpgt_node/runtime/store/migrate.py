"""Brings the database of an older version up to date, step by step, in one transaction, after a copy was put aside.

A step that is killed in the middle leaves the old database as it was.  A database newer than this version knows is
refused: it may hold what this version would not keep.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sqlite3
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from dpgt_node.durable import replaced
from dpgt_node.errors import StoreError
from dpgt_node.runtime.store.faults import DAMAGED
from dpgt_node.runtime.store.ledger import NO_HEAD, LedgerBroken, link, select_charges
from dpgt_node.runtime.store.rounds.rows import checkpoint_seal, payloads_seal
from dpgt_node.runtime.store.schema import (
    APPLICATION,
    CHECKPOINTS,
    INSERT_PAYLOADS,
    PAIRS,
    ROUNDS,
    ROUNDS_MAX,
    RUNS,
    SCHEMA,
    SIGNATURE,
    VERSION,
)
from dpgt_node.runtime.store.terms import UNRECORDED

log = logging.getLogger(__name__)


def bring_up_to_date(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables, or migrate them to ``VERSION``.  StoreError: another program's, or a newer version's."""
    application, version = _pragma(db, "application_id"), _pragma(db, "user_version")
    if application != APPLICATION:
        if _pragma(db, "schema_version"):
            raise StoreError(f"{path}: a database of another program: give state_dir another path")
        _all_or_nothing(db, lambda: _statements(db, SCHEMA))
        return
    if version == VERSION:
        return
    if version not in _STEPS:
        hint = "use a dpgt that is as new as the one that wrote it" if version > VERSION else "it cannot be read"
        raise StoreError(f"{path}: version {version}; this version of dpgt knows {VERSION}: {hint}")
    kept = path.with_name(f"{path.name}.v{version}")
    _copy(db, kept)
    log.info("%s: bringing version %d up to %d; a copy of the old database is in %s", path, version, VERSION, kept)

    def climb() -> None:
        at = version
        while at != VERSION:
            at, step = _STEPS[at]
            step(db, path)

    _all_or_nothing(db, climb)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _statements(db: sqlite3.Connection, script: str) -> None:
    """Like ``executescript``, which would commit the open transaction."""
    for statement in script.split(";\n"):
        if statement.strip():
            db.execute(statement)


def _all_or_nothing(db: sqlite3.Connection, job: Callable[[], None]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        job()
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _copy(db: sqlite3.Connection, target: Path) -> None:
    """A whole copy of the database at ``target`` (mode 0600), or none."""
    with replaced(target, "whole", mode=0o600) as temporary, contextlib.closing(sqlite3.connect(temporary)) as copy:
        db.backup(copy)


# --- 1 to 2: rows say what their charges mean; g~_k of noise-once ---------------------------------------------------


def _to_2(db: sqlite3.Connection, path: Path) -> None:
    ids: dict[int, bytes] = dict(db.execute("SELECT id, run_id FROM runs"))
    head = old_head = NO_HEAD
    heads = []
    rows = "SELECT id, run, head, k, stream, mechanism, law, scale, sensitivity, sha256, cost FROM ledger ORDER BY id"
    for number, run, stored, *fields in db.execute(rows):
        if run in ids:
            old_head = link(old_head, f"{ids[run].hex()}\n", *fields)
        if run not in ids or old_head != stored:
            raise LedgerBroken(f"{path}: ledger row {number} or one before it was changed; nothing was migrated")
        head = link(head, UNRECORDED.text_before_5(ids[run]), *fields)
        heads.append((head, number))
    db.executemany("UPDATE ledger SET head = ? WHERE id = ?", heads)
    text = UNRECORDED.adjacency.replace("'", "''")
    _statements(
        db,
        f"""ALTER TABLE runs ADD COLUMN data_id TEXT NOT NULL DEFAULT '{UNRECORDED.data_id}';
        ALTER TABLE runs ADD COLUMN delta REAL NOT NULL DEFAULT {UNRECORDED.delta};
        ALTER TABLE runs ADD COLUMN adjacency TEXT NOT NULL DEFAULT '{text}';
        ALTER TABLE rounds ADD COLUMN g_sha256 BLOB;
        ALTER TABLE rounds ADD COLUMN g_data BLOB;
        ALTER TABLE rounds ADD COLUMN g_file TEXT;
        PRAGMA user_version = 2;
        """,
    )


# --- 2 to 9: payloads apart from what stays for ever; seals; no index but the keys ----------------------------------


def _from_2(db: sqlite3.Connection, path: Path) -> None:
    select_charges(db, path)  # what is not whole now must not look whole afterwards
    tables = ("runs", "rounds", "ledger", "checkpoints")
    for table in tables:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    _statements(db, SCHEMA)
    key = f"run * {ROUNDS_MAX} + k"
    _statements(
        db,
        f"""{_FILL_RUNS};
        INSERT INTO rounds SELECT {key}, x_sha256, y_sha256, NULL FROM old_rounds ORDER BY run, k;
        INSERT INTO ledger SELECT * FROM old_ledger ORDER BY id;
        """,
    )
    ids: dict[int, bytes] = dict(db.execute("SELECT id, run_id FROM runs"))
    kept = "x_data IS NOT NULL OR x_file IS NOT NULL"
    names = f"{key}, run, k, dtype, dimension, x_sha256, x_data, y_sha256, y_data, batch, g_sha256, g_data"
    held = db.execute(f"SELECT {names} FROM old_rounds WHERE {kept} ORDER BY run, k")
    for number, run, k, dtype, dimension, x, x_data, y, y_data, batch, g, g_data in held:
        seal = payloads_seal(ids[run], k, dtype, dimension, x, y, batch or b"", g)
        db.execute(INSERT_PAYLOADS, (number, dtype, dimension, x_data, y_data, batch or b"", g, g_data, seal))
    held = db.execute("SELECT run, k, dimension, sha256, data, batch FROM old_checkpoints")
    for run, k, dimension, sha256, data, batch in held.fetchall():
        _checkpoint(db, ids[run], run, k, dimension, sha256, data, batch)
    for table in tables:
        db.execute(f"DROP TABLE old_{table}")


# --- 3 to 7: checkpoints say which vectors they hold; a method may send on one stream alone -------------------------


def _from_3(db: sqlite3.Connection, path: Path) -> None:
    _from_4(db, path)
    _from_5(db, path)
    ids: dict[int, bytes] = dict(db.execute("SELECT id, run_id FROM runs"))
    for table in ("rounds", "checkpoints"):
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    _statements(db, ROUNDS + CHECKPOINTS)
    db.execute("INSERT INTO rounds SELECT id, x_sha256, y_sha256, NULL FROM old_rounds ORDER BY id")
    held = db.execute("SELECT run, k, dimension, sha256, data, batch, seal FROM old_checkpoints")
    for run, k, dimension, sha256, data, batch, seal in held.fetchall():
        old = struct.pack("<16sqq8s", ids[run], k, dimension, b"state") + sha256 + batch
        if seal != hashlib.sha256(old).digest():
            raise StoreError(f"{path}: the checkpoint of round {k} is torn; nothing was migrated; {DAMAGED}")
        _checkpoint(db, ids[run], run, k, dimension, sha256, data, batch)
    for table in ("rounds", "checkpoints"):
        db.execute(f"DROP TABLE old_{table}")


# --- 4 to 5: runs say which data and which noise their charges are about ------------------------------------------


def _from_4(db: sqlite3.Connection, path: Path) -> None:
    select_charges(db, path)
    db.execute("ALTER TABLE runs RENAME TO old_runs")
    _statements(db, f"{RUNS}{_FILL_RUNS};\nDROP TABLE old_runs;\n")


# --- 5 to 6: the owner may sign the newest head -------------------------------------------------------------------


def _from_5(db: sqlite3.Connection, path: Path) -> None:
    _statements(db, SIGNATURE)


_FILL_RUNS = (
    "INSERT INTO runs SELECT id, run_id, run_sha256, name, data_id, delta, adjacency,"
    " NULL, '', x'', '', NULL, '', x_final_sha256 FROM old_runs"
)
"""What they did not record stays open until the run goes on: the rows that follow say it then."""


# --- 6 to 7: a round may have drawn nothing -------------------------------------------------------------------------


def _from_6(db: sqlite3.Connection, path: Path) -> None:
    db.execute("ALTER TABLE rounds RENAME TO old_rounds")
    fill = "INSERT INTO rounds SELECT id, x_sha256, y_sha256, NULL FROM old_rounds ORDER BY id"
    _statements(db, f"{ROUNDS}{fill};\nDROP TABLE old_rounds;\n")


# --- 7 to 8: agents that share noise have keys ----------------------------------------------------------------------


def _from_7(db: sqlite3.Connection, path: Path) -> None:
    _statements(db, PAIRS)


# --- 8 to 9: runs say how their agent shares noise ------------------------------------------------------------------


def _from_8(db: sqlite3.Connection, path: Path) -> None:
    db.execute("ALTER TABLE runs RENAME TO old_runs")
    kept = "id, run_id, run_sha256, name, data_id, delta, adjacency, samples, keystream, salt, data_seal, since"
    fill = f"INSERT INTO runs SELECT {kept}, '', x_final_sha256 FROM old_runs ORDER BY id"
    _statements(db, f"{RUNS}{fill};\nDROP TABLE old_runs;\n")


def _checkpoint(
    db: sqlite3.Connection,
    run_id: bytes,
    run: int,
    k: int,
    dimension: int,
    sha256: bytes,
    data: bytes | None,
    batch: bytes,
) -> None:
    """A checkpoint of before version 4: always the five vectors of Algorithm 1."""
    vectors = " ".join(f"{name}={dimension}" for name in ("px", "tx", "p", "t", "g"))
    seal = checkpoint_seal(run_id, k, vectors, sha256, batch)
    values = (run, k, vectors, sha256, data, batch, seal)
    db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", values)


_STEPS: Mapping[int, tuple[int, Callable[[sqlite3.Connection, Path], None]]] = {
    1: (2, _to_2),
    2: (9, _from_2),
    3: (7, _from_3),
    4: (5, _from_4),
    5: (6, _from_5),
    6: (7, _from_6),
    7: (8, _from_7),
    8: (9, _from_8),
}
"""From a version: the next one, and how."""
