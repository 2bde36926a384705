"""45 MB a message over a link of 20 MB/s, between hosts of their own: rounds, the time of each, and who was given up.

    python -m tests.hosts.slow_link [--rounds 5] [--agents 3] [--mbit 160] [--noise SCALE] [--all] [--dimension D]
                                    [--round-timeout 60]                                                      (root)

Hosts are those of tests/hosts/lab.py.  ``zeros`` with d = 11,175,370 (ResNet18) on a ring, float32 wire, mTLS by host
name.  All that agent-1 sends (with --all: every agent) goes through ``tc qdisc tbf``; an x and a y a round, so the
link alone needs 2 x 44.7 MB / 20 MB/s = 4.5 s.  Without --noise the noise is off, so that the link is what is measured.
The same run without the limit comes first.  ``dpgt status`` is asked all the while.  Prints one JSON object; exit 1 if
a process failed or an agent was ever seen unconnected.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from dpgt_node.bench.speed.ring import ring
from tests.e2e import processes
from tests.hosts.deployment import Deployment
from tests.hosts.lab import Lab

DIMENSION = 11_175_370


def measure(
    rounds: int,
    n: int,
    mbit: float | None,
    noise: float,
    dimension: int = DIMENSION,
    *,
    everybody: bool = False,
    timeout_s: float = 60.0,
) -> dict[str, Any]:
    """One run, agent-1 or ``everybody`` limited to ``mbit`` (None: not); the figures by name."""
    agents = [f"agent-{i}" for i in range(1, n + 1)]
    unconnected: set[str] = set()
    asked, largest_silence_s = 0, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_file = folder / "run.toml"
        text = ring(n, dimension, rounds, dataset="zeros", noise=noise)
        run_file.write_text(f"{text}round_timeout = {timeout_s}\n", encoding="utf-8")
        with Lab(folder / "lab", ["coordinator", *agents], processes.environment()) as lab:
            run = Deployment(lab, run_file, folder, agents, study=False)
            if mbit is not None:
                for agent in agents if everybody else agents[:1]:
                    lab[agent].limit_rate(mbit)
            run.start_all()
            run.reaches(0)
            while all(daemon.running for daemon in run.daemons.values()):
                answer = run.ask("status", "--format", "json")
                if answer.returncode != 0:  # it is over
                    continue
                status = json.loads(answer.stdout)
                asked += 1
                # An agent that has its result may leave; until then a connection that is gone is a false death.
                unconnected |= {a["name"] for a in status["agents"] if not a["connected"] and a["k"] < rounds - 1}
                largest_silence_s = max(largest_silence_s, *(a["last_seen_s"] or 0.0 for a in status["agents"]))
            codes = run.exit_codes(limit_s=1800)
            said = run.everything_said()
            summary = json.loads((run.results / "summary.json").read_text())
    return {
        "exit_codes": codes,
        "rounds": summary["rounds"],
        "seconds_per_round": round(1 / summary["rounds_per_second"], 2),
        "status_asked": asked,
        "ever_unconnected": sorted(unconnected),
        "largest_silence_s": round(largest_silence_s, 1),
        "streams_broken": sum("stream to " in line and "trying again" in line for line in said.splitlines()),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--mbit", type=float, default=160.0)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--dimension", type=int, default=DIMENSION)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--round-timeout", type=float, default=60.0)
    options = parser.parse_args()
    wire = 4 if options.dimension >= 100_000 else 8
    figures: dict[str, Any] = {
        "message_MB": round(options.dimension * wire / 1e6, 1),
        "link_MB_per_s": options.mbit / 8,
        "link_alone_seconds": round(2 * options.dimension * wire * 8 / (options.mbit * 1e6), 2),
        "load_1min": round(os.getloadavg()[0], 1),
    }
    ends = {}
    for name, mbit in (("free", None), ("limited", options.mbit)):
        ends[name] = figures[name] = measure(
            options.rounds,
            options.agents,
            mbit,
            options.noise,
            options.dimension,
            everybody=options.all,
            timeout_s=options.round_timeout,
        )
    print(json.dumps(figures, indent=1))
    return int(any(end["ever_unconnected"] or set(end["exit_codes"].values()) != {0} for end in ends.values()))


if __name__ == "__main__":
    sys.exit(main())
