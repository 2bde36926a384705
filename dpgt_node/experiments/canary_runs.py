"""Repeated runs with canaries through the daemons' release path, in parallel, resumable, and what they prove."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.adversary.audit.canaries import Canaries
from dpgt_node.adversary.audit.replay import Replay
from dpgt_node.adversary.audit.report import Audit
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.agent.encoding import float_wire_of
from dpgt_node.agent.noise import account_for, sampler_for
from dpgt_node.config import RunConfig, run_sha256
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.trials import LAWLESS, Test, Trial, Trials, judge, present, runs_for
from dpgt_node.privacy.laws.noise import Sampler
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.sim.scripted import Alone, ScriptedOracle
from dpgt_node.sim.simulate import keystream_for
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

POINTLESS = (
    "paper: a canary's gradient is the same at every point, so what Lemma 4 drops is not there to be seen; "
    "--preset counterexample shows it."
)
MOST = 10_000
"""Coordinates of a run, where its canaries need no more: coordinates never meet."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Agent ``index`` of ``run`` with ``canaries`` for data.  A canary of a run is one trial in one world.

    ``dimension``: d, of the claim; runs have that many coordinates too, or as many as canaries need where d is large.
    ``test_keystream``: fixed bytes, for tests.  ``sampler``: the one under audit.  ``lawless``: trials keep positions,
    which presume no law, for events that are learnt.
    """

    run: RunConfig
    index: int
    dimension: int
    canaries: Canaries
    test_keystream: str | None = None
    sampler: Callable[[RunConfig], Sampler] = field(default=sampler_for)
    lawless: bool = False

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
        lawless: bool = False,
    ) -> Campaign:
        """``dimension`` d, ``samples`` D (None: m).  ConfigError where the run claims nothing to test."""
        schedule = Facts.of(run).schedule
        if not schedule.noisy:
            raise ConfigError.one("run file", "noise.multiplier", "the noise is off: there is no claim to audit")
        C = 2.0 * run.privacy.clip_l2 if run.privacy.clip_l2 is not None else run.privacy.adjacency
        if C is None:
            raise ConfigError.one("run file", "privacy", "no adjacency constant: set clip_l1, clip_l2 or C")
        m = schedule.m_for(samples)
        canaries = Canaries.plan(
            mechanism=run.algorithm.mechanism,
            law=run.noise.law,
            releases=len(schedule.releases),
            dimension=min(dimension, max(MOST, len(schedule.releases))),
            samples=m if samples is None else samples,
            m=m,
            C=C,
            count=count,
            stacked=stacked,
        )
        run = replace(run, runtime=replace(run.runtime, wire_dtype=float_wire_of(run, dimension)))
        return cls(run, index, dimension, canaries, test_keystream, sampler, lawless)

    def account(self) -> AgentAccount:
        """The agent's, with the canaries for data."""
        facts, c = Facts.of(self.run), self.canaries
        return account_for(self.run, facts.topology, facts.schedule, self.index, c.samples, self.dimension)

    def trials(self, runs: Iterable[int]) -> Iterator[Trial]:
        c, facts, start = self.canaries, Facts.of(self.run), np.zeros(self.canaries.dimension)
        signs = np.empty(c.count)

        def script(r: int, x: F64, batch: I64) -> F64:
            return c.gradient(r, c.drawn(batch, signs), facts.schedule.clip_of(r))

        oracle = ScriptedOracle(c.dimension, c.samples, script)
        agent = Alone(self.run, self.index, oracle, self.sampler(self.run))
        for r in runs:
            signs[:] = np.where(present(c.count, r), 1.0, -1.0)
            key = None if self.test_keystream is None else f"{self.test_keystream}{r:08x}"
            vectors = agent.play(keystream_for(key, self.index))
            replay = Replay(facts, self.index, start, vectors, agent.wire_dtype)
            T, foreign = (c.positions(replay), 0) if self.lawless else c.ratios(replay)
            yield Trial(r, T.tolist(), foreign)

    def settings(self) -> dict[str, Any]:
        """What trials of one file have in common."""
        return {
            "format": 1,
            "run": run_sha256(self.run),
            "agent": self.run.graph.agents[self.index],
            "canaries": asdict(self.canaries),
            "keystream": "system" if self.test_keystream is None else self.test_keystream,
            **LAWLESS[self.lawless],
        }

    def kept_in(self, folder: Path | None) -> Trials:
        """Its trials so far, in ``folder`` or in memory."""
        return Trials(self.settings(), self.canaries.count, folder)

    def judge(self, trials: Trials, n: int, *, test: Test = "threshold", confidence: float = 0.95) -> Audit:
        """What ``n`` trials in each world prove."""
        c, mechanism = self.canaries, MECHANISMS[self.run.algorithm.mechanism]
        kind = f"{c.count} a run in {c.width} coordinate{'s' * (c.width > 1)} each, gradient -C/2 against +C/2"
        return judge(
            self.run,
            self.run.graph.agents[self.index],
            self.account(),
            trials.worlds(n),
            vantage="an observer of every link, who knows all data but one sample",
            notes=(
                f"Canaries: {kind}; m = {c.m} of D = {c.samples}; the code is audited, not a data set.",
                *((POINTLESS,) if not mechanism.accounted.public_point and self.run.K else ()),
            ),
            test=test,
            confidence=confidence,
            foreign=trials.foreign,
            runs=runs_for(c.count, n),
            canaries=trials.canaries(n) if self.lawless else None,
        )


def conduct(
    campaign: Campaign,
    trials: Trials,
    n: int,
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, runs: None,
) -> None:
    """Make what ``n`` trials in each world still lack.  ``progress(done, all)``, in runs."""
    missing = trials.missing(n)
    total = len(trials.done) + len(missing)
    if jobs <= 1 or len(missing) <= 1:
        for trial in campaign.trials(missing):
            trials.add(trial)
            progress(len(trials.done), total)
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
                progress(len(trials.done), total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _several(campaign: Campaign, runs: list[int]) -> list[Trial]:
    return list(campaign.trials(runs))
