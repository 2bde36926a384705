"""``dpgt eavesdrop lab``: a whole run, each process on a host of its own, behind a switch that records."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, DpgtError, ExitCode
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.adversary.taps.lab import Host
    from dpgt_node.adversary.taps.switch import Impairment, Switch
    from dpgt_node.config import RunConfig
    from dpgt_node.runtime.launch.places import Place
    from dpgt_node.wire.transcript import Link

Channel = Literal["plain", "tls", "tls+keys"]
COORDINATOR = "coordinator"
_COORDINATOR_PORT = 7000
_SIDE_PORT = 7200
_STARTED_S = 30.0
_END_S = 10.0
_PROBABILITY = click.FloatRange(0.0, 1.0, max_open=True)


@click.command()
@common.run_argument
@common.out_option
@click.option(
    "--channel",
    type=click.Choice(["plain", "tls", "tls+keys"]),
    default="plain",
    show_default=True,
    help="Without TLS; with mTLS; with TLS whose session keys the tap has.",
)
@click.option("--links", metavar="A>B,...", help="What is tapped.  [default: every link between agents]")
@click.option("--delay-ms", type=click.FloatRange(min=0.0), default=0.0, help="One way, each frame.")
@click.option("--loss", type=_PROBABILITY, default=0.0, help="Probability that a frame is lost.")
@click.option("--reorder", type=_PROBABILITY, default=0.0, help="Probability that a frame is overtaken.")
@click.option("--rate-mbit", type=click.FloatRange(min=0.0, min_open=True), help="Of each host's line out.")
@click.option(
    "--impair",
    "impaired",
    multiple=True,
    metavar="'A>B KEY=VALUE ...'",
    help="Other dice for what A sends B: loss=, reorder=, delay-ms=, from= and until= in seconds; may be repeated.",
)
@click.option("--tap-loss", type=_PROBABILITY, default=0.0, help="Probability that the tap misses a delivered frame.")
@click.option("--mtu", type=click.IntRange(576, 65_521), default=1500, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the switch's dice; never noise.")
@common.test_keystream_option
@click.pass_context
def lab(
    context: click.Context,
    run_file: Path,
    out: Path,
    channel: Channel,
    links: str | None,
    delay_ms: float,
    loss: float,
    reorder: float,
    rate_mbit: float | None,
    impaired: tuple[str, ...],
    tap_loss: float,
    mtu: int,
    seed: int,
    test_keystream: str | None,
) -> ExitCode:
    """Run RUN.toml with each process on a host of its own (network namespaces; Linux, root), tapped at the switch.

    DIR/run is what launch writes, DIR/capture.pcap what crossed the links, DIR/capture.transcript what of it could be
    decoded (not without keys), DIR/capture.keys the session keys (tls+keys).
    """
    from dpgt_node.adversary.taps.switch import Impairment
    from dpgt_node.cli.eavesdrop.impairing import parse_rule
    from dpgt_node.cli.eavesdrop.tapped_launch import parse_links
    from dpgt_node.config import to_toml
    from dpgt_node.durable import contents, write_text

    run = over(common.load_local_run(run_file), channel)
    chosen = parse_links(links, run, "--links")
    if contents(out):
        raise ConfigError.one("command line", "--out", f"{out} is not empty")
    rules = tuple(parse_rule(text, run) for text in impaired)
    impairment = Impairment(delay_ms, loss, reorder, rate_mbit, tap_loss, seed, rules)
    with _network(run, mtu) as hosts:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "lab.toml", to_toml(run))
        with _switch(hosts, run, chosen, out / "capture.pcap", impairment) as switch:
            code = _launch(context, run, hosts, channel, out, switch, test_keystream)
    counts = switch.counts
    if switch.failure is not None:
        from dpgt_node.adversary.taps.errors import CaptureError

        raise CaptureError(f"{out / 'capture.pcap'} is only the beginning of what passed: {switch.failure.strerror}")
    dropped = f"{counts.lost} lost, {counts.overflowed} too many for the line, {counts.unseen} missed by the tap"
    say(
        f"{out / 'capture.pcap'}: {counts.recorded} frames, {counts.recorded_bytes} bytes recorded; "
        f"{counts.delivered} delivered, {dropped}"
    )
    if code != ExitCode.DONE:
        raise _ended(code, out)
    if channel != "tls":
        _decode(context, out, channel, () if links is None else chosen)
    return ExitCode.DONE


def over(run: RunConfig, channel: Channel) -> RunConfig:
    """The run that the lab makes of ``run``.  A tap that reads values needs agents that speak in plain, behind sidecars
    where TLS is outside: they refuse [traffic], which hides sizes and changes no value.
    """
    from dpgt_node.config import with_overrides
    from dpgt_node.config.privacy.traffic import OPEN

    if channel == "tls":
        return with_overrides(run, channel="mtls")
    if run.traffic.on:
        say(
            "dpgt eavesdrop: [traffic] is left out: this tap reads every value, whatever its size, and padding and "
            "dummies change none. What they hide shows with --channel tls and the attack traffic.",
            err=True,
        )
    return with_overrides(replace(run, traffic=OPEN), channel="plain")


def _ended(code: int, out: Path) -> DpgtError:
    error = DpgtError(f"the run did not end well (exit {code}): see {out / 'run'}")
    error.exit_code = ExitCode(code) if code in set(ExitCode) else ExitCode.BUG
    return error


def _decode(context: click.Context, out: Path, channel: Channel, links: Sequence[Link]) -> None:
    from dpgt_node.cli.eavesdrop.decode import decode

    keys = out / "capture.keys" if channel == "tls+keys" else None
    pcap, transcript = (str(out / "capture.pcap"),), out / "capture.transcript"
    tapped = tuple(f"{link.sender}>{link.receiver}" for link in links)
    context.invoke(decode, pcap=pcap, out=transcript, run=out / "run", keys=keys, links=tapped)


# --- the network


@contextlib.contextmanager
def _network(run: RunConfig, mtu: int) -> Iterator[Mapping[str, Host]]:
    """The coordinator's host and the agents'; agent i is 10.77.0.i, the coordinator comes after them."""
    from dpgt_node.adversary.taps.lab import Network

    with Network((*run.graph.agents, COORDINATOR), mtu=mtu) as network:
        yield network.hosts


@contextlib.contextmanager
def _switch(
    hosts: Mapping[str, Host], run: RunConfig, links: Sequence[Link], pcap: Path, impairment: Impairment
) -> Iterator[Switch]:
    """A running switch; what is on the way when the block ends is still delivered and recorded."""
    from dpgt_node.adversary.decode.packets import PcapWriter
    from dpgt_node.adversary.taps.switch import Switch

    packed = {name: ipaddress.IPv4Address(host.ip).packed for name, host in hosts.items()}
    pairs = frozenset((packed[link.sender], packed[link.receiver]) for link in links)
    with PcapWriter(pcap) as recording:
        switch = Switch([(host.line, host.mac) for host in hosts.values()], recording, impairment, pairs)
        thread = threading.Thread(target=switch.run, name="dpgt-switch")
        thread.start()
        try:
            yield switch
        finally:
            switch.stop()
            thread.join()


# --- the processes


def _launch(
    context: click.Context,
    run: RunConfig,
    hosts: Mapping[str, Host],
    channel: Channel,
    out: Path,
    switch: Switch,
    test_keystream: str | None,
) -> int:
    from dpgt_node.runtime.launch.places import write_places

    sides = _sides(run, hosts, out) if channel == "tls+keys" else {}
    places = out / "places.json"
    write_places(places, {name: _place(run, name, host, sides.get(name)) for name, host in hosts.items()})
    level = str(context.find_root().meta.get("log_level", "info"))
    arguments = ["launch", str(out / "lab.toml"), "--out", str(out / "run"), "--places", str(places)]
    arguments += ["--test-keystream", test_keystream] if test_keystream is not None else []
    with contextlib.ExitStack() as stack:
        for name, side in sides.items():
            stack.enter_context(_running(hosts[name], ["eavesdrop", *side.arguments], out / "sidecars" / f"{name}.log"))
        for name, side in sides.items():
            side.wait(out / "sidecars" / f"{name}.log")
        launch = stack.enter_context(_running(hosts[COORDINATOR], ["--log-level", level, *arguments], None))
        while launch.poll() is None and switch.failure is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                launch.wait(0.2)
    if sides:
        with (out / "capture.keys").open("w", encoding="ascii") as keys:
            for side in sides.values():
                keys.write(side.keylog.read_text(encoding="ascii"))
    return launch.returncode


@dataclass(frozen=True, slots=True)
class _Side:
    """A host's sidecar.  ``dial``: where its process dials each peer, on its own loopback."""

    arguments: list[str]
    keylog: Path
    dial: Mapping[str, str]

    def wait(self, log: Path) -> None:
        """Until it listens everywhere."""
        expected = 1 + len(self.dial)
        end_s = time.monotonic() + _STARTED_S
        while time.monotonic() < end_s:
            said = log.read_text(encoding="utf-8")
            if said.count(" leads to ") == expected:
                return
            time.sleep(0.02)
        raise DpgtError(f"a sidecar did not start: {log}")


