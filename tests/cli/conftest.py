"""Command lines as tests give them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpgt_node import cli
from tests.cli import columns

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verb prints a line for people that is longer than 80 columns."""
    columns.watch(monkeypatch)


@pytest.fixture
def dpgt(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err and "this is a bug" not in captured.err, captured.err
        return code, captured.out, captured.err

    return run
