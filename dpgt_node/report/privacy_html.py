"""The privacy part of ``report.html``: facts, what every accountant says, the words around the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.record import epsilons
from dpgt_node.record.summary import PrivacySummary, Summary
from dpgt_node.report import svg, text


def section(run: RunConfig, summary: Summary) -> str:
    """The section as HTML; everything that comes from files or names is escaped."""
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in _facts(run, summary)
    )
    prose = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in text.privacy_statement(run, summary))
    return (
        f'<h2>Privacy</h2>\n<div class="card privacy"><dl class="facts">{listed}</dl><div>{prose}</div></div>\n'
        f"{_accountants(summary)}"
    )


def _facts(run: RunConfig, summary: Summary) -> list[tuple[str, str]]:
    privacy, noisy_x = summary.privacy, not MECHANISMS[run.algorithm.mechanism].x_public
    law = privacy.law if run.noise.multiplier == 1 else f"{privacy.law}, scales times {run.noise.multiplier:g}"
    return [
        ("Adjacency", privacy.adjacency),
        ("C", _bound(privacy)),
        ("How C is known", epsilons.enforcement(privacy)),
        ("Noise law", law),
        ("Scale on x (zeta)", text.noise_scale(run.noise.zeta) if noisy_x else "none: x is sent as it is"),
        ("Scale on y (eta)", text.noise_scale(run.noise.eta)),
        ("Mechanism", summary.mechanism),
        ("delta", f"{privacy.delta:g}, for (epsilon, delta) accountants"),
    ]


def _bound(privacy: PrivacySummary) -> str:
    clips = [f"{name} = {value:g}" for name, value in (("clip_l1", privacy.clip_l1), ("clip_l2", privacy.clip_l2))
             if value is not None]  # fmt: skip
    bound = "none in L1" if privacy.C is None else f"{privacy.C:g}"
    return f"{bound} ({', '.join(clips)})" if clips else bound


def _accountants(summary: Summary) -> str:
    """All six accountants, a row each: every agent's epsilon (of many: the largest, whose, the median), or why none."""
    few = len(summary.agents) <= svg.SERIES_MAX
    names = [agent.name for agent in summary.agents]
    heads = ["accountant", *(names if few else ("largest", "of", "median"))]
    rows = []
    for line in epsilons.lines(summary):
        kind = ' class="shown"' if line.accountant == summary.headline else ""
        if line.speaks:
            rows.append(f"<tr{kind}><td>{escape(line.label)}</td>{_cells(names, line.values, few)}</tr>")
            continue
        why = f'<td class="why" colspan="{len(heads) - 1}">null: {escape(line.reason or "")}</td>'
        rows.append(f"<tr><td>{escape(line.label)}</td>{why}</tr>")
    paper = epsilons.comparison(summary)
    if paper is not None:
        title = f"{epsilons.comparison_label(summary)}: {epsilons.LEMMA5}"
        rows.append(f'<tr class="other"><td>{escape(title)}</td>{_cells(names, paper, few)}</tr>')
    head = "".join(f"<th>{escape(title)}</th>" for title in heads)
    which = (
        "No sound accountant has a value."
        if summary.headline is None
        else "The row in bold is the tightest sound accountant."
    )
    note = f"Epsilon of all that an agent released. {which} {epsilons.adjacency_line(summary.privacy)}"
    return (
        f'<h3 class="gap">What every accountant says</h3>\n<p class="note">{escape(note)}</p>\n'
        f'<div class="card scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _cells(names: Sequence[str], values: Sequence[float | None], few: bool) -> str:
    shown = [text.epsilon(value) for value in values]
    if not few:
        known = [(value, name) for value, name in zip(values, names, strict=True) if value is not None]
        largest, whose = max(known, key=lambda item: item[0])
        shown = [text.epsilon(largest), whose, text.epsilon(text.middle(values))]
    return "".join(f"<td>{escape(value)}</td>" for value in shown)
