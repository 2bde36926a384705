"""The result of a run on a terminal: the agents, the worst one, what every accountant says, where the report is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpgt_node import figures
from dpgt_node.accounts.towards import ASSUMPTIONS
from dpgt_node.cli import wrapping
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.strength import delta_warning
from dpgt_node.record import epsilons, guessing
from dpgt_node.record.rivals import Rivals, load_rivals
from dpgt_node.record.summary import SUMMARY_FILE, Summary
from dpgt_node.report import text

_NOTHING = "–"
ROWS_MAX = 12
"""Above this many agents a table shows the worst, the middle and the best only."""
COLUMNS_MAX = 6


def print_result(run: RunConfig, summary: Summary, out_dir: Path, console: Console, format_: str) -> None:
    """The result: for people, or as one JSON document on standard output."""
    if format_ == "text":
        print_summary(run, summary, out_dir, console)
        return
    report = out_dir / "report.html"
    document = {
        "out": str(out_dir),
        "report": str(report) if report.exists() else None,
        "run": {"name": run.name, "K": run.K, "agents": list(run.graph.agents)},
        "summary": json.loads((out_dir / SUMMARY_FILE).read_text(encoding="utf-8")),
    }
    click.echo(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def say(console: Console, said: str, style: str = "") -> None:
    """Print a sentence, which a terminal shows in lines that fit it: words, and so paths, stay whole."""
    shown = wrapping.fitted(said, console.is_terminal, console.width)
    console.print(Text(shown, style=style), soft_wrap=True)


def print_warnings(run: RunConfig, console: Console, keystream: str | None = None) -> None:
    """What must be said in red before and after a run: test keystream, noise off, study metrics."""
    for warning in text.warnings_for(run, keystream):
        say(console, warning, "bold red")


def _print_delta(summary: Summary, console: Console) -> None:
    """A delta of 1/D or more, in red."""
    warning = delta_warning(summary.privacy.delta, summary.privacy.samples)
    if warning is not None:
        say(console, f"WARNING: {warning}", "bold red")


def print_summary(run: RunConfig, summary: Summary, out_dir: Path, console: Console | None = None) -> None:
    """The result of a run: the agents, the worst one, what every accountant says, where the report is."""
    console = console or Console()
    rivals = load_rivals(out_dir)
    head = [
        f"{summary.name}: {guessing.outcome(run, summary, rivals)}",
        f"{summary.rounds:,} rounds {text.pace(summary)}".strip(),
    ]
    if summary.consensus_error is not None:
        head.append(f"consensus error {figures.number(summary.consensus_error)}")
    head.append(f"{epsilons.releases(run, summary.rounds - 1):,} releases an agent")
    style = "bold red" if guessing.learnt_nothing(run, summary, rivals) else "bold"
    say(console, "  ".join(head), style)
    console.print(_summary_table(run, summary, rivals, console.width))
    worst = text.worst_agent(summary.agents)
    if worst is not None and worst.accuracy_test is not None:
        console.print(Text(f"Worst agent: {worst.name}, test accuracy {text.accuracy(worst.accuracy_test)}"))
    elif worst is not None:
        console.print(Text(f"Worst agent: {worst.name}, training loss {figures.number(worst.loss_train, 4)}"))
    if said := text.alone_line(summary.agents, rivals) or text.no_accuracy_line(summary):
        say(console, said)
    if said := text.restarts(summary):
        say(console, f"Processes {said}")
    if text.noise_off(run):
        say(console, text.privacy_line(run, summary.privacy))
    else:
        _print_privacy(run, summary, console)
    for line in text.outlying(summary):
        say(console, line, "bold red")
    print_warnings(run, console, summary.keystream)
    report = out_dir / "report.html"
    say(console, f"Report: {report if report.exists() else out_dir}")


def _print_privacy(run: RunConfig, summary: Summary, console: Console) -> None:
    """What the noise gives, and what it does not."""
    _print_epsilons(summary, console)
    _print_towards(run, summary, console)
    say(console, text.privacy_line(run, summary.privacy))
    for why in text.why_conditional(summary):
        say(console, why, "dim")
    _print_delta(summary, console)


def _print_epsilons(summary: Summary, console: Console) -> None:
    """One table of what every accountant says, the paper's for comparison; why none has a proof, where none has."""
    lines = epsilons.lines(summary)
    speaking = [line for line in lines if line.speaks]
    names = [agent.name for agent in summary.agents]
    few = len(names) <= COLUMNS_MAX
    rows = [[_judged(summary, line.accountant, value) for value in line.values] for line in speaking] if few else []
    if few and rows:
        # Beside the accountants, a cell takes three columns more than its longest value.
        widths = [max(len(name), *(len(row[i].plain) for row in rows)) + 3 for i, name in enumerate(names)]
        few = sum(widths) + max(len(line.label) for line in speaking) + 4 <= console.width
    if not few:
        names = ["largest", "median"]
        both = [(_largest(line.values), text.middle(line.values)) for line in speaking]
        rows = [
            [_judged(summary, line.accountant, value) for value in pair]
            for line, pair in zip(speaking, both, strict=True)
        ]
    table = Table()
    table.add_column("accountant")
    for name in names:
        table.add_column(Text(name), justify="right")
    for line, cells in zip(speaking, rows, strict=True):
        table.add_row(line.label, *cells, style="bold" if line.accountant == summary.headline else "")
    if speaking:
        console.print(Text("Epsilon of each agent's whole transcript", style="bold"))
        console.print(table)
    for said in _why_silent(lines):
        say(console, said, "dim")
    paper = epsilons.comparison(summary)
    if paper is not None:
        label, largest = epsilons.comparison_label(summary), _largest(paper)
        say(console, f"{label}: {LEMMA5.label} = {text.judged(largest, 'none')} at most")


