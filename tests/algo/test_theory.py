from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.algo.checks import Check, compare_decimals, conjunction, decimal, worst
from dpgt_node.algo.facts import gather
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.rates import matrix_A, predict
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.theory import CheckReport, check_run, step_warnings
from dpgt_node.config import model
from tests.algo.cases import DEMO_C, DEMO_R, PAPER_S1, S2, run, with_scheme

RING = np.roll(np.eye(5), 1, axis=0)
SOUND_S1 = run(replace(PAPER_S1, a1=0.3, a2=0.3, a3=0.2, p_m=2.0), p_zeta=0.1, p_eta=0.1)
SOUND_S2 = run(
    model.SchemeS2(alpha=0.02, beta=0.3, gamma=1e-5, p_m=1.1), K=50, p_zeta=(0.92, 0.93, 0.94, 0.95, 0.96), p_eta=0.95
)


def judge(config: model.RunConfig, *, D: int | None = 12_000, L1: float | None = 1.0, mu: float | None = 0.5):
    topology = Topology.from_config(config.graph)
    return check_run(config, topology, Schedule.from_config(config), D=(D,) * topology.n, L1=L1, mu=mu)


def row(report: CheckReport, name: str) -> Check:
    found = [c for c in report.checks if c.name == name]
    assert len(found) == 1, f"{name} occurs {len(found)} times"
    return found[0]


def failing(report: CheckReport) -> set[str]:
    return {c.name for c in report.checks if c.passed is False}


@pytest.mark.parametrize("config", [SOUND_S1, SOUND_S2], ids=["S1", "S2"])
def test_a_sound_run_fails_nowhere(config: model.RunConfig) -> None:
    report = judge(config)
    assert failing(report) == set()
    # Only the variance bound of Assumption 2(ii) and, with it, the corollary cannot be decided.
    assert {c.name.partition("(")[0] for c in report.checks if c.passed is None} == {"Assumption 2", "Corollary 1"}


def noise(config: model.RunConfig, which: str, *values: float) -> model.RunConfig:
    stream = model.NoiseStream("exponent", values * 5 if len(values) == 1 else values)
    return replace(config, noise=replace(config.noise, **{which: stream}))


Mutation = Callable[[model.RunConfig], model.RunConfig]
A4, A5, T4, T5 = (f"{label}: ".__add__ for label in ("Assumption 4", "Assumption 5", "Theorem 4", "Theorem 5"))

