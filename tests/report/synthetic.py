"""Made-up runs for the report's tests: plausible shapes, no algorithm behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpgt_node.config.model import (
    Algorithm,
    Data,
    Evaluation,
    Graph,
    Noise,
    NoiseStream,
    Privacy,
    RunConfig,
    SchemeS2,
)
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.metrics import MetricsRow
from dpgt_node.record.summary import AgentSummary, PrivacySummary, Summary

R5 = ((0, 0, 0, 0, 1), (1, 0, 0, 0, 0), (1, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0))
C5 = ((0, 0, 1, 0, 1), (1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0))


def digits_run(names: Sequence[str] | None = None, n: int = 5, *, multiplier: float = 1.0) -> RunConfig:
    """The demo's run; for n other than 5, a directed ring."""
    agents = tuple(names) if names is not None else tuple(f"agent-{i}" for i in range(1, n + 1))
    n = len(agents)
    ring = tuple(tuple(float(j == (i - 1) % n) for j in range(n)) for i in range(n))
    R = tuple(tuple(map(float, row)) for row in R5) if n == 5 else ring
    C = tuple(tuple(map(float, row)) for row in C5) if n == 5 else ring
    scale = NoiseStream("constant", (0.1,) * n)
    return RunConfig(
        name="digits",
        algorithm=Algorithm(iterations=200),
        scheme=SchemeS2(alpha=0.1, beta=0.01, gamma=0.1, p_m=1.002, samples=55),
        noise=Noise(scale, scale, multiplier=multiplier),
        graph=Graph(agents, R, C),
        data=Data("digits"),
        privacy=Privacy(clip_l1=40.0),
        evaluate=Evaluation(every=10, metrics="study"),
    )


def rows_of(
    run: RunConfig, *, accuracy: bool = True, lemma5: float | None = 48_210.0, until: int | None = None
) -> list[MetricsRow]:
    """Rows 0, every, ..., K+1 of every agent; ``lemma5``: the first agent's final epsilon."""
    rng = np.random.default_rng(7)
    last = run.K + 1
    ks = [k for k in [*range(0, last, run.evaluate.every), last] if until is None or k <= until]
    rows = []
    for k in ks:
        t = k / last
        for i, agent in enumerate(run.graph.agents):
            lag = 1 + 0.35 * math.sin(2.4 * i)
            value = 0.1 + 0.8 * (1 - math.exp(-7 * t / lag)) + 0.012 * float(rng.normal()) * (k > 0)
            rows.append(
                MetricsRow(
                    agent,
                    k,
                    wall_seconds=0.012 * k,
                    loss_train=2.302 * math.exp(-4 * t / lag) + 0.3 * t,
                    accuracy_train=value + 0.01 if accuracy else None,
                    accuracy_test=value if accuracy else None,
                    grad_norm=1.4 * math.exp(-3 * t) + 0.02,
                    consensus_error=0.6 * math.sqrt(t) * math.exp(-t) + 0.02 * float(rng.random()) if k else 0.0,
                    epsilon=Epsilon(lemma5=None if lemma5 is None else lemma5 * t**1.5 * (1 + 0.06 * (i % 3))),
                )
            )
    return rows


def summary_of(run: RunConfig, rows: Sequence[MetricsRow], *, lemma5: float | None = None) -> Summary:
    """A finished run whose final values are the last rows'; without rows, made-up ones and ``lemma5``."""
    final = {row.agent: row for row in rows}
    agents = []
    for agent in run.graph.agents:
        row = final.get(agent, MetricsRow(agent, run.K + 1, None, 0.41, None, 0.9, epsilon=Epsilon(lemma5=lemma5)))
        agents.append(AgentSummary(agent, row.accuracy_test, row.loss_train, row.epsilon, 2 * (run.K + 1), 2_093_616))
    return Summary(
        name=run.name,
        run_id="5b0c6f5e7d9a4c1e8f2a3b4c5d6e7f80",
        status="finished",
        method=run.algorithm.method,
        mechanism=run.algorithm.mechanism,
        rounds=run.K + 1,
        seconds=2.41,
        rounds_per_second=(run.K + 1) / 2.41,
        consensus_error=rows[-1].consensus_error if rows else 0.35,
        privacy=PrivacySummary.of(run),
        agents=tuple(agents),
        versions={"dpgt_node": "0.1.0", "grpcio": "1.85.0", "numpy": "2.4.6", "python": "3.11.7"},
    )
