"""The adversary part of ``report.html``: what attacks on the run's transcripts found, from ``DIR/adversary``.

``dpgt eavesdrop attack ... --out DIR/adversary`` writes it there (``attacks.json`` and ``attacks.npz``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpgt_node.errors import ConfigError
from dpgt_node.report import text
from dpgt_node.report.pictures import img_grid
from dpgt_node.report.plots import Curves

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
INTRO = (
    "What somebody who saw released vectors can infer from them. An attack that fails here proves nothing about the "
    "next one: what is guaranteed is the epsilon above, of one sample of one agent, and nothing else."
)
Arrays = Mapping[str, npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Found:
    """attacks.json and attacks.npz as they are."""

    document: Mapping[str, Any]
    arrays: Arrays = field(repr=False)


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


def section(found: Found) -> str:
    """The section as HTML; everything that comes from the files is escaped.  ConfigError: they are damaged."""
    try:
        cards = [_attack(number, entry, found.arrays) for number, entry in enumerate(found.document["attacks"])]
        skipped = {str(name): str(why) for name, why in found.document["skipped"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError.one(f"{FOLDER}/attacks.json", "", f"no results of attacks: {error!r}") from error
    left = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in skipped.items())
    rest = f'<details class="card"><summary>Not run: {len(skipped)}</summary><ul>{left}</ul></details>' if left else ""
    return f'<h2>Adversary</h2>\n<p class="note">{escape(INTRO)}</p>\n{"".join(cards)}{rest}'


def _attack(number: int, entry: Mapping[str, Any], arrays: Arrays) -> str:
    name, findings = str(entry["attack"]), list(entry["findings"])
    seen = f"Seen by {entry['vantage'] or 'nobody'}; missing: {entry['missing'] or 'nothing'}."
    drawings = "".join((*_pictures(number, entry, arrays), *_curves(number, entry, arrays)))
    return (
        f'<div class="card attack"><h3>{escape(name)} {_verdicts(findings)}</h3>'
        f'<p>{escape(str(entry["summary"]))}</p><p class="note">{escape(seen)}</p>{drawings}{_table(findings)}</div>\n'
    )


def _verdicts(findings: Sequence[Mapping[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for one in findings:
        counts[str(one["verdict"])] = counts.get(str(one["verdict"]), 0) + 1
    return " ".join(
        f'<span class="badge {VERDICTS.get(verdict, "")}">{escape(verdict)}{f" {n} times" if n > 1 else ""}</span>'
        for verdict, n in counts.items()
    )


def _table(findings: Sequence[Mapping[str, Any]]) -> str:
    if not findings:
        return ""
    rows = []
    for one in findings:
        measured, predicted = one["measured"], one["predicted"]
        keys = [
            key
            for key in dict.fromkeys([*measured, *predicted])
            if (measured.get(key), predicted.get(key)) != (None, None)
        ]
        who = f"{one['agent'] or 'the run'}: {one['verdict']}"
        note = f'<div class="note">{escape(str(one["note"]))}</div>' if one["note"] else ""
        head = f'<td rowspan="{max(1, len(keys))}">{escape(who)}{note}</td>'
        cells = [
            f"<td>{escape(_words(key))}</td><td>{_number(measured.get(key))}</td><td>{_number(predicted.get(key))}</td>"
            for key in keys
        ] or ["<td>–</td><td>–</td><td>–</td>"]
        rows += [f"<tr>{head if i == 0 else ''}{cell}</tr>" for i, cell in enumerate(cells)]
    titles = "".join(f"<th>{title}</th>" for title in ("agent", "quantity", "measured", "predicted"))
    opened = " open" if len(rows) <= ROWS_MAX else ""
    return (
        f"<details{opened}><summary>Measured beside predicted: {len(findings)} findings</summary>"
        f'<div class="scroll"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _words(key: object) -> str:
    return str(key).replace("_", " ")


def _number(value: object) -> str:
    return escape("–" if value is None else value if isinstance(value, str) else text.number(float(str(value)), 4))


def _pictures(number: int, entry: Mapping[str, Any], arrays: Arrays) -> Iterator[str]:
    captions = [str(caption) for caption in entry["pictures"]]
    if not captions:
        return
    rows = {caption: arrays[f"{number}_picture_{at}"] for at, caption in enumerate(captions[:ROWS_MAX])}
    what = "; ".join((str(entry["attack"]), *rows))
    yield f'<div class="pictures">{img_grid(rows, what)}</div>'
    yield _more(len(captions), "rows of pictures")


def _curves(number: int, entry: Mapping[str, Any], arrays: Arrays) -> Iterator[str]:
    """One chart for the curves of one agent: a caption is ``AGENT: WHAT``."""
    charts: dict[str, dict[str, dict[int, float]]] = {}
    for at, caption in enumerate(map(str, entry["curves"])):
        who, _, what = caption.rpartition(": ")
        x, y = (arrays[f"{number}_curve_{at}_{axis}"] for axis in "xy")
        points = {int(k): float(v) for k, v in zip(x, y, strict=True) if np.isfinite(k)}
        charts.setdefault(who, {})[what] = points
    figures = []
    for at, (who, series) in enumerate(list(charts.items())[:ROWS_MAX]):
        shown = dict(list(series.items())[:SERIES_MAX])
        curves = Curves(f"adversary{number}c{at}", who or str(entry["attack"]), "linear", shown)
        if not curves.drawable() or max(map(len, shown.values())) < 2:
            continue
        keys = "".join(
            f'<li><span class="swatch" style="background:var({"--ink" if len(shown) == 1 else f"--s{i}"})"></span>'
            f"{escape(name)}</li>"
            for i, name in enumerate(shown, start=1)
        )
        figures.append(
            f"<figure><figcaption><h3>{escape(curves.title)}</h3></figcaption>{curves.draw()}"
            f'<ul class="legend">{keys}</ul></figure>'
        )
    if figures:
        yield f'<div class="grid">{"".join(figures)}</div>'
        yield _more(len(charts), "charts")


def _more(count: int, what: str) -> str:
    return f'<p class="note">{count - ROWS_MAX} more {what} are in attacks.npz.</p>' if count > ROWS_MAX else ""
