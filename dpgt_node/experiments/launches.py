"""Canaries in whole runs, launched or simulated; each run's data are written for it.

A launch has processes, sockets, stores and the daemons' own entropy.  A simulated run has the same agents, with their
clip, oracle, sampler and machine, in one process: it costs a tenth, and is part of every audit that can afford it.

The run file keeps its graphs, steps, mechanism, noise and clip; its data become ones in which a replaced sample is as
visible as adjacency allows.  Agent i holds F samples, sample c is feature c alone, and its label is all that differs
between D and D': two classes, no bias, so it moves two coordinates of its own and no other sample's.  Its gradient is
clipped at every point that matters, so the label moves it by C.  Every agent writes the transcript of what it sees.
Active roles and robust mixing stay: what a claim is worth under attack is measured as without one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.adversary.audit.canaries import Mask
from dpgt_node.adversary.audit.events import positions
from dpgt_node.adversary.audit.replay import Replay, World
from dpgt_node.adversary.audit.report import Audit
from dpgt_node.adversary.audit.witness import log_ratio
from dpgt_node.adversary.inference.observation import Facts, Observation
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import Adversary, Data, Evaluation, Model, RunConfig, run_sha256
from dpgt_node.config.privacy.traffic import Traffic
from dpgt_node.errors import ConfigError, DpgtError, ExitCode
from dpgt_node.experiments.trials import LAWLESS, Test, Trial, Trials, judge, present, runs_for
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.learning.releases import Sources
from dpgt_node.runtime.coordinator import outdir
from dpgt_node.runtime.launch import launcher
from dpgt_node.sim.simulate import simulate
from dpgt_node.types import F64
from dpgt_node.values import dataclass

MOST = 500
"""Samples of an agent."""
TRIALS = 2_000
"""In either world, of simulated runs where no number is named."""
AFFORDABLE = 20_000
"""Rounds of all agents that these may take: some ten seconds."""
MOST_NUMBERS = 1 << 22
"""Of the data of a run, of which every agent has some."""
_LENGTH = 8.0
"""Of a sample, in clips: twice is enough at x_0."""


@dataclass(frozen=True, slots=True)
class Flips:
    """Agent ``index`` of ``run``, its data ``count`` samples whose labels are to be told; files go under ``folder``."""

    run: RunConfig
    index: int
    count: int
    folder: Path
    lawless: bool = False
    """Trials keep positions, which presume no law, for events that are learnt."""
    simulated: bool = False
    test_keystream: str | None = None
    """Of simulated runs: fixed bytes, for tests."""

    @classmethod
    def of(
        cls,
        run: RunConfig,
        index: int,
        samples: int | None,
        folder: Path,
        *,
        lawless: bool = False,
        simulated: bool = False,
        test_keystream: str | None = None,
    ) -> Flips:
        """``samples``: D of the agent with its real data.  F is m where that is not too many.  ConfigError: no clip."""
        if not run.privacy.enforced:
            raise ConfigError.one("run file", "privacy", "an audit of labels needs clip_l1 or clip_l2")
        if any(role.word == "imprint" for name, _ in run.adversary.active for role in run.adversary.active.of(name)):
            raise ConfigError.one("run file", "adversary.active", "imprint is for mlp; these labels are of softmax")
        schedule = Facts.of(run).schedule
        if not schedule.noisy:
            raise ConfigError.one("run file", "noise.multiplier", "the noise is off: there is no claim to audit")
        count = _count(run, samples)
        changed = replace(
            run,
            scheme=replace(run.scheme, samples="full"),
            model=Model(bias=0.0),
            evaluate=Evaluation(every=run.K + 1),
            runtime=replace(run.runtime, channel="plain"),
            adversary=Adversary(semi_honest=run.graph.agents, active=run.adversary.active),
            traffic=Traffic(),  # sizes and ticks change no value, and need the mTLS that launches do without
        )
        return cls(changed, index, count, folder, lawless, simulated, test_keystream)

    def settings(self) -> dict[str, Any]:
        named = run_sha256(self._with(self.folder / "data.npz"))
        return {
            "format": 1,
            "run": named,
            "agent": self.run.graph.agents[self.index],
            "launched": self.count,
            **({"simulated": self.test_keystream or "system"} if self.simulated else {}),
            **LAWLESS[self.lawless],
        }

    def kept(self) -> Trials:
        return Trials(self.settings(), self.count, self.folder)

    def trial(self, r: int) -> Trial:
        """Make run ``r``.  Raises what a launch raises."""
        out = self.folder / f"launch-{r}"
        shutil.rmtree(out, ignore_errors=True)  # what an interrupted launch left: its noise counts for nothing
        self.folder.mkdir(parents=True, exist_ok=True)
        run = self.written(self.folder / "data.npz", present(self.count, r))
        if self.simulated:
            key = None if self.test_keystream is None else f"{self.test_keystream}{r:08x}"
            simulate(run, out, os.urandom(16), test_keystream=key)
            return self._told(r, run, out)
        with outdir.claim(out):
            claimed = outdir.prepare(out, run, source="command line", keystream=None)
            ended = asyncio.run(launcher.Launcher(run, claimed, restart=False).run())
        if ended.exit_code is not ExitCode.DONE:
            error = DpgtError(f"launch {r}: {ended.reason} (see {out})")
            error.exit_code = ended.exit_code
            raise error
        return self._told(r, run, out)

    def _told(self, r: int, run: RunConfig, out: Path) -> Trial:
        T, foreign = self.heard(out, run)
        shutil.rmtree(out)
        return Trial(r, T.tolist(), foreign)

    def heard(self, out: Path, run: RunConfig) -> tuple[F64, int]:
        """:meth:`ratios` of what the agent itself sent and received, which nobody who equivocates can make others say.

        That is all that an observer of every link needs to judge it.
        """
        own = out / "agents" / run.graph.agents[self.index] / "state" / "transcript"
        return self.ratios(Observation.load([own], run))

    def judge(self, trials: Trials, n: int, *, test: Test = "threshold", confidence: float = 0.95) -> Audit:
        facts, runs = Facts.of(self.run), runs_for(self.count, n)
        kind = "simulated runs of all agents: their clip, oracle and sampler" if self.simulated else "real launches"
        return judge(
            self.run,
            facts.names[self.index],
            account_for(self.run, facts.topology, facts.schedule, self.index, self.count, 2 * self.count),
            trials.worlds(n),
            vantage="an observer of every link, who knows all data but one label",
            notes=(f"{runs} {kind}; m = D = {self.count} samples, whose labels are told.",),
            test=test,
            confidence=confidence,
            foreign=trials.foreign,
            runs=runs,
            canaries=trials.canaries(n) if self.lawless else None,
        )

    def ratios(self, observation: Observation) -> tuple[F64, int]:
        """T of every sample's label, or its position, float64 (count,), and how many noised vectors were foreign."""
        nobody, everybody = np.zeros(self.count, dtype=bool), np.ones(self.count, dtype=bool)
        (start, here), (_, there) = (self._world(name, labels) for name, labels in (("0", nobody), ("1", everybody)))
        replay = Replay(observation.facts, self.index, start, observation.vectors, observation.dtype)
        if self.lawless:
            return positions(replay, here, there).reshape(2, self.count).sum(axis=0), 0
        ratio = log_ratio(replay, here, there)
        return ratio.T.reshape(2, self.count).sum(axis=0), ratio.foreign

    def _world(self, name: str, labels: Mask) -> tuple[F64, World]:
        """(x_0, gradients) where every label is the same; samples do not meet, so each is in its world of two."""
        oracle = build_oracle(self.written(self.folder / f"labels-{name}.npz", labels), self.index)
        everything = np.arange(self.count)
        sources = Sources(oracle, Schedule.from_config(self.run))
        return oracle.initial(), lambda k, point: sources.at(k).gradient(point, everything)

    def written(self, path: Path, labels: Mask) -> RunConfig:
        """The run on data with these labels, for every agent."""
        clip = self.run.privacy.clip_l1 or self.run.privacy.clip_l2
        assert clip is not None
        x, n = _LENGTH * clip * np.eye(self.count), self.run.n
        np.savez(
            path,
            x_train=np.tile(x, (n, 1)),
            y_train=np.tile(labels.astype(np.int64), n),
            x_test=np.zeros((0, self.count)),
            y_test=np.zeros(0, dtype=np.int64),
        )
        return self._with(path)

    def _with(self, path: Path) -> RunConfig:
        data = Data(f"npz:{path.absolute()}", partition="contiguous", params={"classes": 2})
        return replace(self.run, data=data)


