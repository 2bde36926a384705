"""Membership beside privacy_meter, on the same runs' models and losses: ``python -m tests.experiments.anchor``.

It needs ``pip install privacy-meter scikit-learn``, in an environment of its own.  privacy_meter imports TensorFlow,
torch and opacus for wrappers of their models; none is used here, and empty modules stand in for those that are missing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dpgt_node.adversary.attack import Options
from dpgt_node.adversary.attacks import shadowed
from dpgt_node.adversary.attacks.population import attack as population
from dpgt_node.adversary.membership.rates import bounds
from dpgt_node.adversary.membership.shadows import NOBODY, Shadows
from dpgt_node.adversary.membership.signals import Lens
from dpgt_node.experiments import shadow_runs
from dpgt_node.learning.data.datasets import load_dataset
from tests.adversary.record import play, run_of

RING = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
SHADOWS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="softmax", help="of the run file; others than softmax need torch")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.02], help="scales; Gaussian where clipped")
    parser.add_argument("--clip", type=float, help="clip_l2, under published-point; then accountants bound the rates")
    given = parser.parse_args()
    for b in given.noise:
        with tempfile.TemporaryDirectory() as folder:
            observation, shadows = case(Path(folder), given.model, b, given.clip)
            print(f"{given.model}, noise {b}: {shadows.count} shadow runs, {len(shadows.own)} samples", flush=True)
            for guarantee in next(iter(shadows.guarantees.values())):
                most = bounds([guarantee])
                print(f"  {guarantee}: at most {', '.join(f'{value:.3g}' for value in most.values() if value)}")
            for name, rates in (*ours(observation, shadows), *theirs(observation, shadows)):
                print(f"  {name}: AUC {rates[0]:.3f}, {rates[1]:.1%} at 1 %, {rates[2]:.1%} at 0.1 %", flush=True)


def case(folder: Path, model: str, b: float, clip: float | None) -> tuple[Any, Shadows]:
    """Three agents of 60 samples of digits, 61 rounds with full batches, and about 1,000 others."""
    data = load_dataset("digits")
    path, x, y = folder / "some.npz", data.x_train, data.y_train
    np.savez(path, x_train=x[:180], y_train=y[:180], x_test=x[200:1300], y_test=y[200:1300])
    noise = {"zeta": b, "eta": b} if b else {"multiplier": 0.0}
    settings = {"mechanism": "published-point", "law": "gaussian"} if clip else {}
    named = f'name = "{model}"'
    data_of = f'dataset = "npz:{path}"\npartition = "iid"'
    run = run_of(R=RING, C=RING, K=60, m=60, gamma=1.0, data=data_of, model=named, **noise, **settings)
    run = replace(run, privacy=replace(run.privacy, clip_l2=clip))
    observation = play(run).observe(folder / "t")
    return observation, shadow_runs.conduct(observation, SHADOWS, seed=1)


def ours(observation: Any, shadows: Shadows) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Means over agents."""
    options = Options(shadows=shadows)
    attacks = [(population, ""), (shadowed.rmia, "offline_"), (shadowed.lira_model, "offline_")]
    if not np.isnan(shadows.signals.matched).all():
        attacks += [(shadowed.lira, ""), (shadowed.lira, "offline_")]
    for attack, kind in attacks:
        found = [one.measured for one in attack.run(observation, None, options).findings if one.agent]
        keys = (f"{kind}auc", f"{kind}tpr_at_1_percent", f"{kind}tpr_at_0.1_percent")
        means = [float(np.mean([one[key] for one in found])) for key in keys]
        yield f"ours, {attack.name} {kind.rstrip('_')}", (means[0], means[1], means[2])


def theirs(observation: Any, shadows: Shadows) -> Iterator[tuple[str, tuple[float, float, float]]]:
    for name in ("tensorflow", "torch", "opacus"):
        if name not in sys.modules and find_spec(name) is None:
            sys.modules[name] = ModuleType(name)
            sys.modules[name].GradSampleModule = None  # type: ignore[attr-defined]
    from privacy_meter.dataset import Dataset
    from privacy_meter.hypothesis_test import linear_itp_threshold_func
    from privacy_meter.information_source import InformationSource
    from privacy_meter.information_source_signal import ModelLoss
    from privacy_meter.metric import PopulationMetric, ReferenceMetric

    class Losses:
        """A model whose loss on a sample, named by its place, is known."""

        def __init__(self, confidence: np.ndarray) -> None:
            self.loss = -confidence

        def get_loss(self, batch_samples: np.ndarray, batch_labels: Any, per_point: bool = True) -> np.ndarray:
            return np.asarray(self.loss[batch_samples])

    def split(places: np.ndarray) -> dict[str, np.ndarray]:
        return {"x": places, "y": places}

    signals, count = Lens(observation, shadows.pool, 60).look(observation), len(shadows.own)
    results: dict[str, list[tuple[float, float, float]]] = {"PopulationMetric": [], "ReferenceMetric": []}
    for i in range(len(shadows.samples)):
        members, others = np.flatnonzero(shadows.own == i), np.flatnonzero(shadows.own == NOBODY)
        dataset = Dataset({"train": split(members), "test": split(others)}, "x", "y")
        public = Dataset({"train": split(count + np.arange(len(shadows.pool.public_labels)))}, "x", "y")
        target = Losses(np.concatenate([signals.confidence[i], signals.public[i]]))
        references = [Losses(one) for one in shadows.signals.confidence[:, i]]
        source = InformationSource([target], [dataset])
        for metric, beside in (
            (PopulationMetric, InformationSource([target], [public])),
            (ReferenceMetric, InformationSource(references, [dataset])),
        ):
            made = metric(source, beside, [ModelLoss()], linear_itp_threshold_func)
            made.prepare_metric()
            grid = np.concatenate([[0.0], np.logspace(-5, 0, 400)])
            (result,) = made.run_metric(grid)
            false, hits = result.fp / len(others), result.tp / len(members)
            rates = [float(hits[false <= share].max(initial=0.0)) for share in (0.01, 0.001)]
            results[metric.__name__].append((float(result.roc_auc), rates[0], rates[1]))
    for name, found in results.items():
        means = np.mean(found, axis=0)
        yield f"privacy_meter, {name}", (float(means[0]), float(means[1]), float(means[2]))


if __name__ == "__main__":
    main()
