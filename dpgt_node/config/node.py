"""NODE.toml to :class:`NodeConfig`.  Its keys are declared in ``node_model``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpgt_node.config.addresses import is_wildcard, parse_address
from dpgt_node.config.data import unstated_classes
from dpgt_node.config.declare.keys import declared, read_fields, read_table
from dpgt_node.config.declare.reader import Section, parse_toml, read_text, show, suggestion
from dpgt_node.config.model import RunConfig
from dpgt_node.config.node_model import NodeConfig, NodeTls, Policy
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.errors import ConfigError, Problem


def load_node(path: Path) -> NodeConfig:
    """The node file at ``path``; ConfigError lists all its problems."""
    return parse_node(read_text(path), str(path), path.absolute().parent)


def parse_node(text: str, source: str, base: Path) -> NodeConfig:
    """The node in ``text``.  ``source`` names it in messages; relative paths are resolved against ``base``."""
    return parse_node_document(parse_toml(text, source), source, base)


def parse_node_document(document: Mapping[str, object], source: str, base: Path) -> NodeConfig:
    if {"algorithm", "scheme", "graph"} <= document.keys() and "run" not in document:
        message = "is a run file, and a node file is asked for: dpgt pki init writes a NODE.toml for each agent"
        raise ConfigError.one(source, "", message)
    problems: list[Problem] = []
    top = Section(document, source, "", problems, base)
    values = read_fields(top, NodeConfig)
    wildcard = top.ok("listen") and is_wildcard(parse_address(values["listen"])[0])
    if wildcard and values["advertise"] is None:
        top.problem("advertise", f"is needed because listen = {show(values['listen'])} is a wildcard nobody can dial")
    own = [key for key in ("listen", "advertise") if values[key] is not None and top.ok(key)]
    if top.ok("coordinator") and values["coordinator"] in [values[key] for key in own]:
        top.problem("coordinator", f"{show(values['coordinator'])} is this node's own address, not the coordinator's")
    if values["data_test"] is not None and values["data_path"] is None:
        top.problem("data.test", "needs data.path: the test set of data of the host's own")
    top.section("data").done()
    tls = _tls(top.section("tls", required=True))
    policy_section = top.section("policy")
    policy = read_table(policy_section, Policy)
    pair = {"colluding": policy.colluding, "epsilon_max_colluding": policy.epsilon_max_colluding}
    for key, other in (tuple(pair), tuple(pair)[::-1]):
        if pair[key] is not None and not policy_section.has(other):
            policy_section.problem(key, f"needs {other}: one says how many, the other how much they may learn")
    top.done()
    if problems:
        raise ConfigError(problems)
    return NodeConfig(**values, tls=tls, policy=policy)


def check_node_in_run(node: NodeConfig, run: RunConfig) -> int:
    """The agent's row (from 0) in the run; ConfigError when the node does not fit the run."""
    source, problems = str(node.run), []
    if node.name not in run.graph.agents:
        hint = suggestion(node.name, run.graph.agents)
        problems.append(Problem(source, "graph.agents", f'agent "{node.name}" is not in this run{hint}'))
    if node.shard is not None and node.shard > run.n:
        problems.append(Problem("NODE.toml", "data.shard", f"must be 1 to {run.n}, not {node.shard}"))
    if node.data_path is not None and run.data.dataset in TOYS:
        problems.append(Problem("NODE.toml", "data.path", f'has no meaning for "{run.data.dataset}"'))
    if node.data_path is not None and (unstated := unstated_classes(run, source)) is not None:
        problems.append(unstated)
    if problems:
        raise ConfigError(problems)
    return run.graph.agents.index(node.name)


def _tls(section: Section) -> NodeTls:
    values = read_fields(section, NodeTls)
    if values["insecure"]:
        given = [entry.name for entry in declared(NodeTls) if entry.key.only is not None and section.has(entry.name)]
        if given:
            section.problem("insecure", f"insecure = true excludes {', '.join(given)}")
    section.done()
    return NodeTls(**values)
