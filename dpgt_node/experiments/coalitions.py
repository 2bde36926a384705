"""Audits of noise that cancels: what a coalition with its own keys tells of one agent, from real transcripts.

All agents of a run release through the daemons' own path.  The coalition takes from every release what it knows: it has
the streams of every pair that one of its members is in.  What is left of the honest releases of a round is Gaussian
with covariance Sigma (privacy.cancelling.exposure), so canary c, which moves the gradient of one agent from -h to +h in
a coordinate of its own, is told best by

    T_c = sum over the releases of 2 h [Sigma^-1 g~_H]_i
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.accounts.towards import Sharing, sharing
from dpgt_node.adversary.audit.replay import Replay
from dpgt_node.adversary.audit.report import Audit
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.agent.encoding import float_wire_of, wire_dtype_of
from dpgt_node.agent.noise import account_for
from dpgt_node.config import RunConfig, run_sha256
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.trials import Test, Trial, Trials, judge, present, runs_for
from dpgt_node.privacy.cancelling.masks import MaskGraph
from dpgt_node.privacy.laws.gaussian_grid import CELLS
from dpgt_node.privacy.laws.gaussian_sampler import shared_cells
from dpgt_node.privacy.laws.pairs import TestPairKeys, pair_stream
from dpgt_node.privacy.laws.sampler import CHUNK
from dpgt_node.sim.scripted import ScriptedOracle, Vectors, together
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

MOST = 4_096
"""Canaries a run, each in a coordinate of its own."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Epsilon by accountant of ``whole``, towards a coalition."""

    whole: dict[str, float | None]
    shared: Sharing
    delta: float
    colluding: int

    def epsilon_after(self, k: int) -> dict[str, float | None]:
        """Of the whole run, whatever ``k``."""
        return self.shared.some(self.whole, self.delta, self.colluding)


