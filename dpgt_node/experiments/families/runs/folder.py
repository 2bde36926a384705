"""OUT on disk: one folder a run, whole or not at all; what was asked for; what failed.

OUT/experiment.json        families and their settings; what failed, with the last message
OUT/runs/NAME/             run.toml, job.json, and what the run left
OUT/FAMILY/                pictures (PNG, SVG) and numbers (CSV)
OUT/index.html             all of it on one page; CLAIMS.md and claims.json beside it
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpgt_node.documents import read_json
from dpgt_node.durable import write_folder, write_text
from dpgt_node.errors import ConfigError
from dpgt_node.experiments.families.runs.job import Files, Job
from dpgt_node.values import dataclass

STATE_FILE = "experiment.json"
REFUSED = "refused: "
"""Begins the message of a run that was not begun."""
RUNS = "runs"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Status:
    """How far what was asked for has come: names of runs.  ``failed``: with the last message of each."""

    done: tuple[str, ...]
    missing: tuple[str, ...]
    failed: Mapping[str, str]


class Folder:
    """OUT of ``dpgt experiment``.  ConfigError: it holds something else, or cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: dict[str, Any] = {"format": _FORMAT, "families": {}, "runs": {}, "failed": {}}
        self._load()

    def _load(self) -> None:
        file = self.path / STATE_FILE
        try:
            held = read_json(file)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise ConfigError.one(str(file), "", f"cannot be read: {error}") from error
        if not isinstance(held, dict) or held.get("format") != _FORMAT:
            raise ConfigError.one(str(file), "", "was written by another version: choose another folder")
        self._state = held

    def check_free(self) -> None:
        """ConfigError where the folder holds what no experiment wrote."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError.one("command line", "--out", f"{self.path} is no folder")
        held = self.path.is_dir() and any(not one.name.startswith(".") for one in self.path.iterdir())
        if held and not (self.path / STATE_FILE).exists():
            message = f"{self.path} is not empty and holds no experiment; choose another folder"
            raise ConfigError.one("command line", "--out", message)

    @property
    def families(self) -> Mapping[str, Mapping[str, Any]]:
        """What was asked for, by the name of the family: its settings."""
        found: Mapping[str, Mapping[str, Any]] = self._state["families"]
        return found

    @property
    def failed(self) -> Mapping[str, str]:
        """The last message of each run that failed and is not there."""
        return {name: text for name, text in self._state["failed"].items() if not self.is_done(name)}

    def ask(self, family: str, settings: Mapping[str, Any], names: Iterable[str]) -> None:
        """Remember that ``family`` was asked for, and the runs that it needs as far as they are known."""
        self._state["families"][family] = dict(settings)
        self._state["runs"][family] = sorted(set(names))
        self._save()

    def fail(self, name: str, message: str) -> None:
        """Remember why a run failed."""
        self._state["failed"][name] = message
        self._save()

    def run(self, name: str) -> Path:
        """Where that run is, or would be."""
        return self.path / RUNS / name

    def is_done(self, name: str) -> bool:
        """Whether the run is there: a folder of that name is whole."""
        return self.run(name).is_dir()

    def missing(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Those that are not there, each once."""
        for job in {job.name: job for job in jobs}.values():
            if not self.is_done(job.name):
                yield job

    def keep(self, name: str, files: Files) -> None:
        """Write a run's folder, whole.  FileExistsError where it is there: nothing is kept twice."""
        write_folder(self.run(name), files)
        if self._state["failed"].pop(name, None) is not None:
            self._save()

    def tidy(self) -> None:
        """Remove what commands that were killed left half written.  Nobody else may be writing here."""
        for path in (self.path / RUNS).glob(".*.tmp"):
            shutil.rmtree(path, ignore_errors=True)

    def status(self) -> Status:
        """Of everything that was asked for."""
        names = sorted({name for runs in self._state["runs"].values() for name in runs})
        done = tuple(name for name in names if self.is_done(name))
        return Status(done, tuple(name for name in names if not self.is_done(name)), self.failed)

    def others(self) -> int:
        """How many runs are there that only earlier, other settings of a family asked for."""
        asked = {name for runs in self._state["runs"].values() for name in runs}
        held = {path.name for path in (self.path / RUNS).glob("[!.]*") if path.is_dir()}
        return len(held - asked)

    def family_status(self, family: str) -> tuple[int, int]:
        """(runs that are there, runs that it needs)."""
        names = self._state["runs"].get(family, [])
        return sum(self.is_done(name) for name in names), len(names)

    def _save(self) -> None:
        write_text(self.path / STATE_FILE, json.dumps(self._state, indent=2, allow_nan=False) + "\n")
