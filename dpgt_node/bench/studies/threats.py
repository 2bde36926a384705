"""What each vantage point infers of the demo's run: the table of docs/explanation/threat-model.md.

Of each agent that is not itself an observer: in how many rounds its gradient follows from what was seen (estimator B),
the cosine of that with the true one, the share of the first round's labels that are right.  The demo's graphs, digits,
steps and noise (Laplace, scale 0.1), simulated under a test keystream so that the figures repeat; agents record what
they see.  An eavesdropper on all links sees what all agents together do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from dpgt_node.bench.figures import Around, Row, Value, option
from dpgt_node.config import Adversary, RunConfig, demo_toml, parse_run
from dpgt_node.record.truth import find_truth
from dpgt_node.sim.simulate import simulate
from dpgt_node.values import dataclass

TWO: dict[str, str | int] = {"num_classes_per_partition": 2, "class_assignment_mode": "deterministic"}
KEY, RUN_ID = "7ea7", bytes(16)
SCALE = 0.1
"""Of the demo's noise."""
VANTAGES: dict[str, tuple[str, ...] | None] = {
    "all links": None,
    "agent-3": ("agent-3",),
    "agent-1 and agent-3": ("agent-1", "agent-3"),
}


def demo(rounds: int, multiplier: float = 1.0) -> RunConfig:
    """The demo's run with the noise times ``multiplier``, every agent recording."""
    run = parse_run(demo_toml(), "demo", Path())
    return replace(
        run,
        algorithm=replace(run.algorithm, iterations=rounds - 1),
        noise=replace(run.noise, multiplier=multiplier),
        evaluate=replace(run.evaluate, every=10**6),
        adversary=Adversary(run.graph.agents, truth=True),
    )


def seen(folder: Path, run: RunConfig, who: Sequence[str] | None) -> Observation:
    names = run.graph.agents if who is None else who
    return Observation.load([folder / "agents" / name / "state" / "transcript" for name in names], run)


@dataclass(frozen=True, slots=True)
class Settings:
    rounds: int = option(101, "K + 1.", least=2)
    multiplier: tuple[float, ...] = option((0.0, 0.1, 1.0), "Of the demo's noise.")


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    with around.temporary() as name:
        for multiplier in settings.multiplier:
            run, folder = demo(settings.rounds, multiplier), name / str(multiplier)
            simulate(run, folder, RUN_ID, test_keystream=KEY)
            for vantage in VANTAGES:
                yield from _rows(folder, run, vantage, SCALE * multiplier)
        run = demo(settings.rounds)
        run = replace(run, data=replace(run.data, partition="by-label", params=TWO))
        simulate(run, name / "labels", RUN_ID, test_keystream=KEY)
        for vantage, who in VANTAGES.items():
            truth = find_truth(name / "labels", run.graph.agents, RUN_ID)
            others = tuple(agent for agent in run.graph.agents if agent not in (who or ()))
            found = properties.run(seen(name / "labels", run, who), truth, Options(agents=others))
            right = sum(finding.verdict == "succeeds" for finding in found.findings)
            cells: dict[str, Value] = {"who looks": vantage, "classes right, agents": right, "of": len(found.findings)}
            yield Row("two digits an agent", {**cells, "says": found.summary})


def _rows(folder: Path, run: RunConfig, vantage: str, scale: float) -> Iterator[Row]:
    observation, truth = seen(folder, run, VANTAGES[vantage]), find_truth(folder, run.graph.agents, RUN_ID)
    for name in run.graph.agents:
        if name in (VANTAGES[vantage] or ()):
            continue
        view = estimators.view(observation, run.graph.agents.index(name), None)
        rounds = int((~np.isnan(estimates(view, fuse=False)["B"].value)).any(axis=1).sum())
        options = Options(agents=(name,), extra={"fuse": "no"})
        found = [attack.run(observation, truth, options).findings[0].measured for attack in (gradients, labels)]
        cells: dict[str, Value] = {"who looks": vantage, "scale": scale, "at": name, "rounds": rounds}
        cells |= {"cosine": found[0].get("B_cosine"), "labels": found[1].get("labels_right")}
        vectors = f"{len(observation.vectors)} of {2 * run.n * (run.K + 1)} vectors"
        yield Row(f"gradients and first labels, {vectors}", cells)
