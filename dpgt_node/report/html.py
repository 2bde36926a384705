"""``report.html``: one file that opens offline, from run.toml, metrics.csv and summary.json of a folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from dpgt_node.algo.graph import Topology
from dpgt_node.config import load_run
from dpgt_node.config.model import RunConfig
from dpgt_node.durable import write_text
from dpgt_node.record import epsilons
from dpgt_node.record.metrics import ACCOUNTANTS, Accountant, MetricsRow, MetricsStore
from dpgt_node.record.summary import AgentSummary, Epsilon, PrivacySummary, Summary, load_summary
from dpgt_node.report import adversary_html, privacy_html, svg, text
from dpgt_node.report.plots import Curves, Points, Scale, draw_graph
from dpgt_node.report.style import CSS

REPORT_FILE = "report.html"
UNFINISHED = "unfinished"
OPEN_LINES_MAX = 90
LISTED_MAX = 12


def build_report(out_dir: Path) -> Path:
    """Write ``OUT/report.html`` from what ``OUT`` holds and return its path.

    Needs run.toml; metrics.csv may be missing or short, summary.json may be missing (an unfinished run).  What attacks
    found is shown where adversary/ has it.  Equal inputs give equal bytes.  Raises
    :class:`dpgt_node.errors.ConfigError` for files that cannot be read.
    """
    run_file = out_dir / "run.toml"
    run = load_run(run_file)
    rows = MetricsStore.read(out_dir)
    summary = load_summary(out_dir) or summary_so_far(run, rows)
    path = out_dir / REPORT_FILE
    found = adversary_html.load(out_dir)
    write_text(path, render(run, run_file.read_text(encoding="utf-8"), rows, summary, found))
    return path


def summary_so_far(run: RunConfig, rows: Sequence[MetricsRow]) -> Summary:
    """What the last row of each agent says, for a run that has no summary yet."""
    last = {row.agent: row for row in rows}
    agents = []
    for name in run.graph.agents:
        row = last.get(name, MetricsRow(name, 0))
        costs = Epsilon.of({a: getattr(row, f"epsilon_{a}") for a in ACCOUNTANTS})
        agents.append(AgentSummary(name, row.accuracy_test, row.loss_train, costs, None, None))
    rounds = min((row.k for row in last.values()), default=0)
    seconds = max((row.wall_seconds for row in last.values() if row.wall_seconds is not None), default=None)
    return Summary(
        name=run.name,
        run_id="",
        status=UNFINISHED,
        method=run.algorithm.method,
        mechanism=run.algorithm.mechanism,
        rounds=rounds,
        seconds=seconds,
        rounds_per_second=rounds / seconds if seconds else None,
        consensus_error=next((row.consensus_error for row in reversed(rows) if row.consensus_error is not None), None),
        privacy=PrivacySummary.of(run),
        agents=tuple(agents),
    )


def render(
    run: RunConfig,
    run_text: str,
    rows: Sequence[MetricsRow],
    summary: Summary,
    attacks: adversary_html.Found | None = None,
) -> str:
    """The whole page; everything that comes from files or names is escaped.  ``attacks``: what they found, if any."""
    worst = text.worst_agent(summary.agents)
    images = "" if attacks is None else "; img-src data:"  # pictures that lie in the page itself
    body = "\n".join(
        (
            _header(run, summary),
            _tiles(run, summary, worst),
            _curves(run, rows, summary, worst),
            _graphs(run),
            privacy_html.section(run, summary),
            *([] if attacks is None else [adversary_html.section(attacks)]),
            _agents(summary, worst),
            _run_file(run_text),
            _footer(summary),
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # A second lock behind the escaping: the page may load nothing and run nothing.
        '<meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; style-src 'unsafe-inline'{images}\">\n"
        f"<title>{escape(summary.name)} · {escape(summary.status)} · dpgt</title>\n<style>{CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _header(run: RunConfig, summary: Summary) -> str:
    state = "finished" if summary.status == "finished" else ""
    setting = f"{summary.method}, mechanism {summary.mechanism}, scheme {run.scheme.kind}"
    lead = f"{run.n} agents, {run.model.name} on {run.data.dataset} · {setting} · K = {run.K}"
    if run.data.dataset in ("quadratic", "zeros", "pl-sine", "pl-linear"):
        lead = f"{run.n} agents, {run.data.dataset} · {setting} · K = {run.K}"
    ident = f'<p class="lead">run <span class="id">{escape(summary.run_id)}</span></p>' if summary.run_id else ""
    warnings = "".join(f'<p class="warning">{escape(line)}</p>' for line in text.warnings_for(run, summary.keystream))
    return (
        f'<header><div class="over">Differentially private gradient tracking</div>\n'
        f'<h1>{escape(summary.name)} <span class="badge {state}">{escape(summary.status)}</span></h1>\n'
        f'<p class="lead">{escape(lead)}</p>{ident}</header>\n{warnings}'
    )


def _tile(title: str, value: str, sub: str, kind: str = "") -> str:
    return (
        f'<dl class="tile {kind}"><dt>{escape(title)}</dt><dd class="value">{escape(value)}</dd>'
        f'<dd class="sub">{sub}</dd></dl>'
    )


def _tiles(run: RunConfig, summary: Summary, worst: AgentSummary | None) -> str:
    tiles = []
    accuracies = [agent.accuracy_test for agent in summary.agents if agent.accuracy_test is not None]
    if worst is not None and worst.accuracy_test is not None:
        sub = f"<b>{escape(worst.name)}</b> · median {text.percent(text.middle(accuracies))}"
        tiles.append(_tile("Worst test accuracy", text.percent(worst.accuracy_test), sub, "worst"))
    elif worst is not None:
        middle = text.number(text.middle(agent.loss_train for agent in summary.agents), 4)
        sub = f"<b>{escape(worst.name)}</b> · median {middle}"
        tiles.append(_tile("Largest training loss", text.number(worst.loss_train, 4), sub, "worst"))
    if summary.consensus_error is not None:
        sub = "root mean square distance of an agent from the mean"
        tiles.append(_tile("Consensus error", text.number(summary.consensus_error), sub))
    accountant = epsilons.shown(summary)
    if accountant is not None:
        largest = text.epsilon(text.largest_epsilon(summary, accountant))
        sub = f"{epsilons.label(accountant, summary.privacy.delta)}; {summary.privacy.adjacency}"
        tiles.append(_tile("Largest epsilon", largest, escape(sub)))
    else:
        tiles.append(_tile("Epsilon", "none", escape(_why_no_epsilon(run, summary))))
    sub = f"{summary.rounds} rounds in {text.duration(summary.seconds)}"
    tiles.append(_tile("Rounds per second", text.number(summary.rounds_per_second), sub))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _curves(run: RunConfig, rows: Sequence[MetricsRow], summary: Summary, worst: AgentSummary | None) -> str:
    names = run.graph.agents
    highlighted = worst.name if worst is not None else None

    def agents(key: str, title: str, scale: Scale, column: str) -> Curves:
        return Curves(key, title, scale, _series(rows, names, column), highlighted)

    consensus: dict[str, Points] = {
        "consensus error": {row.k: row.consensus_error for row in rows if row.consensus_error is not None}
    }
    charts = [
        (agents("accuracy", "Test accuracy", "percent", "accuracy_test"), "", ""),
        (Curves("consensus", "Consensus error", "log", consensus), "all agents together", ""),
        *(
            (agents(f"eps{name}", "Epsilon so far", "linear", f"epsilon_{name}"),
             epsilons.label(name, summary.privacy.delta), _why_no_epsilon(run, summary))
            for name in _accountants(summary)
        ),
        (agents("loss", "Training loss", "linear", "loss_train"), "", ""),
        (agents("gradient", "Gradient norm", "log", "grad_norm"), "local gradient, L2", ""),
    ]  # fmt: skip
    figures = []
    for curves, note, otherwise in charts:
        if not curves.drawable() and not otherwise:
            continue
        drawing = curves.draw() if curves.drawable() else f'<p class="none">{escape(otherwise)}</p>'
        aside = ", ".join(part for part in (note, "log scale" if curves.logarithmic else "") if part)
        caption = f"<h3>{escape(curves.title)}</h3><span>{escape(aside)}</span>"
        figures.append(f"<figure><figcaption>{caption}</figcaption>{drawing}</figure>")
    return f'<h2>Curves</h2>\n{_legend(run, highlighted)}\n<div class="grid">{"".join(figures)}</div>'


def _accountants(summary: Summary) -> Sequence[Accountant]:
    """Those with a curve, the one that is shown first; Lemma 5 alone where none has, so that the absence shows."""
    first = epsilons.shown(summary)
    found = text.accountants_with_values(summary)
    return sorted(found, key=lambda name: name != first) or ("lemma5",)


def _why_no_epsilon(run: RunConfig, summary: Summary) -> str:
    if text.noise_off(run):
        return "The noise is off: epsilon is infinite."
    if summary.privacy.C is None and not summary.privacy.enforced:
        return "No bound on gradients is known: no epsilon."
    return "No accountant has a value." if summary.rounds > 0 else "No rounds yet."


def _legend(run: RunConfig, worst: str | None) -> str:
    if run.n > svg.SERIES_MAX:
        items = [("wash", "--accent", f"range of all {run.n} agents"), ("", "--accent", "median")]
        if worst is not None:
            items.append(("", "--worst", f"{worst} (worst at the end)"))
    else:
        items = [
            ("thick", "--worst", f"{name} (worst at the end)") if name == worst and run.n > 1 else ("", f"--s{i}", name)
            for i, name in enumerate(run.graph.agents, start=1)
        ]
    return (
        '<ul class="legend">'
        + "".join(f"<li>{_swatch(kind, colour)}{escape(label)}</li>" for kind, colour, label in items)
        + "</ul>"
    )


def _swatch(kind: str, colour: str) -> str:
    return f'<span class="swatch {kind}" style="background:var({colour})"></span>'


def _graphs(run: RunConfig) -> str:
    topology = Topology.from_config(run.graph)
    uniform = all(len({w for row in matrix for w in row if w > 0}) < 2 for matrix in (run.graph.R, run.graph.C))
    lines = "" if uniform else " Line width grows with the weight."
    legend = (
        f'<li><span class="swatch dot" style="background:var(--accent)"></span>root</li>'
        f'<li><span class="swatch dot open" style="background:var(--surface)"></span>not a root</li>'
        f'<li><span class="swatch dot ring"></span>root of both: {_some(topology, topology.common_roots)}</li>'
    )
    cards = []
    for which, vector, roots, meaning in (
        ("R", "x̆", topology.roots_R, "its x̆ reaches everybody"),
        ("C", "y̆", topology.roots_C, "everybody's y̆ reaches it"),
    ):
        matrix = topology.R if which == "R" else topology.C
        edges = int((matrix > 0).sum())
        caption = f"<h3>G<sub>{which}</sub>: who sends {vector} to whom</h3><span>{edges} edges</span>"
        drawing = draw_graph(topology, "R" if which == "R" else "C")
        who = f'<p class="note">Roots ({meaning}): {_some(topology, roots)}.</p>'
        cards.append(f"<figure><figcaption>{caption}</figcaption>{drawing}{who}</figure>")
    return (
        f'<h2>Graphs</h2>\n<p class="note">An arrow from j to i: agent i receives from agent j.{lines} The roots of '
        f"G<sub>C</sub> are those of the transposed graph, as in Assumption 1.</p>\n"
        f'<ul class="legend">{legend}</ul><div class="grid">{"".join(cards)}</div>'
    )


def _some(topology: Topology, agents: Sequence[int]) -> str:
    if len(agents) == topology.n > 1:
        return f"all {topology.n} agents"
    shown = ", ".join(topology.names[i] for i in agents[:LISTED_MAX]) or "none"
    return escape(shown + (f" and {len(agents) - LISTED_MAX} more" if len(agents) > LISTED_MAX else ""))


def _agents(summary: Summary, worst: AgentSummary | None) -> str:
    accountants = text.accountants_with_values(summary)
    heads = ["agent", "test accuracy", "training loss"]
    heads += [epsilons.head(name, summary.privacy.delta) for name in accountants]
    heads += ["releases", "sent"]
    many = len(summary.agents) > svg.SERIES_MAX
    order = text.worst_first(summary.agents) if many else summary.agents
    lines = []
    for i, agent in enumerate(order, start=1):
        tag = '<span class="tag">worst</span>' if agent is worst and len(order) > 1 else ""
        mark = "" if many else _swatch("thick" if tag else "", "--worst" if tag else f"--s{i}")
        cells = [text.percent(agent.accuracy_test), text.number(agent.loss_train, 4)]
        cells += [text.epsilon(getattr(agent.epsilon, name)) for name in accountants]
        cells += ["–" if agent.releases is None else f"{agent.releases:,}", text.size(agent.bytes_sent)]
        kind = ' class="worst"' if tag else ""
        lines.append(
            f"<tr{kind}><td>{mark}{escape(agent.name)}{tag}</td>"
            + "".join(f"<td>{escape(c)}</td>" for c in cells)
            + "</tr>"
        )
    head = "".join(f"<th>{escape(title)}</th>" for title in heads)
    note = "Worst first. " if many else ""
    return (
        f'<h2>Agents</h2>\n<p class="note">{note}Accuracy and loss are of each agent\'s final iterate; epsilon covers '
        f'all it released.</p>\n<div class="card scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _run_file(run_text: str) -> str:
    lines = escape(run_text.strip()).splitlines()
    for i, line in enumerate(lines):
        if line.startswith("["):
            lines[i] = f'<span class="sec">{line}</span>'
        else:
            lines[i] = re.sub(r"^([\w.-]+)( = )", r'<span class="key">\1</span>\2', line)
    opened = " open" if len(lines) <= OPEN_LINES_MAX else ""
    return (
        f'<h2>Run file</h2>\n<details class="card"{opened}><summary>run.toml, resolved: {len(lines)} lines</summary>'
        f"<pre>{chr(10).join(lines)}</pre></details>"
    )


def _footer(summary: Summary) -> str:
    versions = " · ".join(f"{escape(name)} {escape(version)}" for name, version in sorted(summary.versions.items()))
    return f"<footer>{versions or 'versions: not recorded yet'}</footer>"


def _series(rows: Sequence[MetricsRow], names: Sequence[str], column: str) -> dict[str, dict[int, float]]:
    """One series an agent, in the order of ``names``, by k; rows without a value are left out."""
    found: dict[str, dict[int, float]] = {name: {} for name in names}
    for row in sorted(rows, key=lambda row: row.k):
        value = getattr(row, column)
        if value is not None and row.agent in found:
            found[row.agent][row.k] = value
    return found
