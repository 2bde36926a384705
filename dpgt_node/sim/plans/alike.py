"""How alike the agents' data are, as their operator states it: never measured on anybody's samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from dpgt_node.config.model import RunConfig, Scalar
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.partition import partition
from dpgt_node.types import I64
from dpgt_node.values import dataclass

_STATED = {"by-label": "num_classes_per_partition", "dirichlet": "alpha"}
"""Words of ``--alike`` that take a number, and what it is."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Shards that differ as those of this partition do, by :func:`~dpgt_node.learning.data.partition.partition`."""

    kind: str = "iid"
    params: Mapping[str, Scalar] = field(default_factory=dict)
    seed: int = 0

    @classmethod
    def of(cls, run: RunConfig) -> Alike:
        """As the run file's partition says; the order of a file says nothing, so "contiguous" counts as "iid"."""
        kind = "iid" if run.data.partition == "contiguous" else run.data.partition
        return cls(kind, run.data.params, run.data.seed)

    @classmethod
    def stated(cls, text: str, source: str = "command line") -> Alike:
        """``iid``, ``by-label:N`` (N classes an agent), ``dirichlet:ALPHA``.  ConfigError for anything else."""
        kind, _, number = text.partition(":")
        if text == "iid":
            return cls()
        try:
            if kind == "by-label" and int(number) > 0:
                return cls(kind, {_STATED[kind]: int(number), "class_assignment_mode": "deterministic"})
            if kind == "dirichlet" and 0.0 < float(number) < float("inf"):
                return cls("inner-dirichlet", {_STATED[kind]: float(number)})
        except ValueError:
            pass
        message = f"must be iid, by-label:N (N classes an agent) or dirichlet:ALPHA, not {text!r}"
        raise ConfigError.one(source, "--alike", message)

    @property
    def all_alike(self) -> bool:
        """Whether agents differ by chance alone."""
        return self.kind == "iid"

    @property
    def words(self) -> str:
        """For messages."""
        numbers = [f"{value:g}" for key in _STATED.values() if isinstance(value := self.params.get(key), int | float)]
        return self.kind + (f" ({numbers[0]})" if numbers and not self.all_alike else "")

    def shards(self, labels: I64, agents: int) -> list[I64]:
        """Rows of each agent among samples with these ``labels``; sizes may be trimmed to what there is.

        ConfigError: the labels cannot be divided like that.
        """
        params = {key: value for key, value in self.params.items() if key != "partition_size"}
        if "min_partition_size" in params:  # stand-in samples are fewer than the agents'
            params["min_partition_size"] = 1
        return partition(self.kind, labels, agents, self.seed, params)

    def mixtures(self, classes: int, samples: tuple[int, ...]) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
        """How many samples of each class an agent with so many ``samples`` holds: int64 (classes,) an agent."""
        agents = len(samples)
        labels = np.random.default_rng(0).integers(classes, size=max(sum(samples), 100 * classes * agents))
        found = []
        for rows, D in zip(self.shards(labels, agents), samples, strict=True):
            shares = np.bincount(labels[rows], minlength=classes) / len(rows)
            ends = np.round(np.cumsum(shares) * D).astype(np.int64)
            found.append(np.diff(ends, prepend=0))
        return found