# (row, change of the sound run that trips it): one for every row of the scheme.
MUTANTS_S1: list[tuple[str, dict[str, object] | Mutation]] = [
    (A4("a1 < min 1/r_i"), {"a1": 0.5}),
    (A4("a1 < min Re(w)/(1+|w|^2)"), {"a1": 0.34}),
    (A4("a2 < min 1/c_i"), {"a2": 0.5}),
    (A4("a2 < min Re(w)/(1+|w|^2)"), {"a2": 0.36}),
    (A4("a3 < n/(4 v1'v2 L1)"), {"a3": 0.26}),
    (A4("p_beta > 1/2"), {"p_beta": 0.5}),
    (A4("p_alpha > p_beta"), {"p_beta": 0.987}),
    (A4("p_gamma > p_alpha"), {"p_gamma": 0.987}),
    (A4("p_gamma < 1"), {"p_gamma": 1.0}),
    (A4("p_m - p_beta >= 1"), {"p_m": 1.68}),
    (A4("2 p_gamma - p_alpha >= 1"), {"p_gamma": 0.99}),
    (A4("2 p_alpha - p_beta - 2 max(max p_zeta, 0) >= 1"), lambda c: noise(c, "zeta", 0.1, 0.1, 0.1, 0.15, 0.1)),
    (A4("p_gamma + 2 p_beta - 2 max(max p_eta, 0) >= 2"), lambda c: noise(c, "eta", 0.1, 0.1, 0.1, 0.19, 0.1)),
    (T4("p_m - p_beta + min(min p_eta - 1, 0) > 0"), lambda c: noise(c, "eta", 0.1, 0.1, -0.31, 0.1, 0.1)),
    (
        T4("p_m + min(0, p_gamma - p_alpha - p_beta) + min(min p_zeta - 1, 0) > 0"),
        lambda c: noise(c, "zeta", 0.1, 0.1, 0.1, 0.1, -0.33),
    ),
    (T4("a1 < min 1/r_i"), {"a1": 0.5}),
    (T4("a2 < min 1/c_i"), {"a2": 0.5}),
    ("Corollary 1(i)", {"p_m": 1.68}),
]
MUTANTS_S2: list[tuple[str, dict[str, object] | Mutation]] = [
    ("a_i = alpha r_i in [0, 1)", {"alpha": 0.5}),
    ("b_i = beta c_i in [0, 1)", {"beta": 0.5}),
    ("m_K <= D", {"samples": 12_001}),
    ("m_K >= 1", {"samples": 0}),
    ("Lemma 1: alpha < min 1/r_i", {"alpha": 0.5}),
    ("Lemma 1: alpha < min Re(w)/(1+|w|^2)", {"alpha": 0.34}),
    ("Lemma 1: beta < min 1/c_i", {"beta": 0.5}),
    ("Lemma 1: beta < min Re(w)/(1+|w|^2)", {"beta": 0.36}),
    ("Lemma 1: r1 > 0", {"alpha": 1.2}),
    ("Lemma 1: r2 > 0", {"beta": 1.2}),
    ("Lemma 2: gamma < n/(4 v1'v2 L1)", {"gamma": 0.26}),
    (A5("beta < min 1/c_i"), {"beta": 0.5}),
    (A5("beta < min Re(w)/(1+|w|^2)"), {"beta": 0.36}),
    (A5("alpha < min 1/r_i"), {"alpha": 0.5}),
    (A5("alpha < min Re(w)/(1+|w|^2)"), {"alpha": 0.34}),
    (A5("alpha < sqrt2 v1'v2 r2 beta/(12 rho(L1) |v1| L1)"), {"alpha": 0.04}),
    (A5("p_zeta > 0"), lambda c: noise(c, "zeta", 0.9, -0.9, 0.9, 0.9, 0.9)),
    (A5("p_zeta < 1"), lambda c: noise(c, "zeta", 0.9, 0.9, 1.0, 0.9, 0.9)),
    (A5("p_eta > 0"), lambda c: noise(c, "eta", 0.9, 0.9, 0.9, -0.9, 0.9)),
    (A5("p_eta < 1"), lambda c: noise(c, "eta", 0.9, 0.9, 0.9, 0.9, 1.0)),
    (A5("p_m > 1"), {"p_m": 1.0}),
    (A5("gamma < 1"), {"gamma": 1.0}),
    (A5("gamma < n/(20 v1'v2 L1)"), {"gamma": 0.051}),
    (A5("gamma < n sqrt(3n) r1 alpha/(24 |v2| L1)"), {"gamma": 0.01}),
    (A5("gamma < sqrt3 r2 beta/(6 n L1)"), {"gamma": 0.03}),
    (A5("gamma < sqrt3 v1'v2 r2 beta/(36 |v1| |v2| L1)"), {"gamma": 0.02}),
    (A5("gamma < sqrt6 v1'v2 r1 r2 beta/(144 rho(L1) |v1| |v2| L1)"), {"gamma": 0.01}),
    (A5("gamma < r1 alpha sqrt(mu/(12 L1 + 2 mu))/(2 |v2| L1)"), {"gamma": 0.01}),
    (A5("gamma < sqrt6 v1'v2 r2 beta sqrt(mu/(36 L1 + 7 mu))/(12 |v1| |v2| L1)"), {"gamma": 0.05}),
    (T5("p_zeta > 0"), lambda c: noise(c, "zeta", -0.9, 0.9, 0.9, 0.9, 0.9)),
    (T5("p_zeta < 1"), lambda c: noise(c, "zeta", 0.9, 1.1, 0.9, 0.9, 0.9)),
    (T5("p_eta > 0"), lambda c: noise(c, "eta", 0.9, 0.9, -0.9, 0.9, 0.9)),
    (T5("p_eta < 1"), lambda c: noise(c, "eta", 0.9, 0.9, 0.9, 1.1, 0.9)),
    (T5("p_m > max 1/p_zeta"), lambda c: noise(c, "zeta", 0.95, 0.95, 0.95, 0.95, 0.9)),
    (T5("p_m > max 1/p_eta"), lambda c: noise(c, "eta", 0.9, 0.95, 0.95, 0.95, 0.95)),
    (T5("alpha < min 1/r_i"), {"alpha": 0.5}),
    (T5("beta < min 1/c_i"), {"beta": 0.5}),
    ("Corollary 1(ii)", {"gamma": 0.01}),
]
OTHER_MUTANTS = {
    "Assumption 1: roots of R": dict(R=np.eye(5), C=RING),
    "Assumption 1: roots of C'": dict(R=RING, C=np.eye(5)),
    "Assumption 1: common roots": dict(R=np.diag(np.ones(4), -1), C=np.diag(np.ones(4), -1)),
    "Lemma 1: zero eigenvalues of L1": dict(R=np.eye(5), C=RING),
    "Lemma 1: zero eigenvalues of L2": dict(R=RING, C=np.eye(5)),
    "Lemma 1: least real part of the others of L1": dict(R=np.eye(5), C=RING),
    "Lemma 1: least real part of the others of L2": dict(R=RING, C=np.eye(5)),
    "Lemma 1: v1'v2 > 0": dict(R=np.diag(np.ones(4), -1), C=np.diag(np.ones(4), -1)),
}
DECIDED_ELSEWHERE = {
    "Assumption 2(i): L1 known",
    "Assumption 2(ii): unbiased gradients",
    "Assumption 3: mu > 0",
}


