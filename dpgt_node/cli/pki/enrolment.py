"""``dpgt pki request`` and ``sign``: each host makes its own key, and the authority signs what it saw."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.cli.pki.shared import (
    AGENT_PORT,
    authority_option,
    check_name,
    check_unlike,
    days_option,
    known_run,
    pki_option,
    registry_of,
    revoke_hint,
    said,
    still_valid,
    with_port,
)
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, ExitCode, Problem, RefusedError

if TYPE_CHECKING:
    from dpgt_node.runtime.trust.pki import Registry
    from dpgt_node.runtime.trust.requests import Request


@click.command()
@click.argument("name")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ADDR",
    help="Host names and addresses it is reached by.  [default: advertise, else listen, of the NODE.toml in --into]",
)
@click.option("--into", type=common.FOLDER, help="The start-up folder.  [default: NAME]")
def request(name: str, hosts: tuple[str, ...], into: Path | None) -> ExitCode:
    """On a host of its own: make NAME's private key here, and a request for its certificate.

    The key (key.pem, 0600) stays on this host.  Send request.pem to whoever has the authority, and tell them the
    fingerprint (key sha256) over another way.  Nothing that is there is overwritten.
    """
    from dpgt_node.runtime.coordinator.outdir import blamed
    from dpgt_node.runtime.trust import requests
    from dpgt_node.runtime.trust.pki import OPERATOR, identity_of

    check_name(name)
    folder = into or Path(name)
    named = _addresses(hosts) or _dialled(folder / "NODE.toml", name)
    if not named and name != OPERATOR:
        raise ConfigError.one("command line", "--host", f"is missing: where the others reach {name}")
    with blamed(folder):
        made = requests.make(folder, identity_of(name), named)
    say(shown(name, made))
    say(f"{folder / requests.REQUEST_FILE} goes to the authority, which types: dpgt pki sign {name} FILE")
    say("Tell it this key sha256 over another way, such as the telephone.  The key never leaves this host.")
    return ExitCode.DONE


def _addresses(hosts: tuple[str, ...]) -> list[str]:
    from dpgt_node.config import is_wildcard, parse_address

    problems, found = [], []
    for text in hosts:
        try:
            host, _ = parse_address(with_port(text, AGENT_PORT))
            if is_wildcard(host):
                raise ValueError(f"{text!r}: nobody can dial this address")
            found.append(host)
        except ValueError as error:
            problems.append(Problem("command line", "--host", str(error)))
    if problems:
        raise ConfigError(problems)
    return found


def _dialled(node_file: Path, name: str) -> list[str]:
    """Where others reach the node of this file: a wildcard to listen on needs ``advertise``.  Empty without a file."""
    from dpgt_node.config import load_node, parse_address

    if not node_file.exists():
        return []
    node = load_node(node_file)
    if node.name != name:
        raise ConfigError.one(str(node_file), "name", f"is {node.name}, not {name}")
    return [parse_address(node.advertise or node.listen)[0]]


def shown(name: str, asked: Request) -> str:
    """What two people compare."""
    from dpgt_node.runtime.trust.requests import LOOPBACK

    lines = [
        f"request of {name}",
        f"  identity     {asked.identity}",
        f"  addresses    {', '.join(asked.hosts or LOOPBACK)}",
        f"  key sha256   {asked.fingerprint}",
    ]
    return "\n".join(lines)


@click.command()
@click.argument("name")
@click.argument("request_file", metavar="REQUEST", type=click.Path(path_type=Path))
@click.option("--fingerprint", metavar="SHA256", help="The key's fingerprint as its host told it.  [default: ask]")
@click.option("--replace", is_flag=True, help="NAME has a certificate of another key, and is to have this one, too.")
@pki_option
@authority_option
@click.option("--into", type=common.FOLDER, help="Where the certificate goes.  [default: NAME in --pki]")
@days_option
def sign(
    name: str,
    request_file: Path,
    fingerprint: str | None,
    replace: bool,
    folder: Path,
    authority: Path | None,
    into: Path | None,
    days: float,
) -> ExitCode:
    """The authority signs NAME's REQUEST, after it showed whose it is, its addresses and its key's fingerprint.

    Compare the fingerprint with what the host's owner told you over another way, or give it with --fingerprint.
    """
    from dpgt_node.runtime.coordinator.outdir import blamed
    from dpgt_node.runtime.trust import requests
    from dpgt_node.runtime.trust.pki import COORDINATOR, OPERATOR, identity_of, of_key

    check_name(name)
    registry, target = registry_of(folder, authority), into or folder / name
    asked = requests.read(request_file)
    if asked.identity != identity_of(name):
        raise ConfigError.one(str(request_file), "", f"asks to be {asked.identity}, not {identity_of(name)}")
    check_unlike(registry, folder, name)
    _check_key(registry, name, asked, request_file, replace=replace)
    say(shown(name, asked))
    _agree(asked, fingerprint)
    with blamed(target):
        certificate = registry.sign(asked, target, days=days)
    say(f"{said(name, certificate)}; in {target}")
    back = " and ".join(file for file in ("cert.pem", "crl.pem") if (target / file).is_file())
    say(f"Send {back} back, to lie beside the host's key.pem and ca.pem.  A host without ca.pem needs that, too.")
    run, _ = known_run(folder)
    if run is not None and name not in (*run.graph.agents, COORDINATOR, OPERATOR):
        say(f"{folder} does not know a run with an agent {name}.")
    older = [c for c in registry.issued(asked.identity) if still_valid(registry, c) and not of_key(c, asked)]
    if older:
        say(f"Certificates of its other keys stay valid; if those are lost:\n  {revoke_hint(name, older)}")
    return ExitCode.DONE


def _check_key(registry: Registry, name: str, asked: Request, source: Path, *, replace: bool) -> None:
    """ConfigError: the key is another's already, or NAME has another one."""
    from dpgt_node.runtime.trust.certificates import names_of
    from dpgt_node.runtime.trust.pki import of_key
    from dpgt_node.runtime.trust.requests import key_fingerprint

    issued = [c for c in registry.issued() if c.serial_number not in registry.revoked()]
    others = {i for c in issued if of_key(c, asked) for i in names_of(c).identities} - {asked.identity}
    if others:
        message = f"its key is that of {', '.join(sorted(others))}: two processes need two keys"
        raise ConfigError.one(str(source), "", message)
    held = [c for c in registry.issued(asked.identity) if still_valid(registry, c) and not of_key(c, asked)]
    if held and not replace:
        keys = ", ".join(dict.fromkeys(key_fingerprint(c.public_key()) for c in held))
        message = f"{name} has a certificate of another key ({keys}): if this one is to be it, too, --replace"
        raise ConfigError.one(str(source), "", message)


def _agree(asked: Request, fingerprint: str | None) -> None:
    """RefusedError: not the key that its owner named, or nobody says so."""
    if fingerprint is not None:
        told = re.sub(r"[\s:]", "", fingerprint).lower()
        if not re.fullmatch("[0-9a-f]{64}", told):
            raise ConfigError.one("command line", "--fingerprint", "is not the 64 hexadecimal digits of a SHA-256")
        if told != asked.fingerprint:
            raise RefusedError("the request's key has another fingerprint than the one given; nothing was signed")
        return
    if not sys.stdin.isatty():
        message = "is needed where nobody can be asked: what the host's owner says that the key's SHA-256 is"
        raise ConfigError.one("command line", "--fingerprint", message)
    if not click.confirm("Did its owner tell you this fingerprint (key sha256), over another way?  Sign it?"):
        raise RefusedError("nothing was signed")
