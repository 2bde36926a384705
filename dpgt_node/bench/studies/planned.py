"""What ``dpgt plan`` alone reaches: the accuracy of the files that it prints, beside what it says of them.

Every cell is a data set, how it is divided, over which graph, and an epsilon.  The planner sees the shape of the data
and how alike they are; nothing else is given.  Then the planned run is simulated (``simulate --fast``) --draws times,
each with noise of its own, and judged by its worst agent on the test set.  "forecast" and "alone, forecast" are what
the plan says, of stand-in data.  Planned files are kept in --out, and not planned again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpgt_node.accounts.planner import Target
from dpgt_node.bench.figures import Around, Row, Spread, option, required
from dpgt_node.config import RunConfig, load_run, parse_run, to_toml
from dpgt_node.durable import write_text
from dpgt_node.errors import ConfigError
from dpgt_node.learning.common import Oracle
from dpgt_node.learning.data.shards import run_dataset
from dpgt_node.learning.oracle import sample_counts
from dpgt_node.sim.fast import FastRun
from dpgt_node.sim.plans.alike import Alike
from dpgt_node.sim.plans.planning import Planner
from dpgt_node.sim.plans.rehearsal import Shape
from dpgt_node.sim.plans.staying import Ground
from dpgt_node.sim.simulate import build_oracles
from dpgt_node.values import dataclass

FIVE = """agents = 5
R = [[0,0,0,0,1],[1,0,0,0,0],[1,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]
C = [[0,0,1,0,1],[1,0,0,0,0],[0,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]"""
HUNDRED = """agents = 100
R = { generator = "circulant", offsets = [1, 3, 9, 27] }
C = { generator = "circulant", offsets = [1, 3, 9, 27] }"""
RUN = """
name = "{name}"
[algorithm]
iterations = 1
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.1
gamma = 1.0
p_m = 1.0
samples = "full"
[noise]
multiplier = 0.0
[graph]
{graph}
[data]
dataset = "{data}"
features = "{features}"
partition = {partition}
[model]
bias = 0.2
[evaluate]
metrics = "study"
"""
TWO = '"by-label"\nnum_classes_per_partition = 2'
MIXED = '"inner-dirichlet"\nalpha = 0.1'


@dataclass(frozen=True, slots=True)
class Cell:
    """``towards``: of how many others together, None: all.  ``delta`` 0: a pure guarantee."""

    epsilon: float
    towards: int | None = None
    data: str = "mnist"
    partition: str = '"iid"'
    graph: str = FIVE
    delta: float = 1e-5

    def run(self, name: str) -> RunConfig:
        """What is planned."""
        features = "raw" if self.data == "digits" else "hog-shapes"
        made = RUN.format(name=name, graph=self.graph, data=self.data, features=features, partition=self.partition)
        return parse_run(made, name, Path())


CELLS = {
    "shared-0.1": Cell(0.1, 1),
    "shared-0.5": Cell(0.5, 1),
    "shared-1": Cell(1.0, 1),
    "shared-3": Cell(3.0, 1),
    "own-1": Cell(1.0),
    "two-classes-1": Cell(1.0, partition=TWO),
    "pure-1": Cell(1.0, delta=0.0),
    "pure-3": Cell(3.0, delta=0.0),
    "pure-10": Cell(10.0, delta=0.0),
    "hundred-1": Cell(1.0, partition=MIXED, graph=HUNDRED),
    "hundred-shared-1": Cell(1.0, 50, graph=HUNDRED),
    "digits-1": Cell(1.0, data="digits"),
    "digits-3": Cell(3.0, data="digits"),
    "fashion-1": Cell(1.0, data="fashion-mnist"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    out: Path = required("Where planned run files are kept.", metavar="DIR")
    cell: tuple[str, ...] = option(tuple(CELLS), "One of those.", choices=tuple(CELLS))
    draws: int = option(2, "Simulations of each planned file, each with its own noise.", least=1)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    settings.out.mkdir(parents=True, exist_ok=True)
    for name in settings.cell:
        cell = CELLS[name]
        given = cell.run(name)
        shape = Shape(*_size(given, around), tuple(D or 0 for D in sample_counts(given, around.data_root)))
        path = settings.out / f"{name}.toml"
        if not path.exists():
            target = Target(cell.epsilon, cell.delta, towards=cell.towards)
            write_text(path, to_toml(Planner(given, shape).plan(target).run))
        run = load_run(path)
        ground = Ground(run, shape, Alike.of(run))
        forecast = ground.compare(run)
        oracles = build_oracles(run, around.data_root)
        worst = [_worst(run, oracles) for _ in range(settings.draws)]
        yield Row(
            "test accuracy of the worst agent of a planned file, simulated, over draws of the noise",
            {
                "cell": name,
                "accuracy": Spread.over(worst),
                "forecast": forecast.exchange.worst,
                "alone, forecast": forecast.alone,
                "K": run.K,
            },
        )


def _size(run: RunConfig, around: Around) -> tuple[int, int]:
    data = run_dataset(run, around.data_root)
    return data.x_train.shape[1], data.classes


def _worst(run: RunConfig, oracles: tuple[Oracle, ...]) -> float:
    """Least test accuracy of any x_{i,K+1}."""
    state = FastRun(run, oracles, None)
    while state.k <= run.K:
        state.step()
    found = [oracle.evaluate(x).accuracy_test for oracle, x in zip(oracles, state.x, strict=True)]
    known = [accuracy for accuracy in found if accuracy is not None]
    if not known:
        raise ConfigError.one(run.name, "", "there is no test set to judge by")
    return min(known)
