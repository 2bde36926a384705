"""``rivals.json``: what stands beside a run's accuracy, written next to its summary by who has the data at hand.

Test accuracy is a metric of a study: in other runs there is no such file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dpgt_node.documents import read_json
from dpgt_node.durable import write_text
from dpgt_node.errors import ConfigError
from dpgt_node.record.summary import load_summary, with_alone, write_summary
from dpgt_node.values import dataclass

RIVALS_FILE = "rivals.json"


@dataclass(frozen=True, slots=True)
class Rivals:
    """``alone``: test accuracy in [0, 1] by agent, of what each reaches without exchange and noise, at epsilon 0.

    Empty where nobody trained them.  ``largest_class``: its share of the test set, in [0, 1], which always naming that
    class gets right; None where nobody counted.
    """

    alone: Mapping[str, float]
    largest_class: float | None = None

    @property
    def worst(self) -> float:
        """Of the agent that alone reaches least; ``alone`` is not empty."""
        return min(self.alone.values())


def write_rivals(out_dir: Path, rivals: Rivals) -> None:
    """Write ``OUT/rivals.json`` atomically; what agents reach alone also into ``OUT/summary.json`` if that is there."""
    data = {"alone": dict(rivals.alone), "largest_class": rivals.largest_class}
    write_text(out_dir / RIVALS_FILE, json.dumps(data, indent=2, allow_nan=False) + "\n")
    if rivals.alone and (summary := load_summary(out_dir)) is not None:
        write_summary(out_dir, with_alone(summary, rivals.alone))


def load_rivals(out_dir: Path) -> Rivals | None:
    """``OUT/rivals.json``; None when there is none, or nothing in it.  Raises ConfigError."""
    path = out_dir / RIVALS_FILE
    try:
        data = read_json(path)
        alone = {str(name): float(value) for name, value in data["alone"].items()}
        share = data.get("largest_class")
        largest = None if share is None else float(share)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError.one(str(path), "", f"is not what a run leaves there: {error}") from error
    if not all(0.0 <= value <= 1.0 for value in alone.values()):
        raise ConfigError.one(str(path), "alone", "holds an accuracy outside [0, 1]")
    if largest is not None and not 0.0 <= largest <= 1.0:
        raise ConfigError.one(str(path), "largest_class", "is no share in [0, 1]")
    return Rivals(alone, largest) if alone or largest is not None else None
