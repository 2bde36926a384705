"""Brings a coordinator up on a socket and takes it down in order."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from dpgt_node.config import RunConfig, format_address, is_wildcard, parse_address
from dpgt_node.errors import ExitCode
from dpgt_node.protocol.coordinator.barrier import StopRun
from dpgt_node.runtime.coordinator.daemon import Coordinator, Outcome
from dpgt_node.runtime.coordinator.outdir import ADDRESS_FILE, OutDir, blamed, hold, prepare, write_address
from dpgt_node.runtime.interpreter import carried_through
from dpgt_node.runtime.trust.channels import Security
from dpgt_node.runtime.watching.sites import HEALTH, HTTP, METRICS, Sites
from dpgt_node.wire import services
from dpgt_node.wire.health import serve_health
from dpgt_node.wire.server import Server
from dpgt_node.wire.traffic.padding import report_unit

log = logging.getLogger(__name__)


async def serve(
    run: RunConfig,
    out: Path,
    listen: str,
    tls_folder: Path | None,
    *,
    keystream: str | None,
    stop: asyncio.Event,
    sites: Sites | None = None,
    page_waits: bool = False,
) -> Outcome:
    """Serve until the run is over.  ``stop`` asks for a stop, as the operator's signal does.  ``sites``: pages.

    ``page_waits``: the live page of a short run waits for whoever opens it (:meth:`LivePage.latecomer`).
    """
    sites = sites or Sites({})
    security = Security.from_folder(tls_folder)
    server = services.server(run.n, run.runtime.round_timeout_s)
    host, _ = parse_address(listen)
    port = services.bind(server, listen, security.server_credentials(), "command line")
    await sites.open()
    # Only now: a refused start leaves no half-made output folder.
    try:
        claimed = prepare(out, run, source="command line", keystream=keystream, close=True)
        with hold(claimed, source="command line"):
            watch = asyncio.ensure_future(security.watch())
            address = format_address(host, port)
            try:
                return await _serve(
                    server, run, claimed, address, tls_folder, security, keystream, stop, sites, page_waits
                )
            finally:
                watch.cancel()
                try:
                    await carried_through(server.stop(grace=0.2))
                finally:
                    await asyncio.gather(watch, return_exceptions=True)
    finally:
        await sites.close()


async def _serve(
    server: Server,
    run: RunConfig,
    out: OutDir,
    address: str,
    tls_folder: Path | None,
    security: Security,
    keystream: str | None,
    stop: asyncio.Event,
    sites: Sites,
    page_waits: bool,
) -> Outcome:
    coordinator = Coordinator(run, out, keystream=keystream)
    server.add_generic_rpc_handlers((services.coordinator_handler(coordinator, security.guard, report_unit(run)),))
    health = await serve_health(server, services.COORDINATOR_SERVICE)
    await server.start()
    if sites.wants(HEALTH):
        from dpgt_node.runtime.watching.probes import READY, probe_pages

        sites.add(HEALTH, probe_pages(health), READY)
    if sites.wants(METRICS):
        from dpgt_node.runtime.coordinator import exported
        from dpgt_node.runtime.watching.exposition import PATH, metrics_page

        scrape = metrics_page(exported.FAMILIES, lambda: exported.of(run, coordinator))
        sites.add(METRICS, {PATH: scrape}, PATH)
    page = None
    if sites.wants(HTTP):
        from dpgt_node.runtime.coordinator.page import LivePage

        page = LivePage(run, coordinator, out.path)
        sites.add(HTTP, page.pages(), "/")
    host, port = parse_address(address)
    reachable = "127.0.0.1" if is_wildcard(host) else host
    log.info("run %s waits for %d agents on %s", out.run_id.hex(), run.n, address)
    asked = asyncio.ensure_future(stop.wait())
    try:
        with blamed(out.path / ADDRESS_FILE):
            write_address(out.path, format_address(reachable, port), tls_folder, sites.urls())
        ends: list[asyncio.Future[Any]] = [asked, coordinator.done]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not coordinator.done.done():
            coordinator.feed(StopRun("the coordinator was told to stop"))
        outcome = await coordinator.done
        finished = outcome.conclude.exit_code is ExitCode.DONE
        await coordinator.watchers.farewell(stop, finished=finished)
        if page is not None:
            if page_waits and finished:
                await page.latecomer(stop)
            await page.farewell(stop)
        return outcome
    finally:
        health.leave()
        coordinator.close()
        asked.cancel()
