"""What each vantage point infers of the demo's run: the table of docs/explanation/threat-model.md.

    python -m tests.bench.threats [--rounds K+1]

Of each agent that is not itself an observer: vectors seen; in how many rounds its gradient follows from them
(estimator B), the cosine of that with the true one, the share of the first round's labels that are right.  The demo's
graphs, digits, steps and noise (Laplace, scale 0.1), simulated under a test keystream so that the figures repeat;
agents record what they see.  ``all links``: an eavesdropper on every link sees what all agents together do.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpgt_node.adversary.attack import Options
from dpgt_node.adversary.attacks.gradients import attack as gradients
from dpgt_node.adversary.attacks.gradients import estimates
from dpgt_node.adversary.attacks.labels import attack as labels
from dpgt_node.adversary.attacks.properties import attack as properties
from dpgt_node.adversary.inference import estimators
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.config import Adversary, RunConfig, demo_toml, parse_run
from dpgt_node.record.truth import find_truth
from dpgt_node.sim.simulate import simulate

TWO = {"num_classes_per_partition": 2, "class_assignment_mode": "deterministic"}
KEY, RUN_ID = "7ea7", bytes(16)
VANTAGES = {"all links": None, "agent-3": ("agent-3",), "agent-1 and agent-3": ("agent-1", "agent-3")}


def demo(rounds: int, multiplier: float = 1.0, **data: object) -> RunConfig:
    run = parse_run(demo_toml(), "demo", Path())
    return replace(
        run,
        algorithm=replace(run.algorithm, iterations=rounds - 1),
        noise=replace(run.noise, multiplier=multiplier),
        data=replace(run.data, **data),
        evaluate=replace(run.evaluate, every=10**6),
        adversary=Adversary(run.graph.agents, truth=True),
    )


def seen(folder: Path, run: RunConfig, who: Sequence[str] | None) -> Observation:
    names = run.graph.agents if who is None else who
    return Observation.load([folder / "agents" / name / "state" / "transcript" for name in names], run)


def row(folder: Path, run: RunConfig, vantage: str) -> list[str]:
    observation, truth = seen(folder, run, VANTAGES[vantage]), find_truth(folder, run.graph.agents, RUN_ID)
    cells = [f"{len(observation.vectors)} of {2 * run.n * (run.K + 1)} vectors"]
    for name in run.graph.agents:
        if name in (VANTAGES[vantage] or ()):
            continue
        view = estimators.view(observation, run.graph.agents.index(name), None)
        rounds = int((~np.isnan(estimates(view, fuse=False)["B"].value)).any(axis=1).sum())
        options = Options(agents=(name,), extra={"fuse": "no"})
        found = [attack.run(observation, truth, options).findings[0].measured for attack in (gradients, labels)]
        cosine, right = found[0].get("B_cosine"), found[1].get("labels_right")
        if cosine is not None and right is not None:
            cells.append(f"{name}: {rounds} rounds, cosine {cosine:.3f}, labels {right:.3f}")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=101)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        for multiplier in (0.0, 0.1, 1.0):
            run, folder = demo(rounds, multiplier), Path(name) / str(multiplier)
            simulate(run, folder, RUN_ID, test_keystream=KEY)
            for vantage in VANTAGES:
                print(f"scale {0.1 * multiplier:g}, {vantage}: {' | '.join(row(folder, run, vantage))}", flush=True)
        run, folder = demo(rounds, partition="by-label", params=TWO), Path(name) / "labels"
        simulate(run, folder, RUN_ID, test_keystream=KEY)
        for vantage, who in VANTAGES.items():
            truth = find_truth(folder, run.graph.agents, RUN_ID)
            others = tuple(name for name in run.graph.agents if name not in (who or ()))
            found = properties.run(seen(folder, run, who), truth, Options(agents=others))
            print(f"two digits an agent, {vantage}: {found.summary}", flush=True)


if __name__ == "__main__":
    main()
