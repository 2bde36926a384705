"""R and C as nested lists, a generator or a file.

Every form ends as n rows of n finite, non-negative floats; entry [i][j] > 0 means that agent i receives from agent j,
i.e. a directed edge j -> i.  Generators and GraphML files of many agents keep only what is not zero.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpgt_node.config.declare.keys import declared, read_fields
from dpgt_node.config.declare.kinds import Integer
from dpgt_node.config.declare.reader import Section, bad_number, decoded, read_bytes, show
from dpgt_node.config.graphs.edges import Edge, EdgeList
from dpgt_node.config.graphs.sparse import SPARSE_FROM, SparseRows
from dpgt_node.config.own_kinds import AgentPair
from dpgt_node.config.parameters import GENERATOR_KEYS, Chord, Circulant, Generator, Listed, Random, Star
from dpgt_node.config.vocabulary import MAX_AGENTS
from dpgt_node.errors import ConfigError
from dpgt_node.values import dataclass

Matrix = Sequence[tuple[float, ...]]
"""A tuple of tuples, or :class:`SparseRows`, which compares and hashes alike."""
_MAX_REPORTED = 5


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """One weight for every pair of ``agents``; without their names (they are wrong, or not read yet) of any number."""

    agents: tuple[str, ...] = ()

    @property
    def placeholder(self) -> Matrix:
        return ()

    def read(self, section: Section, key: str, value: object) -> Matrix:
        n = len(self.agents) or None
        if isinstance(value, Mapping):
            return _generated(section.section(key), n)
        if isinstance(value, str):
            rows = _from_file(section, key, value, self.agents)
        elif isinstance(value, list):
            rows = value
        else:
            section.problem(key, f"must be a list of rows, a generator or a file name, not {show(value)}")
            return ()
        if rows is None or isinstance(rows, SparseRows):
            return rows or ()
        whole = _checked(section, key, rows, n)
        return whole if len(whole) < SPARSE_FROM else SparseRows(dict(enumerate(row)) for row in whole)

    def schema(self) -> dict[str, Any]:
        from dpgt_node.config.declare import schema  # only for editors, not for a node's start

        rows = {"type": "array", "items": {"type": "array", "items": {"type": "number", "minimum": 0}}}
        return {
            "anyOf": [
                rows,
                schema.of_class(Generator, GENERATOR_KEYS),
                {"type": "string", "pattern": r"\.(csv|npy|graphml)$"},
            ]
        }

    def words(self) -> str:
        return "rows, generator or file, see below"


def _checked(section: Section, key: str, rows: list[object], n: int | None) -> Matrix:
    """Shape and entries; at most five bad entries are listed.  A square matrix of another size is one problem."""
    expected = len(rows) if n is None else n
    if len(rows) != expected:
        section.problem(key, f"has {len(rows)} rows for {expected} agents")
    if max(expected, len(rows)) > MAX_AGENTS:
        section.problem(key, f"has more than {MAX_AGENTS} rows")
        return ()
    problems: list[tuple[str, str]] = []
    matrix: list[tuple[float, ...]] = []
    for i, row in enumerate(rows):
        if not isinstance(row, list):
            problems.append((f"{key}[{i}]", f"must be a row of numbers, not {show(row)}"))
            continue
        if len(row) not in (expected, len(rows)):
            problems.append((f"{key}[{i}]", f"has {len(row)} entries; the matrix must be {expected} x {expected}"))
        values: list[float] = []
        for j, entry in enumerate(row):
            why = bad_number(entry, at_least=0.0)
            if why is not None or not isinstance(entry, (int, float)):
                problems.append((f"{key}[{i}][{j}]", why or "must be a number"))
            else:
                values.append(abs(float(entry)))  # abs: -0.0 and 0.0 are one weight, also in the hash
        matrix.append(tuple(values))
    for where, message in problems[:_MAX_REPORTED]:
        section.problem(where, message)
    if len(problems) > _MAX_REPORTED:
        section.problem(key, f"has {len(problems) - _MAX_REPORTED} more bad entries")
    return tuple(matrix)


# --- generators ---------------------------------------------------------------------------------------------------


def _generated(section: Section, n: int | None) -> Matrix:
    values = read_fields(section, Generator)
    kind, weight, loops = values["generator"], values["weight"], values["self_loops"]
    known = section.ok("generator")
    edges: Iterator[tuple[int, int]] = iter(())
    given: tuple[Edge, ...] = ()
    if known and kind == "ring-chord":
        edges = _ring_chord(n or 0, *_chord(section, n))
    elif known and kind == "star":
        (center,) = declared(Star)
        edges = _star(n or 0, replace(center, kind=Integer(1, n or MAX_AGENTS)).read(section) - 1)
    elif known and kind == "random":
        edges = _random(n or 0, **read_fields(section, Random))
    elif known and kind == "circulant":
        edges = _circulant(n or 0, **read_fields(section, Circulant))
    elif known and kind == "edges":
        (listed,) = declared(Listed)
        given = replace(listed, kind=EdgeList(n or MAX_AGENTS)).read(section)
    elif known:
        edges = {"ring": _ring, "path": _path, "complete": _complete}[kind](n or 0)
    if not known:  # what it may have is not known, but what no generator has is
        for cls in (Chord, Star, Random, Circulant, Listed):
            for entry in declared(cls):
                section.has(entry.name)
    section.done()
    if n is None or not section.ok(
        "generator", "weight", "self_loops", "chord", "center", "p", "seed", "offsets", "edges"
    ):
        return ()
    entries: list[dict[int, float]] = [{} for _ in range(n)]
    ones = ((j, i, None) for j, i in edges)
    for j, i, own in itertools.chain(ones, ((j - 1, i - 1, own) for j, i, own in given)):
        if values["reverse"] or values["undirected"]:
            entries[j][i] = weight if own is None else own
        if not values["reverse"] or values["undirected"]:
            entries[i][j] = weight if own is None else own
    for i in range(n if loops else 0):
        entries[i][i] = weight if loops is True else float(loops)
    return _rows(entries)


def _rows(entries: Sequence[Mapping[int, float]]) -> Matrix:
    rows, n = SparseRows(entries), len(entries)
    return rows if n >= SPARSE_FROM else tuple(rows)


def _chord(section: Section, n: int | None) -> tuple[int, int]:
    (chord,) = declared(Chord)
    if not section.has(chord.name) and n is not None and n < 3:
        section.problem(chord.name, "a ring with a chord needs at least 3 agents")
    sender, receiver = replace(chord, kind=AgentPair(n or MAX_AGENTS)).read(section)
    return sender - 1, receiver - 1


def _ring(n: int) -> Iterator[tuple[int, int]]:
    return ((i, (i + 1) % n) for i in range(n) if n > 1)


def _ring_chord(n: int, sender: int, receiver: int) -> Iterator[tuple[int, int]]:
    yield from _ring(n)
    yield sender, receiver


def _path(n: int) -> Iterator[tuple[int, int]]:
    return ((i, i + 1) for i in range(n - 1))


def _star(n: int, center: int) -> Iterator[tuple[int, int]]:
    return ((center, i) for i in range(n) if i != center)


def _complete(n: int) -> Iterator[tuple[int, int]]:
    return ((j, i) for j in range(n) for i in range(n) if i != j)


def _circulant(n: int, offsets: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return ((j, (j + offset) % n) for j in range(n) for offset in offsets if offset % n)


def _random(n: int, p: float, seed: int) -> Iterator[tuple[int, int]]:
    import numpy as np

    rng = np.random.default_rng(seed)
    for i in range(n):
        yield from ((int(j), i) for j in np.flatnonzero(rng.random(n) < p) if j != i)


# --- files --------------------------------------------------------------------------------------------------------


def _from_file(section: Section, key: str, text: str, agents: tuple[str, ...]) -> list[object] | SparseRows | None:
    """Rows as read, still to be checked; None after a problem."""
    suffix = Path(text).suffix.lower()
    try:
        if suffix == ".csv":
            return _csv(read_bytes(section.base / text, section.source, key))
        if suffix == ".npy":
            return _npy(read_bytes(section.base / text, section.source, key))
        if suffix == ".graphml":
            return _graphml(read_bytes(section.base / text, section.source, key), agents)
    except ConfigError as error:
        for problem in error.problems:
            section.problem(key, problem.message)
        return None
    except ValueError as error:
        section.problem(key, f"{text}: {error}")
        return None
    section.problem(key, f"{show(text)} must be a .csv, .npy or .graphml file")
    return None


def _csv(raw: bytes) -> list[object]:
    """One matrix row a line, comma-separated; empty lines and lines that begin with # are skipped."""
    import csv

    rows: list[object] = []
    try:
        lines = decoded(raw).splitlines()
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            for cells in csv.reader([line]):
                try:
                    rows.append([float(cell) for cell in cells])
                except ValueError as error:
                    message = f"line {number}: {error}; a row is numbers with commas between them, and points in them"
                    raise ValueError(message) from error
    except csv.Error as error:
        raise ValueError(f"not a CSV file: {error}") from error
    return rows


