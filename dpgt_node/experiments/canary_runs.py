"""Repeated runs with canaries through the daemons' release path, in parallel, resumable, and what they prove."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpgt_node.adversary.audit.bounds import Bound, guess_bound, threshold_bound
from dpgt_node.adversary.audit.canaries import Canaries, Mask
from dpgt_node.adversary.audit.replay import Replay
from dpgt_node.adversary.audit.report import Audit
from dpgt_node.adversary.audit.witness import LITTLE, Claim, Verdict
from dpgt_node.adversary.observation import Facts
from dpgt_node.agent.noise import account_for, sampler_for
from dpgt_node.config import RunConfig, run_sha256
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountant import AgentAccount
from dpgt_node.privacy.accountants.concentrated import zcdp_epsilon
from dpgt_node.privacy.accountants.gaussian import gdp_epsilon
from dpgt_node.privacy.noise import Sampler
from dpgt_node.protocol.types import F64, I64
from dpgt_node.sim.scripted import Alone, ScriptedOracle
from dpgt_node.sim.simulate import keystream_for

Test = Literal["threshold", "guess"]
FILE = "trials.jsonl"


@dataclass(frozen=True, slots=True)
class Trial:
    """``T`` of every canary of one run, and how many of its noised vectors were foreign to the run file's sampler."""

    run: int
    T: list[float]
    foreign: int


