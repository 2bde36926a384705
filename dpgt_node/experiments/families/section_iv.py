"""Run files of the paper's Section IV, literally: its steps, m_K, noise exponents and schemes.

The weights of Fig. 1 are not printed; the graphs here are ours.  So is the model unless it is asked for: the paper
trains ResNet18, softmax regression is what a small machine repeats a hundred times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dpgt_node.config import RunConfig, parse_document
from dpgt_node.experiments.families.runs.job import Job
from dpgt_node.privacy.mechanisms import PAPER
from dpgt_node.values import dataclass

SchemeWord = Literal["S1", "S2"]
R = ((0, 0, 0, 0, 1), (1, 0, 0, 0, 0), (1, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0))
C = ((0, 0, 1, 0, 1), (1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0))
SCHEMES: Mapping[SchemeWord, Mapping[str, Any]] = {
    "S1": {
        "kind": "S1", "a1": 72.0, "a2": 0.95, "a3": 98.0, "a4": 0.00007,
        "p_alpha": 0.987, "p_beta": 0.69, "p_gamma": 0.997, "p_m": 1.78,
    },
    "S2": {"kind": "S2", "alpha": 0.1, "beta": 0.01, "gamma": 0.1, "p_m": 1.002},
}  # fmt: skip
EXPONENTS: Mapping[SchemeWord, tuple[float, float, float]] = {"S1": (-0.1, 0.1, 0.2), "S2": (0.9994, 0.9996, 0.9998)}
"""As the captions name them, from the least noise to the most."""
PAPER_K = 2000
_FIRST = {-0.1: -0.11, 0.1: 0.09, 0.2: 0.19, 0.9994: 0.99939, 0.9996: 0.99959, 0.9998: 0.99979}
_STEP: Mapping[SchemeWord, float] = {"S1": 0.01, "S2": 1e-5}
_EVALUATIONS = 20


@dataclass(frozen=True, slots=True)
class Settings:
    """What a family is asked for.  ``seeds``: how many, from 0 on; each has its own noise, batches and partition.

    ``look``: accuracy is of so many of each agent's samples and of the test set, evenly spaced; None: of all.

    Of the family ``ours``: ``sets`` of data, ``agents``, ``partitions``, ``epsilons``, ``methods`` (none: all), and how
    many candidates tune a cell, ``budget``.
    """

    dataset: str = "mnist"
    model: str = "softmax"
    iterations: int = PAPER_K
    seeds: int = 3
    device: str = "cpu"
    exact: bool = False
    look: int | None = None
    sets: tuple[str, ...] = ("mnist", "fashion-mnist")
    agents: tuple[int, ...] = (5, 20, 100)
    partitions: tuple[str, ...] = ("iid", "dirichlet")
    epsilons: tuple[float, ...] = (0.5, 1.0, 3.0, 8.0)
    methods: tuple[str, ...] = ()
    budget: int = 8

    @classmethod
    def read(cls, held: Mapping[str, Any]) -> Settings:
        """From JSON, as ``dataclasses.asdict`` gives it."""
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in held.items()}
        return cls(**values)

    def share(self, family: str) -> str:
        """A sentence: what of ``family`` these settings ask for."""
        seeds = f"{self.seeds} {'seed' if self.seeds == 1 else 'seeds'}"
        if family == "table1":
            parts = [f"K = {self.iterations}", seeds]
        elif family == "ours":
            parts = [
                ", ".join(self.sets),
                f"{', '.join(map(str, self.agents))} agents",
                ", ".join(self.partitions),
                f"epsilon {', '.join(f'{epsilon:g}' for epsilon in self.epsilons)}",
                ", ".join(self.methods) or "every method",
                f"K at most {self.iterations}",
                seeds,
            ]
        else:
            parts = [self.dataset, self.model, f"K = {self.iterations}", seeds]
        return f"Shown are the settings that were asked for last: {'; '.join(parts)}."

    @property
    def all_seeds(self) -> range:
        """0, 1, ..."""
        return range(self.seeds)


def exponents(scheme: SchemeWord, named: float) -> list[float]:
    """p of the five agents: 0.09 + 0.01 i for the caption's 0.1, and so on."""
    return [round(_FIRST[named] + _STEP[scheme] * i, 5) for i in range(1, 6)]


def run_of(
    settings: Settings,
    scheme: SchemeWord,
    named: float,
    *,
    seed: int = 0,
    method: str = "dpgt",
    mechanism: str | None = None,
    options: Mapping[str, Any] | None = None,
    noise: bool = True,
    loops: bool = False,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    tag: str = "",
) -> RunConfig:
    """One run.  ``named``: the exponent as captions name it.  ``loops``: weight 1 from each agent to itself, on both.

    ``mechanism`` None: the method's own, the paper's for Algorithm 1.  ``changes``: further keys, by table.
    """
    word = PAPER.name if method == "dpgt" and mechanism is None else mechanism
    document: dict[str, Any] = {
        "name": "-".join(part for part in (method, tag, word or "", scheme, f"p{named:g}" if noise else "quiet",
                                           "loops" if loops else "", f"K{settings.iterations}") if part),
        "algorithm": {"iterations": settings.iterations, "method": method},
        "scheme": dict(SCHEMES[scheme]),
        "noise": {"p_zeta": exponents(scheme, named), "p_eta": exponents(scheme, named)},
        "graph": {"agents": 5, "R": _weights(R, loops), "C": _weights(C, loops)},
        "data": {"dataset": settings.dataset, "seed": seed},
        "privacy": {"C": 1.0},
        "evaluate": {"every": max(1, settings.iterations // _EVALUATIONS), "metrics": "study"},
    }  # fmt: skip
    if settings.look is not None:
        document["evaluate"]["samples"] = settings.look
    if word is not None:
        document["algorithm"]["mechanism"] = word
    if not noise:
        document["noise"]["multiplier"] = 0.0
    if settings.model != "softmax":
        document["model"] = {"name": settings.model}
    if options:
        document["method"] = dict(options)
    for table, keys in (changes or {}).items():
        document[table] = {**document.get(table, {}), **keys}
    return parse_document(document, "experiment", Path.cwd())


def jobs_of(settings: Settings, scheme: SchemeWord, named: float, **changes: Any) -> tuple[Job, ...]:
    """:func:`run_of` for every seed."""
    return tuple(
        Job(
            run_of(settings, scheme, named, seed=seed, **changes),
            seed,
            "exact" if settings.exact else "fast",
            settings.device,
        )
        for seed in settings.all_seeds
    )


def alone_jobs(settings: Settings) -> tuple[Job, ...]:
    """Every agent by itself, for every seed's partition."""
    runs = (run_of(settings, "S2", 0.9996, seed=seed, noise=False, tag="alone") for seed in settings.all_seeds)
    return tuple(Job(run, seed, "alone", settings.device) for seed, run in enumerate(runs))


def _weights(matrix: Sequence[Sequence[int]], loops: bool) -> list[list[int]]:
    return [[int(w or (loops and i == j)) for j, w in enumerate(row)] for i, row in enumerate(matrix)]
