"""``report.html``: one file that opens offline, from run.toml, metrics.csv and summary.json of a folder."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from dpgt_node import figures
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import METHODS
from dpgt_node.config import load_run
from dpgt_node.config.model import RunConfig
from dpgt_node.durable import write_text
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.registry import EPSILONS
from dpgt_node.protocol.pace import OWN, PHASES, slowest
from dpgt_node.record import epsilons, guessing
from dpgt_node.record.digests import as_json, read_digests
from dpgt_node.record.identity import another_run
from dpgt_node.record.metrics import EPSILON, MetricsRow, MetricsStore
from dpgt_node.record.phases import PHASES_FILE, PhaseRow, by_agent, read_phases
from dpgt_node.record.rivals import Rivals, load_rivals
from dpgt_node.record.summary import AgentSummary, PrivacySummary, Summary, load_summary
from dpgt_node.report import adversary_html, audit_html, disputes_html, headline, privacy_html, svg, text
from dpgt_node.report.plots import Curves, Points, Scale, draw_graph
from dpgt_node.report.rendering import Mark, rendered
from dpgt_node.values import dataclass

log = logging.getLogger(__name__)

REPORT_FILE = "report.html"
UNFINISHED = "unfinished"
OPEN_LINES_MAX = 90
LIST_LINES_MAX = 200
LISTED_MAX = 12


def build_report(out_dir: Path) -> Path:
    """Write ``OUT/report.html`` from what ``OUT`` holds and return its path.

    Needs run.toml; metrics.csv may be missing or short, summary.json may be missing (an unfinished run).  What attacks
    and audits found is shown where adversary/ has it, what agents reach alone where rivals.json does.  Equal inputs
    give equal bytes.  Raises :class:`dpgt_node.errors.ConfigError` for files that cannot be read.
    """
    run_file = out_dir / "run.toml"
    run = load_run(run_file)
    if (other := another_run(out_dir, run)) is not None:
        log.warning("%s %s: it was changed since, or another version wrote it", run_file, other)
    rows = MetricsStore.read(out_dir)
    summary = load_summary(out_dir) or replace(summary_so_far(run, rows), digests=_compared_so_far(out_dir))
    path = out_dir / REPORT_FILE
    found, audit, phases = adversary_html.load(out_dir), audit_html.load(out_dir), read_phases(out_dir)
    run_text = run_file.read_text(encoding="utf-8")
    write_text(path, render(run, run_text, rows, summary, found, load_rivals(out_dir), audit, phases))
    return path


def _compared_so_far(out_dir: Path) -> Mapping[str, Any] | None:
    """What digests.json holds."""
    compared = read_digests(out_dir)
    return None if compared is None else as_json(compared)


def summary_so_far(run: RunConfig, rows: Sequence[MetricsRow]) -> Summary:
    """What the last row of each agent says, for a run that has no summary yet."""
    last = {row.agent: row for row in rows}
    agents = []
    for name in run.graph.agents:
        row = last.get(name, MetricsRow(name, 0))
        costs = row.epsilon
        agents.append(AgentSummary(name, row.accuracy_test, row.loss_train, costs, None, None))
    rounds = min((row.k for row in last.values()), default=0)
    seconds, rate = _pace(rows, rounds)
    return Summary(
        name=run.name,
        run_id="",
        status=UNFINISHED,
        method=run.algorithm.method,
        mechanism=run.algorithm.mechanism,
        rounds=rounds,
        seconds=seconds,
        rounds_per_second=rate,
        consensus_error=next((row.consensus_error for row in reversed(rows) if row.consensus_error is not None), None),
        privacy=PrivacySummary.of(run),
        agents=tuple(agents),
    )


def _pace(rows: Sequence[MetricsRow], rounds: int) -> tuple[float | None, float | None]:
    """(seconds, rounds a second) up to round ``rounds``; of a run that was resumed, whose clock began again, of its
    last start, whose rows give the rate.
    """
    walls: dict[int, float] = {}
    for row in rows:
        if row.wall_seconds is not None:
            walls[row.k] = max(walls.get(row.k, 0.0), row.wall_seconds)
    ks = sorted(walls)
    began = max((at for at in range(1, len(ks)) if walls[ks[at]] < walls[ks[at - 1]]), default=0)
    if not ks or walls[ks[-1]] <= 0:
        return None, None
    first, last = ks[began], ks[-1]
    if began == 0:
        return walls[last], rounds / walls[last]
    spent = walls[last] - walls[first]
    return walls[last], (last - first) / spent if spent > 0 else None


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, or ``otherwise``: why there is none."""

    title: str
    aside: str
    drawing: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class GraphCard:
    which: Literal["R", "C"]
    vector: str
    edges: int
    drawing: str
    meaning: str
    roots: str


