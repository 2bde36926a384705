"""A chain that was computed anew is whole in itself: the owner's key finds it, and so does a head kept elsewhere."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from dpgt_node.errors import ConfigError, DpgtError
from dpgt_node.runtime.store import keyed
from dpgt_node.runtime.store.keyed import OwnerKey, read_signed
from dpgt_node.runtime.store.ledger import DATABASE, LedgerBroken, link, read_ledger, select_terms
from dpgt_node.runtime.store.store import Store
from tests.runtime.store.records import RUN, SHA, TERMS, record


def cheaper(state_dir: Path) -> None:
    """What a forger does: every cost becomes 1e-9, and every head follows from that."""
    with contextlib.closing(sqlite3.connect(state_dir / DATABASE)) as db, db:
        runs, head = select_terms(db), bytes(32)
        for number, run, *fields, cost, _ in db.execute("SELECT * FROM ledger ORDER BY id").fetchall():
            run_id, terms = runs[run]
            cost = json.dumps(dict.fromkeys(json.loads(cost), 1e-9), separators=(",", ":"), sort_keys=True)
            head = link(head, terms.text(run_id), *fields, cost)
            db.execute("UPDATE ledger SET cost = ?, head = ? WHERE id = ?", (cost, head, number))


def key_at(path: Path, secret: str = "k" * 64) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{secret}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def key(tmp_path: Path) -> OwnerKey:
    return OwnerKey.read(key_at(tmp_path / "owner" / "ledger.key"), tmp_path / "state")


@pytest.fixture
def state(tmp_path: Path, key: OwnerKey) -> Path:
    """Three signed rounds, the last one after a restart."""
    folder = tmp_path / "state"
    for rounds in ((0, 1), (2,)):
        with contextlib.closing(Store(folder, "process", key)) as store:
            store.begin_run(RUN, SHA, "agent-1", TERMS)
            for k in rounds:
                store.commit_round(RUN, record(k))
    return folder


def found_by(state_dir: Path, key: OwnerKey) -> str:
    """What is said of the directory by its reader and, the same, by the agent that wants to go on."""
    with pytest.raises(LedgerBroken) as reader:
        read_signed(state_dir, key)
    with pytest.raises(LedgerBroken) as agent:
        Store(state_dir, "process", key)
    assert str(reader.value) == str(agent.value)
    return str(reader.value)


def test_the_key_finds_a_chain_that_was_computed_anew(state: Path, key: OwnerKey) -> None:
    assert read_signed(state, key).head == read_ledger(state).head
    cheaper(state)
    assert {v for e in read_ledger(state).entries for v in e.row.cost.values()} == {1e-9}, "whole in itself"
    assert "rows were forged" in found_by(state, key)


def test_a_row_that_was_written_without_the_key_is_found(
    state: Path, key: OwnerKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "check", lambda *_: None)
    with contextlib.closing(Store(state, "process")) as store:
        store.begin_run(RUN, SHA, "agent-1", TERMS)
        store.commit_round(RUN, record(3))
    monkeypatch.undo()
    assert "rows were forged" in found_by(state, key)


def test_without_the_signature_nothing_is_believed(state: Path, key: OwnerKey) -> None:
    with contextlib.closing(sqlite3.connect(state / DATABASE)) as db, db:
        db.execute("DELETE FROM signature")
    assert "nobody signed this ledger" in found_by(state, key)


def test_another_key_is_named(state: Path, tmp_path: Path, key: OwnerKey) -> None:
    other = OwnerKey.read(key_at(tmp_path / "other.key", "j" * 64), state)
    assert "signed with another key" in found_by(state, other)
    cheaper(state)
    with contextlib.closing(sqlite3.connect(state / DATABASE)) as db, db:
        other.sign(db, read_ledger(state).head)  # a forger's own
    assert "signed with another key" in found_by(state, key)
    with contextlib.closing(sqlite3.connect(state / DATABASE)) as db, db:
        db.execute("UPDATE signature SET key = ?", (key.known_by,))
    assert "rows were forged" in found_by(state, key)


def test_an_agent_that_lost_the_key_does_not_go_on_without(state: Path) -> None:
    with pytest.raises(ConfigError, match="ledger_key"):
        Store(state, "process")


def test_a_round_that_fails_leaves_the_signature_as_it_was(state: Path, key: OwnerKey) -> None:
    with contextlib.closing(Store(state, "process", key)) as store:
        store.begin_run(RUN, SHA, "agent-1", TERMS)
        with pytest.raises(RuntimeError, match="durable already"):
            store.commit_round(RUN, record(2, draw=1))
        store.commit_round(RUN, record(3))
        assert store.charges()[0].k == 3, "the signature is looked at again after a commit"
    assert len(read_signed(state, key).entries) == 8


def test_a_ledger_that_began_without_a_key_is_signed_once(tmp_path: Path, key: OwnerKey) -> None:
    with contextlib.closing(Store(tmp_path / "state", "process")) as store:
        store.begin_run(RUN, SHA, "agent-1", TERMS)
        store.commit_round(RUN, record(0))
    assert "nobody signed this ledger" in found_by(tmp_path / "state", key)
    Store(tmp_path / "state", "process", key, sign=True).close()
    assert len(read_signed(tmp_path / "state", key).entries) == 2


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda path: path.unlink(), "cannot be read: No such file"),
        (lambda path: path.write_text("short\n"), "has 5 bytes, 32 at least"),
        (lambda path: path.chmod(0o644), "can be read or written by others"),
    ],
    ids=["missing", "short", "open to all"],
)
def test_a_key_that_cannot_be_one_is_named(tmp_path: Path, prepare: object, words: str) -> None:
    path = key_at(tmp_path / "ledger.key")
    prepare(path)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=words) as caught:
        OwnerKey.read(path, tmp_path / "state")
    assert str(caught.value).startswith(f"{path}: ")


def test_a_key_in_the_state_directory_protects_nothing(tmp_path: Path) -> None:
    """Not through a link either."""
    real = key_at(tmp_path / "state" / "ledger.key")
    (tmp_path / "ledger.key").symlink_to(real)
    for path in (real, tmp_path / "ledger.key"):
        with pytest.raises(ConfigError, match="lies in"):
            OwnerKey.read(path, tmp_path / "state")


def test_the_database_does_not_tell_the_key(state: Path) -> None:
    held = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert b"k" * 32 not in held


@pytest.mark.parametrize("mutant", ["signs once", "compares nothing", "asks for no signature"])
def test_what_a_weaker_rule_would_let_through(
    state: Path, key: OwnerKey, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    """Each rule is needed: without it, a test above would fail."""
    if mutant == "signs once":
        monkeypatch.setattr(OwnerKey, "sign", lambda *_: None)
        with contextlib.closing(Store(state, "process", key)) as store:
            store.begin_run(RUN, SHA, "agent-1", TERMS)
            store.commit_round(RUN, record(3))
        with pytest.raises(DpgtError):
            read_signed(state, key)
        return
    if mutant == "compares nothing":
        cheaper(state)
        monkeypatch.setattr(OwnerKey, "signed", lambda *_: True)
    else:
        with contextlib.closing(sqlite3.connect(state / DATABASE)) as db, db:
            db.execute("DELETE FROM signature")
        cheaper(state)
        monkeypatch.setattr(keyed, "check", lambda *_: None)
    assert read_signed(state, key).entries[0].row.cost["lemma5"] == 1e-9, "the forged chain passes"
