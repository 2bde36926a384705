"""Reads ``[graph]``: agent names, and R and C as nested lists, a generator or a file.

Every form ends as two dense n x n matrices of finite, non-negative floats; entry [i][j] > 0 means that agent i
receives from agent j, i.e. a directed edge j -> i.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from dpgt_node.config.model import Graph, Matrix
from dpgt_node.config.reader import Section, bad_number, read_bytes, show
from dpgt_node.config.vocabulary import MAX_AGENTS, NAME
from dpgt_node.errors import ConfigError

GENERATORS = ("ring", "ring-chord", "path", "star", "complete", "random")
_MAX_REPORTED = 5
Edges = dict[tuple[int, int], float]


def read_graph(section: Section, base: Path) -> Graph:
    """``[graph]``; relative file names are resolved against ``base``."""
    agents = _agents(section)
    r = _matrix(section, "R", agents, base)
    c = _matrix(section, "C", agents, base)
    section.done()
    return Graph(agents=agents or (), R=r, C=c)


def _agents(section: Section) -> tuple[str, ...] | None:
    value = section.get("agents")
    if not section.has("agents"):
        section.problem("agents", "is missing")
    elif isinstance(value, int) and not isinstance(value, bool):
        if 1 <= value <= MAX_AGENTS:
            return tuple(f"agent-{i}" for i in range(1, value + 1))
        section.problem("agents", f"must be 1 to {MAX_AGENTS} agents, not {show(value)}")
    elif not isinstance(value, list):
        section.problem("agents", f"must be a number of agents or a list of names, not {show(value)}")
    elif not 1 <= len(value) <= MAX_AGENTS:
        section.problem("agents", f"must have 1 to {MAX_AGENTS} names, not {len(value)}")
    else:
        return _names(section, value)
    return None


def _names(section: Section, names: list[object]) -> tuple[str, ...]:
    """Bad names are reported and kept, so that the shapes of R and C can still be checked against their number."""
    seen: dict[str, str] = {}
    checked: list[str] = []
    for index, name in enumerate(names):
        text = name if isinstance(name, str) else f"#{index}"
        if not isinstance(name, str):
            section.problem(f"agents[{index}]", f"must be a name, not {show(name)}")
        elif not NAME.fullmatch(name):
            rule = "1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit"
            section.problem(f"agents[{index}]", f"{show(name)} is not a name: {rule}")
        elif name.lower() in seen:
            section.problem(f"agents[{index}]", f'"{name}" is an agent name twice (case does not count)')
        seen.setdefault(text.lower(), text)
        checked.append(text)
    return tuple(checked)


def _matrix(section: Section, key: str, agents: tuple[str, ...] | None, base: Path) -> Matrix:
    if not section.has(key):
        section.problem(key, "is missing")
        return ()
    value = section.get(key)
    n = len(agents) if agents is not None else None
    if isinstance(value, Mapping):
        return _generated(section.section(key), n)
    if isinstance(value, str):
        rows = _from_file(section, key, value, agents, base)
    elif isinstance(value, list):
        rows = value
    else:
        section.problem(key, f"must be a list of rows, a generator or a file name, not {show(value)}")
        return ()
    return () if rows is None else _checked(section, key, rows, n)


def _checked(section: Section, key: str, rows: list[object], n: int | None) -> Matrix:
    """Shape and entries; at most five bad entries are listed."""
    expected = len(rows) if n is None else n
    if len(rows) != expected:
        section.problem(key, f"has {len(rows)} rows for {expected} agents")
        expected = len(rows)
    if expected > MAX_AGENTS:
        section.problem(key, f"has more than {MAX_AGENTS} rows")
        return ()
    problems: list[tuple[str, str]] = []
    matrix: list[tuple[float, ...]] = []
    for i, row in enumerate(rows):
        if not isinstance(row, list):
            problems.append((f"{key}[{i}]", f"must be a row of numbers, not {show(row)}"))
            continue
        if len(row) != expected:
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
    kind = section.choice("generator", GENERATORS)
    weight = section.number("weight", 1.0, above=0.0)
    loops = _self_loops(section, weight)
    reverse = section.flag("reverse", False)
    undirected = section.flag("undirected", False)
    known = section.ok("generator")
    edges: Iterator[tuple[int, int]] = iter(())
    if known and kind == "ring-chord":
        sender, receiver = _chord(section, n)
        edges = _ring_chord(n or 0, sender, receiver)
    elif known and kind == "star":
        edges = _star(n or 0, section.integer("center", 1, at_least=1, at_most=n or MAX_AGENTS) - 1)
    elif known and kind == "random":
        p = section.number("p", at_least=0.0, at_most=1.0)
        edges = _random(n or 0, p, section.integer("seed", 0))
    elif known:
        edges = {"ring": _ring, "path": _path, "complete": _complete}[kind](n or 0)
    if known:
        section.done()
    if n is None or not section.ok("generator", "weight", "self_loops", "chord", "center", "p", "seed"):
        return ()
    rows = [[0.0] * n for _ in range(n)]
    for j, i in edges:
        if reverse or undirected:
            rows[j][i] = weight
        if not reverse or undirected:
            rows[i][j] = weight
    for i in range(n):
        rows[i][i] = loops
    return tuple(tuple(row) for row in rows)


def _self_loops(section: Section, weight: float) -> float:
    value = section.get("self_loops")
    if value is None or value is False:
        return 0.0
    return weight if value is True else section.number("self_loops", at_least=0.0)


def _chord(section: Section, n: int | None) -> tuple[int, int]:
    value = section.get("chord")
    top = MAX_AGENTS if n is None else n
    if value is None:
        if top < 3:
            section.problem("chord", "a ring with a chord needs at least 3 agents")
        return 0, 2
    pair = value if isinstance(value, list) and len(value) == 2 else []
    numbers = [v - 1 for v in pair if isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= top]
    if len(numbers) != 2 or numbers[0] == numbers[1]:
        section.problem("chord", f"must be [sender, receiver], two different agent numbers from 1 to {top}")
        return 0, 2
    return numbers[0], numbers[1]


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


def _random(n: int, p: float, seed: int) -> Iterator[tuple[int, int]]:
    import numpy as np

    rng = np.random.default_rng(seed)
    for i in range(n):
        draws = rng.random(n)
        yield from ((j, i) for j in range(n) if j != i and draws[j] < p)


# --- files --------------------------------------------------------------------------------------------------------


def _from_file(
    section: Section, key: str, text: str, agents: tuple[str, ...] | None, base: Path
) -> list[object] | None:
    """Rows as read, still to be checked; None after a problem."""
    suffix = Path(text).suffix.lower()
    try:
        if suffix == ".csv":
            return _csv(read_bytes(base / text, section.source, key))
        if suffix == ".npy":
            return _npy(read_bytes(base / text, section.source, key))
        if suffix == ".graphml":
            return _graphml(read_bytes(base / text, section.source, key), agents)
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
    rows: list[object] = []
    try:
        lines = raw.decode("utf-8-sig").splitlines()
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            for cells in csv.reader([line]):
                try:
                    rows.append([float(cell) for cell in cells])
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from error
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


def _graphml(raw: bytes, agents: tuple[str, ...] | None) -> list[object]:
    """An edge source -> target with attribute ``weight`` (default 1): the target receives from the source."""
    from xml.etree.ElementTree import ParseError

    import networkx as nx

    if agents is None:
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
    rows: list[list[object]] = [[0.0] * len(agents) for _ in agents]
    for source, target, weight in graph.edges(data="weight", default=1.0):
        rows[index[target]][index[source]] = weight
        if not graph.is_directed():
            rows[index[source]][index[target]] = weight
    return list(rows)
