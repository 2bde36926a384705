"""What ``dpgt check`` says first: what fails, what the run costs, what to expect; at most 80 columns, words whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpgt_node import figures
from dpgt_node.cli.checking.facts import looked_at, number, towards, unknown_epsilon, verdict, warned_delta, words
from dpgt_node.cli.wrapping import wrapped

if TYPE_CHECKING:
    from dpgt_node.algo.checks import Check
    from dpgt_node.algo.theory import CheckReport
    from dpgt_node.cli.checking.facts import Tables
    from dpgt_node.runtime.disk import DiskNeed

_OPEN_MAX = 3
_REMARK = 20
"""A remark of so many characters is said once, but for who fails."""
_MORE = "All conditions, tables and figures: the same command with --all"


def brief(
    report: CheckReport,
    needs: Sequence[DiskNeed],
    odd: Sequence[str],
    refused: Sequence[str],
    memory: Tables | None = None,
    hiding: str | None = None,
) -> str:
    """Refusals first, then the paper's conditions that fail, epsilon, what to expect of disk; the rest is in ``--all``.

    ``refused``: why launch would refuse it beside the conditions.  Of a run that is refused no epsilon is printed.
    ``hiding``: what [traffic] costs.
    """
    from dpgt_node.algo.facts import ROBUST
    from dpgt_node.algo.methods import method_of

    f = report.facts
    refusals = [row.statement for row in report.failed_hard] + list(refused)
    mechanism = f", mechanism {f.run.algorithm.mechanism}" if method_of(f.run).noisy else ""
    what = f"K = {f.schedule.K}, scheme {f.schedule.kind}, method {f.run.algorithm.method}{mechanism}"
    out = wrapped(f"{f.run.name}: {f.n} agent{'s' * (f.n > 1)}, {what}")
    out += [part for line in refusals for part in wrapped(f"Refused: {line}")]
    if not refusals:
        said: set[str] = set()
        out += [part for row in report.warnings for part in _condition(row, said)]
    out += [part for line in odd for part in wrapped(f"Data: {line}.")]
    if refusals:
        return "\n".join([*out, _MORE])
    if (looked := looked_at(report)) is not None:
        out += wrapped(f"Looked at: {looked}.")
    out += [part for line in _epsilon(report) for part in wrapped(line)]
    out += _open(report)
    if f.bounded:
        out += wrapped(f"Of {f.n:,} agents the eigenvalues are bounded, not computed (--all).")
    if f.run.robust.on:
        out += wrapped(f"[robust]: {ROBUST}.")
    if hiding is not None:
        out += wrapped(f"[traffic]: {hiding}.")
    if needs:
        from dpgt_node.runtime.disk import readable

        most = max(needs[:-1], key=lambda need: need.total)
        out += wrapped(f"Disk, at most: {readable(most.total)} an agent, {readable(needs[-1].total)} the coordinator.")
    out += [] if memory is None else wrapped(f"Memory: {memory.words}.")
    return "\n".join([*out, *wrapped(verdict(report)), _MORE])


def _condition(row: Check, said: set[str]) -> list[str]:
    """A condition that fails: its sides, and why it matters, but for long remarks that were ``said`` before."""
    sides = f": {number(row.lhs)} {row.relation} {number(row.rhs)}" if row.lhs is not None else ""
    note = "; ".join(part for part in row.note.split("; ") if part not in said)
    said.update(part for part in row.note.split("; ") if len(part) >= _REMARK and not part.startswith("fails"))
    return wrapped(f"FAILS {row.name}{sides}{f' ({note})' if note else ''}")


def _epsilon(report: CheckReport) -> list[str]:
    """The largest epsilon by accountant, the one that stands for the run first."""
    from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, EPSILONS
    from dpgt_node.record.epsilons import qualifier, shown_accountant
    from dpgt_node.report.text import judged, no_privacy

    privacy, names = report.facts.run.privacy, report.facts.topology.names
    most = max((D for D in report.facts.D if D is not None), default=None)
    first = shown_accountant(report.epsilon, privacy.delta, most)
    lines: list[str] = []
    if (none := no_privacy(report.facts.run)) is not None:
        return [none]
    for name in sorted((one for one in ACCOUNTANTS if one in report.epsilon), key=lambda one: one != first):
        known = [(value, i) for i, value in enumerate(report.epsilon[name]) if value is not None]
        if not known:
            continue
        value, at = max(known, key=lambda pair: pair[0])
        whose = f", {names[at]}" if not lines and len(names) > 1 else ""
        shown = judged(value, words(report, at)[name])
        what = ("  also" if lines else "Epsilon") if name in EPSILONS else "  also delta" if lines else "Delta"
        lines.append(f"{what} {shown} ({qualifier(name, privacy.delta)}{whose})")
    if not lines and (unknown := unknown_epsilon(report)) is not None:
        return [f"Epsilon: not known here, where the data are not: {unknown}."]
    if not lines:
        return [f"Epsilon: none. {_why_none(report)}."]
    lines[0] += " of the whole run, the largest of any agent: one sample replaced"
    if not privacy.enforced:
        lines[0] += f"; only if no gradient exceeds C = {privacy.C:g}, which is declared and not enforced"
    lines += [f"WARNING: {said}" for said in [warned_delta(report)] if said is not None]
    if towards(report) is not None:
        lines.append("Noise is shared: towards fewer than all others epsilon is smaller where noise cancels (--all).")
    return lines


def _why_none(report: CheckReport) -> str:
    """What stands against a pure guarantee, and what against one with a delta: either is a way out."""
    from dpgt_node.privacy.accountants.registry import APPROXIMATE

    said: dict[bool, str] = {}
    for name, texts in report.reasons.items():
        said.setdefault(name in APPROXIMATE, next((text for text in texts if text is not None), ""))
    pure, other = said.get(False, ""), said.get(True, "")
    if not (pure and other) or pure == other:
        return pure or other or "No accountant has a value"
    return f"Pure: {pure}. With a delta: {other}"


def _open(report: CheckReport) -> list[str]:
    """What nobody can judge here, a few of it."""
    unknown = [row.name for row in report.checks if row.applies and row.passed is None and row.hard]
    if not unknown:
        return []
    return wrapped(f"Not known on this machine: {figures.some(unknown, _OPEN_MAX)}.")
