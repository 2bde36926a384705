"""Results of attacks as files: ``attacks.json`` for numbers and words, ``attacks.npz`` for pictures and curves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from dpgt_node import __version__
from dpgt_node.adversary.attack import Finding, Options, Result, Verdict
from dpgt_node.documents import read_json
from dpgt_node.errors import ConfigError
from dpgt_node.types import F64
from dpgt_node.values import dataclass

VERSION = 1
"""Of the format; a reader refuses a later one."""
RESULTS_FILE = "attacks.json"
ARRAYS_FILE = "attacks.npz"


@dataclass(frozen=True, slots=True)
class About:
    """What the results are of.  ``run_id``: 16 bytes, empty where it is not known; ``transcripts``: files attacked."""

    run: str = ""
    run_id: bytes = b""
    transcripts: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)


def to_json(
    results: Sequence[Result], skipped: Mapping[str, str] | None = None, about: About | None = None
) -> dict[str, Any]:
    """What attacks.json holds; infinite is "inf", what does not apply null.

    { version, dpgt_node, run, run_id (hex or null), transcripts, seed, agents, rounds, settings, shadows,
    attacks: [ { attack, summary, vantage, missing, findings: [ { agent, verdict, measured, predicted, true, note } ],
    pictures, curves } ], skipped: { name: reason } }

    ``pictures`` and ``curves`` list the captions, in the order of the arrays of attacks.npz.  ``agents`` and ``rounds``
    are those asked for (empty: all), ``shadows``: how many shadow runs were simulated.
    """
    of = about or About()
    return {
        "version": VERSION,
        "dpgt_node": __version__,
        "run": of.run or None,
        "run_id": of.run_id.hex() or None,
        "transcripts": list(of.transcripts),
        "seed": of.options.seed,
        "agents": list(of.options.agents),
        "rounds": list(of.options.rounds),
        "settings": dict(of.options.extra),
        "shadows": 0 if of.options.shadows is None else of.options.shadows.count,
        "attacks": [
            {
                "attack": result.attack,
                "summary": result.summary,
                "vantage": result.vantage,
                "missing": result.missing,
                "findings": [
                    {
                        "agent": finding.agent,
                        "verdict": finding.verdict,
                        "measured": _plain(finding.measured),
                        "predicted": _plain(finding.predicted),
                        "true": _plain(finding.true),
                        "note": finding.note,
                    }
                    for finding in result.findings
                ],
                "pictures": list(result.pictures),
                "curves": list(result.curves),
            }
            for result in results
        ],
        "skipped": dict(skipped or {}),
    }


def save(
    folder: Path, results: Sequence[Result], skipped: Mapping[str, str] | None = None, about: About | None = None
) -> Path:
    """Write both files into ``folder``, made when it is not there; the path of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, F64] = {}
    for number, result in enumerate(results):
        for at, pictures in enumerate(result.pictures.values()):
            arrays[f"{number}_picture_{at}"] = pictures
        for at, (x, y) in enumerate(result.curves.values()):
            arrays[f"{number}_curve_{at}_x"], arrays[f"{number}_curve_{at}_y"] = x, y
    with (folder / ARRAYS_FILE).open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # its stub takes the names for its own options
    path = folder / RESULTS_FILE
    path.write_text(json.dumps(to_json(results, skipped, about), allow_nan=False, indent=2) + "\n", encoding="utf-8")
    return path


def load(folder: Path) -> tuple[tuple[Result, ...], dict[str, str]]:
    """Results and what was skipped, as :func:`save` wrote them.  ConfigError: they are not there or damaged."""
    try:
        document = read_json(folder / RESULTS_FILE)
        if document.get("version", VERSION) != VERSION:
            raise ValueError(f"version {document['version']}, this reads {VERSION}")
        with np.load(folder / ARRAYS_FILE, allow_pickle=False) as arrays:
            results = tuple(_result(number, entry, arrays) for number, entry in enumerate(document["attacks"]))
        return results, {str(name): str(reason) for name, reason in document["skipped"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"holds no results of attacks: {type(error).__name__}: {error}"
        raise ConfigError.one(str(folder), "", message) from error


def _result(number: int, entry: Mapping[str, Any], arrays: Mapping[str, F64]) -> Result:
    return Result(
        str(entry["attack"]),
        str(entry["summary"]),
        tuple(
            Finding(
                str(one["agent"]),
                _verdict(one["verdict"]),
                _numbers(one["measured"]),
                _numbers(one["predicted"]),
                str(one["note"]),
                _numbers(one.get("true", {})),
            )
            for one in entry["findings"]
        ),
        str(entry["vantage"]),
        str(entry["missing"]),
        {str(caption): arrays[f"{number}_picture_{at}"] for at, caption in enumerate(entry["pictures"])},
        {
            str(caption): (arrays[f"{number}_curve_{at}_x"], arrays[f"{number}_curve_{at}_y"])
            for at, caption in enumerate(entry["curves"])
        },
    )


def _plain(numbers: Mapping[str, float | None]) -> dict[str, float | str | None]:
    out: dict[str, float | str | None] = {}
    for key, value in numbers.items():
        if value is None or math.isnan(value):
            out[key] = None
        elif math.isinf(value):
            out[key] = "inf" if value > 0 else "-inf"
        else:
            out[key] = float(value)
    return out


def _numbers(entry: Mapping[str, Any]) -> dict[str, float | None]:
    return {str(key): None if value is None else float(value) for key, value in entry.items()}


def _verdict(value: object) -> Verdict:
    if value not in get_args(Verdict):
        raise ValueError(f"verdict {value!r}")
    return cast(Verdict, value)
