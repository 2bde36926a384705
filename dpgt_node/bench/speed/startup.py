"""How long a coordinator and an agent take to be ready, and what they hold and burn while they wait.

A coordinator is ready when it listens, an agent when it has registered; it then waits for another that never comes.
Beside them a bare python that has imported numpy and gRPC, and commands that print and end.  mTLS is off: certificates
are no part of a start.  Ratios are to the bare python of the same repetition.  It takes about two minutes, and prints
its tables at the end.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from dpgt_node.bench.children import DPGT, ChildFailed, cpu_s, memory_mib
from dpgt_node.bench.figures import Around, Row, Spread, Value, option
from dpgt_node.bench.speed.ring import ring
from dpgt_node.config import NodeConfig, NodeTls, node_to_toml
from dpgt_node.values import dataclass

LIMIT_S, LOOK_S = 60.0, 0.005
BARE = "import sys, numpy, grpc.aio; print('ready', flush=True); sys.stdin.read()"
_BURNT = "processor ms a second"
FIGURES = {"seconds": "ready after", "MiB": "held while it waits", _BURNT: "burnt while it waits"}
"""Of each process, and the table that shows it."""
REGISTERED = "agent-1 registered"


@dataclass(frozen=True, slots=True)
class Settings:
    repeat: int = option(5, "Starts of each.", least=1)
    idle: float = option(5.0, "Seconds for which each is watched while it waits.", least=0.1)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    found: dict[str, list[tuple[float, float | None, float | None]]] = {}
    for i in range(settings.repeat):
        around.progress(f"start {i + 1} of {settings.repeat}")
        with around.temporary() as folder:
            for name, figure in _once(folder, settings.idle, around.environment):
                found.setdefault(name, []).append(figure)
    bare = found["python, numpy, gRPC"]
    for place, (heading, table) in enumerate(FIGURES.items()):
        for name, each in found.items():
            pairs = [(f[place], b[place]) for f, b in zip(each, bare, strict=True)]
            known = [(value, below) for value, below in pairs if value is not None and below is not None]
            if not known:  # a command that has ended waits for nothing
                continue
            cells: dict[str, Value] = {"": name, heading: Spread.over([value for value, _ in known])}
            if heading != _BURNT:  # a bare python that waits burns nothing
                cells["ratio"] = Spread.ratio(*zip(*known, strict=True))
            yield Row(table, cells)


def _once(
    folder: Path, idle_s: float, environment: Mapping[str, str]
) -> Iterator[tuple[str, tuple[float, float | None, float | None]]]:
    with _started([sys.executable, "-c", BARE], folder / "bare.log", environment) as (begin, child):
        _until(lambda: "ready" in (folder / "bare.log").read_text(), child)
        yield "python, numpy, gRPC", (time.monotonic() - begin, *_waiting(child, idle_s))
    out, run_file, node_file = folder / "out", folder / "run.toml", folder / "node.toml"
    run_file.write_text(ring(2, 100, 100, "plain"), encoding="utf-8")
    for words in (["--version"], ["--help"], ["check", str(run_file)]):
        with _started([*DPGT, *words], folder / "command.log", environment) as (begin, child):
            if child.wait(LIMIT_S):
                raise ChildFailed(f"dpgt {words[0]} failed")
            yield f"dpgt {words[0]}", (time.monotonic() - begin, None, None)
    serve = ["coordinator", "--config", str(run_file), "--listen", "127.0.0.1:0", "--out", str(out), "--insecure"]
    with _started([*DPGT, *serve], folder / "coordinator.log", environment) as (begin, coordinator):
        _until((out / "coordinator.json").exists, coordinator)
        yield "coordinator", (time.monotonic() - begin, *_waiting(coordinator, idle_s))
        address = json.loads((out / "coordinator.json").read_text(encoding="utf-8"))["address"]
        node = NodeConfig("agent-1", run_file, "127.0.0.1:0", None, address, folder / "state", NodeTls(insecure=True))
        node_file.write_text(node_to_toml(node), encoding="utf-8")
        with _started([*DPGT, "node", "--config", str(node_file)], folder / "node.log", environment) as (begin, agent):
            _until(lambda: REGISTERED in (folder / "coordinator.log").read_text(), agent)
            yield "agent", (time.monotonic() - begin, *_waiting(agent, idle_s))


@contextlib.contextmanager
def _started(
    command: list[str], log: Path, environment: Mapping[str, str]
) -> Iterator[tuple[float, subprocess.Popen[bytes]]]:
    """(when, the process), which is ended afterwards; what it says goes to ``log``."""
    with log.open("wb") as said:
        begin = time.monotonic()
        child = subprocess.Popen(command, env=dict(environment), stdin=subprocess.PIPE, stdout=said, stderr=said)
    try:
        yield begin, child
    finally:
        child.kill()
        child.communicate()


def _until(ready: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT_S
    while not ready():
        if child.poll() is not None or time.monotonic() > end:
            raise ChildFailed("a process that was started is not ready")
        time.sleep(LOOK_S)


def _waiting(child: subprocess.Popen[bytes], idle_s: float) -> tuple[float | None, float | None]:
    """(MiB, processor ms a second) over ``idle_s`` seconds; None where the system does not say."""
    before, begin = cpu_s(child.pid), time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(idle_s)
        raise ChildFailed("a process that was to wait has ended")
    after = cpu_s(child.pid)
    burnt = None if before is None or after is None else 1e3 * (after - before) / (time.monotonic() - begin)
    return memory_mib(child.pid), burnt
