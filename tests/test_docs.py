"""The documentation is true: what it names exists, what the code cites is there, commands parse, the tutorial runs.

Each check is shown to be able to fail.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import click
import pytest

from dpgt_node.cli import dpgt
from dpgt_node.errors import DpgtError
from tests.e2e import processes

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
HIDDEN = {"build", "dist", "node_modules", "runs"}
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in HIDDEN for part in path.relative_to(ROOT).parts)
)
SOURCES = sorted(p for folder in ("dpgt_node", "tests", "examples") for p in (ROOT / folder).rglob("*.py"))
README_LINES, COLUMNS = 120, 120

TEST = re.compile(r"\btests/[\w/]+\.py(?:::\w+)*")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
IMPORTED = re.compile(r"((?:`\w+`(?:, | and )?)+) of `(dpgt_node(?:\.\w+)*)`")
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
CITED = re.compile(
    r"(?<![\w./-])((?:[a-z_-]+/)*[a-z][a-z-]*\.md)"
    r"(?:, (?:sections? )?(\d+(?:(?:, | and | to |-)\d+)*)|, \"([^\"]+)\"|, theorem (\d+))?"
)
NAMED_FILE = re.compile(r"ave this as `([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
SEPARATORS = {">", "|", "&", ";", "&&"}


# ---------------------------------------------------------------- what a page names
@cache
def definitions(path: Path) -> frozenset[str]:
    """Names that ``path::name`` may end in: functions and classes of a test module, methods as ``Class::method``."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            found.update(f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef))
    return frozenset(found)


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ +(.*?) *#*$", FENCE.sub("", text), re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Of the headings, as they are linked to."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(text)}


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
    for names, module in IMPORTED.findall(" ".join(text.split())):
        for name in re.findall(r"`(\w+)`", names):
            found = getattr(importlib.import_module(module), name, None)
            if found is None or isinstance(found, ModuleType):
                out.append(f"{module}.{name}")
    return out


def missing_paths(text: str) -> list[str]:
    """Files and folders of the repository, named in a code span or a command, that are not there."""
    named = re.findall(r"(?<![\w/.-])((?:dpgt_node|tests|examples|deploy|proto)/[\w./*@-]*\w)", text)
    return sorted({name for name in named if not any(ROOT.glob(name))})


def long_lines(text: str) -> list[str]:
    """Lines above the limit; rows of tables cannot be broken, nor can a line that is one word."""
    rows = re.compile(r" *\|[ -]")
    return [line for line in text.splitlines() if len(line) > COLUMNS and not rows.match(line) and " " in line.strip()]


# ---------------------------------------------------------------- what the code cites
def broken_citations(source: str) -> list[str]:
    """Pages and sections that a comment, docstring or message names and that are not there.

    ``docs/folder/page.md`` is a path from the root, ``page.md`` alone the one page of that name.
    """
    by_name = {page.name: page for page in PAGES if DOCS in page.parents and page.name != "README.md"}
    out = []
    for match in CITED.finditer(re.sub(r"\s*\n\s*(?:# ?)?", " ", source.replace("``", ""))):
        path, numbers, heading, theorem = match.groups()
        page = ROOT / path if "/" in path else by_name.get(path)
        if page is None or not page.is_file():
            out.append(match[0])
            continue
        text = page.read_text()
        numbered = {int(n) for n in re.findall(r"^#+ +(\d+)\. ", text, re.MULTILINE)}
        wanted = {int(n) for n in re.findall(r"\d+", numbers or "")}
        missing_heading = heading is not None and heading not in headings(text)
        if not wanted <= numbered or missing_heading or (theorem and f"**Theorem {theorem}" not in text):
            out.append(match[0])
    return out


# ---------------------------------------------------------------- commands
def block_commands(text: str) -> Iterator[list[str]]:
    """Arguments of every ``dpgt`` in shell blocks, up to a pipe, a redirection or an &."""
    for _, language, body in BLOCK.findall(text):
        if language in ("", "sh", "bash"):
            for line in body.replace("\\\n", " ").splitlines():
                yield from _commands(line)


def shown_commands(text: str) -> Iterator[list[str]]:
    """As :func:`block_commands`, and those of code spans."""
    yield from block_commands(text)
    for line in re.findall(r"`(dpgt [^`]*)`", " ".join(FENCE.sub("", text).split())):
        yield from _commands(line)


def _commands(line: str) -> Iterator[list[str]]:
    if "dpgt " not in line or line.lstrip().startswith("#"):
        return
    words = shlex.split(line, comments=True)
    for at in [i for i, word in enumerate(words) if word == "dpgt"]:
        if at and not re.search(r"[$=]|^[|&;-]+$", words[at - 1]):
            continue  # a name that is dpgt, as in `kubectl create namespace dpgt`
        rest = words[at + 1 :]
        end = next((i for i, word in enumerate(rest) if word in SEPARATORS), len(rest))
        if end:
            yield [word.strip("[](),") if "[" in line or "(" in line else word for word in rest[:end]]


