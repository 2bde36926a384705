"""A run that refutes the row-space formula for observers of a part of the messages.

docs/explanation/theory-cancelling.md, section 4: five agents under noise-once, losses h_j x^2/2 whose sum is strongly
convex.  Agent 2's sample moves its gradient by one deviation of the noise in every round; agent 5 sees its own
messages.  The formula takes gradients for given; here they are slopes times points that agent 5 does not see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.config import model
from dpgt_node.privacy.laws.gaussian import GAUSSIAN
from dpgt_node.privacy.mechanisms import NOISE_ONCE
from dpgt_node.types import F64, Stream

SLOPES: Final = (1.1, -0.5, 0.1, 0.9, 0.6)
OWNER: Final = 1
OBSERVER: Final = 4
TRIALS: Final = 4_096
"""Coordinates, each a trial of its own."""
_R: Final = ((0, 0, 0, 0, 1), (1, 0, 0, 0, 0), (1, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0))
_C: Final = ((0, 0, 1, 0, 1), (1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0))
_RANK: Final = 1e-9


def run_of() -> model.RunConfig:
    """The run file: K = 5, C2/m = 1, noise of deviation 1."""
    R, C = (tuple(tuple(float(v) for v in row) for row in matrix) for matrix in (_R, _C))
    return model.RunConfig(
        name="partial-observer",
        algorithm=model.Algorithm(iterations=5, mechanism=NOISE_ONCE.name),
        scheme=model.SchemeS2(0.3, 0.3, 1.0, 1.0, samples=1),
        noise=model.Noise(None, model.NoiseStream("constant", (1.0,) * 5), law=GAUSSIAN.name),
        graph=model.Graph(tuple(f"agent-{i}" for i in range(1, 6)), R, C),
        data=model.Data("zeros", params={"dimension": TRIALS}),
        privacy=model.Privacy(clip_l2=0.5),
    )


class View:
    """What the observer receives, as rows over the noises of all agents and rounds, gradients being ``slopes`` x."""

    def __init__(self, facts: Facts, slopes: Sequence[float]) -> None:
        topology, schedule = facts.topology, facts.schedule
        n, rounds = topology.n, schedule.K + 1
        A = np.eye(n) - schedule.alpha * topology.L1
        B = np.eye(n) - schedule.beta * topology.L2
        h = np.array(slopes)[:, None]
        x, y, before = (np.zeros((n, n * rounds)) for _ in range(3))
        self.received: list[tuple[int, Stream, int]] = []
        """(sender, stream, round) of every row."""
        rows = []
        for k in range(rounds):
            released = h * x
            released[np.arange(n), np.arange(n) * rounds + k] += 1.0
            y = B @ y + released - before
            for stream, state, weights in (("X", x, topology.R), ("Y", y, topology.C)):
                for j in np.flatnonzero(weights[OBSERVER]).tolist():
                    self.received.append((j, "X" if stream == "X" else "Y", k))
                    rows.append(state[j])
            x, before = A @ x - schedule.gamma * y, released
        whole = np.array(rows)
        own = slice(OBSERVER * rounds, (OBSERVER + 1) * rounds)
        self.of_observer: F64 = whole[:, own]
        """What the observer's own noise does to the rows, which it knows."""
        self.of_owner: F64 = whole[:, OWNER * rounds : (OWNER + 1) * rounds]
        others = np.delete(whole, own, axis=1)
        U, values, _ = np.linalg.svd(others, full_matrices=False)
        kept = U[:, values > _RANK * values[0]] / values[values > _RANK * values[0]]
        self.whitened: F64 = kept.T
        """Rows that make what is left white, at unit noise."""

    def formula(self) -> float:
        """mu that the formula claims, rounded up: the most that any u_l of norm 1 give is the sum of |P|."""
        part = self.whitened @ self.of_owner
        return math.sqrt(float(np.abs(part.T @ part).sum()))

    def shifted(self) -> F64:
        """What a constant shift by 1 in every round does to the whitened rows; its norm is mu."""
        return np.asarray(self.whitened @ self.of_owner.sum(axis=1))
