"""Whether an exchange is expected to pay, on data that are nobody's: the run rehearsed, beside its agents alone.

Both are judged on the same stand-in samples.  They are synthetic or public, and divided as the operator states.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from dpgt_node.config.model import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.learning.alone import fitted
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.data.features import transform
from dpgt_node.learning.data.synthetic import APART
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.sim.plans.alike import Alike
from dpgt_node.sim.plans.recipe import short
from dpgt_node.sim.plans.rehearsal import TEST, Outcome, Rehearsal, Shape
from dpgt_node.types import I64
from dpgt_node.values import dataclass

TOGETHER = 12_000
"""Stand-in samples of all agents together in the rehearsal, at most: the noise is that of the agents' own numbers."""
ALONE = 6_000
"""Of an agent that trains alone, at most."""
_AGENTS, _DRAWS = 3, (21, 22, 23)
_FARTHER = 2.0
PUBLIC: Final = "the public data given"


@dataclass(frozen=True, slots=True)
class Staying:
    """Test accuracies in [0, 1] on stand-in data.

    ``alone``: of the worst of those agents that were tried.  ``exchange``: of the run.  ``samples``: of the smallest
    agent.  ``stand_in``: what they are tried on.  ``easier``: of the run on a table whose classes are twice as far
    apart, None: the data are no table's.  ``temperature``: at which the run's chances are worth most on the stand-in
    samples, at least 1: the first agent's logits divided by it have the least mean loss.
    """

    alone: float
    exchange: Outcome
    alike: Alike
    samples: int
    stand_in: str
    temperature: float
    easier: Outcome | None = None

    @property
    def better(self) -> bool:
        """Whether staying alone is expected to be at least as good for the worst agent."""
        return self.alone >= self.exchange.worst

    @property
    def expected(self) -> str:
        """The accuracy of the worst agent, for people: of tables a range, for nobody knows how hard they are."""
        low = f"{100 * self.exchange.worst:.0f} %"
        return low if self.easier is None else f"{low}, or {100 * self.easier.worst:.0f} % where classes are far apart"

    @property
    def words(self) -> str:
        """The comparison in two sentences."""
        what = "all classes" if self.alike.all_alike else f"divided like {self.alike.words}"
        said = (
            f"{self.samples:,} samples an agent, {what}: training alone costs no privacy and is expected to reach "
            f"{100 * self.alone:.1f} %; this run {100 * self.exchange.worst:.1f} % (worst agents, on {self.stand_in})."
        )
        if self.easier is not None:
            said += f" Where classes lie twice as far apart, this run would reach {100 * self.easier.worst:.1f} %."
        if not self.better:
            return said
        return f"{said} By this forecast, on {self.stand_in} and no row of the agents, staying alone is better."


class Ground:
    """Stand-in data on which runs of one shape are compared with staying alone.

    ``public``: raw data to stand in; NEVER the agents' own.  ConfigError: a model other than softmax.
    """

    def __init__(self, run: RunConfig, shape: Shape, alike: Alike, public: Dataset | None = None) -> None:
        if run.model.name != "softmax":
            message = f"only softmax is rehearsed without anybody's data, not {run.model.name!r}"
            raise ConfigError.one("run file", "model.name", message)
        self._run, self._shape, self._alike, self._public = run, shape, alike, public
        self._rehearsal = Rehearsal(run, shape, public, alike=alike, together=TOGETHER)
        self._easier = None
        if shape.tabular and public is None:
            self._easier = Rehearsal(run, shape, alike=alike, together=TOGETHER, apart=_FARTHER * APART)

    @cached_property
    def alone(self) -> float:
        """See :func:`alone`."""
        return alone(self._run, self._shape, self._alike, self._public)

    def compare(self, run: RunConfig) -> Staying:
        """``run``, each agent's whole stand-in shard in every gradient, beside its agents alone."""
        # The first one gives the temperature.  Of tables it is the harder one: being too sure costs the most.
        grounds = [self._rehearsal, *([] if self._easier is None else [self._easier])]
        with np.errstate(all="ignore"):
            ends = [[ground.final(run, seed) for seed in _DRAWS] for ground in grounds]
            found = [Outcome.of([g.judged(x) for x in some]) for g, some in zip(grounds, ends, strict=True)]
            T = max(1.0, self._rehearsal.temperature([x[0] for x in ends[0]]))
        easier = found[1] if len(found) > 1 else None
        stand_in = self._shape.stand_in if self._public is None else PUBLIC
        return Staying(self.alone, found[0], self._alike, min(self._shape.samples), stand_in, short(T), easier)


def alone(run: RunConfig, shape: Shape, alike: Alike, public: Dataset | None = None) -> float:
    """Test accuracy of the worst agent alone, on stand-in samples with its mixture of classes.

    Where all are alike the smallest agent stands for all; else the smallest ones are tried.
    """
    mixtures = alike.mixtures(shape.classes, tuple(min(D, ALONE) for D in shape.samples))
    smallest = np.argsort(shape.samples, kind="stable")[: 1 if alike.all_alike else _AGENTS].tolist()
    found = []
    for i in smallest:
        raw = _drawn(shape, mixtures[i], public)
        features = (run.data.features, run.data.normalise)
        data = Dataset(
            transform(raw.x_train, *features), raw.y_train, transform(raw.x_test, *features), raw.y_test, raw.classes
        )
        x = fitted(data, run.model)
        accuracy = SoftmaxOracle(data, None, bias=run.model.bias).evaluate(x).accuracy_test
        found.append(0.0 if accuracy is None else accuracy)
    return min(found)


def _drawn(shape: Shape, mixture: I64, public: Dataset | None) -> Dataset:
    """Stand-in samples with so many of each class, as far as public data have them."""
    labels = np.repeat(np.arange(len(mixture)), mixture)
    if public is None:
        return shape.drawn(len(labels), labels)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(public.y_train))
    rows = np.concatenate([order[public.y_train[order] == c][:count] for c, count in enumerate(mixture.tolist())])
    test = rng.permutation(len(public.x_test))[:TEST]
    x_train, x_test = public.real_train(np.sort(rows)), public.real_test(test)
    return Dataset(x_train, public.y_train[np.sort(rows)], x_test, public.y_test[test], public.classes)
