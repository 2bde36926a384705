"""What the documentation names exists: tests, files, headings; each check is shown to be able to fail."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
HIDDEN = {"build", "dist", "node_modules", "runs"}
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in HIDDEN for part in path.relative_to(ROOT).parts)
)
TEST = re.compile(r"\btests/[\w/]+\.py(?:::\w+)*")
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
IMPORTED = re.compile(r"((?:`\w+`(?:, | and )?)+) of `(dpgt_node(?:\.\w+)*)`")
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)


@cache
def definitions(path: Path) -> frozenset[str]:
    """Names that ``path::name`` may end in: functions and classes of a test module, methods as ``Class::method``."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            found.update(f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef))
    return frozenset(found)


def anchors(text: str) -> set[str]:
    """Of the headings, as they are linked to."""
    headings = re.findall(r"^#+ +(.*?) *#*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def missing_tests(text: str) -> list[str]:
    out = []
    for name in TEST.findall(text):
        path, _, test = name.partition("::")
        if not (ROOT / path).is_file() or (test and test not in definitions(ROOT / path)):
            out.append(name)
    return out


def broken_links(page: Path, text: str) -> list[str]:
    out = []
    for pair in LINK.findall(FENCE.sub("", text)):
        link = pair[0] or pair[1]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        here = target.exists() and target.is_relative_to(ROOT)
        if not here or (anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text()))):
            out.append(link)
    return out


def missing_names(text: str) -> list[str]:
    """``module.name`` for every "`Name` and `name` of `dpgt_node.module`" that cannot be imported so."""
    out = []
    for names, module in IMPORTED.findall(text):
        for name in re.findall(r"`(\w+)`", names):
            found = getattr(importlib.import_module(module), name, None)
            if found is None or isinstance(found, ModuleType):
                out.append(f"{module}.{name}")
    return out


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert missing_tests(text) == []
    assert missing_names(text) == []
    assert broken_links(page, text) == []


def test_the_pages_that_state_theorems_name_their_tests() -> None:
    for name, least in (("theory.md", 50), ("theory-sampler.md", 30)):
        assert len(set(TEST.findall((ROOT / "docs" / name).read_text()))) >= least


@pytest.mark.parametrize(
    "text",
    [
        "`tests/test_docs.py::test_of_nothing`",
        "tests/privacy/test_nothing.py",
        "`tests/test_docs.py::definitions::inner`",
    ],
)
def test_a_test_that_is_not_there_is_noticed(text: str) -> None:
    assert missing_tests(text)
    assert not missing_tests("`tests/test_docs.py::test_a_test_that_is_not_there_is_noticed`")


def test_a_name_that_cannot_be_imported_is_noticed() -> None:
    audit = "dpgt_node.adversary.audit"
    sound = f"`Replay` of `{audit}.replay`, `log_ratio` and `witness` of `{audit}.witness`"
    assert missing_names(sound) == []
    assert sound in (ROOT / "docs" / "audit.md").read_text()
    wrong = f"`Replay`, `log_ratio` and `witness` of `{audit}` take"
    assert len(missing_names(wrong)) == 3


@pytest.mark.parametrize(
    "text",
    ["[a](nothing.md)", "![a](nothing.svg)", "[a](README.md#nothing)", "[a](LICENSE#x)", "[a](../elsewhere.md)"],
)
def test_a_link_to_nowhere_is_noticed(text: str) -> None:
    assert broken_links(ROOT / "README.md", text)
    sound = "[a](LICENSE) [b](https://example.org) [c](docs/theory.md#1-definitions)"
    assert not broken_links(ROOT / "README.md", sound)
