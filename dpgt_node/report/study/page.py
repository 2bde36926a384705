"""``study.html`` and ``study.json``: the comparison of the grid's runs, and what attacks and audits found on each.

A study's folder has one folder a noise, ``noise-X``: ``run/`` is the run's own output with ``adversary/`` in it,
``canaries/audit.json`` the trials of its release path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node import figures
from dpgt_node.documents import read_json
from dpgt_node.durable import write_text
from dpgt_node.errors import ConfigError
from dpgt_node.report import adversary_html, attack_table, audit_html
from dpgt_node.report.attack_table import MEANINGS, VERDICTS
from dpgt_node.report.comparison import page
from dpgt_node.report.comparison.page import Figure, Row, Table
from dpgt_node.report.comparison.runs import Compared, load_runs
from dpgt_node.report.plots import draw_roc_log
from dpgt_node.report.rendering import rendered
from dpgt_node.types import F64
from dpgt_node.values import dataclass

VERSION = 1
"""Of study.json."""
JSON_FILE, PAGE_FILE = "study.json", "study.html"
RUN, CANARIES = "run", "canaries"
_CURVES = ("lira", "lira-model", "rmia", "membership", "population")
_ROC, _MOST = ": ROC", ": ROC, the most that the guarantee allows"


@dataclass(frozen=True, slots=True)
class Point:
    """One noise of the grid.  ``factor``: times the run file's.  ``unaudited``: why there are no canary trials; empty:
    there are.
    """

    factor: float
    folder: Path
    unaudited: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """A point as its files have it.  ``canaries``, ``evidence``: audit.json of both kinds, where they are there."""

    point: Point
    one: Compared
    found: adversary_html.Found | None
    canaries: Mapping[str, Any] | None
    evidence: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        return f"{self.one.letter} (noise x {self.point.factor:g})"


@dataclass(frozen=True, slots=True)
class Studied:
    """``refuted``: whether anything claimed was.  ``verdicts``: every attack on every run, the adversary's best first;
    ``skipped``: how many were not run.
    """

    refuted: bool
    verdicts: Table
    skipped: int


def write_study(out: Path, points: Sequence[Point], about: Mapping[str, Any]) -> Studied:
    """Write both files into ``out``.  ConfigError: a run cannot be read."""
    runs = load_runs([point.folder / RUN for point in points], least=1)
    seen = [_seen(point, one) for point, one in zip(points, runs, strict=True)]
    refuted = any(_refuted(one) for one in seen)
    document = {
        "version": VERSION,
        **about,
        "refuted": refuted,
        "grid": [_document(one) for one in seen],
        **page.document(runs),
    }
    write_text(out / JSON_FILE, json.dumps(document, allow_nan=False, indent=2) + "\n")
    values = page.values(runs) | {
        "title": f"Study of {about['run']}",
        "curves": _curves(seen),
        "claims": Table(("by", "claimed", "measured", "verdict", "how"), [row for one in seen for row in _claims(one)]),
        "unaudited": [(one.name, one.point.unaudited) for one in seen if one.point.unaudited],
        "evidence": Table(("agent", "check", "question", "verdict", "answer"), _evidence(seen)),
        "verdicts": _verdicts(seen),
        "meanings": MEANINGS,
        "skipped": _skipped(seen),
    }
    page.write_page(out / PAGE_FILE, rendered("study.html", values))
    return Studied(refuted, _verdicts(seen), len(_skipped(seen)))


def _seen(point: Point, one: Compared) -> _Seen:
    folder = point.folder / RUN
    canaries = _read(point.folder / CANARIES / "audit.json")
    return _Seen(point, one, adversary_html.load(folder), canaries, audit_html.load(folder))


def _read(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    try:
        document: Mapping[str, Any] = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError.one(str(path), "", f"no results of an audit: {error}") from error
    return document


def _refuted(one: _Seen) -> bool:
    audits = [document for document in (one.canaries, one.evidence) if document is not None]
    return any(document["refuted"] for document in audits) or any(
        str(finding["note"]).startswith("REFUTES")
        for entry in ([] if one.found is None else one.found.document["attacks"])
        for finding in entry["findings"]
    )


def _document(one: _Seen) -> dict[str, Any]:
    found = None if one.found is None else one.found.document
    return {
        "letter": one.one.letter,
        "factor": one.point.factor,
        "folder": one.point.folder.name,
        "shadows": None if found is None else found.get("shadows"),
        "attacks": [] if found is None else found["attacks"],
        "skipped": {} if found is None else found["skipped"],
        "claims": [] if one.canaries is None else one.canaries["claims"],
        "findings": [] if one.evidence is None else one.evidence["findings"],
        "unaudited": one.point.unaudited or None,
    }


def _curves(seen: Sequence[_Seen]) -> list[Figure]:
    """A chart an attack, with every run's own curve of all agents together, or of its first one.

    Runs have the colours that they have everywhere on the page.
    """
    figures = []
    limits = {f"{one.name}, at most": one.name for one in seen}
    for number, name in enumerate(_CURVES):
        series: dict[str, tuple[F64, F64]] = {}
        for one in seen:
            series[one.name] = np.empty(0), np.empty(0)  # its colour is its place, whether it has a curve or not
            curves = _roc_of(one, name)
            for suffix, said in ((_ROC, ""), (_MOST, ", at most")):
                whose = [caption for caption in curves if caption.endswith(suffix)]
                if whose:
                    series[f"{one.name}{said}"] = curves[whose[-1]]
        if any(x.size for x, _ in series.values()):
            drawing = draw_roc_log(f"study{number}", name, series, limits)
            dotted = "; dotted: the most that the guarantee allows" if limits.keys() & series.keys() else ""
            figures.append(Figure(name, f"logarithmic; dashed: guessing{dotted}", drawing))
    return figures


def _roc_of(one: _Seen, name: str) -> dict[str, tuple[F64, F64]]:
    if one.found is None:
        return {}
    for at, entry in enumerate(one.found.document["attacks"]):
        if entry["attack"] == name:
            arrays = one.found.arrays
            return {
                str(caption): (arrays[f"{at}_curve_{c}_x"], arrays[f"{at}_curve_{c}_y"])
                for c, caption in enumerate(entry["curves"])
            }
    return {}


def _claims(one: _Seen) -> list[Row]:
    rows = []
    for claim in [] if one.canaries is None else one.canaries["claims"]:
        how = claim["note"] or f"{claim['trials']} trials a world, {100 * (claim['confidence'] or 1):g} % confidence"
        cells = (
            f"{claim['accountant']}, {claim['agent']}",
            _number(claim["claimed"]),
            _number(claim["realised"]),
            str(claim["verdict"]),
            str(how),
        )
        rows.append(Row(None, one.name, cells, (3,) if claim["refuted"] else ()))
    return rows


def _evidence(seen: Sequence[_Seen]) -> list[Row]:
    rows = []
    for one in seen:
        lines = [] if one.evidence is None else audit_html.section(one.evidence).lines
        for line in lines:
            cells = (line.agent, line.check, line.question, line.verdict, line.answer)
            rows.append(Row(None, one.name, cells, (3,) if line.kind == "bad" else ()))
    return sorted(rows, key=lambda row: not row.bad)


def _verdicts(seen: Sequence[_Seen]) -> Table:
    """Every attack on every run, the adversary's best first."""
    heads = ("verdict", "quantity", "value", "interval", "guessing", "predicted", "agents")
    rows = []
    for one in seen:
        entries = [] if one.found is None else one.found.document["attacks"]
        for line in attack_table.table(entries).lines:
            bad = (0,) if line.kind == "bad" else ()
            rows.append((line.verdict, Row(None, f"{line.attack}, {one.name}", (line.verdict, *line.cells), bad)))
    order = list(VERDICTS)
    return Table(heads, [row for _, row in sorted(rows, key=lambda item: order.index(item[0]))])


def _skipped(seen: Sequence[_Seen]) -> list[tuple[str, str]]:
    return [
        (f"{name}, {one.name}", str(why))
        for one in seen
        for name, why in ({} if one.found is None else one.found.document["skipped"]).items()
    ]


def _number(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else figures.number(float(str(value)), 4)
