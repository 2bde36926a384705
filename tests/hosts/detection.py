"""How long until the coordinator names what is wrong: on hosts of their own, each kind of loss done for real.

    python -m tests.hosts.detection [--round-timeout 15] [--only killed,stopped,...]    (root)

Three agents on a ring (2 sends to 3, 3 to 1, 1 to 2), mTLS by host name, each on a host of tests/hosts/lab.py.  T is
``round_timeout``, h the heartbeat, min(2 s, T / 8); p is gRPC's keepalive, max(10 s, (T + 5 s) / 2): a ping after 5 s,
and its answer, which may stand behind a vector.
``named`` is the first line about it in the coordinator's log, ``lost`` the one after which ``on_agent_loss`` decides.

    killed      SIGKILL of agent-2
    power off   its host is gone without a word
    stopped     SIGSTOP
    coordinator cut    every frame between agent-2 and the coordinator is dropped
    agents cut  every frame between agent-2 and agent-3 is dropped
    one-way cut every frame from agent-2 to agent-3 is dropped, and none from 3 to 2
    hung loop   agent-2's gradient does not return, on the event loop (d = 3)
    slow        agent-2's gradient does not return, in its thread (d = 10,000): alive, so never lost
    stop        SIGKILL under on_agent_loss = stop: until the other agents have ended, exit code 6

Prints a table; exit 1 when a time is over its bound.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dpgt_node.bench.speed.ring import ring
from tests.e2e import processes
from tests.hosts.deployment import Deployment
from tests.hosts.lab import Lab

AGENTS = ("agent-1", "agent-2", "agent-3")
SLACK_S = 1.0
"""For the machine: threads to be scheduled, a log to be written and read."""
LIMIT_S = 120.0
FOR_EVER = 1_000_001
# The daemon itself, but for a gradient that waits while the file is there.
HANGING = """
import os, sys, time
from dpgt_node import cli
from dpgt_node.learning.toys import Quadratic
plain = Quadratic.gradient
def gradient(self, x, batch):
    while os.path.exists("/mnt/hang"):
        time.sleep(0.05)
    return plain(self, x, batch)
Quadratic.gradient = gradient
sys.exit(cli.run(sys.argv[1:]))
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of loss; ``named`` and ``lost``: the lines, and bounds in seconds of (T, h)."""

    name: str
    named: str
    named_bound: Callable[[float, float], float]
    formula: str
    lost: str | None = None
    dimension: int = 3


AWAY = r"agent-2 left in round \d+ and has been away for"
SILENT = r"agent-2 gave no sign of life for"
CUT = r"agent-2 cannot reach agent-3"
LEFT = "agent-2 left at round"


def keepalive(T: float) -> float:
    return max(10.0, (T + 5.0) / 2)


def ping(T: float, h: float) -> float:
    return min(keepalive(T), T)


def edge(T: float, h: float) -> float:
    return min(keepalive(T) + 4 * h, T + 2 * h)


PING, EDGE = "min(p, T)", "min(p + 4 h, T + 2 h)"
KINDS = (
    Kind("killed", LEFT, lambda T, h: 0.0, "at once", AWAY),
    Kind("power off", f"{LEFT}|{SILENT}", ping, PING, f"{AWAY}|{SILENT}"),
    Kind("stopped", f"{LEFT}|{SILENT}", ping, PING, f"{AWAY}|{SILENT}"),
    Kind("coordinator cut", f"{LEFT}|{SILENT}", ping, PING, f"{AWAY}|{SILENT}"),
    Kind("agents cut", CUT, edge, EDGE),
    Kind("one-way cut", CUT, edge, EDGE),
    Kind("hung loop", SILENT, lambda T, h: T, "T", SILENT),
    Kind("slow", r"round \d+ has waited .* for agent-2: alive", lambda T, h: T + h, "T + h", None, 10_000),
)


class Bench:
    """One deployment under ``wait``; every fault is undone, and rounds go on, before the next."""

    def __init__(self, lab: Lab, folder: Path, timeout_s: float, dimension: int, on_loss: str) -> None:
        run_file = folder / "run.toml"
        runtime = f'round_timeout = {timeout_s}\non_agent_loss = "{on_loss}"\n'
        run_file.write_text(ring(3, dimension, FOR_EVER) + runtime, encoding="utf-8")
        self.lab = lab
        self.run = Deployment(lab, run_file, folder, AGENTS, study=False)

    def begin(self) -> None:
        for name in ("coordinator", "agent-1", "agent-3"):
            self.run.start(name)
        self.start_2()
        self.goes_on()

    def start_2(self) -> None:
        words = ("node", "--config", "agent-2/NODE.toml")
        self.run.daemons["agent-2"] = self.lab["agent-2"].start("agent-2", sys.executable, "-c", HANGING, *words)

    def goes_on(self) -> None:
        """Wait until agent-1 makes rounds (again)."""
        k = self.run.released("agent-1")
        wait("rounds go on", lambda: self.run.released("agent-1") > k + 5)

    def log_lines(self) -> list[str]:
        return self.run.daemons["coordinator"].said.splitlines()

    def until(self, since: float, pattern: str, after: int) -> float:
        """Seconds from ``since`` until a line of the coordinator's log beyond the ``after``-th matches."""
        wait(pattern, lambda: any(re.search(pattern, line) for line in self.log_lines()[after:]))
        return time.monotonic() - since

    def inflict(self, name: str) -> Callable[[], None]:
        """Do it; the answer undoes it."""
        lab, host, daemon = self.lab, self.lab["agent-2"], self.run.daemons["agent-2"]
        match name:
            case "killed" | "stop":
                daemon.kill()
                return self.start_2
            case "power off":
                host.unplug()  # first, so that the dying process cannot say goodbye
                host.power_off()

                def back() -> None:
                    host.power_on()
                    self.start_2()

                return back
            case "stopped":
                daemon.signal(signal.SIGSTOP)
                return lambda: daemon.signal(signal.SIGCONT)
            case "hung loop" | "slow":
                (host.folder / "hang").touch()
                return (host.folder / "hang").unlink
            case "coordinator cut":
                lab.cut("agent-2", "coordinator")
            case "agents cut":
                lab.cut("agent-2", "agent-3")
            case "one-way cut":
                lab.cut("agent-2", "agent-3", one_way=True)
            case _:
                raise AssertionError(name)
        return lab.heal


