"""Keys of pairs in a state directory: kept once, gone once they were used, and the first of a name for ever."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.errors import Broken, NoAgreement
from dpgt_node.privacy.laws.pairs import ratchet
from dpgt_node.protocol.messages import KeyOffer
from dpgt_node.runtime.store.ledger import DATABASE
from dpgt_node.runtime.store.store import Store
from dpgt_node.runtime.trust.pair_table import Begun, PairTable
from tests.runtime.store.records import RUN, SHA, TERMS, record

PRIVATE = b"<this is the private key of x25>"
KEYS = {1: b"<this is what agents 1 and 2 had>", 2: b"<this is what agents 1 and 3 had"}
KEYS = {partner: key[:32] for partner, key in KEYS.items()}
OFFER = KeyOffer("agent-1", b"\1" * 32, b"certificate", b"signature")
RING = (OFFER, *(replace(OFFER, name=f"agent-{i}", key=bytes([i]) * 32) for i in (2, 3)))
PROOFS = {"agent-2": b"p" * 32, "agent-3": b"q" * 32}


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[tuple[Store, PairTable, Begun | None]]:
    with contextlib.closing(Store(folder, "power")) as store:
        store.begin_run(RUN, SHA, "agent-1", TERMS)
        yield store, store.pairs, store.pairs.open(RUN)


def kept(folder: Path) -> None:
    with opened(folder) as (_, pairs, begun):
        assert begun is None
        pairs.begin(PRIVATE, OFFER)
        pairs.pin(RING, PROOFS)
        pairs.keep(KEYS)


def holds(folder: Path, secret: bytes) -> bool:
    """Whether it is anywhere in the directory, the log of the database included."""
    return any(secret in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_what_was_begun_outlives_the_process(tmp_path: Path) -> None:
    with opened(tmp_path) as (_, pairs, begun):
        assert begun is None
        pairs.begin(PRIVATE, OFFER)
        with pytest.raises(sqlite3.IntegrityError):
            pairs.begin(b"x" * 32, OFFER)
    with opened(tmp_path) as (_, pairs, begun):
        assert begun == Begun(OFFER, {}, PRIVATE) and "private" not in repr(begun)
        with pytest.raises(Broken, match="no keys were agreed on"):
            pairs.key(1, 0)
        pairs.pin(RING, PROOFS)
    with opened(tmp_path) as (_, pairs, begun):
        assert begun == Begun(OFFER, PROOFS, PRIVATE)
        pairs.keep(KEYS)
        assert pairs.key(2, 0) == KEYS[2]
    with opened(tmp_path) as (_, pairs, begun):
        assert begun == Begun(OFFER, PROOFS, None)
        assert {partner: pairs.key(partner, 0) for partner in KEYS} == KEYS


def test_the_private_key_is_gone_once_the_keys_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as (_, pairs, _):
        pairs.begin(PRIVATE, OFFER)
        assert holds(tmp_path, PRIVATE)
        pairs.pin(RING, PROOFS)
        pairs.keep(KEYS)
        assert not holds(tmp_path, PRIVATE), "while the store is open"
    assert not holds(tmp_path, PRIVATE)


def test_the_key_of_a_durable_round_is_gone_and_the_next_one_is_there(tmp_path: Path) -> None:
    kept(tmp_path)
    with opened(tmp_path) as (store, pairs, _):
        assert holds(tmp_path, KEYS[1])
        store.commit_round(RUN, record(0))
        store.commit_round(RUN, record(1))
        with pytest.raises(Broken, match="keys of round 1 were erased"):
            pairs.key(1, 1)
    assert not holds(tmp_path, KEYS[1]) and not holds(tmp_path, ratchet(KEYS[1]))
    with opened(tmp_path) as (_, pairs, _):
        assert pairs.key(1, 2) == ratchet(ratchet(KEYS[1]))
        with pytest.raises(Broken, match="keys of round 1 were erased"):
            pairs.key(1, 1)


def test_a_round_that_did_not_become_durable_keeps_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path)
    with opened(tmp_path) as (store, pairs, _):
        monkeypatch.setattr(Store, "_write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(Exception, match="No space left"):
            store.commit_round(RUN, record(0))
        assert pairs.key(1, 0) == KEYS[1]
    with opened(tmp_path) as (_, pairs, _):
        assert pairs.key(1, 0) == KEYS[1]


def test_another_key_of_a_name_is_refused_for_ever(tmp_path: Path) -> None:
    other = (*RING[:2], replace(RING[2], key=b"x" * 32))
    with opened(tmp_path) as (_, pairs, _):
        pairs.begin(PRIVATE, OFFER)
        pairs.pin(RING, PROOFS)
        pairs.pin(RING, PROOFS)
    for _ in range(2):
        with opened(tmp_path) as (_, pairs, begun):
            with pytest.raises(NoAgreement, match="agent-3 offers another key than it did before") as caught:
                pairs.pin(other, {"agent-2": b"z" * 32})
            assert caught.value.peer == "agent-3"
            assert begun is not None and begun.proofs == PROOFS, "nothing of it is kept"


def test_runs_have_keys_of_their_own(tmp_path: Path) -> None:
    kept(tmp_path)
    second = b"2" * 16
    with contextlib.closing(Store(tmp_path, "power")) as store:
        store.begin_run(second, SHA, "agent-1", TERMS)
        assert store.pairs.open(second) is None
        store.commit_round(second, record(0))
        assert store.pairs.open(RUN) is not None and store.pairs.key(1, 0) == KEYS[1]


@pytest.mark.parametrize("mutant", ["keeps the private key", "does not advance", "believes a second key"])
def test_a_mutant_does_not_survive(mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant == "keeps the private key":

        def keep(self: PairTable, keys: dict[int, bytes]) -> None:
            with self._transaction() as db:
                rows = [(self._run, partner, 0, key) for partner, key in keys.items()]
                db.executemany("INSERT INTO pair_keys VALUES (?, ?, ?, ?)", rows)

        monkeypatch.setattr(PairTable, "keep", keep)
        test = test_the_private_key_is_gone_once_the_keys_are_kept
    elif mutant == "does not advance":
        monkeypatch.setattr(PairTable, "advance", lambda *_: None)
        test = test_the_key_of_a_durable_round_is_gone_and_the_next_one_is_there
    else:
        monkeypatch.setattr(PairTable, "pin", lambda *_: None)
        test = test_another_key_of_a_name_is_refused_for_ever
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(tmp_path)
    assert (tmp_path / DATABASE).exists()
