"""Processes of their own for what is measured, and what the system says about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from dpgt_node.errors import DpgtError, ExitCode
from dpgt_node.values import dataclass

DPGT = (sys.executable, "-m", "dpgt_node")
_TICKS = os.sysconf("SC_CLK_TCK")


class ChildFailed(DpgtError):
    """A process that a measurement started did not do what it was started for."""

    exit_code = ExitCode.CHECK_FAILED


def run_dpgt(environment: Mapping[str, str], *arguments: object, expect: int | None = 0) -> str:
    """What ``dpgt ARGUMENTS`` prints.  ChildFailed with its last line unless it exits with ``expect`` (None: any)."""
    return _run(environment, [*DPGT, *map(str, arguments)], expect)


def fresh(environment: Mapping[str, str], module: str, **arguments: Any) -> Any:
    """What ``python -m dpgt_node.bench.MODULE JSON`` prints as JSON: a measurement in a process of its own."""
    return json.loads(_run(environment, [sys.executable, "-m", f"dpgt_node.bench.{module}", json.dumps(arguments)], 0))


def side_by_side(module: str, each: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What ``python -m dpgt_node.bench.MODULE JSON`` prints as JSON, of processes that run at the same time.

    ``each``: the arguments of one.  ChildFailed: one of them did not finish.
    """
    command = [sys.executable, "-m", f"dpgt_node.bench.{module}"]
    children = [
        subprocess.Popen([*command, json.dumps(arguments)], stdout=subprocess.PIPE, text=True) for arguments in each
    ]
    try:
        said = [child.communicate()[0] for child in children]
    finally:
        for child in children:
            child.kill()
    if any(child.returncode for child in children):
        raise ChildFailed(f"a process of {module} did not finish")
    return [json.loads(text) for text in said]


def _run(environment: Mapping[str, str], command: list[str], expect: int | None) -> str:
    done = subprocess.run(command, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if expect is not None and done.returncode != expect:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ChildFailed(f"{' '.join(command[2:5])}: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout


def cpu_s(pid: int) -> float | None:
    """Processor seconds of a process so far; None where the system does not say, or when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mib(pid: int) -> float | None:
    """Resident memory of a process, MiB; None where the system does not say, or when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), None)


@dataclass(slots=True)
class LaunchWatch:
    """Processor time of the processes of a launch into ``out``, looked at now and then."""

    out: Path
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    begun_s: float | None = None

    def look(self) -> None:
        now_s = time.monotonic()
        if self.begun_s is None:
            log = self.out / "coordinator.log"
            if not log.exists() or "; rounds 0.." not in log.read_text(encoding="utf-8"):
                return
            self.begun_s = now_s
        found = {name: cpu_s(pid) for name, pid in self._pids().items()}
        self.samples.append((now_s, {name: used for name, used in found.items() if used is not None}))

    def _pids(self) -> dict[str, int]:
        pids = {path.parent.name: int(path.read_text()) for path in self.out.glob("agents/*/node.pid")}
        address = self.out / "coordinator.json"
        if address.exists():
            pids["coordinator"] = int(json.loads(address.read_text(encoding="utf-8"))["pid"])
        return pids

    def busy(self, seconds: float) -> dict[str, float] | None:
        """Processor seconds a second of each process while the rounds, which took ``seconds``, were made.

        None: they were over before anything could be seen.
        """
        if self.begun_s is None:
            return None
        inside = [sample for sample in self.samples if sample[0] <= self.begun_s + 0.95 * seconds]
        if len(inside) < 2:
            return None
        (first_s, first), (last_s, last) = inside[0], inside[-1]
        return {name: (last[name] - first[name]) / (last_s - first_s) for name in first.keys() & last.keys()}


def watched_launch(environment: Mapping[str, str], run_file: Path, out: Path, every_s: float = 0.1) -> LaunchWatch:
    """Launch ``run_file`` into ``out`` and watch its processes.  ChildFailed: it did not finish."""
    watch = LaunchWatch(out)
    with subprocess.Popen(
        [*DPGT, "launch", str(run_file), "--out", str(out)],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        while True:
            try:
                _, said = child.communicate(timeout=every_s)
                break
            except subprocess.TimeoutExpired:
                watch.look()
    if child.returncode != 0:
        raise ChildFailed(f"launch {run_file.name}: {(said.strip().splitlines() or ['no word'])[-1]}")
    return watch
