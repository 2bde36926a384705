"""Predicted rates: theta of Theorem 2 (S1), the matrix A_K of Lemma 2 and the factor of Theorem 3 (S2)."""

from __future__ import annotations

import numpy as np

from dpgt_node.algo.facts import Facts
from dpgt_node.algo.methods import method_of
from dpgt_node.config import model
from dpgt_node.types import F64
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Predictions of the theorem of the run's scheme; None where unknown or of the other scheme.

    S1: E||grad F||^2 = O((K+1)^-exponent), exponent = theta - p_gamma.  S2: O(factor^K), factor = max(rho_A_K, 1/p_m,
    max p^2).  No theorem: of another method than Algorithm 1.  ``oracle_complexity``: sum of m_k over all releases
    for one agent (the largest), Definition 2.
    """

    theorem: int | None
    theta: float | None
    exponent: float | None
    rho_A_K: float | None
    rho_A_K_printed: float | None
    inverse_p_m: float | None
    max_p_squared: float | None
    factor: float | None
    oracle_complexity: int | None
    note: str


def matrix_A(facts: Facts, *, printed: bool = False) -> F64 | None:
    """The 3x3 matrix A_K of Lemma 2 at the run's steps, or None when L1, mu or Assumption 1 is missing.

    ``printed``: A_K^(33) as the lemma prints it.  Its last term lacks the factor mu of the derivation (40), which is
    what the proof supports and what is used by default.
    """
    L, mu, r1, r2, s = facts.L1, facts.mu, facts.r1, facts.r2, facts.overlap
    if L is None or mu is None or r1 is None or r2 is None or not s or r1 <= 0.0 or r2 <= 0.0:
        return None
    assert facts.v1 is not None and facts.v2 is not None
    n, al, be, ga = facts.n, facts.schedule.alpha, facts.schedule.beta, facts.schedule.gamma
    V1, V2 = float(facts.v1 @ facts.v1), float(facts.v2 @ facts.v2)  # ||v1||^2, ||v2||^2
    ex, ey = (1 + r1 * al) / (r1 * al), (1 + r2 * be) / (r2 * be)
    last = 4 * s**2 * ga**2 * L / n**2 * (1.0 if printed else mu)
    return np.array(
        [
            [1 - r1 * al + 4 * ex * V2 * ga**2 * L**2 / n**3, 2 * ex * ga**2, 8 * ex * V2 * ga**2 * L / n**2],
            [
                6 * ey * (n * facts.rho_L1**2 * al**2 + 2 * V2 * ga**2 * L**2) * L**2 / n,
                1 - r2 * be + 6 * ey * ga**2 * L**2,
                24 * ey * V2 * ga**2 * L**3,
            ],
            [
                s * (3 * n + 4 * s * ga * L) * ga * L**2 / (2 * n**3),
                3 * V1 * ga / (2 * n * s),
                1 - s * mu * ga / n + last,
            ],
        ]
    )


def spectral_radius(A: F64) -> float:
    """Largest modulus of an eigenvalue."""
    return float(np.abs(np.linalg.eigvals(A)).max())


def _numbers(facts: Facts, *, printed: bool = False) -> F64 | None:
    """:func:`matrix_A`; None also where steps of 1e-300 or 1e200 make some entry too large for a number."""
    try:
        A = matrix_A(facts, printed=printed)
    except (OverflowError, ZeroDivisionError):
        return None
    return A if A is not None and np.isfinite(A).all() else None


def predict(facts: Facts) -> Rates:
    """Theorem 2 for S1, Theorem 3 for S2, whether or not their assumptions hold (the checks say that)."""
    scheme = facts.run.scheme
    m = _largest_m(facts)
    complexity = None if m is None else len(facts.schedule.releases) * m
    method = method_of(facts.run)
    why = facts.not_spoken_of if method.theorems else f"the paper's theorems do not speak of {method.name}"
    if why is not None:
        return Rates(None, None, None, None, None, None, None, None, complexity, why)
    if isinstance(scheme, model.SchemeS1):
        theta = min(
            scheme.p_m - scheme.p_beta,
            2 * scheme.p_alpha - scheme.p_beta - 2 * max(0.0, *(facts.p_zeta or (0.0,))),
            2 * scheme.p_beta - 2 * max(0.0, *(facts.p_eta or (0.0,))),
        )
        exponent = theta - scheme.p_gamma
        return Rates(2, theta, exponent, None, None, None, None, None, complexity, _override_note(facts))
    A, printed = _numbers(facts), _numbers(facts, printed=True)
    noise = [p * p for p in (facts.p_zeta or ()) + (facts.p_eta or ())]
    max_p = max(noise, default=0.0)
    inverse = 1.0 / scheme.p_m if scheme.p_m > 0.0 else None
    rho = None if A is None else spectral_radius(A)
    notes = [
        _override_note(facts),
        "needs L1, mu and Assumption 1, and steps whose squares and ratios are numbers" if rho is None else "",
        "Lemma 2 prints A_K^(33) without the factor mu of its proof (rho_A_K_printed), and uses spectral radii where "
        "the proof needs operator norms",
    ]
    return Rates(
        theorem=3,
        theta=None,
        exponent=None,
        rho_A_K=rho,
        rho_A_K_printed=None if printed is None else spectral_radius(printed),
        inverse_p_m=inverse,
        max_p_squared=max_p,
        factor=None if rho is None or inverse is None else max(rho, inverse, max_p),
        oracle_complexity=complexity,
        note="; ".join(note for note in notes if note),
    )


def _largest_m(facts: Facts) -> int | None:
    if facts.schedule.m is not None:
        return facts.schedule.m
    return max((d for d in facts.D if d is not None), default=None)


def _override_note(facts: Facts) -> str:
    scheme = facts.run.scheme
    if scheme.samples is None:
        return ""
    return f"samples overrides m_K; the prediction takes p_m = {scheme.p_m:g} as written"
