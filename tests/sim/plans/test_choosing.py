"""Features, normalisation and bias are chosen with the plan, on stand-in data of the kind that the agents have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from dpgt_node.accounts.planner import Target
from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.synthetic import APART, table_like
from dpgt_node.sim.plans import choosing, recipe
from dpgt_node.sim.plans.alike import Alike
from dpgt_node.sim.plans.choosing import SHAPES, SPHERE, UNIT, Input, choose, inputs, is_tabular
from dpgt_node.sim.plans.mixing import Mixing
from dpgt_node.sim.plans.planning import Plan, Planner
from dpgt_node.sim.plans.recipe import Recipe
from dpgt_node.sim.plans.rehearsal import Outcome, Shape
from dpgt_node.sim.plans.releasing import Drawn, Sketch
from dpgt_node.sim.plans.staying import Ground, Staying
from tests.sim.plans.cases import SHAPE, run

if TYPE_CHECKING:
    from dpgt_node.accounts.planner import Route

RAW = Input("raw", "none", 1.0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "GRADIENTS", (1, 3, 8))
    monkeypatch.setattr(recipe, "_FIRST", (8, 1))
    monkeypatch.setattr(recipe, "_SCAN", tuple(4.0**e for e in range(-1, 6)))


def of(dataset: str, features: str = "raw", name: str = "softmax") -> model.RunConfig:
    return replace(run(), data=model.Data(dataset, features=features), model=model.Model(name=name))


@pytest.mark.parametrize(
    ("given", "p", "tried"),
    [
        (of("digits"), 64, (RAW, UNIT, SPHERE)),
        (of("mnist"), 784, (RAW, SHAPES)),
        (of("npz:a.npz"), 784, (RAW, SHAPES, UNIT)),
        (of("csv:a.csv"), 784, (RAW, SPHERE)),
        (of("cifar10"), 3072, (RAW, UNIT, SPHERE)),
        (of("mnist", "mine:features"), 784, (Input("mine:features", "none", 1.0),)),
        (of("mnist", name="mlp"), 784, (RAW,)),
        (SPHERE.put(of("csv:a.csv")), 5, (SPHERE,)),
    ],
)
def test_inputs_that_suit_the_data_are_tried_and_nobody_s_own_code_is_exchanged(
    given: model.RunConfig, p: int, tried: tuple[Input, ...]
) -> None:
    assert inputs(given, Shape(p, 3, (100,) * 3)) == tried
    assert [Input.of(one.put(given)) for one in tried] == list(tried)


def test_tables_are_told_from_pictures() -> None:
    assert is_tabular("csv:a.csv", 784) and is_tabular("parquet:a.parquet", 3) and is_tabular("npz:a.npz", 64)
    assert not any(is_tabular(name, 64) for name in ("digits", "folder:a", "module:function"))
    assert not is_tabular("npz:a.npz", 784) and not is_tabular("npz:a.npz", 64, picture=True)


def test_the_best_input_is_taken_with_its_reason_and_the_first_one_where_none_is_better() -> None:
    """Columns of a table far from 0: rows of length 1 tell classes apart where raw rows drown in noise."""
    given, shape = of("npz:t.npz"), Shape(6, 3, (300, 300, 300), tabular=True)
    lines: list[str] = []
    chosen = choose(given, shape, Target(1.0), (RAW, SPHERE), progress=lines.append)
    (_, raw), (_, sphere) = chosen.tried
    assert sphere > raw and Input.of(chosen.plan.run) == SPHERE and "features raw, normalise sphere" in lines
    assert chosen.why_input is not None and f"raw/none {100 * raw:.1f} %" in chosen.why_input
    assert chosen.plan.starts_at is not None and f"at about epsilon {chosen.plan.starts_at:.2g}." in chosen.expected
    assert chosen.staying is not None and chosen.plan.run.model.temperature == chosen.staying.temperature > 1.0
    alone = choose(given, shape, Target(1.0), (SPHERE,))
    assert alone.plan.run == chosen.plan.run and alone.why_input is None
    again = choose(given, shape, Target(1.0), (SPHERE, replace(SPHERE, bias=0.2001)))
    assert Input.of(again.plan.run) == SPHERE


def test_what_no_input_allows_is_refused_once() -> None:
    with pytest.raises(ConfigError, match=r"needs so little noise") as caught:
        choose(of("digits"), SHAPE, Target(1e12), (RAW, UNIT))
    assert len(caught.value.problems) == 1


def test_a_table_is_rehearsed_on_a_made_up_table_and_a_range_is_said() -> None:
    shape = Shape(6, 3, (300, 300, 300), tabular=True)
    found = choose(of("npz:t.npz"), shape, Target(2.0), (SPHERE,))
    assert found.staying is not None and found.staying.easier is not None
    assert found.staying.easier.worst > found.staying.exchange.worst
    assert "a made-up table of the same shape" in found.staying.words and "twice as far apart" in found.staying.words
    assert "where classes are far apart" in found.expected
    pictures = Ground(found.plan.run, replace(shape, tabular=False), Alike()).compare(found.plan.run)
    assert pictures.easier is None and "synthetic data of the same shape" in pictures.words
    assert pictures.exchange != found.staying.exchange


def test_a_made_up_table_has_the_labels_asked_for_and_farther_classes_are_easier() -> None:
    labels = np.repeat([0, 2], 200)
    near, far = (table_like(5, 3, 400, 500, labels=labels, apart=apart) for apart in (APART, 3.0 * APART))
    for made in (near, far):
        np.testing.assert_array_equal(made.y_train, labels)

    def spread(x: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        return float(np.linalg.norm(x[:200].mean(axis=0) - x[200:].mean(axis=0)))

    assert spread(far.x_train) > 2.0 * spread(near.x_train)


class _Given:
    """Stands for planner and ground, which take long: outcomes by the bias of the input; None: it is refused."""

    outcomes: dict[float, tuple[float, float] | None]

    def __init__(self, given: model.RunConfig, *rest: object, **options: object) -> None:
        self.run = given

    def _outcome(self) -> Outcome:
        known = self.outcomes[self.run.model.bias]
        if known is None:
            raise ConfigError.one("run file", "", f"no plan with bias {self.run.model.bias:g}")
        return Outcome(*known)

    def plan(self, target: Target, *, keep_steps: bool) -> Plan:
        known = self._outcome()  # where a ground compares, its figures count, not the search's
        found = drawn(known if self.run.model.name == "mlp" else Outcome(0.5, 0.1 * self.run.model.bias))
        return Plan(self.run, target, cast("Route", None), {}, found, 1.0, 0.2, False, False, 0.5)

    def begins(self, found: Plan) -> Plan:
        return found

    def compare(self, given: model.RunConfig) -> Staying:
        return Staying(0.1, self._outcome(), Alike(), 300, "stand-in data", 1.0)


def drawn(outcome: Outcome) -> Drawn:
    return Drawn(run(), Sketch(Recipe(1, 1.0, 1.0), Mixing(0.1, 0.1, 1, 0)), outcome, 0.5, 1, 1)


@pytest.mark.parametrize(
    ("outcomes", "best"),
    [
        ([(0.8, 0.7), (0.8, 0.7)], 0),  # a tie: the likeliest input, which is the first
        ([(0.8, 0.7), (0.8, 0.7038)], 0),  # not noticeable
        ([(0.8, 0.7), (0.8, 0.7042)], 1),
        ([(0.9, 0.5), (0.75, 0.72)], 1),  # the worst agent counts
        ([(0.9, 0.5), (0.72, 0.66)], 0),  # and so does the mean
        ([(0.8, 0.8), (0.81, 0.81), (0.811, 0.811)], 1),  # noticeable against the best one so far
        ([None, (0.3, 0.3), None], 1),
    ],
)
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_which_input_is_chosen(
    outcomes: list[tuple[float, float] | None], best: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("Planner", "Ground"):
        monkeypatch.setattr(choosing, kind, _Given)
    tried = [Input("raw", "none", float(i + 1)) for i in range(len(outcomes))]
    monkeypatch.setattr(
        _Given, "outcomes", dict(zip([one.bias for one in tried], outcomes, strict=True)), raising=False
    )
    found = choose(of("digits", name=name), SHAPE, Target(1.0), tried)
    assert Input.of(found.plan.run) == tried[best]
    assert found.plan.run.model.temperature is None, "1 changes nothing"
    assert found.tried == tuple(
        (one, known[1]) for one, known in zip(tried, outcomes, strict=True) if known is not None
    )
    worst = outcomes[best]
    assert worst is not None and f"of the worst agent: about {100 * worst[1]:.0f} %; guessing" in found.expected
    assert "guessing on the stand-in data: 20 %. Learning begins at about epsilon 0.5." in found.expected
    assert ("figures are softmax's: mlp is not rehearsed." in found.expected) == (name == "mlp")
    monkeypatch.setattr(_Given, "outcomes", dict.fromkeys([1.0, 2.0]))
    with pytest.raises(ConfigError, match="no plan with bias 1"):
        choose(of("digits", name=name), SHAPE, Target(1.0), tried[:2])


def test_nothing_is_useless_that_a_table_with_classes_far_apart_can_teach() -> None:
    poor, good = Outcome(0.21, 0.2), Outcome(0.25, 0.2)
    given = _Given(of("digits", name="mlp"))
    given.outcomes = {1.0: (0.21, 0.2)}
    plan = given.plan(Target(1.0), keep_steps=False)
    staying = Staying(0.1, poor, Alike(), 300, "stand-in data", 1.0)
    planner = cast("Planner", given)
    for easier, useless in ((None, True), (poor, True), (good, False)):
        found = choosing.Choice(plan, planner, None, replace(staying, easier=easier), ())
        assert found.useless is useless
    given.outcomes = {1.0: (0.25, 0.2)}
    assert not choosing.Choice(given.plan(Target(1.0), keep_steps=False), planner, None, staying, ()).useless