def mutate(config: model.RunConfig, change: dict[str, object] | Mutation) -> model.RunConfig:
    return with_scheme(config, **change) if isinstance(change, dict) else change(config)


@pytest.mark.parametrize(
    ("base", "name", "change"),
    [(SOUND_S1, *m) for m in MUTANTS_S1] + [(SOUND_S2, *m) for m in MUTANTS_S2],
    ids=[m[0] for m in MUTANTS_S1 + MUTANTS_S2],
)
def test_every_row_has_a_run_that_trips_it(base: model.RunConfig, name: str, change) -> None:
    assert row(judge(base), name).passed is not False
    tripped = row(judge(mutate(base, change)), name)
    assert tripped.passed is False
    if "p_m >" not in name and tripped.lhs is not None:
        assert tripped.rhs is not None


@pytest.mark.parametrize("name", OTHER_MUTANTS)
def test_every_graph_row_has_a_graph_that_trips_it(name: str) -> None:
    assert row(judge(run(S2, **OTHER_MUTANTS[name])), name).passed is False


def test_no_row_is_without_a_mutant() -> None:
    covered = {m[0] for m in MUTANTS_S1 + MUTANTS_S2} | set(OTHER_MUTANTS) | DECIDED_ELSEWHERE
    rows = {c.name for config in (SOUND_S1, SOUND_S2) for c in judge(config).checks}
    assert rows == covered


def test_the_failing_agent_is_named() -> None:
    assert "agent-3" in row(judge(with_scheme(SOUND_S2, alpha=0.5)), "a_i = alpha r_i in [0, 1)").note
    loud = judge(noise(SOUND_S1, "zeta", 0.1, 0.1, 0.1, 0.15, 0.1))
    note = row(loud, A4("2 p_alpha - p_beta - 2 max(max p_zeta, 0) >= 1")).note
    assert "agent-4" in note and "agent-3" not in note
    quiet = row(judge(noise(SOUND_S2, "eta", 0.9, 0.95, 0.95, 0.95, 0.95)), T5("p_m > max 1/p_eta"))
    assert quiet.note.startswith("fails: agent-1") and "agent-2" not in quiet.note


def test_shipped_s1_breaks_assumption_4_as_warnings() -> None:
    # Errata 5: a1 = 72, a3 = 98, and noise exponents from 0.20 on; the steps themselves satisfy Lemma 1.
    config = run(PAPER_S1, K=2000, p_zeta=(0.2, 0.21, 0.22, 0.23, 0.24), p_eta=(0.2, 0.21, 0.22, 0.23, 0.24))
    report = judge(config)
    assert {A4("a1 < min 1/r_i"), A4("a3 < n/(4 v1'v2 L1)"), T4("a1 < min 1/r_i"), "Corollary 1(i)"} <= failing(report)
    assert A4("2 p_alpha - p_beta - 2 max(max p_zeta, 0) >= 1") in failing(report)
    assert A4("p_gamma + 2 p_beta - 2 max(max p_eta, 0) >= 2") in failing(report)
    assert not any(name.startswith("Lemma 1") for name in failing(report))
    assert report.failed_hard == () and len(report.warnings) == len(failing(report))
    assert row(report, "m_K <= D").lhs == 53


