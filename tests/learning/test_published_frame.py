"""The frame of a model whose data are on its owners' hosts alone: d and the run file say it all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpgt_node.config.model import Data, Model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.published import Frame, frame_of
from tests.learning.cases import run

ABSENT = "csv:nobody.csv"
NAMED = {"label": "y", "classes": ("a", "b", "c")}


@pytest.mark.parametrize(
    ("features", "normalise", "bias", "size", "numbers"),
    [
        ("raw", "none", 1.0, 3 * (5 + 1), 5),
        ("raw", "sphere", 0.2, 3 * (5 + 1 + 1), 5),
        ("raw", "l2", 0.0, 3 * 5, 5),
        ("hog", "none", 1.0, 3 * (392 + 1), 784),
        ("hog", "none", 1.0, 3 * 392, None),
        ("mine:features", "none", 1.0, 3 * 6, None),
        ("raw", "none", 1.0, 3 * 6 + 1, None),
        ("raw", "sphere", 1.0, 3 * 2, None),
    ],
)
def test_it_follows_from_the_number_of_parameters(
    features: str, normalise: str, bias: float, size: int, numbers: int | None
) -> None:
    data = Data(ABSENT, features=features, normalise=normalise, params=NAMED)  # type: ignore[arg-type]
    given = replace(run(ABSENT), data=data, model=Model(bias=bias))
    if numbers is None:
        with pytest.raises(ConfigError, match="the run's data are not here: give an agent's own file"):
            frame_of(given, None, None, size)
        return
    assert frame_of(given, None, None, size) == Frame((numbers,), 3, ("a", "b", "c"))
    unstated = replace(given, data=replace(data, params={"label": "y"}))
    with pytest.raises(ConfigError, match="not here"):
        frame_of(unstated, None, None, size)
