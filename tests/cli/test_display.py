"""Printing never ends a run: other encodings, a full disk, a reader that leaves, a terminal that is closed."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest
import tomli_w

from dpgt_node.cli import display
from tests.cli import documents
from tests.e2e import processes

NAME = "quädratic – ε"
FULL = Path("/dev/full")


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(tomli_w.dumps({**documents.quadratic(2, 3), "name": NAME}), encoding="utf-8")
    return path


def dpgt(*arguments: object, redirect: str = "", **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A real command with its output in a pipe or, by ``redirect``, where a shell sends it."""
    line = ["bash", "-c", f'"$@" {redirect}', "-", *processes.command(*arguments)]
    environment = {**processes.environment(), **variables}
    return subprocess.run(line, env=environment, capture_output=True, timeout=processes.LIMIT_S, check=False)


@pytest.mark.parametrize("encoding", ["ascii:strict", "cp1252"])
def test_a_terminal_that_lacks_characters_gets_stand_ins(encoding: str, run_file: Path, tmp_path: Path) -> None:
    done = dpgt("simulate", run_file, "--out", tmp_path / "out", PYTHONIOENCODING=encoding, COLUMNS="0", LINES="0")
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode(encoding.partition(":")[0])
    assert "agent-1" in shown and "Report: " in shown
    assert (tmp_path / "out" / "report.html").exists()


def test_ascii_reads_like_what_it_stands_for(run_file: Path) -> None:
    done = dpgt("check", run_file, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stdout.startswith(b"quadratic - epsilon: 2 agents")


@pytest.mark.parametrize(
    ("text", "ascii_"), [("–", "-"), ("é", "e"), ("2 kB", "2 kB"), ("·", "."), ("━", "-"), ("┼", "+"), ("網", "?")]
)
def test_stand_ins(text: str, ascii_: str) -> None:
    assert text.encode("ascii", display.STAND_INS) == ascii_.encode()


def test_a_full_disk_takes_the_display_and_not_the_run(run_file: Path, tmp_path: Path) -> None:
    done = dpgt("simulate", run_file, "--out", tmp_path / "out", redirect=f">{FULL}")
    assert done.returncode == 0 and (tmp_path / "out" / "summary.json").exists()
    lost = "dpgt simulate: standard output: No space left on device; what was printed there is lost"
    assert done.stderr.decode().splitlines()[-1] == lost


@pytest.mark.parametrize("arguments", [("check", "{}"), ("schema", "run"), ("bench",), ("-h",)])
def test_an_answer_that_nobody_got_is_no_success(arguments: tuple[str, ...], run_file: Path) -> None:
    done = dpgt(*(argument.format(run_file) for argument in arguments), redirect=f">{FULL}")
    assert done.returncode == 2 and b"No space left on device" in done.stderr


@pytest.mark.parametrize("redirect", [">&- 2>&- <&-", f"2>{FULL}", "| head -1; exit ${PIPESTATUS[0]}"])
def test_a_run_needs_neither_stream(redirect: str, run_file: Path, tmp_path: Path) -> None:
    done = dpgt("simulate", run_file, "--out", tmp_path / "out", redirect=redirect)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "summary.json").exists()


def test_a_reader_that_leaves_hides_no_exit_code(run_file: Path) -> None:
    document = documents.edited(documents.quadratic(2, 3), {"scheme__alpha": 40.0})
    run_file.write_text(tomli_w.dumps(document), encoding="utf-8")
    whole = dpgt("check", run_file).returncode
    assert dpgt("check", run_file, redirect="| head -1; exit ${PIPESTATUS[0]}").returncode == whole == 1


def test_a_closed_terminal_ends_no_run(run_file: Path, tmp_path: Path) -> None:
    screen, terminal = pty.openpty()
    command = processes.command("simulate", run_file, "--out", tmp_path / "out")
    environment = {**processes.environment(), "TERM": "xterm"}
    process = subprocess.Popen(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    assert os.read(screen, 10)
    os.close(screen)  # from here on, writing is EIO
    assert process.wait(processes.LIMIT_S) == 0
    assert (tmp_path / "out" / "summary.json").exists()


@pytest.mark.e2e
def test_launch_too(run_file: Path, tmp_path: Path) -> None:
    how = {"redirect": "| head -3; exit ${PIPESTATUS[0]}", "PYTHONIOENCODING": "latin-1"}
    done = dpgt("launch", run_file, "--out", tmp_path / "out", **how)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "summary.json").exists()
