"""The ledger: what an agent has released and what it cost, as rows in a hash chain.

``head_0`` is 32 zero bytes, ``head_i = SHA-256(head_{i-1} || row_i)`` over all rows of a state directory in the order
they were charged, whatever run they belong to.  Changing, removing or inserting a row breaks every later head; cutting
off the end shows only against a head that was written down elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpgt_node.errors import StoreError
from dpgt_node.protocol.types import LedgerRow

DATABASE = "dpgt.sqlite3"
NO_HEAD = bytes(32)
_ROW = "k, stream, mechanism, law, scale, sensitivity, sha256, cost"
_SELECT = f"SELECT {_ROW}, head, runs.run_id FROM ledger JOIN runs ON runs.id = ledger.run ORDER BY ledger.id"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One row, the run (16 bytes) it belongs to and the chain's head (32 bytes) after it."""

    run_id: bytes
    row: LedgerRow
    head: bytes


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows in the order they were charged; ``head`` of the whole chain (of all runs), verified."""

    entries: tuple[LedgerEntry, ...]
    head: bytes


def cost_text(cost: dict[str, float | None]) -> str:
    """Canonical JSON: sorted keys, no spaces, infinity as the string "inf"."""
    parts = []
    for name in sorted(cost):
        value = cost[name]
        parts.append(f'"{name}":' + ("null" if value is None else '"inf"' if value == math.inf else repr(float(value))))
    return "{" + ",".join(parts) + "}"  # json.dumps takes five times as long, in the middle of every round


def next_head(head: bytes, run_id: bytes, row: LedgerRow, cost: str) -> bytes:
    """The chain's head after ``row``; ``cost`` is its ``cost_text``.

    The fields are words and numbers without line breaks, one a line, floats in their shortest exact form.
    """
    text = (
        f"{run_id.hex()}\n{row.k}\n{row.stream}\n{row.mechanism}\n{row.law}\n{row.scale!r}\n{row.sensitivity!r}\n"
        f"{row.sha256.hex()}\n{cost}\n"
    )
    return hashlib.sha256(head + text.encode()).digest()


def _row(fields: tuple[Any, ...]) -> LedgerRow:
    k, stream, mechanism, law, scale, sensitivity, sha256, cost = fields
    values = {name: math.inf if value == "inf" else value for name, value in json.loads(cost).items()}
    return LedgerRow(k, stream, mechanism, law, scale, sensitivity, sha256, values)


def select_rows(connection: sqlite3.Connection, run: int, k_from: int) -> list[LedgerRow]:
    """The rows of one run (its number in the database) from round ``k_from`` on, unverified."""
    query = f"SELECT {_ROW} FROM ledger WHERE run = ? AND k >= ? ORDER BY id"
    return [_row(fields) for fields in connection.execute(query, (run, k_from))]


def select_ledger(connection: sqlite3.Connection, run_id: bytes | None, where: Path) -> Ledger:
    """Read and verify the whole chain; the entries of one run, or of all.  StoreError names the first bad row."""
    entries = []
    head = NO_HEAD
    for number, (*fields, stored, run) in enumerate(connection.execute(_SELECT), start=1):
        try:
            row = _row(tuple(fields))
        except (ValueError, AttributeError):
            raise StoreError(f"{where}: ledger row {number} cannot be read") from None
        head = next_head(head, run, row, fields[-1])
        if head != stored:
            raise StoreError(f"{where}: ledger row {number} (round {row.k}, {row.stream}) or one before it was changed")
        if run_id is None or run == run_id:
            entries.append(LedgerEntry(run, row, head))
    return Ledger(tuple(entries), head)


def read_ledger(state_dir: Path, run_id: bytes | None = None) -> Ledger:
    """The ledger of a state directory, also while an agent writes to it.  StoreError if there is none or it is bad."""
    path = state_dir / DATABASE
    if not path.is_file():
        raise StoreError(f"{state_dir}: no ledger here ({DATABASE} is missing)")
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return select_ledger(connection, run_id, path)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: cannot read the ledger: {error}") from error
