"""``dpgt node``: one agent daemon in the foreground."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common, lazy, logs, signals
from dpgt_node.cli.running.loops import daemons_loop
from dpgt_node.errors import ConfigError, ExitCode, naming_run_file

if TYPE_CHECKING:
    from dpgt_node.config import NodeConfig
    from dpgt_node.runtime.watching.sites import Sites

ORDER_S = 4.5
"""A process that was asked to end may wait so long for what its threads compute: what is stored is safe anyway."""


@click.command()
@click.option("--config", "config_file", required=True, metavar="NODE.toml", type=click.Path(path_type=Path))
@common.test_keystream_option
@click.option(
    "--dial",
    metavar="PEER=HOST:PORT",
    multiple=True,
    help="Dial this peer here, not where it says: through a port forwarding, a relay, or a tap.",
)
@common.metrics_option
@common.health_option
@logs.log_format_option
@common.die_with_parent_option
@click.pass_context
def node(
    context: click.Context,
    config_file: Path,
    test_keystream: str | None,
    dial: tuple[str, ...],
    metrics: str | None,
    health: str | None,
    die_with_parent: int | None,
) -> ExitCode:
    """Serve one agent for one run, then exit 0 (for systemd, compose, Kubernetes)."""
    from dpgt_node.config import load_node
    from dpgt_node.runtime import process
    from dpgt_node.runtime.watching.sites import HEALTH, METRICS, Sites

    common.daemon_logging(context)
    if die_with_parent is not None:
        process.die_with_parent(die_with_parent)
    process.tune_malloc()
    process.raise_open_files()
    config = load_node(config_file)
    with naming_run_file(config.run):
        return _serve(config, test_keystream, dial, Sites({METRICS: metrics, HEALTH: health}))


def _serve(config: NodeConfig, test_keystream: str | None, dial: tuple[str, ...], sites: Sites) -> ExitCode:
    from dpgt_node.algo.graph import Topology
    from dpgt_node.algo.methods import network_of
    from dpgt_node.config import check_node_in_run, load_run
    from dpgt_node.runtime import process
    from dpgt_node.runtime.agent.node import Node, NodeSetup
    from dpgt_node.runtime.agent.refusal import oracle_or_refusal
    from dpgt_node.runtime.launch.hostcheck import require_files
    from dpgt_node.runtime.trust.channels import Security

    run = load_run(config.run)
    check_node_in_run(config, run)
    common.check_keystream(run, test_keystream)
    common.check_startable(run, str(config.run), warn=False)
    network = network_of(run, Topology.from_config(run.graph))
    senders, peers = network.senders(index := run.graph.agents.index(config.name)), network.peers(index)
    require_files(len(senders) + len(peers) + 1, config.name)
    elsewhere = _dialled(dial, run.graph.agents)
    security = Security(config.tls.ca, config.tls.cert, config.tls.key) if not config.tls.insecure else Security()
    shard = config.shard - 1 if config.shard is not None else index

    async def main() -> ExitCode:
        daemon: Node | None = None
        loop, asked = asyncio.get_running_loop(), 0

        def interrupt() -> None:
            """In order the first time, if that does not take long; at once before there is an order, and again."""
            nonlocal asked
            asked += 1
            if asked > 1 or daemon is None or daemon.session is None:
                signals.end_now("node")
            loop.call_later(ORDER_S, signals.end_now, "node")
            daemon.interrupt()

        for number in signals.ending_signals():
            loop.add_signal_handler(number, interrupt)
        oracle, digest = await oracle_or_refusal(config, run, shard, security, common.data_root())
        daemon = Node(NodeSetup(config, run, index, oracle, security, test_keystream, elsewhere, digest, sites))
        try:
            return await daemon.serve()
        finally:
            logging.getLogger(__name__).info("peak resident memory %.0f MiB", process.peak_rss_mib())

    lazy.settle()
    return common.run_async(main(), daemons_loop)


def _dialled(given: tuple[str, ...], agents: tuple[str, ...]) -> dict[str, str]:
    """``--dial`` by peer."""
    found: dict[str, str] = {}
    for text in given:
        peer, _, address = text.partition("=")
        if peer not in agents or peer in found:
            raise ConfigError.one("command line", "--dial", f"{text}: want PEER=HOST:PORT, once a peer")
        common.check_address(address, "--dial")
        found[peer] = address
    return found
