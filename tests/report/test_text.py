"""Number formats and the words around epsilon."""

from __future__ import annotations

import math
from dataclasses import replace

from dpgt_node.config.model import NoiseStream, Privacy
from dpgt_node.record import epsilons
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.rivals import Rivals
from dpgt_node.record.summary import AgentSummary
from dpgt_node.report import text
from tests.report.synthetic import digits_run, summary_of


def test_other_formats() -> None:
    assert [text.accuracy(v) for v in (None, 0.8612)] == ["–", "0.861"]
    assert [text.percent(v) for v in (None, 0.8612)] == ["–", "86.1\u00a0%"]
    assert [text.span(v) for v in (0.45, 0.0042, 1.7, 200.0)] == ["450 ms", "4.2 ms", "1.7 s", "3 min 20 s"]
    assert [text.size(v) for v in (None, 12, 999_700, 2_093_616, 10**13)] == [
        "–",
        "12\u00a0B",
        "1\u00a0MB",
        "2.09\u00a0MB",
        "10\u00a0TB",
    ]
    times = [text.duration(v) for v in (None, math.inf, 0.94, 2.41, 59.7, 200.0, 7500.0)]
    assert times == ["–", "–", "0.94 s", "2.4 s", "60 s", "3 min 20 s", "2 h 05 min"]
    assert text.noise_scale(None) == "none"
    assert text.noise_scale(NoiseStream("constant", (0.1, 0.1))) == "0.1"
    assert text.noise_scale(NoiseStream("exponent", (0.1, 0.14))) == "exponent 0.1 to 0.14"


def agent(name: str, accuracy: float | None, loss: float | None) -> AgentSummary:
    return AgentSummary(name, accuracy, loss, Epsilon(), None, None)


def test_worst_agent() -> None:
    found = text.worst_agent([agent("a", 0.9, 5.0), agent("b", 0.8, 1.0), agent("c", None, 9.0)])
    assert found is not None and found.name == "b"
    found = text.worst_agent([agent("a", None, 0.5), agent("b", None, 0.7)])
    assert found is not None and found.name == "b"
    assert text.worst_agent([agent("a", None, None)]) is None
    assert text.worst_agent([]) is None
    assert text.middle([3.0, None, 1.0, 2.0]) == 2.0 and text.middle([None]) is None


def test_statement_says_when_the_number_is_large() -> None:
    run = digits_run()
    large = text.privacy_statement(run, summary_of(run, (), lemma5=48_210.0))
    assert any("48,210 (Lemma 5; conditional) protects nothing" in paragraph for paragraph in large)
    small = text.privacy_statement(run, summary_of(run, (), lemma5=0.5))
    assert not any("protects nothing" in paragraph for paragraph in small) and text.WHY_CONDITIONAL in small


def test_statement_says_how_C_is_known() -> None:
    run = digits_run()
    enforced = " ".join(text.privacy_statement(run, summary_of(run, (), lemma5=1.0)))
    assert "Assumption 2(ii)" in enforced and "no longer apply literally" in enforced
    run = replace(run, privacy=Privacy(C=2.0))
    summary = summary_of(run, (), lemma5=1.0)
    assert epsilons.enforcement(summary.privacy) == "declared, not enforced"
    assert "is not enforced" in " ".join(text.privacy_statement(run, summary))
    run = replace(run, privacy=Privacy())
    assert epsilons.enforcement(summary_of(run, ()).privacy) == "no C: every epsilon is null"
    assert "every epsilon is null" in " ".join(text.privacy_statement(run, summary_of(run, ())))


def test_noise_off_is_said_instead_of_the_condition() -> None:
    run = digits_run(multiplier=0.0)
    statement = text.privacy_statement(run, summary_of(run, (), lemma5=math.inf))
    assert text.NOISE_OFF in statement and text.WHY_CONDITIONAL not in statement
    assert any(part.startswith(text.STUDY) for part in statement), "private states were uploaded all the same"


def test_alone_beside_the_run() -> None:
    agents = [AgentSummary(name, accuracy, None, Epsilon(), None, None) for name, accuracy in (("a", 0.9), ("b", 0.8))]
    said = text.alone_line(agents, Rivals({"a": 0.3, "b": 0.5}))
    assert "worst agent 30.0\u00a0%, median 40.0\u00a0%; the exchange gained the worst agent 50.0 points." in said
    assert text.STAY_ALONE not in said
    for alone in (0.8, 0.85):  # equal is no gain either
        assert text.STAY_ALONE in text.alone_line(agents, Rivals({"a": 0.99, "b": alone}))
    assert text.alone_line(agents, None) == "" == text.alone_line([AgentSummary("a", None, 1.0, Epsilon(), 1, 1)], None)


def test_restarts_name_a_few_processes() -> None:
    summary = summary_of(digits_run(), [])
    assert text.restarts(summary) == "" == text.restarts(replace(summary, restarts={"agent-1": 0}))
    few = replace(summary, restarts={"coordinator": 3, "agent-2": 1})
    assert text.restarts(few) == "started again: agent-2 once, coordinator 3 times"
    many = text.restarts(replace(summary, restarts=dict.fromkeys("abcdefg", 1)))
    assert many == "started again: a once, b once, c once, d once, e once, 2 more"