def test_shipped_s2_breaks_assumption_5_unless_L1_is_tiny() -> None:
    config = run(replace(S2, samples=None), K=2000, p_zeta=0.9994, p_eta=0.9994)
    gamma_rows = {c.name for c in judge(config).checks if c.name.startswith("Assumption 5: gamma <")}
    assert gamma_rows & failing(judge(config, L1=1.0)) and gamma_rows & failing(judge(config, L1=0.02, mu=0.02))
    assert row(judge(config), "m_K <= D").lhs == 55 and judge(config).failed_hard == ()


def test_equality_of_written_decimals_counts() -> None:
    assert 1.5006 - 0.5006 < 1  # what float64 thinks
    assert row(judge(with_scheme(SOUND_S1, p_m=1.5006, p_beta=0.5006)), A4("p_m - p_beta >= 1")).passed is True
    assert compare_decimals("", decimal(0.1) + decimal(0.2), "=", decimal(0.3)).passed is True


def test_unknown_constants_leave_rows_open() -> None:
    report = judge(SOUND_S2, L1=None, mu=None)
    assert failing(report) == set()
    open_rows = {c.name: c.note for c in report.checks if c.passed is None}
    assert open_rows[A5("gamma < n/(20 v1'v2 L1)")] == "needs L1"
    assert row(report, "Assumption 3: mu > 0").note == "needs mu" and report.rates.factor is None
    partly = row(judge(SOUND_S2, mu=None), A5("gamma < r1 alpha sqrt(mu/(12 L1 + 2 mu))/(2 |v2| L1)"))
    assert partly.passed is None and partly.note.startswith("needs mu")
    assert row(judge(SOUND_S1, L1=None), A4("a3 < n/(4 v1'v2 L1)")).passed is None
    assert row(judge(run(S2, R=np.eye(5), C=RING)), A5("gamma < n/(20 v1'v2 L1)")).note == "needs Assumption 1"


def test_clipping_breaks_unbiasedness_and_says_so() -> None:
    clipped = replace(SOUND_S2, privacy=model.Privacy(clip_l1=1.0))
    assert row(judge(clipped), "Assumption 2(ii): unbiased gradients").passed is False
    assert row(judge(clipped), "Corollary 1(ii)").passed is False


def test_no_noise_converges_but_hides_nothing() -> None:
    for config, theorem in ((SOUND_S1, "Theorem 4"), (SOUND_S2, "Theorem 5")):
        off = replace(config, noise=model.Noise(None, None, multiplier=0.0))
        names = failing(judge(off))
        assert names and all(name.startswith((theorem, "Corollary")) for name in names)


def test_constant_scales_count_as_exponents() -> None:
    constant = replace(SOUND_S1, noise=model.Noise(*[model.NoiseStream("constant", (3.0,) * 5)] * 2))
    assert failing(judge(constant)) == set()  # S1 allows p = 0
    constant = replace(SOUND_S2, noise=model.Noise(*[model.NoiseStream("constant", (0.1,) * 5)] * 2))
    assert {A5("p_zeta < 1"), A5("p_eta < 1")} <= failing(judge(constant))  # S2 needs noise that falls with K


@pytest.mark.parametrize(
    ("D", "samples", "passed"),
    [
        ((60, 60, 60), 55, True),
        ((60, 54, 60), 55, False),
        ((60, None, 60), 55, None),
        ((54, None, 60), 55, False),
        ((None, None, None), 55, None),
        ((10, 20, 30), "full", True),
        ((10, None, 30), "full", None),
        ((None, None, None), "full", None),
    ],
)
def test_m_against_every_known_D(D, samples, passed) -> None:
    config = with_scheme(run(S2, R=np.roll(np.eye(3), 1, axis=0), C=np.roll(np.eye(3), 1, axis=0)), samples=samples)
    config = replace(config, data=replace(config.data, dataset="digits"))
    topology = Topology.from_config(config.graph)
    report = check_run(config, topology, Schedule.from_config(config), D=D)
    fits = row(report, "m_K <= D")
    assert fits.passed is passed and fits.hard
    assert bool(report.failed_hard) == (passed is False)
    if D[1] == 54:
        assert "agent-2" in fits.note
    if None in D:
        assert "agent-2" in fits.note


