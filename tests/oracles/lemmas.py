"""Lemmas 4 and 5 of the paper as printed: explicit double sums, exact rationals where the inputs are rational."""

from __future__ import annotations

from fractions import Fraction


def lemma4_sums(a, b, gamma, m, C, K) -> tuple[list, list]:
    """||dx_k||_1 and ||dy_k||_1, k = 0..K, from the lemma's sums (not its recursion)."""
    dy = [
        Fraction(C) / m
        if k == 0
        else sum(abs(1 - b) ** s * 2 * Fraction(C) / m for s in range(k)) + abs(1 - b) ** k * Fraction(C) / m
        for k in range(K + 1)
    ]
    dx = [
        Fraction(0) if k == 0 else gamma * sum(abs(1 - a) ** (k - s - 1) * dy[s] for s in range(k))
        for k in range(K + 1)
    ]
    return dx, dy


def lemma5_sum(dx, dy, sigma_x, sigma_y):
    """epsilon_i = sum_k dx_k / sigma_zeta_k + dy_k / sigma_eta_k."""
    return sum(dx[k] / sigma_x[k] + dy[k] / sigma_y[k] for k in range(len(dx)))


def worst_case_shifts(a, b, gamma, m, C, K) -> tuple[list, list]:
    """Largest |dx_k|, |dy_k| of a scalar agent over every sign pattern of a one-sample swap, by enumeration.

    The transcript (all received values) is held fixed; each round's g may move by -C/m, 0 or +C/m: Lemma 4's premise.
    """
    from itertools import product

    best_x, best_y = [Fraction(0)] * (K + 1), [Fraction(0)] * (K + 1)
    for signs in product((-1, 0, 1), repeat=K + 1):
        moved = [Fraction(s) * C / m for s in signs]
        x, y = Fraction(0), moved[0]
        for k in range(K + 1):
            best_x[k], best_y[k] = max(best_x[k], abs(x)), max(best_y[k], abs(y))
            if k < K:
                x, y = (1 - a) * x - gamma * y, (1 - b) * y + moved[k + 1] - moved[k]
    return best_x, best_y
