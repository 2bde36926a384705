"""The facts of every mechanism against what the definitions say (privacy.md, section 2), written out once more here."""

from __future__ import annotations

import pytest

from dpgt_node.config.vocabulary import MECHANISMS as WORDS
from dpgt_node.privacy.accountants.responses.response import Steps, Tracking
from dpgt_node.privacy.mechanisms import DEFAULT, MECHANISMS, TRACKING

#         name               charged     x public  at release  public point  once
TABLE = {
    "paper": (("X", "Y"), False, False, False, False),
    "published-point": (("X", "Y"), False, True, True, False),
    "public-state": (("Y",), True, False, True, False),
    "noise-once": (("Y",), True, False, True, True),
    "state-noise": (("X",), False, False, False, False),
    "released-state": (("X",), False, True, True, False),
    "sum-noise": (("X", "Y"), False, False, False, False),
    "released-sum": (("X", "Y"), False, True, True, False),
    "quantised-state": (("X",), False, False, False, False),
    "coded-coins": (("Y",), True, False, True, True),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_a_mechanism_releases(name: str) -> None:
    one = MECHANISMS[name]
    facts = (one.charged, one.x_public, one.at_release, one.accounted.public_point, one.accounted.once)
    assert facts == TABLE[name] and one.name == name
    assert one.noises == (0 if name in ("quantised-state", "coded-coins") else len(one.charged))


def test_the_run_file_knows_the_registered_ones() -> None:
    assert tuple(MECHANISMS) == tuple(TABLE) == WORDS.built
    assert [one.name for one in MECHANISMS.values() if one.printed] == [DEFAULT.name] == ["paper"]
    assert [one.noises for one in MECHANISMS.values()] == [2, 2, 1, 1, 1, 1, 2, 2, 0, 0]
    assert [one.name for one in TRACKING] == list(TABLE)[:4]


@pytest.mark.parametrize("name", list(TABLE)[:4])
def test_the_kernel_is_that_of_what_is_noised(name: str) -> None:
    """Entry by entry: dx and dy after a unit change of g_l, by the recursions of Algorithm 1."""
    a, b, gamma, K = 0.3, 0.2, 0.5, 6
    response = MECHANISMS[name].accounted.response(Steps.constant(a, b, gamma, K))
    assert isinstance(response, Tracking)
    kernel = response.kernel
    dx, dy = -gamma, -b  # one round after the change
    for n in range(K):
        expected = {"noise-once": (0.0, 0.0), "public-state": (0.0, dy)}.get(name, (dx, dy))
        assert (kernel.x[n], kernel.y[n]) == pytest.approx(expected, abs=1e-15)
        dx, dy = (1 - a) * dx - gamma * dy, (1 - b) * dy
