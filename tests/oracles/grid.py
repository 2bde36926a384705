"""Grid Laplace noise by the book: fractions, loops and the words one by one."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from math import floor, inf, nextafter


def largest_remainder(cells: int, total: int) -> list[int]:
    """``total`` shared out in proportion to 2^(-l/cells), l = 0..cells-1."""
    with localcontext(prec=60):
        ideal = [Decimal(2) ** (Decimal(-at) / cells) for at in range(cells)]
        exact = [total * value / sum(ideal) for value in ideal]
        shares = [int(value) for value in exact]
        by_remainder = sorted(range(cells), key=lambda at: shares[at] - exact[at])
        for at in by_remainder[: total - sum(shares)]:
            shares[at] += 1
    return shares


def steepest(weights: list[int]) -> Fraction:
    """Largest ratio of neighbouring weights over three blocks, each half of the one before, minus 1."""
    line = [Fraction(w, 2**block) for block in range(3) for w in weights]
    return max(max(p / q, q / p) for p, q in pairwise(line)) - 1


def enumerated(weights: list[int], bits: int, blocks: int) -> dict[int, dict[int, Fraction]]:
    """P(i + N = j) for every x = q / 2^bits, q = 0..2^bits, by going through every outcome of every coin.

    hi stops at ``blocks``: outputs more than ``blocks - 1`` blocks away are wrong, all others exact.
    """
    laws: dict[int, dict[int, Fraction]] = {}
    for q in range(2**bits + 1):
        law: dict[int, Fraction] = {}
        for u in range(2**bits):
            for hi in range(blocks):
                for lo, weight in enumerate(weights):
                    p = Fraction(1, 2**bits) * Fraction(1, 2 ** (hi + 1)) * Fraction(weight, sum(weights)) / 2
                    for n in (hi * len(weights) + lo, -1 - hi * len(weights) - lo):
                        j = (q + u) // 2**bits + n
                        law[j] = law.get(j, Fraction(0)) + p
        laws[q] = law
    return laws


def released(
    v: float, kappa: Fraction, scale: float, word: int, short: int, further: list[int], weights: list[int]
) -> float:
    """One coordinate from its 64 + 32 bits (``further``: words consumed from the front when 31 are all zero)."""
    g = float(kappa * Fraction(scale))
    if Fraction(g) < kappa * Fraction(scale):
        g = nextafter(g, inf)
    q = int(v / (g / 2**40))
    i = (q + word % 2**40) // 2**40
    r, lo = word // 2**40, 0
    while r >= weights[lo]:
        r -= weights[lo]
        lo += 1
    sign, magnitude = short // 2**31, short % 2**31
    hi = 0
    if magnitude == 0:
        hi, magnitude = 31, further.pop(0)
        while magnitude == 0:
            hi, magnitude = hi + 64, further.pop(0)
    while magnitude % 2 == 0:
        hi, magnitude = hi + 1, magnitude // 2
    n = 64 * hi + lo
    return g * (i + (-1 - n if sign else n) + 0.5)


def normal_cdf(c: Fraction) -> Fraction:
    """Phi(c) to 1e-45 for |c| <= 10: the series of positive terms, phi(c) (c + c^3/3 + c^5/(3 5) + ...)."""
    with localcontext(prec=80):
        x = Decimal(c.numerator) / Decimal(c.denominator)
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
        term, total, k = x, x, 1
        while abs(term) > Decimal("1e-75"):
            k += 2
            term *= x * x / k
            total += term
        return Fraction(Decimal("0.5") + total * (-x * x / 2).exp() / (2 * pi).sqrt())


def normal_cell(v: float, scale: float, word: int) -> int:
    """floor((v + scale Z) 256/scale) for the 64 bits of Z; fails where 64 bits do not decide it."""
    p = [Fraction(word % 2**63 + end, 2**64) for end in (0, 1)]
    uniform = [1 - p[1], 1 - p[0]] if word >> 63 else p
    offset = Fraction(v) / Fraction(scale)
    low, high = floor((offset - 10) * 256), floor((offset + 10) * 256)
    while high - low > 1:
        middle = (low + high) // 2
        edge = normal_cdf(Fraction(middle, 256) - offset)
        assert not uniform[0] < edge < uniform[1], "more bits are needed"
        low, high = (middle, high) if edge <= uniform[0] else (low, middle)
    return low
