"""A launch whose agents dial each other through a tap: no root, mTLS or not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from dpgt_node.adversary.taps.proxy import ProxyTap, link_relay
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.cli import common
from dpgt_node.config import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.launch.launcher import LOOPBACK, held_port
from dpgt_node.runtime.launch.places import Place, Places
from dpgt_node.wire.transcript import Link


def links_of(run: RunConfig) -> tuple[Link, ...]:
    """Every directed link of ``run``, sender by sender: the union of both graphs, or all pairs where it is covered."""
    network = network_of(run, Topology.from_config(run.graph))
    names = run.graph.agents
    if run.traffic.covered and network.streams:
        return tuple(Link(a, b) for a in names for b in names if a != b)
    return tuple(Link(names[j], names[i]) for j in range(run.n) for i in sorted(network.peers(j)))


def parse_links(text: str | None, run: RunConfig, option: str) -> tuple[Link, ...]:
    """``a>b,c>d`` as links of ``run``, None as all of them; ConfigError, naming ``option``, for anything else."""
    known = links_of(run)
    if text is None:
        return known
    found = []
    for part in text.split(","):
        sender, arrow, receiver = (piece.strip() for piece in part.partition(">"))
        if not arrow or Link(sender, receiver) not in known:
            listed = ",".join(f"{link.sender}>{link.receiver}" for link in known)
            raise ConfigError.one("command line", option, f"{part.strip()!r} is no link of this run; it has {listed}")
        found.append(Link(sender, receiver))
    return tuple(dict.fromkeys(found))


def check_capture(path: Path, option: str) -> None:
    """ConfigError naming ``option`` unless a capture can be written at ``path`` and none is there.

    None is ever replaced.  An empty file and a device or pipe have nothing to lose.
    """
    if path.is_file() and path.stat().st_size:
        what = f"{path} is there already, and no capture is written over: give another file name"
        raise ConfigError.one("command line", option, f"{what} (eavesdrop decode takes several captures of a run)")
    common.check_file(path, option)


@contextlib.asynccontextmanager
async def tapped(run: RunConfig, capture: Path, links: Iterable[Link] | None = None) -> AsyncIterator[Places]:
    """Places for a launch of ``run`` in which ``links`` (None: all) lead through a tap that writes ``capture``.

    The launch must end before the context does.  In the file agent i is 10.77.0.i, whatever it really is.
    CaptureError, at once, when the file cannot be written on.
    """
    names = run.graph.agents
    chosen = links_of(run) if links is None else tuple(links)
    receivers = sorted({link.receiver for link in chosen})
    with contextlib.ExitStack() as ports:
        listens = {name: f"{LOOPBACK}:{ports.enter_context(held_port())}" for name in receivers}
        relays = [
            link_relay(f"{LOOPBACK}:0", listens[k.receiver], names.index(k.sender), names.index(k.receiver))
            for k in chosen
        ]
        async with ProxyTap(capture, relays) as tap:
            through = dict(zip(chosen, tap.addresses, strict=True))
            places = {
                name: Place(listens.get(name), dial={k.receiver: at for k, at in through.items() if k.sender == name})
                for name in names
            }
            async with _ended_by(tap.failed):
                yield places


@contextlib.asynccontextmanager
async def _ended_by(event: asyncio.Event) -> AsyncIterator[None]:
    """The block is cancelled, and just ends, when ``event`` is set: agents would wait for a dead tap for ever."""
    owner = asyncio.current_task()
    assert owner is not None

    async def watch() -> None:
        await event.wait()
        owner.cancel()

    watching = asyncio.ensure_future(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not event.is_set() or owner.uncancel():
            raise
    finally:
        watching.cancel()
