"""Rounds over a wide area network, with delays and a coordinator that needs time: what docs/explanation/scale.md shows.

    python examples/wan.py [--agents 10000] [--rounds 200]

No daemon runs here.  It is the recursion of when each agent may begin its next round, for four designs:

- barrier W: the coordinator hears of every round of every agent, and lets all begin W rounds when all have ended W;
- tree: as barrier, but inner coordinators hear of FAN agents each, and say so to the one above;
- neighbours: an agent begins round k + 1 when the vectors of round k of those that it hears from are there.
"""

from __future__ import annotations

import argparse

import numpy as np

# Measured by `dpgt bench rounds`, five agents, d = 100: seconds of CPU of an agent a round, of a coordinator a report.
AGENT_S, REPORT_S = {1: 1.17e-3, 16: 0.97e-3}, {1: 0.23e-3, 16: 0.046e-3}
# Assumed: one way between two hosts, its spread between pairs and messages, and packets that are sent again.
ONE_WAY_S, SPREAD, LOST, AGAIN_S = 0.040, 0.25, 0.001, 0.200
FAN = 100


class Network:
    """Delays of messages, log-normal about each pair's own, with a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def of_pairs(self, shape: tuple[int, ...]) -> np.ndarray:
        """One way between pairs of hosts, seconds."""
        return ONE_WAY_S * np.exp(SPREAD * self._rng.standard_normal(shape))

    def sent(self, pairs: np.ndarray) -> np.ndarray:
        """What one message over each takes."""
        jitter = np.exp(0.1 * SPREAD * self._rng.standard_normal(pairs.shape))
        return pairs * jitter + AGAIN_S * (self._rng.random(pairs.shape) < LOST)


def served(arrivals: np.ndarray, each_s: float) -> float:
    """When one thread that needs ``each_s`` for each of ``arrivals`` is through with all."""
    order = np.sort(arrivals)
    waits = order - each_s * np.arange(len(order))
    return float(waits.max() + each_s * len(order))


def rounds_per_second(agents: int, design: str, block: int, rounds: int, seed: int = 0) -> float:
    """Each agent hears from the one before it and from four at random."""
    network, rng = Network(seed), np.random.default_rng(seed + 1)
    heard = np.stack([(np.arange(agents) - 1) % agents, *rng.integers(0, agents, (4, agents))], axis=1)
    links, up = network.of_pairs((agents, 5)), network.of_pairs((agents,))
    report_s = REPORT_S[block] * block
    free = np.zeros(agents)  # when each agent may begin a round
    for k in range(rounds):
        sent = free + AGENT_S[block]
        done = np.maximum(sent, (sent[heard] + network.sent(links)).max(axis=1))
        free = done
        if design == "neighbours" or (k + 1) % block:
            continue
        told = done + network.sent(up)
        if design == "barrier":
            go = served(told, report_s)
            free = np.maximum(done, go + network.sent(up))
            continue
        inner = [told[i : i + FAN] for i in range(0, agents, FAN)]
        reached = np.array([served(part, report_s) for part in inner])
        above = network.of_pairs((len(inner),))
        go = served(reached + network.sent(above), report_s)
        free = np.maximum(done, (go + network.sent(above)).repeat(FAN)[:agents] + network.sent(up))
    return rounds / float(free.max())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=160)
    asked = parser.parse_args()
    print(
        "agents  " + "  ".join(f"{name:>12}" for name in ("barrier 1", "barrier 16", "tree 1", "tree 16", "neighbours"))
    )
    for agents in asked.agents:
        designs = [("barrier", 1), ("barrier", 16), ("tree", 1), ("tree", 16), ("neighbours", 1)]
        found = [rounds_per_second(agents, name, block, asked.rounds) for name, block in designs]
        print(f"{agents:>6}  " + "  ".join(f"{value:12.2f}" for value in found))


if __name__ == "__main__":
    main()
