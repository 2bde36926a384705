"""Nothing grows with the rounds: 500 of them here, 20,000 by ``make soak``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.soak import Sample, Watched, soak

LEAK_LIMIT_B = 250.0
"""Bytes a round: above the noise of an allocator, below one lost copy of a payload of d = 650 (5,200 bytes)."""


def verdict(watched: Watched, limit_b: float) -> list[str]:
    """Every process that grows, by name."""
    found = []
    for name in watched.seen:
        rss, descriptors, threads = watched.slopes(name)
        if rss > limit_b:
            found.append(f"{name}: {rss:.0f} bytes a round")
        if abs(descriptors) * watched.rounds > 5 or abs(threads) * watched.rounds > 5:
            found.append(f"{name}: descriptors or threads")
    return found


def test_the_verdict_sees_a_leak_of_one_payload_or_descriptor_a_round() -> None:
    def made(leak: int, descriptors: float) -> Watched:
        samples = [Sample(at, 70_000_000 + leak * 100 * at, int(30 + descriptors * at), 9) for at in range(100)]
        return Watched(10_000, {"agent-1": samples}, [(0.0, 1)], 100.0)

    assert verdict(made(0, 0.0), LEAK_LIMIT_B) == []
    assert verdict(made(5_200, 0.0), LEAK_LIMIT_B) == ["agent-1: 5200 bytes a round"]
    assert verdict(made(0, 0.5), LEAK_LIMIT_B) == ["agent-1: descriptors or threads"]


@pytest.mark.e2e
def test_500_rounds_end_without_an_error(tmp_path: Path) -> None:
    watched = soak(tmp_path, 500)
    # So few rounds say nothing about bytes: caches still fill.  One lost payload a round would still show.
    assert verdict(watched, 20_000.0) == [], watched.report()


@pytest.mark.long
def test_20000_rounds(tmp_path: Path) -> None:
    watched = soak(tmp_path, 20_000)
    print("\n" + watched.report())
    assert verdict(watched, LEAK_LIMIT_B) == [], watched.report()
