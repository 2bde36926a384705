"""The files of two owners on the own-data page: copied as they stand, they run, and cost what their policies allow."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from dpgt_node.accounts.account import totals
from dpgt_node.agent.noise import accounts_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import check_node_in_run, load_node, load_run
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.sim.fast import FastRun

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own-data.md"


def test_the_files_of_two_owners_can_be_copied(tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").split("### Two owners: all files\n")[1].split("\n## ")[0]
    run_text, *nodes = re.findall(r"^```toml\n(.*?)^```", section, re.M | re.S)
    assert len(nodes) == 2
    rng, oracles = np.random.default_rng(0), []
    for i, text in enumerate(nodes):
        folder = tmp_path / f"agent-{i + 1}"
        folder.mkdir()
        (folder / "run.toml").write_text(run_text)
        (folder / "NODE.toml").write_text(text)
        age, weight = rng.uniform(20, 90, 300), rng.uniform(45, 140, 300)
        rows = (
            f"{a:.0f},{w:.0f},{'east' if a > w else 'west'},{'malign' if a + w > 150 else 'benign'}"
            for a, w in zip(age, weight, strict=True)
        )
        (folder / f"ward-{i + 1}.csv").write_text("\n".join(["age,weight,site,outcome", *rows]) + "\n")
        node = load_node(folder / "NODE.toml")
        run = load_run(node.run)
        check_node_in_run(node, run)
        assert node.name == run.graph.agents[i] and node.data_id == f"ward {i + 1}" and node.policy.epsilon_max == 3.0
        oracles.append(build_oracle(run, i, data_path=node.data_path))
    assert [(one.samples, one.tested) for one in oracles] == [(240, 60)] * 2
    costs = totals(
        accounts_for(run, Topology.from_config(run.graph), Schedule.from_config(run), (240, 240), oracles[0].dimension)
    )
    assert all(0.0 < cost <= 3.0 for cost in costs["gdp"] if cost is not None) and costs["gdp"][0] is not None
    state = FastRun(run, oracles, None)
    while state.k <= run.K:
        state.step()
    found = [one.evaluate(x).accuracy_test for one, x in zip(oracles, state.x, strict=True)]
    assert all(accuracy is not None and accuracy > 0.7 for accuracy in found)
