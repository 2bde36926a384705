"""The audit part of ``report.html``: ``DIR/adversary/audit.json``, written by ``dpgt eavesdrop audit --out``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpgt_node import figures
from dpgt_node.documents import read_json
from dpgt_node.errors import ConfigError
from dpgt_node.values import dataclass

FILE = "adversary/audit.json"
KINDS = {"refuted": "bad"}
"""Class in the style sheet by verdict."""


@dataclass(frozen=True, slots=True)
class Line:
    """One question or claim.  ``kind``: "bad" where it is refuted."""

    agent: str
    check: str
    question: str
    verdict: str
    kind: str
    answer: str


@dataclass(frozen=True, slots=True)
class Section:
    """What audit.html shows, refuted lines first."""

    lines: Sequence[Line]

    @property
    def refuted(self) -> int:
        return sum(line.kind == "bad" for line in self.lines)


def load(out_dir: Path) -> Mapping[str, Any] | None:
    """The document as it is; None: there is none.  ConfigError: it cannot be read."""
    path = out_dir / FILE
    if not path.exists():
        return None
    try:
        document: Mapping[str, Any] = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError.one(str(path), "", f"no results of an audit: {error}") from error
    return document


def section(document: Mapping[str, Any]) -> Section:
    """ConfigError: the document is damaged."""
    try:
        lines = [_finding(one) for one in document["findings"]] + [_claim(one) for one in document["claims"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError.one(FILE, "", f"no results of an audit: {error!r}") from error
    return Section(sorted(lines, key=lambda line: line.kind != "bad"))


def _finding(one: Mapping[str, Any]) -> Line:
    chance = "" if one["p"] is None else f" (p = {figures.number(float(one['p']), 2)})"
    verdict = str(one["verdict"])
    return Line(
        str(one["agent"]),
        str(one["check"]),
        str(one["question"]),
        verdict,
        KINDS.get(verdict, ""),
        f"{one['text']}{chance}",
    )


def _claim(one: Mapping[str, Any]) -> Line:
    verdict = str(one["verdict"])
    claimed, realised = (_number(one[key]) for key in ("claimed", "realised"))
    answer = f"claimed {claimed}, measured {realised}" + (f"; {one['note']}" if one["note"] else "")
    return Line(str(one["agent"]), "claim", str(one["accountant"]), verdict, KINDS.get(verdict, ""), answer)


def _number(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else figures.number(float(str(value)), 4)
