"""Large vectors over slow links, and over one that is cut: nobody is taken for dead, and no vector begins anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpgt_node.bench.speed.ring import ring
from tests.e2e import processes
from tests.hosts.deployment import Deployment
from tests.hosts.lab import Lab
from tests.hosts.slow_link import measure

pytestmark = [pytest.mark.hosts, pytest.mark.long, pytest.mark.needs("rate")]


def test_answers_wait_behind_a_vector_and_no_stream_is_cut() -> None:
    """Half a minute of bytes may be ahead of an answer to a ping, and of one to new settings of HTTP/2."""
    figures = measure(2, 3, 1.0, 0.0, 1_400_000, everybody=True, timeout_s=60.0)
    assert set(figures["exit_codes"].values()) == {0} and figures["rounds"] == 2
    assert figures["streams_broken"] == 0 and figures["ever_unconnected"] == []


@pytest.mark.needs("rate", "cut")
def test_a_vector_goes_on_where_its_link_was_cut(tmp_path: Path) -> None:
    """The link is dead until its stream is given up, in the midst of 22 MB: what had arrived does not cross again."""
    agents, d = ["agent-1", "agent-2"], 5_600_000
    run_file = tmp_path / "run.toml"
    text = ring(2, d, 2, dataset="zeros", noise=0.0)
    run_file.write_text(f"{text}round_timeout = 12\n", encoding="utf-8")
    with Lab(tmp_path / "lab", ["coordinator", *agents], processes.environment()) as lab:
        run = Deployment(lab, run_file, tmp_path, agents, study=False)
        lab["agent-1"].limit_rate(40)
        run.start_all()
        processes.eventually("most of a vector is on its way", lambda: lab["agent-1"].bytes_out() > 16e6)
        lab.cut("agent-1", "agent-2")
        broken = "stream to agent-2"
        processes.eventually("the stream is given up", lambda: broken in run.daemons["agent-1"].said)
        lab.heal()
        codes = run.exit_codes(limit_s=300)
        assert set(codes.values()) == {0}
        summary = json.loads((run.results / "summary.json").read_text())
        sent = lab["agent-1"].bytes_out()
    needed = 2 * summary["rounds"] * 4 * d
    assert needed < sent < 1.02 * needed + 6e6, "headers, and what was in the kernel's buffers"
