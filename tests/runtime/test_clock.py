"""Time in which this process was awake."""

from __future__ import annotations

from dpgt_node.runtime.clock import AwakeClock, heartbeat_s

S = 1_000_000_000


def test_what_was_slept_through_does_not_count() -> None:
    times = iter([0, 1 * S, 3 * S, 100 * S, 101 * S])
    clock = AwakeClock(2.0, lambda: next(times))
    assert [clock.now_ns() for _ in range(4)] == [1 * S, 3 * S, 5 * S, 6 * S], "of 97 s only 2 s"


def test_a_heartbeat_comes_eight_times_in_the_bound_and_every_two_seconds_at_least() -> None:
    assert heartbeat_s(60.0) == 2.0 and heartbeat_s(8.0) == 1.0