def _why_silent(lines: Sequence[epsilons.Line]) -> list[str]:
    """Why no accountant that has a proof has a value, those of one reason together; nothing where one has."""
    if any(line.speaks and ACCOUNTANTS[line.accountant].sound for line in lines):
        return []
    why: dict[str, list[str]] = {}
    for line in lines:
        if line.reason is not None:
            why.setdefault(line.reason, []).append(line.label)
    some = "No accountant has" if not any(line.speaks for line in lines) else "No accountant with a proof has"
    return [f"{some} an epsilon for this run:", *(f"  {', '.join(labels)}: {reason}" for reason, labels in why.items())]


def _print_towards(run: RunConfig, summary: Summary, console: Console) -> None:
    """Epsilon towards any t of the others, with what it rests on; nothing where no noise is shared."""
    whom = text.towards_whom(run, summary)
    if whom is None:
        return
    table = Table("agent")
    for head in whom.heads:
        table.add_column(Text(head), justify="right")
    for who, row in text.alike([agent.name for agent in summary.agents], whom.rows):
        table.add_row(Text(who), *(coloured(value, word) for value, word in row))
    say(console, whom.title, "bold")
    console.print(table)
    say(console, "\n".join((whom.rests_on, *(f"- {one}" for one in ASSUMPTIONS))))


def _judged(summary: Summary, accountant: str, value: float | None) -> Text:
    """An epsilon and its word."""
    return coloured(value, epsilons.word(summary, accountant, value))


def coloured(value: float | None, word: str) -> Text:
    """In red where it protects nothing."""
    void = value is not None and word == "none"
    return Text(text.judged(value, word), style="red" if void else "")


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _summary_table(run: RunConfig, summary: Summary, rivals: Rivals | None, width: int) -> Table:
    alone = {} if rivals is None else rivals.alone
    accountant = None if text.noise_off(run) else epsilons.shown(summary)
    agents, everybody = summary.agents, len(summary.agents)
    if everybody > 2 * ROWS_MAX:
        agents = tuple(text.worst_first(agents)[:ROWS_MAX])
    columns: dict[str, Sequence[str | Text]] = {
        "test accuracy": [text.accuracy(agent.accuracy_test) for agent in agents],
        "alone": [text.accuracy(alone.get(agent.name)) for agent in agents],
        "training loss": [figures.number(agent.loss_train, 4) for agent in agents],
    }
    if accountant is not None:
        head = epsilons.head(accountant, summary.privacy.delta)
        columns[head] = [_judged(summary, accountant, agent.epsilon[accountant]) for agent in agents]
    columns["payloads stored"] = [_NOTHING if agent.releases is None else str(agent.releases) for agent in agents]
    columns["sent"] = [text.sent(summary, agent) for agent in agents]
    # A column that has nothing to say of anybody, as accuracies of a local run, is left out.
    columns = {name: cells for name, cells in columns.items() if any(str(cell) != _NOTHING for cell in cells)}
    table, worst = Table("agent", caption_justify="left"), text.worst_agent(summary.agents)
    values = {name: max(len(str(cell)) for cell in cells) for name, cells in columns.items()}
    least = {name: max(values[name], *map(len, name.split())) for name in columns}
    widths = {name: max(values[name], len(name)) for name in columns}
    taken = max(len("agent"), *(len(agent.name) for agent in agents)) + 4
    spare = width - taken - sum(length + 3 for length in widths.values())
    for name in sorted(columns, key=lambda name: least[name] - widths[name]):
        if spare < 0:  # its head takes more lines, so that a value keeps one
            spare, widths[name] = spare + widths[name] - least[name], least[name]
    for name in columns:
        table.add_column(name, justify="right", max_width=widths[name])
    notes = [text.SENT_IN_PART] if text.sent_in_part(summary, *agents) else []
    if len(agents) < everybody:
        notes.append(f"the {ROWS_MAX} worst of {everybody} agents; all of them are in summary.json")
    table.caption = "\n".join(notes) or None
    for agent, cells in zip(agents, zip(*columns.values(), strict=True), strict=True):
        marked = agent is worst and everybody > 1
        table.add_row(Text(agent.name), *cells, style="bold yellow" if marked else "")
    return table
