"""kill -9 of real processes at random instants: a few kills here, the whole campaign by ``make kills``.

Releases apart from rounds are killed in ``test_shared_noise``, with the noise that is shared.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.kills import (
    APART,
    ATC,
    DIGITS,
    ENTROPY,
    FIVE,
    MILLION,
    RING,
    TERNARY,
    Case,
    Findings,
    Kill,
    Victim,
    campaign,
    check,
    truth,
)

SEED = 20261128


@pytest.mark.e2e
def test_five_kills_one_of_each_role_leave_no_trace_in_the_result(tmp_path: Path) -> None:
    """On three agents, whose kills are those of five; the campaign has five."""
    findings = Findings()
    victim = Victim(replace(DIGITS, text=DIGITS.text.replace(FIVE, RING)), tmp_path, findings)
    plan = [
        Kill("agent-3", -1, 0.3),
        Kill("agent-1", 9, 0.01),
        Kill("coordinator", 20, 0.02),
        Kill("launcher", 33, 0.005),
        Kill("all", 47, 0.015),
    ]
    assert check(victim, victim.go(plan)) == []
    assert len(findings.hits) == 5 and findings.missed == 0, findings.report()


@pytest.mark.e2e
def test_two_kills_in_a_run_of_another_method_leave_no_trace_in_the_result(tmp_path: Path) -> None:
    """ATC-DSGD: one stream, a state of one vector, a charge that the other stream carries."""
    findings = Findings()
    victim = Victim(ATC, tmp_path, findings)
    assert check(victim, victim.go([Kill("agent-2", 14, 0.01), Kill("all", 41, 0.01)])) == []
    assert len(findings.hits) == 2 and findings.missed == 0, findings.report()


@pytest.mark.e2e
def test_the_checks_see_a_ledger_and_a_result_that_are_not_those_of_the_run(tmp_path: Path) -> None:
    """The checker's own mutants, on a run that nothing happened to."""
    short = replace(ENTROPY, text=ENTROPY.text.replace("iterations = 50", "iterations = 4").replace(FIVE, RING))
    victim = Victim(short, tmp_path, Findings())
    assert check(victim, victim.go([])) == []
    victim.case = replace(short, keystream="00")
    wrong = check(victim, 0)
    assert sum("the ledger differs" in line for line in wrong) == sum("x_final differs" in line for line in wrong) == 3
    victim.case = short
    path = victim.state("agent-2") / "x_final.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x41")
    wrong = check(victim, 0)
    assert any("copy of x_final differs" in line for line in wrong)
    assert any("agent-2: what was stored does not explain x_final" in line for line in wrong)
    assert "exit code 6" in check(victim, 6)[0]


def test_the_truth_is_one_row_a_release() -> None:
    case = replace(ENTROPY, text=ENTROPY.text.replace("iterations = 50", "iterations = 2"), keystream="00")
    rows, finals = truth(case)
    assert {len(held) for held in rows.values()} == {6} and len(finals) == 5


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "kills"),
    [(DIGITS, 40), (ENTROPY, 25), (MILLION, 25), (ATC, 15), (APART, 30), (TERNARY, 15)],
    ids=lambda v: v.name if isinstance(v, Case) else "",
)
def test_a_campaign_of_kills(tmp_path: Path, case: Case, kills: int) -> None:
    findings = Findings()
    campaign(case, kills, SEED, tmp_path, findings)
    print(findings.report())
    assert not findings.problems
    assert len(findings.hits) >= 0.8 * kills, "most kills must hit something"
