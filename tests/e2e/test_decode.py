"""What an eavesdropper has of real launches: every released payload, as the agents' own ledgers have it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node.adversary.audit.replay import Replay
from dpgt_node.adversary.inference.observation import Facts, Observation
from dpgt_node.config import load_run
from dpgt_node.config.mixing.robust import Robust
from dpgt_node.runtime.store import statement
from dpgt_node.runtime.store.ledger import read_ledger
from dpgt_node.wire.transcript import Transcript
from tests.e2e import processes

pytestmark = pytest.mark.e2e


ATTACKED = """
[adversary.active]
agent-2 = "poison value=2 from=3 until=5; trap value=-3 from=7 until=7"
[robust]
rule = "clipped-gossip"
radius = 0.5
tracker = "norm-clip"
tracker_radius = 2.0
"""


def tapped(folder: Path, dimension: int, K: int, agents: int) -> tuple[Path, Path]:
    """The output folder of a launch without TLS, and the capture of all its links."""
    run = folder / "run.toml"
    text = processes.quadratic(agents, K).replace("dimension = 3", f"dimension = {dimension}")
    text += '[runtime]\nchannel = "plain"\n' + (ATTACKED if dimension == 3 else "")
    run.write_text(text, encoding="utf-8")
    out, capture = folder / "out", folder / "a.pcap"
    done = processes.dpgt("launch", run, "--out", out, "--insecure", "--tap", capture)
    assert done.returncode == 0, done.stderr
    return out, capture


def ledger(out: Path, name: str) -> dict[tuple[int, str], str]:
    """sha256 of what an agent says it released."""
    rows = statement.document(read_ledger(out / "agents" / name / "state"))["rows"]
    return {(row["k"], row["stream"]): row["sha256"] for row in rows}


def decode(out: Path, capture: Path, transcript: Path, *more: object) -> dict[str, Any]:
    said = processes.asked("eavesdrop", "decode", capture, "--out", transcript, "--run", out, "--format", "json", *more)
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@pytest.mark.parametrize(("dimension", "K", "agents"), [(3, 12, 3), (500_000, 1, 2)])
def test_every_payload_is_the_one_in_the_ledger(tmp_path: Path, dimension: int, K: int, agents: int) -> None:
    """On a ring each agent's x̆ and y̆ cross one link; 500,000 float32 values are two chunks."""
    out, capture = tapped(tmp_path, dimension, K, agents)
    found = decode(out, capture, tmp_path / "t")
    messages = 2 * agents * (K + 1)
    assert (found["messages"], found["complete"], found["with_holes"]) == (messages, messages, 0)
    assert (found["agents"], found["rounds"], found["segments_lost"]) == (agents, K + 1, 0)
    assert found["foreign"] == found["conflicting"] == found["wrong_hash"] == 0
    ledgers = {name: ledger(out, name) for name in found["names"]}
    seen = {(e.sender, e.k, e.stream): e.sha256_seen.hex() for e in Transcript(tmp_path / "t")}
    assert seen == {(name, k, s): digest for name, rows in ledgers.items() for (k, s), digest in rows.items()}
    assert all(e.receiver and e.receiver != e.sender for e in Transcript(tmp_path / "t"))
    if dimension == 3:
        drawn_to_the_bit(out, tmp_path / "t")


def drawn_to_the_bit(out: Path, transcript: Path) -> None:
    """An auditor who mixes as [robust] does finds every draw of those who follow the protocol, and of nobody else."""
    run = load_run(out / "run.toml")
    observation = Observation.load([transcript], run)
    for i, name in enumerate(run.graph.agents):
        replay = Replay(observation.facts, i, np.zeros(3), observation.vectors, observation.dtype)
        found = [one.draw.kind == "exact" for one in replay.run([lambda k, x, b=i + 1: x - b])]
        assert len(found) == 2 * (run.K + 1) and all(found) == (name != "agent-2")
    linear = Facts.of(replace(run, robust=Robust()))
    replay = Replay(linear, 2, np.zeros(3), observation.vectors, observation.dtype)
    assert not all(one.draw.kind == "exact" for one in replay.run([lambda k, x: x - 3.0])), "something was clipped"
