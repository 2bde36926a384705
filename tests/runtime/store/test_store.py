"""What was committed comes back, once, whole and unchanged; what cannot be written says where."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.errors import StoreError
from dpgt_node.protocol.types import RoundRecord, State
from dpgt_node.runtime.store.ledger import DATABASE, LedgerBroken
from dpgt_node.runtime.store.limits import FILE_BYTES
from dpgt_node.runtime.store.released import read_released
from dpgt_node.runtime.store.rounds import rows
from dpgt_node.runtime.store.schema import ROUNDS_MAX, VERSION
from dpgt_node.runtime.store.store import X_FINAL, RunInfo, Store
from dpgt_node.types import Codes, Stream
from tests.runtime.store.records import (
    RUN,
    SHA,
    TERMS,
    coded,
    opened,
    payload,
    record,
    row,
    same_record,
    same_state,
    state,
    vector,
)

SMALL, LARGE = 10, FILE_BYTES // 8 + 1
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(opened(tmp_path)) as store:
        yield store


def blob_names(state_dir: Path) -> list[str]:
    return sorted(path.name for path in (state_dir / "blobs").iterdir())


# --- there and back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("d", [1, SMALL, LARGE])
def test_rounds_come_back_after_the_last_checkpoint(tmp_path: Path, d: int, durability: str) -> None:
    store = Store(tmp_path, durability)  # type: ignore[arg-type]
    store.begin_run(RUN, SHA, "agent-1", TERMS)
    assert store.recover(RUN) is None
    records = [record(k, d, checkpoint=k in (0, 3)) for k in range(6)]
    for each in records:
        store.commit_round(RUN, each)
    store.close()
    store = Store(tmp_path, durability)  # type: ignore[arg-type]
    recovered = store.recover(RUN)
    assert recovered is not None
    assert same_state(recovered.checkpoint, state(3, d))
    assert [r.k for r in recovered.records] == [3, 4, 5]
    assert all(same_record(got, want) for got, want in zip(recovered.records, records[3:], strict=True))
    assert all(r.checkpoint is None for r in recovered.records)
    for want in records:
        assert store.payloads(RUN, want.k) == want.payloads
    store.close()


def test_rounds_without_their_checkpoint_are_no_fresh_start(store: Store, tmp_path: Path) -> None:
    """Going on from nothing would draw those rounds a second time."""
    store.commit_round(RUN, record(0))
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute("DELETE FROM checkpoints")
    with pytest.raises(StoreError, match=f"the checkpoint of run {RUN.hex()} is missing"):
        store.recover(RUN)


def test_large_vectors_are_files_and_old_checkpoints_go(store: Store, tmp_path: Path) -> None:
    for k in range(2):
        store.commit_round(RUN, record(k, LARGE))
    run = RUN.hex()
    names = [f"{run}-{k:010d}-{what}" for k in range(2) for what in ("X", "Y", "state")]
    names.remove(f"{run}-0000000000-state")
    assert blob_names(tmp_path) == sorted([*names, f".{run}-0000000000-state.spare"])
    assert (tmp_path / DATABASE).stat().st_size < FILE_BYTES
    assert (tmp_path / "blobs" / names[0]).read_bytes() == payload("X", 0, LARGE).data


def test_a_vector_at_the_limit_is_in_the_database(store: Store, tmp_path: Path) -> None:
    store.commit_round(RUN, record(0, FILE_BYTES // 8))
    assert blob_names(tmp_path) == [f"{RUN.hex()}-0000000000-state"]
    assert store.payloads(RUN, 0)[0] == payload("X", 0, FILE_BYTES // 8)


def test_float32_and_an_empty_batch(store: Store) -> None:
    """Toy objectives draw no batch."""
    x, y = (dataclasses.replace(payload(stream, 0, 4), dtype="float32", dimension=8) for stream in ("X", "Y"))
    sent = dataclasses.replace(record(0, 4), payloads=(x, y), batch=np.empty(0, dtype=np.int64))
    store.commit_round(RUN, sent)
    recovered = store.recover(RUN)
    assert recovered is not None and same_record(recovered.records[0], sent)


@pytest.mark.parametrize("d", [SMALL, FILE_BYTES + 1])
@pytest.mark.parametrize(
    "codes", [Codes(0.1, -1.0, 0, 100), Codes(2.0**-7, 0.0, -5, 7000), Codes(1.0, 0.0, 0, 2**31 - 1)]
)
def test_codes_come_back_with_what_they_stand_for(tmp_path: Path, codes: Codes, d: int) -> None:
    """A row can be read by itself: a release keeps its numbers whatever run file is at hand."""
    x = coded(0, d, codes)
    sent = dataclasses.replace(record(0, d), payloads=(x,), rows=(row(0, "X", x.sha256),))
    with contextlib.closing(opened(tmp_path)) as store:
        store.commit_round(RUN, sent)
    with contextlib.closing(Store(tmp_path, "process")) as store:
        recovered = store.recover(RUN)
    assert recovered is not None and same_record(recovered.records[0], sent)
    assert recovered.records[0].on("X").array().tobytes() == sent.on("X").array().tobytes()
    kept = read_released(tmp_path, 0)
    assert kept.last.tobytes() == sent.on("X").array().tobytes()
    said = {sqlite3.connect(tmp_path / DATABASE).execute("SELECT dtype FROM payloads").fetchone()[0]}
    assert said == {f"{codes.dtype} {codes.step.hex()} {codes.offset.hex()} {codes.low} {codes.high}"}
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute("UPDATE payloads SET dtype = replace(dtype, ?, '0x1.0p+5')", (codes.step.hex(),))
    with contextlib.closing(Store(tmp_path, "process")) as store, pytest.raises(StoreError, match="is torn"):
        store.recover(RUN)


@pytest.mark.parametrize(
    "text",
    [
        "float16",
        "int8",
        "float64 0x1p+0 0x0p+0 0 1",
        "int16 0x1p+0 0x0p+0 0 1",
        "int8 0x1p+0 0 1",
        "int8 0x1p+0 0x0p+0 0 1 2",
    ],
)
def test_a_format_that_was_never_written(text: str) -> None:
    with pytest.raises(ValueError, match="is no format of vectors"):
        rows.format_of(text)


def test_memoryviews_are_stored(store: Store) -> None:
    sent = record(0, SMALL)
    x = dataclasses.replace(sent.on("X"), data=memoryview(bytearray(sent.on("X").data)))
    store.commit_round(RUN, dataclasses.replace(sent, payloads=(x, sent.on("Y"))))
    assert store.payloads(RUN, 0)[0] == sent.on("X")


def test_one_charged_row_a_round(store: Store) -> None:
    """The mechanisms public-state and noise-once charge one row for two releases."""
    sent = record(0)
    store.commit_round(RUN, dataclasses.replace(sent, rows=sent.rows[1:]))
    recovered = store.recover(RUN)
    assert recovered is not None and recovered.records[0].rows == sent.rows[1:]
    assert store.releases(RUN) == 2


def test_state_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with contextlib.closing(opened(tmp_path / "state")) as store:
            store.commit_round(RUN, record(0, LARGE))
            store.finish_run(RUN, vector(3, 0))
            found = {p: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "state").rglob("*")}
    finally:
        os.umask(before)
    assert len(found) >= 8
    assert not [(p, oct(mode)) for p, mode in found.items() if mode & 0o077]


# --- once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [SMALL, LARGE])
def test_a_round_is_committed_once(store: Store, tmp_path: Path, d: int) -> None:
    """A second draw of the same round must not be stored, nor touch the bytes that may have left already."""
    first = record(0, d)
    store.commit_round(RUN, first)
    head, blobs = store.ledger().head, blob_names(tmp_path)
    with pytest.raises(RuntimeError, match=r"round 0 of run .* is durable already"):
        store.commit_round(RUN, record(0, d, draw=1))
    assert store.payloads(RUN, 0) == first.payloads
    assert (store.ledger().head, blob_names(tmp_path)) == (head, blobs)
    store.commit_round(RUN, record(1, d))
    recovered = store.recover(RUN)
    assert recovered is not None and recovered.checkpoint.k == 1


def test_the_primary_key_is_what_refuses(store: Store, tmp_path: Path) -> None:
    """Mutant: without it the second draw would be stored, so the test above would fail."""
    store.commit_round(RUN, record(0))
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        keys = [r[1] for r in db.execute("PRAGMA table_info(rounds)") if r[5]]
        assert keys == ["id"]
        db.execute("CREATE TABLE free AS SELECT * FROM rounds")
        db.execute("INSERT INTO free SELECT * FROM rounds")
        with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE constraint failed: rounds\.id"):
            db.execute("INSERT INTO rounds SELECT * FROM free LIMIT 1")


def test_a_stream_is_charged_once_a_round(store: Store) -> None:
    sent = record(0)
    with pytest.raises(AssertionError, match="a stream is charged once"):
        store.commit_round(RUN, dataclasses.replace(sent, rows=(sent.rows[0], sent.rows[0])))
    assert store.recover(RUN) is None
    assert store.ledger().entries == ()


def test_a_record_holds_one_round(store: Store) -> None:
    with pytest.raises(AssertionError, match="one round"):
        store.commit_round(RUN, dataclasses.replace(record(0), payloads=(payload("X", 1, 10),)))


def test_two_stores_on_one_directory(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="in use by another process") as caught:
        Store(tmp_path, "process")
    assert str(tmp_path) in str(caught.value)
    store.commit_round(RUN, record(0))  # the first one does not notice


def test_two_processes_on_one_directory(store: Store, tmp_path: Path) -> None:
    program = "import sys, pathlib, dpgt_node.runtime.store.store as s; s.Store(pathlib.Path(sys.argv[1]), 'process')"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"StoreError: {tmp_path}: in use by another process" in done.stderr


def test_the_directory_is_free_again_after_close(tmp_path: Path) -> None:
    for _ in range(3):
        opened(tmp_path).close()


def test_the_directory_is_free_again_after_a_failed_start(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        db.execute("PRAGMA user_version = 99")
    for _ in range(2):
        with pytest.raises(StoreError, match=f"version 99; this version of dpgt knows {VERSION}"):
            Store(tmp_path, "process")


# --- runs ---------------------------------------------------------------------------------------------------------


def test_runs(store: Store) -> None:
    other, sha = bytes(16), "cd" * 32
    store.begin_run(other, sha, "agent-1", TERMS)
    store.begin_run(RUN, SHA, "agent-1", TERMS)  # again: a restart
    store.commit_round(RUN, record(0))
    store.commit_round(RUN, record(1))
    assert store.runs() == (RunInfo(RUN, SHA, "agent-1", False, 1), RunInfo(other, sha, "agent-1", False, -1))
    assert (store.find_run(SHA, "agent-1"), store.find_run(sha, "agent-1"), store.find_run("x", "agent-1")) == (
        RUN,
        other,
        None,
    )
    assert (store.releases(RUN), store.releases(other), store.releases(b"?")) == (4, 0, 0)
    with pytest.raises(StoreError, match="was begun with another run file"):
        store.begin_run(RUN, sha, "agent-1", TERMS)
    with pytest.raises(StoreError, match='was begun on data set "default", not "other"'):
        store.begin_run(RUN, SHA, "agent-1", dataclasses.replace(TERMS, data_id="other"))
    assert store.recover(b"unknown") is None


def test_two_runs_do_not_mix(store: Store) -> None:
    other = bytes(16)
    store.begin_run(other, SHA, "agent-1", TERMS)
    store.commit_round(RUN, record(0))
    store.commit_round(other, record(0, draw=1))
    store.commit_round(RUN, record(1))
    assert store.find_run(SHA, "agent-1") == other
    recovered = store.recover(other)
    assert recovered is not None and [r.k for r in recovered.records] == [0]
    assert store.payloads(other, 0)[0] == payload("X", 0, 10, 1)
    assert [e.row.k for e in store.ledger(other).entries] == [0, 0]
    assert [e.run_id for e in store.ledger().entries] == [RUN, RUN, other, other, RUN, RUN]


def test_finish(store: Store, tmp_path: Path) -> None:
    x = vector(7, 1)
    assert not store.is_finished(RUN)
    path = store.finish_run(RUN, x)
    assert path == tmp_path / X_FINAL
    stored = np.load(path)
    assert stored.dtype == np.float64 and np.array_equal(stored, x)
    assert store.is_finished(RUN) and store.find_run(SHA, "agent-1") == RUN
    assert np.array_equal(store.final(RUN), x)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_result_that_cannot_be_written_is_not_finished(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store.commit_round(RUN, record(0, 3))
    monkeypatch.setattr("dpgt_node.runtime.store.finals.write_whole", full)
    with pytest.raises(StoreError, match="cannot save the result"):
        store.finish_run(RUN, np.ones(3))
    assert not store.is_finished(RUN)


def test_the_result_of_another_run_is_not_taken_for_this_ones(store: Store, tmp_path: Path) -> None:
    other = bytes(16)
    store.begin_run(other, SHA, "agent-1", TERMS)
    store.finish_run(RUN, vector(7, 1))
    store.finish_run(other, vector(7, 2))
    assert np.array_equal(store.final(other), vector(7, 2))
    with pytest.raises(StoreError, match="not the result of run"):
        store.final(RUN)
    (tmp_path / X_FINAL).write_bytes(b"torn")
    with pytest.raises(StoreError, match="not a NumPy file"):
        store.final(other)
    (tmp_path / X_FINAL).unlink()
    with pytest.raises(StoreError, match="the result cannot be read"):
        store.final(other)


# --- pruning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [SMALL, LARGE])
def test_prune_keeps_hashes_and_the_ledger(store: Store, tmp_path: Path, d: int) -> None:
    for k in range(4):
        store.commit_round(RUN, record(k, d))
    before = store.ledger()
    kept = store.payloads(RUN, 2)
    store.prune(RUN, 1)
    store.prune(RUN, 0)  # late: nothing happens
    for k in (0, 1):
        with pytest.raises(StoreError, match=rf"round {k} of run .* was pruned"):
            store.payloads(RUN, k)
    assert store.payloads(RUN, 2) == kept
    assert store.ledger() == before
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        hashes = db.execute("SELECT x_sha256, y_sha256 FROM rounds ORDER BY id").fetchall()
        kept_rounds = [key % ROUNDS_MAX for (key,) in db.execute("SELECT id FROM payloads ORDER BY id")]
    assert hashes == [(payload("X", k, d).sha256, payload("Y", k, d).sha256) for k in range(4)]
    assert kept_rounds == [2, 3]
    names = [name for name in blob_names(tmp_path) if not name.endswith(".spare")]
    assert not [name for name in names if "-0000000000-" in name or "-0000000001-" in name]
    assert store.releases(RUN) == 8


def test_prune_keeps_what_recovery_needs(tmp_path: Path) -> None:
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(6):
            store.commit_round(RUN, record(k, checkpoint=k in (0, 3)))
        store.prune(RUN, 5)
    with contextlib.closing(opened(tmp_path)) as store:
        recovered = store.recover(RUN)
        assert recovered is not None and [r.k for r in recovered.records] == [3, 4, 5]
        with pytest.raises(StoreError, match=r"round 2 of run .* was pruned"):
            store.payloads(RUN, 2)
        store.commit_round(RUN, record(6))
        store.prune(RUN, 5)
        with pytest.raises(StoreError, match=r"round 5 of run .* was pruned"):
            store.payloads(RUN, 5)


def test_a_payload_in_use_survives_its_pruning(store: Store) -> None:
    """A slow resend holds the mapping while the coordinator announces that nobody needs the round any more."""
    store.commit_round(RUN, record(0, LARGE))
    held, _ = store.payloads(RUN, 0)
    store.commit_round(RUN, record(1, LARGE))
    store.prune(RUN, 0)
    assert held == payload("X", 0, LARGE)


def test_rounds_that_are_not_there(store: Store) -> None:
    with pytest.raises(StoreError, match=r"round 7 of run .* is not here"):
        store.payloads(RUN, 7)


# --- torn and foreign ---------------------------------------------------------------------------------------------


def test_torn_files_without_a_row_are_swept(tmp_path: Path) -> None:
    """A crash leaves a temporary file, or a whole one whose row never came."""
    with contextlib.closing(opened(tmp_path)) as store:
        store.commit_round(RUN, record(0, LARGE))
        kept = blob_names(tmp_path)
    for name in (kept[0] + ".tmp", f"{RUN.hex()}-0000000001-X", f".{RUN.hex()}-0000000001-X.spare"):
        (tmp_path / "blobs" / name).write_bytes(b"torn")
    with contextlib.closing(opened(tmp_path)) as store:
        assert blob_names(tmp_path) == kept
        assert store.payloads(RUN, 0)[0] == payload("X", 0, LARGE)
        store.commit_round(RUN, record(1, LARGE))


@pytest.mark.parametrize(
    ("what", "damage", "message"),
    [
        ("X", "short", "bytes, expected 1048584"),
        ("X", "flipped", "X of round 0 is torn"),
        ("Y", "flipped", "Y of round 0 is torn"),
        ("Y", "missing", "No such file"),
        ("state", "flipped", "the checkpoint of round 0 is torn"),
        ("state", "short", "bytes, expected 5242920"),
    ],
)
def test_torn_files_with_a_row_are_named(tmp_path: Path, what: str, damage: str, message: str) -> None:
    """A power cut under durability "process", or a bad disk: never silently other bytes."""
    with contextlib.closing(opened(tmp_path)) as store:
        store.commit_round(RUN, record(0, LARGE))
    path = tmp_path / "blobs" / f"{RUN.hex()}-0000000000-{what}"
    data = bytearray(path.read_bytes())
    match damage:
        case "short":
            path.write_bytes(data[:-1])
        case "flipped":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        case "missing":
            path.unlink()
    with contextlib.closing(opened(tmp_path)) as store, pytest.raises(StoreError, match=message) as caught:
        store.recover(RUN)
    assert str(tmp_path) in str(caught.value)


def test_a_round_missing_in_the_middle_is_noticed(tmp_path: Path) -> None:
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(4):
            store.commit_round(RUN, record(k, checkpoint=k == 0))
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        db.execute(f"DELETE FROM payloads WHERE id % {ROUNDS_MAX} = 2")
        db.commit()
    missing = "rounds are missing after the checkpoint of round 0"
    with contextlib.closing(opened(tmp_path)) as store, pytest.raises(StoreError, match=missing):
        store.recover(RUN)


def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        db.execute("CREATE TABLE theirs (x)")
        db.commit()
    with pytest.raises(StoreError, match="a database of another program"):
        Store(tmp_path, "process")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"hello" * 1000)
    with pytest.raises(StoreError, match="file is not a database") as caught:
        Store(tmp_path, "process")
    assert str(tmp_path) in str(caught.value)


# --- directories that cannot be written ---------------------------------------------------------------------------


def test_a_path_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/state: cannot be opened: .*Not a directory"):
        Store(tmp_path / "file" / "state", "process")


NOBODY_ID = 65534
OPEN_AS_NOBODY = """
import os, sys, pathlib
from dpgt_node.errors import StoreError
from dpgt_node.runtime.store.schema import ROUNDS_MAX
from dpgt_node.runtime.store.store import Store
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    Store(pathlib.Path(sys.argv[1]), "process")
except StoreError as error:
    print(error)
