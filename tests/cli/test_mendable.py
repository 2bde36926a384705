"""What a user can mend is never called a bug: the environment, targets that cannot be written, old libraries."""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import tomli_w

from dpgt_node import cli
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.runtime import requirements
from dpgt_node.runtime.coordinator import outdir
from tests.cli import documents
from tests.e2e import processes


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(tomli_w.dumps(documents.quadratic(2, 3)), encoding="utf-8")
    return path


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user: a number without a name and a home."""

    def unknown(_uid: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    for variable in ("HOME", "XDG_CACHE_HOME", "DPGT_DATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("verb", [("check", "{}"), ("simulate", "{}", "--out", "out"), ("data", "show", "{}")])
def test_a_user_without_a_home_can_run_digits(
    verb: tuple[str, ...], run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_file.parent)
    document = {**documents.quadratic(2, 3), "data": {"dataset": "digits"}}
    run_file.write_text(tomli_w.dumps(document), encoding="utf-8")
    assert cli.run([part.format(run_file) for part in verb]) == 0


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize(
    ("dataset", "words"), [("mnist", "set DPGT_DATA"), ("npz:~/own.npz", "no home folder is known here: set HOME")]
)
def test_who_needs_a_home_is_told_what_to_set(
    dataset: str, words: str, run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {**documents.quadratic(2, 3), "data": {"dataset": dataset}}
    run_file.write_text(tomli_w.dumps(document), encoding="utf-8")
    assert cli.run(["simulate", str(run_file), "--out", str(run_file.parent / "out")]) == 2
    said = capsys.readouterr().err
    assert words in said and "bug" not in said
    assert cli.run(["data", "fetch", "mnist"]) == 2
    assert "give --root DIR, or set DPGT_DATA" in capsys.readouterr().err


def test_data_without_a_home_are_those_that_need_none() -> None:
    assert load_dataset("digits", None).classes == 10


@pytest.mark.parametrize("backend", ["module://matplotlib_inline.backend_inline", "TkAgg", "nonsense"])
def test_a_notebooks_backend_is_none_of_ours(
    backend: str, run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", backend)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", backend)  # which matplotlib would take for a number
    done = processes.dpgt("simulate", run_file, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").exists()


def test_a_report_that_cannot_be_drawn_ends_no_finished_run(
    run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error in (OSError(errno.ENOSPC, "No space left on device"), RuntimeError("a font is missing")):

        def broken(_out: Path, error: Exception = error) -> Path:
            raise error

        monkeypatch.setattr("dpgt_node.report.html.build_report", broken)
        out = tmp_path / type(error).__name__
        assert cli.run(["simulate", str(run_file), "--out", str(out)]) == 0
        assert (out / "summary.json").exists()
        assert f"the run is whole, and `dpgt report {out}` tries again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device: free some space, or choose another place"),
        (errno.EROFS, "Read-only file system: choose a place that can be written"),
        (errno.EACCES, "Permission denied: this user may not"),
        (errno.EMFILE, "Too many open files: raise the limit on open files (ulimit -n)"),
        (errno.EFBIG, "File too large: raise the limit on the size of files (ulimit -f)"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("verb", ["report", "check", "plan", "doctor", "status"])
def test_what_the_system_refuses_has_path_cause_and_remedy(
    number: int, words: str, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(**_: object) -> None:
        raise OSError(number, os.strerror(number), "/somewhere/file")

    monkeypatch.setattr(cli.dpgt, "main", refused)
    assert cli.run([verb]) == 2
    assert capsys.readouterr().err.startswith(f"dpgt {verb}: /somewhere/file: {words}")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EFBIG])
def test_an_output_folder_that_refuses_has_a_remedy_too(number: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path}: .*: (free|choose|raise) "), outdir.blamed(tmp_path):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("verb", ["node", "coordinator"])
def test_in_a_daemon_it_is_a_bug_and_a_restart(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(cli.dpgt, "main", refused)
    assert cli.run([verb]) == 70


def test_real_targets_that_cannot_be_written(run_file: Path, tmp_path: Path) -> None:
    assert cli.run(["simulate", str(run_file), "--out", str(tmp_path / "out")]) == 0
    (tmp_path / "file").touch()
    (tmp_path / "out" / "report.html").unlink()
    (tmp_path / "out" / "report.html").mkdir()
    for arguments in (
        ("report", tmp_path / "out"),
        ("export", tmp_path / "out", "--out", tmp_path / "file" / "x"),
        ("status", "--run", tmp_path / "file"),
        ("pki", "show", tmp_path / "file"),
        ("eavesdrop", "decode", run_file, "--out", tmp_path / "file" / "x"),
    ):
        done = processes.dpgt(*arguments)
        assert done.returncode in (2, 3) and "bug" not in done.stderr, (arguments, done.stderr)


def test_a_current_folder_that_is_gone_is_named(run_file: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = ["bash", "-c", f'rmdir "$PWD"; exec {" ".join(processes.command("check", "run.toml"))}']
    done = subprocess.run(line, cwd=gone, env=processes.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "bug" not in done.stderr, done.stderr


# --- libraries


@pytest.mark.parametrize(
    ("asked", "here", "words"),
    [
        (["grpcio>=1.85"], {"grpcio": "1.60.0"}, ["grpcio is 1.60.0 here (grpcio>=1.85 is needed)"]),
        (["protobuf>=7.35.1"], {"protobuf": "6.33.0"}, ["protobuf is 6.33.0 here (protobuf>=7.35.1 is needed)"]),
        (["numpy>=1.26"], {"numpy": "2.4.6"}, []),
        (["rich>=13"], {}, ["rich is missing (rich>=13 is needed)"]),
        (['torch>=2.6; extra == "torch"'], {}, []),
    ],
)
def test_old_libraries_are_named(
    asked: list[str], here: dict[str, str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in here:
            raise metadata.PackageNotFoundError(name)
        return here[name]

    monkeypatch.setattr(metadata, "requires", lambda _name: asked)
    monkeypatch.setattr(metadata, "version", version)
    assert requirements.outdated() == words


def test_here_they_are_new_enough() -> None:
    assert requirements.outdated() == []


def test_a_library_that_is_too_old_is_no_bug(
    run_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """protobuf raises a VersionError of its own where generated code is newer than it; old grpcio lacks names."""

    def fails(*_: object) -> None:
        raise AttributeError("module 'grpc.aio' has no attribute 'x'")

    monkeypatch.setattr("dpgt_node.cli.check.examine", fails)
    monkeypatch.setattr(requirements, "outdated", lambda: ["grpcio is 1.60.0 here (grpcio>=1.85 is needed)"])
    assert cli.run(["check", str(run_file)]) == 2
    assert "grpcio is 1.60.0 here (grpcio>=1.85 is needed): pip install --upgrade it" in capsys.readouterr().err
