"""Imprint modules: what an active adversary reads out of batches at no noise, and what noise and bounds leave of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.adversary.attack import Options, Result
from dpgt_node.adversary.attacks.active.conduct import attack as conduct
from dpgt_node.adversary.attacks.active.imprint import attack
from dpgt_node.config import RunConfig
from dpgt_node.config.mixing.robust import Robust
from dpgt_node.config.roles import Roles
from tests.adversary.record import play, run_of

pytestmark = pytest.mark.torch
ALL = "[[0,1,1,1],[1,0,1,1],[1,1,0,1],[1,1,1,0]]"


def imprinted(role: str = "imprint value=1e4 from=1", **settings: object) -> RunConfig:
    settings = {"multiplier": 0.0, "m": 16, **settings}
    run = run_of(K=3, R=ALL, C=ALL, n=4, alpha=0.1, beta=0.1, gamma=0.01, model='name = "mlp"', **settings)
    active = Roles([("agent-3", role)] if role else [])
    return replace(run, privacy=replace(run.privacy, clip_l1=40.0), adversary=replace(run.adversary, active=active))


def tried(run: RunConfig, tmp_path: Path) -> Result:
    p = play(run)
    return attack.run(p.observe(tmp_path / "t"), p.memory(), Options(agents=("agent-1", "agent-2"), rounds=(2, 3)))


def test_samples_come_out_one_by_one_without_noise_and_not_with_it_nor_past_a_radius(tmp_path: Path) -> None:
    def recovered(run: RunConfig) -> float:
        findings = tried(run, tmp_path).findings
        assert all(f.measured["samples"] == 32.0 for f in findings)
        return sum(f.measured["samples_recovered"] or 0.0 for f in findings) / 64.0

    assert recovered(imprinted()) > 0.5
    assert recovered(imprinted("")) < 0.3, "an honest layer has a unit now and then that one sample alone reaches"
    assert recovered(replace(imprinted(), robust=Robust("trimmed-mean", outliers=1))) < 0.3
    assert recovered(imprinted(multiplier=1.0)) == 0.0
    seen = play(imprinted()).observe(tmp_path / "c")
    assert [f.verdict for f in conduct.run(seen, None, Options()).findings][2] == "succeeds"
