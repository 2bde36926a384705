"""Gaussian differential privacy: the exact trade-off of one Gaussian release with shift/scale mu.

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

It holds for a whole transcript whose shifts are chosen adaptively and whose squares add up to at most mu^2 on every
path: pad with a dummy release up to exactly mu^2, then the log-likelihood ratio is N(+-mu^2/2, mu^2) (Smith and
Thakurta 2022; Koskela et al. 2022); batches mix by convexity of delta.

Everything is computed in u = epsilon/mu.  With t = u - mu/2, s = u + mu/2, phi the normal density, Q(t) = Phi(-t) and
R = Q/phi (Mills' ratio),

    delta = Q(t) - phi(t) R(s) = phi(t) (R(t) - R(s)),      d ln delta / du = -mu phi(t) R(s) / delta

Neither t nor s cancels, whatever mu is: u and mu/2 are the numbers given.  What is held is the logarithm of delta, as
a part of the delta that is allowed, so that nothing underflows, and beside it a bound of its error.  Where mu is small,
R(t) - R(s) is a series about u without cancellation.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from dpgt_node.privacy.accountants.rounding import U
from dpgt_node.types import F64

_SQRT2: Final = math.sqrt(2.0)
_LOG_SQRT_2PI: Final = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF_PI: Final = math.sqrt(0.5 * math.pi)
_FRACTION_FROM: Final = 6.0
_LEVELS: Final = 60
_SERIES_BELOW: Final = 0.0625
_SERIES_LAST: Final = 7
_SERIES_REST: Final = 2.0**-49  # what follows it, of the first term: (mu/2)^8 I_9/(9! I_1) <= 2^-40/945, and less
_MARGIN: Final = 2.0**-42
_NEWTON_STEPS: Final = 100
_LEAST: Final = math.ulp(0.0)
_ENDLESS: Final = 1e155  # epsilon, about mu^2/2, is beyond all numbers


class _Point(NamedTuple):
    """ln(delta/allowed) at one point, a bound of its error, and its derivative by u."""

    log: float
    error: float
    slope: float

    @property
    def proven(self) -> bool:
        """Whether delta is within what is allowed."""
        return self.log + self.error <= 0.0


def gdp_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-GDP, an upper bound (relative error about 1e-12 at most); mu >= 0, epsilon >= 0."""
    if mu == 0.0:
        return 0.0
    if mu > _ENDLESS:
        return 1.0
    point = _excess(mu, epsilon / mu * (1.0 - 4.0 * U), 1.0)
    return min(1.0, max(math.exp(min(point.log + point.error, 0.0)) * (1.0 + 8.0 * U), _LEAST))


def gdp_epsilon(mu: float, delta: float, start: float | None = None) -> float:
    """An epsilon >= 0 with delta(epsilon) <= ``delta``, above the least one by about 1e-12 of it; 0 < delta < 1.

    0 where ``delta`` alone pays for mu.  ``start``: a guess (scaled from a slightly smaller mu).  Newton's steps on ln
    delta, which is concave, between two bounds that close in: at most 100 steps, and the upper bound is proven always.
    """
    if mu == 0.0:
        return 0.0
    if mu > _ENDLESS:
        return math.inf
    if _excess(mu, 0.0, delta).proven:
        return 0.0
    low, high = 0.0, 0.5 * mu + _beyond(delta)
    high *= 1.0 + 2.0 * U
    point = start / mu if start else high
    for _ in range(_NEWTON_STEPS):
        if not low < point < high:
            point = 0.5 * (low + high)
        if not low < point < high:
            break
        here = _excess(mu, point, delta)
        if here.proven:
            high = point
        else:
            low = point
        step = -here.log / here.slope if here.slope < 0.0 and math.isfinite(here.log) else -point
        if abs(step) <= _MARGIN * point:
            break
        point += step
    # The last step is within rounding of the root, on either side of it: up to where it is proven.
    margin = _MARGIN
    while (above := point * (1.0 + margin)) < high:
        if _excess(mu, above, delta).proven:
            high = above
            break
        margin *= 2.0
    return mu * high * (1.0 + 2.0 * U)


