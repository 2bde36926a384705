"""Writing whole or not at all: what is there after a full disk, a crash at any step, and which syncs were paid for."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import durable

PROMISES: tuple[durable.Promise, ...] = ("process", "whole", "power")


def by_path(path: Path, data: bytes, promise: durable.Promise, mode: int = 0o666) -> None:
    with durable.replaced(path, promise, mode=mode) as temporary:
        temporary.write_bytes(data)


def by_file(path: Path, data: bytes, promise: durable.Promise, mode: int = 0o666) -> None:
    with durable.replacing(path, promise, mode=mode) as file:
        file.write(data)


def by_parts(path: Path, data: bytes, promise: durable.Promise, mode: int = 0o666) -> None:
    durable.write_whole(path, (data[:3], memoryview(data)[3:]), promise, mode=mode)


def by_spare(path: Path, data: bytes, promise: durable.Promise, mode: int = 0o666) -> None:
    spare = path.with_name("spare")
    with open(os.open(spare, os.O_WRONLY | os.O_CREAT, mode), "wb") as file:
        file.write(bytes(len(data) + 100))
    durable.write_over(spare, path, (data[:3], memoryview(data)[3:]), promise)


WRITERS = pytest.mark.parametrize("write", [by_path, by_file, by_parts, by_spare])
Write = Callable[..., None]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every fsync and rename, in order."""
    made: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(descriptor: int) -> None:
        made.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renamed(source: Path, target: Path) -> None:
        made.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    return made


@WRITERS
@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_pays_for_its_own_syncs(
    tmp_path: Path, calls: list[str], write: Write, promise: durable.Promise
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    write(path, b"new bytes", promise)
    wanted = {"process": ["rename"], "whole": ["file", "rename"], "power": ["file", "rename", "folder"]}
    assert calls == wanted[promise]
    assert path.read_bytes() == b"new bytes" and os.listdir(tmp_path) == ["file"]


@WRITERS
@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_what_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, step: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(OSError, match="No space left"):
        write(path, b"new bytes", "power")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_a_full_disk_in_the_middle_of_a_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def parts() -> Iterator[bytes]:
        yield bytes(1 << 20)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        durable.write_whole(path, parts(), "power")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_process_that_is_killed_leaves_the_old_file_and_the_next_one_writes(tmp_path: Path, step: str) -> None:
    path = tmp_path / "file"
    durable.write_text(path, "old")
    code = (
        "import os, signal, sys; from pathlib import Path; from dpgt_node import durable\n"
        f"os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "durable.write_text(Path(sys.argv[1]), 'new')"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -9 and path.read_text() == "old"
    assert len(os.listdir(tmp_path)) == 2, "it was killed with its temporary file written"
    durable.write_text(path, "newer")
    assert path.read_text() == "newer"


@WRITERS
def test_modes(tmp_path: Path, write: Write) -> None:
    before = os.umask(0o022)
    try:
        write(tmp_path / "open", b"a", "process")
        write(tmp_path / "own", b"a", "process", mode=0o600)
        durable.write_whole(tmp_path / "state", [b"a"], "process")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("open", "own", "state")]
    assert modes == [0o644, 0o600, 0o600]


def test_text_and_arrays_make_their_folders(tmp_path: Path) -> None:
    durable.write_text(tmp_path / "a" / "b" / "text", "x\u0306 = 1\n")
    assert (tmp_path / "a" / "b" / "text").read_bytes() == b"x\xcc\x86 = 1\n"
    durable.save_npy(tmp_path / "c" / "array.npy", np.arange(3.0))
    np.testing.assert_array_equal(np.load(tmp_path / "c" / "array.npy"), [0, 1, 2])


@pytest.mark.parametrize(("durability", "synced"), [("process", []), ("power", ["folder"] * 4)])
def test_every_new_name_of_a_folder_is_durable(
    tmp_path: Path, calls: list[str], durability: durable.Durability, synced: list[str]
) -> None:
    durable.make_folder(tmp_path / "a" / "b" / "c", durability)
    assert calls == synced and stat.S_IMODE((tmp_path / "a" / "b" / "c").stat().st_mode) == 0o700


def test_a_folder_is_there_with_all_its_files_or_not_at_all(tmp_path, monkeypatch):
    folder = tmp_path / "deep" / "run"
    durable.write_folder(folder, {"a": b"1", "b": b"2"})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a": b"1", "b": b"2"}
    with pytest.raises(FileExistsError):
        durable.write_folder(folder, {"a": b"3"})
    real, written = durable.write_whole, list[str]()

    def full(path: Path, *rest, **more) -> None:
        written.append(path.name)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "no space")
        real(path, *rest, **more)

    monkeypatch.setattr(durable, "write_whole", full)
    with pytest.raises(OSError, match="no space"):
        durable.write_folder(tmp_path / "deep" / "other", {"a": b"1", "b": b"2"})
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["run"]
