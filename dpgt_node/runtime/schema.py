"""Tables of an agent's database, and the statements that fill them."""

from __future__ import annotations

VERSION = 2
FILE_COLUMNS = (("x_file", "rounds"), ("y_file", "rounds"), ("g_file", "rounds"), ("file", "checkpoints"))
APPLICATION = 0x64706774  # "dpgt", marks the database file as ours
SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run_id BLOB NOT NULL UNIQUE,
    run_sha256 TEXT NOT NULL,
    name TEXT NOT NULL,
    data_id TEXT NOT NULL,
    delta REAL NOT NULL,
    adjacency TEXT NOT NULL,
    x_final_sha256 BLOB          -- of the float64 little-endian bytes; NULL: not finished
) STRICT;
-- One row a round.  data NULL and file NULL: pruned.  Batches are little-endian int64.
CREATE TABLE rounds (
    run INTEGER NOT NULL,
    k INTEGER NOT NULL,
    dtype TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    x_sha256 BLOB NOT NULL,
    x_data BLOB,
    x_file TEXT,
    y_sha256 BLOB NOT NULL,
    y_data BLOB,
    y_file TEXT,
    batch BLOB,
    g_sha256 BLOB,               -- of g~_k under noise-once, little-endian float64; NULL: another mechanism
    g_data BLOB,
    g_file TEXT,
    PRIMARY KEY (run, k)
) STRICT;
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
    head BLOB NOT NULL,
    UNIQUE (run, k, stream)
) STRICT;
-- The last one of each run.  data or file: px, tx, p, t, g, little-endian float64, one after another.
CREATE TABLE checkpoints (
    run INTEGER PRIMARY KEY,
    k INTEGER NOT NULL,
    dimension INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    data BLOB,
    file TEXT,
    batch BLOB NOT NULL
) STRICT;
"""
INSERT_RUN = (
    "INSERT INTO runs (run_id, run_sha256, name, data_id, delta, adjacency) VALUES (?, ?, ?, ?, ?, ?) RETURNING id"
)
INSERT_ROUND = "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_LEDGER = (
    "INSERT INTO ledger (run, k, stream, mechanism, law, scale, sensitivity, sha256, cost, head)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SELECT_ROUND = "SELECT dtype, dimension, x_sha256, x_data, x_file, y_sha256, y_data, y_file FROM rounds"
