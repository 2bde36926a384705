"""Who gets which samples: a public function of the run file, the same on every host."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpgt_node.errors import ConfigError

I64 = npt.NDArray[np.int64]


def partition(kind: str, samples: int, agents: int, seed: int) -> list[I64]:
    """One int64 index array per agent; together they are ``range(samples)``, each index once.

    ``contiguous``: blocks of ``numpy.array_split``.  ``iid``: the same blocks of
    ``numpy.random.default_rng(seed).permutation(samples)``.  Raises ConfigError for an unknown kind or when an agent
    would get nothing.
    """
    if samples < agents:
        raise ConfigError.one("run file", "graph.agents", f"{agents} agents cannot share {samples} training samples")
    if kind == "contiguous":
        order = np.arange(samples, dtype=np.int64)
    elif kind == "iid":
        order = np.random.default_rng(seed).permutation(samples)
    else:
        raise ConfigError.one("run file", "data.partition", f"{kind!r} is not one of: iid, contiguous")
    return np.array_split(order, agents)
