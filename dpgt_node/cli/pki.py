"""``dpgt pki``: certificates and start-up folders for separate hosts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

import click

from dpgt_node.cli import common
from dpgt_node.errors import ConfigError, ExitCode, Problem

COORDINATOR = "coordinator"
COORDINATOR_PORT = 7700
AGENT_PORT = 7701


@dataclass(frozen=True, slots=True)
class Host:
    """Where one process of the run listens, as the others reach it."""

    address: str
    port: int

    @property
    def is_ip(self) -> bool:
        """Whether ``address`` is an IP address and not a name."""
        try:
            ipaddress.ip_address(self.address)
        except ValueError:
            return False
        return True


@click.group()
def pki() -> None:
    """Certificates for separate hosts."""


@pki.command()
@common.run_argument
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="New folder for the start-up folders.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME=ADDR[:PORT]",
    help=f"Where NAME (an agent, or {COORDINATOR}) is reached; ports default to {AGENT_PORT} and {COORDINATOR_PORT}.",
)
@click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Validity of the certificates."
)
def init(run_file: Path, out: Path, hosts: tuple[str, ...], days: int) -> ExitCode:
    """Make one start-up folder a host: certificate, key (0600), CA, NODE.toml, run.toml.

    A fresh authority signs them all; its key is not kept, so nothing can join later under it.
    """
    from dpgt_node.config import NodeConfig, NodeTls, format_address, load_run, node_to_toml, to_toml
    from dpgt_node.config.vocabulary import TOYS
    from dpgt_node.report.summary import write_atomically
    from dpgt_node.runtime.channels import COORDINATOR_IDENTITY, agent_identity
    from dpgt_node.runtime.tls import CA_FILE, CERT_FILE, KEY_FILE, CertificateAuthority

    run = load_run(run_file)
    common.check_startable(run, str(run_file))
    places = parse_hosts(hosts, run.graph.agents)
    if out.exists() and any(out.iterdir()):
        raise ConfigError.one("command line", "--out", f"{out} is not empty; choose a new folder")
    authority = CertificateAuthority.create(days=days + 1)
    at = places[COORDINATOR]
    for name, place in places.items():
        folder = out / name
        identity = COORDINATOR_IDENTITY if name == COORDINATOR else agent_identity(name)
        authority.write_folder(folder, identity, [place.address], days=days)
        write_atomically(folder / "run.toml", to_toml(run))
        if name == COORDINATOR:
            continue
        node = NodeConfig(
            name=name,
            run=Path("run.toml"),
            # A name may stand for any interface (compose, Kubernetes); an IP address is this host's own.
            listen=format_address(place.address if place.is_ip else "0.0.0.0", place.port),
            advertise=format_address(place.address, place.port),
            coordinator=format_address(at.address, at.port),
            state_dir=Path("state"),
            tls=NodeTls(False, Path(CA_FILE), Path(CERT_FILE), Path(KEY_FILE), COORDINATOR_IDENTITY),
            shard=run.graph.agents.index(name) + 1,
        )
        write_atomically(folder / "NODE.toml", node_to_toml(node))
    click.echo(
        f"{len(places)} start-up folders in {out}; copy each to its host (the key is for that host alone), then:"
    )
    listen = format_address(at.address if at.is_ip else "0.0.0.0", at.port)
    click.echo(
        f"  dpgt coordinator --config {COORDINATOR}/run.toml --listen {listen} --tls {COORDINATOR} --out results"
    )
    click.echo("  dpgt node --config AGENT/NODE.toml")
    if run.data.dataset not in TOYS:
        click.echo("For a data file of an agent's own: [data] path = FILE in its NODE.toml, instead of shard")
    return ExitCode.DONE


def parse_hosts(hosts: tuple[str, ...], agents: tuple[str, ...]) -> dict[str, Host]:
    """NAME=ADDR[:PORT] options by name, the coordinator first.  ConfigError with everything missing or malformed."""
    from dpgt_node.config import is_wildcard, parse_address

    problems: list[Problem] = []
    found: dict[str, Host] = {}
    known = (COORDINATOR, *agents)

    def problem(message: str) -> None:
        problems.append(Problem("command line", "--host", message))

    for text in hosts:
        name, equals, address = text.partition("=")
        default = COORDINATOR_PORT if name == COORDINATOR else AGENT_PORT
        if not equals:
            problem(f"{text!r} is not NAME=ADDR[:PORT]")
        elif name not in known:
            problem(f"{name!r} is neither {COORDINATOR!r} nor an agent of the run")
        elif name in found:
            problem(f"{name} is given twice")
        else:
            try:
                host, port = parse_address(address if _has_port(address) else f"{address}:{default}")
            except ValueError as error:
                problem(str(error))
                continue
            if is_wildcard(host) or port == 0:
                problem(f"{text!r}: others must be able to reach this address and port")
                continue
            found[name] = Host(host, port)
    missing = [name for name in known if name not in found]
    if missing and not problems:
        problem(f"is missing for {', '.join(missing)}")
    if problems:
        raise ConfigError(problems)
    return {name: found[name] for name in known}


def _has_port(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    return bool(colon) and port.isdigit() and ("]" in host or ":" not in host)
