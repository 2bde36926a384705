"""Every condition of the paper on graphs, steps, sampling and noise, as rows with both sides.

Where the paper errs or leaves a choice, the row's note says what was decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpgt_node.algo.checks import (
    Check,
    Relation,
    compare,
    compare_decimals,
    conjunction,
    decimal,
    judged_by_bounds,
    listed,
    worst,
)
from dpgt_node.algo.facts import ROBUST, Facts
from dpgt_node.algo.hard import graph_rows
from dpgt_node.algo.methods import method_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.privacy.mechanisms import MECHANISMS, PAPER

NEEDS_L1 = "needs L1"
NEEDS_MU = "needs mu"
OTHER_MECHANISM = f"about mechanism {PAPER.name}; see the accountants"
NEEDS_GRAPH = "needs Assumption 1"
Formula = Callable[[float, float], float]


def step_rows(s: Schedule, alpha_bounds: tuple[float, float], beta_bounds: tuple[float, float]) -> list[Check]:
    """Lemma 1(ii): bounds by weights and by eigenvalues."""
    return [
        compare("Lemma 1: alpha < min 1/r_i", s.alpha, "<", alpha_bounds[0]),
        compare("Lemma 1: alpha < min Re(w)/(1+|w|^2)", s.alpha, "<", alpha_bounds[1]),
        compare("Lemma 1: beta < min 1/c_i", s.beta, "<", beta_bounds[0]),
        compare("Lemma 1: beta < min Re(w)/(1+|w|^2)", s.beta, "<", beta_bounds[1]),
    ]


def lemma1_rows(f: Facts) -> list[Check]:
    """Lemma 1 and the step condition of Lemma 2 at this run's K."""
    rows = []
    for label, w in (("L1", f.spectrum_L1), ("L2", f.spectrum_L2)):
        rows.append(compare(f"Lemma 1: zero eigenvalues of {label}", float(w.zeros), "=", 1.0))
        rows.append(compare(f"Lemma 1: least real part of the others of {label}", w.least, ">", 0.0))
    rows += [
        *step_rows(
            f.schedule,
            (f.alpha_weight_bound, f.alpha_spectral_bound),
            (f.beta_weight_bound, f.beta_spectral_bound),
        ),
        compare("Lemma 1: v1'v2 > 0", f.overlap, ">", 0.0, note="" if f.overlap is not None else NEEDS_GRAPH),
        _contracts("Lemma 1: r1 > 0", f.r1, "alpha"),
        _contracts("Lemma 1: r2 > 0", f.r2, "beta"),
        _spoken_of(f, _gamma(f, "Lemma 2: gamma < n/(4 v1'v2 L1)", f.schedule.gamma, 4.0)),
    ]
    return judged_by_bounds(rows, f.bounded)


def _contracts(name: str, rate: float | None, step: str) -> Check:
    meaning = f"largest r with rho(W - {step} L) <= 1 - r {step}; serves smaller steps too"
    return compare(name, rate, ">", 0.0, note=NEEDS_GRAPH if rate is None else meaning)


def _gamma(f: Facts, name: str, lhs: float, factor: float, note: str = "") -> Check:
    """``lhs`` < n / (factor v1'v2 L1)."""
    bound, missing = _bound(f, lambda L, s: f.n / (factor * s * L))
    return compare(name, lhs, "<", bound, note=note).noted(missing)


def objective_rows(f: Facts) -> list[Check]:
    """Assumptions 2 and 3 as far as they can be known."""
    clipped = f.run.privacy.enforced
    return [
        compare("Assumption 2(i): L1 known", f.L1, ">", 0.0, note="" if f.L1 is not None else NEEDS_L1),
        _spoken_of(
            f,
            Check(
                "Assumption 2(ii): unbiased gradients",
                False if clipped else None,
                None,
                None,
                "=",
                "clipping biases gradients: Theorems 1-3 do not apply literally" if clipped else "not checked here",
            ),
        ),
        compare("Assumption 3: mu > 0", f.mu, ">", 0.0, note="" if f.mu is not None else NEEDS_MU),
    ]


