"""What reports to the coordinator tell, from sizes and times that are made up; tests/runtime/test_traffic.py has real
ones.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from dpgt_node.adversary.decode.reports import Reports, findings, lags, of_lags, received_more, usual
from dpgt_node.adversary.inference.observation import Facts
from tests.runtime.cluster import make_run

MS = 1_000_000


def records(size: int, late_ms: float, seed: int, rounds: int = 40) -> Reports:
    """Reports of ``size``, ``late_ms`` after each round's first vector, among pings, and with some that grew by one."""
    dice, carried, times = random.Random(seed), [711, 82, 9], [0, 1, 2]
    for k in range(rounds):
        at = int((100 * (k + 1) + late_ms + dice.random()) * MS)
        carried += [17, size + dice.choice([0, 0, 1, 26])]
        times += [at - MS, at]
    made = Reports.of(carried, times)
    assert made is not None
    return made


STARTS = np.arange(1, 42, dtype=np.int64) * 100 * MS


def test_the_smallest_frequent_size_is_a_report() -> None:
    assert usual([164] * 30 + [181] * 5 + [190] * 5 + [150] * 2 + [17] * 99 + [20_000] * 99) == 164
    assert usual([164] * 4) is None and usual([]) is None and Reports.of([9, 82], [1, 2]) is None


def test_who_receives_more_and_who_is_late_are_found() -> None:
    found = {"a": records(164, 5, 1), "b": records(181, 5, 2), "c": records(198, 55, 3)}
    assert received_more(found) == {"a": 0, "b": 1, "c": 2}
    late = lags(found, STARTS)
    assert late["c"] == pytest.approx(0.05, abs=0.002) and max(late["a"], late["b"]) < 0.002
    assert lags({}, STARTS) == {} and lags(found, STARTS[:3]) == {}


def test_they_are_held_against_the_run_file() -> None:
    """agent-1 receives X and Y, agent-2 X alone, agent-3 X and Y of agent-2 and Y of agent-1... by the run file."""
    facts = Facts.of(make_run())
    true = [sum(map(len, facts.network.senders(i).values())) for i in range(3)]
    assert true == [2, 1, 3]
    found = {f"agent-{i + 1}": records(150 + 16 * count, 5, i) for i, count in enumerate(true)}
    made = findings(found, lags(found, STARTS), 0.1, facts)
    assert [one.verdict for one in made] == ["succeeds"] * 3
    assert [one.true["received_more"] for one in made] == [1, 0, 2] and not any(one.predicted for one in made)
    alike = {name: records(1038, 5, 7) for name in found}
    assert [one.verdict for one in findings(alike, {}, 0.1, facts)] == ["fails"] * 3
    late = {"agent-1": 0.001, "agent-2": 0.0, "agent-3": 0.05}
    assert [one.verdict for one in findings(alike, late, 0.1, facts)] == ["fails", "fails", "succeeds"]
    assert findings(alike, {}, 0.1, None)[0].true == {}


@pytest.mark.parametrize(
    ("late_s", "slow"),
    [
        ((0.0005, 0.001, 0.002, 0.003, 0.0), []),  # the jitter of ticks, in rounds of 200 ms
        ((0.0005, 0.001, 0.05, 0.003, 0.0), ["c"]),
        (
            (0.0, 0.04, 0.08, 0.12, 0.14),
            [],
        ),  # beyond 5 % of a round, as the others are
        ((0.0, 0.0, 0.0099, 0.0, 0.0), []),
        ((0.0, 0.0, 0.0101, 0.0, 0.0), ["c"]),
        ((0.1,), []),
    ],
)
def test_a_lag_counts_where_it_stands_out(late_s: tuple[float, ...], slow: list[str]) -> None:
    made = of_lags(dict(zip("abcde", late_s, strict=False)), 0.2)
    assert [one.agent for one in made if one.verdict == "succeeds"] == slow
