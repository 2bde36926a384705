"""Codes with fair coins, and what they cost, the dumb way: a coordinate and an outcome at a time; nothing shared."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction


def code(g: float, B: float, levels: int, u: float, heads: int) -> int:
    """Stochastic rounding of clip(g, +-B), and the heads of so many coins."""
    v = (min(max(g, -B), B) + B) * (levels - 1) / (2.0 * B)
    low = math.floor(v)
    return low + (1 if u < v - low else 0) + heads


def decoded(code: int, B: float, levels: int, N: int) -> float:
    return 2.0 * B / (levels - 1) * (code - N / 2.0) - B


def pmf(N: int, k: int) -> Fraction:
    return Fraction(math.comb(N, k), 1 << N) if 0 <= k <= N else Fraction(0)


def quantile(N: int, word: int) -> int:
    """The number of k with F(k) <= word/2^64, F of Bin(N, 1/2)."""
    total = 0
    for k in range(N):
        total += math.comb(N, k)
        if total << 64 > word << N:
            return k
    return N


def delta_of_shift(N: int, shift: int, epsilon: float) -> float:
    """sup over sets of P(S) - e^epsilon Q(S) for Bin(N, 1/2) against itself moved by ``shift``."""
    factor = Fraction(math.exp(epsilon))
    rows = range(-abs(shift), N + abs(shift) + 1)
    return float(sum(max(Fraction(0), pmf(N, k) - factor * pmf(N, k - shift)) for k in rows))


def theorem_1(d: int, delta: float, s: float, N: int, D1: float, D2: float, Dinf: float, p: float = 0.5) -> float:
    """cpSGD, Theorem 1, as printed, on step s."""
    v = N * p * (1 - p)
    if v < max(23 * math.log(10 * d / delta), 2 * Dinf / s):
        return math.inf
    square = p * p + (1 - p) ** 2
    b, c = 2 / 3 * square + 1 - 2 * p, math.sqrt(2) * (3 * p**3 + 3 * (1 - p) ** 3 + 2 * square)
    return (
        D2 * math.sqrt(2 * math.log(1.25 / delta)) / (s * math.sqrt(v))
        + (D2 * c * math.sqrt(math.log(10 / delta)) + D1 * b) / (s * v * (1 - delta / 10))
        + (
            2 / 3 * Dinf * math.log(1.25 / delta)
            + Dinf * 4 / 3 * square * math.log(20 * d / delta) * math.log(10 / delta)
        )
        / (s * v)
    )


def law(N: int, v: float) -> dict[int, Fraction]:
    """Of the code of v: stochastic rounding, then the heads."""
    low, up = math.floor(v), Fraction(v) - math.floor(v)
    rows = range(low, low + N + 2)
    return {k: p for k in rows if (p := (1 - up) * pmf(N, k - low) + up * pmf(N, k - low - 1))}


def delta_of(pairs: list[tuple[dict[int, Fraction], dict[int, Fraction]]], epsilon: float) -> float:
    """sup over sets of P(S) - e^epsilon Q(S) for independent coordinates, all outcomes one at a time."""
    total = 0.0
    floats = [[(float(p), float(Q.get(k, 0))) for k, p in P.items()] for P, Q in pairs]
    for outcome in itertools.product(*floats):
        total += max(0.0, math.prod(p for p, _ in outcome) - math.exp(epsilon) * math.prod(q for _, q in outcome))
    return total


def moment(P: dict[int, Fraction], Q: dict[int, Fraction], order: float, within: range) -> float:
    """sum of P^order Q^(1 - order) over some outcomes."""
    return math.fsum(float(P[k]) ** order * float(Q[k]) ** (1.0 - order) for k in within if P.get(k) and Q.get(k))
