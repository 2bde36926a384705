"""How runs of one data set compose, by root finding on the textbook formulas: nothing shared with the product."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import norm

PURE, APPROXIMATE = ("corrected", "tight", "amplified"), ("zcdp", "gdp", "binomial")
MU_LARGEST = 1e4


def delta_of_mu(mu: float, epsilon: float) -> float:
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(np.exp(first) * -np.expm1(second - first))


@cache
def epsilon_of_mu(mu: float, delta: float) -> float:
    """The least epsilon of mu-GDP at delta."""
    if mu == 0.0 or delta_of_mu(mu, 0.0) <= delta:
        return 0.0
    return brentq(lambda e: delta_of_mu(mu, e) - delta, 0.0, mu * mu + 40.0 * mu, xtol=1e-15, rtol=1e-14)


@cache
def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu whose epsilon at delta is at most ``epsilon``."""
    return brentq(lambda m: delta_of_mu(m, epsilon) - delta, 1e-12, MU_LARGEST, xtol=1e-15, rtol=1e-14)


def epsilon_of_rho(rho: float, delta: float) -> float:
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


@cache
def rho_of(epsilon: float, delta: float) -> float:
    """The root of rho + 2 sqrt(rho ln(1/delta)) = epsilon, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        log = -Decimal(delta).ln()
        return float(((log + Decimal(epsilon)).sqrt() - log.sqrt()) ** 2)


def renyi(epsilon: float, alpha: float) -> float:
    """Divergence of randomised response, the worst pair of pure epsilon."""
    p, q = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))  # logarithms
    return float(np.logaddexp(alpha * p + (1 - alpha) * q, alpha * q + (1 - alpha) * p)) / (alpha - 1.0)


@cache
def rho_of_pure(epsilon: float) -> float:
    """sup of D_alpha/alpha over a grid that begins at 1, in closed form there."""
    p = 1.0 / (1.0 + math.exp(-epsilon))
    at_one = (2.0 * p - 1.0) * epsilon
    return max([at_one, *(renyi(epsilon, a) / a for a in np.linspace(1.01, 40.0, 60))]) if epsilon else 0.0


def mu_of_pure(epsilon: float) -> float:
    return -2.0 * float(norm.ppf(1.0 / (1.0 + math.exp(epsilon))))


def counted(epsilon: dict, delta: float, allowed: tuple[str, ...]) -> list[tuple[str, float, Fraction]]:
    """(kind, amount, delta) of every way to count one run that is not beaten by another of its kind."""
    values = {name: v for name, v in epsilon.items() if name in allowed and v is not None}
    d = Fraction(repr(delta))
    pure = min((v for n, v in values.items() if n in PURE), default=None)
    found = [("plain", v, d) for n, v in values.items() if n in APPROXIMATE]
    rho, mu = [], []
    if pure is not None:
        found.append(("plain", pure, Fraction(0)))
        rho.append(rho_of_pure(pure))
        mu.append(mu_of_pure(pure) ** 2)
    if "zcdp" in values:
        rho.append(rho_of(values["zcdp"], delta))
    if "gdp" in values:
        square = mu_of(values["gdp"], delta) ** 2
        mu.append(square)
        rho.append(square / 2)
    shared = d if values.keys() & set(APPROXIMATE) else Fraction(0)
    return [*found, *(("rho", min(v), shared) for v in [rho] if v), *(("mu", min(v), shared) for v in [mu] if v)]


def together(parts: list[tuple[str, float, Fraction]], delta_max: Fraction | None) -> tuple[float, Fraction]:
    """(epsilon, delta) of parts; what delta is left goes to the composed kinds in equal shares, or each has its own."""
    epsilon = sum(amount for kind, amount, _ in parts if kind == "plain")
    delta = sum((d for kind, _, d in parts if kind == "plain"), Fraction(0))
    kinds = {kind for kind, *_ in parts} - {"plain"}
    left = None if delta_max is None else (delta_max - delta) / max(len(kinds), 1)
    for kind in kinds:
        amount = sum(a for k, a, _ in parts if k == kind)
        share = sum((d for k, _, d in parts if k == kind), Fraction(0)) if left is None else left
        if not 0 < share < 1:
            return math.inf, delta
        delta += share
        epsilon += (
            epsilon_of_rho(amount, float(share)) if kind == "rho" else epsilon_of_mu(math.sqrt(amount), float(share))
        )
    return epsilon, delta


def least(runs: list[tuple[dict, float]], delta_max: Fraction | None, allowed: tuple[str, ...] = PURE + APPROXIMATE):
    """The smallest epsilon over every way to count every run, with a total delta of at most ``delta_max``."""
    every = [counted(epsilon, delta, allowed) for epsilon, delta in runs]
    made = [together(list(parts), delta_max) for parts in itertools.product(*every)]
    return min((epsilon for epsilon, delta in made if delta_max is None or delta <= delta_max), default=math.inf)
