from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.oracles import accountants as oracle
from tests.privacy.agreement import MECHANISMS, disagreements, modules, reference

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
    ("pure", "sg = C if k else C / m", "sg = C / m"),
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
    ("concentrated", "(1.0, -(a + b), a * b), weights)", "(1.0, -(a + b), a * b), np.ones(len(weights)))"),
    (
        "concentrated",
        "trace = float((diagonal / weights).max()), np.cumsum(weights)",
        "trace = float((diagonal / weights).max()), np.arange(1.0, K + 2.0)",
    ),
    ("concentrated", "bounds = (np.ones(K + 1), diagonal) if", "bounds = (np.ones(K + 1),) if"),
    (
        "concentrated",
        "total = np.minimum(total, largest * trace)",
        "total = np.minimum(total, total[-1] * (largest * trace) / (largest * trace[-1]))",
    ),
    ("concentrated", "lambda value: _positive(bands, value)", "lambda value: not _positive(bands, value)"),
    ("concentrated", "np.sqrt(total) / least", "np.sqrt(total)"),
    ("concentrated", "largest * np.sqrt(np.cumsum(np.square(part)))", "largest * np.cumsum(np.square(part))"),
    ("concentrated", "largest * np.sqrt(np.cumsum", "np.sqrt(np.cumsum"),
    ("concentrated", "norms * (0.5 * norms", "norms * (norms"),
    ("concentrated", "math.sqrt(-2.0 * math.log(delta))", "math.sqrt(-math.log(delta))"),
    ("concentrated", "rho + 2.0 * math.sqrt(rho", "rho + math.sqrt(rho"),
    ("rounding", "max(ALLOWANCE, m * gamma(m + 8))", "ALLOWANCE"),
    ("rounding", "ALLOWANCE: Final = 2.0**-20", "ALLOWANCE: Final = 0.0"),
    ("rounding", "part = roundings * U", "part = -roundings * U"),
]


def test_every_formula_agrees_with_explicit_matrices() -> None:
    assert disagreements(modules()) == []


def test_random_settings_agree() -> None:
    rng = np.random.default_rng(17)
    for _ in range(25):
        a, b = (rng.choice([0.0, rng.uniform(0, 0.99)]) for _ in range(2))
        case = {"a": a, "b": rng.choice([a, b]), "gamma": rng.uniform(0.01, 3.0), "K": int(rng.integers(0, 16))}
        case |= {"p_zeta": rng.uniform(-1, 1), "p_eta": rng.uniform(-1, 1)}
        assert disagreements(modules(), tuple(reference(case, name) for name in MECHANISMS)) == []


def test_sums_are_rounded_up_not_to_nearest() -> None:
    m = modules()
    for case in ({"a": 0.1, "b": 0.03, "gamma": 0.7, "K": 40}, {"a": 0.3, "b": 0.3, "gamma": 0.1, "K": 30}):
        K, none = case["K"], np.zeros(case["K"] + 1)
        sx, sy = np.linspace(0.9, 1.7, K + 1), np.linspace(1.3, 0.4, K + 1)
        kernel = m.kernels.published_point(case["a"], case["b"], case["gamma"], K)
        cx, cy = oracle.response_matrices(*(Fraction(case[n]) for n in ("a", "b", "gamma")), K)
        exact_scales = [[Fraction(v) for v in s] for s in (sx, sy)]
        tight = m.pure.tight(kernel, 0.1, sx, sy, none, none)[1::2]
        w = m.pure.participation_weights(kernel, 0.1, sx, sy, none, none)
        exact = oracle.tight(cx, cy, Fraction(0.1), *exact_scales)
        exact += oracle.weights(cx, cy, Fraction(0.1), *exact_scales)
        for got, value in zip([*tight, *w], exact, strict=True):
            assert value <= Fraction(got) <= value * (1 + Fraction(1, 10**12))


