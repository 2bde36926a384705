"""The architecture, checked: who imports whom, what is pure, what is lazy; each check is shown to be able to fail."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.structure import PACKAGE, Uses, circles, crowded, findings, hidden_tests

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / PACKAGE / "wire" / "gen"
SOURCES = sorted(p for p in (ROOT / PACKAGE).rglob("*.py") if GENERATED not in p.parents)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_LINES = {PACKAGE: 400, "tests": 600}
MAX_MODULES = 16
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    return subprocess.run([*command, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


# ---------------------------------------------------------------- the tree as it is
def test_no_module_breaks_a_rule() -> None:
    assert len(SOURCES) > 20
    assert [line for path in SOURCES for line in findings(module_of(path), path.read_text())] == []


def test_no_module_has_two_jobs() -> None:
    lines = {p.relative_to(ROOT): p.read_text().count("\n") for p in (*SOURCES, *TESTS)}
    assert {str(name): n for name, n in lines.items() if n > MAX_LINES[name.parts[0]]} == {}


def test_no_folder_has_two_rooms() -> None:
    assert crowded([module_of(p) for p in SOURCES if p.name != "__init__.py"], MAX_MODULES) == {}


def test_no_modules_import_each_other() -> None:
    assert circles({module_of(p): p.read_text() for p in SOURCES}) == []


def test_no_test_hides() -> None:
    assert {str(p.relative_to(ROOT)): f for p in TESTS if (f := hidden_tests(p.read_text()))} == {}


def test_import_contracts_hold() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


def test_what_starts_often_imports_little() -> None:
    heavy = ("absl", "fsspec", "jinja2", "matplotlib", "networkx", "numpy.ma", "rich", "scipy", "sklearn")
    heavy += ("tensorboard", "torch", "torchvision")
    code = f"""
import pathlib, sys
from dpgt_node import cli
assert cli.run(["--help"]) == 0
print(*[m for m in sys.modules if m.startswith("dpgt_node.cli.") or m == "numpy"])
from dpgt_node.runtime.agent import node, refusal
from dpgt_node.runtime.coordinator import serve
from dpgt_node.runtime.trust.channels import Security
assert not Security().secure
unused = ("cryptography.x509", "dpgt_node.learning.labelled", "dpgt_node.record.recording")
print(*[m for m in (*unused, "dpgt_node.runtime.agent.agreeing") if m in sys.modules])
from dpgt_node.cli.running import coordinator, node, nursery
for name in (*nursery.NODE, "dpgt_node.runtime.coordinator.serve"):
    __import__(name)
from dpgt_node import config
from dpgt_node.cli.common import check_startable
check_startable(config.parse_run(config.demo_toml(), "demo", pathlib.Path()), "demo", warn=False)
print(*[m for m in {heavy!r} if m in sys.modules])
print(*[m for m in sys.modules if m.startswith("dpgt_node.algo.methods.") or m == "dpgt_node.algo.theory"])
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    front, plain, daemons, methods = result.stdout.splitlines()[-4:]
    assert set(front.split()) == {
        f"dpgt_node.cli.{part}" for part in ("signals", "logs", "display", "lazy", "wrapping")
    }
    assert plain.split() == [], "without TLS, data or shared noise"
    assert daemons.split() == []
    assert set(methods.split()) == {f"dpgt_node.algo.methods.{part}" for part in ("base", "dpgt", "robust", "sums")}


