"""Progress of a run and its final summary on a terminal: one live table, or plain lines when piped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dpgt_node.accounts.towards import ASSUMPTIONS
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.strength import delta_warning
from dpgt_node.record import epsilons, guessing
from dpgt_node.record.rivals import Rivals, load_rivals
from dpgt_node.record.summary import AgentSummary, PrivacySummary, Summary
from dpgt_node.report import text

# Above this many agents a table shows the worst, the middle and the best only.
ROWS_MAX = 12
WORST_SHOWN = 5
COLUMNS_MAX = 6
PLAIN_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class LiveAgent:
    """One agent as the coordinator sees it; ``k`` its last finished round (-1: none)."""

    name: str
    connected: bool
    k: int
    accuracy_test: float | None = None
    epsilon: float | None = None
    strength: str = ""


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """One snapshot of a run: ``k`` the last round that every agent finished (-1: none), of 0..``K``.

    ``accountant``: whose epsilon the agents' is, with its ``delta``; None: no accountant has a value.
    ``trouble``: who is missing, cut off or slow, and since when; empty when all is well.
    """

    state: str
    k: int
    K: int
    agents: tuple[LiveAgent, ...]
    rounds_per_second: float | None = None
    consensus_error: float | None = None
    accountant: str | None = None
    delta: float | None = None
    trouble: str = ""

    @property
    def epsilon_head(self) -> str:
        """``epsilon (gdp, delta 1e-05)``; empty where there is none to show."""
        return "" if self.accountant is None else epsilons.head(self.accountant, self.delta or 0.0)


class LiveView:
    """Shows snapshots: a table redrawn in place in a terminal, else a line every tenth of the rounds or 5 seconds.

    ``run``: None where only its status is known.  ``keystream``: "test" under the test keystream.  ``clock``: seconds,
    monotonic.  Use it as a context manager, or call :meth:`close`, so that an interrupted run leaves the terminal as it
    was.
    """

    def __init__(
        self,
        run: RunConfig | None,
        console: Console | None = None,
        *,
        keystream: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or Console()
        self._clock = clock
        self._live: Live | None = None
        self._last: LiveStatus | None = None
        self._printed: tuple[str, int] | None = None
        self._printed_at = -math.inf
        if run is not None:
            print_warnings(run, self._console, keystream)
            line = text.privacy_line(PrivacySummary.of(run), run.algorithm.mechanism)
            self._console.print(Text(line, style="dim"), soft_wrap=True)
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=False)

    def update(self, status: LiveStatus) -> None:
        """Show ``status``; cheap enough for every round (a terminal is redrawn at most 8 times a second)."""
        self._last = status
        if self._live is None:
            if self._due(status):
                self._line(status)
            return
        if not self._live.is_started:
            self._live.start()
        self._live.update(_View(status))

    def close(self) -> None:
        """Leave the last state on the screen and give the terminal back; may be called twice."""
        if self._live is not None:
            self._live.stop()
        elif self._last is not None and self._printed != (self._last.state, self._last.k):
            self._line(self._last)
        self._last = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _due(self, status: LiveStatus) -> bool:
        if self._printed is None or self._printed[0] != status.state:
            return True
        tenth = math.ceil((status.K + 1) / 10)
        if (status.k + 1) // tenth > (self._printed[1] + 1) // tenth:
            return True
        return self._clock() - self._printed_at >= PLAIN_EVERY_S

    def _line(self, status: LiveStatus) -> None:
        self._printed = (status.state, status.k)
        self._printed_at = self._clock()
        self._console.print(Text(plain_line(status)), soft_wrap=True)


def plain_line(status: LiveStatus) -> str:
    """``k 120/200  rounds/s 85.3  worst test accuracy 0.861 (agent-3)  ...``; before round 0, who is here."""
    if status.k < 0:
        return "  ".join([status.state, _connected(status), *([status.trouble] if status.trouble else [])])
    parts = [] if status.state == "running" else [status.state]
    parts.append(f"k {status.k}/{status.K}")
    if status.rounds_per_second is not None:
        parts.append(f"rounds/s {text.number(status.rounds_per_second)}")
    worst = _by_accuracy(status.agents)[:1]
    if worst and worst[0].accuracy_test is not None:
        parts.append(f"worst test accuracy {text.accuracy(worst[0].accuracy_test)} ({worst[0].name})")
    if status.consensus_error is not None:
        parts.append(f"consensus error {text.number(status.consensus_error, 2)}")
    largest = _largest_epsilon(status)
    if largest is not None:
        parts.append(f"{status.epsilon_head} {_worth(largest).plain}")
    missing = [agent.name for agent in status.agents if not agent.connected]
    if status.trouble:
        parts.append(status.trouble)
    elif missing and status.k < status.K:
        parts.append(f"not connected: {_some(missing)}")
    left = eta_s(status)
    if left is not None and left > 0:
        parts.append(f"ETA {text.duration(left)}")
    return "  ".join(parts)


def eta_s(status: LiveStatus) -> float | None:
    """Seconds until round K is finished at the present speed; None while it is not known."""
    if not status.rounds_per_second or status.k < 0:
        return None
    return max(0, status.K - status.k) / status.rounds_per_second


def live_table(status: LiveStatus) -> Group:
    """One snapshot: how far the run is, a table with an agent a row, the figures of the run as a whole."""
    table = Table()
    table.add_column("agent")
    table.add_column("k", justify="right")
    table.add_column("test accuracy", justify="right")
    if status.accountant is not None:
        table.add_column(status.epsilon_head, justify="right")
    worst = next((a for a in _by_accuracy(status.agents)[:1] if a.accuracy_test is not None), None)
    for label, agent in _shown(status.agents):
        name = Text(f"{agent.name}  {label}" if label else agent.name)
        if not agent.connected:
            name.append("  not connected", style="red")
        k = str(agent.k) if agent.k >= 0 else "–"
        style = "bold yellow" if agent is worst and len(status.agents) > 1 else ""
        cells: list[Text | str] = [name, k, text.accuracy(agent.accuracy_test)]
        cells += [_worth(agent)] if status.accountant is not None else []
        table.add_row(*cells, style=style)
    lines = [Text(status.trouble, style="red")] if status.trouble else []
    return Group(_head(status), table, *lines, _foot(status))


def print_warnings(run: RunConfig, console: Console, keystream: str | None = None) -> None:
    """What must be said in red before and after a run: test keystream, noise off, study metrics."""
    for warning in text.warnings_for(run, keystream):
        console.print(Text(warning, style="bold red"), soft_wrap=True)


def _print_delta(summary: Summary, console: Console) -> None:
    """A delta of 1/D or more, in red."""
    warning = delta_warning(summary.privacy.delta, summary.privacy.samples)
    if warning is not None:
        console.print(Text(f"WARNING: {warning}", style="bold red"), soft_wrap=True)


def print_summary(run: RunConfig, summary: Summary, out_dir: Path, console: Console | None = None) -> None:
    """The result of a run: the agents, the worst one, what every accountant says, where the report is."""
    console = console or Console()
    rivals = load_rivals(out_dir)
    head = [
        f"{summary.name}: {guessing.outcome(run, summary, rivals)}",
        f"{summary.rounds:,} rounds {text.pace(summary)}".strip(),
    ]
    if summary.consensus_error is not None:
        head.append(f"consensus error {text.number(summary.consensus_error)}")
    style = "bold red" if guessing.learnt_nothing(run, summary, rivals) else "bold"
    console.print(Text("  ".join(head), style=style), soft_wrap=True)
    console.print(_summary_table(summary, rivals))
    worst = text.worst_agent(summary.agents)
    if worst is not None and worst.accuracy_test is not None:
        console.print(Text(f"Worst agent: {worst.name}, test accuracy {text.accuracy(worst.accuracy_test)}"))
    elif worst is not None:
        console.print(Text(f"Worst agent: {worst.name}, training loss {text.number(worst.loss_train, 4)}"))
    if said := text.alone_line(summary.agents, rivals):
        console.print(Text(said), soft_wrap=True)
    _print_epsilons(summary, console)
    _print_towards(run, summary, console)
    console.print(Text(text.privacy_line(summary.privacy, summary.mechanism)), soft_wrap=True)
    for why in text.why_conditional(summary):
        console.print(Text(why, style="dim"), soft_wrap=True)
    _print_delta(summary, console)
    print_warnings(run, console, summary.keystream)
    report = out_dir / "report.html"
    console.print(Text(f"Report: {report if report.exists() else out_dir}"), soft_wrap=True)


def _print_epsilons(summary: Summary, console: Console) -> None:
    """One table of what every accountant says, the reasons of those that say nothing, the paper's for comparison."""
    lines, few = epsilons.lines(summary), len(summary.agents) <= COLUMNS_MAX
    table = Table()
    table.add_column("accountant")
    for name in [agent.name for agent in summary.agents] if few else ["largest", "median"]:
        table.add_column(Text(name), justify="right")
    for line in lines:
        values = line.values if few else (_largest(line.values), text.middle(line.values))
        style = "bold" if line.accountant == summary.headline else ""
        cells = [_judged(summary, line.accountant, value) for value in values]
        table.add_row(line.label, *cells, style=style)
    if any(line.speaks for line in lines):
        console.print(Text("Epsilon of each agent's whole transcript", style="bold"))
        console.print(table)
    for line in lines:
        if line.reason is not None:
            console.print(Text(f"  null: {line.label}: {line.reason}", style="dim"), soft_wrap=True)
    paper = epsilons.comparison(summary)
    if paper is not None:
        label, largest = epsilons.comparison_label(summary), _largest(paper)
        console.print(
            Text(f"{label}: {LEMMA5.label} = {text.judged(largest, 'none', _epsilon(largest))} at most"), soft_wrap=True
        )


