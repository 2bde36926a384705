"""The counterexample of docs/explanation/theory.md, section 2: the paper's assumptions hold and Lemma 5 does not.

d = 1, two agents, m = D = 53 (full batch), f_1 = -0.8 x^2, f_2 = +0.85 x^2; one sample of agent 1 moves its gradient by
C = 1e-6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dpgt_node.config import model
from dpgt_node.privacy.mechanisms import PAPER

SAMPLES: Final = 53
CONSTANT: Final = 1e-6
SLOPES: Final = (-1.6, 1.7)
"""Of the agents' gradients; the largest one is Lam, the Hessian bound that the corrected recursion needs."""
LAM: Final = 1.6
_R: Final = ((0.0, 0.02), (1.0, 0.0))
_C: Final = ((0.0, 1.0), (0.02, 0.0))


def run_of(mechanism: str) -> model.RunConfig:
    """The run file; exponents of (nearly) zero make S1's steps constant."""
    scale = model.NoiseStream("exponent", (0.1, 0.1))
    run = model.RunConfig(
        name="counterexample",
        algorithm=model.Algorithm(iterations=300, mechanism=PAPER.name),
        scheme=model.SchemeS1(0.2, 0.2, 0.05, 1.0, 1e-300, 1e-300, 1e-300, 0.0, samples=SAMPLES),
        noise=model.Noise(scale, scale),
        graph=model.Graph(("agent-1", "agent-2"), _R, _C),
        data=model.Data("zeros", params={"dimension": 1}),
        privacy=model.Privacy(C=CONSTANT),
    )
    return replace(run, algorithm=replace(run.algorithm, mechanism=mechanism))


def corrected(*, a: float, b: float, gamma: float, scales: tuple[float, ...]) -> float:
    """privacy.md, section 4, with Lam known: what ``paper`` does guarantee agent 1 here (both streams' ``scales``).

        sg_k = C/m + Lam sx_k;  sy_k = sh_k + sg_k;  sh_{k+1} = (1-b) sh_k + b sg_k;  sx_{k+1} = (1-a) sx_k + gamma sy_k

    The product's own ``corrected`` takes no Lam: with clipping it needs none.
    """
    sx = sh = total = 0.0
    for scale in scales:
        sg = CONSTANT / SAMPLES + LAM * sx
        sy = sh + sg
        total += (sx + sy) / scale
        sh, sx = (1.0 - b) * sh + b * sg, (1.0 - a) * sx + gamma * sy
    return total