def _npy(raw: bytes) -> list[object]:
    import numpy as np

    try:
        array = np.load(io.BytesIO(raw), allow_pickle=False)
    except (OSError, EOFError, SyntaxError, TypeError, MemoryError, OverflowError) as error:
        raise ValueError(f"not an NPY file: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError("must hold one 2-dimensional array of real numbers")
    return list(array.astype(np.float64).tolist())


def _graphml(raw: bytes, agents: tuple[str, ...]) -> list[object] | SparseRows:
    """An edge source -> target with attribute ``weight`` (default 1): the target receives from the source."""
    from xml.etree.ElementTree import ParseError

    import networkx as nx

    if not agents:
        raise ValueError("cannot be read without the agents' names")
    if b"<!ENTITY" in raw:
        raise ValueError("XML entities are not allowed")
    try:
        graph = nx.read_graphml(io.BytesIO(raw))
    except (ParseError, nx.NetworkXException, KeyError, TypeError, AttributeError, LookupError) as error:
        raise ValueError(f"not a GraphML file: {error}") from error
    index = {name: i for i, name in enumerate(agents)}
    strangers = sorted(str(node) for node in graph if node not in index)
    if strangers:
        raise ValueError(f"node {show(strangers[0])} is not an agent of this run")
    if graph.is_multigraph():
        raise ValueError("has parallel edges")
    entries: list[dict[int, Any]] = [{} for _ in agents]
    for source, target, weight in graph.edges(data="weight", default=1.0):
        entries[index[target]][index[source]] = weight
        if not graph.is_directed():
            entries[index[source]][index[target]] = weight
    if len(agents) < SPARSE_FROM:
        return [[row.get(j, 0.0) for j in range(len(agents))] for row in entries]
    for i, row in enumerate(entries):
        for j, weight in row.items():
            if (why := bad_number(weight, at_least=0.0)) is not None:
                raise ValueError(f"the weight of {agents[j]} -> {agents[i]} {why}")
            row[j] = float(weight)
    return SparseRows(entries)
