"""A launch behind a tap: the same bits, and a capture of the links that were asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.decode.traffic import observe
from tests.adversary.taps import wiretap
from tests.e2e import processes

pytestmark = pytest.mark.e2e

KEY = "00ff"
DIMENSION = 26_000  # 208 kB


def test_a_tapped_launch_gives_the_same_bits_and_a_capture_of_its_links(tmp_path: Path) -> None:
    """mTLS passes through as it is; agent-3 > agent-1 is not among the links asked for.  agent-2 > agent-3 has one
    stream; who has no keys learns that, and d.
    """
    run = tmp_path / "run.toml"
    text = processes.quadratic(3, 8).replace("dimension = 3", f"dimension = {DIMENSION}")
    text = text.replace('C = { generator = "ring" }', "C = [[0.5, 0, 0.5], [0.5, 0.5, 0], [0.5, 0, 0.5]]")
    run.write_text(text, encoding="utf-8")
    out, capture = tmp_path / "out", tmp_path / "a.pcap"
    links = "agent-1>agent-2,agent-2>agent-3,agent-1>agent-3"
    tap = ("--tap", capture, "--tap-links", links)
    done = processes.dpgt("launch", run, "--out", out, "--test-keystream", KEY, *tap)
    assert done.returncode == 0, done.stderr
    simulated = processes.asked("simulate", run, "--out", tmp_path / "sim", "--test-keystream", KEY)
    assert simulated.returncode == 0, simulated.stderr
    for agent in ("agent-1", "agent-2", "agent-3"):
        final = f"agents/{agent}/x_final.npy"
        assert np.array_equal(np.load(out / final), np.load(tmp_path / "sim" / final))
    recorded = wiretap.segments(capture)
    dialled = {(s.source[0], s.target[0]) for s in recorded if s.flags == wiretap.SYN}
    assert dialled == {("10.77.0.1", "10.77.0.2"), ("10.77.0.2", "10.77.0.3"), ("10.77.0.1", "10.77.0.3")}
    traffic = observe([capture])
    assert {(k.sender, k.receiver, k.streams, k.rounds) for k in traffic.links} == {
        ("10.77.0.1", "agent-2", 2, 9),  # who is not dialled has no name
        ("10.77.0.1", "agent-3", 1, 9),
        ("agent-2", "agent-3", 1, 9),
    }
    dimension = traffic.dimension("float64")
    assert dimension is not None and abs(dimension - DIMENSION) < 0.01 * DIMENSION
