"""Disk that a run needs, predicted and measured: ``python -m tests.bench.disk [--dimension D ...] [--rounds K+1]``.

A launch of three agents (quadratic); the state directory of one agent is looked at every few milliseconds, and the
largest size found is compared with the prediction.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from dpgt_node.config import load_run
from dpgt_node.runtime.store.disk import agent_need
from tests.bench.rounds import RUN

AGENT = "agent-2"


@dataclass(frozen=True, slots=True)
class Found:
    """Bytes; ``late``: the largest size in the last third of the time, ``early``: in the second."""

    predicted: int
    peak: int
    early: int
    late: int


def size(folder: Path) -> int:
    """Bytes of all files of a state directory, 0 before there is one."""
    total = 0
    for place in (folder, folder / "blobs"):
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(place):
                with contextlib.suppress(FileNotFoundError):
                    total += entry.stat().st_size if entry.is_file() else 0
    return total


def measure(d: int, rounds: int, folder: Path, n: int = 3) -> Found:
    """One launch in ``folder``."""
    path, out = folder / "run.toml", folder / "out"
    path.write_text(RUN.format(K=rounds - 1, n=n, d=d), encoding="utf-8")
    state = out / "agents" / AGENT / "state"
    sizes = []
    command = [sys.executable, "-m", "dpgt_node", "launch", str(path), "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            sizes.append(size(state))
            time.sleep(0.005)
    assert child.returncode == 0
    third = len(sizes) // 3
    run = load_run(path)
    return Found(agent_need(run, AGENT, d, None).total, max(sizes), max(sizes[third:-third]), max(sizes[-third:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimension", type=int, nargs="+", default=[650, 1_000_000, 11_175_370])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--folder", type=Path, help="where the runs' folders go (default: the system's temporary one)")
    o = parser.parse_args()
    for d in o.dimension:
        with tempfile.TemporaryDirectory(dir=o.folder) as name:
            found = measure(d, o.rounds, Path(name))
        print(
            f"d = {d:>10,}: predicted {found.predicted / 1e6:9.1f} MB, measured peak {found.peak / 1e6:9.1f} MB, "
            f"ratio {found.predicted / found.peak:5.2f}; second third of the run {found.early / 1e6:9.1f}, last third "
            f"{found.late / 1e6:9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