def _print_towards(run: RunConfig, summary: Summary, console: Console) -> None:
    """Epsilon towards any t of the others, with what it rests on; nothing where no noise is shared."""
    whom = text.towards_whom(run, summary)
    if whom is None:
        return
    table = Table("agent")
    for head in whom.heads:
        table.add_column(Text(head), justify="right")
    for who, row in text.alike([agent.name for agent in summary.agents], whom.rows):
        table.add_row(Text(who), *(_coloured(value, word) for value, word in row))
    console.print(Text(whom.title, style="bold"), soft_wrap=True)
    console.print(table)
    console.print(Text("\n".join((whom.rests_on, *(f"- {one}" for one in ASSUMPTIONS)))), soft_wrap=True)


def _judged(summary: Summary, accountant: str, value: float | None) -> Text:
    """An epsilon and its word."""
    return _coloured(value, epsilons.word(summary, accountant, value))


def _coloured(value: float | None, word: str) -> Text:
    """In red where it protects nothing."""
    void = value is not None and word == "none"
    return Text(text.judged(value, word, _epsilon(value)), style="red" if void else "")


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


class _View:
    """Renders when the screen is redrawn, not at every update: a fast run makes thousands of updates a second."""

    def __init__(self, status: LiveStatus) -> None:
        self._status = status

    def __rich__(self) -> Group:
        return live_table(self._status)


