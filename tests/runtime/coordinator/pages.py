"""A live page of many agents without their processes: real pages and a real server over made-up states."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from dpgt_node.config import RunConfig, parse_run
from dpgt_node.protocol.messages import AgentStatus, StatusReply
from dpgt_node.protocol.pace import PHASES, Slowest
from dpgt_node.runtime.coordinator.watch import Event
from dpgt_node.runtime.coordinator.watchers import Watchers

RUN = """
name = "many"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.01
gamma = 0.1
p_m = 1.002
[noise]
scale_zeta = 0.1
scale_eta = 0.1
[graph]
agents = {n}
R = {{ generator = "ring-chord" }}
C = {{ generator = "random", p = {p}, seed = 3 }}
[data]
dataset = "digits"
[evaluate]
every = 10
metrics = "study"
"""


@dataclass
class Made:
    """Stands in for a coordinator in round ``k``; ``late``: rows of agents that are gone."""

    run: RunConfig
    k: int
    late: tuple[int, ...] = ()
    recorder: None = None
    watchers: Watchers = field(default_factory=Watchers)
    state: str = "running"
    events: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(kept=deque[Event]()))

    @property
    def recent(self) -> SimpleNamespace:
        """What rounds took."""
        spans = {
            name: (5, tuple(1000 * (1 + (i * 7 + p) % 11) for p in range(len(PHASES))))
            for i, name in enumerate(self.run.graph.agents)
        }
        return SimpleNamespace(rounds=lambda: spans)

    def stands(self) -> StatusReply:
        """Where the run stands."""
        names, C = self.run.graph.agents, self.run.graph.C
        agents = [
            AgentStatus(name, True, self.k, 0.1, 0.8 + i % 9 / 100, 2.5, strength="moderate")
            for i, name in enumerate(names)
        ]
        for i in self.late:
            agents[i] = replace(agents[i], connected=False, state="left", missing_s=12.5)
            for j in range(len(names)):
                if C[j][i] > 0 and j != i:
                    agents[j] = replace(agents[j], waits_for=(names[i],))
        return StatusReply(
            self.state,
            self.k,
            self.run.K,
            bytes(16),
            self.run.name,
            8.5,
            tuple(agents),
            accountant="gdp",
            delta=1e-5,
            gives_up_s=47.5 if self.late else None,
            slowest=Slowest(names[0], "compute", 0.004, 0.6),
            reason="somebody left" if self.late else "",
        )


def many(n: int, k: int, out: Path, late: tuple[int, ...] = (), K: int = 400) -> Made:
    """``n`` agents in round ``k``, their tables in ``out``."""
    made = Made(parse_run(RUN.format(n=n, K=K, p=min(1.0, 3 / n)), "run.toml", Path("/")), k, late)
    names = made.run.graph.agents
    with (out / "metrics.csv").open("w") as file:
        file.write("agent,k,wall_seconds,loss_train,accuracy_test,consensus_error,epsilon_gdp\n")
        for at in range(0, k + 1, 10):
            for i, name in enumerate(names):
                loss, wave = 2.3 * math.exp(-at / 90) + 0.1 + i / n / 20, 0.02 * math.sin(i + at)
                accuracy = 0.88 - 0.78 * math.exp(-at / 60) + wave
                file.write(
                    f"{name},{at},{at / 8:.3f},{loss:.5f},{accuracy:.5f},{2 * math.exp(-at / 50) + 0.003:.5f},"
                    f"{2.5 * math.sqrt(at / max(k, 1)):.5f}\n"
                )
    with (out / "phases.csv").open("w") as file:
        file.write("agent,k,rounds," + ",".join(PHASES) + "\n")
        for at in range(10, k + 1, 10):
            for i, name in enumerate(names):
                spans = (f"{0.001 * (1 + (i + p + at) % 7):.6f}" for p in range(len(PHASES)))
                file.write(f"{name},{at},10,{','.join(spans)}\n")
    for i in range(3):
        made.events.kept.append(Event(1.7e9 + i, ("info", "warning", "error")[i], f"event <b>{i}</b> of {names[0]}"))
    return made
