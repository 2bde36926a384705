"""A real disk that fills up, goes read-only and comes back under a running launch (root: mounts a small tmpfs)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpgt_node.errors import StoreError
from dpgt_node.runtime.store.ledger import read_ledger
from tests.e2e.processes import Launch, asked, eventually, quadratic, same_bits

pytestmark = pytest.mark.hosts

KEY = "5d"
AGENT = "agent-2"
DISK_BYTES = 64 << 20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Vectors of 160 kB, so that a few rounds fill what is left of the disk."""
    path = tmp_path / "run.toml"
    path.write_text(quadratic(3, K=100).replace("dimension = 3", "dimension = 20000"), encoding="utf-8")
    return path


@pytest.fixture
def mounted() -> Iterator[list[Path]]:
    """Mount points to be unmounted at the end."""
    points: list[Path] = []
    yield points
    for point in points:
        subprocess.run(["umount", "-l", point], check=True)


def released(out: Path) -> int:
    """The agent's last round; -1 while its database is not there or not whole yet."""
    with contextlib.suppress(StoreError):
        entries = read_ledger(out / "agents" / AGENT / "state").entries
        return entries[-1].row.k if entries else -1
    return -1


def test_full_then_read_only_then_well(tmp_path: Path, run: Path, mounted: list[Path]) -> None:
    out = tmp_path / "out"
    arguments = ("launch", run, "--test-keystream", KEY)
    state = out / "agents" / AGENT / "state"
    log = out / "agents" / AGENT / "node.log"

    with Launch(out, *arguments) as launch:
        eventually("some rounds", lambda: released(out) > 3)
        launch.process.terminate()
        assert launch.wait() == 5, launch.said

    shutil.copytree(state, tmp_path / "kept")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", state], check=True)
    mounted.append(state)
    shutil.copytree(tmp_path / "kept", state, dirs_exist_ok=True)

    filler = state / "filler"
    free = os.statvfs(state).f_bavail * os.statvfs(state).f_frsize
    filler.write_bytes(bytes(free - (1 << 20)))
    with Launch(out, *arguments) as launch:  # too small from the start
        assert launch.wait() == 2, launch.said
        assert "MB are free" in launch.said and "needs" in launch.said and str(state) in launch.said
    filler.unlink()

    before = released(out)
    with Launch(out, *arguments) as launch:
        eventually("it goes on", lambda: released(out) > before + 2)
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:  # somebody else takes what is left
                file.write(bytes(1 << 16))
        assert launch.wait() == 2, launch.said
        assert f"{AGENT}: cannot use its state directory; its own log says more" in launch.said
        assert "the disk is full: free some space, then start the same command again" in log.read_text()
    filler.unlink()

    subprocess.run(["mount", "-o", "remount,ro", state], check=True)
    with Launch(out, *arguments) as launch:
        assert launch.wait() == 2, launch.said
        assert "the file system is read-only: mount it writable" in launch.said + log.read_text()
    subprocess.run(["mount", "-o", "remount,rw", state], check=True)

    assert released(out) < 100
    with Launch(out, *arguments) as launch:
        assert launch.wait() == 0, launch.said
    assert asked("simulate", run, "--out", tmp_path / "simulated", "--test-keystream", KEY).returncode == 0
    same_bits(out, tmp_path / "simulated")
