"""Run files as values, for the tests of data, models and oracles."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpgt_node.config import model
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.privacy.laws.keystream import CtrStream

RING = ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))


def run(
    dataset: str,
    *,
    samples: model.Samples = 5,
    privacy: model.Privacy | None = None,
    softmax: model.Model | None = None,
    noise: float = 0.1,
    wire_dtype: str = "auto",
    partition: str = "iid",
    seed: int = 0,
    K: int = 10,
    R=RING,
    C=RING,
    gamma: float = 0.1,
    **params: model.Scalar,
) -> model.RunConfig:
    n = len(R)
    scale = model.NoiseStream("constant", (noise,) * n)
    return model.RunConfig(
        name="case",
        algorithm=model.Algorithm(iterations=K),
        scheme=model.SchemeS2(alpha=0.1, beta=0.01, gamma=gamma, p_m=1.002, samples=samples),
        noise=model.Noise(scale, scale, multiplier=1.0 if noise else 0.0),
        graph=model.Graph(tuple(f"agent-{i + 1}" for i in range(n)), R, C),
        data=model.Data(dataset, partition=partition, seed=seed, params=params),
        model=softmax or model.Model(),
        privacy=privacy or model.Privacy(),
        runtime=model.Runtime(wire_dtype=wire_dtype),
    )


def stream(seed: int = 0) -> CtrStream:
    return CtrStream(seed.to_bytes(16, "big"), bytes(16))


def blobs(samples: int = 30, features: int = 4, classes: int = 3, seed: int = 0, spread: float = 1.0) -> Dataset:
    rng = np.random.default_rng(seed)
    y = np.arange(samples + 10) % classes
    x = spread * rng.standard_normal((samples + 10, features)) + y[:, None]
    return Dataset(x[:samples], y[:samples], x[samples:], y[samples:], classes)


def save(path: Path, data: Dataset, **changes: object) -> Path:
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")} | changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path
