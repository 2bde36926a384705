"""The output folder of a run: fresh, or an unfinished run of the same hash that goes on under the same run id."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

from dpgt_node.config import RunConfig, canonical_json, diff_runs, load_run, run_sha256, to_toml
from dpgt_node.config.declare.reader import MAX_FILE_BYTES
from dpgt_node.documents import read_json
from dpgt_node.durable import contents, remedy, write_text
from dpgt_node.errors import ConfigError
from dpgt_node.record.identity import IDENTITY_FILE as IDENTITY_FILE
from dpgt_node.record.summary import SUMMARY_FILE, load_summary
from dpgt_node.values import dataclass

ADDRESS_FILE = "coordinator.json"
RUN_FILE = "run.toml"
CLOSING_FILE = ".closing"
"""Here from before summary.json says "finished" until every agent heard so and the report is written."""
PAUSED_FILE = ".paused"
"""Here while the run is paused: a coordinator that was killed comes back with the barrier shut."""
_EVENTS_FILE, _HEADS_FILE, _RIVALS_FILE = "events.jsonl", "ledger_heads.bin", "rivals.json"
_BEFORE_THE_START = frozenset({ADDRESS_FILE, PAUSED_FILE, _EVENTS_FILE, _HEADS_FILE, _RIVALS_FILE})
"""What a run may leave that was refused before its first round, besides its identity: of that run alone."""
_STAYS = frozenset({IDENTITY_FILE, RUN_FILE, "coordinator.log", "nursery.log", "tls", "agents"})
"""And what the next run writes over or goes on with: logs, start-up folders, what owners wrote into theirs."""
SETTLE_S = 10.0
"""So long may the processes of a killed launch take to be gone."""
_AGAIN_S = 0.02
"""After which a lock that somebody has is tried again."""


@dataclass(frozen=True, slots=True)
class OutDir:
    """``run_id``: 16 random bytes, durable.  ``resumed``: an earlier start began this run.  ``closing``: it wrote the
    results, and was killed before every agent and the report had them.
    """

    path: Path
    run_id: bytes
    resumed: bool
    closing: bool = False


def prepare(
    path: Path,
    run: RunConfig,
    *,
    source: str,
    keystream: str | None,
    close: bool = False,
    by: Literal["agents", "simulate"] = "agents",
) -> OutDir:
    """Claim ``path`` for ``run``.  ConfigError naming ``source``'s option when it holds anything else.

    A run that was refused before its first round holds nothing: ``run`` takes its place, under an id of its own.

    ``keystream``: "test" or None.  It stays what it was at the first start: a run that was ever drawn from the test
    keystream must not end as one that looks private.  ``close``: a finished run whose end was cut off is
    welcome too.  ``by``: who carries it out; what agents began a simulation cannot go on with, nor the reverse.
    """
    digest = run_sha256(run)
    identity = path / IDENTITY_FILE
    try:
        entries = [name for name in contents(path) if not _torn(name)]
        begin = {"run_sha256": digest, "keystream": keystream, "by": by}
        if not entries:
            return _begin(path, run, begin)
        if IDENTITY_FILE not in entries:
            raise ConfigError.one(source, "--out", f"{path} is not empty and holds no run; choose another folder")
        held = read_json(identity)
        run_id, held_digest = bytes.fromhex(held["run_id"]), str(held["run_sha256"])
        held_keystream, held_by = held["keystream"], str(held.get("by", "agents"))
        if held_digest != digest and _never_began(path, entries):
            with _locked(path, source=source):
                for name in _BEFORE_THE_START.intersection(entries):
                    (path / name).unlink()
                return _begin(path, run, begin)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError.one(source, "--out", f"{path} cannot be used: {error}") from error
    if held_digest != digest:
        message = f"{path} holds another run (sha256 {held_digest[:12]}, this one {digest[:12]}); choose another folder"
        message += _differences(path / RUN_FILE, run)
        raise ConfigError.one(source, "--out", message)
    summary = load_summary(path) if SUMMARY_FILE in entries else None
    finished = summary is not None and summary.status == "finished"
    if finished and not (close and CLOSING_FILE in entries):
        raise ConfigError.one(source, "--out", f"{path} holds this run, finished; choose another folder")
    if held_by != by:
        began = "in a simulation" if held_by == "simulate" else "with agents"
        raise ConfigError.one(source, "--out", f"the run in {path} began {began}; go on likewise")
    if held_keystream != keystream:
        message = f"the run in {path} began {'with' if held_keystream else 'without'} it; go on likewise"
        raise ConfigError.one(source, "--test-keystream", message)
    if RUN_FILE not in entries:  # the first start was killed between the two files
        with blamed(path / RUN_FILE):
            write_text(path / RUN_FILE, to_toml(run))
    return OutDir(path, run_id, resumed=True, closing=finished)


def _begin(path: Path, run: RunConfig, document: Mapping[str, str | None]) -> OutDir:
    run_id, text = os.urandom(16), to_toml(run)
    if len(text) > MAX_FILE_BYTES:
        message = (
            f"the run file with all weights would have {len(text) // 1_000_000} MB, and none above "
            f"{MAX_FILE_BYTES // 1_000_000} MB is read again: give the graph fewer edges"
        )
        raise ConfigError.one("run file", "graph", message)
    path.mkdir(parents=True, exist_ok=True)
    # The id must be durable before anybody registers: a second id would be a second set of releases.
    write_text(path / IDENTITY_FILE, json.dumps({"run_id": run_id.hex(), **document}) + "\n")
    write_text(path / RUN_FILE, text)
    return OutDir(path, run_id, resumed=False)


def _never_began(path: Path, entries: Sequence[str]) -> bool:
    """Whether no round of the run in ``path`` may ever have been drawn: who begins one writes more than this before."""
    if not _BEFORE_THE_START.union(_STAYS).issuperset(entries):
        return False
    return _HEADS_FILE not in entries or not any((path / _HEADS_FILE).read_bytes())


def _differences(held: Path, run: RunConfig) -> str:
    """Which keys make ``run`` another one than the run file at ``held``; "" where that cannot be read."""
    try:
        found = diff_runs(canonical_json(run), canonical_json(load_run(held)))
    except ConfigError:
        return ""
    if not found:
        return ""
    hint = " (--insecure makes it plain)" if any(line.startswith("runtime.channel:") for line in found) else ""
    return f", or undo what was edited{' or give the options of its start' if hint else ''}: {'; '.join(found)}{hint}"


def held_run_id(path: Path) -> bytes | None:
    """The id of the run in ``path``; None when there is none that can be read."""
    try:
        return bytes.fromhex(read_json(path / IDENTITY_FILE)["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_paused(path: Path) -> bool:
    """Whether the run was paused when its coordinator was last there."""
    return (path / PAUSED_FILE).exists()


def keep_paused(path: Path, paused: bool) -> None:
    """Remember the pause, or forget it.  OSError when the file system refuses."""
    if paused:
        (path / PAUSED_FILE).touch()
    else:
        (path / PAUSED_FILE).unlink(missing_ok=True)


def _torn(name: str) -> bool:
    """A first start that was killed left this of the identity it was writing: nobody registered under it."""
    return name.startswith(f".{IDENTITY_FILE}.") and name.endswith(".tmp")


@contextlib.contextmanager
def blamed(path: Path) -> Iterator[None]:
    """Whatever the file system refuses at ``path`` is the operator's to mend: ConfigError with path and cause."""
    try:
        yield
    except OSError as error:
        said = f"{error.strerror or error}{remedy(error)}"
        raise ConfigError.one(str(error.filename or path), "", said) from error


