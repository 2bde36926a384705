"""The adversary part of ``report.html``: what attacks on the run's transcripts found, from ``DIR/adversary``.

``dpgt eavesdrop attack ... --out DIR/adversary`` writes it there (``attacks.json`` and ``attacks.npz``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.errors import ConfigError
from dpgt_node.report import text
from dpgt_node.report.pictures import data_uri
from dpgt_node.report.plots import Curves
from dpgt_node.report.rendering import Mark

FOLDER = "adversary"
ROWS_MAX = 12
"""Rows of pictures, and charts, of one attack that are shown; the rest is in attacks.npz."""
SERIES_MAX = 8
VERDICTS = {
    "succeeds": "bad",
    "partly": "bad",
    "fails": "good",
    "clean": "good",
    "no power": "",
    "not measured": "",
}
Arrays = Mapping[str, npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Found:
    """attacks.json and attacks.npz as they are."""

    document: Mapping[str, Any]
    arrays: Arrays = field(repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    words: str
    kind: str


@dataclass(frozen=True, slots=True)
class Picture:
    uri: str
    alt: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    drawing: str
    legend: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Finding:
    """``lines``: quantity, measured, predicted; at least one."""

    who: str
    note: str
    lines: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack's card.  ``more_pictures``, ``more_charts``: how many are left out."""

    name: str
    summary: str
    seen: str
    verdicts: Sequence[Verdict]
    findings: Sequence[Finding]
    picture: Picture | None
    more_pictures: int
    charts: Sequence[Chart]
    more_charts: int

    @property
    def lines(self) -> int:
        return sum(len(finding.lines) for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Section:
    """``skipped``: attacks that were not run, each with why.  A table of more than ``lines_max`` rows starts closed."""

    attacks: Sequence[Attack]
    skipped: Sequence[tuple[str, str]]
    lines_max: int = ROWS_MAX


def load(out_dir: Path) -> Found | None:
    """What ``out_dir`` holds of attacks; None: nothing.  ConfigError: something that cannot be read."""
    path = out_dir / FOLDER / "attacks.json"
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
            return Found(document, {name: arrays[name] for name in arrays.files})
    except (OSError, ValueError) as error:
        raise ConfigError.one(str(path), "", f"no results of attacks: {error}") from error


def section(found: Found) -> Section:
    """What adversary.html shows.  ConfigError: the files are damaged."""
    try:
        return Section(
            [_attack(number, entry, found.arrays) for number, entry in enumerate(found.document["attacks"])],
            [(str(name), str(why)) for name, why in found.document["skipped"].items()],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError.one(f"{FOLDER}/attacks.json", "", f"no results of attacks: {error!r}") from error


def _attack(number: int, entry: Mapping[str, Any], arrays: Arrays) -> Attack:
    counts = Counter(str(one["verdict"]) for one in entry["findings"])
    charts, more_charts = _charts(number, entry, arrays)
    return Attack(
        str(entry["attack"]),
        str(entry["summary"]),
        f"Seen by {entry['vantage'] or 'nobody'}; missing: {entry['missing'] or 'nothing'}.",
        [Verdict(f"{name} {n} times" if n > 1 else name, VERDICTS.get(name, "")) for name, n in counts.items()],
        [_finding(one) for one in entry["findings"]],
        _picture(number, entry, arrays),
        max(0, len(entry["pictures"]) - ROWS_MAX),
        charts,
        more_charts,
    )


def _finding(one: Mapping[str, Any]) -> Finding:
    measured, predicted = one["measured"], one["predicted"]
    keys = [
        key for key in dict.fromkeys([*measured, *predicted]) if (measured.get(key), predicted.get(key)) != (None, None)
    ]
    lines = [(_words(key), _number(measured.get(key)), _number(predicted.get(key))) for key in keys]
    return Finding(f"{one['agent'] or 'the run'}: {one['verdict']}", str(one["note"] or ""), lines or [("–", "–", "–")])


def _words(key: object) -> str:
    return str(key).replace("_", " ")


def _number(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else text.number(float(str(value)), 4)


def _picture(number: int, entry: Mapping[str, Any], arrays: Arrays) -> Picture | None:
    captions = [str(caption) for caption in entry["pictures"]][:ROWS_MAX]
    if not captions:
        return None
    rows = {caption: arrays[f"{number}_picture_{at}"] for at, caption in enumerate(captions)}
    return Picture(data_uri(rows), "; ".join((str(entry["attack"]), *rows)))


def _charts(number: int, entry: Mapping[str, Any], arrays: Arrays) -> tuple[list[Chart], int]:
    """One chart for the curves of one agent (a caption is ``AGENT: WHAT``), and how many are left out."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for at, caption in enumerate(map(str, entry["curves"])):
        who, _, what = caption.rpartition(": ")
        x, y = (arrays[f"{number}_curve_{at}_{axis}"] for axis in "xy")
        points = {int(k): float(v) for k, v in zip(x, y, strict=True) if np.isfinite(k)}
        found.setdefault(who, {})[what] = points
    charts = []
    for at, (who, series) in enumerate(list(found.items())[:ROWS_MAX]):
        shown = dict(list(series.items())[:SERIES_MAX])
        curves = Curves(f"adversary{number}c{at}", who or str(entry["attack"]), "linear", shown)
        if not curves.drawable() or max(map(len, shown.values())) < 2:
            continue
        legend = [Mark("", "--ink" if len(shown) == 1 else f"--s{i}", name) for i, name in enumerate(shown, start=1)]
        charts.append(Chart(curves.title, curves.draw(), legend))
    return charts, max(0, len(found) - ROWS_MAX)
