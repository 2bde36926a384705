"""What the attacks know of torch: its generator, and where its models start and show their labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dpgt_node.adversary.attack import Options
from dpgt_node.adversary.attacks.generator import attack as generator
from dpgt_node.adversary.attacks.gradients import attack as gradients
from dpgt_node.adversary.attacks.labels import attack as labels
from dpgt_node.adversary.inference.estimators import view
from tests.adversary.attacks.test_planted_bugs import library
from tests.adversary.record import play, run_of

pytestmark = pytest.mark.torch
RING = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


def test_torch_s_laplace_noise_with_a_weak_seed_is_recovered(tmp_path: Path) -> None:
    def draw(n: int) -> np.ndarray:
        torch.manual_seed(21)
        return torch.distributions.Laplace(0.0, 1.0).sample((n,)).double().numpy()

    p = play(run_of(K=1, R=RING, C=RING), sampler=library(draw))
    result = generator.run(p.observe(tmp_path / "t"), None, Options(extra={"bits": "5"}))
    for finding in result.findings:
        assert finding.verdict == "succeeds" and "torch.manual_seed(seed), Laplace, seed 21" in finding.note
        assert finding.measured["noise_reproduced"] == 1.0


def test_a_network_s_gradients_and_labels(tmp_path: Path) -> None:
    model = 'name = "mlp"\ninit_seed = 5\nprecision = "float64"'
    p = play(run_of(K=3, R=RING, C=RING, m=1, zeta=1e-3, eta=1e-3, model=model))
    seen, study = p.observe(tmp_path / "t"), p.study(tmp_path / "out")
    assert view(seen, 0).x0.tolist() == p.true(0, "x")[0].tolist()
    for finding in gradients.run(seen, study, Options()).findings:
        for name in "ABXDE":
            assert finding.measured[f"{name}_rms"] == pytest.approx(finding.predicted[f"{name}_rms"], rel=0.05)
    assert all(f.measured["labels_right"] == 1.0 for f in labels.run(seen, study, Options()).findings)
