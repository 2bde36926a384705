"""What each release costs, by the paper's own accountant: Lemma 4 (sensitivity) and Lemma 5 (epsilon).

    ||dx_{i,0}||_1 = 0                  ||dx_{i,k}||_1 = |1 - a_i| ||dx_{i,k-1}||_1 + gamma ||dy_{i,k-1}||_1
    ||dy_{i,0}||_1 = C/m_K              ||dy_{i,k}||_1 = |1 - b_i| ||dy_{i,k-1}||_1 + 2C/m_K
    epsilon_i = sum_{k=0..K} ||dx_{i,k}||_1 / sigma_k^(zeta_i) + ||dy_{i,k}||_1 / sigma_k^(eta_i)

(Lemma 4 unrolled into its one-term recursion.)  The value is CONDITIONAL: for k >= 1 the private x_k of two adjacent
data sets differ, so all m sampled gradients differ, not one, and Lemma 4 drops that term.  It is printed as
"Lemma 5 (paper; conditional)" and only for the mechanisms whose releases it describes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model

F64 = npt.NDArray[np.float64]
Stream = Literal["X", "Y"]
Costs = dict[str, float | None]

ACCOUNTANTS: Final = ("lemma5", "corrected", "tight", "amplified", "zcdp", "gdp")
LEMMA5_LABEL: Final = "Lemma 5 (paper; conditional)"
LEMMA5_MECHANISMS: Final = frozenset({"paper", "published-point"})


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity:
    """L1 shifts of Lemma 4: ``x[k]`` = ||dx_k||_1, ``y[k]`` = ||dy_k||_1, float64 (K+1,), k = 0..K."""

    x: F64
    y: F64


def lemma4(*, a: float, b: float, gamma: float, m: int, C: float, K: int) -> Sensitivity:
    """Shifts of agent i's x_k and y_k when one of its samples is replaced, as the paper bounds them.

    ``a`` = alpha r_i, ``b`` = beta c_i (self-loops counted, 0 legal), ``m`` >= 1 samples a gradient, ``C`` the L1
    adjacency constant of Definition 3.
    """
    x, y = np.empty(K + 1), np.empty(K + 1)
    keep_x, keep_y, swap = abs(1.0 - a), abs(1.0 - b), 2.0 * C / m
    dx, dy = 0.0, C / m
    for k in range(K + 1):
        x[k], y[k] = dx, dy
        dx, dy = keep_x * dx + gamma * dy, keep_y * dy + swap
    return Sensitivity(x=x, y=y)


def lemma5(shifts: Sensitivity, sigma_x: F64, sigma_y: F64) -> F64:
    """Cumulative epsilon after every charged row, float64 (2(K+1),): row 2k is x̆_k, row 2k+1 is y̆_k.

    ``sigma_x``, ``sigma_y``: Laplace scales (K+1,); scale 0 is no noise and costs infinity wherever the shift is
    not 0 (x̆_0 is data-independent and free).  The sums are plain left-to-right partial sums (``cumsum``), never
    pairwise ones, so that a ledger continued row by row has the same digits as one computed at once.
    """
    rows = np.empty(2 * len(shifts.x))
    rows[0::2] = _per_scale(shifts.x, sigma_x)
    rows[1::2] = _per_scale(shifts.y, sigma_y)
    total: F64 = np.cumsum(rows)
    return total


class AgentAccount:
    """Costs of one agent's releases in one run; every query is O(1).

    ``agent``: 0-based.  ``D``: its number of samples, None where unknown (then "full" sampling has no known cost).
    All costs are those of ``lemma5`` for now; the other accountants read None.  ``lemma5`` is None without an
    adjacency constant C, for a Gaussian law and for mechanisms other than paper and published-point; infinite when
    the noise is off.
    """

    __slots__ = ("_K", "_agent", "_cumulative", "_schedule", "_shifts")

    def __init__(self, run: model.RunConfig, topology: Topology, schedule: Schedule, agent: int, D: int | None) -> None:
        self._schedule, self._agent, self._K = schedule, agent, schedule.K
        self._shifts: Sensitivity | None = None
        self._cumulative: F64 | None = None
        C = run.privacy.adjacency
        m = schedule.m if schedule.m is not None else D
        if C is None or m is None or run.algorithm.mechanism not in LEMMA5_MECHANISMS:
            return
        self._shifts = lemma4(
            a=float(schedule.alpha * topology.r[agent]),
            b=float(schedule.beta * topology.c[agent]),
            gamma=schedule.gamma,
            m=m,
            C=C,
            K=self._K,
        )
        if run.noise.law == "laplace" or not schedule.noisy:
            self._cumulative = lemma5(self._shifts, self._scales("X"), self._scales("Y"))

    def scale(self, stream: Stream, k: int) -> float:
        """Noise scale sigma of round k; 0.0 is no noise."""
        return self._schedule.sigma(stream, self._agent, k)

    def sensitivity(self, stream: Stream, k: int) -> float | None:
        """L1 shift Lemma 4 charges for this release, or None where it says nothing."""
        if self._shifts is None:
            return None
        return float((self._shifts.x if stream == "X" else self._shifts.y)[k])

    def cost_after(self, k: int, stream: Stream) -> Costs:
        """Cumulative cost after that row of the ledger; in every round x̆ is charged before y̆."""
        return self._costs(2 * k if stream == "X" else 2 * k + 1)

    def epsilon_after(self, k: int) -> Costs:
        """Cumulative cost after both rows of round k; k = -1 is before the first release."""
        return self._costs(2 * k + 1)

    def _costs(self, row: int) -> Costs:
        costs: Costs = dict.fromkeys(ACCOUNTANTS)
        if self._cumulative is not None:
            costs["lemma5"] = float(self._cumulative[row]) if row >= 0 else 0.0
        return costs

    def _scales(self, stream: Stream) -> F64:
        return np.array([self._schedule.sigma(stream, self._agent, k) for k in range(self._K + 1)])


def epsilon_table(
    run: model.RunConfig, topology: Topology, schedule: Schedule, D: tuple[int | None, ...]
) -> dict[str, list[float | None]]:
    """Epsilon of the whole run, per accountant, per agent: what ``check`` prints."""
    finals = [AgentAccount(run, topology, schedule, i, D[i]).epsilon_after(schedule.K) for i in range(topology.n)]
    return {name: [final[name] for final in finals] for name in ACCOUNTANTS}


def _per_scale(shift: F64, sigma: F64) -> F64:
    cost = np.full(len(shift), math.inf)
    np.divide(shift, sigma, out=cost, where=sigma > 0.0)
    cost[(sigma == 0.0) & (shift == 0.0)] = 0.0
    return cost
