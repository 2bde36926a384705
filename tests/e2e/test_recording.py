"""A recording agent that is killed: its transcript is exact all the same, by the ledgers of those who sent."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from dpgt_node import cli
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.config import RunConfig, load_run
from dpgt_node.record.truth import find_truth
from dpgt_node.runtime.store.ledger import read_ledger
from dpgt_node.wire.transcript import Transcript, TranscriptError
from tests.e2e.processes import Launch, eventually, no_traceback, quadratic, same_bits

pytestmark = pytest.mark.e2e
KEY = "0badcafe"
SECTION = '\n[adversary]\nsemi_honest = ["agent-1", "agent-3"]\ntruth = true\n'
K = 300


def run_file(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def ledgers(out: Path, run: RunConfig) -> dict[tuple[str, str, int], bytes]:
    """SHA-256 of every release, from the senders' own state directories."""
    found = {}
    for name in run.graph.agents:
        for entry in read_ledger(out / "agents" / name / "state").entries:
            found[name, entry.row.stream, entry.row.k] = entry.row.sha256
    return found


def wrong(out: Path, name: str) -> list[str]:
    """What keeps the transcript of ``name`` from being exactly what was sent to it and what it released."""
    run = load_run(out / "run.toml")
    topology, i = Topology.from_config(run.graph), run.graph.agents.index(name)
    sent, incoming = ledgers(out, run), network_of(run, topology).incoming(i)
    edges = [(run.graph.agents[j], "X") for j, _ in incoming["X"] if j != i]
    edges += [(run.graph.agents[j], "Y") for j, _ in incoming["Y"] if j != i]
    keys = [(*edge, k) for edge in (*edges, (name, "X"), (name, "Y")) for k in range(run.K + 1)]
    transcript = Transcript(out / "agents" / name / "state" / "transcript")
    counted: Counter[tuple[str, str, int]] = Counter()
    said = []
    for entry in transcript:
        key = (entry.sender, entry.stream, entry.k)
        counted[key] += 1
        if entry.sha256 != sent.get(key) or entry.sha256_seen != entry.sha256:
            said.append(f"{key}: other bytes than its sender's ledger has")
        if entry.own != (entry.sender == name) or (not entry.own and entry.receiver != name):
            said.append(f"{key}: on the wrong edge")
    said += [f"{key}: {counted[key]} times" for key in keys if counted[key] != 1]
    said += [f"{key}: was never on an edge to {name}" for key in counted if key not in set(keys)]
    counts = transcript.counts()
    if (counts.messages, counts.complete) != (len(keys), len(keys)):
        said.append(f"counts {counts}")
    return said


def killed(launch: Launch, name: str) -> None:
    """Kill ``name`` and wait until its successor runs."""
    old = launch.pid(name)
    os.kill(old, signal.SIGKILL)
    eventually(f"{name} runs again", lambda: launch.pid(name) != old and psutil.pid_exists(launch.pid(name)))


def recorded(launch: Launch, name: str, nbytes: int) -> None:
    """Wait until the transcript of ``name`` is of this size: it is then in mid-run."""
    path = launch.out / "agents" / name / "state" / "transcript"

    def grown() -> bool:
        assert launch.process.poll() is None, launch.said
        return path.exists() and path.stat().st_size >= nbytes

    eventually(f"{name} has recorded {nbytes} bytes", grown)


def test_kill_9_of_recorders_and_their_neighbours_leaves_exact_transcripts(tmp_path: Path) -> None:
    run = run_file(tmp_path, quadratic(3, K, every=150) + SECTION)
    out = tmp_path / "out"
    with Launch(out, "launch", run, "--test-keystream", KEY) as launch:
        for turn, name in enumerate(("agent-1", "agent-3", "agent-1")):  # agent-3 also sends to agent-1
            recorded(launch, "agent-1", 30_000 * (turn + 1))  # about 200,000 in the end
            killed(launch, name)
        assert launch.wait() == 0, launch.said
    no_traceback(launch.everything_said())
    assert json.loads((out / "summary.json").read_text())["restarts"] == {"agent-1": 2, "agent-3": 1}
    assert [wrong(out, name) for name in ("agent-1", "agent-3")] == [[], []]
    assert not (out / "agents" / "agent-2" / "state" / "transcript").exists()

    simulated = tmp_path / "sim"
    assert cli.run(["simulate", str(run), "--out", str(simulated), "--test-keystream", KEY]) == 0
    same_bits(out, simulated)
    for name in ("agent-1", "agent-3"):
        seen = []
        for folder in (out, simulated):
            entries = Transcript(folder / "agents" / name / "state" / "transcript")
            seen.append({(e.sender, e.receiver, e.stream, e.k, e.own, bytes(e.data or b"")) for e in entries})
        assert seen[0] == seen[1]
    names = load_run(run).graph.agents
    run_id = bytes.fromhex(json.loads((out / "run_id.json").read_text())["run_id"])
    real, dry = find_truth(out, names, run_id), find_truth(simulated, names)
    for name in names:
        assert real[name].rounds() == dry[name].rounds() == tuple(range(K + 1))
        for one, other in zip(real[name], dry[name], strict=True):
            assert all(np.array_equal(getattr(one, f), getattr(other, f)) for f in ("x", "y", "g", "batch"))
    the_check_sees_what_is_lost_doubled_or_altered(out)


def the_check_sees_what_is_lost_doubled_or_altered(out: Path) -> None:
    """The checker's own mutants."""
    path = out / "agents" / "agent-1" / "state" / "transcript"
    whole = path.read_bytes()
    entries = [end for end, _ in Transcript(path).whole()]
    first = whole[entries[0] : entries[1]]
    path.write_bytes(whole[: entries[1]] + first + whole[entries[1] :])
    assert any("2 times" in line for line in wrong(out, "agent-1"))
    path.write_bytes(whole[: entries[0]] + whole[entries[1] :])
    assert any("0 times" in line for line in wrong(out, "agent-1"))
    path.write_bytes(whole[: entries[1] - 1])
    with pytest.raises(TranscriptError, match="did not end"):
        wrong(out, "agent-1")
