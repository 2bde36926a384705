"""durability = "power": what was reported durable is there after a power cut at any sync; "process" promises less."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from dpgt_node.errors import StoreError
from dpgt_node.runtime.store.limits import FILE_BYTES
from dpgt_node.runtime.store.store import Store
from tests.runtime.store.records import RUN, SHA, TERMS, opened, record, same_record, same_state, state

ROOT = Path(__file__).resolve().parents[3]
SMALL, LARGE = 10, FILE_BYTES // 8 + 1
SEED = 7
READ = (
    "import pathlib, sys, dpgt_node.runtime.store.ledger as l; "
    "print(l.read_ledger(pathlib.Path(sys.argv[1])).head.hex())"
)


def cut(tmp_path: Path, durability: str, d: int, rounds: int) -> list[tuple[Path, int]]:
    """(what is left, last round whose commit had returned) at some of the syncs and at the end."""
    work, images = tmp_path / "work", tmp_path / "images"
    work.mkdir()
    command = [sys.executable, "-m", "tests.runtime.store.power_cut", work, images, durability, d, rounds, SEED]
    subprocess.run([*map(str, command)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return [(image, int(image.name.split(":")[1])) for image in sorted(images.iterdir())]


def last_whole_round(image: Path, d: int) -> int:
    """What a restart finds; everything it finds is right."""
    with contextlib.closing(Store(image / "deep" / "state", "power")) as store:
        store.begin_run(RUN, SHA, "agent-1", TERMS)
        recovered = store.recover(RUN)
        if recovered is None:
            return -1
        assert same_state(recovered.checkpoint, state(recovered.checkpoint.k, d))
        assert all(same_record(got, record(got.k, d)) for got in recovered.records)
        last = recovered.records[-1].k
        assert len(store.ledger().entries) == 2 * (last + 1)
        with contextlib.suppress(StoreError):  # pruned, or whole
            for k in range(max(0, last - 6), last + 1):
                assert store.payloads(RUN, k) == record(k, d).payloads
        return last


@pytest.mark.parametrize(("d", "rounds"), [(SMALL, 60), (LARGE, 14)], ids=["database", "files"])
def test_what_was_reported_is_there_after_a_power_cut(tmp_path: Path, d: int, rounds: int) -> None:
    images = cut(tmp_path, "power", d, rounds)
    assert len(images) > 5 and images[-1][1] == rounds - 1
    for image, reported in images:
        assert last_whole_round(image, d) in (reported, reported + 1), image.name


def test_process_promises_less(tmp_path: Path) -> None:
    """The test above can fail: without a sync nothing of the run is left."""
    ((image, reported),) = cut(tmp_path, "process", SMALL, 12)
    assert reported == 11
    assert not (image / "deep").exists()


def test_what_each_mode_asks_of_sqlite(tmp_path: Path) -> None:
    """0 is OFF, 2 is FULL: every COMMIT waits until the log is on the disk."""
    for mode, asked in (("process", 0), ("power", 2)):
        with contextlib.closing(Store(tmp_path / mode, mode)) as store:  # type: ignore[arg-type]
            assert store._db.execute("PRAGMA synchronous").fetchone() == (asked,)
            assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_process_survives_as_long_as_the_machine(tmp_path: Path) -> None:
    """Nothing is held back in this process: another one reads what a commit has just returned from."""
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(3):
            store.commit_round(RUN, record(k))
            said = subprocess.check_output([sys.executable, "-c", READ, str(tmp_path)], cwd=ROOT, text=True)
            assert said.strip() == store.head.hex()
