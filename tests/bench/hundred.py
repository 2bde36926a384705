"""A hundred agents in one process: LeNet on MNIST, Dirichlet(0.1), rounds per second of ``dpgt simulate``.

    python -m tests.bench.hundred [--agents 100] [--iterations 400] [--samples 10] [--fast] [--device cuda] [--out DIR]

A directed random graph with ten in-neighbours on average, mechanism "noise-once", Gaussian noise, L2 clip; 500 samples
of each agent and of the test set in every evaluation.  Prints rounds per second, the sizes of the shards
and the accuracies at the end, and what the same gradients alone take: the part of a round that no simulator can save.
Needs the extra [torch] and DPGT_DATA with MNIST.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = """
name = "hundred"
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
dataset = "mnist"
partition = "dirichlet"
alpha = 0.1
min_partition_size = {m}
[model]
name = "lenet"
[privacy]
clip_l2 = 1.0
[evaluate]
every = {every}
metrics = "study"
samples = 500
"""


def gradients(run_file: Path, rounds: int = 3) -> float:
    """Seconds a round of all agents' gradients alone."""
    import numpy as np

    from dpgt_node.config import load_run
    from dpgt_node.sim.simulate import build_oracles

    run = load_run(run_file)
    oracles, rng = build_oracles(run, Path(os.environ["DPGT_DATA"])), np.random.default_rng(0)
    m, x, begin = int(run.scheme.samples or 1), oracles[0].initial(), 0.0
    for k in range(rounds + 1):
        if k == 1:
            begin = time.perf_counter()
        for oracle in oracles:
            oracle.gradient(x, rng.choice(oracle.samples or m, m, replace=False))
    return (time.perf_counter() - begin) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--every", type=int, default=200)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path)
    o = parser.parse_args()
    folder = o.out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    out, run_file = folder / "out", folder / "run.toml"
    p = min(1.0, 10 / o.agents)
    graph = {"p": p, "weight": 1 / max(1.0, p * (o.agents - 1))}
    run_file.write_text(RUN.format(K=o.iterations, n=o.agents, m=o.samples, every=o.every, **graph))
    command = [sys.executable, "-m", "dpgt_node", "simulate", str(run_file), "--out", str(out), "--device", o.device]
    begin = time.perf_counter()
    subprocess.run([*command, *(["--fast"] if o.fast else [])], check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - begin
    summary = json.loads((out / "summary.json").read_text())
    shown = [sys.executable, "-m", "dpgt_node", "data", "show", str(run_file), "--format", "json"]
    shards = json.loads(subprocess.run(shown, check=True, capture_output=True).stdout)["agents"]
    sizes = sorted(agent["samples"] for agent in shards)
    right = [agent["accuracy_test"] for agent in summary["agents"]]
    mean = f"{100 * statistics.mean(right):.1f} %, worst agent {100 * min(right):.1f} %"
    print(f"{o.agents} agents, {o.iterations + 1} rounds, {sizes[0]} to {sizes[-1]} samples an agent, m = {o.samples}")
    print(f"  {summary['rounds_per_second']:.3f} rounds/s with evaluations; {wall:.0f} s from start to end")
    print(f"  test accuracy: mean {mean}; consensus error {summary['consensus_error']:.3g}")
    if o.device == "cpu":
        print(f"  gradients alone: {1 / gradients(run_file):.3f} rounds/s", flush=True)


if __name__ == "__main__":
    main()