def gdp_mu(epsilon: float, delta: float) -> float:
    """Largest mu found with delta(epsilon) <= ``delta``, rounded down; epsilon >= 0, 0 < delta < 1."""
    beyond = _beyond(delta)

    def fits(mu: float) -> bool:
        return mu <= _ENDLESS and _excess(mu, epsilon / mu * (1.0 - 4.0 * U), delta).proven

    # delta(0) < mu/sqrt(2 pi); and where t >= beyond, delta(epsilon) <= Q(t) <= delta/2.
    least = 2.0 * epsilon / (beyond + math.sqrt(beyond * beyond + 2.0 * epsilon))
    low = max(2.5 * delta, least)
    while low > 0.0 and not fits(low):
        low *= 0.5
    high = 2.0 * max(low, _LEAST)
    while fits(high):
        low, high = high, 2.0 * high
    while high - low > 2.0 * U * high:
        middle = low + 0.5 * (high - low)
        if middle in (low, high):
            break
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def gdp_mu_above(epsilon: float, delta: float) -> float:
    """A mu that no run has whose epsilon at ``delta`` is at most ``epsilon``; above the largest of them by about 1e-12.

    Where ``epsilon`` is 0 that is the largest mu that costs nothing at ``delta``.  Infinite where no mu is excluded.
    """
    if math.isinf(epsilon) or delta >= 1.0:
        return math.inf

    def exceeds(mu: float) -> bool:
        point = _excess(mu, epsilon / mu * (1.0 + 4.0 * U), delta)
        return point.log - point.error > 0.0

    low = gdp_mu(epsilon, delta)
    high = 2.0 * max(low, _LEAST)
    while not exceeds(high):
        low, high = high, 2.0 * high
        if high > _ENDLESS:
            return math.inf
    while high - low > 4.0 * U * high:
        middle = low + 0.5 * (high - low)
        if middle in (low, high):
            break
        if exceeds(middle):
            high = middle
        else:
            low = middle
    return high


def gdp(norms: F64, delta: float) -> F64:
    """Cumulative epsilon after every row; ``norms`` nondecreasing mu after every row (:func:`shift_norm`)."""
    out = np.empty(len(norms))
    seen = epsilon = 0.0
    for row, mu in enumerate(norms.tolist()):
        if mu > seen:
            guess = epsilon / seen * mu if seen and math.isfinite(epsilon) else None
            seen, epsilon = mu, max(epsilon, gdp_epsilon(mu, delta, guess))
        out[row] = epsilon
    return out


def _beyond(delta: float) -> float:
    """A t with Q(t) <= ``delta``/2, by Q(t) <= e^{-t^2/2}/2."""
    return math.sqrt(-2.0 * math.log(delta)) * (1.0 + 8.0 * U)


def _excess(mu: float, u: float, allowed: float) -> _Point:
    """ln(delta/``allowed``) of mu-GDP at epsilon = ``mu`` ``u``; 0 < mu <= 1e155, u >= 0, 0 < allowed <= 1.

    t and s are off by U of themselves, which moves ln phi(t) by U t^2 and a Mills ratio by less than U of itself.
    """
    t, s = u - 0.5 * mu, u + 0.5 * mu
    log_phi = -0.5 * t * t - _LOG_SQRT_2PI
    if log_phi == -math.inf and t > 0.0:
        return _Point(-math.inf, 0.0, -math.inf)
    far, far_error = _mills(s)
    parts: tuple[float, ...]
    if u == 0.0 and mu < 1e-9:  # delta = erf(mu/sqrt 8) <= mu/sqrt(2 pi), and less by mu^2/24 of it
        parts, error = (_log_ratio(mu, allowed), -_LOG_SQRT_2PI), 0.0
    elif u == 0.0:
        parts, error = (_log_ratio(math.erf(mu / (2.0 * _SQRT2)), allowed),), 8.0 * U
    elif mu < _SERIES_BELOW:
        size, error = _series(u, mu)
        parts, error = (_log_ratio(mu, allowed), math.log(size), log_phi), error / size + 2.0 * U * t * t
    elif t < 0.0:
        first, second = 0.5 * math.erfc(t / _SQRT2), math.exp(log_phi) * far
        size = first - second
        error = 24.0 * U * first + (far_error / far + (16.0 + 2.0 * min(t * t, 1400.0)) * U) * second
        parts, error = (_log_ratio(size, allowed),), error / size
    else:
        near, near_error = _mills(t)
        size, error = near - far, near_error + far_error + 4.0 * U * near
        if size <= error:  # far out: only a bound from above is left
            size, error = near, near_error
        parts, error = (-math.log(allowed), math.log(size), log_phi), error / size + 2.0 * U * t * t
    log = sum(parts)
    error += 4.0 * U * (sum(map(abs, parts)) + 2.0)
    slope = log_phi + math.log(far) - math.log(allowed) - log
    return _Point(log, error, -mu * math.exp(min(slope, 700.0)))


