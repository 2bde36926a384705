"""The adversary part of ``report.html``: what attacks on the run's transcripts found, from ``DIR/adversary``.

``dpgt eavesdrop attack ... --out DIR/adversary`` writes it there (``attacks.json`` and ``attacks.npz``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node import figures
from dpgt_node.documents import read_json
from dpgt_node.errors import ConfigError
from dpgt_node.report import attack_table
from dpgt_node.report.attack_table import VERDICTS
from dpgt_node.report.pictures import data_uri
from dpgt_node.report.plots import Curves, draw_roc, draw_roc_log
from dpgt_node.report.rendering import Mark
from dpgt_node.types import F64
from dpgt_node.values import dataclass

FOLDER = "adversary"
ROWS_MAX = 12
"""Rows of pictures, and charts, of one attack that are shown; the rest is in attacks.npz."""
SERIES_MAX = 8
ROC = "ROC"
"""The caption of a curve of hits over false alarms."""
EXPECTED = "expected of simulated runs"
Arrays = Mapping[str, F64]


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
    """``who``: an agent; empty: all together."""

    who: str
    title: str
    drawing: str
    legend: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Finding:
    """``lines``: quantity, measured, predicted, and what is true where the run file tells; at least one."""

    who: str
    note: str
    lines: Sequence[tuple[str, str, str, str]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack's card.  ``more_pictures``, ``more_charts``: how many are left out.  ``of_agents``: charts that begin
    closed, where there are some of all agents together.  ``explained``: names and what they mean.
    """

    name: str
    summary: str
    seen: str
    verdicts: Sequence[Verdict]
    findings: Sequence[Finding]
    picture: Picture | None
    more_pictures: int
    charts: Sequence[Chart]
    of_agents: Sequence[Chart]
    more_charts: int
    explained: Sequence[tuple[str, str]] = ()

    @property
    def true(self) -> bool:
        """Whether the run file tells what is true of something."""
        return any(line[3] for finding in self.findings for line in finding.lines)

    @property
    def lines(self) -> int:
        return sum(len(finding.lines) for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Section:
    """``table``: all of them by verdict.  ``skipped``: attacks that were not run, each with why.

    A table of more than ``lines_max`` rows starts closed.
    """

    table: attack_table.Table
    attacks: Sequence[Attack]
    skipped: Sequence[tuple[str, str]]
    lines_max: int = ROWS_MAX


def load(out_dir: Path) -> Found | None:
    """What ``out_dir`` holds of attacks; None: nothing.  ConfigError: something that cannot be read."""
    path = out_dir / FOLDER / "attacks.json"
    if not path.exists():
        return None
    try:
        document = read_json(path)
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
            return Found(document, {name: arrays[name] for name in arrays.files})
    except (OSError, ValueError) as error:
        raise ConfigError.one(str(path), "", f"no results of attacks: {error}") from error


def reached(found: Found) -> list[attack_table.Reached]:
    """How far each attack got that found anything.  ConfigError: attacks.json is damaged."""
    try:
        all_of_them = [attack_table.reached(entry) for entry in found.document["attacks"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError.one(f"{FOLDER}/attacks.json", "", f"no results of attacks: {error!r}") from error
    return [one for one in all_of_them if one is not None]


def section(found: Found) -> Section:
    """What adversary.html shows.  ConfigError: the files are damaged."""
    try:
        return Section(
            attack_table.table(found.document["attacks"]),
            [_attack(number, entry, found.arrays) for number, entry in enumerate(found.document["attacks"])],
            [(str(name), str(why)) for name, why in found.document["skipped"].items()],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError.one(f"{FOLDER}/attacks.json", "", f"no results of attacks: {error!r}") from error


def _attack(number: int, entry: Mapping[str, Any], arrays: Arrays) -> Attack:
    counts = Counter(str(one["verdict"]) for one in entry["findings"])
    charts = _charts(number, entry, arrays)
    together = [chart for chart in charts if not chart.who]
    single = [chart for chart in charts if chart.who]
    shown, closed = (together, single) if together else (single, [])
    return Attack(
        str(entry["attack"]),
        str(entry["summary"]),
        f"Seen by {entry['vantage'] or 'nobody'}; missing: {entry['missing'] or 'nothing'}.",
        [Verdict(f"{name} {n} times" if n > 1 else name, VERDICTS.get(name, "")) for name, n in counts.items()],
        [_finding(one) for one in entry["findings"]],
        _picture(number, entry, arrays),
        max(0, len(entry["pictures"]) - ROWS_MAX),
        shown[:ROWS_MAX],
        closed[:ROWS_MAX],
        sum(max(0, len(some) - ROWS_MAX) for some in (shown, closed)),
        attack_table.explained(entry),
    )


def _finding(one: Mapping[str, Any]) -> Finding:
    measured, predicted, true = one["measured"], one["predicted"], one.get("true", {})  # older files have no "true"
    lines = []
    for key in dict.fromkeys([*measured, *predicted, *true]):
        there = measured.get(key), predicted.get(key), true.get(key)
        if there != (None, None, None):
            told = _number(there[2]) if key in true else ""
            lines.append((_words(key), _number(there[0]), _number(there[1]), told))
    who = f"{one['agent'] or 'the run'}: {one['verdict']}"
    return Finding(who, str(one["note"] or ""), lines or [("–", "–", "–", "")])


def _words(key: object) -> str:
    return str(key).replace("_", " ")


def _number(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else figures.number(float(str(value)), 4)


def _picture(number: int, entry: Mapping[str, Any], arrays: Arrays) -> Picture | None:
    captions = [str(caption) for caption in entry["pictures"]][:ROWS_MAX]
    if not captions:
        return None
    rows = {caption: arrays[f"{number}_picture_{at}"] for at, caption in enumerate(captions)}
    return Picture(data_uri(rows), "; ".join((str(entry["attack"]), *rows)))


def _charts(number: int, entry: Mapping[str, Any], arrays: Arrays) -> list[Chart]:
    """One chart for the curves of one agent and quantity: a caption is ``AGENT: QUANTITY of NAME, HOW``.

    What was seen in one round alone is no curve: its numbers are in the table.
    """
    found: dict[tuple[str, str], dict[str, tuple[F64, F64]]] = {}
    for at, caption in enumerate(map(str, entry["curves"])):
        who, _, what = caption.rpartition(": ")
        x, y = (np.asarray(arrays[f"{number}_curve_{at}_{axis}"], dtype=np.float64) for axis in "xy")
        if x.shape != y.shape or x.ndim != 1:
            raise ValueError(f"{caption}: a curve of shapes {x.shape} and {y.shape}")
        quantity, _, rest = what.partition(" of " if " of " in what and not what.startswith(ROC) else ", ")
        found.setdefault((who, quantity), {})[rest or quantity] = x, y
    charts: list[Chart] = []
    for at, ((who, quantity), series) in enumerate(found.items()):
        title, key = f"{who or entry['attack']}: {quantity}", f"adversary{number}c{at}"
        if ROC in series:
            charts.append(_roc(key, who, title, series))
            if len(series) > 1 and not who:  # of all agents together, which have the samples that it takes
                charts.append(_roc_log(f"{key}l", title, series))
        elif (chart := _rounds(key, who, title, series)) is not None:
            charts.append(chart)
    return charts


def _roc(key: str, who: str, title: str, series: Mapping[str, tuple[F64, F64]]) -> Chart:
    expected = series.get(EXPECTED)
    legend = [Mark("", "--accent", "measured"), Mark("", "--muted", "guessing")]
    legend[1:1] = [] if expected is None else [Mark("", "--s2", EXPECTED)]
    return Chart(who, title, draw_roc(key, title, *series[ROC], expected), legend)


def _roc_log(key: str, title: str, series: Mapping[str, tuple[F64, F64]]) -> Chart:
    """Beside what is expected, and the most that is possible; few false alarms are what counts."""
    named = {"measured" if name == ROC else name: points for name, points in series.items()}
    legend = [Mark("", f"--s{i}", name) for i, name in enumerate(named, start=1)]
    title = f"{title} at few false alarms"
    return Chart("", title, draw_roc_log(key, title, named), [*legend, Mark("", "--muted", "guessing")])


def _rounds(key: str, who: str, title: str, series: Mapping[str, tuple[F64, F64]]) -> Chart | None:
    shown = {
        name: {float(a): float(b) for a, b in zip(x, y, strict=True) if np.isfinite(a) and np.isfinite(b)}
        for name, (x, y) in list(series.items())[:SERIES_MAX]
    }
    if len({x for points in shown.values() for x in points}) < 2:
        return None
    curves = Curves(key, title, "linear", shown)
    legend = [
        Mark("", "--ink" if len(shown) == 1 else f"--s{i}", _named(name)) for i, name in enumerate(shown, start=1)
    ]
    return Chart(who, title, curves.draw(), legend)


def _named(series: str) -> str:
    """``B, measured`` as ``B (each gradient by itself, ...), measured``."""
    name, comma, how = series.partition(", ")
    words = attack_table.ESTIMATORS.get(name.replace("_", " "))
    return series if words is None else f"{name.replace('_', ' ')} ({words}){comma}{how}"
