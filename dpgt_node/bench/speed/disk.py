"""The disk that an agent needs, predicted and measured.

A launch of three agents on a ring; the state directory of one is looked at every few milliseconds, and the largest
size is compared with the prediction.  A run that grows shows it in its last third.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from dpgt_node.bench.children import run_dpgt
from dpgt_node.bench.figures import Around, Row, option
from dpgt_node.bench.speed.ring import ring
from dpgt_node.config import load_run
from dpgt_node.runtime.disk import agent_need
from dpgt_node.values import dataclass

AGENT = "agent-2"
LOOK_S = 0.005


@dataclass(frozen=True, slots=True)
class Settings:
    dimension: tuple[int, ...] = option((650, 1_000_000, 11_175_370), "Coordinates of a vector.")
    rounds: int = option(60, "Rounds of each run.", least=2)


@dataclass(frozen=True, slots=True)
class Found:
    """Bytes; ``late``: the largest size in the last third of the time, ``early``: in the second."""

    predicted: int
    peak: int
    early: int
    late: int


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    for d in settings.dimension:
        with around.temporary() as folder:
            found = measure(d, settings.rounds, folder, around)
        yield Row(
            f"one of three agents, {settings.rounds} rounds; MB",
            {
                "d": d,
                "predicted": found.predicted / 1e6,
                "peak": found.peak / 1e6,
                "ratio": found.predicted / found.peak,
                "second third": found.early / 1e6,
                "last third": found.late / 1e6,
            },
        )


def measure(d: int, rounds: int, folder: Path, around: Around, n: int = 3) -> Found:
    """One launch in ``folder``."""
    path, out = folder / "run.toml", folder / "out"
    path.write_text(ring(n, d, rounds), encoding="utf-8")
    state, sizes, over = out / "agents" / AGENT / "state", [0], threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            sizes.append(size(state))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        run_dpgt(around.environment, "launch", path, "--out", out)
    finally:
        over.set()
        watching.join()
    sizes.append(size(state))
    third, need = len(sizes) // 3, agent_need(load_run(path), AGENT, d, None).total
    return Found(need, max(sizes), max(sizes[third : len(sizes) - third]), max(sizes[len(sizes) - third - 1 :]))


def size(folder: Path) -> int:
    """Bytes of all files of a state directory, 0 before there is one."""
    total = 0
    for place in (folder, folder / "blobs"):
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(place):
                with contextlib.suppress(FileNotFoundError):
                    total += entry.stat().st_size if entry.is_file() else 0
    return total
