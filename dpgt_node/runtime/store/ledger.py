"""The ledger: what an agent has released and what it cost, as rows in a hash chain.

``head_0`` is 32 zero bytes, ``head_i = SHA-256(head_{i-1} || row_i)`` over all rows of a state directory in the order
they were charged, whatever run they belong to; a row's text holds what its run's charges mean (data set, delta,
adjacency, data, noise).  A run's costs never fall: every row's are checked against those before it.

Changing, removing or inserting a row breaks every later head; a row cut off the end is missed by its round, and a round
cut off with it shows only against a head that was written down elsewhere.  So does a chain that was computed anew from
its first row, unless its owner signs heads (``keyed``): the chain alone finds accidents.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeVar

from dpgt_node.errors import ExitCode, StoreError
from dpgt_node.protocol.types import LedgerRow
from dpgt_node.runtime.store.schema import APPLICATION, ROUNDS_MAX, VERSION, round_key
from dpgt_node.values import dataclass

T = TypeVar("T")
Costs = dict[str, float | None]
DATABASE = "dpgt.sqlite3"
NO_HEAD = bytes(32)
SYSTEM, TEST = "system", "test"
"""Keystreams: entropy of this machine, and fixed bytes."""
DECLARED = "; declared, not enforced"
"""How the adjacency ends where nothing enforces C."""
_ROW = "k, stream, mechanism, law, scale, sensitivity, sha256, cost"
_SELECT = f"SELECT run, {_ROW}, head FROM ledger ORDER BY id"
_TERMS = "SELECT id, run_id, data_id, delta, adjacency, samples, keystream, data_seal, since, shares FROM runs"
_TERMS_BEFORE_9 = "SELECT id, run_id, data_id, delta, adjacency, samples, keystream, data_seal, since FROM runs"
_TERMS_BEFORE_5 = "SELECT id, run_id, data_id, delta, adjacency, NULL, '', '', NULL FROM runs"
_BY_KEY = (
    f"SELECT id % {ROUNDS_MAX}, x_sha256, y_sha256, {{}} FROM rounds"
    f" WHERE id BETWEEN ?1 * {ROUNDS_MAX} AND ?1 * {ROUNDS_MAX} + {ROUNDS_MAX - 1} ORDER BY id"
)
_ROUNDS = {
    2: "SELECT k, x_sha256, y_sha256, NULL FROM rounds WHERE run = ? ORDER BY k",
    **dict.fromkeys((3, 4, 5, 6), _BY_KEY.format("NULL")),
    **dict.fromkeys((7, 8, VERSION), _BY_KEY.format("uncharged")),
}
"""A run's rounds in order, by version of the database: those that can be read as they are."""


class LedgerBroken(StoreError):
    """The ledger is not what the agent wrote."""

    exit_code = ExitCode.CHECK_FAILED


@dataclass(frozen=True, slots=True)
class Terms:
    """What the charges of a run mean.

    ``data_id``: the data set whose budget they use up.  ``delta``: of zcdp and gdp.  ``adjacency``: which data sets
    are neighbours, in words.  ``samples``: D, None without a data set.  ``keystream``: "system", or "test", whose noise
    hides nothing.  ``seal``: what the data are known by (``terms.data_seal``), PRIVATE.  ``since``: rows of the ledger
    behind so many say all of this; None: the run was begun by a version that recorded less, and no row does.
    ``shares``: how the agent shares noise that cancels, ``accounts.towards.Sharing.text``; empty where it does not.
    """

    data_id: str
    delta: float
    adjacency: str
    samples: int | None = None
    keystream: str = SYSTEM
    seal: str = field(default="", repr=False)
    since: int | None = field(default=0, compare=False)
    shares: str = ""

    @property
    def declared(self) -> bool:
        """Whether C was declared by the run file: its costs hold where that is true."""
        return self.adjacency.endswith(DECLARED)

    def text(self, run_id: bytes) -> str:
        """The part of a row's text that all rows of the run share."""
        shares = f"{self.shares}\n" if self.shares else ""
        return f"{self.text_before_5(run_id)}{self.samples}\n{self.keystream}\n{self.seal}\n{shares}"

    def text_before_5(self, run_id: bytes) -> str:
        """The same of rows that versions 2 to 4 wrote."""
        return f"{run_id.hex()}\n{self.data_id}\n{self.delta!r}\n{self.adjacency}\n"


