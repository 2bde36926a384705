"""Trials of what an observer of a part of the messages tells of an agent, against the row-space formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpgt_node.adversary.audit import partial
from dpgt_node.adversary.audit.replay import Replay
from dpgt_node.adversary.audit.report import Audit
from dpgt_node.adversary.audit.witness import Claim
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.agent.noise import account_for
from dpgt_node.config import RunConfig
from dpgt_node.experiments.trials import lower_bound, present
from dpgt_node.privacy.accountants.gdp import GDP
from dpgt_node.sim.scripted import ScriptedOracle, together
from dpgt_node.types import F64, I64

FORMULA = "row-space formula"
"""Of accounting for matrix factorisation, for who sees a part of the messages."""


def partial_audits(test_keystream: str | None = None, runs: int = 6, confidence: float = 0.95) -> list[Audit]:
    """What an agent that sees its own messages tells of another one, against the formula that this product never uses.

    Every coordinate of a run is a trial, in a world of its own.
    """
    run = partial.run_of()
    facts = Facts.of(run)
    seen, claimed = partial.View(facts, partial.SLOPES), partial.View(facts, (0.0,) * run.n).formula()
    worlds: tuple[list[F64], list[F64]] = ([], [])
    for r in range(runs):
        inside = present(partial.TRIALS, r)
        signs = np.where(inside, 0.5, -0.5)
        key = None if test_keystream is None else f"{test_keystream}{r:08x}"
        T = _partial_ratios(run, facts, seen, signs, key)
        worlds[0].append(T[~inside])
        worlds[1].append(T[inside])
    absent, present_ = (np.concatenate(one) for one in worlds)
    delta = run.privacy.delta
    realised, bound = lower_bound(GDP.name, absent, present_, delta=delta, confidence=confidence)
    account = account_for(run, facts.topology, facts.schedule, partial.OWNER, 1, partial.TRIALS)
    whole = account.total(GDP.name)
    claims = [(FORMULA, GDP.epsilon_of(claimed, delta)), *([] if whole is None else [(GDP.name, whole)])]
    return [
        Audit(
            run.graph.agents[partial.OWNER],
            f"{run.graph.agents[partial.OBSERVER]} alone, by the messages that it receives",
            tuple(
                Claim(
                    run.algorithm.mechanism,
                    name,
                    epsilon,
                    realised,
                    realised > epsilon,
                    "refuted" if realised > epsilon else "not refuted",
                )
                for name, epsilon in claims
            ),
            float(max(np.abs(absent).max(), np.abs(present_).max())),
            len(absent),
            confidence,
            {name: bound for name, _ in claims},
            notes=(
                "The formula takes every gradient for given. Those of agents that agent-5 does not hear depend on "
                "points that it does not see, and differ between the two worlds. No number of this product rests on "
                "it; what is claimed holds for an observer of every message.",
            ),
            runs=runs,
        )
    ]


def _partial_ratios(run: RunConfig, facts: Facts, seen: partial.View, signs: F64, test_keystream: str | None) -> F64:
    """T of every coordinate, whose gradient at the owner is shifted by ``signs`` in every round."""

    def script(agent: int) -> Callable[[int, F64, I64], F64]:
        shift = signs if agent == partial.OWNER else np.zeros(partial.TRIALS)
        return lambda r, x, batch: partial.SLOPES[agent] * x + shift

    oracles = [ScriptedOracle(partial.TRIALS, 1, script(agent)) for agent in range(run.n)]
    vectors = together(run, oracles, test_keystream)
    slope = partial.SLOPES[partial.OBSERVER]
    replay = Replay(facts, partial.OBSERVER, np.zeros(partial.TRIALS), vectors, "float64")
    own = np.stack([one.draw.values - one.private[0] for one in replay.run((lambda k, x: slope * x,))])
    rows = np.stack([vectors[where] for where in seen.received]) - seen.of_observer @ own
    return np.asarray(seen.shifted() @ (seen.whitened @ rows))