def affordable(run: RunConfig, samples: int | None) -> tuple[int, str]:
    """Simulated runs of an audit that names no number, and why there are none; ``samples`` as in :meth:`Flips.of`."""
    if not run.privacy.enforced:
        return 0, "the run file has no clip"
    samples = _count(run, samples)
    numbers, count = run.n * samples**2, runs_for(samples, TRIALS)
    if numbers > MOST_NUMBERS:
        return 0, f"a run's data are {numbers} numbers, and more than {MOST_NUMBERS} take long"
    rounds = count * run.n * (run.K + 1)
    if rounds > AFFORDABLE:
        return 0, f"{count} runs have {rounds} rounds of agents, and more than {AFFORDABLE} take long"
    return count, ""


def _count(run: RunConfig, samples: int | None) -> int:
    return min(Facts.of(run).schedule.m or samples or MOST, MOST)


def conduct(flips: Flips, trials: Trials, launches: int, on_launch: Callable[[int], None] = lambda done: None) -> int:
    """Make those of the first ``launches`` runs that are missing; trials in each world."""
    for r in range(launches):
        if r not in trials.done:
            trials.add(flips.trial(r))
        on_launch(r + 1)
    inside = np.array([present(flips.count, r) for r in range(launches)])
    return int(min(inside.sum(), (~inside).sum()))
