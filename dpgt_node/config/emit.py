"""RunConfig and NodeConfig back to text: TOML for people, canonical JSON for the hash that agents compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import tomli_w

from dpgt_node.config.data import resolved_dataset, resolved_test
from dpgt_node.config.model import DATA_ID, Adversary, Matrix, NodeConfig, NoiseStream, RunConfig
from dpgt_node.config.vocabulary import TOYS

_TORCH_KEYS = ("precision", "memory_mb")
_MAX_DIFFERENCES = 20
_MAX_SHOWN = 60


def document(run: RunConfig) -> dict[str, Any]:
    """The resolved run under RUN.toml's own keys; absent values are left out."""
    a, s, e, r, data = run.algorithm, run.scheme, run.evaluate, run.runtime, run.data
    scheme = {key: getattr(s, key) for key in s.__slots__}
    noise: dict[str, object] = {"law": run.noise.law, "multiplier": run.noise.multiplier}
    for name, stream in (("zeta", run.noise.zeta), ("eta", run.noise.eta)):
        if stream is not None:
            noise[_stream_key(name, stream)] = list(stream.values)
    tables: dict[str, Any] = {
        "name": run.name,
        "algorithm": {"method": a.method, "mechanism": a.mechanism, "iterations": a.iterations},
        "scheme": {"kind": s.kind, **scheme},
        "noise": noise,
        "graph": {"agents": list(run.graph.agents), "R": run.graph.R, "C": run.graph.C},
        "data": {"dataset": data.dataset, "seed": data.seed, **dict(sorted(data.params.items()))},
        "privacy": {key: getattr(run.privacy, key) for key in run.privacy.__slots__},
        "evaluate": {"every": e.every, "metrics": e.metrics, "samples": e.samples},
        "runtime": {
            "wire_dtype": r.wire_dtype,
            "round_timeout": r.round_timeout_s,
            "register_timeout": r.register_timeout_s,
            "on_agent_loss": r.on_agent_loss,
            "barrier_every": r.barrier_every,
            "channel": r.channel,
        },
    }
    if run.adversary != Adversary():  # a run without it keeps the hash that it always had
        tables["adversary"] = {"semi_honest": list(run.adversary.semi_honest), "truth": run.adversary.truth}
    if data.dataset not in TOYS:
        tables["data"] |= {"features": data.features, "normalise": data.normalise, "partition": data.partition}
        foreign = _TORCH_KEYS if run.model.name == "softmax" else ("bias",)
        tables["model"] = {key: getattr(run.model, key) for key in run.model.__slots__ if key not in foreign}
    return {
        key: {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
        for key, value in tables.items()
    }


def _stream_key(name: str, stream: NoiseStream) -> str:
    return f"scale_{name}" if stream.kind == "constant" else f"p_{name}"


def canonical_json(run: RunConfig) -> str:
    """Sorted keys, no spaces, ASCII, finite numbers: equal for equal runs, whatever the file looked like."""
    return json.dumps(document(run), sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_sha256(run: RunConfig) -> str:
    """Hex SHA-256 of :func:`canonical_json`."""
    return hashlib.sha256(canonical_json(run).encode("utf-8")).hexdigest()


def diff_runs(mine: str, theirs: str) -> list[str]:
    """Where two canonical JSON texts differ, e.g. ``"algorithm.iterations: 200 here, 100 there"``; at most 20 lines.

    ``theirs`` may come from a peer: text that is no JSON gives one line, and values are shown shortened and escaped.
    """
    sides = []
    for text, where in ((mine, "here"), (theirs, "there")):
        try:
            sides.append(dict(_leaves(json.loads(text), "")))
        except (ValueError, RecursionError):
            return [f"the run {where} is not readable as JSON"]
    here, there = sides
    lines = [
        f"{key}: {_shown(here, key)} here, {_shown(there, key)} there"
        for key in sorted(here.keys() | there.keys())
        if key not in here or key not in there or _dump(here[key]) != _dump(there[key])
    ]
    if len(lines) > _MAX_DIFFERENCES:
        lines[_MAX_DIFFERENCES:] = [f"... and {len(lines) - _MAX_DIFFERENCES} more differences"]
    return lines


def _leaves(value: object, path: str) -> list[tuple[str, object]]:
    if isinstance(value, dict) and (value or not path):
        return [
            leaf
            for key, item in value.items()
            for leaf in _leaves(item, f"{path}.{_short(key)}" if path else _short(key))
        ]
    if isinstance(value, list) and value:
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, f"{path}[{index}]")]
    return [(path, value)]


def _short(key: str) -> str:
    return json.dumps(key)[1:-1][:_MAX_SHOWN]


def _dump(value: object) -> str:
    return json.dumps(value)


def _shown(side: Mapping[str, object], key: str) -> str:
    if key not in side:
        return "absent"
    text = _dump(side[key])
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def to_toml(run: RunConfig, *, absolute_paths: bool = False) -> str:
    """The resolved run file: valid TOML that parses back to an equal run.

    ``absolute_paths`` writes the data path absolute, for a copy in another folder.  The path's text is part of the
    run's hash, so all agents and the coordinator must then use that copy.
    """
    tables = document(run)
    if absolute_paths:
        tables["data"]["dataset"] = resolved_dataset(run)
        if (test := resolved_test(run)) is not None:
            tables["data"]["test"] = str(test)
    for key, value in tables["noise"].items():
        if isinstance(value, list) and len(set(value)) == 1:
            tables["noise"][key] = value[0]
    blocks = []
    head = tomli_w.dumps({"name": tables.pop("name")})
    for name, table in tables.items():
        lines = [f"[{name}]\n"]
        for key, value in table.items():
            if name == "graph" and key in ("R", "C"):
                lines.append(f"{key} = {_matrix(value)}\n")
            else:
                lines.append(tomli_w.dumps({key: value}))
        blocks.append("".join(lines))
    return "\n".join([head, *blocks])


def _matrix(matrix: Matrix) -> str:
    rows = ("  [" + ", ".join(map(_number, row)) + "]" for row in matrix)
    return "[\n" + ",\n".join(rows) + ",\n]"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def node_to_toml(node: NodeConfig) -> str:
    """A NODE.toml that parses back to an equal NodeConfig."""
    tls: dict[str, object] = {"insecure": True}
    if not node.tls.insecure:
        files = {"ca": node.tls.ca, "cert": node.tls.cert, "key": node.tls.key}
        tls = {**{k: str(v) for k, v in files.items()}, "coordinator_id": node.tls.coordinator_id}
    policy: dict[str, object] = {}
    for key in node.policy.__slots__:
        value = getattr(node.policy, key)
        if value is not None:
            policy[key] = list(value) if isinstance(value, tuple) else value
    data: dict[str, object] = {"id": node.data_id} if node.data_id != DATA_ID else {}
    if node.shard is not None:
        data["shard"] = node.shard
    if node.data_path is not None:
        data["path"] = str(node.data_path)
    tables: dict[str, object] = {
        "name": node.name,
        "run": str(node.run),
        "listen": node.listen,
        "advertise": node.advertise,
        "coordinator": node.coordinator,
        "state_dir": str(node.state_dir),
        "durability": node.durability,
        "disk_check": None if node.disk_check else False,
        "data": data,
        "tls": tls,
        "policy": policy,
    }
    return tomli_w.dumps({k: v for k, v in tables.items() if v not in (None, {})})
