"""The first screen and the attacks' table, without a page: whose number stands there, and why it is worth its word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dpgt_node.config.model import Privacy
from dpgt_node.privacy.strength import hit_rate
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.summary import PrivacySummary, Summary
from dpgt_node.report import attack_table, text
from dpgt_node.report.headline import answers
from tests.report.synthetic import digits_run, rows_of, summary_of

RUN = replace(digits_run(n=3), privacy=Privacy(clip_l2=0.5))


def costing(*epsilons: float, accountant: str = "gdp", **privacy: object) -> Summary:
    """Agents at these epsilons; 1,000 samples each, and a C that is enforced."""
    summary = summary_of(RUN, rows_of(RUN))
    agents = tuple(
        replace(agent, epsilon=Epsilon(**{accountant: epsilon}))
        for agent, epsilon in zip(summary.agents, epsilons, strict=True)
    )
    held = replace(PrivacySummary.of(RUN, [1000]), **privacy)  # type: ignore[arg-type]
    return replace(summary, agents=agents, privacy=held, headline=accountant)


def cost(summary: Summary) -> tuple[str, str]:
    answer = answers(RUN, summary, None)[1]
    return answer.value, answer.sub


def test_the_largest_epsilon_stands_there_with_the_share_that_it_lets_be_found() -> None:
    value, more = cost(costing(0.5, 2.0, 1.0))
    assert value.startswith("epsilon 2: ")
    found = f"at most {text.percent(hit_rate(2.0, 1e-5, 0.01))} of samples"
    assert found in more and text.percent(hit_rate(2.0, 0.0, 0.01)) == text.percent(hit_rate(2.0, 1e-5, 0.01))
    with_delta = cost(costing(0.5, 2.0, 1.0, delta=0.05, samples=10))[1]
    assert f"at most {text.percent(hit_rate(2.0, 0.05, 0.01))} of samples" in with_delta
    assert text.percent(hit_rate(2.0, 0.05, 0.01)) != text.percent(hit_rate(2.0, 0.0, 0.01))
    assert "may come out" in cost(costing(0.5, 2.0, 50.0))[1]


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        (costing(1.0, 1.0, 1.0, delta=0.001), "delta is 1/D or more"),
        (costing(1.0, 1.0, 1.0, enforced=False), "nothing enforces the declared C"),
        (costing(1.0, 1.0, 1.0, accountant="lemma5"), "a number without a proof"),
        (replace(costing(1.0, 1.0, 1.0), keystream="test"), "anybody can compute the noise"),
    ],
)
def test_what_voids_an_epsilon_is_said_and_it_is_no_protection(summary: Summary, why: str) -> None:
    value, more = cost(summary)
    assert value.endswith("no protection") and why in more


def test_a_run_that_was_not_resumed_took_what_it_says() -> None:
    summary = costing(1.0, 1.0, 1.0)
    assert answers(RUN, summary, None)[3].sub.startswith("in 2.4")
    assert answers(RUN, replace(summary, seconds=1.0), None)[3].sub.startswith("(the last 83 of them, since it was")


@pytest.mark.parametrize(
    ("change", "marked"),
    [({}, (False, False)), ({"restarts": {"agent-2": 1}}, (False, True)), ({"rounds_timed": 20}, (True, True))],
)
def test_a_process_that_was_started_again_sent_at_least_what_it_counted(
    change: Mapping[str, Any], marked: tuple[bool, bool]
) -> None:
    summary = replace(summary_of(RUN, rows_of(RUN)), **change)
    took, all_of_it = answers(RUN, summary, None)[3].sub, f"{text.size(3 * 2_093_616)} sent"
    assert all_of_it in took and (f"at least {all_of_it}" in took) == any(marked)
    cells, size = [text.sent(summary, agent) for agent in summary.agents[:2]], text.size(2_093_616)
    assert cells == [f"≥\xa0{size}" if least else size for least in marked]
    assert took.endswith("; started again: agent-2 once") == ("restarts" in change)
    nothing = replace(summary.agents[1], bytes_sent=None)
    assert text.sent(summary, nothing) == "–"


# ---------------------------------------------------------------- attacks
def found(verdict: str, agent: str = "agent-1", **measured: float) -> Mapping[str, Any]:
    return {"agent": agent, "verdict": verdict, "measured": measured, "predicted": {}}


ATTACKS: list[Mapping[str, Any]] = [
    {"attack": "membership, weaker noise", "findings": [found("succeeds", auc=0.99)]},
    {"attack": "membership", "findings": [found("fails", "agent-2", auc=0.5), found("partly", "agent-3", auc=0.7)]},
    {"attack": "reuse", "findings": [found("clean", smallest=0.9), found("clean", "agent-2", smallest=0.4)]},
    {"attack": "traffic", "findings": [found("not measured")]},
]


def test_the_worst_verdict_of_the_run_itself_counts() -> None:
    table = attack_table.table(ATTACKS)
    assert table.standings["membership"] == "partly" and table.own.keys() == {"membership", "reuse", "traffic"}
    assert table.headline == "0 of 2 attacks succeed, 1 in part, 1 not measured" and table.won
    assert "membership" in table.names and "weaker noise 1 of 1: membership" in table.names
    eavesdropper = answers(RUN, costing(1.0, 1.0, 1.0), table)[2]
    assert (eavesdropper.value, eavesdropper.kind) == (table.headline, "bad")
    clean = attack_table.table(ATTACKS[2:])
    assert not clean.won and answers(RUN, costing(1.0, 1.0, 1.0), clean)[2].kind == ""


def test_the_value_of_an_attack_is_the_adversary_s_best_with_what_a_guess_reaches() -> None:
    membership, reuse = (attack_table.reached(ATTACKS[at]) for at in (1, 2))
    assert membership is not None and (membership.value, membership.agent) == (0.7, "agent-3")
    assert (membership.guess, membership.won) == (0.5, True)
    assert reuse is not None and (reuse.value, reuse.agent, reuse.won) == (0.4, "agent-2", False)


def test_traffic_analysis_alone_takes_nobody_s_data() -> None:
    """It reads no payload, whatever its verdict: sizes and times are no successful attack on data."""
    traffic = {"attack": "traffic", "findings": [found("succeeds", "", payloads_recovered=0), found("fails")]}
    alone = attack_table.table([{**traffic, "attack": "traffic, this run over mTLS"}, ATTACKS[0]])
    assert alone.headline == "no payload read; sizes and times show" and not alone.won
    assert alone.names == "this run over mTLS sizes and times show; weaker noise 1 of 1: membership"
    beside = attack_table.table([traffic, *ATTACKS[1:3], {"attack": "lira", "findings": [found("no power")]}])
    assert beside.headline == "0 of 2 attacks succeed, 1 in part, 1 without power; sizes and times show" and beside.won
    several = {
        "attack": "traffic",
        "findings": [found("succeeds", name, payloads_recovered=0) for name in ("", "a", "b")],
    }
    assert attack_table.table([several]).lines[0].cells[-1] == "a, b"
