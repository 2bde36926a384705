"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from dpgt_node import figures


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (math.nan, "–"), (math.inf, "infinite"), (0.0, "0"), (0.31684, "0.3168"), (12.345, "12.35"),
     (999.9, "999.9"), (9999.7, "10,000"), (48210.3, "48,210"), (3e17, "3e+17"), (1.2345e17, "1.23e+17")],
)  # fmt: skip
def test_epsilon(value: float | None, shown: str) -> None:
    assert figures.epsilon(value) == shown


@pytest.mark.parametrize(
    ("value", "beside", "shown"),
    [(7.00001, 6.9, "7"), (7.00001, 7.0, "7.00001"), (7.0, 7.00001, "7"), (7.0, 7.0, "7"), (8.0, None, "8"),
     (12345.67, 12345.6, "12,345.7"), (8.0, math.inf, "8"), (math.inf, 8.0, "infinite"), (2e9, 2.0001e9, "2e+09")],
)  # fmt: skip
def test_two_epsilons_of_a_sentence_look_different_where_they_are(
    value: float, beside: float | None, shown: str
) -> None:
    assert figures.epsilon(value, beside) == shown
    if beside is not None and beside != value:
        assert figures.epsilon(beside, value) != shown


def test_numbers_are_plain_below_a_thousand_million() -> None:
    assert [figures.number(v) for v in (None, math.nan, math.inf, 85.31)] == ["–", "–", "infinite", "85.3"]
    assert [figures.number(v) for v in (999.7, 12345.6, -4321.0, 2e9)] == ["1,000", "12,346", "-4,321", "2e+09"]
    assert [figures.number(v, 2) for v in (0.5, 99.7, 1234.0)] == ["0.5", "100", "1,234"]


def test_of_many_names_the_first_are_said() -> None:
    assert [figures.some("abc"), figures.some("abcd"), figures.some("abcd", 1)] == [
        "a, b, c",
        "a, b, c and 1 more",
        "a and 3 more",
    ]
    assert figures.some([str(i) for i in range(2003)]).endswith("2 and 2,000 more") and figures.some([]) == ""
