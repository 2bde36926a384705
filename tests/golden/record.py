"""All golden scripts by name, and how they are kept: one text file each under ``scripts/``."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.golden import agents, coordinators, desks, finals, machines, wholes

SCRIPTS = Path(__file__).parent / "scripts"
STEPPED = {**machines.SCRIPTS, **coordinators.SCRIPTS}
"""Machines alone."""
SPOKEN = {**agents.SCRIPTS, **desks.SCRIPTS, **wholes.SCRIPTS}
"""Daemons on sockets."""
MADE: dict[str, Callable[[], list[str]]] = {**STEPPED, **SPOKEN}


def path_of(name: str) -> Path:
    """Where a script is kept."""
    return SCRIPTS / f"{name}.txt"


def text(lines: list[str]) -> str:
    """A script as it is kept."""
    return "".join(f"{line}\n" for line in lines)


def difference(name: str, lines: list[str]) -> str:
    """A readable diff against the script that was recorded; empty: none."""
    old = path_of(name).read_text(encoding="utf-8").splitlines()
    return "\n".join(difflib.unified_diff(old, lines, f"{name}, recorded", f"{name}, now", lineterm="", n=3))


def record(word: str) -> Iterator[str]:
    """Write every script whose name holds ``word``, say what was written."""
    SCRIPTS.mkdir(exist_ok=True)
    for name, make in MADE.items():
        if word in name:
            path_of(name).write_text(text(make()), encoding="utf-8")
            yield str(path_of(name))
    if word in finals.FINALS.name:
        everything: finals.Found = {}
        with tempfile.TemporaryDirectory() as folder:
            for name in finals.names():
                everything |= finals.simulated(name, Path(folder))
        finals.FINALS.write_text(finals.write(everything), encoding="utf-8")
        yield str(finals.FINALS)