def test_eigenvalues_a_round_of_privacy_md() -> None:
    # Section 3: lambda_max against sum|M| a round, sigma = 1, K = 400.
    m = modules()
    K, one = 400, np.ones(401)
    for (a, b, gamma), mechanism, largest, total in (
        ((0.04, 0.005, 0.05), "public-state", 1.005, 1.76),
        ((0.1, 0.01, 0.1), "public-state", 1.010, 1.88),
        ((0.04, 0.005, 0.05), "published-point", 2.07, 2.75),
        ((0.1, 0.01, 0.1), "published-point", 1.77, 2.75),
    ):
        kernel = (
            m.kernels.public_state(b, K) if mechanism == "public-state" else m.kernels.published_point(a, b, gamma, K)
        )
        rows, diagonal = m.concentrated.gram_rows(kernel, one, one)
        top = m.concentrated.largest_eigenvalue(kernel, one, one, one, diagonal.max(), rows.max())
        assert top == pytest.approx(largest, abs=0.006) and rows.sum() / (K + 1) == pytest.approx(total, abs=0.006)
        assert 0.995 * (K + 1) * top < m.concentrated.shift(kernel, one, one)[-1] ** 2 <= (K + 1) * top * (1 + 1e-12)


@pytest.mark.parametrize(
    ("p", "mechanism", "plain", "scaled"),
    [
        (0.1, "public-state", 256.2, 151.6),
        (0.1, "published-point", 389.5, 302.2),
        (-0.1, "public-state", 1336.2, 1124.3),
        (-0.1, "published-point", 2491.0, 2401.2),
        (0.3, "public-state", 39.1, 25.7),
        (0.3, "published-point", 54.4, 49.0),
    ],
)
def test_scales_that_change_over_the_rounds_are_followed(p, mechanism, plain, scaled) -> None:
    # K = 400, the paper's printed S1 steps: the bound scaled by diag(M) against the two others.
    m = modules()
    K = 400
    scale = np.arange(1.0, K + 2.0) ** p
    kernel = (
        m.kernels.public_state(0.005, K)
        if mechanism == "public-state"
        else m.kernels.published_point(0.04, 0.005, 0.05, K)
    )
    rows, diagonal = m.concentrated.gram_rows(kernel, scale**-2.0, scale**-2.0)
    top = m.concentrated.largest_eigenvalue(
        kernel, scale**-2.0, scale**-2.0, np.ones(K + 1), float(diagonal.max()), float(rows.max())
    )
    assert min(rows.sum(), (K + 1) * top) == pytest.approx(plain, abs=0.06)
    assert m.concentrated.shift(kernel, scale, scale)[-1] ** 2 == pytest.approx(scaled, abs=0.06)


def test_no_shifts_exceed_the_energy() -> None:
    m, rng = modules(), np.random.default_rng(23)
    closest = 0.0
    for _ in range(60):
        a, b, gamma, K = rng.uniform(0, 0.9), rng.uniform(0, 0.9), rng.uniform(0, 2), int(rng.integers(1, 9))
        sx, sy = np.exp(rng.normal(0, rng.uniform(0, 2), (2, K + 1)))
        cx, cy = (np.array(one) for one in oracle.response_matrices(a, b, gamma, K))
        energy = m.concentrated.shift(m.kernels.published_point(a, b, gamma, K), sx, sy) ** 2
        for k in range(K + 1):
            rounds = slice(0, k + 1)
            M = oracle.gram(cx[rounds, rounds], cy[rounds, rounds], sx[rounds], sy[rounds])
            worst = max(oracle.worst_energy(M, seed) for seed in range(2))
            assert worst <= energy[k]
        closest = max(closest, worst / energy[-1])
    assert closest > 0.999, "the search finds the worst shifts, so a bound that is too small would be caught"


def test_scales_too_far_apart_for_the_scaled_bound_keep_the_others() -> None:
    m = modules()
    kernel = m.kernels.public_state(0.2, 3)
    scale = np.array([1.0, 1e120, 1e155, 1e160])
    assert 1.0 <= m.concentrated.shift(kernel, scale, scale)[-1] ** 2 < 1.3


@pytest.mark.parametrize(("module", "old", "new"), MUTANTS, ids=[f"{m}: {old.strip()}" for m, old, _ in MUTANTS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_broken_formula_is_noticed(module: str, old: str, new: str) -> None:
    mutant = modules(module, old, new)
    try:
        found = disagreements(mutant)
    except (ArithmeticError, AssertionError, IndexError, ValueError):
        return
    assert found


def test_the_least_proven_value_is_proven_and_close() -> None:
    wrong = modules("rounding", "        if proven(middle):", "        if not proven(middle):")
    for made, right in ((modules(), True), (wrong, False)):
        value = made.rounding.least_proven(lambda value: value >= 2.0, 0.0, 5.0, 60)
        assert (2.0 <= value <= 2.0 + 1e-12) is right