# ---------------------------------------------------------------- mutants: each rule reports its breach
MUTANTS = [
    ("algo.graph", "import asyncio", "algo is pure, yet imports asyncio"),
    ("algo.graph", "from os import path", "algo is pure, yet imports os"),
    ("algo.graph", "def f():\n    import time", "algo is pure, yet imports time"),
    ("algo.graph", "import numpy as np\nx = np.random.default_rng(0)", "algo is pure, yet uses numpy.random"),
    ("algo.graph", "from numpy import random", "algo is pure, yet imports numpy.random"),
    ("algo.graph", "def f(p):\n    return open(p)", "algo is pure, yet uses open()"),
    ("privacy.sampler", "import secrets", "privacy is pure, yet imports secrets"),
    ("privacy.sampler", "from numpy.random import default_rng", "privacy is pure, yet imports numpy.random"),
    ("privacy.sampler", "import logging", "privacy is pure, yet imports logging"),
    ("privacy.sampler", "from pathlib import Path", "privacy is pure, yet imports pathlib"),
    ("protocol.agent", "import grpc", "protocol is pure, yet imports grpc"),
    ("protocol.agent", "import grpc", "grpc is imported outside wire and runtime"),
    ("protocol.agent", "import sqlite3", "protocol is pure, yet imports sqlite3"),
    ("protocol.agent", "import threading", "protocol is pure, yet imports threading"),
    ("protocol.agent", "print(1)", "protocol is pure, yet uses print()"),
    ("runtime.node", "import click", "click is imported outside cli"),
    ("runtime.node", "import torch", "torch is imported outside learning and adversary"),
    ("runtime.node", "from google.protobuf import message", "google is imported outside wire"),
    ("runtime.node", "from ..wire.gen.dpgt.v1 import agent_pb2", "dpgt_node.wire.gen is imported outside wire"),
    ("runtime.node", "from dpgt_node.wire import gen", "dpgt_node.wire.gen is imported outside wire"),
    ("runtime.node", "import os\nx = os.environ['HOME']", "os.environ is read outside cli"),
    ("runtime.node", "import os as o\nx = o.getenv('HOME')", "os.getenv is read outside cli"),
    ("runtime.node", "from sys import argv", "sys.argv is read outside cli"),
    ("record.summary", "import os\nos.replace('a', 'b')", "os.replace is used outside durable"),
    ("runtime.store", "from tempfile import mkstemp", "tempfile.mkstemp is used outside durable"),
    ("sim.world", "import sqlite3", "sqlite3 is imported outside runtime"),
    (
        "adversary.audit",
        "def f(law):\n    return law.sampler(None)",
        "an adversary draws no noise, yet uses sampler",
    ),
    ("adversary.audit", "def f(s):\n    return s[0].perturb(1)", "an adversary draws no noise, yet uses perturb"),
    ("learning.models", "import torch", "torch is imported when the module loads"),
    ("learning.models", "class A:\n    import torchvision.datasets", "torchvision is imported when the module loads"),
    ("learning.data", "import numpy as np\nnp.random.seed(0)", "numpy.random.seed uses numpy's global generator"),
    ("cli.demo", "import matplotlib.pyplot as plt", "matplotlib is imported outside report"),
    ("wire.codec", "import pickle", "pickle can run what it reads"),
    (
        "learning.data.pictures.sets",
        "import pickle\nx = pickle.loads(b'')",
        "pickle.loads: pickle can run what it reads",
    ),
    ("learning.data.pictures.sets", "from pickle import load", "pickle.load: pickle can run what it reads"),
    ("learning.models", "class A:\n    from pickle import Unpickler", "pickle.Unpickler: pickle can run what it reads"),
    ("runtime.store", "import marshal", "marshal can run what it reads"),
    ("runtime.store", "import shelve", "shelve can run what it reads"),
    ("config.declare.reader", "import yaml\nx = yaml.load('')", "yaml can run what it reads"),
    ("config.declare.reader", "x = eval('1')", "eval runs what it is given"),
    ("config.declare.reader", "exec('x = 1')", "exec runs what it is given"),
    ("wire.convert", "import builtins as b\nx = b.eval('1')", "builtins runs what it is given"),
    ("wire.convert", "x = __import__('os')", "__import__ runs what it is given"),
    ("wire.convert", "import importlib\nx = importlib.import_module(n)", "of a computed name outside cli"),
    ("report.files", "import numpy as np\nx = np.load('f')", "numpy.load without allow_pickle=False"),
    (
        "report.files",
        "import numpy as np\nx = np.load('f', allow_pickle=True)",
        "numpy.load without allow_pickle=False",
    ),
    (
        "report.files",
        "from numpy import load as l\nx = l('f', allow_pickle=0)",
        "numpy.load without allow_pickle=False",
    ),
    ("learning.models", "def f():\n    import torch\n    torch.load('f')", "torch.load without weights_only=True"),
]


@pytest.mark.parametrize(("module", "source", "expected"), MUTANTS)
def test_a_breach_is_reported(module: str, source: str, expected: str) -> None:
    assert any(expected in line for line in findings(f"{PACKAGE}.{module}", source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("algo.graph", "import math\nimport numpy as np\nimport networkx as nx\ntime = 3\nx = time"),
        ("protocol.agent", "from __future__ import annotations\nfrom dpgt_node.algo.graph import Topology"),
        ("privacy.keystream", "from cryptography.hazmat.primitives.ciphers import Cipher"),
        ("learning.models", "def f():\n    import torch\n    return torch.nn"),
        ("learning.models", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("learning.data", "import numpy as np\nx = np.random.default_rng(0).permutation(3)"),
        ("cli.main", "import os, click\nx = os.environ.get('DPGT_DATA')"),
        ("learning.tables", "import importlib\nx = importlib.import_module('pyarrow.csv')"),
        ("learning.data.pictures.sets", "import pickle\nclass A(pickle.Unpickler):\n    e = pickle.UnpicklingError"),
        ("report.files", "import numpy as np\nx = np.load('f', allow_pickle=False)\ny = np.loadtxt('f')"),
        ("learning.models", "def f():\n    import torch\n    torch.load('f', weights_only=True).eval()"),
        ("wire.generate", "import sys\nif __name__ == '__main__':\n    print(sys.argv)"),
        ("runtime.node", "import os, grpc, asyncio\nx = os.urandom(16)\nclass A:\n    random = 1"),
    ],
)
def test_what_is_allowed_is_not_reported(module: str, source: str) -> None:
    assert findings(f"{PACKAGE}.{module}", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\n@pytest.mark.skip\ndef test_a(): ...",
        "import pytest\n@pytest.mark.skipif(True, reason='')\ndef test_a(): ...",
        "from pytest import mark\n@mark.xfail\ndef test_a(): ...",
        "import pytest\ntorch = pytest.importorskip('torch')",
        "import pytest as p\ndef test_a():\n    p.skip('later')",
    ],
)
def test_a_hidden_test_is_reported(source: str) -> None:
    assert len(hidden_tests(source)) == 1


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"p.a": "import p.b", "p.b": "from p import a"}, [["p.a", "p.b"]]),
        (
            {"p.a": "from p.b import x", "p.b": "def f():\n    from p.c import y", "p.c": "import p.a"},
            [["p.a", "p.b", "p.c"]],
        ),
        ({"p": "from p.a import x", "p.a": "from p import y"}, [["p", "p.a"]]),
        ({"p.a": "import p.b", "p.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a"}, []),
        ({"p.a": "import p.b, p.c", "p.b": "import p.c", "p.c": "import os"}, []),
    ],
)
def test_a_circle_is_found(sources: dict[str, str], found: list[list[str]]) -> None:
    assert circles(sources) == found


