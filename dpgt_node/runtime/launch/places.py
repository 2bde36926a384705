"""Where the processes of a launch live, when not just anywhere on the loopback: behind a proxy that looks at their
links, or each in a network of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path

from dpgt_node.documents import read_json
from dpgt_node.durable import write_text
from dpgt_node.errors import ConfigError
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Of one process.  Addresses are HOST:PORT.

    ``listen``: None for any free port of the loopback.  ``coordinator``: where an agent dials the coordinator, None for
    where that listens.  ``dial``: peers that an agent dials elsewhere than where they listen.  ``enter``: arguments put
    before the command line (``nsenter ... --``); they must end in the command itself, in the same process.
    """

    listen: str | None = None
    coordinator: str | None = None
    dial: Mapping[str, str] = field(default_factory=dict)
    enter: tuple[str, ...] = ()


Places = Mapping[str, Place]
"""By agent name, and ``coordinator``; whoever is not named lives on the loopback."""


def write_places(path: Path, places: Places) -> None:
    """As JSON, for :func:`read_places`."""
    write_text(path, json.dumps({name: asdict(place) for name, place in places.items()}) + "\n")


def read_places(path: Path) -> dict[str, Place]:
    """What :func:`write_places` wrote; ConfigError for anything else."""
    try:
        document = read_json(path)
        return {name: Place(**{**entry, "enter": tuple(entry["enter"])}) for name, entry in document.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError.one(str(path), "", f"cannot be used as places of processes: {error}") from error
