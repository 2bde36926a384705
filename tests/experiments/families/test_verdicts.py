"""Verdicts follow from numbers: right ones for clear cases, and wrong rules are caught."""

from __future__ import annotations

import math

import pytest

from dpgt_node.experiments.families import verdicts
from dpgt_node.experiments.families.verdicts import (
    TEST,
    TRAIN,
    Score,
    ascending,
    falls_from,
    faster,
    hinges_on,
    larger,
    scale_that_reaches,
)


def scores(areas: list[float], end: float) -> list[Score]:
    return [Score({TRAIN: area, TEST: area}, {TRAIN: end + area / 100, TEST: end + area / 100}) for area in areas]


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ([0.9, 0.91, 0.92], [0.5, 0.5, 0.52], "yes"),
        ([0.5, 0.5, 0.52], [0.9, 0.91, 0.92], "no"),
        ([0.9, 0.5, 0.7], [0.6, 0.8, 0.6], "open"),
        ([0.7], [0.6], "yes"),
        ([0.6], [0.7], "no"),
        ([0.6, 0.7], [0.6, 0.7], "no"),
    ],
)
def test_larger(a, b, answer):
    assert larger(a, b) == answer


def test_larger_uses_the_interval_of_student():
    # Mean difference 0.03, deviation 0.01 over 3 seeds: 4.303 * 0.01/sqrt(3) = 0.0248 is below it ...
    assert larger([0.52, 0.53, 0.54], [0.50, 0.50, 0.50]) == "yes"
    # ... and with twice the deviation it is above.
    assert larger([0.51, 0.53, 0.55], [0.50, 0.50, 0.50]) == "open"
    # Both ends count: one alone would have 2.920 * 0.015/sqrt(3) = 0.0253, two have 0.0373.
    assert larger([0.515, 0.53, 0.545], [0.50, 0.50, 0.50]) == "open"


def test_seeds_are_paired():
    with pytest.raises(ValueError):
        larger([0.5, 0.6], [0.5])


def test_faster_needs_area_and_end_on_both_sets():
    fast, slow = scores([0.9, 0.91, 0.92], 0.9), scores([0.4, 0.42, 0.41], 0.4)
    assert faster([fast, slow], ["fast", "slow"]).verdict == "reproduced"
    found = faster([slow, fast], ["slow", "fast"])
    assert found.verdict == "not reproduced" and "slow over fast, training, area" in found.reason
    crossing = [Score({TRAIN: 0.9, TEST: 0.9}, {TRAIN: 0.1, TEST: 0.1 + i / 1000}) for i in range(3)]
    assert faster([crossing, slow], ["crossing", "slow"]).verdict == "not reproduced"


def test_three_curves_are_compared_in_their_order():
    best, middle, worst = (scores([v, v + 0.01, v + 0.02], v) for v in (0.8, 0.5, 0.2))
    assert faster([best, middle, worst], ["a", "b", "c"]).verdict == "reproduced"
    assert faster([best, worst, middle], ["a", "c", "b"]).verdict == "not reproduced"


def test_what_seeds_cannot_tell_is_no_verdict_about_the_paper():
    one = scores([0.5, 0.6, 0.7], 0.5)
    other = scores([0.7, 0.5, 0.6], 0.5)
    assert faster([one, other], ["a", "b"]).verdict == "too close to call"


def test_ascending():
    assert ascending({"a": 1.0, "b": 2.0}, "epsilon").verdict == "reproduced"
    assert ascending({"a": 2.0, "b": 2.0}, "epsilon").verdict == "not reproduced"
    assert "of a is 3, of b 2" in ascending({"a": 3.0, "b": 2.0}, "epsilon").reason


def test_falls_from():
    curve = {10: 1.0, 88: 5.0, 100: 4.0, 200: 3.0}
    assert falls_from(curve, 88).verdict == "reproduced"
    later = falls_from({**curve, 150: 6.0}, 88)
    assert (
        later.verdict == "not reproduced" and "at K = 150" in later.reason and "from K = 100 (4) to 150" in later.reason
    )
    assert falls_from(curve, 10).verdict == "not reproduced"
    assert "is 5 at K = 88" in falls_from({5: 1e9, **curve}, 88).reason  # shorter runs are no part of the claim


def test_the_scale_at_which_delta_reaches_its_end():
    shifts = [0.1, 0.2, 0.3, 9.0]
    assert scale_that_reaches(shifts, 3, 1.0, "sum") == pytest.approx(0.6)
    r = scale_that_reaches(shifts, 3, 0.5, "product")
    assert 1.0 - math.prod(1.0 - shift / r for shift in shifts[:3]) == pytest.approx(0.5, rel=1e-9)


def test_a_claim_that_hinges_on_an_unknown_number():
    assert hinges_on("r", {"sum": 28.4, "product": 6.2}).verdict == "not decidable from the paper"
    assert hinges_on("r", {"sum": 3.0, "product": 3.0}).verdict == "reproduced"
    assert hinges_on("r", {}).verdict == "not decidable from the paper"


# Each wrong rule is one that somebody could write; at least one of the tests above must fail under it.
MUTANTS = {
    "no interval": ("larger", lambda a, b: "yes" if sum(a) > sum(b) else "no",
                    test_larger_uses_the_interval_of_student),
    "the other way round": ("larger", lambda a, b: larger(b, a), test_faster_needs_area_and_end_on_both_sets),
    "always yes": ("larger", lambda a, b: "yes", test_three_curves_are_compared_in_their_order),
    "any yes is enough": ("combined", lambda answers, seeds=0: verdicts.Answered(
        "reproduced" if "yes" in answers.values() else "not reproduced", str(answers)),
        test_faster_needs_area_and_end_on_both_sets),
    "open counts as yes": ("combined", lambda answers, seeds=0: verdicts.Answered(
        "not reproduced" if "no" in answers.values() else "reproduced", str(answers)),
        test_what_seeds_cannot_tell_is_no_verdict_about_the_paper),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_caught(name, monkeypatch):
    function, wrong, caught_by = MUTANTS[name]
    monkeypatch.setattr(verdicts, function, wrong)
    if function == "larger":
        monkeypatch.setitem(globals(), "larger", wrong if name != "the other way round" else larger)
    with pytest.raises(AssertionError):
        caught_by()
