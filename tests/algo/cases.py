"""Run files as values, for the tests of the pure mathematics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpgt_node.config import model

DEMO_R = ((0, 0, 0, 0, 1), (1, 0, 0, 0, 0), (1, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0))
DEMO_C = ((0, 0, 1, 0, 1), (1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0))


def names(n: int) -> tuple[str, ...]:
    return tuple(f"agent-{i + 1}" for i in range(n))


def graph(R, C) -> model.Graph:
    def rows(M):
        return tuple(tuple(float(v) for v in row) for row in np.asarray(M))

    return model.Graph(names(len(R)), rows(R), rows(C))


def stream(kind: str, value: float | tuple[float, ...], n: int) -> model.NoiseStream:
    return model.NoiseStream(kind, value if isinstance(value, tuple) else (value,) * n)


def run(
    scheme: model.Scheme,
    *,
    R=DEMO_R,
    C=DEMO_C,
    K: int = 200,
    p_zeta: float | tuple[float, ...] = 0.1,
    p_eta: float | tuple[float, ...] = 0.1,
    kind: str = "exponent",
    multiplier: float = 1.0,
    law: str = "laplace",
    privacy: model.Privacy | None = None,
) -> model.RunConfig:
    n = len(R)
    return model.RunConfig(
        name="case",
        algorithm=model.Algorithm(iterations=K),
        scheme=scheme,
        noise=model.Noise(stream(kind, p_zeta, n), stream(kind, p_eta, n), law, multiplier),
        graph=graph(R, C),
        data=model.Data("zeros", params={"dimension": 3}),
        privacy=privacy or model.Privacy(C=1.0),
    )


S2 = model.SchemeS2(alpha=0.1, beta=0.01, gamma=0.1, p_m=1.002, samples=55)
PAPER_S1 = model.SchemeS1(a1=72, a2=0.95, a3=98, a4=7e-5, p_alpha=0.987, p_beta=0.69, p_gamma=0.997, p_m=1.78)
PAPER_S2 = model.SchemeS2(alpha=0.1, beta=0.01, gamma=0.1, p_m=1.002)


def with_scheme(config: model.RunConfig, **changes: object) -> model.RunConfig:
    return replace(config, scheme=replace(config.scheme, **changes))
