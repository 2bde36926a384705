"""Who shares noise with whom: the mask graph, a simple graph on the agents, independent of R and C."""

from __future__ import annotations

from collections.abc import Iterable

from dpgt_node.values import dataclass

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MaskGraph:
    """``edges``: pairs (i, j) of 0-based agents with i < j < ``n``, ascending, each once."""

    n: int
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, n: int, pairs: Iterable[Edge]) -> MaskGraph:
        """Each pair in either order.  ValueError for a loop, a pair twice, a stranger, and an agent left alone."""
        edges: set[Edge] = set()
        for i, j in pairs:
            edge = (min(i, j), max(i, j))
            if not 0 <= edge[0] <= edge[1] < n:
                raise ValueError(f"agent {max(i, j) + 1} of a pair does not exist: there are {n}")
            if i == j:
                raise ValueError(f"agent {i + 1} cannot share noise with itself")
            if edge in edges:
                raise ValueError(f"the pair of agents {edge[0] + 1} and {edge[1] + 1} is listed twice")
            edges.add(edge)
        alone = sorted(set(range(n)) - {end for edge in edges for end in edge})
        if alone:
            raise ValueError(f"agent {alone[0] + 1} shares noise with nobody: everybody needs a partner")
        return cls(n, tuple(sorted(edges)))

    @classmethod
    def complete(cls, n: int) -> MaskGraph:
        """Everybody with everybody; ``n`` >= 2."""
        return cls.of(n, ((i, j) for i in range(n) for j in range(i + 1, n)))

    @classmethod
    def ring(cls, n: int) -> MaskGraph:
        """Agent i with agent i + 1, the last with the first; ``n`` >= 2."""
        return cls.of(n, {(min(i, (i + 1) % n), max(i, (i + 1) % n)) for i in range(n)})

    def partners(self, agent: int) -> tuple[int, ...]:
        """Who shares noise with ``agent``, ascending."""
        return tuple(sorted(i + j - agent for i, j in self.edges if agent in (i, j)))

    @property
    def stiffness(self) -> int:
        """An upper bound of the largest eigenvalue of the graph's Laplacian, and of that of every induced subgraph.

        No more than n, nor than the sum of the degrees at the ends of an edge (Anderson and Morley 1985); n itself for
        a complete graph.
        """
        degree = [0] * self.n
        for i, j in self.edges:
            degree[i] += 1
            degree[j] += 1
        return min(self.n, max(degree[i] + degree[j] for i, j in self.edges))