def _summary_table(summary: Summary, rivals: Rivals | None) -> Table:
    table = Table()
    table.add_column("agent")
    table.add_column("test accuracy", justify="right")
    alone = {} if rivals is None else rivals.alone
    if alone:
        table.add_column("alone", justify="right")
    table.add_column("training loss", justify="right")
    accountant = epsilons.shown(summary)
    if accountant is not None:
        table.add_column(epsilons.head(accountant, summary.privacy.delta), justify="right")
    table.add_column("releases", justify="right")
    table.add_column("sent", justify="right")
    worst = text.worst_agent(summary.agents)
    agents: Sequence[AgentSummary] = summary.agents
    if len(agents) > 2 * ROWS_MAX:
        agents = text.worst_first(agents)[:ROWS_MAX]
        table.caption = f"the {ROWS_MAX} worst of {len(summary.agents)} agents; all of them are in summary.json"
    for agent in agents:
        table.add_row(
            Text(agent.name),
            text.accuracy(agent.accuracy_test),
            *([text.accuracy(alone.get(agent.name))] if alone else []),
            text.number(agent.loss_train, 4),
            *([] if accountant is None else [_judged(summary, accountant, agent.epsilon[accountant])]),
            "–" if agent.releases is None else str(agent.releases),
            text.size(agent.bytes_sent),
            style="bold yellow" if agent is worst and len(agents) > 1 else "",
        )
    return table


