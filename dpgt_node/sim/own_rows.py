"""A planned run tried on the rows at hand, beside its agents alone: for the eyes of who holds all of these rows.

This looks at private samples.  Nothing that is planned or written may depend on it, and no epsilon covers what somebody
decides by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.learning.alone import fitted
from dpgt_node.learning.labelled import own_dataset
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.sim.fast import FastRun
from dpgt_node.sim.plans.planning import learnt
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_DRAWS: Final = (5, 51)
"""Of the noise, at least and at most: where samples are few, much of the result is luck."""
_WORK: Final = (2e9, 1e11)
"""Products of all gradients together from which on there are fewer draws, and from which on nothing is tried: about a
second, and a minute."""
_FITTED: Final = 8
"""So many agents are trained alone, those with the fewest samples."""


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Test accuracies in [0, 1] of the worst agent.

    ``together``: of the run, one a draw of the noise, ascending.  ``alone``: without exchange and noise.  Both on all
    test rows that are here.  ``own_together``, ``own_alone``: each agent on its own test rows, (agent, the median
    draw's accuracy, alone); empty where all agents share one test set.  ``guessing``: always naming the largest class.
    ``tested``: test rows.
    """

    together: tuple[float, ...]
    alone: float
    guessing: float
    tested: int
    own: tuple[tuple[str, float, float], ...] = ()

    @property
    def expected(self) -> float:
        """The median draw."""
        return float(median(self.together))

    @property
    def mostly(self) -> float:
        """What nine of ten draws reach."""
        return float(np.quantile(self.together, 0.1, method="lower"))

    @property
    def learns(self) -> bool:
        """Whether it ends above guessing, by the rule of a run's outcome."""
        return self.expected >= learnt(self.guessing)

    @property
    def better_alone(self) -> bool:
        """Whether staying alone is at least as good for the worst agent."""
        return self.alone >= self.expected


def tried(run: RunConfig, data_root: Path | None, files: Sequence[Path] = ()) -> OwnRows | None:
    """``run``, of a softmax model, on this machine's rows.  ``files``: every agent's own, none: all share the run's.

    None: there are no test rows, or more rows than a try is worth.  Raises ConfigError.
    """
    paths: list[Path | None] = [*files] or [None] * run.n
    held = [own_dataset(run, i, data_root=data_root, data_path=path) for i, path in enumerate(paths)]
    oracles = [_softmax(run, i, data_root, path) for i, path in enumerate(paths)]
    labels = np.concatenate([one.y_test for one in (held if files else held[:1])])
    work = float(len(Schedule.from_config(run).releases) * sum(one.samples for one in oracles) * oracles[0].dimension)
    if not len(labels) or _DRAWS[0] * work > _WORK[1]:
        return None
    draws = int(np.clip(_WORK[0] / work, *_DRAWS))
    judges = oracles if files else oracles[:1]

    def right(x: F64) -> list[int]:
        """By test set."""
        return [judge.right(x) for judge in judges]

    hits = np.array([[right(x) for x in _final(run, oracles)] for _ in range(draws)])  # (draws, agents, test sets)
    few = np.argsort([one.samples for one in oracles], kind="stable")[:_FITTED].tolist()
    alone = {i: right(fitted(held[i], run.model)) for i in sorted(few)}
    own = tuple(
        (run.graph.agents[i], float(np.median(hits[:, i, i])) / oracles[i].tested, found[i] / oracles[i].tested)
        for i, found in alone.items()
        if files and oracles[i].tested
    )
    together = sorted((hits.sum(axis=2).min(axis=1) / len(labels)).tolist())
    worst = min(map(sum, alone.values())) / len(labels)
    return OwnRows(tuple(together), worst, float(np.bincount(labels).max() / len(labels)), len(labels), own)


def _softmax(run: RunConfig, agent: int, data_root: Path | None, path: Path | None) -> SoftmaxOracle:
    oracle = build_oracle(run, agent, data_root=data_root, data_path=path)
    assert isinstance(oracle, SoftmaxOracle)
    return oracle


def _final(run: RunConfig, oracles: Sequence[SoftmaxOracle]) -> F64:
    """x_{i,K+1} of one draw of the noise: (n, d)."""
    state = FastRun(run, oracles, None)
    while state.k <= run.K:
        state.step()
    return state.x