def scheme_rows(f: Facts) -> list[Check]:
    """Assumption 4, Theorem 4 and Corollary 1(i) for S1; Assumption 5, Theorem 5 and Corollary 1(ii) for S2."""
    graph = graph_rows(f.topology)
    if isinstance(f.run.scheme, model.SchemeS1):
        steps, privacy, part = assumption4_rows(f, f.run.scheme), theorem4_rows(f, f.run.scheme), "(i)"
        extra = privacy[:2]
    else:
        steps, privacy, part = assumption5_rows(f, f.run.scheme), theorem5_rows(f, f.run.scheme), "(ii)"
        extra = privacy[:6]
    steps = judged_by_bounds(steps, f.bounded)
    if f.run.robust.on:
        return [row.not_applying(ROBUST) for row in (*steps, *privacy)]
    if not method_of(f.run).noisy:  # its privacy is not at stake: there is none
        return steps
    if not MECHANISMS[f.run.algorithm.mechanism].printed:
        # A stream may be sent without noise there because it follows from what was released: not an infinite epsilon.
        steps = [_spoken_of(f, row.not_applying(OTHER_MECHANISM) if _about_noise(row) else row) for row in steps]
        privacy = [row.not_applying(OTHER_MECHANISM) for row in privacy]
        corollary = conjunction(f"Corollary 1{part}", []).not_applying(OTHER_MECHANISM)
        return [*steps, *privacy, corollary]
    both = conjunction(
        f"Corollary 1{part}",
        [*graph, *objective_rows(f), *steps, *extra],
        note="rate and finite epsilon at once; its epsilon is Lemma 5's, which is conditional",
    )
    return [*steps, *privacy, both]


def _about_noise(row: Check) -> bool:
    return "p_zeta" in row.name or "p_eta" in row.name


def _spoken_of(f: Facts, row: Check) -> Check:
    """``row``, not judged where the theorem that it is for does not speak of such a run."""
    return row if f.not_spoken_of is None else row.not_applying(f.not_spoken_of)


def assumption4_rows(f: Facts, s: model.SchemeS1) -> list[Check]:
    """Assumption 4, the constants a1, a2, a3 and the exponents of S1."""
    name = "Assumption 4: {}".format
    al, be, ga, pm = (decimal(v) for v in (s.p_alpha, s.p_beta, s.p_gamma, s.p_m))
    zeta, eta = (max([decimal(p) for p in noise or ()] + [decimal(0.0)]) for noise in (f.p_zeta, f.p_eta))
    rows = [
        compare(name("a1 < min 1/r_i"), s.a1, "<", f.alpha_weight_bound),
        compare(name("a1 < min Re(w)/(1+|w|^2)"), s.a1, "<", f.alpha_spectral_bound),
        compare(name("a2 < min 1/c_i"), s.a2, "<", f.beta_weight_bound),
        compare(name("a2 < min Re(w)/(1+|w|^2)"), s.a2, "<", f.beta_spectral_bound),
        _gamma(f, name("a3 < n/(4 v1'v2 L1)"), s.a3, 4.0, "the paper prints L; only L1 is defined"),
        compare(name("p_beta > 1/2"), s.p_beta, ">", 0.5),
        compare(name("p_alpha > p_beta"), s.p_alpha, ">", s.p_beta),
        compare(name("p_gamma > p_alpha"), s.p_gamma, ">", s.p_alpha),
        compare(name("p_gamma < 1"), s.p_gamma, "<", 1.0),
        compare_decimals(name("p_m - p_beta >= 1"), pm - be, ">=", 1),
        compare_decimals(name("2 p_gamma - p_alpha >= 1"), 2 * ga - al, ">=", 1),
        compare_decimals(
            name("2 p_alpha - p_beta - 2 max(max p_zeta, 0) >= 1"), 2 * al - be - 2 * zeta, ">=", 1, note=f.noise_note
        ).noted(_too_loud(f, f.p_zeta, float((2 * al - be - 1) / 2))),
        compare_decimals(
            name("p_gamma + 2 p_beta - 2 max(max p_eta, 0) >= 2"), ga + 2 * be - 2 * eta, ">=", 2, note=f.noise_note
        ).noted(_too_loud(f, f.p_eta, float((ga + 2 * be - 2) / 2))),
    ]
    return [_judged_as_written(f, row) for row in rows]


