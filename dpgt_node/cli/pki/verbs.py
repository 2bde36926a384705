"""``dpgt pki``: certificates and start-up folders for separate hosts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.cli.pki.enrolment import request, shown, sign
from dpgt_node.cli.pki.shared import (
    AGENT_PORT,
    COORDINATOR,
    COORDINATOR_PORT,
    Host,
    authority_option,
    check_name,
    check_unlike,
    days_option,
    known_run,
    parse_hosts,
    pki_option,
    registry_of,
    revoke_hint,
    said,
    serial_of,
    signed,
    still_valid,
    with_port,
    write_start_up,
)
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from dpgt_node.config import RunConfig
    from dpgt_node.runtime.trust.pki import Shown

NOTICED_S = 2
"""How soon running processes notice new files (runtime/trust/credentials.py)."""


@click.group()
def pki() -> None:
    """Certificates for separate hosts: who is who in a run."""


pki.add_command(request)
pki.add_command(sign)


@pki.command()
@common.run_argument
@click.option("--out", required=True, type=common.FOLDER, help="New folder for the start-up folders.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME=ADDR[:PORT]",
    help=f"Where NAME (an agent, or {COORDINATOR}) is reached; ports default to {AGENT_PORT} and {COORDINATOR_PORT}.",
)
@click.option(
    "--keys",
    type=click.Choice(["all", "coordinator", "none"]),
    default="all",
    show_default=True,
    help="Whose private keys are made here; the other hosts make their own (dpgt pki request).",
)
@days_option
def init(run_file: Path, out: Path, hosts: tuple[str, ...], keys: str, days: float) -> ExitCode:
    """Make one start-up folder a host: certificate, key (0600), CA, NODE.toml, run.toml.

    A fresh authority signs them all.  Its key is kept in OUT/authority, for sign, issue, renew and revoke: whoever has
    it can be anybody in this run, so move that folder off line.  For separate owners, take --keys coordinator: then
    nobody here ever sees an agent's key.
    """
    from dpgt_node.config import format_address, load_run
    from dpgt_node.config.vocabulary import TOYS
    from dpgt_node.durable import contents
    from dpgt_node.runtime.coordinator.outdir import blamed
    from dpgt_node.runtime.trust.pki import AUTHORITY, OPERATOR, Registry, identity_of

    run = load_run(run_file)
    common.check_startable(run, str(run_file))
    places = parse_hosts(hosts, run.graph.agents)
    reserved = {AUTHORITY, COORDINATOR, OPERATOR} & {name.lower() for name in run.graph.agents}
    if reserved:
        message = f"{', '.join(sorted(reserved))}: no agent can have this name here, a folder of another kind has it"
        raise ConfigError.one(str(run_file), "graph.agents", message)
    if contents(out):
        raise ConfigError.one("command line", "--out", f"{out} is not empty; choose a new folder")
    with blamed(out):
        registry = Registry.create(out / AUTHORITY, days=max(3650, days + 1))
        for name, place in places.items():
            if keys == "all" or (keys == "coordinator" and name == COORDINATOR):
                signed(registry, identity_of(name), [place.address], out / name, days)
            else:
                registry.invite(out / name)
            write_start_up(out / name, name, run, place, places[COORDINATOR])
    at = places[COORDINATOR]
    say(f"{len(places)} start-up folders in {out}; copy each to its host (the key is for that host alone), then:")
    if keys != "all":
        whose = "AGENT" if keys == "coordinator" else "NAME"
        say(f"there, beside the folder (then send {whose}/request.pem back):\n  dpgt pki request {whose}")
        say(f"here (then send cert.pem back):\n  dpgt pki sign {whose} REQUEST --pki {out}")
    listen = format_address(at.address if at.is_ip else "0.0.0.0", at.port)
    say("on the coordinator's host:")
    say(f"  dpgt coordinator --config {COORDINATOR}/run.toml --listen {listen} --tls {COORDINATOR} --out results")
    say("on every agent's host (dpgt doctor AGENT/NODE.toml checks that host first):")
    say("  dpgt node --config AGENT/NODE.toml")
    if run.data.dataset not in TOYS:
        say(_where_data_lie(run))
    say(
        f"Move {out / AUTHORITY} off line now: whoever has its key can be anybody in this run.  "
        "sign, issue, renew and revoke take it back with --authority DIR."
    )
    return ExitCode.DONE


def _where_data_lie(run: RunConfig) -> str:
    """Where every agent's host looks for the run's data, and how it has its own."""
    from dpgt_node.config.data import CLASSES, expanded
    from dpgt_node.config.vocabulary import DATASET_PREFIXES

    kind, _, path = run.data.dataset.partition(":")
    own = "or give it data of its own: [data] path = FILE in NODE.toml, instead of shard"
    if kind in DATASET_PREFIXES.built:
        beside = "" if expanded(path).is_absolute() else "AGENT/"
        test = f", its test file at {run.data.params['test']}, likewise" if "test" in run.data.params else ""
        return f"Every agent's host looks for the run's data at {beside}{path}{test}: copy them there, {own}."
    if run.data.dataset == "digits":
        return f"The run's data, digits, come with the program; {own.removeprefix('or ')}."
    if kind in CLASSES:
        return f"Every agent's host needs the run's data: dpgt data fetch {kind}, {own}."
    return f"Every agent's host makes the run's data by {run.data.dataset}, {own}."


@pki.command()
@click.argument("name")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ADDR[:PORT]",
    help="Host names and addresses it is reached by; the first one goes into NODE.toml.",
)
@pki_option
@authority_option
@click.option("--into", type=common.FOLDER, help="The new start-up folder.  [default: NAME in --pki]")
@days_option
def issue(
    name: str, hosts: tuple[str, ...], folder: Path, authority: Path | None, into: Path | None, days: float
) -> ExitCode:
    """One more start-up folder: NAME is an agent (a replacement host too), coordinator, or operator.

    An operator's certificate may ask for status, pause, resume and stop, and nothing else.
    """
    from dpgt_node.config import parse_address
    from dpgt_node.runtime.coordinator.outdir import blamed
    from dpgt_node.runtime.trust.files import CERT_FILE, KEY_FILE
    from dpgt_node.runtime.trust.pki import OPERATOR, identity_of

    registry, target = registry_of(folder, authority), into or folder / name
    check_name(name)
    check_unlike(registry, folder, name)
    default = COORDINATOR_PORT if name == COORDINATOR else AGENT_PORT
    places = []
    for text in hosts:
        try:
            places.append(Host(*parse_address(with_port(text, default))))
        except ValueError as error:
            raise ConfigError.one("command line", "--host", str(error)) from error
    if not places and name != OPERATOR:
        raise ConfigError.one("command line", "--host", f"is missing: where the others reach {name}")
    if any((target / file).exists() for file in (CERT_FILE, KEY_FILE)):
        message = f"{target} holds a certificate already: dpgt pki renew {name}, or --into another folder"
        raise ConfigError.one("command line", "--into", message)
    with blamed(target):
        certificate = signed(registry, identity_of(name), [place.address for place in places], target, days)
        run, coordinator = known_run(folder)
        whole = run is not None and coordinator is not None and name in run.graph.agents
        if run is not None and coordinator is not None and whole:
            write_start_up(target, name, run, places[0], coordinator)
        elif run is not None and name == COORDINATOR:
            write_start_up(target, name, run, places[0], places[0])
    say(f"{said(name, certificate)}; in {target}, for its host alone")
    if name not in (COORDINATOR, OPERATOR) and not whole:
        say(f"No NODE.toml: {folder} does not know a run with an agent {name}.")
    older = [c for c in registry.issued(identity_of(name)) if still_valid(registry, c) and c != certificate]
    if older:
        say(f"Earlier certificates of {name} stay valid; if their host is lost:\n  {revoke_hint(name, older)}")
    return ExitCode.DONE


@pki.command()
@click.argument("names", metavar="NAME...", nargs=-1)
@click.option("--all", "everybody", is_flag=True, help="Every start-up folder in --pki.")
@pki_option
@authority_option
@click.option("--into", type=common.FOLDER, help="Where NAME's files lie now.  [default: NAME in --pki]")
@click.option("--days", type=click.FloatRange(0, 3650, min_open=True), help="Validity.  [default: as before]")
def renew(
    names: tuple[str, ...],
    everybody: bool,
    folder: Path,
    authority: Path | None,
    into: Path | None,
    days: float | None,
) -> ExitCode:
    """A new key and certificate for the same identity and hosts; running processes take them up by themselves.

    Where a host made its own key it keeps that, and gets a new certificate.
    """
    from dpgt_node.runtime.coordinator.outdir import blamed
    from dpgt_node.runtime.trust.files import CERT_FILE
    from dpgt_node.runtime.trust.pki import hosts_of, identity_of, name_of, read_certificate, start_up_folders
    from dpgt_node.runtime.trust.tls import valid_for

    if everybody == bool(names):
        raise ConfigError.one("command line", "NAME", "give names, or --all")
    if into is not None and len(names) != 1:
        raise ConfigError.one("command line", "--into", "is for one name")
    registry = registry_of(folder, authority)
    revoked = registry.revoked()
    chosen: list[tuple[str, Path, Certificate]] = []
    if everybody:
        for target in start_up_folders(folder):
            held = read_certificate(target / CERT_FILE)
            if held.serial_number not in revoked:
                chosen.append((name_of(held), target, held))
    for name in names:
        check_name(name)
        known = [c for c in registry.issued(identity_of(name)) if c.serial_number not in revoked]
        if not known:
            message = f"{name} has no certificate of this authority that is not revoked: dpgt pki issue {name}"
            raise ConfigError.one("command line", "NAME", message)
        target = into or folder / name
        there = [c for c in known if (target / CERT_FILE).exists() and c == read_certificate(target / CERT_FILE)]
        chosen.append((name, target, (there or known)[-1]))
    for name, target, old in chosen:
        start, end = valid_for(0)
        life = old.not_valid_after_utc - old.not_valid_before_utc - (end - start)
        length = days if days is not None else max(life.total_seconds() / 86400.0, 1.0 / 1440)
        asked = registry.request_of(old)
        with blamed(target):
            if asked is None:
                new = signed(registry, identity_of(name), list(hosts_of(old)), target, length)
            else:
                new = registry.sign(asked, target, days=length)
        say(f"{said(name, new)}; in {target}")
        if asked is not None:
            say("  of the key that its host made: copy cert.pem alone")
        elif still_valid(registry, old):
            say(f"  the one before stays valid; if its key is known to others:\n    {revoke_hint(name, [old])}")
    say(f"Copy key.pem and cert.pem to hosts elsewhere; running processes notice within {NOTICED_S} s.")
    return ExitCode.DONE


@pki.command()
@click.argument("name")
@click.option("--serial", "serials", multiple=True, metavar="HEX", help="Only this certificate of NAME's.")
@pki_option
@authority_option
def revoke(name: str, serials: tuple[str, ...], folder: Path, authority: Path | None) -> ExitCode:
    """Withdraw NAME's certificates (all, or by --serial): writes a revocation list, crl.pem (X.509).

    It holds wherever it lies beside ca.pem; the start-up folders in --pki get it at once.
    """
    from dpgt_node.runtime.coordinator.outdir import blamed
    from dpgt_node.runtime.trust.files import CRL_FILE
    from dpgt_node.runtime.trust.pki import identity_of, start_up_folders, who_needs_list

    check_name(name)
    registry = registry_of(folder, authority)
    known = {c.serial_number for c in registry.issued(identity_of(name))}
    if not known:
        raise ConfigError.one("command line", "NAME", f"this authority never issued a certificate for {name}")
    asked = {serial_of(text) for text in serials} or known
    if asked - known:
        strange = ", ".join(f"{serial:x}" for serial in sorted(asked - known))
        raise ConfigError.one("command line", "--serial", f"{strange}: no certificate of {name} (dpgt pki show)")
    with blamed(registry.folder):
        registry.revoke(asked)
    folders = start_up_folders(folder)
    for path in folders:
        with blamed(path):
            registry.copy_list(path)
    needing = who_needs_list(name, known_run(folder)[0])
    say(f"{name}: revoked {', '.join(f'{serial:x}' for serial in sorted(asked))}")
    say(
        f"Copy {registry.folder / CRL_FILE} beside ca.pem on {'the hosts of ' if needing else ''}"
        f"{', '.join(needing) or 'every host'} (it does no harm on others)."
    )
    say(f"Running processes notice within {NOTICED_S} s; those that were not told still believe the certificate.")
    return ExitCode.DONE


@pki.command()
@click.argument("path", type=click.Path(path_type=Path))
@common.format_option
def show(path: Path, format_: str) -> ExitCode:
    """What a certificate or a request says: PATH is a file, a start-up folder, or the folder of `dpgt pki init`.

    Exits 1 when PATH is one certificate and that is not good.  Of an authority's certificate, ca.pem, compare the
    fingerprint (key sha256) with its holder's over another way.
    """
    from dpgt_node.runtime.trust import requests
    from dpgt_node.runtime.trust.pki import name_of_identity
    from dpgt_node.runtime.trust.pki import show as read

    if requests.is_one(path):
        asked = requests.read(path)
        document = {"identity": asked.identity, "hosts": asked.hosts, "key_sha256": asked.fingerprint}
        name = name_of_identity(asked.identity)
        click.echo(json.dumps({"request": document}, indent=2) if format_ == "json" else shown(name, asked))
        return ExitCode.DONE
    found = read(path)
    if format_ == "json":
        click.echo(json.dumps({"certificates": [_document(c) for c in found]}, indent=2, allow_nan=False))
    else:
        say("\n".join(_text(c) for c in found))
        if len(found) > 1 and found[0].authority:
            say(f"{path} holds {len(found)} authorities, and a process believes each: compare every key sha256.")
    judged = found if len(found) == 1 or found[0].authority else []
    return ExitCode.CHECK_FAILED if any(one.problems for one in judged) else ExitCode.DONE


def _document(one: Shown) -> dict[str, object]:
    document = dataclasses.asdict(one)
    for key in ("not_before", "not_after"):
        document[key] = document[key].isoformat()
    return {**document, "good": not one.problems}


def _text(one: Shown) -> str:
    from dpgt_node.runtime.trust.certificates import instant

    if one.authority:
        return _text_of_authority(one)
    listed = {True: "REVOKED", False: "not revoked", None: "no revocation list here"}[one.revoked]
    lines = [
        f"{one.identity or 'no identity'}",
        f"  file         {one.source}",
        f"  serial       {one.serial}",
        f"  sha256       {one.fingerprint_sha256}",
        f"  key sha256   {one.key_sha256}",
        f"  names        {', '.join((*one.dns, *one.ip))}",
        f"  valid        {instant(one.not_before)} to {instant(one.not_after)}",
        f"  issuer       {one.issuer}",
        f"  revocation   {listed}",
        *(f"  NOT GOOD     {problem}" for problem in one.problems),
    ]
    return "\n".join(lines)


def _text_of_authority(one: Shown) -> str:
    """One fingerprint alone: the one that two people compare."""
    from dpgt_node.runtime.trust.certificates import instant

    lines = [
        "an authority's certificate",
        f"  file         {one.source}",
        f"  serial       {one.serial}",
        f"  key sha256   {one.key_sha256}",
        f"  valid        {instant(one.not_before)} to {instant(one.not_after)}",
        f"  issuer       {one.issuer}",
        *(f"  NOT GOOD     {problem}" for problem in one.problems),
    ]
    return "\n".join(lines)
