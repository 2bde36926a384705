"""kill -9 of real processes at random instants, and what must hold of every run that went through it.

A campaign is a list of plans; a plan is one run (``dpgt launch``, continued by the same command whenever the launcher
itself was killed) and the kills it gets.  Everything follows from a seed except where exactly a kill lands: that is
measured.  ``python -m tests.e2e.kills --help`` runs campaigns by hand.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import math
import os
import random
import re
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import psutil

from dpgt_node import cli
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import method_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig, parse_run
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol.types import LedgerRow, RoundRecord
from dpgt_node.record.metrics import MetricsStore
from dpgt_node.runtime.store.ledger import read_ledger
from dpgt_node.runtime.store.schema import ROUNDS_MAX
from dpgt_node.runtime.store.store import Store
from dpgt_node.sim.simulate import build_agents, build_oracles
from dpgt_node.sim.world import Observer, World
from tests.e2e.processes import Launch
from tests.oracles import dense, states

KEY = "6b696c6c"
HANG_S = 240.0
"""A run that is not over by then hangs: uninterrupted ones take seconds, each restart a few more."""

RUN = """
name = "{name}"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.1
gamma = 0.02
p_m = 1.0
samples = {samples}
[noise]
scale_zeta = 0.1
scale_eta = 0.05
[graph]
{graph}
[data]
{data}
[privacy]
clip_l1 = 40.0
[evaluate]
every = {every}
metrics = "study"
[runtime]
round_timeout = 120
"""
FIVE = """agents = 5
R = [[0,0,0,0,1],[1,0,0,0,0],[1,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]
C = [[0,0,1,0,1],[1,0,0,0,0],[0,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]"""
RING = 'agents = 3\nR = { generator = "ring" }\nC = { generator = "ring" }'


@dataclass(frozen=True)
class Case:
    """One run file.  ``keystream`` None: real entropy, so nothing can be computed beforehand."""

    name: str
    text: str
    keystream: str | None = KEY

    @property
    def run(self) -> RunConfig:
        return parse_run(self.text, self.name, Path("/"))


def _toy(text: str) -> str:
    """Toys have no samples to clip."""
    return text.replace("[privacy]\nclip_l1 = 40.0\n", "").replace("samples = 0\n", "")


DIGITS = Case(
    "digits d=650", RUN.format(name="digits", K=60, samples=55, graph=FIVE, data='dataset = "digits"', every=25)
)
MILLION = Case(
    "quadratic d=1e6",
    _toy(
        RUN.format(
            name="million", K=40, samples=0, graph=RING, data='dataset = "quadratic"\ndimension = 1_000_000', every=20
        )
    ),
)
ATC = Case(
    "digits d=650, atc-dsgd",
    DIGITS.text.replace(FIVE, RING).replace("iterations = 60\n", 'iterations = 60\nmethod = "atc-dsgd"\n'),
)
APART = Case(
    "digits d=650, releases apart",
    DIGITS.text.replace("iterations = 60\n", 'iterations = 60\nmechanism = "noise-once"\n')
    .replace("samples = 55\n", "samples = 55\nreleases = [0, 7, 8, 20, 33, 46]\nsettle = 8\n")
    .replace("[noise]\n", 'first = "class-sums"\nfirst_scale = 0.3\n[noise]\n')
    .replace("scale_eta = 0.05\n", "scale_eta = 0.05\nby_release = [2.0, 0.5, 1.0]\n")
    .replace("clip_l1 = 40.0\n", "clip_l1 = 10.0\nby_release = [4.0, 1.0]\n"),
)
# Real noise: a round that was drawn twice shows only here.  K < 64: every payload is still there at the end.  In
# blocks: agents that are killed take reports with them.
ENTROPY = Case(
    "quadratic d=650, real entropy",
    _toy(
        RUN.format(name="entropy", K=50, samples=0, graph=FIVE, data='dataset = "quadratic"\ndimension = 650', every=25)
    )
    + "barrier_every = 16\n",
    keystream=None,
)
# The quantiser is the only noise: what it drew must be what is sent again.
TERNARY = replace(
    ENTROPY,
    name="quadratic d=650, ternary-dsgd, real entropy",
    text=ENTROPY.text.replace("iterations = 50\n", 'iterations = 50\nmethod = "ternary-dsgd"\n')
    + "[method]\nr = 8.0\n",
)


# --- what is killed, and when ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kill:
    """``role``: an agent's name, "coordinator", "launcher" or "all".  ``after``: the round whose release the poll waits
    for (-1: the processes' start, K: the last one), then ``delay_s`` more.
    """

    role: str
    after: int
    delay_s: float


@dataclass
class Hit:
    """What a kill found: the round that the run was in, and how many processes it ended."""

    case: str
    role: str
    k: int
    processes: int


@dataclass
class Findings:
    """Everything a campaign saw; ``problems`` is empty or the campaign failed."""

    hits: list[Hit] = field(default_factory=list)
    missed: int = 0
    runs: int = 0
    restarts: int = 0
    rows_missing: int = 0
    problems: list[str] = field(default_factory=list)

    def report(self) -> str:
        processes = sum(hit.processes for hit in self.hits)
        lines = [
            f"{self.runs} runs, {len(self.hits)} kills of {processes} processes ({self.missed} more came too late), "
            f"{self.restarts} restarts by launch",
            f"problems: {len(self.problems)}; rows of metrics.csv that a crash lost: {self.rows_missing}",
        ]
        for case in sorted({hit.case for hit in self.hits}):
            hits = [hit for hit in self.hits if hit.case == case]
            roles = collections.Counter(hit.role for hit in hits)
            lines.append(f"{case}: {len(hits)} kills; " + ", ".join(f"{r} {c}" for r, c in sorted(roles.items())))
            rounds = " ".join(str(k) for k in sorted(hit.k for hit in hits))
            lines.append(f"  rounds hit (-1: before the first release): {rounds}")
        return "\n".join([*lines, *self.problems])


def plans(case: Case, kills: int, chance: random.Random, per_run: int) -> Iterator[list[Kill]]:
    """``kills`` kills in runs of at most ``per_run``, every role in turn (in random order)."""
    run = case.run
    roles: list[str] = []
    while kills > 0:
        plan = []
        for _ in range(min(per_run, kills)):
            if not roles:
                roles = [*run.graph.agents, "coordinator", "coordinator", "launcher", "all"]
                chance.shuffle(roles)
            stage = chance.random()
            after = -1 if stage < 0.1 else run.K if stage > 0.9 else chance.randrange(run.K)
            span_s = 2.0 if after == -1 else 0.5 if after == run.K else 0.05
            plan.append(Kill(roles.pop(), after, chance.random() * span_s))
        kills -= len(plan)
        yield sorted(plan, key=lambda kill: kill.after)


# --- one run -----------------------------------------------------------------------------------------------------


def released(state: Path) -> int:
    """The last round that an agent made durable, -1 for none; looks on without disturbing the agent."""
    path = state / "dpgt.sqlite3"
    if not path.exists():
        return -1
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=0.1)) as db,
    ):
        return int(db.execute(f"SELECT coalesce(max(id % {ROUNDS_MAX}), -1) FROM rounds").fetchone()[0])
    return -1


class Victim:
    """A run under fire."""

    def __init__(self, case: Case, folder: Path, findings: Findings) -> None:
        self.case = case
        self.out = folder / "out"
        self.file = folder / "run.toml"
        self.file.write_text(case.text, encoding="utf-8")
        self.names = case.run.graph.agents
        self.findings = findings
        self._stack = contextlib.ExitStack()
        self.launch = self._start()

    def _start(self) -> Launch:
        keystream = () if self.case.keystream is None else ("--test-keystream", self.case.keystream)
        return self._stack.enter_context(Launch(self.out, "launch", self.file, *keystream))

    def state(self, name: str) -> Path:
        return self.out / "agents" / name / "state"

    def go(self, plan: Sequence[Kill]) -> int:
        """Carry out ``plan`` and wait for the end; the exit code.  TimeoutError: it hangs."""
        with self._stack:
            for kill in plan:
                self._await(kill)
                self._kill(kill)
            return self._wait()

    def _await(self, kill: Kill) -> None:
        watched = kill.role if kill.role in self.names else self.names[0]
        started_s = time.monotonic()
        end_s = started_s + HANG_S
        while kill.after >= 0 and released(self.state(watched)) < kill.after and self.launch.process.poll() is None:
            if time.monotonic() > end_s:
                raise TimeoutError(f"round {kill.after} never came")
            time.sleep(0.003)
        time.sleep(kill.delay_s)

    def _kill(self, kill: Kill) -> None:
        if self.launch.process.poll() is not None:
            self.findings.missed += 1
            return
        end_s = time.monotonic() + HANG_S
        while not (processes := self._processes(kill.role)) and self.launch.process.poll() is None:
            if time.monotonic() > end_s:
                raise TimeoutError(f"{kill.role} never came")
            time.sleep(0.01)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        if not processes:
            self.findings.missed += 1
            return
        k = max(released(self.state(n)) for n in ([kill.role] if kill.role in self.names else self.names))
        self.findings.hits.append(Hit(self.case.name, kill.role, k, len(processes)))
        if kill.role in ("launcher", "all"):
            self.launch.process.wait(HANG_S)
            self.launch = self._start()  # at once: children of the killed one may still be dying

    def _processes(self, role: str) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ValueError):
            launcher = psutil.Process(self.launch.process.pid)
            if role == "launcher":
                return [launcher]
            children = launcher.children()
            if role == "all":
                return [launcher, *children]
            return [c for c in children if _is(c, role)]
        return []

    def _wait(self) -> int:
        try:
            return self.launch.process.wait(HANG_S)
        except Exception as error:
            raise TimeoutError(f"it hangs: {error}") from error


def _is(process: psutil.Process, role: str) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        line = process.cmdline()
        return "coordinator" in line if role == "coordinator" else any(f"/agents/{role}/" in word for word in line)
    return False


# --- what must hold ----------------------------------------------------------------------------------------------


@cache
def truth(case: Case) -> tuple[dict[str, list[LedgerRow]], dict[str, bytes]]:
    """Ledger rows and x_final of the run that nothing happened to, by name: from the simulator, and its verb."""
    run = case.run
    rows: dict[str, list[LedgerRow]] = {name: [] for name in run.graph.agents}

    def persisted(i: int, record: RoundRecord) -> None:
        # Whoever knows the test keystream's key can take the noise away: a ledger charges it as no noise at all.
        charged = (replace(row, cost=dict.fromkeys(row.cost, math.inf)) for row in record.rows)
        rows[run.graph.agents[i]].extend(charged)

    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    agents = build_agents(run, topology, schedule, build_oracles(run, None), case.keystream)
    World(run.graph.agents, agents, run.K, observer=Observer(persisted=persisted)).run()
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "run.toml", Path(folder) / "out"
        file.write_text(case.text, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()):
            code = cli.run(["simulate", str(file), "--out", str(out), "--test-keystream", str(case.keystream)])
        assert code == 0
        finals = {n: np.load(out / "agents" / n / "state" / "x_final.npy").tobytes() for n in run.graph.agents}
    return rows, finals


BROKEN = re.compile(
    r"Traceback|this is a bug|two different vectors|refused a vector|drawn once|durable already|old state directory"
    r"|older than the run|was destroyed|never retrieved"
)


def check(victim: Victim, code: int) -> list[str]:
    """Everything that is wrong with a run that has ended."""
    case, out, run = victim.case, victim.out, victim.case.run
    found = []
    said = victim.launch.everything_said()
    finished = "holds this run, finished" in victim.launch.said  # the launcher was killed when all was done
    if code != 0 and not finished:
        return [f"exit code {code}: {said[-3000:]}"]
    found += [f"said: {line}" for line in said.splitlines() if BROKEN.search(line)]
    charged, sent = MECHANISMS[run.algorithm.mechanism].charged, len(method_of(run).streams) * (run.K + 1)
    rounds = [(k, stream) for k in Schedule.from_config(run).releases for stream in charged]
    for name in victim.names:
        entries = read_ledger(victim.state(name)).entries  # verifies the chain
        rows = [entry.row for entry in entries]
        if [(row.k, row.stream) for row in rows] != rounds:
            found.append(f"{name}: the ledger is not one row a release: {[(r.k, r.stream) for r in rows]}")
        for accountant in rows[0].cost:
            costs = [row.cost[accountant] for row in rows if row.cost[accountant] is not None]
            if costs != sorted(costs):
                found.append(f"{name}: the cost under {accountant} falls")
        store = Store(victim.state(name), "process")
        with contextlib.closing(store):
            (info,) = store.runs()
            if not info.finished or store.releases(info.run_id) != sent:
                found.append(f"{name}: {store.releases(info.run_id)} releases, finished: {info.finished}")
        x = np.load(victim.state(name) / "x_final.npy")
        if x.tobytes() != np.load(out / "agents" / name / "x_final.npy").tobytes():
            found.append(f"{name}: the coordinator's copy of x_final differs")
        if case.keystream is not None:
            expected_rows, finals = truth(case)
            if rows != expected_rows[name]:  # payload hashes and costs of every round
                found.append(f"{name}: the ledger differs from that of the uninterrupted run")
            if x.tobytes() != finals[name]:
                found.append(f"{name}: x_final differs from `dpgt simulate`")
    if case.keystream is None:
        found += _explained(victim)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    if summary["status"] != "finished" or [a["releases"] for a in summary["agents"]] != [sent] * run.n:
        found.append(f"summary.json: {summary['status']}, {[a['releases'] for a in summary['agents']]} releases")
    victim.findings.restarts += sum(summary["restarts"].values())
    if not (out / "report.html").exists() or (out / ".closing").exists():
        found.append("the report is missing, or the end was not closed")
    lines = (out / "metrics.csv").read_text(encoding="utf-8").splitlines()[1:]
    keys = [tuple(line.split(",")[:2]) for line in lines]
    if len(set(keys)) != len(keys):
        found.append("metrics.csv holds a row twice")
    every = [*range(0, run.K + 1, run.evaluate.every), run.K + 1]
    victim.findings.rows_missing += run.n * len(every) - len(MetricsStore.read(out))
    return found


def perturbed(state: Path) -> np.ndarray:
    """Every g~_k of the one run in a state directory, while it has them: (K + 1, d)."""
    with contextlib.closing(sqlite3.connect(state / "dpgt.sqlite3")) as db:
        return np.array([np.frombuffer(g) for (g,) in db.execute("SELECT g_data FROM payloads ORDER BY id")])


def _explained(victim: Victim) -> list[str]:
    """The senders' stored releases explain the receivers' results: nobody mixed bytes that are not in the ledger."""
    run = victim.case.run
    shape = (run.K + 1, run.n, 650)
    x_breve, y_breve, drawn = np.empty(shape), np.empty(shape), np.empty(shape)
    once = MECHANISMS[run.algorithm.mechanism].accounted.once  # then y follows the perturbed gradients
    for i, name in enumerate(victim.names):
        with contextlib.closing(Store(victim.state(name), "process")) as store:
            (info,) = store.runs()
            for k in range(run.K + 1):
                sent = store.payloads(info.run_id, k)
                x_breve[k, i], y_breve[k, i] = sent[0].array(), sent[-1].array()
        if once:
            drawn[:, i] = perturbed(victim.state(name))
    topology, schedule, start = Topology.from_config(run.graph), Schedule.from_config(run), np.zeros((run.n, 650))
    if method_of(run).streams == ("X",):
        alpha, beta, gamma = ([step] * (run.K + 1) for step in (schedule.alpha, schedule.beta, schedule.gamma))
        steps, goals = states.Steps(alpha, beta, gamma), np.arange(1.0, run.n + 1)[:, None]
        finals = states.state_form(run.graph.R, steps, start, lambda k, x: x - goals, list(x_breve), False)[-1]
    else:
        finals = dense.algorithm1_released(
            run.graph.R, run.graph.C, schedule.alpha, schedule.beta, schedule.gamma,
            start, lambda i, k, x: drawn[min(k, run.K), i] if once else x - (i + 1), x_breve, y_breve,
        ).x[-1]  # fmt: skip
    assert topology.names == victim.names
    found = []
    for i, name in enumerate(victim.names):
        error = np.abs(finals[i] - np.load(victim.state(name) / "x_final.npy")).max()
        if error > 1e-9:
            found.append(f"{name}: what was stored does not explain x_final, off by {error:g}")
    return found


def campaign(
    case: Case, kills: int, seed: int, folder: Path, findings: Findings, *, per_run: int = 3, keep: bool = False
) -> None:
    """Add to ``findings``; one folder a run, removed unless something is wrong with it."""
    chance = random.Random(f"{seed} {case.name}")
    for number, plan in enumerate(plans(case, kills, chance, per_run)):
        where = folder / f"{case.name.split()[0]}-{len(findings.hits)}-{number}"
        where.mkdir(parents=True)
        findings.runs += 1
        victim = Victim(case, where, findings)
        try:
            problems = check(victim, victim.go(plan))
        except TimeoutError as error:
            problems = [f"hang: {error}: {victim.launch.everything_said()[-3000:]}"]
        findings.problems += [f"{case.name}, seed {seed}, {plan}, {where}: {problem}" for problem in problems]
        if not problems and not keep:
            _remove(where)


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()


def main() -> int:
    """One campaign by hand."""
    cases = {"digits": DIGITS, "million": MILLION, "entropy": ENTROPY}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=cases, action="append", required=True)
    parser.add_argument("--kills", type=int, default=20, help="of each case")
    parser.add_argument("--per-run", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    findings = Findings()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="dpgt-kills-"))
    for name in options.case:
        campaign(cases[name], options.kills, options.seed, folder, findings, per_run=options.per_run)
        print(findings.report(), flush=True)
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
