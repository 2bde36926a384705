"""Many agents in one process: rounds per second of ``dpgt simulate``, Dirichlet(0.1) shards.

Up to a hundred agents hold different numbers of samples.  Of more hardly any draw leaves everybody a batch, so each
holds as many, and only their classes are mixed so.

A directed random graph with ten in-neighbours on average, mechanism "noise-once", Gaussian noise, L2 clip; 500 samples
of each agent and of the test set in every evaluation.  Beside it what the same gradients alone take: the part of a
round that no simulator can save.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpgt_node.bench.children import run_dpgt
from dpgt_node.bench.figures import Around, Row, Value, option
from dpgt_node.config import load_run
from dpgt_node.errors import ConfigError
from dpgt_node.learning.extras import lacking
from dpgt_node.sim.simulate import build_oracles
from dpgt_node.values import dataclass

NEIGHBOURS = 10
_UNEQUAL_MOST = 100
"""Agents with shards of different sizes."""
RUN = """
name = "scale"
[algorithm]
iterations = {K}
mechanism = "noise-once"
[scheme]
kind = "S2"
alpha = 0.4
beta = 0.4
gamma = 0.1
p_m = 1.0
samples = {m}
[noise]
scale_eta = 0.001
law = "gaussian"
[graph]
agents = {n}
R = {{ generator = "random", p = {p}, weight = {weight}, seed = 1 }}
C = {{ generator = "random", p = {p}, weight = {weight}, seed = 2 }}
[data]
dataset = "{dataset}"
{partition}
alpha = 0.1
[model]
name = "{model}"
[privacy]
clip_l2 = 1.0
[evaluate]
every = {every}
metrics = "study"
samples = 500
"""


@dataclass(frozen=True, slots=True)
class Settings:
    agents: int = option(100, "Agents.", least=2)
    rounds: int = option(401, "Rounds.", least=2)
    samples: int = option(10, "Samples of a batch, and the least of a shard.", least=1)
    every: int = option(200, "Rounds between evaluations.", least=1)
    dataset: str = option("mnist", "The run file's data.dataset.")
    model: str = option("lenet", "The run file's model.name; softmax needs no torch.")
    fast: bool = option(False, "dpgt simulate --fast.")
    device: str = option("cpu", "Of gradients.", choices=("cpu", "cuda"))


def run_text(settings: Settings) -> str:
    """The run file."""
    p, m = min(1.0, NEIGHBOURS / settings.agents), settings.samples
    unequal = f'partition = "dirichlet"\nmin_partition_size = {m}'
    return RUN.format(
        K=settings.rounds - 1,
        n=settings.agents,
        m=m,
        every=settings.every,
        dataset=settings.dataset,
        partition=unequal if settings.agents <= _UNEQUAL_MOST else 'partition = "inner-dirichlet"',
        model=settings.model,
        p=p,
        weight=1 / max(1.0, p * (settings.agents - 1)),
    )


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    if settings.model != "softmax" and (why := lacking("torch")) is not None:
        raise ConfigError.one("command line", "--model", f"{settings.model} {why}, or take --model softmax")
    with around.temporary() as folder:
        run_file, out = folder / "run.toml", folder / "out"
        run_file.write_text(run_text(settings), encoding="utf-8")
        begin = time.perf_counter()
        more = ["--fast"] if settings.fast else []
        run_dpgt(around.environment, "simulate", run_file, "--out", out, "--device", settings.device, *more)
        wall_s = time.perf_counter() - begin
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        shards = json.loads(run_dpgt(around.environment, "data", "show", run_file, "--format", "json"))["agents"]
        alone = gradients(run_file, around.data_root) if settings.device == "cpu" else None
    sizes, right = [a["samples"] for a in shards], [a["accuracy_test"] for a in summary["agents"]]
    rate = float(summary["rounds_per_second"])
    cells: dict[str, Value] = {
        "rounds/s": rate,
        "gradients alone, rounds/s": alone,
        "ratio": None if alone is None else rate / alone,
        "seconds in all": wall_s,
        "shards from": min(sizes),
        "to": max(sizes),
    }
    yield Row(f"{settings.agents} agents, {settings.rounds} rounds, m = {settings.samples}", cells)
    yield Row(
        "test accuracy at the end",
        {"mean": statistics.mean(right), "worst agent": min(right), "consensus error": summary["consensus_error"]},
    )


def gradients(run_file: Path, data_root: Path, rounds: int = 3) -> float:
    """Rounds per second of all agents' gradients alone."""
    run = load_run(run_file)
    oracles, rng = build_oracles(run, data_root), np.random.default_rng(0)
    m, x, begin = int(run.scheme.samples or 1), oracles[0].initial(), 0.0
    for k in range(rounds + 1):  # the first is for caches
        if k == 1:
            begin = time.perf_counter()
        for oracle in oracles:
            oracle.gradient(x, rng.choice(oracle.samples or m, m, replace=False))
    return rounds / (time.perf_counter() - begin)