def cause(error: OSError | ConfigError, path: Path) -> str:
    """PATH: what the file system said; ``path`` where the error names none."""
    if isinstance(error, ConfigError):
        return str(error)
    return f"{error.filename or path}: {error.strerror or error}"


@contextlib.contextmanager
def claim(path: Path) -> Iterator[None]:
    """Make ``path`` if need be and keep other launches and simulations out of it.  ConfigError when one is there.

    The folder itself is locked, so that every path to it, through links or mounts, meets the same lock.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError.one("command line", "--out", f"{path} cannot be used: {error.strerror}") from error
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError.one("command line", "--out", f"{path} is in use by another run") from error
        yield
    finally:
        os.close(folder)


def hold(out: OutDir, *, source: str) -> IO[bytes]:
    """Keep other coordinators out of ``out`` while the returned file is open; ConfigError when one is there, or was
    there since ``out`` was claimed and took it for another run.
    """
    handle = _locked(out.path, source=source)
    if held_run_id(out.path) != out.run_id:
        handle.close()
        raise ConfigError.one(source, "--out", f"{out.path} was taken by another run just now; choose another folder")
    return handle


def _locked(path: Path, *, source: str) -> IO[bytes]:
    handle = (path / IDENTITY_FILE).open("rb")
    try:
        _lock(handle, time.monotonic() + _AGAIN_S)  # perhaps somebody only looks, as ``in_use`` does
    except OSError as error:
        handle.close()
        raise ConfigError.one(source, "--out", f"{path} is in use by another coordinator") from error
    return handle


def _lock(handle: IO[bytes], end_s: float) -> None:
    """Keep all others out of ``handle``'s file.  BlockingIOError when somebody has it until ``end_s``, monotonic."""
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end_s:
                raise
            time.sleep(_AGAIN_S)


