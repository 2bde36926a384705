"""Noise that cancels in a run file: what fits together, and what is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from dpgt_node.config.privacy.cancelling import masks
from tests.config.cases import parse, problems
from tests.config.test_run_errors import CANCEL

BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"noise.mask_graph": "ring"}, "noise.mask_graph", "cancel is not given"),
    ({**CANCEL, "algorithm.mechanism": "paper"}, "noise.cancel", 'mechanism "paper" puts noise on states'),
    ({**CANCEL, "algorithm.mechanism": "public-state"}, "noise.cancel", "it does under noise-once"),
    ({**CANCEL, "noise.law": "laplace"}, "noise.cancel", "Laplace noise gains nothing from what is shared"),
    ({**CANCEL, "noise.multiplier": 0.0}, "noise.cancel", "no guarantee, whatever r"),
    ({**CANCEL, "noise.scale_eta": [1, 1, 2]}, "noise.scale_eta", "must be one for all agents: grids of different"),
    ({**CANCEL, "noise.scale_eta": 0.0}, "noise.scale_eta", "must be > 0"),
    ({**CANCEL, "noise.cancel": 19}, "noise.cancel", "r = 19 is too much for this mask graph"),
    ({**CANCEL, "noise.mask_graph": [[1, 2]]}, "noise.mask_graph", "agent 3 shares noise with nobody"),
    ({**CANCEL, "noise.mask_graph": [[1, 2], [2, 1]]}, "noise.mask_graph", "listed twice"),
    ({**CANCEL, "noise.mask_graph": [[1, 1]]}, "noise.mask_graph", "agent 1 cannot share noise with itself"),
    ({**CANCEL, "noise.mask_graph": [[1, 4]]}, "noise.mask_graph", "agent 4 of a pair does not exist"),
    ({**CANCEL, "robust.rule": "self-clip", "robust.outliers": 1}, "robust", "only a plain sum takes out again"),
    ({**CANCEL, "robust.tracker": "norm-clip", "robust.tracker_radius": 1.0}, "robust", "only a plain sum takes out"),
    (
        {**CANCEL, "graph.agents": 1, "graph.R": [[0]], "graph.C": [[0]]},
        "noise.mask_graph",
        "agent 1 shares noise with nobody",
    ),
]


@pytest.mark.parametrize(("changes", "key", "words"), BAD, ids=[f"{key}: {words}" for _, key, words in BAD])
def test_what_does_not_fit_is_said_once(changes: dict[str, Any], key: str, words: str) -> None:
    found = problems(changes)
    assert [k for k, _ in found] == [key] and words in found[0][1]


def test_everything_that_does_not_fit_is_said() -> None:
    changes = {"noise.cancel": 40, "noise.mask_graph": "ring"}  # GOOD: paper, Laplace noise of unequal scales
    assert [key for key, _ in problems(changes)] == ["noise.cancel", "noise.cancel", "noise.scale_eta", "noise.cancel"]


@pytest.mark.parametrize(
    ("graph", "edges"),
    [
        (None, ((0, 1), (0, 2), (1, 2))),
        ("complete", ((0, 1), (0, 2), (1, 2))),
        ("ring", ((0, 1), (0, 2), (1, 2))),
        ([[3, 2], [1, 2]], ((0, 1), (1, 2))),
    ],
)
def test_who_shares_with_whom(graph: Any, edges: Any) -> None:
    found = masks(parse(CANCEL if graph is None else {**CANCEL, "noise.mask_graph": graph}))
    assert found is not None and found.edges == edges
    assert masks(parse({})) is None