def theorem4_rows(f: Facts, s: model.SchemeS1) -> list[Check]:
    """Theorem 4: finite epsilon over infinitely many iterations of S1.  The first two rows are Corollary 1's."""
    al, be, ga, pm = (decimal(v) for v in (s.p_alpha, s.p_beta, s.p_gamma, s.p_m))
    zero = decimal(0.0)
    rows = []
    for name, rest, p in (
        ("Theorem 4: p_m - p_beta + min(min p_eta - 1, 0) > 0", pm - be, f.p_eta),
        (
            "Theorem 4: p_m + min(0, p_gamma - p_alpha - p_beta) + min(min p_zeta - 1, 0) > 0",
            pm + min(zero, ga - al - be),
            f.p_zeta,
        ),
    ):
        if p is None:
            rows.append(Check(name, False, None, 0.0, ">", "without noise epsilon is infinite"))
            continue
        lowest = min(decimal(v) for v in p)
        row = compare_decimals(name, rest + min(lowest - 1, zero), ">", 0, note=f.noise_note)
        quiet = [n for n, v in zip(f.topology.names, p, strict=True) if rest + min(decimal(v) - 1, zero) <= 0]
        rows.append(_judged_as_written(f, row.noted(f"fails: {listed(quiet, len(f.topology.names))}" if quiet else "")))
    return rows + _step_rows("Theorem 4", f, ("a1", s.a1), ("a2", s.a2))


def assumption5_rows(f: Facts, s: model.SchemeS2) -> list[Check]:
    """Assumption 5, the constant steps of S2 against the graph, L1 and mu."""
    name = "Assumption 5: {}".format
    third, missing = _bound(
        f, lambda L, v: _over(math.sqrt(2) * v * _r(f)[1] * s.beta, 12 * f.rho_L1 * _norms(f)[0] * L)
    )
    rows = [
        compare(name("beta < min 1/c_i"), s.beta, "<", f.beta_weight_bound),
        compare(name("beta < min Re(w)/(1+|w|^2)"), s.beta, "<", f.beta_spectral_bound),
        compare(name("alpha < min 1/r_i"), s.alpha, "<", f.alpha_weight_bound),
        compare(name("alpha < min Re(w)/(1+|w|^2)"), s.alpha, "<", f.alpha_spectral_bound),
        compare(name("alpha < sqrt2 v1'v2 r2 beta/(12 rho(L1) |v1| L1)"), s.alpha, "<", third, note=missing),
        *_unit_interval("Assumption 5", f, needed=False),
        compare(name("p_m > 1"), s.p_m, ">", 1.0),
        compare(name("gamma < 1"), s.gamma, "<", 1.0),
        _gamma(f, name("gamma < n/(20 v1'v2 L1)"), s.gamma, 20.0),
        *_gamma_rows(f, s),
    ]
    return [_judged_as_written(f, row) if "p_m" in row.name else row for row in rows]


def _gamma_rows(f: Facts, s: model.SchemeS2) -> list[Check]:
    """gamma < Q1 alpha and gamma < Q2 beta, one row for each term of the two minima."""
    n = f.n
    rows = []
    plain = (
        (
            "gamma < n sqrt(3n) r1 alpha/(24 |v2| L1)",
            lambda L, v: n * math.sqrt(3 * n) * _r(f)[0] * s.alpha / (24 * _norms(f)[1] * L),
        ),
        ("gamma < sqrt3 r2 beta/(6 n L1)", lambda L, v: math.sqrt(3) * _r(f)[1] * s.beta / (6 * n * L)),
        (
            "gamma < sqrt3 v1'v2 r2 beta/(36 |v1| |v2| L1)",
            lambda L, v: math.sqrt(3) * v * _r(f)[1] * s.beta / (36 * _norms(f)[0] * _norms(f)[1] * L),
        ),
        (
            "gamma < sqrt6 v1'v2 r1 r2 beta/(144 rho(L1) |v1| |v2| L1)",
            lambda L, v: _over(
                math.sqrt(6) * v * _r(f)[0] * _r(f)[1] * s.beta, 144 * f.rho_L1 * _norms(f)[0] * _norms(f)[1] * L
            ),
        ),
    )
    for name, formula in plain:
        bound, missing = _bound(f, formula)
        rows.append(compare(f"Assumption 5: {name}", s.gamma, "<", bound, note=missing))
    with_mu = (
        (
            "gamma < r1 alpha sqrt(mu/(12 L1 + 2 mu))/(2 |v2| L1)",
            12.0,
            2.0,
            lambda L, v: _r(f)[0] * s.alpha / (2 * _norms(f)[1] * L),
        ),
        (
            "gamma < sqrt6 v1'v2 r2 beta sqrt(mu/(36 L1 + 7 mu))/(12 |v1| |v2| L1)",
            36.0,
            7.0,
            lambda L, v: math.sqrt(6) * v * _r(f)[1] * s.beta / (12 * _norms(f)[0] * _norms(f)[1] * L),
        ),
    )
    for name, on_L, on_mu, formula in with_mu:
        front, missing = _bound(f, formula)
        if front is None or f.L1 is None:
            rows.append(compare(f"Assumption 5: {name}", s.gamma, "<", None, note=missing))
        elif f.mu is None:
            without = front * math.sqrt(1.0 / on_mu)
            note = f"{NEEDS_MU}; without Assumption 3 (Theorem 1, mu = 0) the bound is {without:.4g}"
            rows.append(compare(f"Assumption 5: {name}", s.gamma, "<", None, note=note))
        else:
            bound = front * math.sqrt(f.mu / (on_L * f.L1 + on_mu * f.mu))
            rows.append(compare(f"Assumption 5: {name}", s.gamma, "<", bound))
    return rows