def _log_ratio(part: float, whole: float) -> float:
    """ln(part/whole), which is most accurate where both are about the same."""
    ratio = part / whole
    return math.log(ratio) if math.isfinite(ratio) else math.log(part) - math.log(whole)


def _mills(x: float) -> tuple[float, float]:
    """R(x) = Q(x)/phi(x) and a bound of its error, x >= 0.

    x < 6: e^{x^2/2} erfc(x/sqrt 2); the exponent is off by U x^2/2, the argument of erfc by 2U of itself, which moves
    it by 2 (x^2 + 1) 2U.  Else R = 1/(x + 1/(x + 2/(x + ...))), each level of which halves the error
    that it inherits.
    """
    if x < _FRACTION_FROM:
        value = _SQRT_HALF_PI * math.exp(0.5 * x * x) * math.erfc(x / _SQRT2)
        return value, (32.0 + 5.0 * x * x) * U * value
    value = 1.0 / (x + _ratios(x, 1)[0])
    return value, 32.0 * U * value


def _ratios(x: float, count: int) -> list[float]:
    """r_1, r_2, ..., r_count with r_n = I_n/I_{n-1} = n/(x + r_{n+1}), see :func:`_series`; x >= 6."""
    ratio, found = 0.0, []
    for n in range(_LEVELS, 0, -1):
        ratio = n / (x + ratio)
        if n <= count:
            found.append(ratio)
    return found[::-1]


def _series(u: float, mu: float) -> tuple[float, float]:
    """(R(u - mu/2) - R(u + mu/2))/mu and a bound of its error, u >= 0, 0 < mu <= 1/16.

    With I_n = integral over v >= 0 of v^n e^{-u v - v^2/2}: I_0 = R(u), I_{n+1} = n I_{n-1} - u I_n, and this is
    I_1 + h^2 I_3/3! + h^4 I_5/5! + h^6 I_7/7! + ..., h = mu/2.  I_n/I_1 is largest at u = 0.
    """
    first, first_error = _mills(u)
    values, errors = [first], [first_error]
    if u < _FRACTION_FROM:
        values.append(1.0 - u * first)
        errors.append(u * first_error + 2.0 * U * (1.0 + u * first))
        for n in range(1, _SERIES_LAST):
            values.append(n * values[n - 1] - u * values[n])
            errors.append(n * errors[n - 1] + u * errors[n] + 4.0 * U * (n * values[n - 1] + u * abs(values[n])))
    else:
        for n, ratio in enumerate(_ratios(u, _SERIES_LAST), start=1):
            values.append(values[-1] * ratio)
            errors.append(values[-1] * (32.0 + 8.0 * n) * U)
    size = error = 0.0
    weight, square = 1.0, 0.25 * mu * mu
    for n in range(1, _SERIES_LAST + 1, 2):
        size += weight * values[n]
        error += weight * errors[n]
        weight *= square / ((n + 1) * (n + 2))
    return size, error + (16.0 * U + _SERIES_REST) * size
