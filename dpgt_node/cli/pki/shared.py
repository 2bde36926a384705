"""What the verbs of ``dpgt pki`` share: hosts as they are given, start-up folders, the authority."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.cli.logs import tell
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from dpgt_node.config import RunConfig
    from dpgt_node.runtime.trust.pki import Registry

COORDINATOR = "coordinator"
COORDINATOR_PORT = 7700
AGENT_PORT = 7701

days_option = click.option(
    "--days",
    type=click.FloatRange(0, 3650, min_open=True),
    default=365,
    show_default=True,
    help="Validity of the certificates; 0.5 is twelve hours.",
)
pki_option = click.option(
    "--pki",
    "folder",
    default=".",
    show_default=True,
    type=common.FOLDER,
    help="The folder that `dpgt pki init --out` made.",
)
authority_option = click.option(
    "--authority", type=common.FOLDER, help="Where the authority's key is kept.  [default: authority in --pki]"
)


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


def signed(registry: Registry, identity: str, hosts: list[str], into: Path, days: float) -> Certificate:
    try:
        return registry.issue(identity, hosts, into, days=days)
    except ValueError as error:
        raise ConfigError.one("command line", "--host", str(error)) from error


def write_start_up(folder: Path, name: str, run: RunConfig, place: Host, coordinator: Host) -> None:
    from dpgt_node.config import NodeConfig, NodeTls, format_address, node_to_toml, to_toml
    from dpgt_node.durable import write_text
    from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY
    from dpgt_node.runtime.trust.files import CA_FILE, CERT_FILE, KEY_FILE

    write_text(folder / "run.toml", to_toml(run))
    if name == COORDINATOR:
        return
    node = NodeConfig(
        name=name,
        run=Path("run.toml"),
        # A name may stand for any interface (compose, Kubernetes); an IP address is this host's own.
        listen=format_address(place.address if place.is_ip else "0.0.0.0", place.port),
        advertise=format_address(place.address, place.port),
        coordinator=format_address(coordinator.address, coordinator.port),
        state_dir=Path("state"),
        tls=NodeTls(False, Path(CA_FILE), Path(CERT_FILE), Path(KEY_FILE), COORDINATOR_IDENTITY),
        shard=run.graph.agents.index(name) + 1,
    )
    write_text(folder / "NODE.toml", node_to_toml(node))


def registry_of(folder: Path, authority: Path | None) -> Registry:
    from dpgt_node.runtime.trust.pki import AUTHORITY, Registry

    try:
        return Registry(authority or folder / AUTHORITY)
    except ConfigError as error:
        hint = Problem("command line", "--authority", "the folder with the authority's ca.pem and key.pem (or --pki)")
        raise ConfigError([*error.problems, hint]) from error


def check_name(name: str) -> None:
    from dpgt_node.runtime.trust.certificates import target_name_override
    from dpgt_node.runtime.trust.pki import identity_of

    try:
        target_name_override(identity_of(name))
    except ValueError:
        raise ConfigError.one("command line", "NAME", f"{name!r} is no agent name, coordinator or operator") from None


def check_unlike(registry: Registry, folder: Path, name: str) -> None:
    """ConfigError: ``name`` differs in case alone from one of the run in ``folder``, or from one with a certificate.

    Case is lost in the DNS name by which clients know the other end, so that either could answer for both.
    """
    from dpgt_node.runtime.trust.certificates import names_of
    from dpgt_node.runtime.trust.pki import name_of_identity

    revoked, (run, _) = registry.revoked(), known_run(folder)
    held = [one for one in registry.issued() if one.serial_number not in revoked]
    known = {name_of_identity(identity) for one in held for identity in names_of(one).identities}
    known |= set() if run is None else set(run.graph.agents)
    alike = sorted(other for other in known - {name} if other.lower() == name.lower())
    if alike:
        message = f"{name} and {alike[0]} differ in case alone, and could answer for each other: take another name"
        raise ConfigError.one("command line", "NAME", message)


def still_valid(registry: Registry, certificate: Certificate) -> bool:
    import datetime

    valid = certificate.not_valid_after_utc > datetime.datetime.now(datetime.UTC)
    return valid and certificate.serial_number not in registry.revoked()


def said(name: str, certificate: Certificate) -> str:
    from dpgt_node.runtime.trust.certificates import instant

    return f"{name}: serial {certificate.serial_number:x}, valid until {instant(certificate.not_valid_after_utc)}"


def revoke_hint(name: str, certificates: list[Certificate]) -> str:
    return f"dpgt pki revoke {name} " + " ".join(f"--serial {c.serial_number:x}" for c in certificates)


def serial_of(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise ConfigError.one("command line", "--serial", f"{text!r} is not hexadecimal") from None


def known_run(folder: Path) -> tuple[RunConfig | None, Host | None]:
    """The run of the start-up folders in ``folder``, and where its coordinator is; None for what they do not say."""
    from dpgt_node.config import load_node, load_run, parse_address

    runs, nodes = sorted(folder.glob("*/run.toml")), sorted(folder.glob("*/NODE.toml"))
    run = load_run(runs[0]) if runs else None
    return run, Host(*parse_address(load_node(nodes[0]).coordinator)) if nodes else None


def parse_hosts(hosts: tuple[str, ...], agents: tuple[str, ...]) -> dict[str, Host]:
    """NAME=ADDR[:PORT] options by name, the coordinator first.  ConfigError with everything missing or malformed."""
    from dpgt_node.config import is_loopback, is_wildcard, parse_address

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
                host, port = parse_address(with_port(address, default))
            except ValueError as error:
                problem(str(error))
                continue
            if is_wildcard(host) or port == 0:
                problem(f"{text!r}: others must be able to reach this address and port")
                continue
            found[name] = Host(host, port)
    there: dict[tuple[str, int], str] = {}
    for name, place in found.items():
        other = there.setdefault((canonical(place.address), place.port), name)
        if other != name:
            problem(f"{other} and {name} have one address and port, {place.address} {place.port}: give each its own")
    missing = [name for name in known if name not in found]
    if missing and not problems:
        problem(f"is missing for {', '.join(missing)}")
    if problems:
        raise ConfigError(problems)
    own = [name for name in known if is_loopback(found[name].address)]
    if 0 < len(own) < len(known):
        tell(
            f"dpgt: --host: {found[own[0]].address} ({', '.join(own)}) is every host itself: the others come there "
            "through a tunnel only; give an address of the network, unless that is meant"
        )
    return {name: found[name] for name in known}


def canonical(address: str) -> str:
    """One spelling of an address or name."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        name = address.lower().removesuffix(".")
        return "127.0.0.1" if name == "localhost" else name


def with_port(address: str, default: int) -> str:
    """``address`` with a port; a bare IPv6 address gets its brackets."""
    try:
        bare = ipaddress.ip_address(address).version == 6
    except ValueError:
        bare = False
    if bare:
        return f"[{address}]:{default}"
    return address if ":" in address and not address.endswith("]") else f"{address}:{default}"
