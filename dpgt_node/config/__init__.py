"""RUN.toml and NODE.toml as frozen values; every problem of a file is reported at once."""

from dpgt_node.config.addresses import format_address, is_loopback, is_wildcard, listen_address, parse_address
from dpgt_node.config.data import resolved_dataset, resolved_test
from dpgt_node.config.declare.keys import Key
from dpgt_node.config.emit import canonical_json, diff_runs, differing_keys, document, node_to_toml, run_sha256, to_toml
from dpgt_node.config.graphs.matrices import Matrix
from dpgt_node.config.methods import method_options, register_options
from dpgt_node.config.model import (
    Adversary,
    Algorithm,
    Data,
    Evaluation,
    Graph,
    Model,
    Noise,
    NoiseStream,
    Privacy,
    RunConfig,
    Runtime,
    Samples,
    Scalar,
    Scheme,
    SchemeS1,
    SchemeS2,
)
from dpgt_node.config.node import check_node_in_run, load_node, parse_node
from dpgt_node.config.node_model import NodeConfig, NodeTls, Policy
from dpgt_node.config.run import demo_toml, load_run, parse_document, parse_run, with_overrides

__all__ = [
    "Adversary",
    "Algorithm",
    "Data",
    "Evaluation",
    "Graph",
    "Key",
    "Matrix",
    "Model",
    "NodeConfig",
    "NodeTls",
    "Noise",
    "NoiseStream",
    "Policy",
    "Privacy",
    "RunConfig",
    "Runtime",
    "Samples",
    "Scalar",
    "Scheme",
    "SchemeS1",
    "SchemeS2",
    "canonical_json",
    "check_node_in_run",
    "demo_toml",
    "diff_runs",
    "differing_keys",
    "document",
    "format_address",
    "is_loopback",
    "is_wildcard",
    "listen_address",
    "load_node",
    "load_run",
    "method_options",
    "node_to_toml",
    "parse_address",
    "parse_document",
    "parse_node",
    "parse_run",
    "register_options",
    "resolved_dataset",
    "resolved_test",
    "run_sha256",
    "to_toml",
    "with_overrides",
]
