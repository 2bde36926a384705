"""Cumulative epsilon as a function of the maximum iteration number K, as the paper's remark has it.

Steps, m_K and noise change with K, so every K is another run; no run has to be carried out to know what it costs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from dpgt_node.agent.noise import accounts_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule, sampling_number
from dpgt_node.config import RunConfig
from dpgt_node.config.model import Scheme
from dpgt_node.learning.oracle import build_oracle, sample_counts
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, SOUND
from dpgt_node.privacy.mechanisms import MECHANISMS, NOISE_ONCE, PUBLISHED_POINT
from dpgt_node.values import dataclass

EPSILON_FILE = "epsilon.csv"
WITH, WITHOUT = "C/m", "C"
"""How far one sample moves what is released: the mean over the batch, or charged as if there were no mean."""
SOUND_TWINS = (PUBLISHED_POINT.name, NOISE_ONCE.name)
"""What stands beside the paper's mechanism at its own noise."""
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """Epsilon of the worst agent of the run of that ``K``, by ``accountant``; ``charge``: WITH or WITHOUT 1/m."""

    K: int
    m: int
    mechanism: str
    charge: str
    accountant: str
    epsilon: float


def lengths(scheme: Scheme, K_max: int, always: Sequence[int] = ()) -> tuple[int, ...]:
    """K to look at, up to ``K_max``: spaced evenly and by factors, both sides of steps of m_K, and ``always``."""
    even = np.linspace(1, K_max, 17).round().astype(int).tolist()
    factors = np.geomspace(10, K_max, 8).round().astype(int).tolist() if K_max > 10 else []
    steps = _steps(scheme, K_max)
    steps = sorted({*steps[:_MOST_STEPS], *steps[:: max(1, len(steps) // _MOST_STEPS)]})
    found = {*even, *factors, *always, *steps, *(K - 1 for K in steps)}
    return tuple(sorted(K for K in found if 1 <= K <= max([K_max, *always])))


def _steps(scheme: Scheme, K_max: int) -> list[int]:
    """Every K at which m_K is larger than at K - 1."""
    numbers = [sampling_number(scheme, K) for K in range(1, K_max + 1)]
    return [K for K, (before, after) in enumerate(pairwise(numbers), start=2) if after > before]


def table(run: RunConfig, Ks: Sequence[int], data_root: Path | None, *, both: bool = False) -> str:
    """CSV of :class:`Cost` for every K of ``Ks``: the run's mechanism under every accountant that speaks.

    A run of the paper's mechanism is also charged, at the same noise, under those that have a sound accountant.
    ``both``: also without 1/m.
    """
    counts, d = sample_counts(run, data_root), _dimension(run, data_root)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["K", "m", "mechanism", "charge", "accountant", "epsilon"])
    for K in Ks:
        for cost in _costs(replace(run, algorithm=replace(run.algorithm, iterations=K)), counts, d, both):
            writer.writerow([cost.K, cost.m, cost.mechanism, cost.charge, cost.accountant, repr(cost.epsilon)])
    return out.getvalue()


def _costs(run: RunConfig, counts: Sequence[int | None], d: int, both: bool) -> Iterator[Cost]:
    own = run.algorithm.mechanism
    m = Schedule.from_config(run).m_for(counts[0])
    C = run.privacy.C
    for charge, factor in ((WITH, 1.0), (WITHOUT, float(m)))[: 2 if both and C is not None else 1]:
        charged = run if C is None else replace(run, privacy=replace(run.privacy, C=factor * C))
        for mechanism in (own, *(SOUND_TWINS if MECHANISMS[own].printed else ())):
            one = replace(charged, algorithm=replace(run.algorithm, mechanism=mechanism))
            topology, schedule = Topology.from_config(one.graph), Schedule.from_config(one)
            accounts = accounts_for(one, topology, schedule, counts, d)
            for accountant in ACCOUNTANTS if mechanism == own else SOUND:
                values = [account.total(accountant) for account in accounts]
                known = [value for value in values if value is not None]
                if len(known) == len(values):
                    yield Cost(run.K, m, mechanism, charge, accountant, max(known))


def _dimension(run: RunConfig, data_root: Path | None) -> int:
    """d.  It does not depend on m: full batches are in every model's reach, and BatchNorm refuses single samples."""
    return build_oracle(replace(run, scheme=replace(run.scheme, samples="full")), 0, data_root=data_root).dimension


def read(path: Path) -> tuple[Cost, ...]:
    """What :func:`table` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            Cost(
                int(row["K"]), int(row["m"]), row["mechanism"], row["charge"], row["accountant"], float(row["epsilon"])
            )
            for row in csv.DictReader(file)
        )


def curve(costs: Sequence[Cost], mechanism: str, accountant: str, charge: str = WITH) -> dict[int, float]:
    """Epsilon by K."""
    wanted = (mechanism, accountant, charge)
    return {cost.K: cost.epsilon for cost in costs if (cost.mechanism, cost.accountant, cost.charge) == wanted}