def wait(what: str, probe: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not probe():
        assert time.monotonic() < end, f"it never came about: {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def bench_of(timeout_s: float, dimension: int, on_loss: str) -> Iterator[Bench]:
    with (
        tempfile.TemporaryDirectory() as name,
        Lab(Path(name) / "lab", ["coordinator", *AGENTS], processes.environment()) as lab,
    ):
        bench = Bench(lab, Path(name), timeout_s, dimension, on_loss)
        try:
            bench.begin()
            yield bench
        except BaseException:
            print(bench.run.everything_said()[-8000:], file=sys.stderr)
            raise


Row = tuple[str, float, float, str, float | None, float | None]


def measure(timeout_s: float, only: frozenset[str]) -> list[Row]:
    """(kind, named after, bound, formula, lost after, bound) for each kind, seconds."""
    h = min(2.0, timeout_s / 8)
    rows: list[Row] = []
    for dimension in sorted({kind.dimension for kind in KINDS if kind.name in only}):
        with bench_of(timeout_s, dimension, "wait") as bench:
            for kind in (k for k in KINDS if k.name in only and k.dimension == dimension):
                lines, since = len(bench.log_lines()), time.monotonic()
                undo = bench.inflict(kind.name)
                named = bench.until(since, kind.named, lines)
                lost = None if kind.lost is None else bench.until(since, kind.lost, lines)
                undo()
                bench.goes_on()
                bound = kind.named_bound(timeout_s, h)
                rows.append((kind.name, named, bound, kind.formula, lost, None if lost is None else timeout_s))
    if "stop" in only:
        with bench_of(timeout_s, 3, "stop") as bench:
            since = time.monotonic()
            bench.inflict("stop")
            codes = [bench.run.daemons[name].wait(LIMIT_S) for name in ("agent-1", "agent-3")]
            rows.append(("stop", time.monotonic() - since, timeout_s + 4.0, "T + 4 s", None, None))
            codes.append(bench.run.daemons["coordinator"].wait(LIMIT_S))  # it draws the report first
            assert codes == [6, 6, 6], bench.run.everything_said()
    return rows


def main() -> int:
    names = [kind.name for kind in KINDS] + ["stop"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-timeout", type=float, default=15.0)
    parser.add_argument("--only", default=",".join(names))
    options = parser.parse_args()
    late = False
    print(f"T = {options.round_timeout:g} s, load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{'':16}  named    bound  {'':26}   lost    bound T", flush=True)
    rows = measure(options.round_timeout, frozenset(options.only.split(",")))
    for kind, named, bound, formula, lost, lost_bound in rows:
        over = named > bound + SLACK_S or (lost is not None and lost_bound is not None and lost > lost_bound + SLACK_S)
        late |= over
        print(
            f"{kind:16} {named:6.2f}   {bound:6.2f}  {formula:26}"
            + ("" if lost is None else f" {lost:6.2f}   {lost_bound:6.2f}")
            + ("   OVER ITS BOUND" if over else "")
        )
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
