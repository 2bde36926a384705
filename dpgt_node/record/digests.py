"""``digests.json``: how many rounds agents agreed on what was sent, and where they did not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpgt_node.documents import read_json
from dpgt_node.durable import write_text
from dpgt_node.protocol.coordinator.comparison import Compared, Forgery
from dpgt_node.protocol.digests import Dispute
from dpgt_node.protocol.outliers import Outlier
from dpgt_node.types import Stream

DIGESTS_FILE = "digests.json"


def as_json(found: Compared) -> dict[str, Any]:
    """JSON data: digests in hexadecimal, by agent, the sender's own first where it is known."""
    return {
        "rounds_compared": found.rounds,
        "rounds_incomplete": found.incomplete,
        "forgeries": [
            {
                "sender": one.first.sender,
                "stream": one.first.stream,
                "round": one.first.k,
                "words": {name: word.hex() for name, word in one.first.words},
                "proven": one.first.proven(),
                "rounds": one.rounds,
                "last_round": one.last_k,
            }
            for one in found.forgeries
        ],
        **({"outliers": [_outlier(*one) for one in found.outliers]} if found.outliers else {}),
    }


def _outlier(receiver: str, one: Outlier) -> dict[str, Any]:
    return {
        "receiver": receiver,
        "sender": one.sender,
        "stream": one.stream,
        "rounds": one.rounds,
        "last_round": one.k,
        "ratio": one.ratio,
    }


def _outlier_of(data: Mapping[str, Any]) -> tuple[str, Outlier]:
    stream: Stream = "X" if data["stream"] == "X" else "Y"
    k, rounds = int(data["last_round"]), int(data["rounds"])
    return str(data["receiver"]), Outlier(str(data["sender"]), stream, k, rounds, float(data["ratio"]))


def write_digests(out_dir: Path, found: Compared) -> None:
    """Write ``OUT/digests.json`` atomically.  OSError: it cannot be."""
    write_text(out_dir / DIGESTS_FILE, json.dumps(as_json(found), indent=2) + "\n")


def read_digests(out_dir: Path) -> Compared | None:
    """``OUT/digests.json``; None when there is none, or none that can be read: what it tells is in events.jsonl too."""
    try:
        return from_json(read_json(out_dir / DIGESTS_FILE))
    except (OSError, ValueError):
        return None


def from_json(data: Mapping[str, Any]) -> Compared | None:
    """What :func:`as_json` gave; None for data that are something else."""
    try:
        found = tuple(_forgery(one) for one in data["forgeries"])
        outliers = tuple(_outlier_of(one) for one in data.get("outliers", ()))
        return Compared(found, int(data["rounds_compared"]), int(data["rounds_incomplete"]), outliers)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _forgery(data: Mapping[str, Any]) -> Forgery:
    words = tuple((str(name), bytes.fromhex(word)) for name, word in data["words"].items())
    first = Dispute(str(data["sender"]), "X" if data["stream"] == "X" else "Y", int(data["round"]), words)
    return Forgery(first, int(data["rounds"]), int(data["last_round"]))
