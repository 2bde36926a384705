"""``rivals.json``: what stands beside a run's accuracy, written next to its summary.

Test accuracy is a metric of a study: in other runs there is no such file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dpgt_node.durable import write_text
from dpgt_node.errors import ConfigError

RIVALS_FILE = "rivals.json"


@dataclass(frozen=True, slots=True)
class Rivals:
    """``alone``: test accuracy in [0, 1] by agent, of what each reaches without exchange and noise, at epsilon 0."""

    alone: Mapping[str, float]

    @property
    def worst(self) -> float:
        """Of the agent that alone reaches least."""
        return min(self.alone.values())


def write_rivals(out_dir: Path, rivals: Rivals) -> None:
    """Write ``OUT/rivals.json`` atomically."""
    write_text(out_dir / RIVALS_FILE, json.dumps({"alone": dict(rivals.alone)}, indent=2, allow_nan=False) + "\n")


def load_rivals(out_dir: Path) -> Rivals | None:
    """``OUT/rivals.json``; None when there is none, or no agent in it.  Raises ConfigError."""
    path = out_dir / RIVALS_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        alone = {str(name): float(value) for name, value in data["alone"].items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError.one(str(path), "", f"is not what a run leaves there: {error}") from error
    if not all(0.0 <= value <= 1.0 for value in alone.values()):
        raise ConfigError.one(str(path), "alone", "holds an accuracy outside [0, 1]")
    return Rivals(alone) if alone else None
