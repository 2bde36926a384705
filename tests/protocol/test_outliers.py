"""The alarm over in-neighbours that lie far beyond the others: when it comes, what it takes, and how rarely it errs."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import Heard, Note
from dpgt_node.protocol.coordinator.comparison import Compared
from dpgt_node.protocol.coordinator.coordination_types import KeepCompared
from dpgt_node.protocol.coordinator.witnesses import Said, Witnesses
from dpgt_node.protocol.outliers import FACTOR, ROUNDS, Outlier, OutlierWatch, _median
from dpgt_node.record.digests import read_digests, write_digests
from tests.protocol.test_digests import NETWORK, RUN, Desk, ended

NAMES = tuple(f"agent-{i}" for i in range(1, 7))
SILENT = dict.fromkeys(range(6), 0.0)


def told(watch: OutlierWatch, k: int, far: dict[int, float], radius: float = math.inf) -> list[tuple[str, int, float]]:
    return [(one.sender, one.rounds, one.ratio) for one in watch.note("X", k, far, radius, SILENT)]


def test_the_middle_of_any_number_of_values() -> None:
    values = [3.0, -1.0, 8.0, 8.0, 0.5, 7.0]
    assert [_median(values[:n]) for n in range(1, 7)] == [statistics.median(values[:n]) for n in range(1, 7)]


def test_it_takes_rounds_in_a_row_and_doubles() -> None:
    watch, far = OutlierWatch(NAMES), {0: 1.0, 1: 1.2, 2: 12.0, 3: 0.9}
    assert [told(watch, k, far) for k in range(ROUNDS - 1)] == [[]] * 4
    assert told(watch, 4, {**far, 2: 1.0}) == [], "one usual round, and it counts from the beginning"
    heard = [said for k in range(5, 30) for said in told(watch, k, far)]
    assert heard == [("agent-3", 5, 12.0), ("agent-3", 10, 12.0), ("agent-3", 20, 12.0)]
    assert watch.note("Y", 30, far, math.inf, SILENT) == (), "streams are told apart"


def test_what_counts_as_usual() -> None:
    def after(far: dict[int, float], radius: float = math.inf, noise: dict[int, float] = SILENT) -> list[str]:
        watch = OutlierWatch(NAMES)
        return [one.sender for k in range(ROUNDS) for one in watch.note("X", k, far, radius, noise)]

    assert after({0: 1e9}) == [], "with one in-neighbour and no radius nobody stands out"
    assert after({0: 3.1}, 1.0) == ["agent-1"] and after({0: 2.9}, 1.0) == []
    assert after({0: 3.1, 1: 1.1}, 1.0) == [], "the others are as far, nearly"
    assert after({0: 9.0, 1: 1.0}, noise={0: 4.0, 1: 0.1}) == [], "its noise is large, as the run file says"
    assert after({0: math.inf, 1: 1.0, 2: 1.0}) == ["agent-1"] and after({0: 0.0, 1: 0.0}) == []


@given(st.lists(st.floats(1.0, FACTOR), min_size=2, max_size=6))
def test_nobody_is_named_within_the_factor(lengths: list[float]) -> None:
    watch = OutlierWatch(NAMES)
    assert not [said for k in range(20) for said in told(watch, k, dict(enumerate(lengths)))]


def test_noise_alone_is_not_named_and_three_times_its_reach_is() -> None:
    """Markov: P(||noise|| > 3 rms) <= 1/9 a round, whatever the law and d, so 9^-5 a window; here d = 2, Laplace."""
    rng, named, found = np.random.default_rng(7), 0, 0
    rms = 2.0 * math.sqrt(2)
    for _ in range(200):
        honest, attacked = OutlierWatch(NAMES), OutlierWatch(NAMES)
        for k in range(60):
            own = rng.laplace(size=2)
            far = {j: float(np.linalg.norm(rng.laplace(size=2) - own)) for j in range(4)}
            noise = dict.fromkeys(range(4), rms)
            named += len(honest.note("X", k, far, math.inf, noise))
            found += k < 20 and any(
                o.sender == "agent-1" for o in attacked.note("X", k, {**far, 0: 60.0}, math.inf, noise)
            )
    assert named == 0 and found == 2 * 200 + 200


OUTLIER = Outlier("agent-1", "X", 4, 5, 7.5)


def test_the_coordinator_notes_it_once_and_when_it_doubles(tmp_path: Path) -> None:
    desk = Desk(RUN)
    calls = desk.start()
    noted = [e for e in desk.all(Heard(calls[1], OUTLIER)) if isinstance(e, Note)]
    assert [e.level for e in noted] == ["warning"] and "X of agent-1 lay 7.5 times" in noted[0].text
    again = [desk.all(Heard(calls[1], replace(OUTLIER, k=k, rounds=r))) for k, r in ((5, 5), (8, 9), (9, 10))]
    assert [any(isinstance(e, Note) for e in out) for out in again] == [False, False, True]
    kept = desk.machine._witnesses.ended()[0].found
    assert kept.outliers == (("agent-2", replace(OUTLIER, k=9, rounds=10)),)
    write_digests(tmp_path, kept)
    assert read_digests(tmp_path) == kept


def test_a_coordinator_that_came_back_goes_on_from_the_words_it_kept() -> None:
    held = Compared(outliers=(("agent-2", replace(OUTLIER, k=9, rounds=9)),))
    witnesses = Witnesses(NETWORK, 1, held, last_round=99, stops=True)
    (kept,) = witnesses.ended()
    assert isinstance(kept, KeepCompared) and kept.found.outliers == held.outliers
    assert witnesses.outlier("agent-2", replace(OUTLIER, k=20, rounds=17)) == Said(), "the log has been told"
    said = witnesses.outlier("agent-2", replace(OUTLIER, k=21, rounds=18))
    assert said is not None and isinstance(said.effects[0], Note) and not said.stop


@pytest.mark.parametrize(
    "word",
    [
        replace(OUTLIER, sender="agent-9"),
        replace(OUTLIER, sender="agent-2"),
        replace(OUTLIER, k=10**6),
        replace(OUTLIER, sender="agent-3", stream="Y"),  # which goes to agent-1 alone
    ],
)
def test_who_hears_no_such_agent_speaks_nonsense(word: m.Outlier) -> None:
    desk = Desk(RUN)
    call = desk.start()[1]
    assert ended(desk.say(call, word), call) == "INVALID_ARGUMENT"


def test_runs_without_outliers_keep_their_files(tmp_path: Path) -> None:
    write_digests(tmp_path, Compared((), 3, 0))
    assert "outliers" not in (tmp_path / "digests.json").read_text() and read_digests(tmp_path) == Compared((), 3, 0)
