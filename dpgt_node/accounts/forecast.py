"""The predictor of ``dpgt plan``: how far a run gets, and how much of the noise is in what it ends with.

To first order in the step size, gradients change slowly while noise is new every round.  Then x_{i,K+1} is

    the point of the pooled gradient flow at time T_i   +   independent noise of standard deviation nu_i a coordinate

T_i is how far agent i moves under a constant gradient 1 of everybody, by (alg,1) and (alg,2) with this graph and these
steps; nu_i^2 adds up the squared responses of x_{i,K+1} to every noise that was drawn, through the same recursions:
noise that y accumulates (paper, published-point, public-state) or takes back a round later (noise-once) shows in them.
Both are exact for a linear objective; curvature, which would forget early noise, is left out, so nu is an
overestimate.  What accuracy (T, nu) means depends on the data: that is measured on synthetic ones
(``sim.plans.rehearsal``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.spectrum import DENSE_MOST
from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.mechanisms import Accounted
from dpgt_node.types import F64


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """Responses of x_{i,K+1} for every K = 0..K_max: float64 (K_max+1, n) each.

    ``time``: T_i at gamma = 1.  ``noise_x``: variance of the coordinates from x̆'s noise; ``noise_y``: from that of y̆
    (g~ under noise-once) at gamma = 1; scales are given by the weights.
    """

    time: F64
    noise_x: F64
    noise_y: F64


def respond(
    topology: Topology, alpha: float, beta: float, accounted: Accounted, K_max: int, weights_x: F64, weights_y: F64
) -> Response:
    """``weights_x``, ``weights_y`` (n,): variance of each agent's noise on the two streams.

    O(K_max n^3); of more than DENSE_MOST agents O(K_max n edges), in 24 n^2 bytes.
    """
    n = topology.n
    A, B = _steps(topology, alpha, beta)
    time, noise_x, noise_y = (np.empty((K_max + 1, n)) for _ in range(3))
    x, y = np.zeros(n), np.ones(n)
    # Impulses: what one agent's noise of one round (a column) has become in x and y after k + 1 rounds.
    once, both = accounted.once, not accounted.x_public
    Y = np.asarray(B @ np.eye(n)) - np.eye(n) if once else beta * topology.C
    X = np.zeros((n, n)) if both else -np.eye(n)
    Z = alpha * topology.R
    total_x, total_y = np.zeros(n), np.zeros(n)
    for k in range(K_max + 1):
        x, y = A @ x + y, B @ y
        total_y = total_y + np.square(X) @ weights_y
        if both:
            total_x = total_x + np.square(Z) @ weights_x
            Z = A @ Z
        X, Y = A @ X - Y, B @ Y
        time[k], noise_x[k], noise_y[k] = x, total_x, total_y
    return Response(time, noise_x, noise_y)


def _steps(topology: Topology, alpha: float, beta: float) -> tuple[Any, Any]:
    """I - alpha L1 and I - beta L2, (n, n)."""
    n = topology.n
    if n <= DENSE_MOST:
        return np.eye(n) - alpha * topology.L1, np.eye(n) - beta * topology.L2
    from scipy.sparse import eye_array

    one = eye_array(n, format="csr")
    return one - alpha * topology.in_R.laplacian(), (one - beta * topology.in_C.laplacian()).T.tocsr()


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """What the account asks of the noise, to first order: cost^power is (cost_x/scale_zeta)^power + (...eta)^power.

    ``cost_x``, ``cost_y`` (n,).  Pure accountants: power 1, scales that cost ``goal`` = epsilon.  Else power 2: the L2
    shift in scales may be ``goal``.
    """

    cost_x: F64
    cost_y: F64
    power: int
    goal: float

    def scales(self, noise_x: F64, noise_y: F64) -> tuple[F64, float]:
        """(scale_eta (n,), scale_zeta/scale_eta) that meet the goal with the least noise in x.

        ``noise_x``, ``noise_y``: variance in x from unit noise on either stream (their agents' mean counts).
        """
        p = self.power
        ratio = 1.0
        if self.cost_x.any():
            # Minimise Nx zeta^2 + Ny eta^2 subject to (cx/zeta)^p + (cy/eta)^p = goal^p.
            costs = float(self.cost_x.mean() / self.cost_y.mean()) ** p
            ratio = (costs * float(noise_y.mean()) / max(float(noise_x.mean()), 1e-300)) ** (1.0 / (2 + p))
            # What noise on x̆ does to gradients taken there is not in the prediction: no extremes.
            ratio = min(max(ratio, 0.05), 20.0)
        total = (self.cost_x / ratio) ** p + self.cost_y**p
        return total ** (1.0 / p) / self.goal, ratio


def need(
    accounted: Accounted,
    accountant: Accountant,
    epsilon: float,
    delta: float,
    K: int,
    gamma: float,
    a: F64,
    b: F64,
    unit: F64,
) -> Need:
    """``unit`` (n,): C/m of each agent in the norm of its accountant; ``a``, ``b`` (n,): alpha r_i and beta c_i.

    Shifts of ``corrected`` are approximated by ``tight``'s, and squares add as if shifts were parallel: good enough to
    rank candidates, the final noise comes from the accounts.
    """
    power = 1 if accountant.pure else 2
    goal = accountant.goal(epsilon, delta)
    if accounted.once:  # one shift of C/m a round
        return Need(np.zeros(len(unit)), unit * float(K + 1) ** (1.0 / power), power, goal)
    x, y = np.zeros(len(unit)), np.empty(len(unit))
    for i, size in enumerate(unit.tolist()):
        shifts = accountant.shifts(accounted, float(a[i]), float(b[i]), gamma, size, K)
        x[i], y[i] = float((shifts.x**power).sum()), float((shifts.y**power).sum())
    return Need(x ** (1.0 / power), y ** (1.0 / power), power, goal)
