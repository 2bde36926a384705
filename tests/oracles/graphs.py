"""Reachability by walking edges, one agent at a time, and random graph pairs."""

from __future__ import annotations

import numpy as np


def reached_from(M, start: int) -> set[int]:
    """Agents that hear ``start``: edge j -> i when M[i][j] > 0."""
    seen, todo = {start}, [start]
    while todo:
        j = todo.pop()
        for i in range(len(M)):
            if M[i][j] > 0 and i not in seen:
                seen.add(i)
                todo.append(i)
    return seen


def roots(M) -> set[int]:
    return {s for s in range(len(M)) if len(reached_from(M, s)) == len(M)}


def random_weights(rng: np.random.Generator, n: int, density: float) -> np.ndarray:
    """(n, n), non-uniform weights, self-loops with the same probability as any other edge."""
    return np.where(rng.random((n, n)) < density, rng.uniform(0.1, 1.5, (n, n)), 0.0)


def random_pair(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A pair that satisfies Assumption 1: a random tree out of (R) and into (C) a common root, plus random edges."""
    R, C = random_weights(rng, n, 0.25), random_weights(rng, n, 0.25)
    order = rng.permutation(n)
    for position in range(1, n):
        R[order[position]][order[rng.integers(position)]] = rng.uniform(0.1, 1.5)
        C[order[rng.integers(position)]][order[position]] = rng.uniform(0.1, 1.5)
    return R, C
