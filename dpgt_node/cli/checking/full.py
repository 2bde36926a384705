"""All that ``dpgt check`` knows, in tables: ``--all``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpgt_node import figures
from dpgt_node.cli.checking.facts import looked_at, number, towards, verdict, warned_delta, words
from dpgt_node.cli.wrapping import WIDTH, wrapped

if TYPE_CHECKING:
    from dpgt_node.accounts.towards import Towards
    from dpgt_node.algo.checks import Check
    from dpgt_node.algo.spectrum import Spectrum
    from dpgt_node.algo.theory import CheckReport
    from dpgt_node.cli.checking.facts import Tables
    from dpgt_node.runtime.disk import DiskNeed

_MARK = {True: "ok", False: "FAILS", None: "?"}
_NOT_APPLYING = "n/a"


def disk_lines(needs: Sequence[DiskNeed], unknown: str | None = None, memory: Tables | None = None) -> list[str]:
    """A table of the needs, in text; ``unknown``: why there are none."""
    more = [] if memory is None else [f"Memory: {memory.words}", ""]
    if not needs:
        return [f"Disk: not known here, {'where the data are not' if unknown is None else unknown}", *more]
    from dpgt_node.runtime.disk import readable

    head = ["process", "disk needed", "rows", "payloads", "states", "log", "results"]
    parts = [[n.total, n.rounds, n.payloads, n.checkpoints, n.log, n.results] for n in needs]
    if any(need.recorded for need in needs):
        head.append("recorded")
        parts = [[*numbers, need.recorded] for need, numbers in zip(needs, parts, strict=True)]
    rows = [(need.name, *map(readable, numbers)) for need, numbers in zip(needs, parts, strict=True)]
    return ["Disk, at the worst moment of the run", *_table(head, rows), *more]


def render(report: CheckReport, disk: Sequence[str] = (), odd: Sequence[str] = ()) -> str:
    """The report as text: graph, steps, one line a condition, rates, epsilon per agent, what goes before the end."""
    from dpgt_node.algo.methods import method_of
    from dpgt_node.report.text import no_privacy

    f, t = report.facts, report.facts.topology
    s, rates, method = f.schedule, report.rates, method_of(f.run)
    r, c = method.couplings(t)

    def names(agents: Sequence[int]) -> str:
        return ", ".join(t.names[i] for i in agents) or "none"

    lines = [
        f"{f.run.name}: {f.n} agent{'s' * (f.n > 1)}, K = {s.K}, scheme {s.kind}",
        f"method {method.name} ({method.status}: {method.source}): {method.title}",
        "",
        "Graph",
        f"  roots of R         {names(t.roots_R)}",
        f"  roots of C'        {names(t.roots_C)}",
        f"  common roots       {names(t.common_roots)}",
        f"  eigenvalues of L1  {_eigenvalues(f.spectrum_L1)}",
        f"  eigenvalues of L2  {_eigenvalues(f.spectrum_L2)}",
        f"  r1, r2             {number(f.r1)}, {number(f.r2)}{', lower bounds' if f.bounded else ''}",
        "",
        *_table(
            ("agent", "r_i", "c_i", "a_i", "b_i", "v1", "v2", "D"),
            [
                (
                    t.names[i],
                    number(float(r[i])),
                    number(float(c[i])),
                    number(float(s.alpha * r[i])),
                    number(float(s.beta * c[i])),
                    number(None if f.v1 is None else float(f.v1[i])),
                    number(None if f.v2 is None else float(f.v2[i])),
                    number(f.D[i]),
                )
                for i in range(f.n)
            ],
        ),
        "Steps",
        f"  alpha {number(s.alpha)} (Lemma 1: below {number(f.alpha_max)})   beta {number(s.beta)} (below "
        f"{number(f.beta_max)})   gamma {number(s.gamma)}   m_K {s.m if s.m is not None else 'full'}",
        *([f"  {s.apart}"] if f.run.scheme.apart else []),
        "",
        *([f"Looked at: {looked}.", ""] if (looked := looked_at(report)) is not None else []),
        *(f"Data: {line}." for line in odd),
        *([""] if odd else []),
        "Conditions",
        *(part for row in report.checks for part in _row(row)),
        "",
        *(_privacy(report) if (none := no_privacy(f.run)) is None else (none, "")),
        "Predicted rate" + (f" (Theorem {rates.theorem}, if its assumptions hold)" if rates.theorem else ""),
    ]
    if rates.theorem == 2:
        lines.append(f"  E|grad F|^2 = O((K+1)^-{number(rates.exponent)}), theta = {number(rates.theta)}")
    elif rates.theorem == 3:
        lines.append(
            f"  E|grad F|^2 = O(q^K), q = {_factor(rates.factor)} = max(rho(A_K) = {_factor(rates.rho_A_K)}, 1/p_m = "
            f"{_factor(rates.inverse_p_m)}, max p^2 = {_factor(rates.max_p_squared)})"
        )
    lines.append(f"  oracle complexity, sum of m_k over all releases: {rates.oracle_complexity or '-'}")
    lines += [f"  {rates.note}"] if rates.note else []
    lines += ["", *disk, verdict(report), *(f"Refused: {row.statement}" for row in report.failed_hard)]
    return "\n".join(line.rstrip() for line in lines)


def _privacy(report: CheckReport) -> list[str]:
    """The whole run's epsilon under every accountant, agent by agent, and why an accountant has none."""
    from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
    from dpgt_node.privacy.mechanisms import MECHANISMS
    from dpgt_node.record.epsilons import noise_words
    from dpgt_node.report.text import judged

    run, names = report.facts.run, report.facts.topology.names
    privacy = run.privacy
    if privacy.clip_l2 is not None:
        adjacency = f"C2 = {2.0 * privacy.clip_l2:g} (L2), enforced by clipping"
    elif privacy.adjacency is not None:
        adjacency = f"C = {privacy.adjacency:g} (L1), " + (
            "enforced by clipping" if privacy.enforced else "declared, not enforced"
        )
    else:
        adjacency = "no bound known"
    speaking = [name for name in ACCOUNTANTS if any(v is not None for v in report.epsilon.get(name, ()))]
    lines = [
        f"Epsilon of each agent's whole transcript, k = 0..{run.K}, mechanism {run.algorithm.mechanism}, "
        f"{noise_words(run.noise.law, run.algorithm.mechanism)}",
        f"  adjacent data sets: one sample replaced, gradients apart by at most {adjacency}; delta = {privacy.delta:g}",
        *(
            [f"  times {', '.join(f'{share:g}' for share in privacy.by_release)} by release"]
            if privacy.by_release
            else []
        ),
        *([f"  times {privacy.decay:g}^(-k/K) in round k"] if privacy.decay else []),
        *(["  the first release is of features summed by class"] if run.scheme.first == "class-sums" else []),
        *_table(
            ("agent", *(ACCOUNTANTS[name].label for name in speaking)),
            [
                (agent, *(judged(report.epsilon[name][i], words(report, i)[name]) for name in speaking))
                for i, agent in enumerate(names)
                if speaking
            ],
        ),
    ]
    lines += [f"  WARNING: {said}"] if (said := warned_delta(report)) is not None else []
    mechanism = MECHANISMS[run.algorithm.mechanism]
    for one in (one for one in ACCOUNTANTS.values() if not one.aside or one.covers(mechanism)):
        texts = report.reasons.get(one.name, ())
        for text in dict.fromkeys(text for text in texts if text is not None):
            agents = [agent for agent, other in zip(names, texts, strict=True) if other == text]
            whose = "" if len(agents) == len(names) else f" ({', '.join(agents)})"
            lines.append(f"  no value: {one.label}{whose}: {text}")
    if (whom := towards(report)) is not None:
        lines += ["", *towards_lines(whom, names)]
    return [*lines, ""]


