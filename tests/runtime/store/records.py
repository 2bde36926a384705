"""Round records for the tests of the store; as a program (``python -m``) it commits rounds until killed."""

from __future__ import annotations

import hashlib
import itertools
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from dpgt_node.protocol.types import LedgerRow, Payload, RoundRecord, State
from dpgt_node.runtime.store.ledger import Terms
from dpgt_node.runtime.store.rounds.records import StoredState
from dpgt_node.runtime.store.store import Store
from dpgt_node.types import F64, Codes, Stream
from tests.states import tracking

RUN = bytes(range(16))
SHA = "ab" * 32
BESIDE = 1000
"""States of larger vectors are written beside the rounds."""
TERMS = Terms("default", 1e-5, "replace-one")


def vector(d: int, *seed: int) -> F64:
    return np.random.default_rng(seed).normal(size=d)


def payload(stream: Stream, k: int, d: int, draw: int = 0) -> Payload:
    data = vector(d, k, stream == "Y", draw).tobytes()
    return Payload(stream, k, "float64", d, data, hashlib.sha256(data).digest())


def coded(k: int, d: int, codes: Codes) -> Payload:
    whole = np.random.default_rng(k).integers(codes.low, codes.high, d, endpoint=True)
    data = whole.astype(np.dtype(codes.dtype).newbyteorder("<")).tobytes()
    return Payload("X", k, codes.dtype, d, data, hashlib.sha256(data).digest(), codes)


def row(k: int, stream: Stream, sha256: bytes) -> LedgerRow:
    cost = {"lemma5": 0.1 * (k + 1), "corrected": None, "zcdp": float("inf")}
    return LedgerRow(k, stream, "paper", "laplace", 0.1, None if stream == "X" else 80.0, sha256, cost)


def state(k: int, d: int) -> State:
    px, tx, p, t, g = (vector(d, k, part, 7) for part in range(5))
    return tracking(k, px, tx, p, t, g, np.arange(k, k + 5))


def record(k: int, d: int = 10, *, checkpoint: bool = True, draw: int = 0) -> RoundRecord:
    x, y = payload("X", k, d, draw), payload("Y", k, d, draw)
    rows = (row(k, "X", x.sha256), row(k, "Y", y.sha256))
    return RoundRecord(k, (x, y), rows, np.arange(k, k + 5), state(k, d) if checkpoint else None)


def same_state(a: State, b: State, *, within: float = 0.0) -> bool:
    """Equal round, names and batch; vectors equal too, or at most ``within`` apart in each value."""
    if (a.k, list(a.vectors)) != (b.k, list(b.vectors)) or not np.array_equal(a.batch, b.batch):
        return False
    pairs = zip(a.vectors.values(), b.vectors.values(), strict=True)
    return all(u.shape == v.shape and np.allclose(u, v, rtol=0.0, atol=within) for u, v in pairs)


def same_record(a: RoundRecord, b: RoundRecord) -> bool:
    """All but the checkpoint."""
    return (a.k, a.payloads, a.rows) == (b.k, b.payloads, b.rows) and np.array_equal(a.batch, b.batch)


def opened(state_dir: Path) -> Store:
    store = Store(state_dir, "process")
    store.begin_run(RUN, SHA, "agent-1", TERMS)
    return store


def commit_until_killed(state_dir: Path, d: int, every: int) -> None:
    """Go on after what is durable; say "began k" before and "k" after each commit.

    Large states are written beside the rounds, one at a time; "kept k" is said once one is durable.
    """
    store, beside = opened(state_dir), d > BESIDE
    known = store.recover(RUN)
    start, newest = (0, -1) if known is None else (known.records[-1].k + 1, known.checkpoint.k)
    with ThreadPoolExecutor(1) as pool:
        writing: Future[StoredState] | None = None
        for k in itertools.count(start):
            due = (k - 1) // every * every
            if beside and writing is None and due > newest >= 0:
                writing = pool.submit(store.write_state, RUN, state(due, d))
            said(f"began {k}")
            store.commit_round(RUN, record(k, d, checkpoint=k % every == 0 and not (beside and newest >= 0)))
            store.prune(RUN, k - 20)
            said(f"{k}")
            if not beside or newest < 0:
                newest = k - k % every
            elif writing is not None and writing.done():
                store.keep_state(RUN, writing.result())
                newest, writing = writing.result().k, None
                said(f"kept {newest}")


def said(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    commit_until_killed(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
