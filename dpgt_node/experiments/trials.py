"""Trials of an audit: who is in which world, what was kept on disk, and what they prove."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from dpgt_node import figures
from dpgt_node.adversary.audit.bounds import Bound, Measure, guess_bound, threshold_bound
from dpgt_node.adversary.audit.canaries import Mask
from dpgt_node.adversary.audit.divergence import renyi_bound
from dpgt_node.adversary.audit.events import Places, event_bound
from dpgt_node.adversary.audit.report import Audit
from dpgt_node.adversary.audit.witness import LITTLE, Claim, Verdict
from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

Test = Literal["threshold", "guess", "event", "renyi"]
PRESUME_NOTHING: frozenset[Test] = frozenset({"event", "renyi"})
"""Tests of positions, which presume no law."""
FILE = "trials.jsonl"
AFFORDABLE = 20_000
"""Rounds of agents that the runs may take together where no number of trials is named: some twenty seconds."""
LAWLESS: dict[bool, dict[str, str]] = {False: {}, True: {"statistic": "position"}}
"""What the settings of trials say of their numbers."""


@dataclass(frozen=True, slots=True)
class Trial:
    """``T`` of every canary of one run (or, where events are learnt, its position), and how many of its noised vectors
    were foreign to the run file's sampler.
    """

    run: int
    T: list[float]
    foreign: int


def present(count: int, r: int) -> Mask:
    """Which of ``count`` canaries of run ``r`` are in the world D': every other one, by turns."""
    return np.asarray((r + np.arange(count)) % 2 == 1)


