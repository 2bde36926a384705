"""The live view and the final summary: what is printed, how often, in a terminal and piped."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from dpgt_node.cli.live import EPSILON_HEAD, LiveAgent, LiveStatus, LiveView, eta_s, plain_line, print_summary
from dpgt_node.config.model import Evaluation, RunConfig
from dpgt_node.report import text
from dpgt_node.report.summary import Summary
from tests.report.synthetic import digits_run, rows_of, summary_of


def status(k: int = 120, n: int = 5, *, accuracy: bool = True, state: str = "running") -> LiveStatus:
    agents = tuple(
        LiveAgent(f"agent-{i}", True, k, 0.86 + 0.001 * ((i - 3) % n) if accuracy else None, 1234.5)
        for i in range(1, n + 1)
    )
    return LiveStatus(state, k, 200, agents, 85.3, 0.0123)


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
        "epsilon (Lemma 5) 1234.5  ETA 0.94 s"
    )


def test_plain_line_without_what_does_not_apply() -> None:
    toy = replace(status(accuracy=False), consensus_error=None, rounds_per_second=None)
    toy = replace(toy, agents=tuple(replace(agent, epsilon_lemma5=None) for agent in toy.agents))
    assert plain_line(toy) == "k 120/200"
    infinite = replace(toy, agents=(replace(toy.agents[0], epsilon_lemma5=math.inf),))
    assert plain_line(infinite) == "k 120/200  epsilon (Lemma 5) infinite"


def test_plain_line_names_who_is_missing() -> None:
    gone = status()
    gone = replace(gone, agents=(replace(gone.agents[0], connected=False), *gone.agents[1:]))
    assert "not connected: agent-1" in plain_line(gone)
    waiting = replace(gone, state="waiting", k=-1)
    assert plain_line(waiting) == "waiting  4/5 agents connected, waiting for agent-1"
    nobody = status(-1, n=100, state="waiting")
    nobody = replace(nobody, agents=tuple(replace(agent, connected=False) for agent in nobody.agents))
    assert plain_line(nobody).endswith("0/100 agents connected, waiting for agent-1, agent-2, agent-3 and 97 more")


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
    assert lines[0].startswith("running  5/5 agents connected")
    assert [line.split()[1] for line in lines[1:]] == [f"{k}/200" for k in [*range(20, 200, 21), 200]]


def test_piped_a_line_every_five_seconds_when_rounds_are_slow() -> None:
    now = [0.0]
    out = console()
    with LiveView(local(digits_run()), out, clock=lambda: now[0]) as view:
        for second in range(12):
            now[0] = float(second)
            view.update(status(40 + second // 6))
    assert [line.split()[1] for line in printed(out).splitlines()] == ["40/200", "40/200", "41/200", "41/200"]
    # printed at 0, 5 and 10 seconds, and once more on closing only if the round had changed since


def test_piped_state_changes_are_printed_and_closing_twice_adds_nothing() -> None:
    out = console()
    view = LiveView(local(digits_run()), out, clock=lambda: 0.0)
    view.update(status(1))
    view.update(status(1, state="paused"))
    view.update(status(2, state="paused"))
    view.close()
    view.close()
    assert [line[:14] for line in printed(out).splitlines()] == ["k 1/200  round", "paused  k 1/20", "paused  k 2/20"]


def test_piped_lines_are_not_wrapped_and_hold_no_escape_codes() -> None:
    out = console(width=40)
    with LiveView(digits_run(), out, keystream="test") as view:
        view.update(status())
    lines = printed(out).splitlines()
    assert lines == [text.TEST_KEYSTREAM, text.STUDY, plain_line(status())]


def test_terminal_shows_one_table_and_gives_the_cursor_back() -> None:
    out = console(terminal=True)
    with LiveView(local(digits_run()), out) as view:
        view.update(status())
        view.update(status(121))
    shown = printed(out)
    assert EPSILON_HEAD in shown and "k 121/200" in shown and "agent-5" in shown and "ETA" in shown
    assert "rounds/s 85.3" in shown and "0.860" in shown and "1234.5" in shown
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
    assert len(lines) == 3 and all(line.startswith("\x1b[1;31m") for line in lines)
    assert text.TEST_KEYSTREAM in lines[0] and text.NOISE_OFF in lines[1] and text.STUDY in lines[2]
    quiet = console()
    LiveView(local(digits_run()), quiet).close()
    assert printed(quiet) == ""


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
    assert shown.startswith("digits: finished  201 rounds  2.4 s, 83.4 rounds/s  consensus error ")
    assert f"Worst agent: {worst.name}, test accuracy {worst.accuracy_test:.3f}" in shown
    assert EPSILON_HEAD in shown and "48210.0" in shown and "402" in shown and "2.09\u00a0MB" in shown
    assert "C = 80 in L1 (Definition 3); enforced" in shown and text.WHY_CONDITIONAL in shown and text.STUDY in shown
    assert shown.splitlines()[-1] == f"Report: {tmp_path / 'report.html'}"


def test_summary_of_a_toy_without_privacy(tmp_path: Path) -> None:
    run = local(digits_run(multiplier=0.0))
    rows = rows_of(run, accuracy=False, lemma5=None)
    out = console(width=120)
    print_summary(run, replace(summary_of(run, rows), seconds=None, keystream="test"), tmp_path, out)
    shown = printed(out)
    assert "Worst agent:" in shown and "training loss" in shown
    assert text.WHY_CONDITIONAL not in shown and text.NOISE_OFF in shown and text.TEST_KEYSTREAM in shown
    assert shown.splitlines()[-1] == f"Report: {tmp_path}"


def test_summary_of_hundred_agents_shows_the_worst(tmp_path: Path) -> None:
    run = digits_run(n=100)
    out = console(width=120)
    print_summary(run, result(run), tmp_path, out)
    shown = printed(out)
    assert "the 12 worst of 100 agents" in shown and shown.count("│ agent-") == 12


def test_names_are_not_markup(tmp_path: Path) -> None:
    run = digits_run(names=["[red]a[/red]", "b[/]", "c", "d", "e"])
    out = console(width=120)
    print_summary(run, result(run), tmp_path, out)
    agents = tuple(LiveAgent(name, True, 0, 0.5) for name in run.graph.agents)
    with LiveView(local(run), console(terminal=True)) as view:
        view.update(LiveStatus("running", 0, 1, agents))
    assert "[red]a[/red]" in printed(out) and "b[/]" in printed(out)
