"""What is said beside a published model: which releases it is made of, what they cost each agent, what that leaves out.

``privacy.json`` for programs, ``PRIVACY.md`` for people; both from one value.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpgt_node.accounts.towards import towards_whom
from dpgt_node.config.emit import run_sha256
from dpgt_node.config.model import RunConfig
from dpgt_node.documents import parse_json
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.privacy.strength import delta_warning, strength
from dpgt_node.record import epsilons
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.summary import PrivacySummary, to_json, versions
from dpgt_node.report.publishing.all_runs import DataSet, data_set
from dpgt_node.report.publishing.statement import NO_NOISE, statement
from dpgt_node.report.text import bounds_of_columns
from dpgt_node.types import F64
from dpgt_node.values import dataclass

Which = Literal["average", "last", "final"]
PRIVACY_FILE, STATEMENT_FILE, RUN_FILE = "privacy.json", "PRIVACY.md", "run.toml"
_HASH_LINE = re.compile(r"^(\S+): SHA-256 ([0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The vector that becomes the model, of ``agent``, and the rounds whose x̆ it is made of (of "final": K+1)."""

    which: Which
    agent: str
    first: int
    last: int
    x: F64 = field(repr=False)


@dataclass(frozen=True, slots=True)
class Party:
    """One agent's own guarantee: what its transcript cost; ``data`` where its ledger is here."""

    name: str
    epsilon: Epsilon
    data: DataSet | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from.  ``released_through``: the last round anybody released.  ``keystream``: "test" or None.

    ``parties``: every agent that this machine knows the cost of.  ``samples``: the largest D among them.
    """

    run_id: str
    released_through: int
    keystream: str | None
    parties: tuple[Party, ...]
    reasons: Mapping[str, str | None] = field(default_factory=dict)
    samples: int | None = None


def choose(
    run: RunConfig,
    agent: str,
    which: Which | None,
    *,
    last: tuple[int, F64] | None,
    mean: tuple[int, int, F64] | None,
    final: F64 | None,
) -> Chosen:
    """The vector to publish; ``which`` None: x_{K+1} where it is public, else the average, else the last x̆.

    ``last``: (round, x̆), ``mean``: (first round, last round, mean of x̆), ``final``: x_{i,K+1}; None: not here.
    ConfigError: it is not public, or not here.
    """
    mechanism = run.algorithm.mechanism
    public = MECHANISMS[mechanism].x_public
    if which == "final" and not public:
        covering = " or ".join(sorted(one.name for one in MECHANISMS.values() if one.x_public))
        message = (
            f'x_(K+1) under "{mechanism}" depends on private data beyond what was released, and no accountant covers '
            f"it: publish --as average or --as last (or run with {covering}, where it is covered)"
        )
        raise ConfigError.one("command line", "--as", message)
    default: Which = "final" if public and final is not None else "average" if mean is not None else "last"
    asked, which = ("DIR", default) if which is None else ("--as", which)
    if which == "final" and final is not None:
        return Chosen("final", agent, run.K + 1, run.K + 1, final)
    if which == "average" and mean is not None:
        return Chosen("average", agent, *mean)
    if which == "last" and last is not None:
        return Chosen("last", agent, last[0], last[0], last[1])
    missing = {
        "final": f"x_(K+1) of {agent} is not here: the run did not end, or the file was removed",
        "average": f"no average of {agent}: it begins with round {(run.K + 1) // 2}; take --as last",
        "last": f"no x of {agent} is here: a coordinator never sees one of a local run. Every owner can make the model "
        "on its own host, of its own state_dir: dpgt export STATE_DIR --run RUN.toml --out MODEL",
    }
    raise ConfigError.one("command line", asked, missing[which])


def document(run: RunConfig, chosen: Chosen, source: Source, files: Mapping[str, str], notes: Sequence[str]) -> Any:
    """``privacy.json`` as JSON data; ``files``: SHA-256 (hex) by name."""
    privacy = PrivacySummary.of(run)
    costs = {p.name: p.epsilon for p in source.parties}
    whom = None if no_guarantee(run, source) else towards_whom(run, costs, dict.fromkeys(costs, source.samples))
    return to_json(
        {
            "format": "dpgt export 1",
            "guarantee": not no_guarantee(run, source),
            "no_guarantee_because": no_guarantee(run, source),
            "release": {
                "as": chosen.which,
                "agent": chosen.agent,
                "rounds": [chosen.first, chosen.last],
                "sha256": hashlib.sha256(np.ascontiguousarray(chosen.x, dtype="<f8").data).hexdigest(),
                "what": _what(run, chosen),
            },
            "run": {
                "name": run.name,
                "run_id": source.run_id,
                "run_sha256": run_sha256(run),
                "method": run.algorithm.method,
                "mechanism": run.algorithm.mechanism,
                "K": run.K,
                "released_through": source.released_through,
                "releases": epsilons.releases(run, source.released_through),
                "keystream": source.keystream,
                "metrics": run.evaluate.metrics,
            },
            "adjacency": privacy.adjacency,
            "C": privacy.C,
            "clip_l1": privacy.clip_l1,
            "clip_l2": privacy.clip_l2,
            "enforced": privacy.enforced,
            "law": privacy.law,
            "delta": privacy.delta,
            "headline": _headline(source, privacy.delta),
            "strength": _strength(run, source),
            "delta_warning": _delta_warning(run, source),
            "agents": [
                {
                    "name": p.name,
                    "data_id": None if p.data is None else p.data.id,
                    "epsilon": p.epsilon,
                    "strength": {name: _word(run, source, name, p.epsilon[name]) for name in ACCOUNTANTS},
                }
                for p in source.parties
            ],
            **({} if whom is None else {"towards": whom.to_json()}),
            "data_sets": {p.name: None if p.data is None else data_set(p.data) for p in source.parties},
            "reasons": source.reasons,
            "model": {
                "name": run.model.name,
                "parameters": int(chosen.x.size),
                "dataset": run.data.dataset.partition(":")[0] if ":" in run.data.dataset else run.data.dataset,
                "features": run.data.features,
                "normalise": run.data.normalise,
            },
            "files": files,
            "notes": [*caveats(run), *notes],
            "versions": versions(),
        }
    )


def no_guarantee(run: RunConfig, source: Source) -> str | None:
    """Why nothing is promised at all; None where some sound accountant has a finite value for every agent here."""
    if run.noise.multiplier == 0.0:
        return NO_NOISE
    if source.keystream is not None:
        return "the noise came from a test keystream: whoever knows it can take the noise off again"
    headline = _headline(source, run.privacy.delta)
    if headline is None and (warning := delta_warning(run.privacy.delta, source.samples)) is not None:
        return warning
    if headline is None:
        return "no sound accountant has a value for every agent (Lemma 5 is conditional)"
    if any(p.epsilon[headline] in (None, math.inf) for p in source.parties):
        return "every sound epsilon is infinite"
    return None


def caveats(run: RunConfig) -> tuple[str, ...]:
    """What an epsilon does not cover, as far as the run file tells; without noise there is none to speak of."""
    if run.noise.multiplier == 0.0:
        study = 'The run had metrics = "study": its coordinator received private states.'
        return (*([study] if run.evaluate.metrics == "study" else []), *run.adversary.active.warnings())
    found = [
        "Each epsilon is one agent's own: it protects one sample of that agent's data against whoever sees everything "
        "that all agents sent, this model included.",
        "It does not cover how step sizes, clip, features or this agent were chosen, if private data were looked at.",
    ]
    found += bounds_of_columns(run)
    if run.privacy.C is not None:
        found.append("The constant C is declared, not enforced: where a gradient exceeds it, nothing is promised.")
    if run.evaluate.metrics == "study":
        found.append(
            'The run had metrics = "study": its coordinator received private states, and its accuracies and losses '
            "are outside the guarantee. They are not in this folder."
        )
    found += run.adversary.active.warnings()
    if run.data.dataset in ("mnist", "digits"):
        found.append(
            f"If `dpgt plan` chose the settings: its synthetic data were made to be as hard as the training samples of "
            f"{run.data.dataset}. No epsilon covers that choice."
        )
    if ":" in run.data.features:
        found.append(f"Features {run.data.features}: fixed by the operator, who answers for their being independent.")
    if ":" in run.model.name:
        found.append(f"Model {run.model.name}: its initial values are the operator's, who answers for them likewise.")
    return tuple(found)


def write_statement(
    folder: Path, run: RunConfig, chosen: Chosen, source: Source, names: Sequence[str], notes: Sequence[str]
) -> None:
    """Write both files beside the files ``names`` that are in ``folder`` already."""
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    data = document(run, chosen, source, files, notes)
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    held = f"{text}\n".encode()
    (folder / PRIVACY_FILE).write_bytes(held)
    (folder / STATEMENT_FILE).write_text(statement(data) + _hash_line(PRIVACY_FILE, held), encoding="utf-8")


def verify(folder: Path) -> None:
    """The files of ``folder`` are those that its PRIVACY.md names, and its figures those of privacy.json.

    A file that is absent is not looked at, but for these two.  ConfigError: the first that does not match.
    """
    try:
        said = (folder / STATEMENT_FILE).read_text(encoding="utf-8")
        held = (folder / PRIVACY_FILE).read_bytes()
    except (OSError, UnicodeDecodeError) as error:
        name = getattr(error, "filename", None) or folder / STATEMENT_FILE
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError.one(str(name), "", f"cannot be read ({reason}): nothing says what the model is") from error
    named = _HASH_LINE.findall(said)
    if any(name == PRIVACY_FILE and digest != hashlib.sha256(held).hexdigest() for name, digest in named):
        raise _unlike(folder / PRIVACY_FILE, f"the SHA-256 in {STATEMENT_FILE}")
    try:
        data = parse_json(held)
        files = [(str(name), str(digest)) for name, digest in data["files"].items()]
        other = data["versions"].get("dpgt_node") != versions().get("dpgt_node")
        same = said.removesuffix(_hash_line(PRIVACY_FILE, held)) == statement(data)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise _unlike(folder / PRIVACY_FILE, f"the figures in {STATEMENT_FILE}") from None
    # Another version has its own words: there the hash of all figures must do.
    if not same and not (other and any(name == PRIVACY_FILE for name, _ in named)):
        raise _unlike(folder / STATEMENT_FILE, f"the figures in {PRIVACY_FILE}")
    for name, digest in (*files, *named):
        path = folder / Path(name).name
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise _unlike(path, f"the SHA-256 in {STATEMENT_FILE}")


def _hash_line(name: str, content: bytes) -> str:
    return f"{name}: SHA-256 {hashlib.sha256(content).hexdigest()}\n"


def _unlike(path: Path, what: str) -> ConfigError:
    message = f"does not match {what}: one of the two was changed after the export; get the folder anew"
    return ConfigError.one(str(path), "", message)


def _what(run: RunConfig, chosen: Chosen) -> str:
    if chosen.which == "final":
        return f"x_(K+1) of {chosen.agent}, under {run.algorithm.mechanism} a function of what was released"
    if chosen.which == "last":
        return f"the x that {chosen.agent} released in round {chosen.last}"
    return f"the mean of the x that {chosen.agent} released in rounds {chosen.first}..{chosen.last}"


def _headline(source: Source, delta: float) -> str | None:
    costs = {name: [p.epsilon[name] for p in source.parties] for name in ACCOUNTANTS}
    return epsilons.tightest(costs, delta, source.samples)


def _strength(run: RunConfig, source: Source) -> str:
    """The word for the claim: of the worst agent's epsilon."""
    headline = _headline(source, run.privacy.delta)
    if headline is None:
        return "none"
    worst = max((math.inf if (value := p.epsilon[headline]) is None else value) for p in source.parties)
    return _word(run, source, headline, worst)


def _word(run: RunConfig, source: Source, accountant: str, value: float | None) -> str:
    """What an epsilon is worth; nothing under a test keystream."""
    privacy = run.privacy
    found = strength(accountant, value, privacy.delta, samples=source.samples, enforced=privacy.enforced)
    return found if source.keystream is None else "none"


def _delta_warning(run: RunConfig, source: Source) -> str | None:
    """What must be said of a delta of 1/D or more, where an epsilon uses it: another accountant may lead."""
    used = any(p.epsilon[name] is not None for p in source.parties for name in APPROXIMATE)
    return delta_warning(run.privacy.delta, source.samples) if used and run.noise.multiplier else None
