"""Rounds per second of ``dpgt launch`` beside the bare ring of ``bare_ring``: same processes, mTLS, bytes and barrier.

    python -m tests.bench.rounds [--rounds 2000] [--repeat 3]

quadratic, n = 5 on a ring, m = 1, d = 100, float64, mTLS, durability process.  The two run in turn, so that a machine
that drifts does not favour one; the ratio is taken pair by pair.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """
name = "ring"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.01
gamma = 0.01
p_m = 1.0
samples = 1
[noise]
scale_zeta = 0.1
scale_eta = 0.1
[graph]
agents = {n}
R = {{ generator = "ring" }}
C = {{ generator = "ring" }}
[data]
dataset = "quadratic"
dimension = {d}
[evaluate]
every = {K}
"""


def launch(n: int, d: int, rounds: int) -> float:
    """Rounds per second of one launch."""
    with tempfile.TemporaryDirectory() as name:
        run, out = Path(name) / "run.toml", Path(name) / "out"
        run.write_text(RUN.format(K=rounds - 1, n=n, d=d), encoding="utf-8")
        command = [sys.executable, "-m", "dpgt_node", "launch", str(run), "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return float(json.loads((out / "summary.json").read_text(encoding="utf-8"))["rounds_per_second"])


def bare(n: int, d: int, rounds: int) -> float:
    """Rounds per second of one bare ring with frames of the same size."""
    frame = 2 * (8 * d + 80)
    command = [sys.executable, "-m", "tests.bench.bare_ring", "--agents", str(n), "--rounds", str(rounds)]
    done = subprocess.run([*command, "--bytes", str(frame)], check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[0])["rounds_per_second"])


def measure(n: int, d: int, rounds: int, repeat: int) -> list[tuple[float, float]]:
    """(launch, bare) rounds per second, ``repeat`` times in turn."""
    return [(launch(n, d, rounds), bare(n, d, rounds)) for _ in range(repeat)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--dimension", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    o = parser.parse_args()
    pairs = measure(o.agents, o.dimension, o.rounds, o.repeat)
    for ours, ring in pairs:
        print(f"launch {ours:7.1f} rounds/s   bare ring {ring:7.1f} rounds/s   ratio {ours / ring:.3f}")
    print(f"median ratio {statistics.median(ours / ring for ours, ring in pairs):.3f}")


if __name__ == "__main__":
    main()