@dataclass(frozen=True, slots=True)
class Coalition:
    """``members`` (0-based) against agent ``index`` of ``run``; ``count`` canaries a run, ``half``: C2/2, D = m.

    ``secret``: of the runs' noise, in hexadecimal digits; each run has its own.
    """

    run: RunConfig
    index: int
    members: frozenset[int]
    count: int
    half: float
    m: int
    dimension: int
    secret: str

    @classmethod
    def of(
        cls, run: RunConfig, index: int, colluding: int, *, dimension: int, samples: int | None, secret: str
    ) -> Coalition:
        """The worst ``colluding`` of the others: those that the agent shares noise with come first.

        ``dimension`` d, ``samples`` D (None: m).  ConfigError where there is nothing to test.
        """
        graph, schedule = masks(run), Facts.of(run).schedule
        if graph is None:
            raise ConfigError.one("command line", "--colluding", "nobody shares noise in this run: all learn the same")
        if not 0 <= colluding < run.n:
            raise ConfigError.one("command line", "--colluding", f"must be 0 to {run.n - 1}, the number of the others")
        C2 = 2.0 * run.privacy.clip_l2 if run.privacy.clip_l2 is not None else run.privacy.adjacency
        if C2 is None:
            raise ConfigError.one("run file", "privacy", "no adjacency constant: set clip_l1, clip_l2 or C")
        m = schedule.m_for(samples)
        if samples is not None and m < samples:
            raise ConfigError.one("run file", "scheme.samples", 'coalitions are audited with samples = "full" only')
        partners = graph.partners(index)
        others = [*partners, *(j for j in range(run.n) if j != index and j not in partners)]
        run = replace(run, runtime=replace(run.runtime, wire_dtype=float_wire_of(run, dimension)))
        members = frozenset(others[:colluding])
        return cls(run, index, members, min(dimension, MOST), C2 / 2.0, m, dimension, secret)

    @property
    def graph(self) -> MaskGraph:
        """Who shares noise with whom."""
        found = masks(self.run)
        if found is None:
            raise ValueError("nobody shares noise")
        return found

    def trials(self, runs: Iterable[int]) -> Iterator[Trial]:
        for r in runs:
            signs = np.where(present(self.count, r), 1.0, -1.0)
            secret = f"{self.secret}{r:08x}"
            vectors = together(self.run, self._oracles(signs), secret)
            yield Trial(r, self.ratios(vectors, secret).tolist(), 0)

    def ratios(self, vectors: Vectors, secret: str) -> F64:
        """T of every canary, float64 (count,)."""
        facts, graph = Facts.of(self.run), self.graph
        honest = [j for j in range(self.run.n) if j not in self.members]
        at, T = honest.index(self.index), np.zeros(self.count)
        laplacian = np.zeros((len(honest), len(honest)))
        for i, j in graph.edges:
            if i in honest and j in honest:
                ends = [honest.index(i), honest.index(j)]
                laplacian[ends, ends] += 1.0
                laplacian[ends, ends[::-1]] -= 1.0
        r = self.run.noise.cancel or 0
        weights = np.linalg.inv(np.eye(len(honest)) + r * r * laplacian)[at]
        for weight, j in zip(weights.tolist(), honest, strict=True):
            for k, values in self._released_of(j, vectors):
                s = facts.schedule.sigma("Y", j, k)
                known = self._known(j, k, r * s, secret, values.size)
                T += weight / s**2 * 2.0 * self.half * facts.schedule.share(k) / self.m * (values - known)
        return T

    def _released_of(self, j: int, vectors: Vectors) -> Iterator[tuple[int, F64]]:
        """(k, g~_{j,k}) of every release, from what everybody sent."""
        replay = Replay(Facts.of(self.run), j, np.zeros(self.count), vectors, wire_dtype_of(self.run, self.dimension))
        nothing = np.zeros(self.count)
        for one in replay.run((lambda k, point: nothing,)):
            yield one.k, one.draw.values

    def _known(self, j: int, k: int, sigma: float, secret: str, size: int) -> F64:
        """What the coalition knows of agent ``j``'s noise in round ``k``: the part that a member shares."""
        found = np.zeros(size)
        for member in self.members.intersection(self.graph.partners(j)):
            stream = pair_stream(TestPairKeys(secret, member).key(j, k))
            pieces = [shared_cells(stream, min(CHUNK, size - start)) for start in range(0, size, CHUNK)]
            found += (1 if j < member else -1) * sigma / CELLS * (np.concatenate(pieces) + 0.5)
        return found

    def _oracles(self, signs: F64) -> list[ScriptedOracle]:
        clip, size = Facts.of(self.run).schedule.clip_of, self.half / self.m

        def canary(r: int, x: F64, batch: I64) -> F64:
            return size * clip(r) * signs

        def nothing(r: int, x: F64, batch: I64) -> F64:
            return np.zeros(self.count)

        return [ScriptedOracle(self.count, self.m, canary if j == self.index else nothing) for j in range(self.run.n)]

    def settings(self) -> dict[str, Any]:
        """What trials of one file have in common."""
        return {
            "format": 1,
            "run": run_sha256(self.run),
            "agent": self.run.graph.agents[self.index],
            "members": sorted(self.members),
            "count": self.count,
        }

    def kept_in(self, folder: Path | None) -> Trials:
        """Its trials so far, in ``folder`` or in memory."""
        return Trials(self.settings(), self.count, folder)

    def judge(self, trials: Trials, n: int, *, test: Test = "threshold", confidence: float = 0.95) -> Audit:
        """What ``n`` trials in each world prove."""
        facts, shared = Facts.of(self.run), sharing(self.run)
        if shared is None:
            raise ValueError("nobody shares noise")
        account = account_for(self.run, facts.topology, facts.schedule, self.index, self.m, self.dimension)
        whole = account.epsilon_after(self.run.K)
        claims = Claims(whole, shared[self.index], self.run.privacy.delta, len(self.members))
        names = ", ".join(self.run.graph.agents[j] for j in sorted(self.members)) or "nobody"
        return judge(
            self.run,
            self.run.graph.agents[self.index],
            claims,
            trials.worlds(n),
            vantage=f"{len(self.members)} of the other agents together ({names}) and an observer of every link",
            notes=(
                f"Canaries: {self.count} a run in 1 coordinate each, gradient -C/2 against +C/2; m = D = {self.m}.",
                "The coalition has the keys of every pair that one of its members is in, and no other.",
            ),
            test=test,
            confidence=confidence,
            runs=runs_for(self.count, n),
        )


def conduct(
    coalition: Coalition, trials: Trials, n: int, *, progress: Callable[[int, int], None] = lambda done, runs: None
) -> None:
    """Make what ``n`` trials in each world still lack.  ``progress(done, all)``, in runs."""
    missing = trials.missing(n)
    total = len(trials.done) + len(missing)
    for trial in coalition.trials(missing):
        trials.add(trial)
        progress(len(trials.done), total)
