"""Tables of an agent's database, and the statements that fill them."""

from __future__ import annotations

from dpgt_node.errors import invariant

VERSION = 9
APPLICATION = 0x64706774  # "dpgt", marks the database file as ours
ROUNDS_MAX = 1 << 32
"""Rounds of a run are numbered below this."""

RUNS = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run_id BLOB NOT NULL UNIQUE,
    run_sha256 TEXT NOT NULL,
    name TEXT NOT NULL,
    data_id TEXT NOT NULL,
    delta REAL NOT NULL,
    adjacency TEXT NOT NULL,
    samples INTEGER,             -- D; NULL: the objective has no data set, or not recorded
    keystream TEXT NOT NULL,     -- system, or test; empty: not recorded
    salt BLOB NOT NULL,          -- of the seal; never leaves this host
    data_seal TEXT NOT NULL,     -- SHA-256 of salt and data; empty: no data set, or not recorded
    since INTEGER,               -- rows of the ledger behind so many have all of this in their text; NULL: none has
    shares TEXT NOT NULL,        -- noise that cancels: "r partners others"; empty: none, or not recorded
    x_final_sha256 BLOB          -- of the float64 little-endian bytes; NULL: not finished
) STRICT;
"""
ROUNDS = """
-- One row a released round, for ever.  id: run * 2^32 + k; a second release of a round has no place here.
-- NULL: the run's method sends nothing on that stream.
CREATE TABLE rounds (
    id INTEGER PRIMARY KEY,
    x_sha256 BLOB,
    y_sha256 BLOB,
    uncharged INTEGER            -- a round that drew nothing: the last row of the ledger before it; NULL: it has rows
) STRICT;
"""
PAYLOADS = """
-- What a resend or a replay needs of a round, until it is pruned.  data NULL: a file (its name follows from run and k).
-- dtype: of x and y; an integer one is followed by step, offset, lowest and highest code.
-- Batches are little-endian int64.  g: g~_k, little-endian float64, where what was sent does not tell it; else
-- g_sha256 is NULL.
CREATE TABLE payloads (
    id INTEGER PRIMARY KEY,
    dtype TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    x_data BLOB,
    y_data BLOB,
    batch BLOB NOT NULL,
    g_sha256 BLOB,
    g_data BLOB,
    seal BLOB NOT NULL           -- of everything above but data, and the two hashes of ``rounds``
) STRICT;
"""
LEDGER = """
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    k INTEGER NOT NULL,
    stream TEXT NOT NULL,
    mechanism TEXT NOT NULL,
    law TEXT NOT NULL,
    scale REAL NOT NULL,
    sensitivity REAL,
    sha256 BLOB NOT NULL,
    cost TEXT NOT NULL,
    head BLOB NOT NULL
) STRICT;
"""
CHECKPOINTS = """
-- The last one of each run.  vectors: "NAME=SIZE NAME=SIZE ..."; data, or a file: their values in that order,
-- little-endian float64, one after another.
CREATE TABLE checkpoints (
    run INTEGER PRIMARY KEY,
    k INTEGER NOT NULL,
    vectors TEXT NOT NULL,
    sha256 BLOB NOT NULL,
    data BLOB,
    batch BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;
"""
SIGNATURE = """
-- Of the ledger's newest head, with the owner's key; no row: without one.
CREATE TABLE signature (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    key BLOB NOT NULL,           -- which key, not what it is
    hmac BLOB NOT NULL
) STRICT;
"""
PAIRS = """
-- Where noise is shared: what was said of keys, who said it, and what came of it.  private NULL: erased, the keys are
-- kept.  offer and proofs are protobuf, as they were sent.
CREATE TABLE agreements (
    run INTEGER PRIMARY KEY,
    private BLOB,                -- X25519, 32 bytes
    offer BLOB NOT NULL,
    proofs BLOB                  -- NULL: there was no ring yet
) STRICT;
-- The first key of every agent in a run, for ever.
CREATE TABLE pinned_keys (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    key BLOB NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;
-- K_ij,k of the next round k that may be drawn, and of no round before it.  partner: 0-based.
CREATE TABLE pair_keys (
    run INTEGER NOT NULL,
    partner INTEGER NOT NULL,
    k INTEGER NOT NULL,
    key BLOB NOT NULL,
    PRIMARY KEY (run, partner)
) STRICT, WITHOUT ROWID;
"""
SCHEMA = RUNS + ROUNDS + PAYLOADS + LEDGER + CHECKPOINTS + SIGNATURE + PAIRS
INSERT_RUN = (
    "INSERT INTO runs (run_id, run_sha256, name, data_id, delta, adjacency, samples, keystream, salt, data_seal, since,"
    " shares) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
)
UPDATE_TERMS = (
    "UPDATE runs SET delta = ?, adjacency = ?, samples = ?, keystream = ?, salt = ?, data_seal = ?, since = ?,"
    " shares = ? WHERE id = ?"
)
INSERT_ROUND = "INSERT INTO rounds VALUES (?, ?, ?, CASE WHEN ? THEN (SELECT max(id) FROM ledger) END)"
INSERT_PAYLOADS = "INSERT INTO payloads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_LEDGER = (
    "INSERT INTO ledger (run, k, stream, mechanism, law, scale, sensitivity, sha256, cost, head)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
REPLACE_CHECKPOINT = "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)"
SELECT_PAYLOADS = (
    "SELECT id, dtype, dimension, x_sha256, x_data, y_sha256, y_data, batch, g_sha256, g_data, seal"
    " FROM payloads LEFT JOIN rounds USING (id) WHERE id BETWEEN ? AND ? ORDER BY id"
)
SELECT_X = (
    "SELECT id, dtype, dimension, x_sha256, x_data FROM payloads JOIN rounds USING (id)"
    " WHERE id BETWEEN ? AND ? ORDER BY id"
)


def round_key(run: int, k: int) -> int:
    """``rounds.id`` and ``payloads.id`` of round ``k`` of run number ``run``."""
    invariant(0 <= k < ROUNDS_MAX, "a round has 32 bits")
    return run * ROUNDS_MAX + k