def _sides(run: RunConfig, hosts: Mapping[str, Host], out: Path) -> dict[str, _Side]:
    """One a host: TLS at its address, plain on its loopback."""
    from dpgt_node.adversary.taps.proxy import AGENT_PORT
    from dpgt_node.algo.graph import Topology
    from dpgt_node.algo.methods import network_of
    from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, agent_identity
    from dpgt_node.runtime.trust.tls import CertificateAuthority

    authority, names = CertificateAuthority.create(), run.graph.agents
    network = network_of(run, Topology.from_config(run.graph))
    (out / "sidecars").mkdir()
    made = {}
    for name, host in hosts.items():
        identity = COORDINATOR_IDENTITY if name == COORDINATOR else agent_identity(name)
        folder = out / "sidecars" / name
        authority.write_folder(folder, identity)
        port = _COORDINATOR_PORT if name == COORDINATOR else AGENT_PORT
        keylog = folder / "keys"
        arguments = ["sidecar", "--tls", str(folder), "--keylog", str(keylog)]
        arguments += ["--serve", f"{host.ip}:{port}=127.0.0.1:{port}"]
        dial: dict[str, str] = {}
        if name != COORDINATOR:
            dial[COORDINATOR] = f"127.0.0.1:{_COORDINATOR_PORT}"
            there = f"{hosts[COORDINATOR].ip}:{_COORDINATOR_PORT}"
            arguments += ["--dial", f"{dial[COORDINATOR]}={COORDINATOR_IDENTITY}@{there}"]
            for i in network.peers(names.index(name)):
                dial[names[i]] = f"127.0.0.1:{_SIDE_PORT + i}"
                there = f"{agent_identity(names[i])}@{hosts[names[i]].ip}:{AGENT_PORT}"
                arguments += ["--dial", f"{dial[names[i]]}={there}"]
        made[name] = _Side(arguments, keylog, dial)
    return made


def _place(run: RunConfig, name: str, host: Host, side: _Side | None) -> Place:
    """Where a process listens and dials; launch itself runs on the coordinator's host."""
    from dpgt_node.adversary.taps.proxy import AGENT_PORT
    from dpgt_node.runtime.launch.places import Place

    port = _COORDINATOR_PORT if name == COORDINATOR else AGENT_PORT
    if side is None:
        return Place(listen=f"{host.ip}:{port}", enter=host.enter)
    peers = {peer: at for peer, at in side.dial.items() if peer != COORDINATOR}
    return Place(f"127.0.0.1:{port}", side.dial.get(COORDINATOR), peers, host.enter)


@contextlib.contextmanager
def _running(host: Host, arguments: Sequence[str], log: Path | None) -> Iterator[subprocess.Popen[bytes]]:
    """A ``dpgt`` process on ``host`` that ends with this one; ended when the block does."""
    command = [*host.enter, sys.executable, "-m", "dpgt_node", *arguments, "--die-with-parent", str(os.getpid())]
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(log.open("wb")) if log is not None else None
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