def test_hard_failures_name_the_key_of_the_run_file() -> None:
    def keys(config: model.RunConfig, D: int | None = 12_000) -> list[str]:
        topology = Topology.from_config(config.graph)
        return [key for key, _ in hard_failures(config, topology, Schedule.from_config(config), (D,) * topology.n)]

    assert keys(SOUND_S1) == keys(SOUND_S2) == keys(SOUND_S2, None) == []
    assert keys(with_scheme(SOUND_S2, alpha=0.5, beta=0.5, samples=13_000)) == ["scheme.alpha", "scheme.beta", "scheme"]
    assert keys(with_scheme(SOUND_S1, a1=1e4)) == ["scheme.a1"]
    assert keys(run(S2, R=np.eye(5), C=np.eye(5))) == ["graph.R", "graph.C", "graph"]


def test_step_warnings_are_lemma_1s() -> None:
    def lines(config: model.RunConfig) -> tuple[str, ...]:
        return step_warnings(Topology.from_config(config.graph), Schedule.from_config(config))

    assert lines(SOUND_S2) == ()
    (line,) = lines(with_scheme(SOUND_S2, alpha=0.4))
    assert line.startswith("Lemma 1: alpha < min Re(w)/(1+|w|^2): 0.4 < 0.333333")


def test_json_follows_the_contract_and_holds_no_infinity() -> None:
    alone = replace(run(S2, R=[[0.0]], C=[[0.0]]))
    for report in (judge(SOUND_S1), judge(SOUND_S2), judge(alone), judge(run(S2, R=np.eye(5), C=RING), L1=None)):
        document = json.loads(json.dumps(report.to_json(), allow_nan=False))
        assert set(document) >= {"graph", "steps", "checks", "epsilon", "rates"}
        wanted = "roots_R roots_C common_roots r c eigenvalues_L1 eigenvalues_L2 v1 v2 r1 r2"
        assert set(document["graph"]) >= set(wanted.split())
        assert set(document["steps"]) >= set(["alpha", "beta", "gamma", "m", "alpha_max", "beta_max"])
        assert all(set(c) >= {"name", "passed", "lhs", "rhs", "note"} for c in document["checks"])
    graph = judge(alone).to_json()["graph"]
    assert graph["common_roots"] == ["agent-1"] and graph["eigenvalues_L1"] == [[0.0, 0.0]]
    assert judge(alone).to_json()["steps"]["alpha_max"] == "inf"


def test_m_in_json() -> None:
    full = with_scheme(run(S2), samples="full")
    topology = Topology.from_config(full.graph)

    def m(D):
        return check_run(full, topology, Schedule.from_config(full), D=D).to_json()["steps"]["m"]

    assert (m((7,) * 5), m((7, 7, 7, 7, 8)), m((None,) * 5)) == (7, "full", None)


def test_theorem_2_rate() -> None:
    rates = judge(SOUND_S1).rates
    theta = min(2 - 0.69, 2 * 0.987 - 0.69 - 0.2, 2 * 0.69 - 0.2)
    assert rates.theta == pytest.approx(theta) and rates.exponent == pytest.approx(theta - 0.997)
    falling = judge(noise(noise(SOUND_S1, "zeta", -0.5), "eta", -0.5)).rates
    assert falling.theta == pytest.approx(min(2 - 0.69, 2 * 0.987 - 0.69, 2 * 0.69))
    assert rates.oracle_complexity == 201 * Schedule.from_config(SOUND_S1).m


def test_theorem_3_rate_and_the_matrix_of_lemma_2_by_hand() -> None:
    # Two agents on a ring: v1 = v2 = 1, v1'v2 = 2, |v|^2 = 2, w_2 = 2, rho(L1) = 2.
    al, be, ga, L, mu = 0.2, 0.3, 0.01, 2.0, 0.5
    config = run(model.SchemeS2(al, be, ga, 1.1), R=[[0, 1], [1, 0]], C=[[0, 1], [1, 0]], K=9, p_zeta=0.9, p_eta=0.95)
    topology = Topology.from_config(config.graph)
    facts = gather(config, topology, Schedule.from_config(config), (None, None), L, mu)
    r1 = r2 = 2.0
    assert (facts.r1, facts.r2, facts.rho_L1, facts.overlap) == (r1, pytest.approx(r2), 2.0, 2.0)
    A = [
        [
            1 - r1 * al + 4 * (1 + r1 * al) * 2 * ga**2 * L**2 / (8 * r1 * al),
            2 * (1 + r1 * al) * ga**2 / (r1 * al),
            8 * (1 + r1 * al) * 2 * ga**2 * L / (4 * r1 * al),
        ],
        [
            6 * (1 + r2 * be) * (2 * 4 * al**2 + 2 * 2 * ga**2 * L**2) * L**2 / (2 * r2 * be),
            1 - r2 * be + 6 * (1 + r2 * be) * ga**2 * L**2 / (r2 * be),
            24 * (1 + r2 * be) * 2 * ga**2 * L**3 / (r2 * be),
        ],
        [
            2 * (6 + 8 * ga * L) * ga * L**2 / 16,
            3 * 2 * ga / (2 * 2 * 2),
            1 - 2 * mu * ga / 2 + mu * 4 * 4 * ga**2 * L / 4,
        ],
    ]
    assert np.allclose(matrix_A(facts), A, rtol=1e-12, atol=0)
    printed = matrix_A(facts, printed=True)
    assert printed[2, 2] - matrix_A(facts)[2, 2] == pytest.approx((1 - mu) * 4 * ga**2 * L)
    rates = predict(facts)
    rho = max(abs(np.linalg.eigvals(np.array(A))))
    assert rates.rho_A_K == pytest.approx(rho) and rates.inverse_p_m == pytest.approx(1 / 1.1)
    assert rates.max_p_squared == pytest.approx(0.95**2)
    assert rates.factor == pytest.approx(max(rho, 1 / 1.1, 0.95**2))


