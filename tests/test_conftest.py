"""The check for processes left behind finds one, a grandchild included, and leaves none itself."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from tests import conftest

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
# The parent exits at once; only a subreaper still sees the sleeper.
ORPHAN = [
    sys.executable,
    "-c",
    f"import subprocess; print(subprocess.Popen({SLEEPER!r}, stdout=subprocess.DEVNULL).pid)",
]


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "EXIT_GRACE_S", 0.2)


def test_child_left_behind_is_named_and_ended() -> None:
    with conftest.children_reaped() as left:
        child = subprocess.Popen(SLEEPER)
    assert left == [f"{child.pid}: {' '.join(SLEEPER)}"]
    assert not psutil.pid_exists(child.pid)
    child.wait(timeout=10)


def test_orphan_left_behind_is_named_and_ended() -> None:
    with conftest.children_reaped() as left:
        pid = int(subprocess.run(ORPHAN, stdout=subprocess.PIPE, check=True, text=True).stdout)
    assert left == [f"{pid}: {' '.join(SLEEPER)}"]
    assert not psutil.pid_exists(pid)


def test_processes_that_exited_are_no_finding() -> None:
    with conftest.children_reaped() as left:
        subprocess.run([sys.executable, "-c", ""], check=True)
    assert left == []
