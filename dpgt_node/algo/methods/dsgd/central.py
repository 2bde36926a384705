"""Central: one trusted holder of everybody's samples, x_{k+1} = x_k - gamma (g_k + noise), g_k over n m samples.

A bound beside the methods: what they would reach if nobody had to be kept from anything but the result.  Its data would
have to leave their hosts, so only simulators carry it out.  :func:`curated` makes its run of that of n agents: a run of
one agent, with all samples, n times the batch and 1/n of the least scale of noise.  One sample then moves the mean by
C/(n m), so the run costs what the dearest agent's costs where each gradient is perturbed once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Demand, Pick, Setting
from dpgt_node.algo.methods.dsgd.atc_dsgd import AtcDsgd
from dpgt_node.algo.methods.dsgd.no_communication import NO_COMMUNICATION
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.declare.keys import declared
from dpgt_node.config.model import Adversary, Graph, NoiseStream, RunConfig
from dpgt_node.config.parameters import PARTITION_KEYS
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.errors import ConfigError, Problem, invariant
from dpgt_node.privacy.mechanisms import NOISE_ONCE

CURATOR = "central"
"""The one agent's name."""


class Central(AtcDsgd):
    """An agent by itself, of which there is one."""

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> AtcDsgd:
        invariant(topology.n == 1, "a run with a curator is made one of one agent before it begins")
        return super().build(run, topology, schedule, pick)


def curated(run: RunConfig) -> RunConfig:
    """What is simulated of a run of method central; any other run as it is.

    ConfigError: [adversary], or noise that cancels, which a curator has nobody for.
    """
    if run.algorithm.method != CENTRAL.name or run.n == 1:
        return run
    problems = []
    if run.adversary != Adversary():
        problems.append(Problem("run file", "adversary", "a curator sends nothing that others could look at"))
    if run.noise.cancel is not None:
        problems.append(Problem("run file", "noise.cancel", "a curator has nobody to share noise with"))
    if problems:
        raise ConfigError(problems)
    eta, single = run.noise.eta, pooled(run)
    least = None if eta is None else NoiseStream(eta.kind, (min(eta.values),))
    return replace(single, noise=replace(single.noise, eta=least, multiplier=run.noise.multiplier / run.n))


def pooled(run: RunConfig) -> RunConfig:
    """``run`` by one holder of all samples, with n times the batch; the noise is not its own yet."""
    own = PARTITION_KEYS.of(run.data.partition)
    theirs = set() if own is None else {entry.name for entry in declared(own)}
    params = {key: value for key, value in run.data.params.items() if key not in theirs}
    m = Schedule.from_config(run).m
    return replace(
        run,
        algorithm=replace(run.algorithm, method=CENTRAL.name, mechanism=NOISE_ONCE.name),
        method_options={},
        scheme=replace(run.scheme, samples="full" if m is None else run.n * m),
        graph=Graph((CURATOR,), ((0.0,),), ((0.0,),)),
        noise=replace(run.noise, zeta=None, cancel=None, mask_graph=None),
        data=replace(run.data, partition="iid", params=params),
        adversary=Adversary(),
    )


def _sampleless(setting: Setting) -> tuple[str, ...]:
    return setting.topology.names if setting.run.data.dataset in TOYS else ()


CENTRAL = replace(
    NO_COMMUNICATION,
    name="central",
    title="one trusted holder of all samples, each gradient perturbed once",
    rules={NOISE_ONCE.name: Central},
    demands=(Demand("there are samples to be held in one place", "data.dataset", _sampleless),),
    simulated="everybody's samples would have to leave their hosts",
)