def theorem5_rows(f: Facts, s: model.SchemeS2) -> list[Check]:
    """Theorem 5: finite epsilon over infinitely many iterations of S2.  The first six rows are Corollary 1's."""
    rows = _unit_interval("Theorem 5", f, needed=True)
    for label, p in (("p_zeta", f.p_zeta), ("p_eta", f.p_eta)):
        name = f"Theorem 5: p_m > max 1/{label}"
        if p is None:
            rows.append(Check(name, False, s.p_m, None, ">", "without noise epsilon is infinite"))
        else:
            inverses = [1.0 / v if v > 0.0 else math.inf for v in p]
            rows.append(_judged_as_written(f, worst(name, f.topology.names, [s.p_m] * f.n, ">", inverses)))
    return rows + _step_rows("Theorem 5", f, ("alpha", s.alpha), ("beta", s.beta))


def _step_rows(theorem: str, f: Facts, x: tuple[str, float], y: tuple[str, float]) -> list[Check]:
    return [
        compare(f"{theorem}: {x[0]} < min 1/r_i", x[1], "<", f.alpha_weight_bound),
        compare(f"{theorem}: {y[0]} < min 1/c_i", y[1], "<", f.beta_weight_bound),
    ]


def _unit_interval(theorem: str, f: Facts, *, needed: bool) -> list[Check]:
    """0 < p < 1 for both streams; absent noise passes where noise only hurts and fails where it is the point."""
    rows = []
    for label, p in (("p_zeta", f.p_zeta), ("p_eta", f.p_eta)):
        ends: tuple[tuple[Relation, float], ...] = ((">", 0.0), ("<", 1.0))
        for relation, end in ends:
            name = f"{theorem}: {label} {relation} {end:g}"
            if p is None:
                note = "without noise epsilon is infinite" if needed else "the noise is off"
                rows.append(Check(name, not needed, None, end, relation, note))
            else:
                rows.append(worst(name, f.topology.names, p, relation, [end] * f.n, note=f.noise_note))
    return rows


def _judged_as_written(f: Facts, row: Check) -> Check:
    if "p_m" not in row.name or f.run.scheme.samples is None:
        return row
    return row.noted("samples overrides m_K; p_m is judged as written")


def _too_loud(f: Facts, p: tuple[float, ...] | None, limit: float) -> str:
    loud = [n for n, v in zip(f.topology.names, p or (), strict=False) if v > max(limit, 0.0) and v > 0.0]
    return f"allows exponents up to {limit:.4g}; above it: {listed(loud, len(f.topology.names))}" if loud else ""


def _r(f: Facts) -> tuple[float, float]:
    assert f.r1 is not None and f.r2 is not None
    return f.r1, f.r2


def _norms(f: Facts) -> tuple[float, float]:
    assert f.v1 is not None and f.v2 is not None
    return math.sqrt(float(f.v1 @ f.v1)), math.sqrt(float(f.v2 @ f.v2))


def _over(top: float, bottom: float) -> float:
    """``top / bottom``; no bound where ``bottom`` vanishes (rho(L1) = 0: one agent)."""
    return top / bottom if bottom > 0.0 else math.inf


def _bound(f: Facts, formula: Formula) -> tuple[float | None, str]:
    """``formula(L1, v1'v2)``, or None and what is missing."""
    if not f.overlap:
        return None, NEEDS_GRAPH
    if f.L1 is None:
        return None, NEEDS_L1
    return (formula(f.L1, f.overlap) if f.L1 > 0.0 else math.inf), ""
