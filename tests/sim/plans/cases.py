"""The run and shape that tests of plans share: three agents on uneven graphs."""

from __future__ import annotations

from dpgt_node.config import model
from dpgt_node.sim.plans.rehearsal import Shape

RING = ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.5, 1.0, 0.0))
CHORD = ((0.0, 0.3, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.2))
SHAPE = Shape(16, 3, (300, 310, 400))


def run(**privacy: float) -> model.RunConfig:
    return model.RunConfig(
        "plan",
        model.Algorithm(5),
        model.SchemeS2(0.3, 0.2, 1.0, 1.0, samples="full"),
        model.Noise(None, None, multiplier=0.0),
        model.Graph(("a", "b", "c"), RING, CHORD),
        model.Data("digits", normalise="l2"),
        model.Model(bias=0.2),
        model.Privacy(**(privacy or {"clip_l2": 1.0})),
    )
