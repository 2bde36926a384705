"""A plan tried on the rows at hand: the same run as the simulator's, and the same "alone" as everybody else's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.config import RunConfig, parse_run
from dpgt_node.config.model import NoiseStream
from dpgt_node.learning.alone import alone
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.sim import own_rows
from dpgt_node.sim.fast import FastRun

RUN = """
name = "own rows"
[algorithm]
mechanism = "noise-once"
iterations = 20
[scheme]
kind = "S2"
alpha = 0.3
beta = 0.3
gamma = 2.0
p_m = 1.0
samples = "full"
release_every = 2
[noise]
multiplier = 0.0
[graph]
agents = 2
R = { generator = "complete" }
C = { generator = "complete" }
[data]
dataset = "csv:a.csv"
label = "kind"
classes = 3
own_test_fraction = 0.3
normalise = "sphere"
[privacy]
clip_l2 = 0.5
"""


@pytest.fixture
def run(tmp_path: Path) -> RunConfig:
    rng = np.random.default_rng(0)
    for name, rows in (("a", 200), ("b", 120)):
        kind = rng.integers(3, size=rows)
        x = np.array([[-0.6, 0.0], [0.5, 0.5], [0.4, -0.6]])[kind] + 0.25 * rng.standard_normal((rows, 2))
        lines = (f"{u:.4f},{v:.4f},{k}" for (u, v), k in zip(x.tolist(), kind.tolist(), strict=True))
        (tmp_path / f"{name}.csv").write_text("\n".join(["u,v,kind", *lines]) + "\n")
    return parse_run(RUN, "run.toml", tmp_path)


@pytest.mark.parametrize("owners", [False, True])
def test_it_is_the_run_itself_and_alone_is_everybody_s(run: RunConfig, owners: bool, tmp_path: Path) -> None:
    """Without noise all draws are one, and the simulator's own."""
    files = [tmp_path / "a.csv", tmp_path / "b.csv"] if owners else []
    found = own_rows.tried(run, None, files)
    assert found is not None
    oracles = [build_oracle(run, i, data_path=path) for i, path in enumerate(files or [None, None])]
    state = FastRun(run, oracles, None)
    while state.k <= run.K:
        state.step()
    right = [[one.evaluate(x).accuracy_test * one.tested for one in oracles] for x in state.x]
    tested = sum(one.tested for one in oracles) if owners else oracles[0].tested
    worst = min(sum(row) if owners else row[0] for row in right) / tested
    assert found.tested == tested == (96 if owners else 40) and len(found.together) == 51
    assert found.together == pytest.approx([worst] * 51) and found.expected == found.mostly == pytest.approx(worst)
    one = [alone(run, i, data_path=path) for i, path in enumerate(files or [None, None])]
    accuracies = [each.metrics.accuracy_test for each in one if each is not None]
    if owners:
        assert [who for who, _, _ in found.own] == ["agent-1", "agent-2"]
        assert [value for _, _, value in found.own] == pytest.approx(accuracies)
        assert [value for _, value, _ in found.own] == pytest.approx([right[i][i] / oracles[i].tested for i in (0, 1)])
    else:
        assert found.alone == pytest.approx(min(accuracies)) and found.own == ()
    assert found.learns and found.guessing < 0.5
    assert found.better_alone is (found.alone >= found.expected)


def test_noise_that_hides_all_is_guessing_and_alone_is_better(run: RunConfig) -> None:
    loud = replace(
        run, noise=replace(run.noise, law="gaussian", multiplier=1.0, eta=NoiseStream("constant", (1e4, 1e4)))
    )
    found = own_rows.tried(loud, None)
    assert found is not None and not found.learns and found.better_alone and found.alone > 0.8


def test_without_test_rows_or_with_very_many_samples_nothing_is_tried(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = replace(run, data=replace(run.data, params={**run.data.params, "test_fraction": 0.0}))
    assert own_rows.tried(none, None) is None
    monkeypatch.setattr(own_rows, "_WORK", (1.0, 1.0))
    assert own_rows.tried(run, None) is None
