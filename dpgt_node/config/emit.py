"""RunConfig and NodeConfig back to text: TOML for people, canonical JSON for the hash that agents compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from dpgt_node.config.columns import ByColumn
from dpgt_node.config.data import resolved_dataset, resolved_test
from dpgt_node.config.declare.keys import sections, table
from dpgt_node.config.graphs.edges import MAX_EDGES
from dpgt_node.config.graphs.matrices import Matrix
from dpgt_node.config.graphs.sparse import COMPACT_FROM, SparseRows
from dpgt_node.config.model import NoiseStream, RunConfig
from dpgt_node.config.node_model import NodeConfig

_MAX_DIFFERENCES = 20
_MAX_SHOWN = 60


def document(run: RunConfig) -> dict[str, Any]:
    """The resolved run under RUN.toml's own keys; absent values are left out."""
    tables: dict[str, Any] = table(run)
    for name, value, key in sections(run):
        has_meaning = key.only is None or key.only.met(run.data.dataset)
        if has_meaning and not (key.later and value == type(value)()):
            tables[name] = table(value)
    for name, stream in _streams(run):
        tables["noise"][_stream_key(name, stream)] = list(stream.values)
    tables["data"] |= {
        name: value.table() if isinstance(value, ByColumn) else value for name, value in sorted(run.data.params.items())
    }
    if run.method_options:
        tables["method"] = dict(sorted(run.method_options.items()))
    return tables


def _streams(run: RunConfig) -> list[tuple[str, NoiseStream]]:
    both = (("zeta", run.noise.zeta), ("eta", run.noise.eta))
    return [(name, stream) for name, stream in both if stream is not None]


def _stream_key(name: str, stream: NoiseStream) -> str:
    return f"scale_{name}" if stream.kind == "constant" else f"p_{name}"


def canonical_json(run: RunConfig) -> str:
    """Sorted keys, no spaces, ASCII, finite numbers: equal for equal runs, whatever the file looked like."""
    return "".join(pieces(document(run)))


def run_sha256(run: RunConfig) -> str:
    """Hex SHA-256 of :func:`canonical_json`."""
    whole = hashlib.sha256()
    for piece in pieces(document(run)):  # of ten thousand agents it is 800 MB, which no node should hold
        whole.update(piece.encode("ascii"))
    return whole.hexdigest()


def pieces(value: object) -> Iterator[str]:
    """The canonical JSON of ``value``, in order; a matrix of many agents comes row by row."""
    if isinstance(value, SparseRows):
        yield "["
        for i, row in enumerate(value.texts()):
            yield f",{row}" if i else row
        yield "]"
    elif isinstance(value, dict) and value:
        mark = "{"
        for key in sorted(value):
            yield f"{mark}{json.dumps(key)}:"
            yield from pieces(value[key])
            mark = ","
        yield "}"
    else:
        yield json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def diff_runs(mine: str, theirs: str) -> list[str]:
    """Where two canonical JSON texts differ, e.g. ``"algorithm.iterations: 200 here, 100 there"``; at most 20 lines.

    ``theirs`` may come from a peer: text that is no JSON gives one line, and values are shown shortened and escaped.
    """
    try:
        here, there = _side(mine, "here"), _side(theirs, "there")
    except _UnreadableError as error:
        return [str(error)]
    lines = [f"{key}: {_shown(here, key)} here, {_shown(there, key)} there" for key in _differing(here, there)]
    if len(lines) > _MAX_DIFFERENCES:
        lines[_MAX_DIFFERENCES:] = [f"... and {len(lines) - _MAX_DIFFERENCES} more differences"]
    return lines


def differing_keys(mine: str, theirs: str) -> list[str]:
    """The keys whose values differ, without a value: what may be said to everybody.  At most 20 lines.

    A list is one key: how long it is would be a word of its content.  So is a table within a table.
    """
    try:
        found = _differing(_side(mine, "here"), _side(theirs, "there"))
    except _UnreadableError as error:
        return [str(error)]
    keys = list(dict.fromkeys(".".join(key.partition("[")[0].split(".")[:2]) for key in found))
    if len(keys) > _MAX_DIFFERENCES:
        keys[_MAX_DIFFERENCES:] = [f"... and {len(keys) - _MAX_DIFFERENCES} more"]
    return keys


class _UnreadableError(ValueError):
    """A text that is no JSON."""


def _side(text: str, where: str) -> dict[str, object]:
    try:
        return dict(_leaves(json.loads(text), ""))
    except (ValueError, RecursionError):
        raise _UnreadableError(f"the run {where} is not readable as JSON") from None


def _differing(here: Mapping[str, object], there: Mapping[str, object]) -> list[str]:
    return [
        key
        for key in sorted(here.keys() | there.keys())
        if key not in here or key not in there or _dump(here[key]) != _dump(there[key])
    ]


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
    for key in [_stream_key(name, stream) for name, stream in _streams(run)]:
        value = tables["noise"][key]
        if len(set(value)) == 1:
            tables["noise"][key] = value[0]
    import tomli_w

    blocks = []
    head = tomli_w.dumps({"name": tables.pop("name")})
    for name, values in tables.items():
        lines = [f"[{name}]\n"]
        for key, value in sorted(values.items(), key=lambda item: isinstance(item[1], dict)):
            if name == "graph" and key in ("R", "C"):
                lines.append(f"{key} = {_matrix(value)}\n")
            elif isinstance(value, dict):  # a table of its own, after the keys of this one
                lines.append(f"\n[{name}.{key}]\n{tomli_w.dumps(value)}")
            else:
                lines.append(tomli_w.dumps({key: value}))
        blocks.append("".join(lines))
    return "\n".join([head, *blocks])


def _matrix(matrix: Matrix) -> str:
    # A list of more edges would not be read again, and where so many agents hear from most others rows are shorter.
    if isinstance(matrix, SparseRows) and len(matrix) >= COMPACT_FROM and len(matrix.weights) <= MAX_EDGES:
        lines = (f"  [{sender}, {receiver}, {_number(weight)}]" for sender, receiver, weight in matrix.edges())
        return '{ generator = "edges", edges = [\n' + ",\n".join(lines) + "\n] }"
    rows = ("  [" + ", ".join(map(_number, row)) + "]" for row in matrix)
    return "[\n" + ",\n".join(rows) + ",\n]"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def node_to_toml(node: NodeConfig) -> str:
    """A NODE.toml that parses back to an equal NodeConfig."""
    import tomli_w

    tables = table(node)
    for name, value, _ in sections(node):
        tables[name] = table(value)
    return tomli_w.dumps({name: value for name, value in tables.items() if value != {}})