def _head(status: LiveStatus) -> RenderableType:
    if status.k < 0:
        return Text(f"{status.state}  {_connected(status)}")
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=status.K + 1, completed=status.k + 1, width=40)
    state = Text("" if status.state == "running" else status.state, style="yellow")
    grid.add_row(Text(f"k {status.k}/{status.K}", style="bold"), bar, state)
    return grid


def _foot(status: LiveStatus) -> Text:
    parts = [
        f"rounds/s {text.number(status.rounds_per_second)}",
        f"consensus error {text.number(status.consensus_error, 2)}",
        f"ETA {text.duration(eta_s(status))}",
    ]
    if len(status.agents) > ROWS_MAX:
        parts.append(f"{WORST_SHOWN + 2} of {len(status.agents)} agents shown")
    return Text("  ·  ".join(parts))


def _by_accuracy(agents: Sequence[LiveAgent]) -> list[LiveAgent]:
    """Worst first: lowest test accuracy, then the one furthest behind; without accuracies, as they come."""
    return sorted(agents, key=lambda a: (math.inf if a.accuracy_test is None else a.accuracy_test, a.k))


def _shown(agents: Sequence[LiveAgent]) -> list[tuple[str, LiveAgent]]:
    """All agents when they are few, else the worst five, the median and the best, each with its label."""
    if len(agents) <= ROWS_MAX:
        return [("", agent) for agent in agents]
    ordered = _by_accuracy(agents)
    labels = ("worst", "median", "best") if ordered[-1].accuracy_test is not None else ("", "", "")
    worst = [(labels[0] if i == 0 else "", agent) for i, agent in enumerate(ordered[:WORST_SHOWN])]
    return [*worst, (labels[1], ordered[(len(ordered) - 1) // 2]), (labels[2], ordered[-1])]


def _connected(status: LiveStatus) -> str:
    missing = [agent.name for agent in status.agents if not agent.connected]
    here = f"{len(status.agents) - len(missing)}/{len(status.agents)} agents connected"
    return f"{here}, waiting for {_some(missing)}" if missing else here


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _largest_epsilon(status: LiveStatus) -> LiveAgent | None:
    """The agent that has spent most."""
    if status.accountant is None:
        return None
    spent = [(agent.epsilon, agent) for agent in status.agents if agent.epsilon is not None]
    return max(spent, key=lambda pair: pair[0])[1] if spent else None


def _worth(agent: LiveAgent) -> Text:
    """An agent's epsilon and its word, in red where it protects nothing."""
    return _coloured(agent.epsilon, agent.strength)


def _epsilon(value: float | None) -> str:
    """As the brief line of a script likes it: no thousands separators (``48210.3``)."""
    if value is None:
        return "–"
    return f"{value:.1f}" if 10 <= value < 1e9 else text.epsilon(value)
