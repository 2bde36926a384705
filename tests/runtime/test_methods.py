"""Every method that daemons carry, over real sockets: the simulator's bits, and as many releases as it says."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from dpgt_node.algo.methods import METHODS
from dpgt_node.config import parse_run
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.runtime.store.store import Store
from tests.e2e.processes import quadratic
from tests.runtime.cluster import cluster
from tests.sim.cases import CARRIED

OPTIONS = {
    "ternary-dsgd": "[method]\nr = 8.0\n",
    "quantised-dsgd": "[method]\nstep = 0.125\n",
    "quantised-binomial-sgd": "[method]\nbound = 8.0\ntrials = 300\n",
}
K = 4


def text_of(method: str) -> str:
    """A run file of two agents."""
    text = quadratic(2, K).replace(f"iterations = {K}", f'iterations = {K}\nmethod = "{method}"')
    text += OPTIONS.get(method, "")
    return text if METHODS[method].noisy else text.replace("[noise]", "[noise]\nmultiplier = 0.0")


def assert_releases(method: str, states: list[Path], summary: Path) -> None:
    """Payloads and ledger rows under ``states``, one folder an agent, and in the summary."""
    own = METHODS[method]
    payloads = (K + 1) * len(own.sends)
    for state in states:
        with contextlib.closing(Store(state, "process")) as store:
            (run,) = store.runs()
            rows = len(store.ledger(run.run_id).entries)
            assert store.releases(run.run_id) == payloads
            assert rows == (K + 1) * len(MECHANISMS[next(iter(own.rules))].charged)
    said = json.loads(summary.read_text())
    assert said["method"] == method and [agent["releases"] for agent in said["agents"]] == [payloads] * len(states)


@pytest.mark.parametrize("method", CARRIED)
async def test_a_method_gives_the_simulators_bits(tmp_path: Path, method: str) -> None:
    async with cluster(tmp_path, parse_run(text_of(method), "run.toml", tmp_path)) as c:
        c.start_all()
        await c.end()
        c.assert_simulators_bits()
        assert_releases(method, [tmp_path / "state" / name for name in c.run.graph.agents], c.out / "summary.json")
