"""Spans that sessions measure."""

from __future__ import annotations

from dpgt_node.protocol.clock import CAUSES, SECOND, Awake, Backoff, heartbeat_ns


def test_what_was_slept_through_does_not_count() -> None:
    awake = Awake(2 * SECOND, 0)
    times = [1 * SECOND, 3 * SECOND, 100 * SECOND, 101 * SECOND]
    assert [awake.at(now) // SECOND for now in times] == [1, 3, 5, 6], "of 97 s only 2 s"


def test_a_heartbeat_comes_eight_times_in_the_bound_and_every_two_seconds_at_least() -> None:
    assert heartbeat_ns(60.0) == 2 * SECOND and heartbeat_ns(8.0) == SECOND


def test_backoff_doubles_to_its_cap_and_says_a_cause_once() -> None:
    backoff = Backoff()
    said, waited = [], []
    for _ in range(7):
        said.append(backoff.news("away"))
        waited.append(backoff.next_ns() / SECOND)
    assert waited == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0] and said == [True] + 6 * [False]
    assert backoff.news("mad")
    backoff.worked(SECOND)
    assert backoff.news("mad") and backoff.next_ns() == SECOND // 20, "a new spell of trouble"


def test_a_call_that_is_closed_at_once_was_no_success() -> None:
    """Else attempts at a coordinator that refuses would race, and alternating causes would fill the log."""
    backoff = Backoff()
    waited, said = [], []
    for i in range(40):
        backoff.worked(SECOND // 100)
        waited.append(backoff.next_ns())
        said.append(backoff.news(("closed", "refused", "reset")[i % 3]))
    assert set(waited[5:]) == {SECOND} and sum(said) == 3
    assert sum(backoff.news(f"cause {i}") for i in range(100)) == CAUSES - 3
