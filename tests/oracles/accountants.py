"""The accountants of privacy.md by explicit matrices and, where numbers are rational, exactly: nothing shared."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext, localcontext
from functools import cache

import numpy as np


def response_matrices(a, b, gamma, K, mechanism="published-point"):
    """cx, cy (K+1, K+1): response of dx_k, dy_k to dg_l, by running Algorithm 1 on every unit impulse.

    Entries are exact when a, b and gamma are Fractions.
    """
    zero = a * 0
    cx = [[zero] * (K + 1) for _ in range(K + 1)]
    cy = [[zero] * (K + 1) for _ in range(K + 1)]
    for at in range(K + 1):
        g = [1 + zero if k == at else zero for k in range(K + 1)]
        x, y = zero, g[0]
        for k in range(K + 1):
            cx[k][at] = x if mechanism == "published-point" else zero
            cy[k][at] = g[k] if mechanism == "noise-once" else y
            if k < K:
                x, y = (1 - a) * x - gamma * y, (1 - b) * y + g[k + 1] - g[k]
    return cx, cy


def tight(cx, cy, unit, sx, sy) -> list:
    """Cumulative, after every round."""
    total, out = 0, []
    for k in range(len(cy)):
        total += unit * (sum(abs(v) for v in cx[k]) / sx[k] + sum(abs(v) for v in cy[k]) / sy[k])
        out.append(total)
    return out


def weights(cx, cy, unit, sx, sy):
    K1 = len(cy)
    return [unit * sum(abs(cy[k][at]) / sy[k] + abs(cx[k][at]) / sx[k] for k in range(at, K1)) for at in range(K1)]


def amplified(w, q):
    return sum(math.log(1.0 + q * (math.exp(v) - 1.0)) for v in w)


def gram(cx, cy, sx, sy):
    A = np.vstack([np.array(cx, float) / np.array(sx)[:, None], np.array(cy, float) / np.array(sy)[:, None]])
    return A.T @ A


def energy(M):
    """min( sum |M|, (K+1) lambda_max(M), tr(D) lambda_max(D^-1/2 M D^-1/2) ), D = diag(M)."""
    D = np.diag(M)
    scaled = float(np.linalg.eigvalsh(M / np.sqrt(np.outer(D, D)))[-1])
    return min(float(np.abs(M).sum()), len(M) * float(np.linalg.eigvalsh(M)[-1]), float(D.sum()) * scaled)


def worst_energy(M, seed=0):
    """The largest sum of M[l,l'] <u_l, u_l'> over unit vectors u_l, by ascent in every u_l in turn: a lower bound."""
    n = len(M)
    u = np.random.default_rng(seed).normal(size=(n, n + 1))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    before = -1.0
    while (value := float(np.sum(M * (u @ u.T)))) > before * (1 + 1e-6):
        before = value
        for at in range(n):
            step = M[at] @ u - M[at, at] * u[at]
            if (length := float(np.linalg.norm(step))) > 0:
                u[at] = step / length
    return value


def zcdp(M, unit, delta):
    rho = 0.5 * unit**2 * energy(M)
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def gdp_delta(mu, epsilon):
    """delta(epsilon) of the Gaussian mechanism in decimal arithmetic, to 40 digits at least: Phi by its Taylor series.

    mu and epsilon are taken as the exact numbers that they are.
    """
    with localcontext() as context:
        reach = epsilon / mu + mu / 2.0
        context.prec = 60 + int(0.5 * reach * reach) + max(0, int(-3.0 * math.log10(mu)))
        mu, epsilon = Decimal(mu), Decimal(epsilon)
        return _phi(mu / 2 - epsilon / mu) - epsilon.exp() * _phi(-mu / 2 - epsilon / mu)


def _phi(z):
    square, total, term, n = z * z, z, z, 0
    tiny = Decimal(10) ** -getcontext().prec
    while abs(term) > tiny * abs(total):  # e^{-z^2/2} (z + z^3/3 + z^5/(3 5) + ...): no sign changes
        n += 1
        term = term * square / (2 * n + 1)
        total += term
    return Decimal(1) / 2 + (-square / 2).exp() * total / (2 * _pi(getcontext().prec)).sqrt()


@cache
def _pi(digits):
    """Machin: 16 arctan(1/5) - 4 arctan(1/239)."""
    with localcontext() as context:
        context.prec = digits + 10

        def arctan_of_inverse(n):
            power, total, k = Decimal(1) / n, Decimal(0), 0
            while abs(power) > Decimal(10) ** -(digits + 8):
                total += power / (2 * k + 1) * (-1) ** k
                power, k = power / (n * n), k + 1
            return total

        return 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)


def corrected_shifts(a, b, gamma, m, C, K, Lam=None):
    """Section 4 as printed: (sx, sy) of every round, exact when given Fractions; Lam None: sg_k = C for k >= 1."""
    x, y = [], []
    s_x = s_h = 0 * a
    for k in range(K + 1):
        s_g = C if Lam is None and k else C / m + (Lam or 0) * s_x
        s_y = s_h + s_g
        x.append(s_x)
        y.append(s_y)
        s_x, s_h = abs(1 - a) * s_x + gamma * s_y, abs(1 - b) * s_h + b * s_g
    return x, y


def corrected(a, b, gamma, m, C, K, Lam, sx, sy):
    """Its epsilon."""
    x, y = corrected_shifts(a, b, gamma, m, C, K, Lam)
    return sum(u / s for u, s in zip(x, sx, strict=True)) + sum(u / s for u, s in zip(y, sy, strict=True))