def wrong_command(words: list[str]) -> str | None:
    """What is wrong with ``dpgt WORDS``: no such verb or option; where nothing is left out, what is missing, too."""
    command: click.Command = dpgt
    context = click.Context(command, info_name="dpgt")
    words = [word for word in words if word]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return None if words[0].isupper() else f"no command {words[0]}"
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    options = {name: p for p in command.get_params(context) for name in (*p.opts, *p.secondary_opts)}
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in options:
            return f"{command.name} has no option {name}"
    for name, value in pairwise(words):
        parameter = options.get(name)
        if parameter is not None and isinstance(parameter.type, click.Choice):
            unknown = set(value.split("|")) - set(parameter.type.choices)
            if unknown and value.islower():
                return f"{command.name} {name} is none of {parameter.type.choices}: {value}"
    return None


def unparsed_command(words: list[str]) -> str | None:
    """Why ``dpgt WORDS``, typed as it stands, would not begin: the command's own parser says it; nothing is carried
    out.
    """
    command: click.Command = dpgt
    context = click.Context(command, info_name="dpgt")
    if "..." in words:  # a synopsis
        return wrong_command(words)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return f"no command {words[0]}"
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    try:
        command.make_context(command.name, list(words), parent=context.parent)
    except click.exceptions.Exit:  # --help
        return None
    except click.ClickException as error:
        return f"{command.name}: {error.format_message()}"
    except DpgtError as error:
        return f"{command.name}: {error}"
    return None


def missing_targets(text: str) -> list[str]:
    """Targets of the Makefile that a shell block names and that are not there."""
    known = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    bodies = [body for _, language, body in BLOCK.findall(text) if language in ("", "sh", "bash")]
    return [name for body in bodies for name in re.findall(r"^make ([a-z0-9-]+)", body, re.M) if name not in known]


# ---------------------------------------------------------------- the tree as it is
@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert missing_tests(text) == []
    assert missing_names(text) == []
    assert missing_paths(text) == []
    assert broken_links(page, text) == []
    assert [problem for words in shown_commands(text) if (problem := wrong_command(words))] == []
    assert long_lines(text) == []


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_every_command_of_a_shell_block_begins_as_it_stands(page: Path) -> None:
    text = page.read_text()
    assert [problem for words in block_commands(text) if (problem := unparsed_command(words))] == []
    assert missing_targets(text) == []


def test_the_pages_that_state_theorems_name_their_tests() -> None:
    for name, least in (("theory.md", 50), ("theory-sampler.md", 30)):
        assert len(set(TEST.findall((DOCS / "explanation" / name).read_text()))) >= least


