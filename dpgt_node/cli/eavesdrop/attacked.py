"""What ``dpgt eavesdrop attack`` prints: every attack's summary, and a table a finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpgt_node import figures

if TYPE_CHECKING:
    from dpgt_node.adversary.attack import Finding, Result
    from dpgt_node.cli.eavesdrop.attack import Case


def render(results: Sequence[Result], skipped: dict[str, str], case: Case) -> list[str]:
    """Every attack's summary, then a table a finding: measured beside predicted."""
    seen = case.observation
    lines = [f"{case.run.name}: {len(results)} {'attack' if len(results) == 1 else 'attacks'}"]
    if seen is not None:
        lines = [
            f"{case.run.name}: seen by {seen.vantage}",
            f"missing: {seen.missing() or 'nothing'}",
            f"ground truth: {case.told}",
        ]
        if not case.tied and case.truth is None:
            lines.append("run file: taken on trust; a wrong one predicts wrongly (a run's folder as --run is checked)")
    for result in results:
        lines += ["", f"{result.attack}: {result.summary}"]
        if seen is None or (result.vantage, result.missing) != (seen.vantage, seen.missing()):
            lines.append(f"  seen by {result.vantage}; missing: {result.missing or 'nothing'}")
        for finding in result.findings:
            lines += _rows(finding)
    if skipped:
        lines += ["", "Not run", *_left_out(skipped)]
    return lines


def _left_out(skipped: dict[str, str]) -> list[str]:
    """A line a reason, which may be that of many attacks."""
    alike: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        alike.setdefault(reason.replace(f"{name} ", "", 1), []).append(name)
    return [
        f"  {', '.join(names)}: {skipped[names[0]] if len(names) == 1 else reason}" for reason, names in alike.items()
    ]


def _rows(finding: Finding) -> list[str]:
    columns = {"measured": finding.measured, "predicted": finding.predicted, "true": finding.true}
    if not finding.true:
        del columns["true"]
    keys = dict.fromkeys(key for column in columns.values() for key in column)
    cells = {key: [_number(column.get(key), share=_is_share(key)) for column in columns.values()] for key in keys}
    head = f"  {finding.agent or 'the run'}: {finding.verdict}" + (f" ({finding.note})" if finding.note else "")
    rows = [(_WORDS.get(key, key), *cells[key]) for key in keys]
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    if not rows:
        return [head]
    table = [("", *columns), *rows]
    wide = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    shown = (
        (row[0].ljust(wide[0]), *(cell.rjust(width) for cell, width in zip(row[1:], wide[1:], strict=True)))
        for row in table
    )
    return [head, *(f"    {'  '.join(row)}".rstrip() for row in shown)]


_SHARES = frozenset({"labels_right", "label_accuracy", "classes_right", "guessing", "batches_exact", "on_grid"})
_WORDS = {"with_copies": "releases seen again", "copies": "times they were seen", "that_differ": "copies that differ"}
"""Of keys that say too little beside a number; --format json has the keys."""


def _is_share(key: str) -> bool:
    return key in _SHARES or key.startswith("tpr_at_")


def _number(value: float | None, *, share: bool = False) -> str:
    if value is None or value != value:
        return "-"
    if share:
        return figures.percent(value)
    if abs(value) < 1e9:  # counts in full, as in the sentence above them
        return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 9999.5 else f"{value:,.4g}"
    return f"{value:.3g}"
