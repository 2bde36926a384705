"""Trials of peers that have no better place; docs/explanation/trials.md lists all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.config import parse_run
from dpgt_node.errors import ConfigError
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.record.summary import load_summary
from tests.runtime.cluster import RUN, cluster

CROWD = 10


async def test_all_agents_upload_at_every_barrier(tmp_path: Path) -> None:
    """Study vectors of 160 kB from ten agents in each of six rounds: nothing is lost, nobody is called dead."""
    run = parse_run(RUN.format(K=5), "run.toml", Path("/"))
    ring = tuple(tuple(float((i - j) % CROWD == 1) for j in range(CROWD)) for i in range(CROWD))
    names = tuple(f"agent-{i + 1}" for i in range(CROWD))
    noise = replace(
        run.noise,
        zeta=replace(run.noise.zeta, values=(0.1,) * CROWD),
        eta=replace(run.noise.eta, values=(0.01,) * CROWD),
    )
    run = replace(
        run,
        graph=replace(run.graph, agents=names, R=ring, C=ring),
        noise=noise,
        data=replace(run.data, params={"dimension": 20_000}),
        evaluate=replace(run.evaluate, every=1),
        scheme=replace(run.scheme, alpha=0.1, beta=0.1),
    )
    async with cluster(tmp_path, run) as world:
        world.start_all()
        await world.end()
        world.assert_simulators_bits()
        lines = (world.out / "metrics.csv").read_text().splitlines()
        rounds = {(line.split(",")[0], int(line.split(",")[1])) for line in lines[1:]}
        assert rounds == {(name, k) for name in names for k in range(7)}
        assert all(line.split(",")[7] for line in lines[1:]), "a consensus error needs every agent's vector"
        assert load_summary(world.out).status == "finished"
        for name in names:
            copy = np.load(world.out / "agents" / name / "x_final.npy")
            assert copy.tobytes() == np.load(world.folder / "state" / name / "x_final.npy").tobytes()


async def test_gradients_of_zero_move_nothing_and_fail_nothing(tmp_path: Path) -> None:
    run = parse_run(RUN.format(K=4).replace('"quadratic"', '"zeros"'), "run.toml", Path("/"))
    run = replace(run, noise=replace(run.noise, multiplier=0.0))
    async with cluster(tmp_path, run) as world:
        world.start_all()
        await world.end()
        world.assert_simulators_bits()
        for name in run.graph.agents:
            assert not np.load(world.folder / "state" / name / "x_final.npy").any()


def test_an_agent_without_samples_is_refused_before_anything_runs(tmp_path: Path) -> None:
    x, y = np.eye(4), np.arange(4) % 2
    np.savez(tmp_path / "empty.npz", x_train=x[:0], y_train=y[:0], x_test=x, y_test=y)
    text = RUN.format(K=4).replace('dataset = "quadratic"\ndimension = 3', 'dataset = "digits"')
    run = parse_run(text.replace("p_m = 1.0", "p_m = 1.0\nsamples = 1"), "run.toml", tmp_path)
    with pytest.raises(ConfigError, match="x_train: is empty"):
        build_oracle(run, 0, data_path=tmp_path / "empty.npz")


@pytest.mark.parametrize("asked", ["8", ""])
def test_a_daemon_computes_with_one_thread_whatever_the_environment_says(asked: str) -> None:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    code = f"import dpgt_node.cli, os; print([os.environ[name] for name in {names!r}])"
    environment = {**os.environ, **dict.fromkeys(names, asked)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['1', '1', '1']"