@dataclass(frozen=True, slots=True)
class Charge:
    """What a run has cost so far: cumulative by accountant, after its rows of rounds up to ``k``."""

    run_id: bytes
    terms: Terms
    mechanism: str
    law: str
    k: int
    cost: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One row, the run (16 bytes) it belongs to and the chain's head (32 bytes) after it."""

    run_id: bytes
    row: LedgerRow
    head: bytes


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows in the order they were charged; ``head`` of the whole chain (of all runs), verified; ``terms`` by run."""

    entries: tuple[LedgerEntry, ...]
    head: bytes
    terms: Mapping[bytes, Terms] = field(default_factory=dict)


def cost_text(cost: dict[str, float | None]) -> str:
    """Canonical JSON: sorted keys, no spaces, infinity as the string "inf"."""
    parts = []
    for name in sorted(cost):
        value = cost[name]
        if value is None:
            parts.append(f'"{name}":null')
        else:
            parts.append(f'"{name}":"inf"' if value == math.inf else f'"{name}":{float(value)!r}')
    return "{" + ",".join(parts) + "}"  # json.dumps takes five times as long, in the middle of every round


def next_head(head: bytes, run: str, row: LedgerRow, cost: str) -> bytes:
    """The chain's head after ``row``; ``run`` is its ``Terms.text``, ``cost`` its ``cost_text``.

    The fields are words and numbers without line breaks, one a line, floats in their shortest exact form.
    """
    return link(head, run, row.k, row.stream, row.mechanism, row.law, row.scale, row.sensitivity, row.sha256, cost)


def link(
    head: bytes,
    run: str,
    k: int,
    stream: str,
    mechanism: str,
    law: str,
    scale: float,
    sensitivity: float | None,
    sha256: bytes,
    cost: str,
) -> bytes:
    """``next_head`` of a row as it is stored."""
    text = f"{run}{k}\n{stream}\n{mechanism}\n{law}\n{scale!r}\n{sensitivity!r}\n{sha256.hex()}\n{cost}\n"
    return hashlib.sha256(head + text.encode()).digest()


def _row(fields: tuple[Any, ...]) -> LedgerRow:
    k, stream, mechanism, law, scale, sensitivity, sha256, cost = fields
    return LedgerRow(k, stream, mechanism, law, scale, sensitivity, sha256, _cost(cost))


def _cost(text: str) -> Costs:
    return {name: math.inf if value == "inf" else value for name, value in json.loads(text).items()}


def risen(before: Mapping[str, float | None], now: Mapping[str, float | None]) -> Costs:
    """``now`` as a cumulative cost after ``before`` (empty: nothing was released before): never less, by accountant.

    No value stays none: what was released without one is not undone.  An accountant that either lacks said nothing of
    some release, so it has none from then on.
    """
    if before.keys() == now.keys():  # as in every round but the first
        return {
            name: None if value is None or (held := before[name]) is None else held if held > value else value
            for name, value in now.items()
        }
    found: Costs = {}
    for name in (*now, *(name for name in before if name not in now)):
        value, held = now.get(name), before.get(name) if before else 0.0
        found[name] = None if value is None or held is None else max(value, held)
    return found


def as_read(before: Mapping[str, float | None], now: Mapping[str, float | None]) -> Costs:
    """:func:`risen` of rows as they are stored: earlier programs let an accountant of theirs that no row before has say
    what the whole run had cost.
    """
    return risen({**{name: 0.0 for name in now if name not in before}, **before}, now)


def as_charged(rows: Iterable[LedgerRow], spent: Mapping[str, float | None], *, hides: bool) -> tuple[LedgerRow, ...]:
    """The rows of a round after ``spent``: no cost falls, and noise that ``hides`` nothing costs infinity."""
    made = []
    for row in rows:
        spent = cost = risen(spent, row.cost if hides else dict.fromkeys(row.cost, math.inf))
        made.append(row if cost == row.cost else replace(row, cost=cost))
    return tuple(made)


def select_rows(connection: sqlite3.Connection, run: int, k_from: int) -> list[LedgerRow]:
    """The rows of one run (its number in the database) from round ``k_from`` on, unverified."""
    query = f"SELECT {_ROW} FROM ledger WHERE run = ? AND k >= ? ORDER BY id"
    return [_row(fields) for fields in connection.execute(query, (run, k_from))]


def select_terms(connection: sqlite3.Connection) -> dict[int, tuple[bytes, Terms]]:
    """(run id, terms) of every run, by its number in the database."""
    return _select_terms(connection, _TERMS)


def _select_terms(connection: sqlite3.Connection, query: str) -> dict[int, tuple[bytes, Terms]]:
    return {number: (run_id, Terms(*terms)) for number, run_id, *terms in connection.execute(query)}


_Round = tuple[int, bytes | None, bytes | None, int | None]  # k, hashes, the row before a round that drew nothing
_Raw = tuple[int, tuple[Any, ...], bytes, Costs]  # number of the run, fields of the row, head and costs after it


def _verified(connection: sqlite3.Connection, where: Path, runs: Mapping[int, tuple[bytes, Terms]]) -> Iterator[_Raw]:
    """Every row in the order they were charged, each verified before it is given out; at the end, that every stored
    round that drew anything has its charge.  LedgerBroken names the first bad row.

    Before version 5 a cost could fall, where a run went on with other data: such a run costs the most that it ever did.
    """
    rounds = _ROUNDS[version_of(connection, where)]
    texts = {
        number: (terms.text_before_5(run_id), terms.text(run_id), math.inf if terms.since is None else terms.since)
        for number, (run_id, terms) in runs.items()
    }
    stored_rounds = {number: connection.execute(rounds, (number,)) for number in runs}
    now: dict[int, tuple[int, str, Any, Costs]] = dict.fromkeys(runs, (-1, "", (), {}))
    head, number = NO_HEAD, 0
    for number, (run, *fields, stored) in enumerate(connection.execute(_SELECT), start=1):
        k, stream, sha256 = fields[0], fields[1], fields[6]
        last_k, last_stream, released, spent = now.get(run, (0, "", (), {}))
        before_5, text, since = texts.get(run, ("", "", 0))
        text, full = (text, True) if number > since else (before_5, False)
        try:
            whole = run in runs and (k, stream) > (last_k, last_stream) and link(head, text, *fields) == stored
            cost = _cost(fields[7]) if whole else {}
        except (ValueError, AttributeError, TypeError):
            raise LedgerBroken(f"{where}: ledger row {number} cannot be read") from None
        if not whole:
            raise LedgerBroken(f"{where}: ledger row {number} (round {k}, {stream}) or one before it was changed")
        if k != last_k:
            released = _next_charged(stored_rounds[run], number - 1, where)
            if released is not None and released[0] < k:
                raise LedgerBroken(f"{where}: a released round has no ledger row (round {released[0]})")
        if released is None or released[0] != k or _carrier(stream, *released[1:3]) != sha256:
            raise LedgerBroken(f"{where}: a ledger row is not of the stored release (round {k}, {stream})")
        most = as_read(spent, cost)
        if full and any(most[name] != value for name, value in cost.items()):
            raise LedgerBroken(f"{where}: ledger row {number} (round {k}, {stream}): its cost is below the one before")
        head, now[run] = stored, (k, stream, released, most)
        yield run, tuple(fields), stored, most
    for rest in stored_rounds.values():
        released = _next_charged(rest, number, where)
        if released is not None:
            raise LedgerBroken(f"{where}: a released round has no ledger row (round {released[0]})")


def _next_charged(rounds: Iterator[_Round], rows: int, where: Path) -> _Round | None:
    """The next round that must have a row; those before it drew nothing, behind at most ``rows`` rows."""
    for found in rounds:
        if found[3] is None:
            return found
        if found[3] > rows:
            raise LedgerBroken(f"{where}: ledger row {found[3]} is missing: round {found[0]} came after it")
    return None


def _carrier(stream: str, x_sha256: bytes | None, y_sha256: bytes | None) -> bytes | None:
    """The hash of what carries a noise of ``stream``: the vector of that stream, or the other where it is not sent."""
    own, other = (x_sha256, y_sha256) if stream == "X" else (y_sha256, x_sha256)
    return other if own is None else own


def walk(connection: sqlite3.Connection, where: Path) -> Iterator[tuple[LedgerEntry, Terms]]:
    """Every row with what its run's charges mean; verified and refused as by ``_verified``."""
    runs = _runs(connection, where)
    for run, fields, head, _ in _verified(connection, where, runs):
        yield LedgerEntry(runs[run][0], _row(fields), head), runs[run][1]


