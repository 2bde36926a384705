"""The sum of released x that a state directory keeps for a published model, held against a naive mean."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.errors import StoreError
from dpgt_node.record.released import SUM_FILE, ReleasedSum, read_sum, window_start
from dpgt_node.runtime.store.limits import FILE_BYTES
from dpgt_node.runtime.store.released import read_released
from dpgt_node.runtime.store.store import Store
from dpgt_node.types import Codes
from tests.runtime.store.records import RUN, SHA, TERMS, coded, payload, record, row, vector

K = 23


def opened(state_dir: Path) -> Store:
    store = Store(state_dir, "process")
    store.begin_run(RUN, SHA, "agent-1", TERMS, average_from=window_start(K))
    return store


def naive(first: int, last: int, d: int) -> np.ndarray:
    return np.mean([payload("X", k, d).array() for k in range(first, last + 1)], axis=0)


@pytest.mark.parametrize(("last_round", "first"), [(0, 0), (1, 1), (2, 1), (23, 12), (2000, 1000)])
def test_the_window_is_the_second_half(last_round: int, first: int) -> None:
    assert window_start(last_round) == first


@pytest.mark.parametrize("d", [7, FILE_BYTES // 8 + 1], ids=["in the database", "in files"])
@pytest.mark.parametrize("restart_every", [100, 5])
def test_the_mean_survives_pruning_and_restarts(tmp_path: Path, d: int, restart_every: int) -> None:
    store = opened(tmp_path)
    for k in range(K + 1):
        store.commit_round(RUN, record(k, d, checkpoint=k % 4 == 0))
        if k % 3 == 0:
            store.prune(RUN, k - 2)
        if k % restart_every == restart_every - 1:
            store.close()
            store = opened(tmp_path)
        kept = read_released(tmp_path, K)
        assert kept.last_k == k and np.array_equal(kept.last, payload("X", k, d).array()) and kept.final is None
        if k < window_start(K):
            assert kept.mean is None
        else:
            assert kept.first == 12
            np.testing.assert_allclose(kept.mean, naive(12, k, d), rtol=1e-13, atol=1e-13)
    store.finish_run(RUN, vector(d, 5))
    kept = read_released(tmp_path, K)
    store.close()
    assert np.array_equal(kept.final, vector(d, 5)) and kept.charge.k == K and kept.charge.terms == TERMS
    assert read_sum(tmp_path / SUM_FILE).through == 19, "what no checkpoint covers is not pruned"


def test_a_crash_between_the_sum_and_the_pruning_counts_nothing_twice(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for k in range(K + 1):
        store.commit_round(RUN, record(k))

    class Killed(BaseException):
        pass

    @contextlib.contextmanager
    def dies():
        raise Killed
        yield

    store._pruning._transaction = dies
    with pytest.raises(Killed):
        store.prune(RUN, 20)
    store.close()
    assert read_sum(tmp_path / SUM_FILE).through == 20
    store = opened(tmp_path)
    store.prune(RUN, 21)
    kept = read_released(tmp_path, K)
    store.close()
    np.testing.assert_allclose(kept.mean, naive(12, K, 10), rtol=1e-13)


@pytest.mark.parametrize("spoil", ["torn", "another run", "gone"])
def test_a_sum_that_is_lost_begins_anew_and_never_ends_a_run(tmp_path: Path, spoil: str, caplog) -> None:
    store = opened(tmp_path)
    for k in range(K + 1):
        store.commit_round(RUN, record(k))
        if k == 15:
            store.prune(RUN, 14)
    path = tmp_path / SUM_FILE
    if spoil == "torn":
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(StoreError, match=r"x_released\.sum: torn"):
            read_released(tmp_path, K)
    elif spoil == "another run":
        path.write_bytes(b"".join(ReleasedSum(bytes(16), 0, 3, np.zeros(10)).parts()))
    else:
        path.unlink()
    store.prune(RUN, 20)
    kept = read_released(tmp_path, K)
    store.close()
    assert kept.first == 15 and ("begins anew" in caplog.text) == (spoil == "torn")
    np.testing.assert_allclose(kept.mean, naive(15, K, 10), rtol=1e-13)


def test_nothing_released_is_said(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(StoreError, match="nothing was released here yet"):
        read_released(tmp_path, K)


def test_a_release_that_was_changed_is_named(tmp_path: Path) -> None:
    store, d = opened(tmp_path), FILE_BYTES // 8 + 1
    store.commit_round(RUN, record(0, d))
    store.close()
    (blob,) = tmp_path.glob("blobs/*-X")
    blob.write_bytes(bytes(8 * d))
    with pytest.raises(StoreError, match="X of round 0 is torn"):
        read_released(tmp_path, K)


def test_a_release_that_goes_while_it_is_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent drops round 0 and writes round 2 into its blocks, between the opening of a file and its last byte."""
    d, read = FILE_BYTES // 8 + 1, Path.read_bytes
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(2):
            store.commit_round(RUN, record(k, d))

        def slowly(path: Path) -> bytes:
            if not path.name.endswith("-X"):
                return read(path)
            with path.open("rb") as file:
                store.prune(RUN, 0)
                store.commit_round(RUN, record(2, d))
                return file.read()

        monkeypatch.setattr(Path, "read_bytes", slowly)
        with pytest.raises(StoreError, match="if its agent is running, try again"):
            read_released(tmp_path, 0)


def test_the_mean_of_codes_is_that_of_what_they_stand_for(tmp_path: Path) -> None:
    codes = Codes(0.25, -3.0, 0, 300)
    with contextlib.closing(opened(tmp_path)) as store:
        for k in range(K + 1):
            x = coded(k, 7, codes)
            sent = replace(record(k, 7, checkpoint=k % 4 == 0), payloads=(x,), rows=(row(k, "X", x.sha256),))
            store.commit_round(RUN, sent)
        store.prune(RUN, K)
    assert read_sum(tmp_path / SUM_FILE).through == 19
    mean = np.mean([coded(k, 7, codes).array() for k in range(12, K + 1)], axis=0)
    np.testing.assert_allclose(read_released(tmp_path, K).mean, mean, rtol=1e-13)


def test_a_sum_beyond_float64_is_no_warning() -> None:
    total = ReleasedSum.empty(RUN, 0, 2)
    with np.errstate(over="raise"):
        for k in range(2):
            total.add(k, np.full(2, 1.7e308))
    assert np.isinf(total.mean()).all()
