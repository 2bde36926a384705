from __future__ import annotations

import numpy as np
import pytest

from dpgt_node.privacy.cancelling.masks import MaskGraph
from tests.oracles.cancelling import laplacian


def test_shapes() -> None:
    assert MaskGraph.complete(4).edges == ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    assert MaskGraph.ring(4).edges == ((0, 1), (0, 3), (1, 2), (2, 3))
    assert MaskGraph.ring(2).edges == MaskGraph.complete(2).edges == ((0, 1),)
    assert MaskGraph.of(4, [(3, 1), (0, 2)]).edges == ((0, 2), (1, 3))
    assert MaskGraph.complete(4).partners(2) == (0, 1, 3) and MaskGraph.ring(5).partners(0) == (1, 4)


@pytest.mark.parametrize(
    ("n", "pairs", "message"),
    [
        (3, [(0, 1)], "agent 3 shares noise with nobody"),
        (1, [], "agent 1 shares noise with nobody"),
        (2, [(0, 1), (1, 0)], "the pair of agents 1 and 2 is listed twice"),
        (2, [(0, 0), (0, 1)], "agent 1 cannot share noise with itself"),
        (2, [(0, 2)], "agent 3 of a pair does not exist: there are 2"),
        (2, [(-1, 0)], "does not exist"),
    ],
)
def test_what_is_no_mask_graph(n: int, pairs: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskGraph.of(n, pairs)


def test_stiffness_bounds_the_laplacian_of_every_part() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        n = int(rng.integers(2, 9))
        pairs = [p for p in MaskGraph.complete(n).edges if rng.random() < 0.5] + [(i, i + 1) for i in range(n - 1)]
        graph = MaskGraph.of(n, sorted(set(pairs)))
        kept = [i for i in range(n) if rng.random() < 0.7] or [0]
        part = laplacian(n, [e for e in graph.edges if set(e) <= set(kept)])
        for L in (laplacian(n, graph.edges), part):
            assert np.linalg.eigvalsh(L)[-1] <= graph.stiffness + 1e-9
    for n in (2, 5, 100):
        assert MaskGraph.complete(n).stiffness == n
    assert MaskGraph.ring(100).stiffness == 4
