"""Members of a torch model: shadow runs clip as agents do, members are told, and what epsilon allows stands beside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from dpgt_node.adversary.attack import NotApplicable, Options
from dpgt_node.adversary.attacks import shadowed
from dpgt_node.adversary.attacks.population import attack as population
from dpgt_node.adversary.membership.shadows import NOBODY
from dpgt_node.config import RunConfig
from dpgt_node.config.model import Privacy
from dpgt_node.experiments import shadow_runs
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.sim.simulate import build_oracles
from tests.adversary.record import play, run_of

pytestmark = pytest.mark.torch
RING = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten samples an agent, and 90 test samples."""
    data = load_dataset("digits")
    path = tmp_path_factory.mktemp("data") / "few.npz"
    x, y = data.x_train, data.y_train
    np.savez(path, x_train=x[:30], y_train=y[:30], x_test=x[200:290], y_test=y[200:290])
    return path


def run(few: Path, K: int, *, clip: float | None = None, b: float = 0.0) -> RunConfig:
    noise = {"zeta": b, "eta": b} if b else {"multiplier": 0.0}
    settings = {"mechanism": "published-point", "law": "gaussian", "model": 'name = "mlp"', "gamma": 0.5, "m": 10}
    made = run_of(R=RING, C=RING, K=K, data=f'dataset = "npz:{few}"\npartition = "iid"', **settings, **noise)
    return replace(made, privacy=Privacy(clip_l2=clip))


def test_shadow_runs_clip_as_the_agents_do(few: Path) -> None:
    sent = {}
    for clip in (0.05, None):
        made = run(few, 2, clip=clip, b=0.01)
        tapped = shadow_runs._Tapped(made, list(build_oracles(made, None)), "5eed")
        while tapped.k <= made.K:
            tapped.step()
        for i, payload in play(made).payloads:
            np.testing.assert_allclose(tapped.sent_in[payload.stream, payload.k][i], payload.array(), atol=1e-4)
        sent[clip] = tapped.sent_in["Y", 1]
    assert np.abs(sent[0.05] - sent[None]).max() > 0.05, "the clip does something"


def test_members_of_a_network_are_found_and_nobody_else(few: Path, tmp_path: Path) -> None:
    observation = play(run(few, 60)).observe(tmp_path / "t")
    shadows = shadow_runs.conduct(observation, 12, seed=1)
    assert np.isnan(shadows.signals.matched).all() and not np.isnan(shadows.signals.confidence).any()
    options = Options(shadows=shadows)
    for attack in (shadowed.lira_model, shadowed.rmia):
        together = attack.run(observation, None, options).findings[-1]
        assert together.measured["offline_auc"] > 0.65, attack.name
        assert together.measured["offline_auc"] == pytest.approx(together.predicted["offline_auc"], abs=0.2)
        # The control: as many that nobody holds stand for members.  Agents agree, so the model tells of all members.
        nobody = np.flatnonzero(shadows.own == NOBODY)
        own = np.where(shadows.own >= 0, 3, NOBODY)
        own[nobody[:30]] = np.arange(30) % 3
        wrong = attack.run(observation, None, Options(shadows=replace(shadows, own=own))).findings[-1]
        assert wrong.measured["offline_auc"] < 0.65, attack.name
    assert [f.measured["members"] for f in population.run(observation, None, options).findings] == [10.0] * 3
    with pytest.raises(NotApplicable, match="lira-model and rmia take every model"):
        shadowed.lira.run(observation, None, options)


def test_the_guarantee_of_a_clipped_network_stands_beside_it(few: Path, tmp_path: Path) -> None:
    observation = play(run(few, 4, clip=1.0, b=5.0)).observe(tmp_path / "t")
    shadows = shadow_runs.conduct(observation, 8)
    (gdp,) = [g for g in shadows.guarantees["agent-1"] if g.mu is not None]
    one = shadowed.lira_model.run(observation, None, Options(shadows=shadows)).findings[-1]
    assert gdp.mu is not None and 0.0 < gdp.mu < 0.5 and not one.note.startswith("REFUTES")
    assert one.predicted["bound_auc"] == pytest.approx(norm.cdf(gdp.mu / 2**0.5), abs=1e-3)
