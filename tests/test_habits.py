"""CITATION.cff says what the package says; CONTRIBUTING.md names what there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

import dpgt_node

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIRED = {"authors", "cff-version", "message", "title"}
KNOWN = REQUIRED | {"abstract", "keywords", "license", "references", "type", "version"}
"""Of Citation File Format 1.2.0; further keys of the format come in here with their first use."""


def problems(cited: dict[str, Any]) -> list[str]:
    """What the format, version 1.2.0, refuses."""
    found = [f"no {key}" for key in REQUIRED - set(cited)] + [f"unknown {key}" for key in set(cited) - KNOWN]
    found += [key for key in ("title", "message", "version", "license") if not isinstance(cited.get(key, ""), str)]
    found += ["cff-version"] if cited.get("cff-version") != "1.2.0" else []
    found += ["type"] if cited.get("type", "software") not in ("software", "dataset") else []
    works = [cited, *cited.get("references", [])]
    for author in [author for work in works for author in work.get("authors", [])]:
        entity, person = set(author) <= {"name", "website"}, set(author) <= {"family-names", "given-names", "orcid"}
        found += [] if author and (entity or person) else [f"author {author}"]
    found += ["an empty list of authors" for work in works if not work.get("authors")]
    found += [f"reference without {key}" for work in works[1:] for key in ("title", "type") if key not in work]
    return found


def test_the_citation_is_well_formed_and_agrees_with_the_package() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert problems(cited) == []
    assert cited["version"] == dpgt_node.__version__
    assert cited["license"] == PROJECT["project"]["license"]
    assert cited["authors"] == PROJECT["project"]["authors"]
    assert set(cited["keywords"]) <= set(PROJECT["project"]["keywords"])
    assert cited["references"][0]["title"] in " ".join((ROOT / "README.md").read_text().split())


def test_a_citation_that_is_not_well_formed_is_noticed() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    for change in ({"authors": []}, {"cff-version": 1.2}, {"doi-number": "1"}, {"authors": [{"names": "x"}]},
                   {"version": 0.1}, {"references": [{"authors": [{"name": "x"}]}]}):  # fmt: skip
        assert problems(cited | change) != [], change
    assert problems({key: value for key, value in cited.items() if key != "title"}) != []


def test_the_tiers_that_contributors_are_told_of_are_those_of_the_makefile() -> None:
    text, makefile = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "Makefile").read_text()
    told = set(re.findall(r"make ([a-z0-9-]+)", text))
    assert told <= set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    marked = {line.partition(":")[0] for line in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    assert {name for name in marked if name.isalpha()} <= told | {name.removesuffix("-check") for name in told}
