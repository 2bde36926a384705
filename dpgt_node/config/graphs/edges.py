"""A graph as the list of its edges: what a large sparse graph is written as."""

from __future__ import annotations

from dpgt_node import figures
from dpgt_node.config.declare.kinds import Integer, Number, Schema
from dpgt_node.config.declare.reader import Section, bad_number, show
from dpgt_node.config.vocabulary import MAX_AGENTS
from dpgt_node.values import dataclass

Edge = tuple[int, int, float | None]
"""Sender and receiver, by number from 1, and the weight where it is not the rule's."""
MAX_EDGES = 1_000_000
_MAX_REPORTED = 5


@dataclass(frozen=True, slots=True)
class EdgeList:
    """``[[sender, receiver], ...]`` or ``[[sender, receiver, weight], ...]``, each pair once; of ``agents`` agents."""

    agents: int = MAX_AGENTS

    @property
    def placeholder(self) -> tuple[Edge, ...]:
        return ()

    def read(self, section: Section, key: str, value: object) -> tuple[Edge, ...]:
        if not isinstance(value, list) or not len(value) <= MAX_EDGES:
            section.problem(key, f"must be a list of at most {MAX_EDGES} edges, not {show(value)}")
            return ()
        found: dict[tuple[int, int], float | None] = {}
        bad = 0
        for at, entry in enumerate(value):
            wrong = self._wrong(entry)
            if wrong is None and (entry[0], entry[1]) in found:
                wrong = "", f"{entry[0]} -> {entry[1]} is there already"
            if wrong is None:
                found[entry[0], entry[1]] = float(entry[2]) if len(entry) == 3 else None
                continue
            bad += 1
            if bad <= _MAX_REPORTED:
                section.problem(f"{key}[{at}]{wrong[0]}", wrong[1])
        if bad > _MAX_REPORTED:
            section.problem(key, f"has {figures.counted(bad - _MAX_REPORTED, 'more bad edge')}")
        if bad:
            return ()
        return tuple((sender, receiver, weight) for (sender, receiver), weight in found.items())

    def _wrong(self, entry: object) -> tuple[str, str] | None:
        """Where in the entry its first fault is, and what; None: it is an edge."""
        if not isinstance(entry, list) or len(entry) not in (2, 3):
            return "", f"must be [sender, receiver] or [sender, receiver, weight], not {show(entry)}"
        for place, v in enumerate(entry[:2]):
            if isinstance(v, bool) or not isinstance(v, int) or not 1 <= v <= self.agents:
                return f"[{place}]", f"must be the number of an agent, 1 to {self.agents}, not {show(v)}"
        why = bad_number(entry[2], above=0.0) if len(entry) == 3 else None
        return None if why is None else ("[2]", why)

    def schema(self) -> Schema:
        number, weight = Integer(1, self.agents).schema(), Number(above=0.0).schema()
        edge: Schema = {"type": "array", "prefixItems": [number, number, weight], "minItems": 2, "maxItems": 3}
        return {"type": "array", "items": edge, "maxItems": MAX_EDGES}

    def words(self) -> str:
        return "list of [sender, receiver] or [sender, receiver, weight]"
