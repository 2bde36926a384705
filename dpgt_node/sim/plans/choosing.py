"""What a plan makes of a sample: features, normalisation and bias, chosen with the rest; for ``plan`` and ``init``.

Every input that suits the kind of data is planned for, on stand-in data, and the best plan is kept.  All of them look
at one sample alone and have no parameter of anybody's data, so the choice costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal

from dpgt_node import figures
from dpgt_node.accounts.planner import Target
from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.data.features import SIDE
from dpgt_node.sim.plans.alike import Alike
from dpgt_node.sim.plans.planning import Plan, Planner, learnt
from dpgt_node.sim.plans.rehearsal import Shape
from dpgt_node.sim.plans.staying import Ground, Staying
from dpgt_node.values import dataclass

Normalise = Literal["none", "l1", "l2", "sphere"]
_NOTICEABLE: Final = 0.002
"""Accuracy that is worth another input than the first one."""
_BIAS: Final = 0.2
"""Of rows of length 1: a part of the clip that noise in b does not waste."""
_PIXELS: Final = SIDE * SIDE


@dataclass(frozen=True, slots=True)
class Input:
    """What the model sees of a sample, as [data] and [model] say it."""

    features: str
    normalise: Normalise
    bias: float = _BIAS

    @property
    def words(self) -> str:
        """For messages."""
        return f"{self.features}/{self.normalise}"

    @classmethod
    def of(cls, run: RunConfig) -> Input:
        """The run file's own."""
        return cls(run.data.features, run.data.normalise, run.model.bias)

    def put(self, run: RunConfig) -> RunConfig:
        """``run`` with this input."""
        data = replace(run.data, features=self.features, normalise=self.normalise)
        return replace(run, data=data, model=replace(run.model, bias=self.bias))


SPHERE, UNIT, SHAPES = Input("raw", "sphere"), Input("raw", "l2"), Input("hog-shapes", "none")


def is_tabular(dataset: str, p: int, *, picture: bool = False) -> bool:
    """Whether samples of ``p`` numbers are rows of a table: of .csv, .parquet, or an .npz that holds no pictures."""
    kind, colon, _ = dataset.partition(":")
    return bool(colon) and (kind in ("csv", "parquet") or (kind == "npz" and not picture and p != _PIXELS))


def suited(dataset: str, p: int) -> tuple[Input, ...]:
    """Inputs that suit samples of ``p`` numbers of ``dataset``, as [data] names it; the likeliest one first."""
    if dataset.partition(":")[0] in ("csv", "parquet"):
        return (SPHERE,)
    if p == _PIXELS:
        return (SHAPES, UNIT) if ":" in dataset else (SHAPES,)
    return UNIT, SPHERE


def inputs(run: RunConfig, shape: Shape) -> tuple[Input, ...]:
    """The run file's own, then those that suit its data.  Code of the user's own is never exchanged, nor is what
    another model than softmax reads.
    """
    own = Input.of(run)
    if ":" in own.features or run.model.name != "softmax":
        return (own,)
    return tuple(dict.fromkeys((own, *suited(run.data.dataset, shape.p))))


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """``plan``: the best one, and ``planner`` and ``ground`` that it came from.  ``tried``: every input, with accuracy.

    ``ground``, ``staying``: None for other models than softmax.
    """

    plan: Plan
    planner: Planner
    ground: Ground | None
    staying: Staying | None
    tried: tuple[tuple[Input, float], ...]

    @property
    def useless(self) -> bool:
        """Whether nothing is expected to be learnt, also where a table's classes are far apart."""
        easier = None if self.staying is None else self.staying.easier
        return self.plan.useless and (easier is None or easier.mean < learnt(self.plan.chance))

    @property
    def expected(self) -> str:
        """The accuracy of the worst agent, and where learning begins, in a sentence."""
        found = self.plan
        known = f"{100 * found.outcome.worst:.0f} %" if self.staying is None else self.staying.expected
        begins = "" if found.begins is None else f" Learning begins at about epsilon {figures.number(found.begins, 2)}."
        model = found.run.model.name
        whose = "" if model == "softmax" else f" These figures are softmax's: {model} is not rehearsed."
        return (
            f"Expected test accuracy of the worst agent: about {known}; guessing on the stand-in data: "
            f"{100 * found.chance:.0f} %.{begins}{whose}"
        )

    @property
    def why_input(self) -> str | None:
        """Why this input, in a sentence; None: there was no choice."""
        if len(self.tried) < 2:
            return None
        each = ", ".join(f"{one.words} {100 * accuracy:.1f} %" for one, accuracy in self.tried)
        return f"features, normalise, bias: the best of {each}; each planned for, on stand-in data"


def choose(
    run: RunConfig,
    shape: Shape,
    target: Target,
    tried: Sequence[Input],
    public: Dataset | None = None,
    *,
    alike: Alike | None = None,
    keep_clip: bool = False,
    keep_steps: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Choice:
    """The best plan for ``target`` with one of the inputs ``tried``; see :class:`Planner` for the rest.

    Raises ConfigError where none can be planned: the first one's reason.
    """
    how = Alike.of(run) if alike is None else alike
    best: Choice | None = None
    scores: list[tuple[Input, float]] = []
    refused: ConfigError | None = None
    for one in tried:
        given = one.put(run)
        if len(tried) > 1:
            progress(f"features {one.features}, normalise {one.normalise}")
        try:
            planner = Planner(given, shape, public, alike=how, keep_clip=keep_clip, progress=progress)
            found = planner.plan(target, keep_steps=keep_steps)
        except ConfigError as error:
            refused = refused or error
            continue
        ground = Ground(given, shape, how, public) if run.model.name == "softmax" else None
        staying = None if ground is None else ground.compare(found.run)
        outcome = found.outcome if staying is None else staying.exchange
        if best is None or outcome.score > _score(best) + _NOTICEABLE:
            best = Choice(found, planner, ground, staying, ())
        scores.append((one, outcome.worst))
    if best is None:
        assert refused is not None
        raise refused
    return replace(best, plan=_tempered(best.planner.begins(best.plan), best.staying), tried=tuple(scores))


def _tempered(plan: Plan, staying: Staying | None) -> Plan:
    """With the temperature that stand-in data call for; without one where nothing was rehearsed, or where it is 1."""
    known = None if staying is None or staying.temperature == 1.0 else staying.temperature
    return replace(plan, run=replace(plan.run, model=replace(plan.run.model, temperature=known)))


def _score(choice: Choice) -> float:
    return choice.plan.outcome.score if choice.staying is None else choice.staying.exchange.score
