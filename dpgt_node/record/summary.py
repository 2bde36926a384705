"""``summary.json``: the result of a run as one value, written atomically and read back.

JSON holds no NaN or Infinity: infinite is the string ``"inf"``, not applicable is ``null``.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from dpgt_node.config.model import RunConfig
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.documents import read_json
from dpgt_node.durable import write_text
from dpgt_node.errors import ConfigError
from dpgt_node.record.costs import Epsilon
from dpgt_node.values import dataclass

SUMMARY_FILE = "summary.json"
RESTARTS_FILE = "restarts.json"
"""How often ``launch`` started each of its processes again in this folder, by name; none when it never did."""


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """One agent's result, of x_{i,K+1}.

    ``accuracy_test`` in [0, 1] and ``loss_train`` are None in local runs and where they do not apply.
    ``releases``: payloads made durable, one a stream and round, charged or not.  ``bytes_sent``: bytes of them put on
    the wire by the agent's process since its last start; what a process before it sent is not in.
    ``paper_lemma5``: for comparison, Lemma 5 of the paper's mechanism at the same scale, K, m and C; None for the
    paper's own mechanism and where Lemma 5 lacks its constants.  ``strength``: the word for the headline's epsilon.
    """

    name: str
    accuracy_test: float | None
    loss_train: float | None
    epsilon: Epsilon
    releases: int | None
    bytes_sent: int | None
    paper_lemma5: float | None = None
    strength: str = "none"


@dataclass(frozen=True, slots=True)
class PrivacySummary:
    """What the epsilons mean: adjacency in words, C in L1 per sample, whether clipping enforces it, the noise law.

    ``samples``: the largest D of an agent: delta must be far below 1/D of each. None where it is not known.
    """

    adjacency: str
    C: float | None
    clip_l1: float | None
    clip_l2: float | None
    enforced: bool
    delta: float
    law: str
    samples: int | None = None

    @classmethod
    def of(cls, run: RunConfig, samples: Sequence[int | None] = ()) -> PrivacySummary:
        p, known = run.privacy, [count for count in samples if count is not None]
        D = max(known, default=None)
        return cls(adjacency(run), p.adjacency, p.clip_l1, p.clip_l2, p.enforced, p.delta, run.noise.law, D)


@dataclass(frozen=True, slots=True)
class Summary:
    """All of ``summary.json``.

    ``status``: "finished", "stopped", "budget", "lost", "refused", "failed"; "unfinished" while there is no summary.
    ``outcome``: the status, and what else must be said of it (:mod:`dpgt_node.record.guessing`); empty: the status.
    ``rounds`` = K+1 of a whole run; ``seconds`` of wall time that ``rounds_timed`` of them took, those of the last
    start: all, unless the run was resumed (None: a version that did not say); ``keystream`` "test" under the test
    keystream, else None (and then left out of the file).  ``headline``: the accountant whose epsilon stands for the
    run, the tightest sound one that covers every agent; None when there is none.  ``reasons``: why an accountant is
    null, by accountant.  ``restarts``: how often a process of this machine was started again, by name.
    ``epsilon_towards``: :meth:`dpgt_node.accounts.towards.Towards.by_t`; None, and left out of the file, where no noise
    is shared.
    ``digests``: what ``digests.json`` holds; None, and left out of the file, where no round was compared.
    ``no_accuracy``: why an agent has no ``accuracy_test``; None where all have one.
    ``alone``: test accuracy in [0, 1] of each agent without exchange and noise, in the order of ``agents``; None where
    nobody trained them.  ``no_alone``: why it, or one of it, is None; None where all are known.
    """

    name: str
    run_id: str
    status: str
    method: str
    mechanism: str
    rounds: int
    seconds: float | None
    rounds_per_second: float | None
    consensus_error: float | None
    privacy: PrivacySummary
    agents: tuple[AgentSummary, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    keystream: str | None = None
    headline: str | None = None
    reasons: Mapping[str, str | None] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)
    outcome: str = ""
    epsilon_towards: Mapping[str, Any] | None = None
    no_accuracy: str | None = None
    alone: tuple[float | None, ...] | None = None
    no_alone: str | None = None
    digests: Mapping[str, Any] | None = None
    rounds_timed: int | None = None


def adjacency(run: RunConfig) -> str:
    """The relation between two data sets that every epsilon of ``run`` is about, in words."""
    p = run.privacy
    if p.adjacency is not None:
        bound = f"C = {p.adjacency:g} in L1 (Definition 3)"
    elif p.clip_l2 is not None:
        bound = f"{2 * p.clip_l2:g} in L2"
    else:
        return "replace-one; no bound C on per-sample gradients is known (Definition 3)"
    times = "" if p.by_release is None else f", times {', '.join(f'{share:g}' for share in p.by_release)} by release"
    times += "" if p.decay is None else f", times {p.decay:g}^(-k/K) in round k"
    sums = "; the first release is of features summed by class" if run.scheme.first == "class-sums" else ""
    return f"replace-one, per-sample gradients differ by at most {bound}{times}{sums}"


def why_no_accuracy(run: RunConfig, accuracies: Mapping[str, float | None], evaluated: Collection[str]) -> str | None:
    """Why some of the agents' test ``accuracies``, by name, are None; None where none is.

    ``evaluated``: the agents that sent any metrics.
    """
    lack = [name for name, accuracy in accuracies.items() if accuracy is None]
    if not lack:
        return None
    if run.data.dataset in TOYS:
        return f'"{run.data.dataset}" is a formula: there is nothing to be right about'
    if run.evaluate.metrics != "study":
        return 'metrics = "local": every agent keeps its accuracy to itself, in metrics.csv of its own state_dir'
    whose = "" if len(lack) == len(accuracies) else f" ({', '.join(lack)})"
    if any(name not in evaluated for name in lack):
        return f"the run ended before it was evaluated{whose}"
    return f"there are no test samples{whose}"


def why_not_alone(run: RunConfig) -> str:
    """Why a summary does not say yet what agents reach alone."""
    if run.data.dataset in TOYS:
        return f'"{run.data.dataset}" is a formula: there are no samples to train on alone'
    if run.evaluate.metrics != "study":
        return 'metrics = "local": every owner asks on its own host, dpgt data alone NODE.toml'
    return "nobody asked: launch and simulate compute it with --alone"


def with_alone(summary: Summary, known: Mapping[str, float]) -> Summary:
    """``summary`` with what agents reach alone, by name; an agent that is not ``known`` has no test samples."""
    alone = tuple(known.get(agent.name) for agent in summary.agents)
    lack = [agent.name for agent, value in zip(summary.agents, alone, strict=True) if value is None]
    return replace(summary, alone=alone, no_alone=f"there are no test samples ({', '.join(lack)})" if lack else None)


def versions() -> dict[str, str]:
    """Versions of this package, Python and the libraries that decide the bits; absent packages are left out."""
    from importlib import metadata  # and with it email and more, which little else needs

    found = {"python": platform.python_version()}
    for name, package in (("dpgt_node", "dpgt-node"), ("numpy", "numpy"), ("grpcio", "grpcio"), ("scipy", "scipy"),
                          ("protobuf", "protobuf"), ("cryptography", "cryptography")):  # fmt: skip
        try:
            found[name] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def to_json(value: object) -> Any:
    """``value`` as JSON data: dataclasses and mappings to dicts, infinite to "inf" / "-inf", NaN to None."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return float(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item) for item in value]
    return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}  # type: ignore[arg-type]