def _runs(connection: sqlite3.Connection, where: Path) -> dict[int, tuple[bytes, Terms]]:
    version = version_of(connection, where)
    query = _TERMS if version == VERSION else _TERMS_BEFORE_9 if version >= 5 else _TERMS_BEFORE_5
    return _select_terms(connection, query)


def version_of(connection: sqlite3.Connection, where: Path) -> int:
    """The database's version, if its ledger can be read as it is.  StoreError names both versions."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise StoreError(f"{where}: a database of another program, or not yet an agent's")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version not in _ROUNDS:
        older = "start its agent once, which brings it up to date" if version < VERSION else "use a newer dpgt"
        raise StoreError(f"{where}: version {version}; this version of dpgt knows {VERSION}: {older}")
    return version


def select_ledger(connection: sqlite3.Connection, run_id: bytes | None, where: Path) -> Ledger:
    """Read and verify the whole chain; the entries of one run, or of all.  LedgerBroken names the first bad row."""
    entries, terms, head = [], {}, NO_HEAD
    for entry, its_terms in walk(connection, where):
        head = entry.head
        if run_id is None or entry.run_id == run_id:
            entries.append(entry)
            terms[entry.run_id] = its_terms
    return Ledger(tuple(entries), head, terms)


def select_charges(connection: sqlite3.Connection, where: Path) -> tuple[tuple[Charge, ...], bytes]:
    """What every run that released anything has cost, in the order of their first releases, and the chain's head;
    verified as by ``_verified``.
    """
    runs = _runs(connection, where)
    last: dict[int, _Raw] = {}
    head = NO_HEAD
    for raw in _verified(connection, where, runs):
        last[raw[0]] = raw
        head = raw[2]
    charges = []
    for run, fields, _, cost in last.values():
        row = _row(fields)
        charges.append(Charge(*runs[run], row.mechanism, row.law, row.k, cost))
    return tuple(charges), head


def head_after(connection: sqlite3.Connection, run: int, k: int) -> bytes | None:
    """The chain's head after round ``k`` of a run (its number in the database); None: no such round.

    A round that drew nothing left the head where it was.
    """
    query = (
        "SELECT ledger.head FROM ledger LEFT JOIN rounds ON rounds.id = ?3"
        " WHERE (ledger.run = ?1 AND ledger.k = ?2) OR ledger.id = rounds.uncharged ORDER BY ledger.id DESC LIMIT 1"
    )
    found = connection.execute(query, (run, k, round_key(run, k))).fetchone()
    return None if found is None else bytes(found[0])


def last_charges(rows: Iterable[tuple[LedgerEntry, Terms]]) -> tuple[Charge, ...]:
    """What each run has cost after its last row, in the order of their first ones."""
    last: dict[bytes, Charge] = {}
    for entry, terms in rows:
        row, before = entry.row, last.get(entry.run_id)
        cost = row.cost if before is None else as_read(before.cost, row.cost)
        last[entry.run_id] = Charge(entry.run_id, terms, row.mechanism, row.law, row.k, cost)
    return tuple(last.values())


def read_ledger(state_dir: Path, run_id: bytes | None = None) -> Ledger:
    """The ledger of a state directory, also while an agent writes to it.  StoreError if there is none or it is bad."""
    return look_on(state_dir, lambda db: select_ledger(db, run_id, state_dir / DATABASE))


def look_on(state_dir: Path, job: Callable[[sqlite3.Connection], T]) -> T:
    """What ``job`` reads in one snapshot of the database, also while an agent writes to it.  StoreError."""
    path = state_dir / DATABASE
    if not path.is_file():
        raise StoreError(f"{state_dir}: no ledger here ({DATABASE} is missing)")
    log = path.with_name(f"{DATABASE}-wal")
    try:
        # A plain reader would leave a log behind, which is the reader's own and in the agent's way.
        if not log.exists():
            with contextlib.suppress(StoreError, sqlite3.Error):  # an agent that starts meanwhile disturbs it
                found = _read(path, "immutable=1", job)
                if not log.exists():
                    return found
        return _read(path, "mode=ro", job)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: cannot read the ledger: {error}") from error


def _read(path: Path, how: str, job: Callable[[sqlite3.Connection], T]) -> T:
    address = f"{path.absolute().as_uri()}?{how}"
    with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")  # one snapshot, whatever the agent commits meanwhile
        return job(connection)
