"""Whose epsilon stands for a run, how it is labelled, and the paper's number for comparison."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import NoiseStream, Privacy, RunConfig
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, CONDITIONAL, HEADLINE
from dpgt_node.record import epsilons
from dpgt_node.record.costs import Epsilon
from tests.report.synthetic import digits_run, summary_of


@pytest.mark.parametrize(
    ("costs", "tightest", "shown"),
    [
        ({}, None, None),
        ({"lemma5": [1.0, 2.0]}, None, "lemma5"),
        ({"lemma5": [None, None]}, None, None),
        ({"lemma5": [1.0, 2.0], "corrected": [9.0, 8.0]}, "corrected", "corrected"),
        ({"tight": [5.0, 1.0], "zcdp": [4.0, 4.0]}, "zcdp", "zcdp"),  # the worst agent decides
        ({"tight": [5.0, 5.0], "amplified": [5.0, 5.0], "gdp": [5.0, 5.0]}, "amplified", "amplified"),  # pure first
        ({"tight": [5.0, 5.0], "gdp": [1.0, None]}, "tight", "tight"),  # one for all agents, or not at all
        ({"zcdp": [math.inf], "gdp": [math.inf]}, "gdp", "gdp"),
        ({"tight": []}, None, None),
    ],
)
def test_which_accountant_stands_for_a_run(
    costs: dict[str, list[float | None]], tightest: str | None, shown: str | None
) -> None:
    assert epsilons.tightest(costs) == tightest
    assert epsilons.shown_accountant(costs) == shown


def test_every_label_has_the_accountant_and_its_delta() -> None:
    assert [epsilons.head(name, 1e-6) for name in ACCOUNTANTS] == [
        "epsilon (Lemma 5; conditional)",
        "epsilon (corrected, pure)",
        "epsilon (tight, pure)",
        "epsilon (amplified, pure)",
        "epsilon (zcdp, delta 1e-06)",
        "epsilon (gdp, delta 1e-06)",
        "epsilon (binomial, delta 1e-06)",
        "epsilon (same points; conditional)",
        "delta (at epsilon 0; conditional)",
    ]
    assert [epsilons.label(name, 1e-6) for name in ACCOUNTANTS] == [
        "Lemma 5 (paper; conditional)",
        "Lemma 4 corrected (pure)",
        "tight (pure)",
        "tight, amplified by sampling (pure)",
        "zero-concentrated (delta = 1e-06)",
        "Gaussian (delta = 1e-06)",
        "binomial (delta = 1e-06)",
        "gradients at the same points (conditional)",
        "(0, delta): this is delta (conditional)",
    ]
    assert HEADLINE == ("amplified", "tight", "corrected", "binomial", "gdp", "zcdp")
    assert {*HEADLINE, *CONDITIONAL} == set(ACCOUNTANTS)


def test_reasons_name_agents_only_where_they_differ() -> None:
    names = ["a", "b", "c", "d", "e"]
    assert epsilons.merged(names, [None] * 5) is None
    assert epsilons.merged(names, ["no C"] * 5) == "no C"
    assert epsilons.merged(names, ["x", None, "y", "x", None]) == "a, d: x; c: y"
    assert epsilons.merged(names, ["x"] * 4 + [None]) == "a, b, c and 1 more: x"


def test_lines_hold_a_value_or_a_reason() -> None:
    summary = summary_of(digits_run(), (), lemma5=3.0)
    lines = epsilons.lines(replace(summary, reasons={"tight": "because"}))
    assert [line.accountant for line in lines] == [name for name, one in ACCOUNTANTS.items() if not one.aside]
    assert lines[0].speaks and lines[0].values == (3.0,) * 5 and lines[0].reason is None
    assert lines[2].reason == "because" and not lines[2].speaks
    assert all(line.reason == "not known before the run has a summary" for line in (lines[1], *lines[3:]))
    assert epsilons.shown(summary) == "lemma5"
    assert epsilons.shown(replace(summary, headline="gdp")) == "gdp"


def test_an_accountant_aside_says_why_it_has_no_value_where_it_is_asked() -> None:
    summary = summary_of(digits_run(), (), lemma5=3.0)
    reasons = dict.fromkeys(ACCOUNTANTS, "too few coins")
    silent = tuple(replace(agent, epsilon=dict.fromkeys(ACCOUNTANTS)) for agent in summary.agents)
    told = {
        mechanism: {
            line.accountant: line.reason
            for line in epsilons.lines(replace(summary, mechanism=mechanism, reasons=reasons, agents=silent))
        }
        for mechanism in ("coded-coins", "paper")
    }
    assert told["coded-coins"]["binomial"] == "too few coins" and "binomial" not in told["paper"]
    assert epsilons.noise_words("laplace", "coded-coins") == "counts of coins"


def lemma5(run: RunConfig, D: int = 287) -> float | None:
    return AgentAccount(run, Topology.from_config(run.graph), Schedule.from_config(run), 0, D).total("lemma5")


def noise_once(law: Literal["laplace", "gaussian"] = "laplace", **privacy: float) -> RunConfig:
    run = digits_run()
    run = replace(run, algorithm=replace(run.algorithm, mechanism="noise-once"), privacy=Privacy(**privacy))
    other = NoiseStream("constant", (123.0,) * 5)  # of x, which noise-once sends as it is
    return replace(run, noise=replace(run.noise, law=law, zeta=other))


def test_the_papers_twin_has_the_same_scale_K_m_and_C() -> None:
    paper = digits_run()
    assert epsilons.paper_twin(paper) is None
    twin = epsilons.paper_twin(noise_once(clip_l1=40.0))
    assert twin is not None and twin == paper, "x takes the scale of y"
    gaussian = epsilons.paper_twin(noise_once("gaussian", clip_l2=40.0))
    assert gaussian is not None and gaussian.privacy == Privacy(C=80.0) and lemma5(gaussian) == lemma5(paper)
    published = replace(paper, algorithm=replace(paper.algorithm, mechanism="published-point"))
    assert epsilons.paper_twin(published) == paper
    silent = replace(noise_once(clip_l1=40.0), noise=replace(paper.noise, zeta=None, eta=None, multiplier=0.0))
    twin = epsilons.paper_twin(silent)
    assert twin is not None and lemma5(twin) == math.inf


def test_comparison_says_what_was_changed() -> None:
    same = "The paper mechanism at the same scale, K, m and C"
    for law, privacy, label in (
        ("laplace", {"clip_l1": 1.0}, same),
        ("gaussian", {"C": 1.0}, f"{same} (Laplace noise)"),
        ("gaussian", {"clip_l2": 1.0}, f"{same} (Laplace noise, C = 2 taken in L1)"),
    ):
        summary = summary_of(noise_once(law, **privacy), ())
        assert epsilons.comparison_label(summary) == label
        assert epsilons.comparison(summary) is None
    agents = tuple(replace(agent, epsilon=Epsilon(), paper_lemma5=7.0) for agent in summary.agents)
    assert epsilons.comparison(replace(summary, agents=agents)) == (7.0,) * 5


def test_a_release_is_a_vector_that_is_charged() -> None:
    """As the ledger counts: two of a round that releases, or one where x is a function of what was released."""
    run = digits_run()
    assert [epsilons.releases(run, k) for k in (-1, 0, 6, run.K, run.K + 9)] == [0, 2, 14, 2 * run.K + 2, 2 * run.K + 2]
    once = replace(run, algorithm=replace(run.algorithm, mechanism="noise-once"))
    assert epsilons.releases(once, 6) == 7
    apart = replace(once, scheme=replace(once.scheme, release_every=3, settle=2))
    rounds = [k for k in range(run.K + 1 - 2) if k % 3 == 0]
    assert [epsilons.releases(apart, k) for k in (0, 2, 3, run.K)] == [1, 1, 2, len(rounds)]
