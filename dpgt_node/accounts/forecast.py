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

from typing import Any

import numpy as np

from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.spectrum import DENSE_MOST
from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.mechanisms import Accounted
from dpgt_node.types import F64
from dpgt_node.values import dataclass

_AT_ONCE = 1 << 18
"""Numbers of each matrix of impulses, where there are many agents."""


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

    O(K_max n^3) in 24 n^2 bytes; of more than DENSE_MOST agents O(K_max n edges), in memory linear in K_max n.
    """
    n = topology.n
    A, B = _steps(topology, alpha, beta)
    time, noise_x, noise_y = (np.zeros((K_max + 1, n)) for _ in range(3))
    x, y = np.zeros(n), np.ones(n)
    for k in range(K_max + 1):
        x, y = A @ x + y, B @ y
        time[k] = x
    # Impulses: what one agent's noise of one round (a column) has become in x and y after k + 1 rounds.
    once, both = accounted.once, not accounted.x_public
    width = n if n <= DENSE_MOST else max(1, _AT_ONCE // n)
    for start in range(0, n, width):
        those = slice(start, min(start + width, n))
        own = np.eye(n, those.stop - start, -start)
        Y = np.asarray(B @ own) - own if once else beta * _columns(topology.in_C.reverse, those)
        X = np.zeros(own.shape) if both else -own
        Z = alpha * _columns(topology.in_R, those)
        for k in range(K_max + 1):
            noise_y[k] += np.square(X) @ weights_y[those]
            if both:
                noise_x[k] += np.square(Z) @ weights_x[those]
                Z = A @ Z
            X, Y = A @ X - Y, B @ Y
    return Response(time, np.cumsum(noise_x, axis=0), np.cumsum(noise_y, axis=0))


def _columns(edges: Edges, those: slice) -> F64:
    """Columns ``those`` of the weights, (n, columns)."""
    held = np.flatnonzero((edges.senders >= those.start) & (edges.senders < those.stop))
    out = np.zeros((len(edges), those.stop - those.start))
    out[edges.receivers[held], edges.senders[held] - those.start] = edges.weights[held]
    return out


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
