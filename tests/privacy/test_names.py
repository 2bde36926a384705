"""No name of an accountant, a law or a mechanism stands in the product outside the file that declares it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dpgt_node.config.vocabulary import ACCOUNTANTS as ACCOUNTANT_WORDS
from dpgt_node.config.vocabulary import LAWS as LAW_WORDS
from dpgt_node.privacy.accountants.accountant import Accountant
from dpgt_node.privacy.accountants.registry import (
    ACCOUNTANTS,
    APPROXIMATE,
    CONDITIONAL,
    EPSILONS,
    HEADLINE,
    PURE,
    SOUND,
)
from dpgt_node.privacy.laws.law import Law
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS, Mechanism

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"Accountant": set(ACCOUNTANTS), "Law": set(LAWS), "Mechanism": set(MECHANISMS)}
# Calls whose first argument, and mappings whose key, is an accountant's, a law's or a mechanism's name.
ASKED = ("cost", "total", "why_not", "largest_epsilon")
KEYED = ("ACCOUNTANTS", "LAWS", "MECHANISMS", "epsilon")
# The type of the run file's word.
MAY_NAME = {"types.py": set(LAWS)}


def sources() -> dict[str, str]:
    package = ROOT / "dpgt_node"
    found = {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.py"))}
    # A measurement writes run files of its own, in the run file's words.
    return {name: text for name, text in found.items() if not name.startswith(("wire/gen/", "bench/"))}


def breaches(files: Mapping[str, str]) -> list[str]:
    """Names outside their own file, values that no registry holds, and look-ups of names that nobody has.

    Each file is judged by itself.
    """
    registered = {name for names in KINDS.values() for name in names}
    out = []
    for file, text in files.items():
        tree = ast.parse(text)
        made = list(declarations(tree))
        for kind, name, line in made:
            if name not in KINDS[kind]:
                out.append(f"{file}:{line}: {kind} {name!r} is in no registry")
        allowed = {name for _, name, _ in made} | MAY_NAME.get(file, set())
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in registered - allowed:
                out.append(f"{file}:{node.lineno}: {node.value!r} is named outside its own file")
        for name, line in looked_up(tree):
            if name not in registered:
                out.append(f"{file}:{line}: nothing is called {name!r}")
    return out


def declarations(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield node.func.id, str(first.value), node.lineno


def looked_up(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKED:
            keys = node.args[:1]
        elif isinstance(node, ast.Subscript):
            of = node.value
            name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
            keys = [node.slice] if name in KEYED else []
        else:
            continue
        for key in keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, node.lineno


def test_nobody_asks_for_a_name() -> None:
    assert breaches(sources()) == []


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        ("agent/policy.py", "SECRET = 'gdp'", "'gdp' is named outside its own file"),
        ("privacy/accountants/tight.py", "x = 'amplified'", "'amplified' is named outside its own file"),
        ("sim/fast.py", "def f(run): return run.noise.law == 'gaussian'", "'gaussian' is named outside its own file"),
        ("config/run.py", "NAMES = {'noise-once': 1}", "'noise-once' is named outside its own file"),
        ("report/publishing/export.py", "def f(m): return m in ('public-state',)", "'public-state' is named outside"),
        ("record/recorder.py", "def f(a): return a.total('renyi')", "nothing is called 'renyi'"),
        ("record/recorder.py", "x = ACCOUNTANTS['renyi']", "nothing is called 'renyi'"),
        ("privacy/accountants/zcdp.py", "RENYI = Accountant('renyi', 'Renyi', 'rho')", "'renyi' is in no registry"),
        ("privacy/laws/laplace.py", "STUDENT = Law('student', 'Student')", "'student' is in no registry"),
        ("privacy/mechanisms.py", "NEW = Mechanism('momentum', None, '')", "'momentum' is in no registry"),
    ],
)
def test_a_name_out_of_place_is_found(file: str, line: str, expected: str) -> None:
    found = breaches({file: f"{sources()[file]}\n{line}\n"})
    assert len(found) == 1 and expected in found[0] and found[0].startswith(f"{file}:")


def test_the_run_file_knows_the_registered_ones() -> None:
    assert ACCOUNTANT_WORDS.built == EPSILONS == tuple(ACCOUNTANTS)[:-1], "no budget is counted in deltas alone"
    assert tuple(LAWS) == LAW_WORDS == ("laplace", "gaussian")
    for registry, kind in ((ACCOUNTANTS, Accountant), (LAWS, Law), (MECHANISMS, Mechanism)):
        assert all(isinstance(one, kind) and one.name == name for name, one in registry.items())


def test_who_is_sound_and_who_needs_a_delta() -> None:
    assert tuple(ACCOUNTANTS) == (
        "lemma5",
        "corrected",
        "tight",
        "amplified",
        "zcdp",
        "gdp",
        "binomial",
        *CONDITIONAL[1:],
    )
    assert PURE == ("corrected", "tight", "amplified") and APPROXIMATE == ("zcdp", "gdp", "binomial")
    assert (
        SOUND == PURE + APPROXIMATE
        and CONDITIONAL == ("lemma5", "same-point", "variation")
        and set(HEADLINE) == set(SOUND)
    )
    assert [one.name for one in ACCOUNTANTS.values() if one.any_batches] == ["tight", "binomial"]
    assert LAWS["laplace"].admits == {"epsilon", "rho"} and LAWS["gaussian"].admits == {"rho", "mu"}


def test_an_adversary_that_knows_every_law_loads_no_sampler() -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        "import dpgt_node.adversary as package\n"
        "for found in pkgutil.walk_packages(package.__path__, 'dpgt_node.adversary.'):\n"
        "    importlib.import_module(found.name)\n"
        "from dpgt_node.privacy.laws.registry import LAWS\n"
        "def loaded(): return {m.rpartition('.')[2] for m in sys.modules if m.startswith('dpgt_node.privacy.laws.')}\n"
        "drawing = {'grid_sampler', 'gaussian_sampler', 'keystream', 'selftest'}\n"
        "assert 'registry' in loaded() and not drawing & loaded(), drawing & loaded()\n"
        "for law in LAWS.values(): law.sampler(None)\n"
        "assert {'grid_sampler', 'gaussian_sampler'} <= loaded()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