@dataclass(frozen=True, slots=True)
class Graphs:
    """``both``: who is a root of both graphs.  ``weighted``: the weights differ."""

    weighted: bool
    both: str
    graphs: Sequence[GraphCard]


@dataclass(frozen=True, slots=True)
class AgentRow:
    name: str
    worst: bool
    colour: Mark | None
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class AgentTable:
    worst_first: bool
    heads: Sequence[str]
    rows: Sequence[AgentRow]
    note: str


@dataclass(frozen=True, slots=True)
class PhasePart:
    """A phase: its time in a round, on average over agents, and the agent where it takes longest."""

    mark: Mark
    percent: str
    mean: str
    share: str
    agent: str
    longest: str


@dataclass(frozen=True, slots=True)
class Phases:
    lead: str
    spoken: str
    parts: Sequence[PhasePart]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of run.toml: the head of a section, or a key and the rest."""

    section: str = ""
    key: str = ""
    rest: str = ""


def render(
    run: RunConfig,
    run_text: str,
    rows: Sequence[MetricsRow],
    summary: Summary,
    attacks: adversary_html.Found | None = None,
    rivals: Rivals | None = None,
    audit: Mapping[str, Any] | None = None,
    phases: Sequence[PhaseRow] = (),
) -> str:
    """The whole page; everything that comes from files or names is escaped.

    ``attacks``: what they found, if any.  ``rivals``: what stands beside the run's accuracies, if anything.
    ``audit``: the document of one, if any.  ``phases``: of phases.csv; a simulation has none.
    """
    worst = text.worst_agent(summary.agents)
    highlighted = worst.name if worst is not None else None
    whole = run_text.strip().splitlines()
    found = None if attacks is None else adversary_html.section(attacks)
    disputes = disputes_html.section(summary)
    return rendered(
        "report.html",
        {
            "summary": summary,
            "lead": _lead(run, summary),
            "warnings": (
                *(disputes.warnings if disputes else ()),
                *text.outlying(summary),
                *text.warnings_for(run, summary.keystream),
            ),
            "outcome": guessing.outcome(run, summary, rivals),
            "answers": headline.answers(run, summary, None if found is None else found.table, rivals),
            "alone": text.alone_line(summary.agents, rivals),
            "legend": _legend(run, highlighted),
            "figures": _figures(run, rows, summary, highlighted),
            "graphs": _graphs(run),
            "privacy": privacy_html.section(run, summary),
            "disputes": disputes,
            "attacks": found,
            "audit": None if audit is None else audit_html.section(audit),
            "phases": _phases(run, phases, summary.rounds),
            "agents": _agents(run, summary, worst, rivals),
            "run_file": _shortened(whole),
            "run_file_lines": len(whole),
            "run_file_open": len(whole) <= OPEN_LINES_MAX,
        },
    )


def _lead(run: RunConfig, summary: Summary) -> str:
    toy = run.data.dataset in ("quadratic", "zeros", "pl-sine", "pl-linear")
    task = run.data.dataset if toy else f"{run.model.name} on {run.data.dataset}"
    method = METHODS.get(summary.method)
    mechanism = "" if method is not None and not method.noisy else f"mechanism {summary.mechanism}, "
    setting = f"{summary.method}, {mechanism}scheme {run.scheme.kind}"
    return f"{run.n} agent{'s' * (run.n != 1)}, {task} · {setting} · K = {run.K}"


def _figures(run: RunConfig, rows: Sequence[MetricsRow], summary: Summary, highlighted: str | None) -> list[Figure]:
    names = run.graph.agents

    def agents(key: str, title: str, scale: Scale, column: str) -> Curves:
        return Curves(key, title, scale, _series(rows, names, column), highlighted)

    consensus: dict[str, Points] = {
        "consensus error": {row.k: row.consensus_error for row in rows if row.consensus_error is not None}
    }
    charts = [
        (agents("accuracy", "Test accuracy", "percent", "accuracy_test"), "", ""),
        (Curves("consensus", "Consensus error", "log", consensus), "all agents together", ""),
        *(
            (agents(f"eps{name}", f"{'Epsilon' if name in EPSILONS else 'Delta'} so far", "linear", f"{EPSILON}{name}"),
             epsilons.label(name, summary.privacy.delta), headline.why_no_epsilon(run, summary))
            for name in _accountants(run, summary)
        ),
        (agents("loss", "Training loss", "linear", "loss_train"), "", ""),
        (agents("gradient", "Gradient norm", "log", "grad_norm"), "local gradient, L2", ""),
    ]  # fmt: skip
    return [
        Figure(
            curves.title,
            ", ".join(part for part in (note, "log scale" if curves.logarithmic else "") if part),
            curves.draw() if curves.drawable() else "",
            otherwise,
        )
        for curves, note, otherwise in charts
        if curves.drawable() or otherwise
    ]


def _accountants(run: RunConfig, summary: Summary) -> Sequence[str]:
    """Those with a curve, the one that is shown first; Lemma 5 alone where none has, so that the absence shows.  None
    without noise.
    """
    if text.noise_off(run):
        return ()
    first = epsilons.shown(summary)
    found = text.accountants_with_values(summary)
    return sorted(found, key=lambda name: name != first) or (LEMMA5.name,)


def _phases(run: RunConfig, rows: Sequence[PhaseRow], made: int) -> Phases | None:
    """Where the time of the ``made`` rounds went; None where nobody said."""
    spent = by_agent(rows, run.graph.agents)
    slow = slowest(spent)
    if slow is None:
        return None
    a_round = {name: [us / rounds / 1e6 for us in total] for name, (rounds, total) in spent.items()}
    means = [sum(column) / len(a_round) for column in zip(*a_round.values(), strict=True)]
    parts = []
    for i, phase in enumerate(PHASES):
        agent = max(a_round, key=lambda name: a_round[name][i])
        share = means[i] / sum(means)
        mark = Mark("wash" if i not in OWN else "dot", f"--s{i + 1}", phase)
        longest = text.span(a_round[agent][i])
        parts.append(PhasePart(mark, f"{100 * share:.2f}", text.span(means[i]), f"{share:.0%}", agent, longest))
    told = sorted({rounds for rounds, _ in spent.values()})
    known = " to ".join(f"{n:,}" for n in dict.fromkeys((told[0], told[-1])))
    part = "" if told == [made] else f", over the {known} of {made:,} rounds that {PHASES_FILE} tells of"
    lead = (
        f"A round took {text.span(sum(means))} on average{part}. {slow.agent} works longest, mostly at {slow.phase}: "
        f"{text.span(slow.seconds)} or {slow.share:.0%} of its round."
    )
    return Phases(lead, ", ".join(f"{part.mark.label} {part.share}" for part in parts), parts)


def _legend(run: RunConfig, worst: str | None) -> list[Mark]:
    if run.n > svg.SERIES_MAX:
        items = [Mark("wash", "--accent", f"range of all {run.n} agents"), Mark("", "--accent", "median")]
        return items if worst is None else [*items, Mark("", "--worst", f"{worst} (worst at the end)")]
    marks = [Mark("", f"--s{i}", name) for i, name in enumerate(run.graph.agents, start=1)]
    if worst is not None and run.n > 1:
        marks[run.graph.agents.index(worst)] = Mark("thick", "--worst", f"{worst} (worst at the end)")
    return marks


def _graphs(run: RunConfig) -> Graphs:
    topology = Topology.from_config(run.graph)
    uniform = all(len(set(edges.weights.tolist())) < 2 for edges in (topology.in_R, topology.in_C))

    def card(which: Literal["R", "C"], vector: str, roots: Sequence[int], meaning: str) -> GraphCard:
        edges = len((topology.in_R if which == "R" else topology.in_C).weights)
        return GraphCard(which, vector, edges, draw_graph(topology, which), meaning, _some(topology, roots))

    cards = (
        card("R", "x̆", topology.roots_R, "its x̆ reaches everybody"),
        card("C", "y̆", topology.roots_C, "everybody's y̆ reaches it"),
    )
    return Graphs(not uniform, _some(topology, topology.common_roots), cards)


def _some(topology: Topology, agents: Sequence[int]) -> str:
    if len(agents) == topology.n > 1:
        return f"all {topology.n} agents"
    return figures.some([topology.names[i] for i in agents], LISTED_MAX) or "none"


def _agents(run: RunConfig, summary: Summary, worst: AgentSummary | None, rivals: Rivals | None) -> AgentTable:
    accountants = () if text.noise_off(run) else text.accountants_with_values(summary)
    alone = {} if rivals is None else rivals.alone
    heads = ["agent", "test accuracy", *(["alone"] if alone else []), "training loss"]
    heads += [epsilons.head(name, summary.privacy.delta) for name in accountants]
    heads += ["payloads stored", "sent"]
    many = len(summary.agents) > svg.SERIES_MAX
    rows = []
    for i, agent in enumerate(text.worst_first(summary.agents) if many else summary.agents, start=1):
        last = agent is worst and len(summary.agents) > 1
        colour = Mark("thick", "--worst") if last else Mark("", f"--s{i}")
        cells = [text.percent(agent.accuracy_test)]
        cells += [text.percent(alone.get(agent.name))] if alone else []
        cells += [figures.number(agent.loss_train, 4)]
        for name in accountants:
            value = agent.epsilon[name]
            cells.append(text.judged(value, epsilons.word(summary, name, value)))
        cells += ["–" if agent.releases is None else f"{agent.releases:,}", text.sent(summary, agent)]
        rows.append(AgentRow(agent.name, last, None if many else colour, cells))
    covers = {name in EPSILONS for name in accountants}
    cost = "; epsilon covers all it released" if True in covers else "; delta covers all it released" if covers else ""
    note = f"Accuracy and loss are of each agent's final iterate{cost}."
    note += " Payloads stored count whether or not anybody receives them."
    note += f" {text.SENT_IN_PART}" if text.sent_in_part(summary, *summary.agents) else ""
    return AgentTable(many, heads, rows, note)


def _shortened(lines: Sequence[str]) -> list[Line]:
    """Lines of run.toml; of the items of a long list the first few, and how many more there are."""
    shown = list[Line]()
    for items, group in groupby(lines, lambda line: line[:1].isspace()):
        run = list(group)
        few = run[:LISTED_MAX] if items and len(run) > LIST_LINES_MAX else run
        shown += map(_line, few)
        if len(few) < len(run):
            shown.append(Line(rest=f"    … and {len(run) - len(few):,} more"))
    return shown


def _line(line: str) -> Line:
    if line.startswith("["):
        return Line(section=line)
    key = re.match(r"[\w.-]+(?= = )", line)
    return Line(rest=line) if key is None else Line(key=key.group(), rest=line[key.end() :])


def _series(rows: Sequence[MetricsRow], names: Sequence[str], column: str) -> dict[str, dict[float, float]]:
    """One series an agent, in the order of ``names``, by k; rows without a value are left out."""
    found: dict[str, dict[float, float]] = {name: {} for name in names}
    for row in sorted(rows, key=lambda row: row.k):
        value = row.value(column)
        if value is not None and row.agent in found:
            found[row.agent][row.k] = value
    return found
