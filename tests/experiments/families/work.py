"""What tests let workers do instead of a run; worker processes import it by its name."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def plain(name: str, log: str) -> dict[str, bytes]:
    _note(log, name)
    return {"run.toml": name.encode()}


def dies_once(name: str, log: str) -> dict[str, bytes]:
    """The process that works on "victim" is killed in the middle, as kill -9 would, the first time."""
    _note(log, name)
    if name == "victim" and _count(log, name) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"run.toml": name.encode()}


def fails(name: str, log: str) -> dict[str, bytes]:
    """ "always" fails every time, "once" the first time."""
    _note(log, name)
    if name == "always" or (name == "once" and _count(log, name) == 1):
        raise ValueError(f"{name} is broken\nand this is more than one line")
    return {"run.toml": name.encode()}


def blocked() -> set[int]:
    """Signals that do not reach the thread it is called in."""
    return set(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))


def attempts(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def _note(log: str, name: str) -> None:
    with open(log, "a", encoding="utf-8") as file:  # one short append is one write: processes do not mix
        file.write(f"{name}\n")


def _count(log: str, name: str) -> int:
    return attempts(Path(log)).count(name)
