"""Which training samples belong to which agent, by the vocabulary of flwr-datasets' partitioners.

Every kind is a pure function of the labels and the seed, so that daemons on separate hosts that hold copies of one file
agree without talking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dpgt_node.config.model import Scalar
from dpgt_node.errors import ConfigError
from dpgt_node.types import F64, I64

_TRIES = 10
"""Draws of a Dirichlet partition before it is given up, as flwr-datasets does."""


def partition(kind: str, labels: I64, agents: int, seed: int, params: Mapping[str, Scalar] | None = None) -> list[I64]:
    """Index arrays, int64, one per agent, disjoint; ``labels`` int64 (N,) of the training set.

    ``contiguous``: blocks of ``numpy.array_split``.  ``iid``: the same blocks of ``default_rng(seed).permutation(N)``.
    ``shards``: sorted by label, cut into agents * ``num_shards_per_partition`` shards, dealt at random (McMahan et al.
    2017).  ``dirichlet``: each class is divided by proportions drawn from Dirichlet(``alpha``, ..., ``alpha``); with
    ``self_balancing`` an agent that has its fair share gets nothing of further classes; drawn again, at most ten times,
    until everybody has ``min_partition_size``.  ``inner-dirichlet``: everybody gets ``partition_size`` samples (None:
    equal parts of all); one after the other draws a mixture of classes from Dirichlet(``alpha``, ..., ``alpha``) and
    samples by it, without replacement; what a class cannot give comes from the others, in proportion to the mixture
    while it lasts.  ``by-label``: each agent holds ``num_classes_per_partition`` classes, a
    class is divided equally among its holders; ``deterministic``: agent i holds the classes from i times their number
    on, modulo the classes; ``random``: a uniformly distributed subset of that size.  Samples of a class that nobody
    holds are not used, nor those beyond ``partition_size``; every other kind uses each sample once.

    Raises ConfigError when an agent would get nothing, or when a parameter does not fit the labels.
    """
    if len(labels) < agents:
        raise _refused("graph.agents", f"{agents} agents cannot share {len(labels)} training samples")
    if kind == "contiguous":
        return np.array_split(np.arange(len(labels), dtype=np.int64), agents)
    rng = np.random.default_rng(seed)
    if kind == "iid":
        return np.array_split(rng.permutation(len(labels)), agents)
    blocks = _KINDS[kind](labels, agents, rng, params or {})
    poor = [f"agent number {i + 1}" for i, block in enumerate(blocks) if not len(block)]
    if poor:
        raise _refused("data.partition", f"{kind!r} leaves {', '.join(poor[:5])} without samples; try another seed")
    return blocks


def _shards(labels: I64, agents: int, rng: np.random.Generator, params: Mapping[str, Scalar]) -> list[I64]:
    each = int(params["num_shards_per_partition"])
    if agents * each > len(labels):
        message = f"{agents} agents with {each} shards each need as many samples, there are {len(labels)}"
        raise _refused("data.num_shards_per_partition", message)
    shards = np.array_split(np.argsort(labels, kind="stable"), agents * each)
    order = rng.permutation(agents * each).reshape(agents, each)
    return [np.concatenate([shards[s] for s in own]) for own in order]


def _dirichlet(labels: I64, agents: int, rng: np.random.Generator, params: Mapping[str, Scalar]) -> list[I64]:
    alpha, least = float(params["alpha"]), int(params["min_partition_size"])
    if agents * least > len(labels):
        message = f"{agents} agents with {least} samples each need more than the {len(labels)} there are"
        raise _refused("data.min_partition_size", message)
    smallest = 0
    for _ in range(_TRIES):
        blocks = _dirichlet_once(labels, agents, rng, alpha, bool(params["self_balancing"]))
        smallest = min(map(len, blocks))
        if smallest >= least:
            return blocks
    message = (
        f"{_TRIES} draws left an agent with fewer than {least} samples (the last with {smallest}): "
        "lower it, raise alpha, or take another seed"
    )
    raise _refused("data.min_partition_size", message)


def _dirichlet_once(
    labels: I64, agents: int, rng: np.random.Generator, alpha: float, self_balancing: bool
) -> list[I64]:
    parts: list[list[I64]] = [[] for _ in range(agents)]
    held = np.zeros(agents, dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(agents, alpha))
        if self_balancing:
            shares = shares * (held < len(labels) / agents)
        total = shares.sum()
        # A tiny alpha can leave all of the mass with agents that are full already, or underflow to nothing.
        shares = shares / total if total > 0.0 else np.eye(agents)[int(held.argmin())]
        cuts = (np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for i, part in enumerate(np.split(rows, cuts)):
            parts[i].append(part)
            held[i] += len(part)
    return [rng.permutation(np.concatenate(own)) for own in parts]


def _inner_dirichlet(labels: I64, agents: int, rng: np.random.Generator, params: Mapping[str, Scalar]) -> list[I64]:
    size = params.get("partition_size")
    if size is not None and agents * int(size) > len(labels):
        message = f"{agents} agents with {size} samples each need more than the {len(labels)} there are"
        raise _refused("data.partition_size", message)
    sizes = [len(part) for part in np.array_split(labels, agents)] if size is None else [int(size)] * agents
    names = np.unique(labels)
    rows = [rng.permutation(np.flatnonzero(labels == label)) for label in names]
    left = np.array([len(row) for row in rows])
    blocks = []
    for m in sizes:
        mixture = rng.dirichlet(np.full(len(names), float(params["alpha"])))
        taken = _filled(left, mixture, m, rng)
        blocks.append(np.concatenate([row[n - k : n] for row, n, k in zip(rows, left, taken, strict=True)]))
        left = left - taken
    return blocks


def _filled(left: I64, mixture: F64, m: int, rng: np.random.Generator) -> I64:
    """How many of each class make ``m`` samples: drawn by ``mixture``, at most ``left``."""
    taken = np.zeros_like(left)
    while (lacking := m - int(taken.sum())) > 0:
        open_ = left > taken
        weights = np.where(open_, mixture, 0.0)
        # A mixture whose classes are used up, or that underflowed: whatever is left, in proportion.
        weights = weights if weights.sum() > 0.0 else np.where(open_, left - taken, 0).astype(float)
        drawn = rng.multinomial(lacking, weights / weights.sum())
        taken = np.minimum(taken + drawn, left)
    return taken


def _by_label(labels: I64, agents: int, rng: np.random.Generator, params: Mapping[str, Scalar]) -> list[I64]:
    names, each = np.unique(labels), int(params["num_classes_per_partition"])
    if each > len(names):
        raise _refused("data.num_classes_per_partition", f"is {each}, the training set has {len(names)} classes")
    if params["class_assignment_mode"] == "random":
        held = [rng.choice(len(names), each, replace=False) for _ in range(agents)]
    else:
        held = [(i * each + np.arange(each)) % len(names) for i in range(agents)]
    parts: list[list[I64]] = [[] for _ in range(agents)]
    for number, label in enumerate(names):
        holders = [i for i in range(agents) if number in held[i]]
        if holders:
            rows = rng.permutation(np.flatnonzero(labels == label))
            for i, part in zip(holders, np.array_split(rows, len(holders)), strict=True):
                parts[i].append(part)
    return [np.concatenate(own) for own in parts]


_KINDS: dict[str, Callable[[I64, int, np.random.Generator, Mapping[str, Scalar]], list[I64]]] = {
    "shards": _shards,
    "dirichlet": _dirichlet,
    "inner-dirichlet": _inner_dirichlet,
    "by-label": _by_label,
}


def _refused(key: str, message: str) -> ConfigError:
    return ConfigError.one("run file", key, message)