@dataclass(frozen=True, slots=True)
class Campaign:
    """Agent ``index`` of ``run`` with ``canaries`` for data.  A canary of a run is one trial in one world.

    ``test_keystream``: fixed bytes, for tests.  ``sampler``: the one under audit.
    """

    run: RunConfig
    index: int
    canaries: Canaries
    test_keystream: str | None = None
    sampler: Callable[[RunConfig], Sampler] = field(default=sampler_for)

    @classmethod
    def of(
        cls,
        run: RunConfig,
        index: int,
        *,
        dimension: int,
        samples: int | None,
        count: int | None = None,
        stacked: bool | None = None,
        test_keystream: str | None = None,
        sampler: Callable[[RunConfig], Sampler] = sampler_for,
    ) -> Campaign:
        """``dimension`` d, ``samples`` D (None: m).  ConfigError where the run claims nothing to test."""
        schedule = Facts.of(run).schedule
        if not schedule.noisy:
            raise ConfigError.one(
                "run file", "noise.multiplier", "the noise is off: nothing is claimed, nothing to audit"
            )
        C = 2.0 * run.privacy.clip_l2 if run.privacy.clip_l2 is not None else run.privacy.adjacency
        if C is None:
            raise ConfigError.one("run file", "privacy", "no adjacency constant: set clip_l1, clip_l2 or C")
        m = schedule.m_for(samples)
        canaries = Canaries.plan(
            mechanism=run.algorithm.mechanism,
            law=run.noise.law,
            K=run.K,
            dimension=dimension,
            samples=m if samples is None else samples,
            m=m,
            C=C,
            count=count,
            stacked=stacked,
        )
        return cls(run, index, canaries, test_keystream, sampler)

    def present(self, r: int) -> Mask:
        """Which canaries of run ``r`` are in the world D': every other one, by turns."""
        return np.asarray((r + np.arange(self.canaries.count)) % 2 == 1)

    def runs_for(self, n: int) -> int:
        """The least number of runs with ``n`` trials in each world."""
        count = self.canaries.count
        runs = 2 * (n // count)
        while (runs // 2) * count + (runs % 2) * (count // 2) < n:
            runs += 1
        return runs

    def account(self) -> AgentAccount:
        """The agent's, with the canaries for data."""
        facts, c = Facts.of(self.run), self.canaries
        return account_for(self.run, facts.topology, facts.schedule, self.index, c.samples, c.dimension)

    def trials(self, runs: Iterable[int]) -> Iterator[Trial]:
        """Make these runs."""
        c, facts, start = self.canaries, Facts.of(self.run), np.zeros(self.canaries.dimension)
        signs = np.empty(c.count)

        def script(k: int, x: F64, batch: I64) -> F64:
            return c.gradient(k, c.drawn(batch, signs))

        oracle = ScriptedOracle(c.dimension, c.samples, script)
        agent = Alone(self.run, self.index, oracle, self.sampler(self.run))
        for r in runs:
            signs[:] = np.where(self.present(r), 1.0, -1.0)
            key = None if self.test_keystream is None else f"{self.test_keystream}{r:08x}"
            vectors = agent.play(keystream_for(key, self.index))
            T, foreign = c.ratios(Replay(facts, self.index, start, vectors, agent.wire_dtype))
            yield Trial(r, T.tolist(), foreign)

    def settings(self) -> dict[str, Any]:
        """What trials of one file have in common."""
        return {
            "format": 1,
            "run": run_sha256(self.run),
            "agent": self.run.graph.agents[self.index],
            "canaries": asdict(self.canaries),
            "keystream": "system" if self.test_keystream is None else self.test_keystream,
        }


class Trials:
    """Trials by run, in ``folder`` (None: in memory), one line a run; what a crash cut off is done again."""

    def __init__(self, campaign: Campaign, folder: Path | None) -> None:
        """ConfigError where the folder holds trials of something else."""
        self._campaign, self._path = campaign, None if folder is None else folder / FILE
        self.done: dict[int, list[float]] = {}
        self.foreign = 0
        if self._path is not None:
            self._open(self._path)

    def add(self, trial: Trial) -> None:
        """Keep it."""
        self.done[trial.run] = trial.T
        self.foreign += trial.foreign
        if self._path is not None:
            self._append(self._path, asdict(trial))

    def worlds(self, n: int) -> tuple[F64, F64]:
        """T of ``n`` trials in D and in D', in the order of runs."""
        runs = range(self._campaign.runs_for(n))
        T = np.array([self.done[r] for r in runs])
        present = np.array([self._campaign.present(r) for r in runs])
        return T[~present][:n], T[present][:n]

    def _open(self, path: Path) -> None:
        settings = self._campaign.settings()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                self._append(path, settings)
                return
            *lines, rest = path.read_bytes().split(b"\n")
            kept = [json.loads(line) for line in lines]
        except (OSError, ValueError) as error:
            raise ConfigError.one("command line", "--resume", f"{path} cannot be read: {error}") from error
        if not kept or kept[0] != json.loads(json.dumps(settings)):
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


def conduct(campaign: Campaign, trials: Trials, n: int, *, jobs: int = 1) -> None:
    """Make what ``n`` trials in each world still lack."""
    missing = [r for r in range(campaign.runs_for(n)) if r not in trials.done]
    if jobs <= 1 or len(missing) <= 1:
        for trial in campaign.trials(missing):
            trials.add(trial)
        return
    size = max(1, min(64, len(missing) // (4 * jobs)))
    parts = [missing[start : start + size] for start in range(0, len(missing), size)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            pending: set[Future[list[Trial]]] = {pool.submit(_several, campaign, runs) for runs in parts}
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for trial in (trial for future in finished for trial in future.result()):
                    trials.add(trial)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _several(campaign: Campaign, runs: list[int]) -> list[Trial]:
    return list(campaign.trials(runs))


# ---------------------------------------------------------------- what trials prove
def judge(
    campaign: Campaign,
    absent: F64,
    present: F64,
    *,
    test: Test = "threshold",
    confidence: float = 0.95,
    foreign: int = 0,
) -> Audit:
    """Every claim of the agent's accountants against the trials."""
    run, c, account = campaign.run, campaign.canaries, campaign.account()
    delta, claims, bounds = run.privacy.delta, [], {}
    for accountant, claimed in account.epsilon_after(run.K).items():
        if claimed is None:
            continue
        realised, bound = lower_bound(accountant, absent, present, delta=delta, test=test, confidence=confidence)
        refuted = realised > claimed * (1.0 + 1e-9)
        verdict: Verdict = "refuted" if refuted else "no power" if realised < LITTLE * claimed else "not refuted"
        note = ""
        if verdict == "no power":
            note = f"{len(absent)} canaries a world show {realised:.3g} at most: this audit could not have told"
        claims.append(Claim(run.algorithm.mechanism, accountant, claimed, realised, refuted, verdict, note=note))
        bounds[accountant] = bound
    kind = f"{c.count} a run in {c.width} coordinate{'s' * (c.width > 1)} each, gradient -C/2 against +C/2"
    notes = [f"Canaries: {kind}; m = {c.m} of D = {c.samples}; the code is audited, not a data set."]
    if foreign:
        notes.append(f"{foreign} noised vectors lie on no grid of the run file's noise: that is not its sampler.")
    return Audit(
        run.graph.agents[campaign.index],
        "an observer of every link, who knows all data but one sample",
        tuple(claims),
        float(max(np.abs(absent).max(), np.abs(present).max())),
        len(absent),
        confidence,
        bounds,
        tuple(notes),
    )


def lower_bound(
    accountant: str, absent: F64, present: F64, *, delta: float, test: Test = "threshold", confidence: float = 0.95
) -> tuple[float, Bound]:
    """(epsilon of the accountant's own kind, at its delta, that the trials prove; how)."""
    if accountant == "gdp":
        bound = _bound(test, absent, present, "mu", confidence)
        return (gdp_epsilon(bound.value, delta) if bound.value else 0.0), bound
    if accountant == "zcdp":
        bound = threshold_bound(absent, present, measure="rho", confidence=confidence)
        return (zcdp_epsilon(bound.value, delta) if math.isfinite(bound.value) else math.inf), bound
    bound = _bound(test, absent, present, "epsilon", confidence)
    return bound.value, bound


def _bound(test: Test, absent: F64, present: F64, measure: Literal["epsilon", "mu"], confidence: float) -> Bound:
    by = guess_bound if test == "guess" else threshold_bound
    return by(absent, present, measure=measure, confidence=confidence)
