"""The commit of a round, beside the same bytes appended to a plain file, which under "power" is synced.

Two vectors, their ledger rows and a batch of 55, float64; with a checkpoint also the five vectors of the state, as
agents commit it up to 64 kB a vector.  Every measurement is the median of its rounds in a state directory of its own.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dpgt_node.bench.figures import Around, Row, Spread, option
from dpgt_node.bench.speed.wire import RUN_ID, payload
from dpgt_node.durable import Durability
from dpgt_node.protocol.types import LedgerRow, RoundRecord, State
from dpgt_node.runtime.store.ledger import Terms
from dpgt_node.runtime.store.store import Store
from dpgt_node.values import dataclass

TERMS = Terms("default", 1e-5, "replace-one")
COST = {"lemma5": 1.25, "corrected": None, "tight": None, "amplified": None, "zcdp": None, "gdp": None}
MODES: tuple[Durability, ...] = ("process", "power")


@dataclass(frozen=True, slots=True)
class Settings:
    dimension: int = option(100, "Coordinates of a vector.", least=1)
    rounds: int = option(1000, "Commits in each measurement; a tenth of them under power.", least=10)
    repeat: int = option(5, "Measurements of each.", least=1)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    for durability in MODES:
        rounds = settings.rounds if durability == "process" else settings.rounds // 10
        for checkpoint in (False, True):
            records = [record(k, settings.dimension, checkpoint) for k in range(rounds)]
            commits, plain = [], []
            for _ in range(settings.repeat):
                with around.temporary() as folder:
                    commits.append(committed(folder / "state", durability, records))
                    plain.append(appended(folder / "plain", durability, records))
            yield Row(
                f"one round of d = {settings.dimension}, microseconds",
                {
                    "durability": durability,
                    "checkpoint": "yes" if checkpoint else "no",
                    "commit": Spread.over(commits, 1e6),
                    "plain file": Spread.over(plain, 1e6),
                    "ratio": Spread.ratio(commits, plain),
                },
            )


def record(k: int, d: int, checkpoint: bool) -> RoundRecord:
    """What an agent commits of round ``k``; the first one always has a checkpoint."""
    pair = (payload("X", d, "float64", k), payload("Y", d, "float64", k))
    rows = tuple(LedgerRow(k, p.stream, "paper", "laplace", 0.1, 2.0, p.sha256, COST) for p in pair)
    vector, batch = np.random.default_rng(k).normal(size=d), np.arange(55)
    state = State(k, dict.fromkeys(("px", "tx", "p", "t", "g"), vector), batch) if checkpoint or k == 0 else None
    return RoundRecord(k, pair, rows, batch, state)


def committed(folder: Path, durability: Durability, records: Sequence[RoundRecord]) -> float:
    """Seconds of one commit."""
    seconds = []
    with contextlib.closing(Store(folder, durability)) as store:
        store.begin_run(RUN_ID, "0" * 64, "agent-1", TERMS)
        for each in records:
            begin = time.perf_counter()
            store.commit_round(RUN_ID, each)
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def appended(path: Path, durability: Durability, records: Sequence[RoundRecord]) -> float:
    """Seconds to append the vectors of one round."""
    seconds = []
    with path.open("ab", buffering=0) as file:
        for each in records:
            vectors = [p.data for p in each.payloads]
            vectors += [] if each.checkpoint is None else [v.tobytes() for v in each.checkpoint.vectors.values()]
            begin = time.perf_counter()
            file.write(b"".join(vectors))
            if durability == "power":
                os.fsync(file.fileno())
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