def towards_lines(whom: Towards, names: Sequence[str]) -> list[str]:
    """The table of epsilon towards any t of the others, with what it rests on."""
    from dpgt_node.accounts.towards import ASSUMPTIONS
    from dpgt_node.report.text import alike, judged

    rows = [(who, *(judged(value, word) for value, word in row)) for who, row in alike(names, whom.rows)]
    table = _table(("agent", *whom.heads), rows)
    return [whom.title, *table, f"  {whom.rests_on}", *(f"  - {text}" for text in ASSUMPTIONS)]


def _row(row: Check) -> list[str]:
    """A condition: how it stands, its sides, its note."""
    mark = _MARK[row.passed] if not row.hard or row.passed is not False else "REFUSED"
    mark = mark if row.applies else _NOT_APPLYING
    note = f" ({row.note})" if row.note else ""
    said = f"{row.name}: {number(row.lhs)} {row.relation} {number(row.rhs)}{note}"
    return wrapped(said, " " * 11, first=f"  {mark:<7}  ")


def _factor(value: float | None) -> str:
    """A factor a round: six digits would round a slow one to 1."""
    return f"1 - {1.0 - value:.3g}" if value is not None and 0.999 < value < 1.0 else number(value)


def _eigenvalues(spectrum: Spectrum) -> str:
    """The first few; what is proved of the others where a part of the graph is too large to compute them."""
    if not spectrum.bounded:
        return _complex(spectrum.values)
    agents = sum(part.agents for part in spectrum.parts)
    return (
        f"those of {agents:,} agents are bounded, not computed: real parts at least {number(spectrum.least)} but for "
        f"one 0, moduli at most {number(spectrum.radius)}"
    )


def _complex(values: Sequence[complex]) -> str:
    return figures.some([f"{w.real:.4g}" + (f"{w.imag:+.4g}i" if w.imag else "") for w in values], 12)


def _table(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in head:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out = io.StringIO()
    Console(file=out, width=WIDTH).print(table)
    return out.getvalue().splitlines()
