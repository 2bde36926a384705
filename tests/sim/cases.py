"""Graph pairs and small runs on which the simulator is held against other implementations."""

from __future__ import annotations

from dataclasses import replace

from dpgt_node.algo.methods import METHODS
from dpgt_node.config import model
from tests.algo import cases

CARRIED = [name for name, method in METHODS.items() if not method.simulated]
"""Methods that daemons carry out."""
NEEDED: dict[str, dict[str, float]] = {
    "ternary-dsgd": {"r": 8.0},
    "quantised-binomial-sgd": {"bound": 8.0, "trials": 300, "levels": 33},
}
"""Keys without which a method has no run."""
# R[i][j] > 0: i receives x from j.  Every pair has a common root.
PAIRS: dict[str, tuple[list[list[float]], list[list[float]]]] = {
    "the demo's ring with chords": (
        [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]],
        [[0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]],
    ),
    "self-loops everywhere": (
        [[1, 0, 1], [1, 1, 0], [0, 1, 1]],
        [[1, 0, 1], [1, 1, 0], [0, 1, 1]],
    ),
    "one root without in-edges on R and without out-edges on C": (
        [[0, 0, 0], [1, 0, 0], [0, 1, 0]],
        [[0, 1, 0], [0, 0, 1], [0, 0, 0]],
    ),
    "non-uniform weights": (
        [[0, 0.3, 1.7, 0], [0.25, 0, 0, 0.5], [0, 2.5, 0, 0.125], [1.1, 0, 0.9, 0]],
        [[0, 0.7, 0, 0.2], [1.3, 0, 0.4, 0], [0.6, 0, 0, 1.9], [0, 0.05, 2.2, 0]],
    ),
    "spanning trees only, self-loop at the root": (
        [[0.5, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0.3]],
        [[0.5, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0.3]],
    ),
    "two agents": ([[0, 0.02], [1, 0]], [[0, 1], [0.02, 0]]),
    "different graphs, R a star, C a path to its centre": (
        [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]],
        [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]],
    ),
    "one agent alone": ([[0]], [[0]]),
}


def run(pair: str, *, K: int = 40, noisy: bool = True, data: model.Data | None = None) -> model.RunConfig:
    """A quadratic run on ``PAIRS[pair]`` with noise that differs from agent to agent."""
    R, C = PAIRS[pair]
    n = len(R)
    scheme = model.SchemeS2(alpha=0.11, beta=0.07, gamma=0.03, p_m=1.01, samples=1)
    config = cases.run(
        scheme,
        R=R,
        C=C,
        K=K,
        kind="constant",
        p_zeta=tuple(0.01 * (i + 1) for i in range(n)),
        p_eta=tuple(0.02 * (i + 1) for i in range(n)),
        multiplier=1.0 if noisy else 0.0,
    )
    return replace(
        config,
        data=data or model.Data("quadratic", params={"dimension": 7}),
        evaluate=model.Evaluation(every=10, metrics="study"),
    )