def test_the_readme_is_short_and_holds_the_commands_of_continuous_integration() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= README_LINES
    for target in ("demo", "test"):
        assert f"\nmake {target} " in text
        assert re.search(rf"^(timeout .*)?make (--\S+ )?{target}\b", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_pages_have_names_of_their_own_and_are_in_the_index() -> None:
    pages = [page for page in PAGES if DOCS in page.parents and page.name != "README.md"]
    assert len({page.name for page in pages}) == len(pages)
    index = DOCS / "README.md"
    linked = {(index.parent / a.partition("#")[0]).resolve() for a, _ in LINK.findall(index.read_text())}
    assert [str(page) for page in pages if page not in linked] == []


def import_order(page: str) -> list[set[str]]:
    """The layers that the architecture page shows, top first."""
    (block,) = [body for _, _, body in BLOCK.findall(page) if body.startswith("cli | api -> ")]
    return [{name.strip() for name in layer.split("|")} for layer in block.split("->")]


def test_the_architecture_page_shows_the_packages_and_their_order() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    bare = [re.sub(r"[()]", "", layer) for layer in layers]
    assert import_order(page) == [{name.strip() for name in layer.split("|")} for layer in bare if layer != "__main__"]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set().union(*import_order(page))
    assert import_order(page.replace("protocol | learning", "learning")) != import_order(page)


def test_what_the_code_cites_is_there() -> None:
    cited = [p for p in SOURCES if p != Path(__file__) and CITED.search(p.read_text())]
    assert len(cited) >= 25
    assert {str(p.relative_to(ROOT)): bad for p in cited if (bad := broken_citations(p.read_text()))} == {}


@pytest.mark.e2e
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    """Every file saved and every command typed from step 2 on; what the page shows of their output is what they say."""
    tutorial = "\n## 2." + (DOCS / "tutorial.md").read_text().split("\n## 2.")[1]
    tools, folder = tmp_path / "bin", tmp_path / "patients"
    tools.mkdir()
    folder.mkdir()
    for name, module in (("dpgt", "-m dpgt_node "), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        (tools / name).chmod(0o755)
    for name, text in NAMED_FILE.findall(tutorial):
        (folder / name).write_text(text)
    blocks = BLOCK.findall(tutorial)
    script = "set -e\n" + "".join(body for _, language, body in blocks if language == "sh")
    environment = {**processes.environment(), "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=5 * processes.LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    said = masked(done.stdout + done.stderr + (folder / "private.toml").read_text())
    for _, language, body in blocks:
        if language == "text":
            assert [line for line in body.splitlines() if masked(line) not in said] == []
    accuracy = re.search(r"test: accuracy ([\d.]+) %", done.stdout)
    assert accuracy is not None and float(accuracy[1]) > 70.0
    assert "epsilon 1 (strong), delta 1e-05" in (folder / "model" / "PRIVACY.md").read_text()
    assert "class\n2\n" in done.stdout


def masked(text: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"\d[\d.,]*", "#", text)


# ---------------------------------------------------------------- mutants: each check reports its breach
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
    assert sound in " ".join((DOCS / "howto" / "audit.md").read_text().split())
    wrong = f"`Replay`, `log_ratio` and\n`witness` of `{audit}` take"
    assert len(missing_names(wrong)) == 3


@pytest.mark.parametrize(
    "text",
    [
        "[a](nothing.md)",
        "![a](nothing.svg)",
        "[a](README.md#nothing)",
        "[a](LICENSE#x)",
        "[a](../elsewhere.md)",
        "[a\nb](nothing.md)",
    ],
)
def test_a_link_to_nowhere_is_noticed(text: str) -> None:
    assert broken_links(ROOT / "README.md", text)
    sound = "[a](LICENSE) [b](https://example.org) [c](docs/explanation/theory.md#1-definitions)"
    assert not broken_links(ROOT / "README.md", sound)


def test_a_path_that_is_not_there_is_noticed() -> None:
    assert missing_paths("`dpgt_node/nothing.py`, then python examples/nothing.py") == [
        "dpgt_node/nothing.py",
        "examples/nothing.py",
    ]
    assert missing_paths("`dpgt_node/cli/`, [x](../examples/rates.py), https://example.org/tests/x") == []


def test_a_long_line_is_noticed() -> None:
    row, word = "| " + "x " * COLUMNS + "|", "x" * 2 * COLUMNS
    assert long_lines(f"{row}\n{word}\n{'x ' * (COLUMNS // 2)}") == []
    assert len(long_lines("x " * COLUMNS)) == 1
    assert len(long_lines("    ||x|| = " + "1 + " * COLUMNS)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "(privacy.md, section 99)",
        "(privacy.md, 1-44)",
        "(privacy.md, sections 1 and 99)",
        "(privacy.md, sections 1 to 99)",
        "# as in privacy.md,\n    # section 99",
        "(docs/privacy.md, section 1)",
        "(docs/nothing.md)",
        "nothing.md says so",
        '(algorithm.md, "Nothing")',
        "(theory.md, theorem 99)",
    ],
)
def test_a_citation_of_nothing_is_noticed(source: str) -> None:
    assert broken_citations(source)
    sound = """(privacy.md, section 2) (privacy.md, 1-4) (privacy.md, sections 1 to 4) (algorithm.md, "Objectives")
    (theory.md, theorem 1); see ``docs/explanation/privacy.md``, section 3; PRIVACY.md is a file of an export"""
    assert broken_citations(sound) == []


@pytest.mark.parametrize(
    "line",
    [
        "dpgt lunch run.toml",
        "dpgt launch run.toml --output runs",
        "host$ dpgt pki initialise run.toml",
        "dpgt status --format yaml",
        "x | dpgt eavesdrop decode - --outfile a",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    (words,) = shown_commands(f"```\n{line}\n```\n")
    assert wrong_command(words)
    for sound in ("dpgt plan run.toml --epsilon 1 > private.toml", "host$ dpgt node --config NODE.toml &"):
        (words,) = shown_commands(f"```sh\n{sound}\n```\n")
        assert wrong_command(words) is None and unparsed_command(words) is None


@pytest.mark.parametrize("line", ["dpgt launch private.toml", "dpgt export --out model", "dpgt evaluate model more"])
def test_a_command_that_lacks_something_is_noticed(line: str) -> None:
    (words,) = shown_commands(f"```sh\n{line}\n```\n")
    assert wrong_command(words) is None
    assert unparsed_command(words)


def test_what_is_misspelt_on_a_page_is_noticed() -> None:
    text = (ROOT / "README.md").read_text()
    sound = list(block_commands(text))
    assert len(sound) >= 10 and not any(map(unparsed_command, sound))
    for word, wrong in (
        ("--epsilon", "--epsilom"),
        ("--agents 3", "--agents three"),
        ("--data new.csv", ""),
        ("dpgt eavesdrop attack", "dpgt eavesdrop atack"),
        ("dpgt export runs/first", "dpgt export"),
    ):
        broken = list(block_commands(text.replace(word, wrong)))
        assert len(list(filter(None, map(unparsed_command, broken)))) == 1, word
    assert missing_targets(text) == [] and missing_targets(text.replace("make demo ", "make demos ")) == ["demos"]
    assert list(block_commands("```\nkubectl create namespace dpgt && x\nA=b dpgt | source\n```\n")) == []
