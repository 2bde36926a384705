from __future__ import annotations

from dataclasses import replace

import pytest

from dpgt_node.algo.schedule import Schedule, sampling_number
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from tests.algo.cases import PAPER_S1, PAPER_S2, S2, run, with_scheme


def test_shipped_s1_follows_the_definition_and_agrees_with_the_printed_steps_to_two_digits() -> None:
    s = Schedule.from_config(run(PAPER_S1, K=2000))
    assert (s.alpha, s.beta, s.gamma) == (72 / 2001**0.987, 0.95 / 2001**0.69, 98 / 2001**0.997)
    assert (round(s.alpha, 2), round(s.beta, 3), round(s.gamma, 2), s.m) == (0.04, 0.005, 0.05, 53)


def test_s2_m_is_55_and_ends_at_4701_for_twelve_thousand_samples() -> None:
    assert Schedule.from_config(run(PAPER_S2, K=2000, p_zeta=0.9994, p_eta=0.9994)).m == 55
    assert sampling_number(PAPER_S2, 4700) <= 12_000
    assert max(K for K in range(4690, 4710) if sampling_number(PAPER_S2, K) <= 12_000) == 4701


def test_sampling_number_at_the_edges() -> None:
    assert sampling_number(PAPER_S2, 0) == 2  # floor(p^0) + 1
    assert sampling_number(replace(PAPER_S2, p_m=0.5), 5) == 1
    assert sampling_number(PAPER_S1, 0) == 1
    assert sampling_number(replace(PAPER_S1, p_m=0.0, a4=1.0), 0) == 2


def test_samples_override_the_formula() -> None:
    assert Schedule.from_config(run(S2)).m_for(None) == 55
    full = Schedule.from_config(with_scheme(run(S2), samples="full"))
    assert full.m is None and full.m_for(287) == 287
    with pytest.raises(ConfigError, match="full"):
        full.m_for(None)


def test_sigma_of_each_law() -> None:
    s1 = Schedule.from_config(run(PAPER_S1, K=9, p_zeta=-0.5, p_eta=(0.0, 0.1, 0.2, 0.3, 2.0), multiplier=3.0))
    assert s1.sigma("X", 0, 3) == pytest.approx(1.5) and s1.sigma("X", 0, 0) == 3.0
    assert s1.sigma("Y", 4, 9) == pytest.approx(300) and s1.sigma("Y", 0, 9) == 3.0
    s2 = Schedule.from_config(run(S2, K=3, p_zeta=0.5))
    assert [s2.sigma("X", 0, k) for k in range(4)] == [0.125] * 4  # p^K in every round, not p^k
    constant = Schedule.from_config(run(S2, kind="constant", p_zeta=0.25, p_eta=4.0))
    assert (constant.sigma("X", 1, 7), constant.sigma("Y", 1, 7)) == (0.25, 4.0)


def test_no_noise_is_scale_zero() -> None:
    off = run(S2, multiplier=0.0)
    assert Schedule.from_config(off).sigma("X", 0, 0) == 0.0
    bare = replace(off, noise=model.Noise(None, None, multiplier=0.0))
    assert Schedule.from_config(bare).sigma("Y", 4, 9) == 0.0 and not Schedule.from_config(bare).noisy


@pytest.mark.parametrize("rounds", [range(0, 12), range(0, 10, 3), range(0, 1), range(0, 0)])
def test_releases_that_follow_a_rule_are_counted_as_those_that_are_listed(rounds: range) -> None:
    by_rule = replace(Schedule.from_config(run(S2, K=12)), releases=rounds)
    listed = replace(by_rule, releases=tuple(rounds))
    for k in range(13):
        expected = list(rounds).index(k) if k in rounds else None
        assert by_rule.release(k) == listed.release(k) == expected