def test_a_crowded_package_is_found() -> None:
    modules = [*(f"p.a.m{i}" for i in range(17)), *(f"p.b.m{i}" for i in range(16)), "p.a.c.n", "p"]
    assert crowded(modules, MAX_MODULES) == {"p.a": 17}


# One line appended to a copy of a module, and what import-linter must say.  All at once: one run is enough.
IMPORT_MUTANTS = {
    "algo/__init__.py": ("import dpgt_node.protocol.types", "dpgt_node.algo -> dpgt_node.protocol.types"),
    "protocol/__init__.py": ("import dpgt_node.learning", "dpgt_node.protocol -> dpgt_node.learning"),
    "sim/__init__.py": ("import dpgt_node.runtime", "dpgt_node.sim -> dpgt_node.runtime"),
    "privacy/__init__.py": ("import asyncio", "dpgt_node.privacy -> asyncio"),
    "record/__init__.py": ("import dpgt_node.report", "dpgt_node.record -> dpgt_node.report"),
    "report/__init__.py": ("import click", "dpgt_node.report -> click"),
    "algo/schedule.py": ("import dpgt_node.durable", "dpgt_node.algo.schedule -> dpgt_node.durable"),
    "api/__init__.py": ("import dpgt_node.runtime", "dpgt_node.api -> dpgt_node.runtime"),
    "agent/__init__.py": ("import torch", "dpgt_node.agent -> torch"),
    "config/__init__.py": ("import grpc", "dpgt_node.config -> grpc"),
    "adversary/__init__.py": (
        "import dpgt_node.privacy.laws.noise",
        "dpgt_node.adversary -> dpgt_node.privacy.laws.noise",
    ),
    "runtime/__init__.py": ("import dpgt_node.wire.gen", "dpgt_node.runtime -> dpgt_node.wire.gen"),
}


def copy_tree(folder: Path) -> Path:
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder / PACKAGE


def test_every_import_contract_can_fail(tmp_path: Path) -> None:
    package = copy_tree(tmp_path)
    for name, (line, _) in IMPORT_MUTANTS.items():
        with (package / name).open("a") as file:
            file.write(f"\n{line}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    said = re.sub(r"\s+", " ", result.stdout)
    assert [expected for _, expected in IMPORT_MUTANTS.values() if expected not in said] == []
    names = [contract["name"] for contract in PROJECT["tool"]["importlinter"]["contracts"]]
    assert [name for name in names if f"{name} BROKEN" not in said] == []


def test_a_module_without_a_layer_is_reported(tmp_path: Path) -> None:
    (copy_tree(tmp_path) / "helpers.py").write_text("")
    result = lint_imports(tmp_path)
    assert result.returncode == 1 and "helpers" in result.stdout


# ---------------------------------------------------------------- dependencies
def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[;~! ]", line)[0].lower().replace("_", "-") for line in requirements}


CORE = distributions(PROJECT["project"]["dependencies"])
EXTRAS = {name: distributions(lines) for name, lines in PROJECT["project"]["optional-dependencies"].items()}


def test_what_the_package_imports_is_what_it_depends_on() -> None:
    imported = {use.name.split(".")[0] for p in SOURCES for use in Uses(module_of(p), p.read_text()).imports}
    optional = {"dask", "distributed", "grpc_tools", "numba", "torch", "torchvision", "uvloop"}
    third_party = imported - set(sys.stdlib_module_names) - {PACKAGE} - optional
    owners = importlib.metadata.packages_distributions()
    used = distributions([owner for name in third_party for owner in owners.get(name, [name])])
    assert used - CORE == set(), "imported, but not a core dependency"
    assert CORE - used == set(), "a core dependency, but never imported"


def test_pip_ships_every_file_of_the_package() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    files = [p for p in (ROOT / PACKAGE).rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")]
    assert files and [str(p) for p in files if not any(p.match(pattern) for pattern in patterns)] == []
    assert all((ROOT / name).is_file() for name in PROJECT["project"]["license-files"])


def test_core_is_free_of_torch_and_everything_is_pinned() -> None:
    assert not {"torch", "torchvision"} & CORE
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    assert CORE.union({"setuptools"}, *EXTRAS.values()) - distributions(pins) == set()
