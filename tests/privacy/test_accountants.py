from __future__ import annotations

import pytest

from tests.privacy.agreement import disagreements, modules

MUTANTS = [
    ("kernels", "cx, cy, majorant = -gamma_K, -b, gamma_K", "cx, cy, majorant = -gamma_K, b, gamma_K"),
    ("kernels", "keep_a * cx - gamma_K * cy", "keep_a * cx + gamma_K * cy"),
    ("kernels", "cy = keep_b * cy", "cy = keep_a * cy"),
    ("kernels", "return published_point(0.0, b, 0.0, K)", "return published_point(b, 0.0, 0.0, K)"),
    ("kernels", "return published_point(0.0, 0.0, 0.0, K)", "return published_point(0.0, 0.5, 0.0, K)"),
    ("pure", "y=unit * (1.0 + ", "y=unit * (2.0 + "),
    ("pure", "np.cumsum(kernel.abs_x)", "np.cumsum(kernel.abs_y)"),
    ("pure", "unit * (inverse_y + later_sums", "unit * (inverse_x + later_sums"),
    ("pure", "w += np.cumsum(left_y[::-1])[::-1]", "w += np.cumsum(left_y)"),
    ("pure", "w[:-1] += np.cumsum(left_x[:0:-1])[::-1]", "w[1:] += np.cumsum(left_x[:0:-1])[::-1]"),
    ("pure", "np.log1p(q * np.expm1(small))", "np.log1p(q * small)"),
    ("pure", "np.log(q + (1.0 - q) * np.exp", "np.log((1.0 - q) + q * np.exp"),
    ("pure", "values[first + 1 :]", "values[first : -1]"),
    ("pure", "2.0 * Lam if clipped else Lam", "Lam if clipped else Lam"),
    ("pure", "sg = min(sg, C) if clipped else sg", "sg = min(sg, C / m) if clipped else sg"),
    ("pure", "gamma * (sh + sg), abs(1.0 - b) * sh + b * sg", "gamma * sg, abs(1.0 - b) * sh + b * sg"),
    ("pure", "abs(1.0 - b) * sh + b * sg", "abs(1.0 - b) * sh"),
    ("pure", "cost[shift == 0.0] = 0.0", "pass"),
    ("concentrated", "entries = h1[j] * x[K - j :] + h2[j]", "entries = h1[j] * x[K - j :] - h2[j]"),
    ("concentrated", "            rows[:j] += entries\n", ""),
    ("concentrated", "h2[j] = iy[j] + cross * f1", "h2[j] = cross * f1"),
    ("concentrated", "2.0 * cross * keep_b * w12", "cross * keep_b * w12"),
    ("concentrated", "Y = _gram_bands((1.0, -(1.0 + a), a)", "Y = _gram_bands((1.0, -1.0, a)"),
    ("concentrated", "(c0 * c1 * one + c1 * c2 * two)", "(c0 * c1 * one)"),
    ("concentrated", "(c0 * c2 * two)", "(c1 * c2 * two)"),
    ("concentrated", "pivot = d - s * l2 - l1 * l1 * last", "pivot = d - l1 * l1 * last"),
    ("concentrated", "total = np.minimum(total, largest", "total = np.maximum(total, largest"),
    ("concentrated", "        if _positive(bands, middle):", "        if not _positive(bands, middle):"),
    ("concentrated", "total / least / least", "total / least"),
    ("concentrated", "np.sqrt(np.cumsum(leftover**2))", "np.cumsum(leftover**2)"),
    ("concentrated", "rho = 0.5 * norms**2", "rho = norms**2"),
    ("concentrated", "rho + 2.0 * np.sqrt(rho", "rho + np.sqrt(rho"),
    ("concentrated", "rho + 2.0 * math.sqrt(rho", "rho + math.sqrt(rho"),
    ("gaussian", "t = ratio - 0.5 * mu", "t = ratio + 0.5 * mu"),
    ("gaussian", "_erfcx((t + mu) / _SQRT2)", "_erfcx(t / _SQRT2)"),
    ("gaussian", "math.exp(x * x) * math.erfc(x)", "math.erfc(x)"),
    ("gaussian", "tail = x + 0.5 * n / tail", "tail = x + n / tail"),
    ("gaussian", "if gdp_delta(middle, epsilon) <= delta:", "if gdp_delta(middle, epsilon) > delta:"),
    ("curvature", "(feature_l1 + abs(bias)) / 2.0", "(feature_l1 + abs(bias)) / 4.0"),
    ("rounding", "max(ALLOWANCE, m * gamma(m + 8))", "ALLOWANCE"),
    ("rounding", "ALLOWANCE: Final = 2.0**-20", "ALLOWANCE: Final = 0.0"),
    ("rounding", "part = roundings * U", "part = -roundings * U"),
]


def test_every_formula_agrees_with_explicit_matrices() -> None:
    assert disagreements(modules()) == []


@pytest.mark.parametrize(("module", "old", "new"), MUTANTS, ids=[f"{m}: {old.strip()}" for m, old, _ in MUTANTS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_broken_formula_is_noticed(module: str, old: str, new: str) -> None:
    mutant = modules(module, old, new)
    try:
        found = disagreements(mutant)
    except (ArithmeticError, AssertionError, IndexError, ValueError):
        return
    assert found
