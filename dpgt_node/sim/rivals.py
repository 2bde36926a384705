"""The trivial rivals of a run, one implementation for all that print an accuracy: alone, and central at its epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpgt_node.accounts.account import AgentAccount, totals
from dpgt_node.accounts.forecast import respond
from dpgt_node.accounts.planner import calibrate
from dpgt_node.agent.noise import accounts_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import rule_of
from dpgt_node.algo.methods.dpgt import Tracking
from dpgt_node.algo.methods.dsgd.central import pooled
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import NoiseStream, RunConfig, SchemeS2
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.errors import ConfigError
from dpgt_node.learning.alone import alone
from dpgt_node.learning.data.census import largest_class
from dpgt_node.learning.oracle import build_oracle, sample_counts
from dpgt_node.privacy.mechanisms import MECHANISMS, NOISE_ONCE
from dpgt_node.record import epsilons
from dpgt_node.record.rivals import Rivals
from dpgt_node.sim.fast import FastRun


def check_rivals(run: RunConfig, source: str) -> None:
    """ConfigError where there is no rival to train, or where nobody may see its accuracy."""
    if run.data.dataset in TOYS:
        raise ConfigError.one(source, "--alone", f"'{run.data.dataset}' has no samples to train on alone")
    if run.evaluate.metrics != "study":
        message = 'is refused unless evaluate.metrics = "study" in the run file: it is a metric of private data'
        raise ConfigError.one(source, "--alone", message)


def trivial(run: RunConfig, data_root: Path | None) -> Rivals | None:
    """What needs no training, before a run begins; None where there is nothing, or its accuracy is nobody's to see."""
    share = largest_class(run, data_root) if run.evaluate.metrics == "study" else None
    return None if share is None else Rivals({}, share)


def rivals(run: RunConfig, data_root: Path | None) -> Rivals:
    """Every agent trained alone on this machine's copy of its samples, beside :func:`trivial`.  Raises ConfigError."""
    found = {name: alone(run, i, data_root=data_root) for i, name in enumerate(run.graph.agents)}
    accuracies = {name: one.metrics.accuracy_test for name, one in found.items() if one is not None}
    known = {name: value for name, value in accuracies.items() if value is not None}
    return Rivals(known, largest_class(run, data_root))


def central_run(run: RunConfig, samples: Sequence[int], dimension: int) -> RunConfig:
    """``run`` by one trusted holder of all ``samples``: the same model, clip, releases and path, at the same epsilon.

    gamma: such that a constant mean gradient moves x as far in a round as it moves the agents' mean.  The noise is the
    least at which the headline accountant reads the largest epsilon of the agents.  ``dimension``: d.  ConfigError:
    the run is not of Algorithm 1, whose response tells how far; not of scheme S2; or no sound accountant covers every
    agent.
    """
    if not issubclass(rule_of(run), Tracking):
        message = f'a central rival is made of a run of Algorithm 1; beside "{run.algorithm.method}" simulate "central"'
        raise ConfigError.one("run file", "algorithm.method", message)
    if not isinstance(run.scheme, SchemeS2):
        raise ConfigError.one("run file", "scheme.kind", 'a central rival needs "S2"')
    found = totals(_accounts(run, samples, dimension))
    accountant = epsilons.tightest(found)
    if accountant is None:
        raise ConfigError.one("run file", "", "no sound accountant covers every agent: there is no epsilon to compare")
    scheme, accounted = run.scheme, MECHANISMS[run.algorithm.mechanism].accounted
    weights, K = np.ones(run.n), min(run.K, 500)
    time = respond(Topology.from_config(run.graph), scheme.alpha, scheme.beta, accounted, K, weights, weights).time
    speed = float((time[-1] - time[-2]).mean()) if K > 0 else float(time[0].mean())
    one, single = NoiseStream("constant", (1.0,)), pooled(run)
    single = replace(
        single,
        # Not method central, which rests between releases: Algorithm 1 goes on along the last gradient.
        algorithm=replace(run.algorithm, mechanism=NOISE_ONCE.name),
        scheme=replace(scheme, gamma=scheme.gamma * speed, samples=single.scheme.samples),
        noise=replace(single.noise, eta=one, multiplier=1.0),
    )
    largest = max(value for value in found[accountant] if value is not None)
    return calibrate(single, accountant, largest, lambda one: _accounts(one, (sum(samples),), dimension), ratio=None)


def central(run: RunConfig, data_root: Path | None) -> float | None:
    """Test accuracy of :func:`central_run` at its end, one draw of the noise; None without a test set."""
    counts = [D for D in sample_counts(run, data_root) if D is not None]
    single = central_run(run, counts, build_oracle(run, 0, data_root=data_root).dimension)
    oracle = build_oracle(single, 0, data_root=data_root)
    state = FastRun(single, [oracle], None)
    while state.k <= single.K:
        state.step()
    return oracle.evaluate(state.x[0], run.evaluate.samples).accuracy_test


def _accounts(run: RunConfig, samples: Sequence[int], dimension: int) -> Sequence[AgentAccount]:
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    return accounts_for(run, topology, schedule, samples, dimension)