def write_summary(out_dir: Path, summary: Summary) -> Path:
    """Write ``OUT/summary.json`` atomically (a reader sees the old file or the whole new one); returns its path."""
    data = to_json(summary)
    for key in ("keystream", "epsilon_towards", "digests"):
        if data[key] is None:
            del data[key]
    path = out_dir / SUMMARY_FILE
    write_text(path, json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    return path


def load_summary(out_dir: Path) -> Summary | None:
    """``OUT/summary.json``; None when there is none.  Raises :class:`ConfigError` naming the file and the key."""
    path = out_dir / SUMMARY_FILE
    try:
        data = read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError.one(str(path), "", f"cannot be read: {error}") from error
    try:
        return Summary(
            name=str(data["name"]),
            run_id=str(data["run_id"]),
            status=str(data["status"]),
            method=str(data["method"]),
            mechanism=str(data["mechanism"]),
            rounds=int(data["rounds"]),
            seconds=_number(data["seconds"]),
            rounds_per_second=_number(data["rounds_per_second"]),
            consensus_error=_number(data["consensus_error"]),
            privacy=_privacy(data["privacy"]),
            agents=tuple(_agent(item) for item in data["agents"]),
            versions={str(key): str(value) for key, value in data["versions"].items()},
            keystream=data.get("keystream"),
            headline=data.get("headline"),
            reasons={str(key): None if text is None else str(text) for key, text in data.get("reasons", {}).items()},
            restarts={str(key): int(count) for key, count in data.get("restarts", {}).items()},
            outcome=str(data.get("outcome", "")),
            epsilon_towards=data.get("epsilon_towards"),
            no_accuracy=data.get("no_accuracy"),
            alone=None if data.get("alone") is None else tuple(map(_number, data["alone"])),
            no_alone=data.get("no_alone"),
            digests=data.get("digests"),
            rounds_timed=None if data.get("rounds_timed") is None else int(data["rounds_timed"]),
        )
    except KeyError as error:
        raise ConfigError.one(str(path), str(error.args[0]), "is missing") from error
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        message = "is not the summary that a run leaves: was it changed, or is it another file?"
        raise ConfigError.one(str(path), "", message) from error


def read_restarts(out_dir: Path) -> dict[str, int]:
    """``OUT/restarts.json``; {} when there is none, or none that can be read: it is a count, not a result."""
    try:
        held = read_json(out_dir / RESTARTS_FILE)
        return {str(name): int(count) for name, count in held.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


def _privacy(data: Mapping[str, Any]) -> PrivacySummary:
    return PrivacySummary(
        str(data["adjacency"]), _number(data["C"]), _number(data["clip_l1"]), _number(data["clip_l2"]),
        bool(data["enforced"]), float(data["delta"]), str(data["law"]), _count(data.get("samples")),
    )  # fmt: skip


def _agent(data: Mapping[str, Any]) -> AgentSummary:
    epsilon = {str(key): _number(value) for key, value in data["epsilon"].items()}
    releases, sent = data["releases"], data["bytes_sent"]
    return AgentSummary(
        str(data["name"]), _number(data["accuracy_test"]), _number(data["loss_train"]), Epsilon.of(epsilon),
        _count(releases), _count(sent),
        _number(data.get("paper_lemma5")), str(data.get("strength", "none")),
    )  # fmt: skip
