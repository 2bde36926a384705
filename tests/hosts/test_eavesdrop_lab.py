"""Whole runs in the lab: what the switch recorded is what agents released, whatever happened to frames on the way."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dpgt_node.adversary.decode.traffic import observe
from tests.e2e import processes

pytestmark = [pytest.mark.hosts, pytest.mark.needs("eavesdrop")]

KEY = "77aa"
K = 12
DIMENSION = 26_000  # 208 kB: sent in chunks
RUN = f"""
name = "lab"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.1
gamma = 0.02
p_m = 1.0
[noise]
scale_zeta = 0.1
scale_eta = 0.1
[graph]
agents = 3
R = [[0,0,1],[1,0,0],[1,1,0]]
C = [[0,0,1],[1,0,0],[0,1,0]]
[data]
dataset = "quadratic"
dimension = {DIMENSION}
[evaluate]
every = 1000
metrics = "study"
"""
LINKS = {
    ("agent-1", "agent-2"): "XY",
    ("agent-2", "agent-3"): "XY",
    ("agent-3", "agent-1"): "XY",
    ("agent-1", "agent-3"): "X",
}


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    (tmp_path / "run.toml").write_text(RUN, encoding="utf-8")
    return tmp_path / "run.toml"


def lab(run_file: Path, out: Path, *options: object) -> str:
    done = processes.dpgt("eavesdrop", "lab", run_file, "--out", out, "--test-keystream", KEY, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def decoded(out: Path, *options: object) -> dict[str, Any]:
    arguments = ("--out", out / "again.transcript", "--run", out / "run", "--format", "json")
    done = processes.dpgt("eavesdrop", "decode", out / "capture.pcap", *arguments, *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def released(out: Path) -> Iterator[tuple[str, int, str, str]]:
    """(agent, k, stream, sha256) as the agents' own ledgers have them."""
    for agent in ("agent-1", "agent-2", "agent-3"):
        done = processes.dpgt("ledger", out / "run" / "agents" / agent / "state", "--format", "json")
        assert done.returncode == 0, done.stderr
        for row in json.loads(done.stdout)["rows"]:
            yield agent, row["k"], row["stream"], row["sha256"]


def seen(transcript: Path) -> dict[tuple[str, str, int, str], str]:
    from dpgt_node.wire.transcript import Transcript

    return {(s.sender, s.receiver, s.k, s.stream): s.sha256_seen.hex() for s in Transcript(transcript) if s.complete}


def assert_all_seen(out: Path) -> None:
    """Every vector of every link, with the hash that its agent's ledger has."""
    hashes = {(agent, k, stream): sha256 for agent, k, stream, sha256 in released(out)}
    assert seen(out / "capture.transcript") == {
        (sender, receiver, k, stream): hashes[sender, k, stream]
        for (sender, receiver), streams in LINKS.items()
        for stream in streams
        for k in range(K + 1)
    }


def assert_simulators_bits(run_file: Path, out: Path) -> None:
    simulated = processes.dpgt("simulate", run_file, "--out", out / "sim", "--test-keystream", KEY)
    assert simulated.returncode == 0, simulated.stderr
    for agent in ("agent-1", "agent-2", "agent-3"):
        final = f"agents/{agent}/x_final.npy"
        assert np.array_equal(np.load(out / "run" / final), np.load(out / "sim" / final))


def test_a_lossy_network_loses_nothing_of_the_recording(run_file: Path, tmp_path: Path) -> None:
    said = lab(run_file, tmp_path / "out", "--loss", 0.01, "--reorder", 0.02, "--delay-ms", 0.5, "--seed", 3)
    assert " 0 lost" not in said and "0 missed by the tap" in said
    assert_all_seen(tmp_path / "out")
    assert_simulators_bits(run_file, tmp_path / "out")


@pytest.mark.long
def test_with_session_keys_tls_is_read_like_plain(run_file: Path, tmp_path: Path) -> None:
    """On a lossy network; and not without the keys, where sizes and times are all."""
    out = tmp_path / "out"
    lab(run_file, out, "--channel", "tls+keys", "--loss", 0.005, "--reorder", 0.01)
    assert_all_seen(out)
    without = decoded(out)
    assert without["messages"] == 0 and without["channel"] == "tls"


@pytest.mark.long
def test_mtls_without_keys_shows_sizes_and_times(run_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lab(run_file, out, "--channel", "tls", "--rate-mbit", 200)
    assert not (out / "capture.transcript").exists() and decoded(out)["messages"] == 0
    traffic = observe([out / "capture.pcap"])
    assert {(k.sender, k.receiver): k.streams for k in traffic.links} == {k: len(v) for k, v in LINKS.items()}
    assert traffic.rounds == K + 1
    dimension = traffic.dimension("float64")
    assert dimension is not None and abs(dimension - DIMENSION) < 0.01 * DIMENSION


@pytest.mark.long
def test_a_tap_that_misses_frames_has_holes_and_no_wrong_byte(run_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lab(run_file, out, "--tap-loss", 0.01, "--links", "agent-1>agent-2,agent-3>agent-1")
    found = decoded(out)
    assert found["with_holes"] > 0 and found["complete"] + found["with_holes"] == found["messages"]
    assert found["messages"] == 4 * (K + 1) and found["segments_lost"] > 0
    hashes = {(agent, k, stream): sha256 for agent, k, stream, sha256 in released(out)}
    whole = seen(out / "again.transcript")
    assert len(whole) == found["complete"]
    assert all(sha256 == hashes[sender, k, stream] for (sender, _, k, stream), sha256 in whole.items())


@pytest.mark.long
def test_a_killed_lab_leaves_nothing(run_file: Path, tmp_path: Path) -> None:
    """Processes, namespaces, devices: all of it hangs on processes that die with the lab."""
    text = RUN.replace(f"iterations = {K}", f"iterations = {processes.ENDLESS}").replace(str(DIMENSION), "10")
    run_file.write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    before = network_namespaces()
    with processes.Launch(out, "eavesdrop", "lab", run_file) as running:
        log = out / "run" / "coordinator.log"
        processes.eventually("rounds are made", lambda: log.exists() and "rounds 0.." in log.read_text())
        children = running.children()
        assert len(network_namespaces() - before) == 4
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait(processes.LIMIT_S)
        _, alive = psutil.wait_procs(children, timeout=processes.LIMIT_S)
    assert alive == []
    processes.eventually("the namespaces are gone", lambda: network_namespaces() <= before)


def network_namespaces() -> set[str]:
    found = set()
    for process in psutil.process_iter():
        try:
            found.add(os.readlink(f"/proc/{process.pid}/ns/net"))
        except OSError:
            continue
    return found
