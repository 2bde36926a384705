"""The methods by name, and what a run's method makes of its graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Method, Network, Rule
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.methods import options_come_from, register_options
from dpgt_node.config.model import RunConfig
from dpgt_node.config.vocabulary import METHOD_WORDS
from dpgt_node.types import F64, Codes


class _Methods(Mapping[str, Method]):
    """Each is imported when it is asked for: a daemon carries out one."""

    def __init__(self) -> None:
        self.loaded: dict[str, Method] = {}

    def __getitem__(self, name: str) -> Method:
        if name not in self.loaded:
            self.loaded[name] = _imported(name)
            register_options(name, self.loaded[name].options)
        return self.loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in METHOD_WORDS

    def __iter__(self) -> Iterator[str]:
        return iter(METHOD_WORDS)

    def __len__(self) -> int:
        return len(METHOD_WORDS)


def _imported(name: str) -> Method:
    match name:
        case "dpgt":
            from dpgt_node.algo.methods.dpgt import DPGT as method
        case "s-ab":
            from dpgt_node.algo.methods.s_ab import S_AB as method
        case "atc-dsgd":
            from dpgt_node.algo.methods.dsgd.atc_dsgd import ATC_DSGD as method
        case "weighted-sgd":
            from dpgt_node.algo.methods.dsgd.weighted_sgd import WEIGHTED_SGD as method
        case "quantised-binomial-sgd":
            from dpgt_node.algo.methods.dsgd.binomial_sgd import QUANTISED_BINOMIAL_SGD as method
        case "sampled-dsgd":
            from dpgt_node.algo.methods.dsgd.sampled_dsgd import SAMPLED_DSGD as method
        case "quantised-dsgd":
            from dpgt_node.algo.methods.states.quantised_dsgd import QUANTISED_DSGD as method
        case "q-dpsgd":
            from dpgt_node.algo.methods.dsgd.q_dpsgd import Q_DPSGD as method
        case "dyn-d2p":
            from dpgt_node.algo.methods.dsgd.dyn_d2p import DYN_D2P as method
        case "dp-dsgt":
            from dpgt_node.algo.methods.dp_dsgt import DP_DSGT as method
        case "dp-dsgd":
            from dpgt_node.algo.methods.dsgd.dp_dsgd import DP_DSGD as method
        case "no-communication":
            from dpgt_node.algo.methods.dsgd.no_communication import NO_COMMUNICATION as method
        case "central":
            from dpgt_node.algo.methods.dsgd.central import CENTRAL as method
        case "gt-saga":
            from dpgt_node.algo.methods.variance_reduced import GT_SAGA as method
        case "gt-svrg":
            from dpgt_node.algo.methods.variance_reduced import GT_SVRG as method
        case "noisy-gt":
            from dpgt_node.algo.methods.states.noisy_gt import NOISY_GT as method
        case "online-dsgd":
            from dpgt_node.algo.methods.states.online_dsgd import ONLINE_DSGD as method
        case "ternary-dsgd":
            from dpgt_node.algo.methods.states.ternary_dsgd import TERNARY_DSGD as method
        case _:
            raise KeyError(name)
    return method


METHODS = _Methods()
"""The word of the run file and the value; the first is the default."""
options_come_from(METHODS.__getitem__)


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
