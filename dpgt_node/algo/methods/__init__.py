"""The methods by name, and what a run's method makes of its graphs."""

from __future__ import annotations

from collections.abc import Mapping

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Method, Network, Rule
from dpgt_node.algo.methods.dp_dsgt import DP_DSGT
from dpgt_node.algo.methods.dpgt import DPGT
from dpgt_node.algo.methods.dsgd.atc_dsgd import ATC_DSGD
from dpgt_node.algo.methods.dsgd.binomial_sgd import QUANTISED_BINOMIAL_SGD
from dpgt_node.algo.methods.dsgd.central import CENTRAL
from dpgt_node.algo.methods.dsgd.dp_dsgd import DP_DSGD
from dpgt_node.algo.methods.dsgd.dyn_d2p import DYN_D2P
from dpgt_node.algo.methods.dsgd.no_communication import NO_COMMUNICATION
from dpgt_node.algo.methods.dsgd.q_dpsgd import Q_DPSGD
from dpgt_node.algo.methods.dsgd.sampled_dsgd import SAMPLED_DSGD
from dpgt_node.algo.methods.dsgd.weighted_sgd import WEIGHTED_SGD
from dpgt_node.algo.methods.s_ab import S_AB
from dpgt_node.algo.methods.states.noisy_gt import NOISY_GT
from dpgt_node.algo.methods.states.online_dsgd import ONLINE_DSGD
from dpgt_node.algo.methods.states.quantised_dsgd import QUANTISED_DSGD
from dpgt_node.algo.methods.states.ternary_dsgd import TERNARY_DSGD
from dpgt_node.algo.methods.variance_reduced import GT_SAGA, GT_SVRG
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.methods import register_options
from dpgt_node.config.model import RunConfig
from dpgt_node.types import F64, Codes

METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        DPGT,
        S_AB,
        ATC_DSGD,
        WEIGHTED_SGD,
        QUANTISED_BINOMIAL_SGD,
        SAMPLED_DSGD,
        QUANTISED_DSGD,
        Q_DPSGD,
        DYN_D2P,
        DP_DSGT,
        DP_DSGD,
        NO_COMMUNICATION,
        CENTRAL,
        GT_SAGA,
        GT_SVRG,
        NOISY_GT,
        ONLINE_DSGD,
        TERNARY_DSGD,
    )
}
"""The word of the run file and the value; the first is the default."""
for _method in METHODS.values():
    register_options(_method.name, _method.options)


def method_of(run: RunConfig) -> Method:
    return METHODS[run.algorithm.method]


def rule_of(run: RunConfig) -> type[Rule]:
    """The recursion of the run's method under its mechanism."""
    return method_of(run).rules[run.algorithm.mechanism]


def codes_of(run: RunConfig) -> Codes | None:
    """What the integers stand for that the run's method sends; None: it sends numbers."""
    return method_of(run).codes(run)


def network_of(run: RunConfig, topology: Topology) -> Network:
    """Who sends what to whom in the run."""
    weights = {mixing.stream: mixing.weights(run, topology) for mixing in method_of(run).sends}
    return Network(topology.names, weights, rule_of(run).point)


def steps_of(run: RunConfig, topology: Topology, schedule: Schedule) -> tuple[F64, F64]:
    """a_i and b_i of the run's method, float64 (n,) each: an agent keeps 1 - a_i of its x and 1 - b_i of its y."""
    r, c = method_of(run).couplings(topology)
    return schedule.alpha * r, schedule.beta * c