def runs_for(count: int, n: int) -> int:
    """The least number of runs of ``count`` canaries with ``n`` trials in each world."""
    runs = 2 * (n // count)
    while (runs // 2) * count + (runs % 2) * (count // 2) < n:
        runs += 1
    return runs


def affordable(count: int, rounds: int, n: int) -> int:
    """Trials a world, at most ``n`` and at least 4, whose runs, of ``count`` canaries and ``rounds`` rounds of agents
    each, have no more than :data:`AFFORDABLE` of these.
    """
    runs = AFFORDABLE // rounds
    return min(n, max(4, runs // 2 * count + runs % 2 * (count // 2)))


def left_out(count: int, rounds: int, n: int, wanted: int) -> str:
    """Why ``n`` trials a world were made and not ``wanted``; empty where it is as many."""
    if n >= wanted:
        return ""
    total = runs_for(count, wanted) * rounds
    return (
        f"{n} trials a world, not {wanted}: these have {total} rounds, and more than {AFFORDABLE} take long. --runs "
        f"{wanted} makes them all."
    )


class Trials:
    """Trials by run, ``count`` a run, in ``folder`` (None: in memory), a line a run.

    What a crash cut off is done again.  ``settings``: what all trials of one file have in common.
    """

    def __init__(self, settings: dict[str, Any], count: int, folder: Path | None) -> None:
        """ConfigError where the folder holds trials of something else."""
        self._settings, self._count, self._path = settings, count, None if folder is None else folder / FILE
        self.done: dict[int, list[float]] = {}
        self.foreign = 0
        if self._path is not None:
            self._open(self._path)

    def add(self, trial: Trial) -> None:
        self.done[trial.run] = trial.T
        self.foreign += trial.foreign
        if self._path is not None:
            self._append(self._path, asdict(trial))

    def missing(self, n: int) -> list[int]:
        """Runs that ``n`` trials in each world still lack."""
        return [r for r in range(runs_for(self._count, n)) if r not in self.done]

    def worlds(self, n: int) -> tuple[F64, F64]:
        """T of ``n`` trials in D and in D', in the order of runs."""
        runs = range(runs_for(self._count, n))
        T = np.array([self.done[r] for r in runs])
        inside = np.array([present(self._count, r) for r in runs])
        return T[~inside][:n], T[inside][:n]

    def canaries(self, n: int) -> tuple[I64, I64]:
        """Which canary each of these trials is of."""
        runs = range(runs_for(self._count, n))
        which = np.broadcast_to(np.arange(self._count), (len(runs), self._count))
        inside = np.array([present(self._count, r) for r in runs])
        return which[~inside][:n], which[inside][:n]

    def _open(self, path: Path) -> None:
        settings = self._settings
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                self._append(path, settings)
                return
            *lines, rest = path.read_bytes().split(b"\n")
            kept = [json.loads(line) for line in lines]
        except (OSError, ValueError) as error:
            raise ConfigError.one("command line", "--resume", f"{path} cannot be read: {error}") from error
        wanted = json.loads(json.dumps(settings))
        found = kept[0] if kept and isinstance(kept[0], dict) else {}
        if found != wanted and found | {"statistic": ""} == wanted | {"statistic": ""}:
            tests = "event and renyi" if "statistic" in found else "threshold and guess"
            message = f"{path} holds trials of --test {tests}: name one of them, or take another folder"
            raise ConfigError.one("command line", "--resume", message)
        if not kept or kept[0] != wanted:
            raise ConfigError.one(
                "command line", "--resume", f"{path} holds trials of another run, agent or canary: take another folder"
            )
        if rest:  # the line that a crash cut short
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size - len(rest))
        for line in kept[1:]:
            self.done[int(line["run"])] = [float(value) for value in line["T"]]
            self.foreign += int(line["foreign"])

    @staticmethod
    def _append(path: Path, line: dict[str, Any]) -> None:
        with path.open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


# ---------------------------------------------------------------- what trials prove
class Claiming(Protocol):
    """Who claims an epsilon by accountant: an account, or what is left of it towards some."""

    def epsilon_after(self, k: int) -> dict[str, float | None]:
        """Of rounds 0..``k``."""
        ...


def judge(
    run: RunConfig,
    agent: str,
    account: Claiming,
    worlds: tuple[F64, F64],
    *,
    vantage: str,
    notes: tuple[str, ...],
    test: Test = "threshold",
    confidence: float = 0.95,
    foreign: int = 0,
    runs: int = 1,
    canaries: tuple[I64, I64] | None = None,
) -> Audit:
    """Every claim of ``account``, of ``agent``, against the trials in D and in D', which ``runs`` runs carried.

    ``canaries``: which one each trial is of, where events are learnt.
    """
    (absent, present), delta, claims, bounds = worlds, run.privacy.delta, [], {}
    for accountant, claimed in account.epsilon_after(run.K).items():
        if claimed is None:
            continue
        realised, bound = lower_bound(
            accountant, absent, present, delta=delta, test=test, confidence=confidence, canaries=canaries
        )
        refuted = realised > claimed * (1.0 + 1e-9)
        verdict: Verdict = "refuted" if refuted else "no power" if realised < LITTLE * claimed else "not refuted"
        note = ""
        if verdict == "no power":
            most = figures.number(realised)
            note = f"{len(absent)} canary trials a world show {most} at most: this audit could not have told"
        claims.append(Claim(run.algorithm.mechanism, accountant, claimed, realised, refuted, verdict, note=note))
        bounds[accountant] = bound
    if foreign:
        notes = (*notes, f"{foreign} noised vectors lie on no grid of the run file's noise: that is not its sampler.")
    return Audit(
        agent,
        vantage,
        tuple(claims),
        float(max(np.abs(absent).max(), np.abs(present).max())),
        len(absent),
        confidence,
        bounds,
        notes,
        runs,
    )


def lower_bound(
    accountant: str,
    absent: F64,
    present: F64,
    *,
    delta: float,
    test: Test = "threshold",
    confidence: float = 0.95,
    canaries: tuple[I64, I64] | None = None,
) -> tuple[float, Bound]:
    """(epsilon of the accountant's own kind, at its delta, that the trials prove; how).

    Of a quantiser alone it is a delta.
    """
    one = ACCOUNTANTS[accountant]
    approximate = one.guarantee == "approximate"
    measure: Measure = "epsilon" if one.guarantee == "approximate" else one.guarantee
    spare = delta if approximate else 0.0
    if canaries is not None:
        here, there = Places(absent, canaries[0]), Places(present, canaries[1])
        if test == "renyi" and not approximate and measure != "total-variation":
            bound = renyi_bound(here, there, measure=measure, confidence=confidence)
        else:  # no Renyi divergence proves a delta
            bound = event_bound(here, there, measure=measure, delta=spare, confidence=confidence)
    elif test == "guess" and not approximate and (measure == "epsilon" or measure == "mu"):
        bound = guess_bound(absent, present, measure=measure, confidence=confidence)
    else:  # no guess proves a rho, a total variation, or an epsilon with its delta
        bound = threshold_bound(absent, present, measure=measure, delta=spare, confidence=confidence)
    return one.epsilon_of(bound.value, delta), bound
