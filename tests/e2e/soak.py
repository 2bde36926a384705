"""A long run of five real daemons on digits, watched from outside: resident memory, descriptors, threads, disk."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from tests.e2e.processes import ROOT, Launch, no_traceback

SETTLED = 0.4
"""The part of the time before which a process still grows into its working set; slopes are fitted after it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one process, ``at`` seconds after the first round."""

    at: float
    rss: int
    descriptors: int
    threads: int


@dataclass(slots=True)
class Watched:
    """``seen[name]``: samples in time order; ``disk``: (seconds, bytes of all state directories).

    Nobody asks the daemons for the round, which would be one more load: rounds are spread evenly over the time.
    """

    rounds: int
    seen: dict[str, list[Sample]] = field(default_factory=dict)
    disk: list[tuple[float, int]] = field(default_factory=list)
    seconds: float = 0.0

    def slopes(self, name: str) -> tuple[float, float, float]:
        """(bytes of memory, descriptors, threads) per round after the process has settled, least squares."""
        late = [s for s in self.seen[name] if s.at >= SETTLED * self.seconds]
        k = np.array([s.at for s in late]) * self.rounds / self.seconds
        table = np.array([[s.rss, s.descriptors, s.threads] for s in late], dtype=float)
        slopes = np.polyfit(k, table, 1)[0]
        return float(slopes[0]), float(slopes[1]), float(slopes[2])

    def report(self) -> str:
        """A table for people."""
        lines = [f"{self.rounds} rounds in {self.seconds:.0f} s, {self.rounds / self.seconds:.1f} rounds/s"]
        for name in sorted(self.seen):
            samples, (rss, descriptors, threads) = self.seen[name], self.slopes(name)
            lines.append(
                f"{name:12} RSS {samples[0].rss / 2**20:6.1f} -> {samples[-1].rss / 2**20:6.1f} MiB, "
                f"{rss:+8.2f} B/round; descriptors {samples[0].descriptors} -> {samples[-1].descriptors}, "
                f"{descriptors:+.1e}/round; threads {samples[0].threads} -> {samples[-1].threads}, {threads:+.1e}/round"
            )
        halfway = next(size for at, size in self.disk if at >= 0.5 * self.seconds)
        lines.append(f"state directories {halfway / 2**20:.1f} MiB halfway, {self.disk[-1][1] / 2**20:.1f} at the end")
        return "\n".join(lines)


def soak(folder: Path, rounds: int) -> Watched:
    """``rounds`` rounds of the shipped digits run by ``dpgt launch`` over mTLS; AssertionError when anything fails."""
    text = (ROOT / "examples" / "demo.toml").read_text(encoding="utf-8")
    lines = [f"iterations = {rounds - 1}" if line.startswith("iterations") else line for line in text.splitlines()]
    lines = [f"every = {max(10, rounds // 20)}" if line.startswith("every") else line for line in lines]
    (folder / "run.toml").write_text("\n".join(lines), encoding="utf-8")
    watched = Watched(rounds)
    with Launch(folder / "out", "launch", folder / "run.toml", "--no-restart") as launch:
        launch.running()
        processes = {name: psutil.Process(launch.pid(name)) for name in ("coordinator", *launch.names())}
        start = time.monotonic()
        # The end of the run, with its plots and closing connections, is no part of what may grow.
        while launch.process.poll() is None and not any(launch.out.glob("agents/*/state/x_final.npy")):
            at = time.monotonic() - start
            _look(watched, processes, at)
            watched.disk.append((at, _bytes(launch.out / "agents")))
            # Short at first, so that a short run is looked at often; later a hundredth of the time gone.
            time.sleep(max(0.05, 0.01 * at))
        watched.seconds = time.monotonic() - start
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    summary = json.loads((launch.out / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["rounds"] == rounds
    assert [agent["releases"] for agent in summary["agents"]] == [2 * rounds] * 5
    for name in launch.names():
        assert " ERROR " not in launch.log(name), launch.log(name)
    return watched


def _look(watched: Watched, processes: dict[str, psutil.Process], at: float) -> None:
    for name, process in processes.items():
        try:
            with process.oneshot():
                sample = Sample(at, process.memory_info().rss, process.num_fds(), process.num_threads())
        except psutil.Error:
            continue  # it is ending
        watched.seen.setdefault(name, []).append(sample)


def _bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("state/*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
