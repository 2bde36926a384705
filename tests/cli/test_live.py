"""The live view and the final summary: what is printed, how often, in a terminal and piped."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dpgt_node.cli.running.ended import print_summary
from dpgt_node.cli.running.live import LiveAgent, LiveStatus, LiveView, eta_s, live_table, plain_line
from dpgt_node.config.model import Evaluation, Privacy, RunConfig
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.rivals import Rivals, write_rivals
from dpgt_node.record.summary import PrivacySummary, Summary
from dpgt_node.report import text
from tests.report.synthetic import digits_run, rows_of, summary_of

HEAD = "epsilon (gdp, delta 1e-05)"


def privacy(run: RunConfig) -> str:
    """The line a view begins with."""
    return text.privacy_line(run, PrivacySummary.of(run))


def status(k: int = 120, n: int = 5, *, accuracy: bool = True, state: str = "running") -> LiveStatus:
    agents = tuple(
        LiveAgent(f"agent-{i}", True, k, 0.86 + 0.001 * ((i - 3) % n) if accuracy else None, 1234.5)
        for i in range(1, n + 1)
    )
    return LiveStatus(state, k, 200, agents, 85.3, 0.0123, "gdp", 1e-5)


def console(*, terminal: bool = False, width: int = 100) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, _environ={"TERM": "xterm-256color"})


def printed(where: Console) -> str:
    file = where.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def local(run: RunConfig) -> RunConfig:
    return replace(run, evaluate=Evaluation(metrics="local"))


def test_plain_line() -> None:
    assert plain_line(status()) == (
        "k 120/200  rounds/s 85.3  worst test accuracy 0.860 (agent-3)  consensus error 0.012  "
        "epsilon (gdp, delta 1e-05) 1,234  ETA 0.94 s"
    )


def test_plain_line_without_what_does_not_apply() -> None:
    toy = replace(status(accuracy=False), consensus_error=None, rounds_per_second=None)
    toy = replace(toy, agents=tuple(replace(agent, epsilon=None) for agent in toy.agents))
    assert plain_line(toy) == "k 120/200"
    assert plain_line(replace(status(), accountant=None, rounds_per_second=None)).endswith("consensus error 0.012")
    infinite = replace(toy, agents=(replace(toy.agents[0], epsilon=math.inf),))
    for accountant, head in (
        ("lemma5", "epsilon (Lemma 5; conditional)"),
        ("corrected", "epsilon (corrected, pure)"),
        ("tight", "epsilon (tight, pure)"),
        ("amplified", "epsilon (amplified, pure)"),
        ("zcdp", "epsilon (zcdp, delta 1e-05)"),
    ):
        assert plain_line(replace(infinite, accountant=accountant)) == f"k 120/200  {head} infinite"


def test_the_largest_epsilon_and_the_worst_known_accuracy_are_the_run_s() -> None:
    agents = (
        LiveAgent("a", True, 120, None, 2.0),
        LiveAgent("b", True, 120, 0.9, 7.5),
        LiveAgent("c", True, 120, 0.8, 3.0),
    )
    said = plain_line(replace(status(), agents=agents))
    assert "worst test accuracy 0.800 (c)" in said and "epsilon (gdp, delta 1e-05) 7.5" in said


def test_an_end_has_nobody_missing_and_no_time_left() -> None:
    left = tuple(replace(agent, connected=False) for agent in status().agents)
    over = replace(status(state="stopped"), agents=left, over=True)
    assert eta_s(over) is None and "not connected" not in plain_line(over) and "ETA" not in plain_line(over)
    assert "epsilon (gdp, delta 1e-05) 1,234" in plain_line(over)
    assert "not connected: agent-1, agent-2, agent-3 and 2 more" in plain_line(replace(over, over=False))


def test_plain_line_names_who_is_missing() -> None:
    gone = status()
    gone = replace(gone, agents=(replace(gone.agents[0], connected=False), *gone.agents[1:]))
    assert "not connected: agent-1" in plain_line(gone)
    waiting = replace(gone, state="waiting", k=-1)
    assert plain_line(waiting) == "waiting  4/5 agents connected, waiting for agent-1"
    nobody = status(-1, n=100, state="waiting")
    nobody = replace(nobody, agents=tuple(replace(agent, connected=False) for agent in nobody.agents))
    assert plain_line(nobody).endswith("0/100 agents connected, waiting for agent-1, agent-2, agent-3 and 97 more")


def test_plain_line_and_table_say_what_is_wrong_and_since_when() -> None:
    wrong = replace(status(), trouble="agent-2 gave no sign of life for 73.2 s, in round 121")
    assert "agent-2 gave no sign of life for 73.2 s" in plain_line(wrong)
    where = console(terminal=True)
    where.print(live_table(wrong))
    assert "agent-2 gave no sign of life for 73.2 s, in round 121" in printed(where)


def test_eta() -> None:
    assert eta_s(replace(status(100), rounds_per_second=50.0)) == 2.0
    assert eta_s(status(200)) == 0.0
    assert eta_s(replace(status(), rounds_per_second=0.0)) is None
    assert eta_s(status(-1)) is None


def test_piped_a_line_every_tenth_of_the_rounds() -> None:
    out = console()
    with LiveView(local(digits_run()), out, clock=lambda: 0.0) as view:
        for k in range(-1, 201):
            view.update(status(k))
    lines = printed(out).splitlines()
    assert lines[0] == privacy(local(digits_run()))
    assert lines[1].startswith("running  5/5 agents connected")
    assert [line.split()[1] for line in lines[2:]] == [f"{k}/200" for k in [*range(20, 200, 21), 200]]


def test_piped_a_line_every_five_seconds_when_rounds_are_slow() -> None:
    now = [0.0]
    out = console()
    with LiveView(local(digits_run()), out, clock=lambda: now[0]) as view:
        for second in range(12):
            now[0] = float(second)
            view.update(status(40 + second // 6))
    assert [line.split()[1] for line in printed(out).splitlines()[1:]] == ["40/200", "40/200", "41/200", "41/200"]
    # printed at 0, 5 and 10 seconds, and once more on closing only if the round had changed since


def test_piped_state_changes_are_printed_and_closing_twice_adds_nothing() -> None:
    out = console()
    view = LiveView(local(digits_run()), out, clock=lambda: 0.0)
    view.update(status(1))
    view.update(status(1, state="paused"))
    view.update(status(2, state="paused"))
    view.close()
    view.close()
    assert [line[:14] for line in printed(out).splitlines()[1:]] == [
        "k 1/200  round",
        "paused  k 1/20",
        "paused  k 2/20",
    ]


def test_piped_lines_are_not_wrapped_and_hold_no_escape_codes() -> None:
    out = console(width=40)
    with LiveView(digits_run(), out, keystream="test") as view:
        view.update(status())
    lines = printed(out).splitlines()
    assert lines == [text.TEST_KEYSTREAM, text.STUDY, privacy(digits_run()), plain_line(status())]


def test_terminal_shows_one_table_and_gives_the_cursor_back() -> None:
    out = console(terminal=True)
    with LiveView(local(digits_run()), out) as view:
        view.update(status())
        view.update(status(121))
    shown = printed(out)
    assert HEAD in shown and "k 121/200" in shown and "agent-5" in shown and "ETA" in shown
    assert "rounds/s 85.3" in shown and "0.860" in shown and "1,234" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_terminal_is_given_back_on_an_interrupt() -> None:
    out = console(terminal=True)
    try:
        with LiveView(local(digits_run()), out) as view:
            view.update(status())
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert printed(out).rstrip().endswith("\x1b[?25h")


def test_hundred_agents_show_worst_median_and_best() -> None:
    out = console(terminal=True)
    with LiveView(local(digits_run(n=100)), out) as view:
        view.update(status(n=100))
    shown = printed(out)
    assert shown.count("agent-") == 7
    assert "worst" in shown and "median" in shown and "best" in shown and "7 of 100 agents shown" in shown
    out = console(terminal=True)
    with LiveView(local(digits_run(n=100)), out) as view:
        view.update(status(n=100, accuracy=False))
    assert "worst" not in printed(out)


def test_warnings_are_red() -> None:
    out = console(terminal=True, width=200)
    LiveView(digits_run(multiplier=0.0), out, keystream="test").close()
    lines = printed(out).splitlines()
    assert len(lines) == 4 and all(line.startswith("\x1b[1;31m") for line in lines[:3])
    assert text.TEST_KEYSTREAM in lines[0] and text.NOISE_OFF in lines[1] and text.STUDY in lines[2]
    quiet = console()
    LiveView(local(digits_run()), quiet).close()
    assert printed(quiet) == privacy(local(digits_run())) + "\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_without_noise_shows_no_accountant_while_it_goes_on(terminal: bool) -> None:
    for run, shown in ((digits_run(multiplier=0.0), False), (digits_run(), True), (None, True)):
        out = console(terminal=terminal, width=200)
        view = LiveView(run, out)
        view.update(status())
        view.close()
        assert ("(gdp, delta 1e-05)" in printed(out)) is shown and "0.86" in printed(out)


def result(run: RunConfig, **changes: object) -> Summary:
    return replace(summary_of(run, rows_of(run)), **changes)  # type: ignore[arg-type]


def test_summary(tmp_path: Path) -> None:
    run = digits_run()
    (tmp_path / "report.html").touch()
    out = console(width=120)
    summary = result(run)
    print_summary(run, summary, tmp_path, out)
    shown = printed(out)
    worst = text.worst_agent(summary.agents)
    assert worst is not None
    assert shown.startswith("digits: finished  201 rounds in 2.4 s, 83.4 rounds/s  consensus error ")
    assert f"Worst agent: {worst.name}, test accuracy {worst.accuracy_test:.3f}" in shown
    assert (
        "epsilon (Lemma 5; conditional)" in " ".join(shown.split())
        and "48,210" in shown
        and "402" in shown
        and "2.09\u00a0MB" in shown
    )
    assert "C = 80 in L1 (Definition 3); enforced" in shown and text.WHY_CONDITIONAL in shown and text.STUDY in shown
    assert shown.splitlines()[-1] == f"Report: {tmp_path / 'report.html'}"


def private(n: int = 5) -> tuple[RunConfig, Summary]:
    """noise-once with Gaussian noise: two accountants speak, and the paper is compared."""
    run = local(digits_run(n=n))
    run = replace(run, algorithm=replace(run.algorithm, mechanism="noise-once"))
    run = replace(run, noise=replace(run.noise, law="gaussian"), privacy=Privacy(clip_l2=1.0))
    summary = result(run, headline="gdp", reasons=dict.fromkeys(ACCOUNTANTS, "because") | {"zcdp": None, "gdp": None})
    agents = tuple(
        replace(agent, epsilon=Epsilon(zcdp=9.0 + i / 8, gdp=7.5 + i / 8), paper_lemma5=50_000.5 + i)
        for i, agent in enumerate(summary.agents)
    )
    return run, replace(summary, agents=agents)


TABLE = """
Epsilon of each agent's whole transcript
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━┓
┃ accountant                        ┃    agent-1 ┃      agent-2 ┃     agent-3 ┃      agent-4 ┃    agent-5 ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━┩
│ zero-concentrated (delta = 1e-05) │   9 (weak) │ 9.125 (weak) │ 9.25 (none) │ 9.375 (none) │ 9.5 (none) │
│ Gaussian (delta = 1e-05)          │ 7.5 (weak) │ 7.625 (weak) │ 7.75 (weak) │ 7.875 (weak) │   8 (weak) │
└───────────────────────────────────┴────────────┴──────────────┴─────────────┴──────────────┴────────────┘
The paper mechanism at the same scale, K, m and C (Laplace noise, C = 2 taken in L1): Lemma 5 (paper; conditional) = \
50,004 (none) at most
Privacy: replace-one, per-sample gradients differ by at most 2 in L2; enforced: every per-sample gradient is clipped; \
gaussian noise, mechanism noise-once.
"""


def test_summary_says_what_was_started_again_and_whose_bytes_are_not_all(tmp_path: Path) -> None:
    run, shown = digits_run(), []
    for restarts in ({}, {"agent-2": 1, "coordinator": 2}):
        out = console(width=80)
        print_summary(run, result(run, restarts=restarts), tmp_path, out)
        shown.append(printed(out))
    plain, again = shown
    assert "Processes started again" not in plain and "≥" not in plain and "Sent:" not in plain
    assert "Processes started again: agent-2 once, coordinator 2 times\n" in again
    assert again.count("≥") == 1 and " ".join(again.split()).count("Sent: a process counts from its last start.") == 1
    assert max(map(len, again[: again.index("Worst agent")].splitlines()[1:])) <= 80


@pytest.mark.parametrize("alone", [{}, {f"agent-{i}": 0.8 for i in range(1, 6)}])
def test_in_80_columns_an_agent_takes_one_line(alone: dict[str, float], tmp_path: Path) -> None:
    write_rivals(tmp_path, Rivals(alone, 0.1))
    out, run = console(width=80), digits_run()
    print_summary(run, result(run), tmp_path, out)
    table = [line for line in printed(out).splitlines() if line.startswith("│")]
    assert all(len(line) <= 80 and "agent-" in line and "(none)" in line and "MB" in line for line in table[:5])
    assert len(table[0].split("│")) == (9 if alone else 8)


def test_summary_says_what_every_accountant_says(tmp_path: Path) -> None:
    run, summary = private()
    out = console(width=120)
    print_summary(run, summary, tmp_path, out)
    shown = printed(out)
    assert TABLE in shown and HEAD in shown
    assert "201 releases an agent" in shown.splitlines()[0] and "payloads" in shown
    assert text.WHY_CONDITIONAL not in shown


def test_columns_that_say_nothing_of_anybody_are_left_out(tmp_path: Path) -> None:
    run, summary = private()
    assert "test accuracy" in _heads(run, summary, tmp_path)
    quiet = tuple(replace(agent, accuracy_test=None, loss_train=None) for agent in summary.agents)
    assert _heads(run, replace(summary, agents=quiet), tmp_path) == [
        "agent",
        "epsilon (gdp, delta 1e-05)",
        "payloads stored",
        "sent",
    ]
    one = (*quiet[:-1], replace(quiet[-1], loss_train=0.5))
    assert "training loss" in _heads(run, replace(summary, agents=one), tmp_path)


def _heads(run: RunConfig, summary: Summary, folder: Path) -> list[str]:
    out = console(width=80)
    print_summary(run, summary, folder, out)
    lines = printed(out).splitlines()
    first, last = (next(i for i, line in enumerate(lines) if line.startswith(edge)) for edge in "┏┡")
    cells = [[cell.strip() for cell in line.split("┃")[1:-1]] for line in lines[first + 1 : last]]
    return [" ".join(filter(None, column)) for column in zip(*cells, strict=True)]


def test_a_summary_fits_80_columns_and_breaks_at_words(tmp_path: Path) -> None:
    """A terminal gets whole words; who reads a pipe gets a sentence a line."""
    run, summary = private()
    out = console(width=80)
    print_summary(run, summary, tmp_path, out)
    shown = printed(out)
    assert re.search("┃ +largest ┃ +median ┃", shown) and "…" not in shown
    assert text.privacy_line(run, summary.privacy) in shown
    terminal = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    print_summary(run, summary, Path("runs"), terminal)
    lines = printed(terminal).splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in printed(terminal)
    said = text.privacy_line(run, summary.privacy)
    assert said in " ".join(line.strip() for line in lines)


def test_summary_of_many_agents_shows_the_largest_epsilon(tmp_path: Path) -> None:
    run, summary = private(n=9)
    out = console(width=120)
    print_summary(run, summary, tmp_path, out)
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in printed(out).splitlines() if "Gaussian" in line
    ]
    assert rows == [["Gaussian (delta = 1e-05)", "8.5 (weak)", "8 (weak)"]]
    assert re.search("┃ +largest ┃ +median ┃", printed(out)) and "= 50,008" in printed(out)


def test_summary_where_no_accountant_has_a_value(tmp_path: Path) -> None:
    run, summary = private()
    agents = tuple(replace(agent, epsilon=Epsilon(), paper_lemma5=None) for agent in summary.agents)
    out = console(width=120)
    print_summary(run, replace(summary, agents=agents, headline=None, reasons={}), tmp_path, out)
    shown = printed(out)
    why = "  Lemma 5 (paper; conditional), Lemma 4 corrected (pure), tight (pure), "
    assert f"No accountant has an epsilon for this run:\n{why}" in shown
    assert shown.count(": not known before the run has a summary\n") == 1
    assert "┃ accountant" not in shown and "The paper" not in shown
    assert "epsilon" not in shown.split("No accountant")[0]


def test_summary_of_a_toy_without_privacy(tmp_path: Path) -> None:
    run = local(digits_run(multiplier=0.0))
    rows = rows_of(run, accuracy=False, lemma5=None)
    out = console(width=120)
    print_summary(run, replace(summary_of(run, rows), seconds=None, keystream="test"), tmp_path, out)
    shown = printed(out)
    assert "Worst agent:" in shown and "training loss" in shown
    assert text.WHY_CONDITIONAL not in shown and text.NOISE_OFF in shown and text.TEST_KEYSTREAM in shown
    assert shown.splitlines()[-1] == f"Report: {tmp_path}"


def test_summary_of_a_method_that_draws_no_noise(tmp_path: Path) -> None:
    """No clip, accountant or law is named: none could help."""
    run = digits_run(multiplier=0.0)
    run = replace(run, algorithm=replace(run.algorithm, method="gt-saga"))
    out = console(width=120)
    print_summary(run, summary_of(run, rows_of(run, lemma5=None)), tmp_path, out)
    shown = printed(out)
    assert "Privacy: none. Method gt-saga draws no noise, so every epsilon is infinite." in shown
    assert not any(word in shown for word in ("No accountant", "clip", "laplace", "mechanism"))


def test_summary_of_hundred_agents_shows_the_worst(tmp_path: Path) -> None:
    run = digits_run(n=100)
    out = console(width=120)
    print_summary(run, result(run), tmp_path, out)
    shown = printed(out)
    assert "the 12 worst of 100 agents" in shown and shown.count("│ agent-") == 12
    assert " largest ┃" in shown


def test_names_are_not_markup(tmp_path: Path) -> None:
    run = digits_run(names=["[red]a[/red]", "b[/]", "c", "d", "e"])
    out = console(width=120)
    print_summary(run, result(run), tmp_path, out)
    agents = tuple(LiveAgent(name, True, 0, 0.5) for name in run.graph.agents)
    with LiveView(local(run), console(terminal=True)) as view:
        view.update(LiveStatus("running", 0, 1, agents))
    assert "[red]a[/red]" in printed(out) and "b[/]" in printed(out)
