from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.privacy.accountant import ACCOUNTANTS, AgentAccount, epsilon_table, lemma4, lemma5
from tests.algo.cases import DEMO_C, DEMO_R, PAPER_S1, PAPER_S2, S2, run, with_scheme
from tests.oracles.lemmas import lemma4_sums, lemma5_sum, worst_case_shifts

RING = tuple(tuple(float(i == (j + 1) % 5) for j in range(5)) for i in range(5))  # r_i = c_i = 1
PRINTED_S1 = model.SchemeS1(0.04, 0.005, 0.05, 52.0, 1e-300, 1e-300, 1e-300, 0.0)

rational = st.fractions(0, Fraction(9, 10), max_denominator=20)


def account(config: model.RunConfig, agent: int = 0, D: int | None = 12_000) -> AgentAccount:
    return AgentAccount(config, Topology.from_config(config.graph), Schedule.from_config(config), agent, D)


def total(config: model.RunConfig) -> float:
    value = account(config).epsilon_after(config.K)["lemma5"]
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("scheme", "p", "expected"),
    [
        (PRINTED_S1, -0.1, "60,201"),
        (PRINTED_S1, 0.1, "15,377.6"),
        (PRINTED_S1, 0.2, "7,829.7"),
        (PAPER_S2, 0.9994, "45,810"),
        (PAPER_S2, 0.9996, "30,701.2"),
        (PAPER_S2, 0.9998, "20,577.2"),
        (PAPER_S1, 0.1, "15,426.7"),
    ],
)
def test_reference_values(scheme: model.Scheme, p: float, expected: str) -> None:
    decimals = 1 if "." in expected else 0
    got = total(run(scheme, R=RING, C=RING, K=2000, p_zeta=p, p_eta=p))
    assert f"{got:,.{decimals}f}" == expected


@settings(max_examples=40)
@given(rational, rational, rational, st.integers(1, 60), st.integers(0, 25))
def test_lemma4_recursion_equals_the_printed_sums(a: Fraction, b: Fraction, gamma: Fraction, m: int, K: int) -> None:
    dx, dy = lemma4_sums(a, b, gamma, m, 3, K)
    got = lemma4(a=float(a), b=float(b), gamma=float(gamma), m=m, C=3.0, K=K)
    assert np.allclose(got.x, np.array(dx, float), rtol=1e-12, atol=0)
    assert np.allclose(got.y, np.array(dy, float), rtol=1e-12, atol=0)


@settings(max_examples=15, deadline=None)
@given(rational, rational, rational)
def test_lemma4_bounds_every_sign_pattern_of_one_swapped_sample(a: Fraction, b: Fraction, gamma: Fraction) -> None:
    worst_x, worst_y = worst_case_shifts(a, b, gamma, 7, 2, 4)
    dx, dy = lemma4_sums(a, b, gamma, 7, 2, 4)
    assert all(bound >= seen for bound, seen in zip(dx + dy, worst_x + worst_y, strict=True))
    assert (dy[0], dx[:2]) == (worst_y[0], worst_x[:2])  # attained at the start, loose later: g_{k+1} - g_k telescopes


@settings(max_examples=30)
@given(rational, rational, rational, st.floats(0.5, 2.0), st.integers(0, 20))
def test_lemma5_is_the_sum_of_the_rows(a: Fraction, b: Fraction, gamma: Fraction, growth: float, K: int) -> None:
    shifts = lemma4(a=float(a), b=float(b), gamma=float(gamma), m=5, C=1.0, K=K)
    sx, sy = np.linspace(0.5, growth, K + 1), np.linspace(2.0, growth, K + 1)
    got = lemma5(shifts, sx, sy)
    assert got.shape == (2 * (K + 1),)
    assert got[-1] >= lemma5_sum(shifts.x, shifts.y, sx, sy) * (1 - 1e-15)
    assert got[-1] == pytest.approx(lemma5_sum(shifts.x, shifts.y, sx, sy), rel=1e-12)
    assert (np.diff(got) >= 0).all()


