"""NODE.toml to :class:`NodeConfig`, and addresses.  Keys, units, defaults and ranges: ``docs/configuration.md``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from dpgt_node.config.model import DATA_ID, NodeConfig, NodeTls, Policy, RunConfig
from dpgt_node.config.reader import Section, bad_word, parse_toml, read_text, show, suggestion
from dpgt_node.config.vocabulary import ACCOUNTANTS, MECHANISMS, NAME, TOYS
from dpgt_node.errors import ConfigError, Problem

_MAX_DATA_ID = 128
_HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def load_node(path: Path) -> NodeConfig:
    """The node file at ``path``; ConfigError lists all its problems."""
    return parse_node(read_text(path), str(path), path.absolute().parent)


def parse_node(text: str, source: str, base: Path) -> NodeConfig:
    """The node in ``text``.  ``source`` names it in messages; relative paths are resolved against ``base``."""
    return parse_node_document(parse_toml(text, source), source, base)


def parse_node_document(document: Mapping[str, object], source: str, base: Path) -> NodeConfig:
    """The node in a parsed TOML document."""
    problems: list[Problem] = []
    top = Section(document, source, "", problems)
    name = top.text("name")
    if top.ok("name") and not NAME.fullmatch(name):
        top.problem("name", f"{show(name)} is not an agent name")
    run = _path(top, "run", base)
    listen = _address(top, "listen", listening=True)
    advertise = _address(top, "advertise") if top.has("advertise") else None
    if advertise is None and top.ok("listen") and is_wildcard(parse_address(listen)[0]):
        top.problem("advertise", f"is needed because listen = {show(listen)} is a wildcard nobody can dial")
    coordinator = _address(top, "coordinator")
    state_dir = _path(top, "state_dir", base)
    durability: Literal["process", "power"] = top.choice("durability", ("process", "power"), "process")
    disk_check = top.flag("disk_check", True)
    data = top.section("data")
    shard = data.integer("shard", at_least=1) if data.has("shard") else None
    data_path = _path(data, "path", base) if data.has("path") else None
    data_id = data.text("id", DATA_ID)
    if len(data_id) > _MAX_DATA_ID:
        data.problem("id", f"must have at most {_MAX_DATA_ID} characters, not {len(data_id)}")
    if data.has("shard") and data.has("path"):
        data.problem("", "give shard or path, not both")
    data.done()
    tls = _tls(top.section("tls", required=True), base)
    policy = _policy(top.section("policy"))
    top.done()
    if problems:
        raise ConfigError(problems)
    return NodeConfig(
        name,
        run,
        listen,
        advertise,
        coordinator,
        state_dir,
        tls,
        shard,
        data_path,
        durability,
        policy,
        data_id,
        disk_check=disk_check,
    )


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
    if problems:
        raise ConfigError(problems)
    return run.graph.agents.index(node.name)


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT`` or ``[IPV6]:PORT`` as (host without brackets, port 0..65535); ValueError says what is wrong."""
    host, colon, port_text = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{show(text)} must be HOST:PORT")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= 65535):
        raise ValueError(f"{show(text)}: the port must be 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ValueError(f"{show(text)}: not an IPv6 address in the brackets") from None
        return host[1:-1], int(port_text)
    if ":" in host:
        raise ValueError(f"{show(text)}: write an IPv6 address in brackets, [ADDRESS]:PORT")
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{show(text)}: not a host name or address")
    if labels[-1].isdigit():  # no host name ends in a number, so it must be a full IPv4 address
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(f"{show(text)}: not an IPv4 address") from None
    return host, int(port_text)


def format_address(host: str, port: int) -> str:
    """``HOST:PORT``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_wildcard(host: str) -> bool:
    """Whether ``host`` is an address to listen on that nobody can dial (0.0.0.0, ::)."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _address(section: Section, key: str, *, listening: bool = False) -> str:
    text = section.text(key)
    if not section.ok(key):
        return text
    try:
        host, port = parse_address(text)
    except ValueError as error:
        section.problem(key, str(error))
        return text
    if not listening and port == 0:
        section.problem(key, f"{show(text)}: port 0 cannot be dialled")
    if not listening and is_wildcard(host):
        section.problem(key, f"{show(text)} is a wildcard; give an address that others can dial")
    return text


def _path(section: Section, key: str, base: Path) -> Path:
    return base / section.text(key)


def _tls(section: Section, base: Path) -> NodeTls:
    files = ("ca", "cert", "key")
    if section.flag("insecure", False):
        given = [key for key in (*files, "coordinator_id") if section.has(key)]
        if given:
            section.problem("insecure", f"insecure = true excludes {', '.join(given)}")
        section.done()
        return NodeTls(insecure=True)
    ca, cert, key = (_path(section, name, base) for name in files)
    identity = section.text("coordinator_id", "dpgt:coordinator")
    if section.ok("coordinator_id") and not identity.startswith("dpgt:"):
        section.problem("coordinator_id", f'must be an identity such as "dpgt:coordinator", not {show(identity)}')
    section.done()
    return NodeTls(insecure=False, ca=ca, cert=cert, key=key, coordinator_id=identity)


def _policy(section: Section) -> Policy:
    policy = Policy(
        epsilon_max=section.number("epsilon_max", above=0.0) if section.has("epsilon_max") else None,
        delta_max=section.number("delta_max", above=0.0, below=1.0) if section.has("delta_max") else None,
        accountant=_accountant(section),
        mechanisms=_mechanisms(section),
        noise_min=section.number("noise_min", above=0.0) if section.has("noise_min") else None,
    )
    section.done()
    return policy


def _accountant(section: Section) -> str | None:
    if not section.has("accountant"):
        return None
    return section.choice("accountant", ACCOUNTANTS.built, planned=ACCOUNTANTS.planned)


def _mechanisms(section: Section) -> tuple[str, ...] | None:
    """A data owner may already name mechanisms this version does not build: the list only restricts."""
    value = section.get("mechanisms")
    if value is None:
        return None
    words = MECHANISMS.built + MECHANISMS.planned
    if not isinstance(value, list) or not value:
        section.problem("mechanisms", f"must be a list of mechanisms, not {show(value)}")
        return ()
    for index, word in enumerate(value):
        if word not in words:
            section.problem(f"mechanisms[{index}]", bad_word(word, words))
    return tuple(str(word) for word in value)