def test_a_sound_s2_run_is_predicted_to_contract() -> None:
    # Assumption 5 is there to make rho(A_K) < 1: with gamma small enough it is.
    rates = judge(SOUND_S2).rates
    assert rates.factor is not None and 0 < rates.factor < 1


def test_conjunction_is_three_valued() -> None:
    yes, no, open_ = (Check("A: x", passed, 0.0, 0.0, "=") for passed in (True, False, None))
    assert conjunction("c", [yes, yes]).passed is True
    assert conjunction("c", [yes, open_]).passed is None
    assert conjunction("c", [yes, open_, no, no]).passed is False
    assert conjunction("c", [yes, open_, no, no]).note == "fails in A (2 rows); unknown in A"


def test_worst_shows_the_agent_nearest_to_failing() -> None:
    tight = worst("c", "abc", [1.0, 5.0, 3.0], "<", [9.0, 5.5, math.inf])
    assert (tight.passed, tight.lhs, tight.rhs, tight.note) == (True, 5.0, 5.5, "")
    assert worst("c", "ab", [1.0, 2.0], ">=", [1.5, 1.5]).note == "fails: a"
    many = [f"agent-{i}" for i in range(2000)]
    assert worst("c", many, [1.0] * 2000, ">=", [1.5] * 2000).note == "fails: all 2,000 agents"
    but_one = worst("c", many, [2.0] + [1.0] * 1999, ">=", [1.5] * 2000).note
    assert but_one == "fails: agent-1, agent-2, agent-3, agent-4, agent-5 and 1,994 more"


def test_demo_graph_facts() -> None:
    topology = Topology.from_matrices([f"agent-{i}" for i in range(1, 6)], DEMO_R, DEMO_C)
    config = run(S2)
    facts = gather(config, topology, Schedule.from_config(config), (None,) * 5, None, None)
    assert facts.v1 == pytest.approx([1.25, 0.625, 0.625, 1.25, 1.25])
    assert facts.v2 == pytest.approx([10 / 7, 10 / 7, 5 / 7, 5 / 7, 5 / 7])
    assert facts.alpha_max == pytest.approx(1 / 3)


@pytest.mark.parametrize("config", [SOUND_S1, SOUND_S2], ids=["S1", "S2"])
@pytest.mark.parametrize("mechanism", ["published-point", "public-state", "noise-once"])
def test_the_papers_noise_conditions_are_not_judged_for_other_mechanisms(
    config: model.RunConfig, mechanism: str
) -> None:
    """x that follows from what was released needs no noise: the paper's rows would call that an infinite epsilon."""
    silent = replace(config, noise=replace(config.noise, zeta=None))
    assert any("infinite" in c.note for c in judge(silent).checks)
    other = judge(replace(silent, algorithm=replace(silent.algorithm, mechanism=mechanism)))
    assert [c.name for c in other.checks] == [c.name for c in judge(silent).checks]
    assert failing(other) == set()
    about = {c.name for c in other.checks if c.note == "about mechanism paper; see the accountants"}
    everything = {c.name for c in other.checks}
    assert about == {n for n in everything if n.startswith(("Theorem", "Corollary")) or "p_zeta" in n or "p_eta" in n}
    assert all(c.passed is None for c in other.checks if c.name in about)
    assert about == {c.name for c in other.checks if not c.applies}
