"""``dpgt eavesdrop capture``: what passes a network interface, or a relay, into a capture file."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, ExitCode


@click.command()
@click.option("--out", required=True, metavar="FILE.pcap", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--interface", metavar="IFACE", help="Listen on this network interface (lo, eth0, a bridge); needs root.")
@click.option(
    "--port",
    "ports",
    metavar="PORT",
    multiple=True,
    type=click.IntRange(1, 65535),
    help="With --interface: only these TCP ports.",
)
@click.option(
    "--proxy",
    "proxies",
    metavar="LISTEN=TARGET",
    multiple=True,
    help="Relay HOST:PORT to HOST:PORT and record it; needs no root. Whoever is tapped dials LISTEN.",
)
@click.option("--seconds", metavar="S", type=click.FloatRange(min=0.0), help="Stop after so long.  [default: Ctrl-C]")
def capture(
    out: Path, interface: str | None, ports: tuple[int, ...], proxies: tuple[str, ...], seconds: float | None
) -> ExitCode:
    """Record what passes a link, without or with TLS, until Ctrl-C, in a new file; `eavesdrop decode` reads it.

    Exit 1 when anything was lost: the file is kept and named as partial.
    """
    if (interface is None) == (not proxies) or (ports and interface is None):
        raise ConfigError.one("command line", "", "give --interface, perhaps with --port, or one or more --proxy")
    from dpgt_node.cli.eavesdrop.tapped_launch import check_capture

    check_capture(out, "--out")
    if interface is not None:
        _live(out, interface, ports, seconds)
    else:
        common.run_async(_relayed(out, proxies, seconds))
    return ExitCode.DONE


def _live(out: Path, interface: str, ports: tuple[int, ...], seconds: float | None) -> None:
    from dpgt_node.adversary.taps.live import LiveTap

    with contextlib.closing(LiveTap(interface, ports)) as tap, _stopped(seconds) as stopped:
        what = f"TCP port {', '.join(map(str, ports))}" if ports else "all TCP"
        say(f"capturing {what} on {interface} into {out}; Ctrl-C ends it")
        done = tap.record(out, stopped)
    say(f"{done.frames} frames, {done.nbytes} bytes, none lost, in {out}")


class _Stop:
    """Whether it is time to end: somebody asked for it, or the time is up."""

    def __init__(self, seconds: float | None) -> None:
        self._end_s = float("inf") if seconds is None else time.monotonic() + seconds
        self._asked = False

    def ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True

    def __call__(self) -> bool:
        return self._asked or time.monotonic() >= self._end_s


@contextlib.contextmanager
def _stopped(seconds: float | None) -> Iterator[_Stop]:
    stop = _Stop(seconds)
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _relayed(out: Path, proxies: tuple[str, ...], seconds: float | None) -> None:
    from dpgt_node.adversary.taps.proxy import ProxyTap
    from dpgt_node.adversary.taps.relay import Relay

    relays = []
    for text in proxies:
        listen, equals, target = text.partition("=")
        if not equals:
            raise ConfigError.one("command line", "--proxy", f"{text}: want LISTEN=TARGET, both HOST:PORT")
        for address in (listen, target):
            common.check_address(address, "--proxy")
        relays.append(Relay(listen, target))
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    async with ProxyTap(out, relays) as tap:
        for address, relay in zip(tap.addresses, relays, strict=True):
            say(f"{address} leads to {relay.target}")
        say(f"recording into {out}; Ctrl-C ends it")
        waits = [asyncio.ensure_future(event.wait()) for event in (asked, tap.failed)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    seen = tap.tally
    missed = f", {seen.refused} whose target did not answer" if seen.refused else ""
    say(f"{seen.connections} connections{missed}, {seen.bytes_relayed} bytes relayed, in {out}")