def test_rows_of_the_ledger_add_up_x_before_y() -> None:
    acc = account(run(S2, K=30, kind="constant", p_zeta=0.5, p_eta=0.25))
    assert acc.epsilon_after(-1)["lemma5"] == 0.0
    running = 0.0
    for k in range(31):
        for stream in ("X", "Y"):
            shift = acc.sensitivity(stream, k)
            assert shift is not None
            running += shift / acc.scale(stream, k)
            assert running <= acc.cost_after(k, stream)["lemma5"] <= running * (1 + 1e-12)
        assert acc.epsilon_after(k) == acc.cost_after(k, "Y")
    assert acc.cost_after(0, "X")["lemma5"] == 0.0  # x̆_0 is free
    assert acc.cost_after(0, "Y")["lemma5"] == pytest.approx((1 / 55) / 0.25)  # y_0 costs C/m, not 2C/m


def test_in_weight_of_R_and_OUT_weight_of_C_are_used() -> None:
    C = np.array(DEMO_C, float)
    C[0, 1] = 5.0  # column of agent-2, row of agent-1
    config = run(S2, C=C, K=10)
    scheme = config.scheme
    for agent in range(5):
        a, b = scheme.alpha * sum(DEMO_R[agent]), scheme.beta * C[:, agent].sum()
        dx, dy = lemma4_sums(a, b, scheme.gamma, 55, 1, 10)
        acc = account(config, agent)
        assert [acc.sensitivity("X", k) for k in range(11)] == pytest.approx([float(v) for v in dx])
        assert [acc.sensitivity("Y", k) for k in range(11)] == pytest.approx([float(v) for v in dy])


def test_every_accountant_is_named_and_only_lemma5_speaks() -> None:
    costs = account(run(S2)).epsilon_after(0)
    assert tuple(costs) == ACCOUNTANTS
    assert [name for name, value in costs.items() if value is not None] == ["lemma5"]


def test_noise_off_is_infinite_and_no_constant_is_null() -> None:
    assert total(run(S2, multiplier=0.0)) == math.inf
    bare = replace(run(S2, multiplier=0.0), noise=model.Noise(None, None, multiplier=0.0))
    assert total(bare) == math.inf
    silent = account(run(S2, privacy=model.Privacy(), multiplier=0.0))
    assert silent.epsilon_after(200)["lemma5"] is None and silent.sensitivity("Y", 0) is None
    assert account(run(S2, privacy=model.Privacy(clip_l2=1.0))).epsilon_after(0)["lemma5"] is None


def test_clipping_sets_the_constant_to_twice_the_clip() -> None:
    clipped = total(run(S2, privacy=model.Privacy(clip_l1=40.0), K=20))
    assert clipped == pytest.approx(80 * total(run(S2, K=20)))


def test_full_batch_needs_D_and_other_laws_or_mechanisms_get_no_lemma5() -> None:
    full = with_scheme(run(S2, K=20), samples="full")
    assert account(full, D=None).epsilon_after(20)["lemma5"] is None
    assert account(full, D=55).epsilon_after(20) == account(run(S2, K=20)).epsilon_after(20)
    assert account(run(S2, law="gaussian")).epsilon_after(3)["lemma5"] is None
    other = replace(run(S2), algorithm=model.Algorithm(200, mechanism="noise-once"))
    assert account(other).epsilon_after(3)["lemma5"] is None


def test_smaller_noise_costs_more() -> None:
    # Erratum 3: the text of Figs. 2e and 3e has it the other way round.
    values = [total(run(PAPER_S1, K=100, p_zeta=p, p_eta=p)) for p in (-0.1, 0.1, 0.2)]
    assert values == sorted(values, reverse=True)


def test_table_has_one_value_per_agent() -> None:
    config = run(S2, K=5)
    topology = Topology.from_config(config.graph)
    table = epsilon_table(config, topology, Schedule.from_config(config), (100,) * 5)
    assert set(table) == set(ACCOUNTANTS) and all(len(v) == 5 for v in table.values())
    assert table["lemma5"][2] != table["lemma5"][0]  # agent-3 has r = c = 2
