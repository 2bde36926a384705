"""``dpgt launch`` with clocks inside its agents: real processes, mTLS, and where the time of a round went in each.

``launched`` starts one and reads what the agents' own clocks wrote (``tests/bench/inside``); ``watch`` is what runs in
them.  The clocks cost microseconds a round.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("gradient", "mixing", "noise", "encode, hash", "commit", "send", "receive", "evaluate")


def watch(folder: str, *, off: bool) -> None:
    """Put clocks on every part of a round of this process, and write them down when it ends."""
    from dpgt_node.agent.work import AgentWork
    from dpgt_node.runtime.agent.driver import AgentDriver
    from dpgt_node.runtime.store.store import Store
    from tests.bench import durability

    clock, commits = durability.Clock(), []
    AgentWork._gradient = clock.watched("gradient", AgentWork._gradient)  # type: ignore[method-assign]
    AgentWork.evaluate = clock.watched("evaluate", AgentWork.evaluate)  # type: ignore[method-assign]
    patches = durability.patched(clock, durability.MemoryStore if off else Store)
    patches.__enter__()
    atexit.register(lambda: patches)  # it would undo itself when it is collected
    commit = AgentDriver._commit

    def committed(self: AgentDriver, effect: Any) -> Any:
        commits.append(time.monotonic())
        return commit(self, effect)

    AgentDriver._commit = committed  # type: ignore[method-assign]
    config = Path(sys.orig_argv[sys.orig_argv.index("--config") + 1])

    def write() -> None:
        written = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        seconds = {**clock.seconds, "mixing": clock.seconds.pop("gradient, mixing", 0.0)}
        found = {"seconds": seconds, "commits": commits, "written": int(written["write_bytes"]), "cpu": os.times()[:2]}
        (Path(folder) / f"{config.parent.name}.json").write_text(json.dumps(found))

    atexit.register(write)


@dataclass(frozen=True, slots=True)
class Launched:
    """``round_s``: of the slowest agent, from its second commit to its last.  ``parts``: mean over agents, a round.

    ``peak_mib`` by agent; ``written``: bytes an agent and round that reached the disk.
    """

    round_s: float
    parts: dict[str, float]
    peak_mib: list[float]
    written: float
    summary: dict[str, Any]


def launched(
    run_file: Path, out: Path, *, store: str = "process", environment: dict[str, str] | None = None
) -> Launched:
    """One launch.  ``store``: off, process or power."""
    clocks = out.with_name(out.name + "-clocks")
    clocks.mkdir(parents=True)
    inside = os.pathsep.join([str(Path(__file__).parent / "inside"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": inside, "DPGT_BENCH": str(clocks)}
    environ |= {"DPGT_BENCH_STORE": store} | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "dpgt_node", "launch", str(run_file), "--out", str(out)]
    command += ["--durability", "power" if store == "power" else "process"]
    subprocess.run(command, check=True, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
    found = [json.loads(path.read_text()) for path in sorted(clocks.glob("*.json"))]
    rounds = len(found[0]["commits"])
    spans = [(agent["commits"][-1] - agent["commits"][1]) / max(1, rounds - 2) for agent in found]
    parts = {part: statistics.mean(agent["seconds"].get(part, 0.0) for agent in found) / rounds for part in PARTS}
    logs = sorted(out.glob("agents/*/node.log"))
    peaks = [float(re.findall(r"peak resident memory (\d+) MiB", log.read_text())[-1]) for log in logs]
    written = statistics.mean(agent["written"] for agent in found) / rounds
    return Launched(max(spans), parts, peaks, written, json.loads((out / "summary.json").read_text()))
