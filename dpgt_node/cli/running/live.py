"""Progress of a run and its final summary on a terminal: one live table, or plain lines when piped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dpgt_node import figures
from dpgt_node.cli.running.ended import ROWS_MAX, coloured, print_warnings, say
from dpgt_node.config.model import RunConfig
from dpgt_node.record import epsilons
from dpgt_node.record.summary import PrivacySummary
from dpgt_node.report import text
from dpgt_node.values import dataclass

# Above this many agents a table shows the worst, the middle and the best only.
WORST_SHOWN = 5
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
    ``trouble``: who is missing, cut off or slow, and since when; empty when all is well.  ``over``: ``state`` is an
    end.
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
    over: bool = False

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
        self._in_vain = run is not None and text.noise_off(run)  # then no accountant has anything to say
        self._printed: tuple[str, int] | None = None
        self._printed_at = -math.inf
        if run is not None:
            print_warnings(run, self._console, keystream)
            line = text.privacy_line(run, PrivacySummary.of(run))
            say(self._console, line, "dim")
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=False)

    def update(self, status: LiveStatus) -> None:
        """Show ``status``; cheap enough for every round (a terminal is redrawn at most 8 times a second)."""
        if self._in_vain:
            status = replace(status, accountant=None)
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
        say(self._console, plain_line(status))


def plain_line(status: LiveStatus) -> str:
    """``k 120/200  rounds/s 85.3  worst test accuracy 0.861 (agent-3)  ...``; before round 0, who is here."""
    if status.k < 0:
        # Who is waited for is named once, with since when where that is known.
        said = [_connected(status, named=False), status.trouble] if status.trouble else [_connected(status)]
        return "  ".join([status.state, *said])
    parts = [] if status.state == "running" else [status.state]
    parts.append(f"k {status.k}/{status.K}")
    if status.rounds_per_second is not None:
        parts.append(f"rounds/s {figures.number(status.rounds_per_second)}")
    worst = _by_accuracy(status.agents)[:1]
    if worst and worst[0].accuracy_test is not None:
        parts.append(f"worst test accuracy {text.accuracy(worst[0].accuracy_test)} ({worst[0].name})")
    if status.consensus_error is not None:
        parts.append(f"consensus error {figures.number(status.consensus_error, 2)}")
    largest = _largest_epsilon(status)
    if largest is not None:
        parts.append(f"{status.epsilon_head} {_worth(largest).plain}")
    missing = [agent.name for agent in status.agents if not agent.connected]
    if status.trouble:
        parts.append(status.trouble)
    elif missing and not status.over:
        parts.append(f"not connected: {figures.some(missing)}")
    left = eta_s(status)
    if left is not None and left > 0:
        parts.append(f"ETA {text.duration(left)}")
    return "  ".join(parts)


def eta_s(status: LiveStatus) -> float | None:
    """Seconds until round K is finished at the present speed; None while it is not known."""
    if not status.rounds_per_second or status.k < 0 or status.over:
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
        if status.over:
            name.append(f"  {status.state}", style="dim")
        elif not agent.connected:
            name.append("  not connected", style="red")
        k = str(agent.k) if agent.k >= 0 else "–"
        style = "bold yellow" if agent is worst and len(status.agents) > 1 else ""
        cells: list[Text | str] = [name, k, text.accuracy(agent.accuracy_test)]
        cells += [_worth(agent)] if status.accountant is not None else []
        table.add_row(*cells, style=style)
    lines = [Text(status.trouble, style="red")] if status.trouble else []
    return Group(_head(status), table, *lines, _foot(status))


class _View:
    """Renders when the screen is redrawn, not at every update: a fast run makes thousands of updates a second."""

    def __init__(self, status: LiveStatus) -> None:
        self._status = status

    def __rich__(self) -> Group:
        return live_table(self._status)


def _head(status: LiveStatus) -> RenderableType:
    if status.k < 0:
        return Text(f"{status.state}  {_connected(status, named=not status.trouble)}")
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=status.K + 1, completed=status.k + 1, width=40)
    state = Text("" if status.state == "running" else status.state, style="yellow")
    grid.add_row(Text(f"k {status.k}/{status.K}", style="bold"), bar, state)
    return grid


def _foot(status: LiveStatus) -> Text:
    parts = [
        f"rounds/s {figures.number(status.rounds_per_second)}",
        f"consensus error {figures.number(status.consensus_error, 2)}",
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


def _connected(status: LiveStatus, *, named: bool = True) -> str:
    if status.over:
        return "before round 0"
    missing = [agent.name for agent in status.agents if not agent.connected]
    here = f"{len(status.agents) - len(missing)}/{len(status.agents)} agents connected"
    return f"{here}, waiting for {figures.some(missing)}" if missing and named else here


def _largest_epsilon(status: LiveStatus) -> LiveAgent | None:
    """The agent that has spent most."""
    if status.accountant is None:
        return None
    spent = [(agent.epsilon, agent) for agent in status.agents if agent.epsilon is not None]
    return max(spent, key=lambda pair: pair[0])[1] if spent else None


def _worth(agent: LiveAgent) -> Text:
    """An agent's epsilon and its word, in red where it protects nothing."""
    return coloured(agent.epsilon, agent.strength)
