"""The front door: verbs that do not exist, versions, completion, the last frame of a run."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dpgt_node import __version__, cli
from dpgt_node.cli.running.launch import last_status
from dpgt_node.cli.running.live import plain_line
from dpgt_node.config import demo_toml
from dpgt_node.errors import ConfigError, Problem, attempt
from dpgt_node.protocol.messages import PROTOCOL_VERSION
from tests.report.synthetic import digits_run, rows_of, summary_of

DOCUMENTED = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["chek", "run.toml"], "dpgt: command line: no such command 'chek'. Did you mean 'check'"),
        (["eavesdrop", "decod"], "no such command 'decod'. Did you mean 'decode'?"),
        (["check", "run.toml", "--fromat", "json"], "Did you mean '--format'?"),
    ],
)
def test_the_nearest_word_is_named(line: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(line) == 2
    assert hint in capsys.readouterr().err


def test_a_problem_of_a_run_file_has_its_name_where_just_one_is_given() -> None:
    error = ConfigError.one("run file", "graph.R", "is wrong")
    assert str(cli._named(error, ["check", "a.toml", "--all"])) == "a.toml: graph.R: is wrong"
    assert str(cli._named(error, ["check", "a.toml", "b.toml"])) == "run file: graph.R: is wrong"


def test_whatever_is_wrong_in_an_attempt_is_kept() -> None:
    kept, found = [Problem("a", "b", "c")], [Problem("d", "e", "f"), Problem("g", "h", "i")]

    def refused() -> int:
        raise ConfigError(found)

    assert attempt(kept, refused) is None and kept[1:] == found
    assert attempt(kept, lambda: 0) == 0 and len(kept) == 3


def test_nothing_is_named_where_nothing_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["xyzzy"]) == 2
    said = capsys.readouterr().err
    assert "no such command 'xyzzy'" in said and "Did you mean" not in said


def test_a_verb_that_only_asks_imports_no_event_loop_and_nothing_of_the_network(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(demo_toml(), encoding="utf-8")
    heavy = (
        "asyncio",
        "ssl",
        "socket",
        "grpc",
        "google.protobuf",
        "importlib.metadata",
        "email",
        "zipfile",
        "tempfile",
    )
    code = (
        "import sys; from dpgt_node import cli; code = cli.run(['check', 'run.toml']); "
        f"print(code, [name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_the_list_says_of_each_verb_what_its_own_help_says() -> None:
    context = click.Context(cli.dpgt)
    verbs = {name: cli.dpgt.get_command(context, name) for name in cli.VERBS}
    assert {name: verb.get_short_help_str(1000) for name, verb in verbs.items() if verb is not None} == cli.LINES
    assert list(cli.LINES) == list(cli.VERBS)


def test_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"dpgt, version {__version__}\n"
    for line in (["--version", "--verbose"], ["--verbose", "--version"]):
        assert cli.run(line) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"dpgt, version {__version__}" and f"protocol {PROTOCOL_VERSION}" in lines
        assert ssl.OPENSSL_VERSION in lines
        for word in ("Python ", "grpcio ", "numpy ", "cores "):
            assert [one for one in lines if one.startswith(word)], word


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_what_the_page_says(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"_DPGT_COMPLETE={shell}_source dpgt" in DOCUMENTED.read_text(encoding="utf-8")
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    words = found(cli.dpgt, {}, "dpgt", "_DPGT_COMPLETE").get_completions(["eavesdrop"], "de")
    assert [one.value for one in words] == ["decode"]


def test_the_last_frame_of_a_run_is_its_end() -> None:
    run = digits_run()
    line = plain_line(last_status(summary_of(run, rows_of(run)), run.K))
    assert line.startswith("finished  k 200/200  rounds/s 83.4  worst test accuracy 0.874 (agent-5)")
    assert "ETA" not in line and "53,995 (none)" in line