def in_use(path: Path) -> bool:
    """Whether a coordinator has the run in ``path`` now."""
    try:
        with (path / IDENTITY_FILE).open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def settle(path: Path, *, source: str) -> None:
    """Wait until no coordinator and no agent runs in a prepared ``path``: those of a launch that was killed die with
    it, but not in the same instant.  ConfigError naming what is in use after :data:`SETTLE_S`.
    """
    end_s = time.monotonic() + SETTLE_S
    locks = [path / IDENTITY_FILE, *sorted((path / "agents").glob("*/state/lock"))]
    for lock in locks:
        with blamed(lock), lock.open("rb") as handle:
            try:
                _lock(handle, end_s)
            except BlockingIOError as error:
                who = "another coordinator" if lock == locks[0] else "another node"
                raise ConfigError.one(source, "--out", f"{lock.parent} is in use by {who}") from error


def write_address(path: Path, address: str, tls: Path | None, urls: Mapping[str, str] | None = None) -> None:
    """coordinator.json: where the coordinator listens, for ``--run DIR`` and for launch; ``urls``: of its pages."""
    document = {"address": address, "tls": str(tls.resolve()) if tls else None, "pid": os.getpid(), **(urls or {})}
    write_text(path / ADDRESS_FILE, json.dumps(document) + "\n")


@dataclass(frozen=True, slots=True)
class Address:
    address: str
    tls: Path | None
    pid: int
    http: str | None = None


def read_address(path: Path) -> Address | None:
    """coordinator.json under ``path``; None when there is none (yet).  ConfigError when it is malformed."""
    try:
        held = read_json(path / ADDRESS_FILE)
        return Address(
            str(held["address"]), Path(held["tls"]) if held["tls"] else None, int(held["pid"]), held.get("http")
        )
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise ConfigError.one(str(path), "", "is a file, and not the output folder of a run") from error
    except OSError as error:
        raise ConfigError.one(str(path / ADDRESS_FILE), "", f"cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = "cannot be read: it is not what a coordinator writes there; give --coordinator HOST:PORT instead"
        raise ConfigError.one(str(path / ADDRESS_FILE), "", message) from error
