"""Writes the page of an experiment, its pictures, its numbers and its claims."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from dpgt_node.durable import write_text, write_whole
from dpgt_node.report.experiments import drawing
from dpgt_node.report.experiments.values import VERDICTS, Page, Panel, Section
from dpgt_node.report.rendering import rendered
from dpgt_node.values import dataclass

PAGE_FILE = "index.html"


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A panel on the page: ``src`` holds the whole picture, ``files`` the links beside it."""

    panel: Panel
    src: str
    files: tuple[tuple[str, str], ...]


def write_page(out: Path, page: Page) -> Path:
    """Pictures and numbers of every panel, claims as Markdown and JSON, and ``OUT/index.html``; its path."""
    drawn = {section.key: [_written(out, section, panel) for panel in section.panels] for section in page.sections}
    write_text(out / "CLAIMS.md", "\n".join(_markdown(page)) + "\n")
    claims = [{"family": s.key, **asdict(claim)} for s in page.sections for claim in s.claims]
    write_text(out / "claims.json", json.dumps({"title": page.title, "claims": claims}, indent=2) + "\n")
    path = out / PAGE_FILE
    write_text(path, rendered("experiment.html", {"page": page, "drawn": drawn, "counts": counts(page)}))
    return path


def counts(page: Page) -> list[tuple[str, int]]:
    """How many claims have each verdict; nothing where there is no claim."""
    found = Counter(claim.verdict for section in page.sections for claim in section.claims)
    return [(verdict, found[verdict]) for verdict in VERDICTS] if found else []


def _written(out: Path, section: Section, panel: Panel) -> _Drawn:
    stem = f"{section.key}/{panel.key}"
    with drawing.style():
        figure = drawing.draw(panel)
        vector, pixels = drawing.svg(figure), drawing.png(figure)
    write_text(out / f"{stem}.svg", vector)
    write_whole(out / f"{stem}.png", (pixels,), "whole", mode=0o666)
    write_text(out / f"{stem}.csv", drawing.table(panel))
    src = "data:image/svg+xml;base64," + base64.b64encode(vector.encode()).decode("ascii")
    files = tuple((end.upper(), f"{stem}.{end}") for end in ("svg", "png", "csv"))
    return _Drawn(panel, src, files)


def _markdown(page: Page) -> Iterator[str]:
    yield f"# {page.title}\n"
    yield page.lead + "\n"
    for section in page.sections:
        if section.lead:
            yield f"{section.title}: {section.lead}\n"
    if found := counts(page):
        yield ", ".join(f"{number} {verdict}" for verdict, number in found) + ".\n"
        yield "| claim | reading | verdict | measured | why |"
        yield "|---|---|---|---|---|"
    for section in page.sections:
        for claim in section.claims:
            yield _row((f"{claim.id}: {claim.text}", claim.reading, claim.verdict, claim.measured, claim.reason))
    for section in page.sections:
        for table in section.tables:
            yield f"\n## {section.title}: {table.title}\n"
            yield _row(table.heads)
            yield _row(["---"] * len(table.heads))
            yield from map(_row, table.rows)
            yield f"\n{table.caption}".rstrip()
    for section in page.sections:
        for line in section.pending:
            yield f"\n- {section.title}: {line}"
    yield f"\n{page.cite}"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
