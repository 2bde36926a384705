"""``dpgt launch`` with clocks inside its agents: real processes, mTLS, and where the time of a round went in each.

Python imports ``sitecustomize`` from the first folder on its path: one is written there that starts the clocks in
every ``dpgt node``, which writes what they say into a folder when it ends.  The clocks cost microseconds a round.  It
has the launch start every node by itself: a forked one imports nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dpgt_node
from dpgt_node.bench.children import run_dpgt
from dpgt_node.bench.clocks import PARTS, Clock, watching
from dpgt_node.values import dataclass

INSIDE = """
import sys

if "node" in sys.orig_argv and "--config" in sys.orig_argv:
    from dpgt_node.bench.speed.launched import watch

    watch({folder!r}, in_memory={in_memory})
elif "launch" in sys.orig_argv:
    from dpgt_node.runtime.launch import nursery

    nursery.SEVERAL = sys.maxsize
"""
_PATCHED: list[contextlib.AbstractContextManager[None]] = []
"""Held for as long as the process lives: what is collected would undo itself."""


@dataclass(frozen=True, slots=True)
class Launched:
    """``round_s``: of the slowest agent, from its second commit to its last.  ``parts``: mean over agents, s a round.

    ``peak_mib`` by agent; ``written``: bytes an agent and round that reached the disk, None where the system does not
    say.
    """

    round_s: float
    parts: dict[str, float]
    peak_mib: list[float]
    written: float | None


def watch(folder: str, *, in_memory: bool) -> None:
    """Put clocks on this process, and write down what they say when it ends."""
    clock, config = Clock(), Path(sys.orig_argv[sys.orig_argv.index("--config") + 1])
    _PATCHED.append(watching(clock, in_memory=in_memory))
    _PATCHED[0].__enter__()

    def write() -> None:
        rounds = sorted(clock.commits)
        each = clock.a_round(rounds[min(1, len(rounds) - 2)], rounds[-1])
        found = {"round_s": each.now_s, "parts": each.parts, "rounds": len(rounds), "written": _written()}
        (Path(folder) / f"{config.parent.name}.json").write_text(json.dumps(found), encoding="utf-8")

    atexit.register(write)


def _written() -> int | None:
    """Bytes that this process has had written to a disk."""
    try:
        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    except OSError:
        return None
    return int(lines["write_bytes"])


def launched(run_file: Path, out: Path, *, store: str, environment: Mapping[str, str]) -> Launched:
    """One launch of at least two rounds.  ``store``: off, process or power."""
    inside, clocks = out.with_name(f"{out.name}-inside"), out.with_name(f"{out.name}-clocks")
    inside.mkdir(parents=True)
    clocks.mkdir()
    text = INSIDE.format(folder=str(clocks.absolute()), in_memory=store == "off")
    (inside / "sitecustomize.py").write_text(text, encoding="utf-8")
    package = Path(dpgt_node.__file__).parents[1]
    path = os.pathsep.join([str(inside.absolute()), str(package), environment.get("PYTHONPATH", "")])
    durability = "power" if store == "power" else "process"
    run_dpgt({**environment, "PYTHONPATH": path}, "launch", run_file, "--out", out, "--durability", durability)
    found: list[dict[str, Any]] = [json.loads(path.read_text()) for path in sorted(clocks.glob("*.json"))]
    logs = [path.read_text(encoding="utf-8") for path in sorted(out.glob("agents/*/node.log"))]
    written = [agent["written"] / agent["rounds"] for agent in found if agent["written"] is not None]
    return Launched(
        max(agent["round_s"] for agent in found),
        {part: statistics.mean(agent["parts"][part] for agent in found) for part in PARTS},
        [float(re.findall(r"peak resident memory (\d+) MiB", log)[-1]) for log in logs],
        statistics.mean(written) if written else None,
    )
