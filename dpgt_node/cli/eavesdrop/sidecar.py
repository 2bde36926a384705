"""``dpgt eavesdrop sidecar``: TLS around plain links, with its keys written down."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, ExitCode


@click.command()
@click.option("--tls", required=True, type=common.FOLDER, help="Start-up folder: ca.pem, cert.pem, key.pem.")
@click.option("--keylog", required=True, metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--serve", metavar="LISTEN=TARGET", multiple=True, help="TLS at LISTEN, plain to TARGET: the process beside."
)
@click.option(
    "--dial", metavar="LISTEN=IDENTITY@TARGET", multiple=True, help="Plain at LISTEN, TLS to IDENTITY at TARGET."
)
@common.die_with_parent_option
def sidecar(
    tls: Path, keylog: Path, serve: tuple[str, ...], dial: tuple[str, ...], die_with_parent: int | None
) -> ExitCode:
    """Speak TLS for an agent that runs without it (channel "plain"), and write down the session keys: for studies of
    what a tap sees that has them.  Runs until it is ended.
    """
    from dpgt_node.adversary.taps import sidecar as tls_sides
    from dpgt_node.runtime import process
    from dpgt_node.runtime.trust.certificates import target_name_override

    if die_with_parent is not None:
        process.die_with_parent(die_with_parent)
    accept, call = tls_sides.contexts(tls / "ca.pem", tls / "cert.pem", tls / "key.pem", keylog)
    relays = []
    for text in serve:
        listen, target = _halves(text, "--serve")
        relays.append(tls_sides.inbound(listen, target, accept))
    for text in dial:
        listen, there = text.partition("=")[::2]
        identity, _, target = there.rpartition("@")
        _halves(f"{listen}={target}", "--dial")
        try:
            name = target_name_override(identity)
        except ValueError as error:
            raise ConfigError.one("command line", "--dial", f"{text}: {error}") from error
        relays.append(tls_sides.outbound(listen, target, call, name))
    if not relays:
        raise ConfigError.one("command line", "", "give --serve or --dial")

    async def main() -> None:
        from dpgt_node.adversary.taps.relay import Relays

        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        async with Relays(relays, option="--serve, --dial") as running:
            for address, relay in zip(running.addresses, relays, strict=True):
                say(f"{address} leads to {relay.target}")
            await ended.wait()

    common.run_async(main())
    return ExitCode.DONE


def _halves(text: str, option: str) -> tuple[str, str]:
    listen, _, target = text.partition("=")
    for address in (listen, target):
        common.check_address(address, option)
    return listen, target
