"""The privacy part of ``report.html``: facts, what every accountant says, the words around the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from dpgt_node.accounts.towards import ASSUMPTIONS
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.record import epsilons
from dpgt_node.record.summary import PrivacySummary, Summary
from dpgt_node.report import headline, svg, text
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """What one accountant says: ``cells``, or ``why`` it has none.  ``kind``: a class of the style sheet."""

    label: str
    cells: Sequence[str]
    why: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """``facts``: name and value.  ``heads``: of the table of accountants, whose ``note`` stands above it; without
    noise there is none.  ``guaranteed``: whether a sound accountant has a value.
    """

    facts: Sequence[tuple[str, str]]
    paragraphs: Sequence[str]
    note: str = ""
    heads: Sequence[str] = ()
    rows: Sequence[Row] = ()
    towards: Coalitions | None = None
    guaranteed: bool = False


@dataclass(frozen=True, slots=True)
class Coalitions:
    """Epsilon towards any t of the others: the table's ``title``, ``heads`` and ``rows``, and what it rests on."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Row]
    rests_on: str
    assumptions: Sequence[str]


def section(run: RunConfig, summary: Summary) -> Section:
    """What privacy.html shows; every accountant has a row.

    A row has every agent's epsilon (of many agents: the largest, whose it is, the median), or why there is none.
    Without noise there are no rows.
    """
    if text.noise_off(run):
        return Section([("Noise", headline.why_no_epsilon(run, summary))], text.privacy_statement(run, summary))
    few = len(summary.agents) <= svg.SERIES_MAX
    names = [agent.name for agent in summary.agents]
    which = (
        "No sound accountant has a value."
        if summary.headline is None
        else "The row in bold is the tightest sound accountant."
        if summary.privacy.enforced
        else "The row in bold is the tightest accountant; it rests on a declared C, which nothing enforces."
    )
    return Section(
        _facts(run, summary),
        text.privacy_statement(run, summary),
        f"Epsilon of all that an agent released. {which} {epsilons.adjacency_line(summary.privacy)}",
        ["accountant", *(names if few else ("largest", "of", "median"))],
        _rows(summary, names, few),
        _coalitions(run, summary, names),
        summary.keystream is None and any(summary.headline == one.name for one in ACCOUNTANTS.values() if one.sound),
    )


def _coalitions(run: RunConfig, summary: Summary, names: Sequence[str]) -> Coalitions | None:
    whom = text.towards_whom(run, summary)
    if whom is None:
        return None
    rows = [
        Row(who, [text.judged(*pair) for pair in row], kind="void" if any(word == "none" for _, word in row) else "")
        for who, row in text.alike(names, whom.rows)
    ]
    return Coalitions(whom.title, ["agent", *whom.heads], rows, whom.rests_on, ASSUMPTIONS)


def _facts(run: RunConfig, summary: Summary) -> list[tuple[str, str]]:
    privacy, mechanism = summary.privacy, MECHANISMS[run.algorithm.mechanism]
    law, scales = epsilons.noise_words(privacy.law, mechanism.name), []
    if mechanism.noises:
        law = privacy.law if run.noise.multiplier == 1 else f"{privacy.law}, scales times {run.noise.multiplier:g}"
        zeta = "none: x is sent as it is" if mechanism.x_public else text.noise_scale(run.noise.zeta)
        scales = [("Scale on x (zeta)", zeta), ("Scale on y (eta)", text.noise_scale(run.noise.eta))]
    asked = any(line.speaks and line.accountant in APPROXIMATE for line in epsilons.lines(summary))
    return [
        ("Adjacency", privacy.adjacency),
        ("C", _bound(privacy)),
        ("How C is known", epsilons.enforcement(privacy)),
        ("Noise law", law),
        *scales,
        ("Mechanism", summary.mechanism),
        *([("delta", f"{privacy.delta:g}, for (epsilon, delta) accountants")] if asked else []),
    ]


def _bound(privacy: PrivacySummary) -> str:
    clips = [f"{name} = {value:g}" for name, value in (("clip_l1", privacy.clip_l1), ("clip_l2", privacy.clip_l2))
             if value is not None]  # fmt: skip
    bound = "none in L1" if privacy.C is None else f"{privacy.C:g}"
    return f"{bound} ({', '.join(clips)})" if clips else bound


def _rows(summary: Summary, names: Sequence[str], few: bool) -> list[Row]:
    rows = []
    for line in epsilons.lines(summary):
        if line.speaks:
            kind = "shown" if line.accountant == summary.headline else ""
            word = partial(epsilons.word, summary, line.accountant)
            kind += " void" if any(word(value) == "none" for value in line.values) else ""
            rows.append(Row(line.label, _cells(names, line.values, few, word), kind=kind.strip()))
        else:
            rows.append(Row(line.label, (), line.reason or ""))
    paper = epsilons.comparison(summary)
    if paper is not None:
        title = f"{epsilons.comparison_label(summary)}: {LEMMA5.label}"
        rows.append(Row(title, _cells(names, paper, few, lambda _: "none"), kind="other"))
    return rows


def _cells(
    names: Sequence[str], values: Sequence[float | None], few: bool, word: Callable[[float | None], str]
) -> list[str]:
    if few:
        return [text.judged(value, word(value)) for value in values]
    known = [(value, name) for value, name in zip(values, names, strict=True) if value is not None]
    largest, whose = max(known, key=lambda item: item[0])
    median = text.middle(values)
    return [text.judged(largest, word(largest)), whose, text.judged(median, word(median))]