"""


def test_a_read_only_directory() -> None:
    """Root may write anywhere, so that the child becomes nobody first."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        command = [sys.executable, "-c", OPEN_AS_NOBODY, folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.startswith(f"{folder}: cannot be opened: [Errno 13] Permission denied"), done.stderr


FILL = """
import resource, sys, pathlib
from dpgt_node.errors import StoreError
from tests.runtime.store.records import RUN, opened, record
d, limit = int(sys.argv[2]), int(sys.argv[3])
store = opened(pathlib.Path(sys.argv[1]))
store.commit_round(RUN, record(0, d))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    for k in range(1, 2000):
        store.commit_round(RUN, record(k, d, checkpoint=False))
except StoreError as error:
    print(k, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
"""


@pytest.mark.parametrize(("d", "limit"), [(SMALL, 300_000), (LARGE, 1_000_000)], ids=["database", "files"])
def test_a_full_disk_stops_at_a_whole_round(tmp_path: Path, d: int, limit: int) -> None:
    """No file may grow: as on a full disk, either the database or a large file cannot be written."""
    command = [sys.executable, "-c", FILL, str(tmp_path), str(d), str(limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    k, _, message = done.stdout.partition(" ")
    assert message.startswith(f"{tmp_path}: round {k} cannot be made durable: "), done.stdout + done.stderr
    with contextlib.closing(opened(tmp_path)) as store:
        recovered = store.recover(RUN)
        assert recovered is not None and [r.k for r in recovered.records] == list(range(int(k)))
        assert len(store.ledger().entries) == 2 * int(k)
        assert not [name for name in blob_names(tmp_path) if f"-{int(k):010d}-" in name]
        store.commit_round(RUN, record(int(k), d))  # there is room again


def test_a_failed_commit_leaves_no_trace_and_may_be_repeated(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes are committed again: the draw was kept, not repeated."""
    store.commit_round(RUN, record(0, LARGE))
    before = (blob_names(tmp_path), store.ledger())
    real = os.rename
    calls = []

    def fails(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(StoreError, match=r"round 1 cannot be made durable: .*No space left"):
        store.commit_round(RUN, record(1, LARGE))
    assert (blob_names(tmp_path), store.ledger()) == before
    recovered = store.recover(RUN)
    assert recovered is not None and recovered.checkpoint.k == 0
    store.commit_round(RUN, record(1, LARGE))
    recovered = store.recover(RUN)
    assert recovered is not None and same_state(recovered.checkpoint, state(1, LARGE))


# --- methods that send on one stream ------------------------------------------------------------------------------


def one_stream(k: int, stream: Stream, *, noisy: bool = False, charged: Stream = "Y") -> RoundRecord:
    """A round of a method that sends on ``stream`` alone, whose noise is that of ``charged``; a state of two sizes."""
    sent, state = payload(stream, k, 10), State(k, {"x": vector(10, k), "w": vector(1, k, 3)}, np.arange(3))
    rows = (row(k, charged, sent.sha256),)
    return RoundRecord(k, (sent,), rows, np.arange(3), state, vector(10, k, 5) if noisy else None)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("stream", ["X", "Y"])
def test_one_stream_and_a_state_of_other_vectors(store: Store, tmp_path: Path, stream: Stream, noisy: bool) -> None:
    for k in range(3):
        store.commit_round(RUN, one_stream(k, stream, noisy=noisy))
    store.close()
    with contextlib.closing(opened(tmp_path)) as again:
        found, want = again.recover(RUN), one_stream(2, stream, noisy=noisy)
        assert found is not None and same_state(found.checkpoint, want.checkpoint)  # type: ignore[arg-type]
        assert [v.size for v in found.checkpoint.vectors.values()] == [10, 1]
        assert same_record(found.records[-1], want) and again.payloads(RUN, 2) == want.payloads
        got = found.records[-1].noisy_gradient
        assert np.array_equal(got, want.noisy_gradient) if noisy else got is None  # type: ignore[arg-type]
        assert again.releases(RUN) == 3 and len(again.ledger().entries) == 3


def test_a_charge_carried_by_the_other_stream_must_be_of_its_bytes(store: Store) -> None:
    first = one_stream(0, "X")
    store.commit_round(RUN, first)
    wrong = dataclasses.replace(one_stream(1, "X"), rows=(row(1, "Y", first.payloads[0].sha256),))
    store.commit_round(RUN, wrong)
    with pytest.raises(LedgerBroken, match="not of the stored release"):
        store.ledger()


def test_a_state_that_waits_for_its_release_is_not_stored(store: Store) -> None:
    sent = one_stream(0, "X")
    state = dataclasses.replace(sent.checkpoint, pending=True)  # type: ignore[type-var]
    with pytest.raises(AssertionError, match="stored once it is complete"):
        store.commit_round(RUN, dataclasses.replace(sent, checkpoint=state))
