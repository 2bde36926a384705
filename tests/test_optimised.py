"""``python -O`` would take away the checks that guard a release: it is refused wherever a release could begin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpgt_node.errors import Broken, ExitCode, invariant

ROOT = Path(__file__).resolve().parents[1]
LINE = "python -O and PYTHONOPTIMIZE take away checks that guard a release: run Python without them"


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("verb", ["launch", "node", "coordinator", "simulate", "demo"])
def test_the_command_refuses_in_one_line(verb: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = python("-O", "-m", "dpgt_node", verb, "examples/demo.toml", "--out", str(out))
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.CONFIG, "", f"dpgt {verb}: {LINE}\n")
    assert not out.exists()


@pytest.mark.parametrize("level", ["1", "2"])
def test_the_environment_is_refused_too(level: str, tmp_path: Path) -> None:
    """As launch's children would find it: they run ``-m dpgt_node`` and inherit the environment."""
    done = python("-m", "dpgt_node", "node", "--config", str(tmp_path / "n.toml"), PYTHONOPTIMIZE=level)
    assert (done.returncode, done.stderr) == (ExitCode.CONFIG, f"dpgt node: {LINE}\n")


@pytest.mark.parametrize("package", ["agent", "protocol", "privacy.laws.keystream", "runtime.launch", "sim"])
def test_the_release_path_cannot_be_imported(package: str) -> None:
    done = python("-O", "-c", f"import dpgt_node.{package}")
    assert done.returncode == 1 and done.stderr.rstrip().endswith(f"ImportError: {LINE}")
    assert python("-c", f"import dpgt_node.{package}").returncode == 0


def test_a_broken_invariant_is_raised_under_optimisation() -> None:
    code = "from dpgt_node.errors import invariant; assert False; invariant(False, 'a round is drawn once')"
    done = python("-O", "-c", code)
    assert done.returncode == 1 and "Broken: a round is drawn once" in done.stderr


def test_a_broken_invariant_is_a_bug_and_nobodys_clean_end() -> None:
    with pytest.raises(Broken, match="once"):
        invariant(False, "a round is drawn once")
    invariant(True, "")
