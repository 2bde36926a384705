"""A whole run on this machine's loopback: one coordinator process, n node processes, fresh certificates.

An owner's [policy] and data-set id, written into an agent's node.toml after a first start, hold from the next one on.
The coordinator's port is held for as long as the launch lasts, so that a coordinator that is started again finds it
free and every agent finds it there.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import grpc.aio

from dpgt_node.config import NodeConfig, NodeTls, RunConfig, load_node, node_to_toml
from dpgt_node.durable import write_text
from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.told import SAYS_MORE
from dpgt_node.runtime.coordinator.outdir import ADDRESS_FILE, RUN_FILE, OutDir, blamed, read_address
from dpgt_node.runtime.launch.nursery import SEVERAL, Nursery
from dpgt_node.runtime.launch.places import Place, Places
from dpgt_node.runtime.launch.supervisor import PATIENCE_S, Child, Ended, Supervisor, last_line
from dpgt_node.runtime.launch.watched import Watched
from dpgt_node.runtime.process import taking_turns
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, Security, agent_identity
from dpgt_node.runtime.trust.tls import CertificateAuthority
from dpgt_node.runtime.watching.sites import OPEN_S
from dpgt_node.wire import services

LOOPBACK = "127.0.0.1"
NURSERY_LOG = "nursery.log"
"""Empty, unless what nodes are forked from broke: then they were started one by one."""
POLL_S = 0.25
START_TIMEOUT_S = 60.0
TELL_S = 1.5
"""How long a coordinator may take to act on what a failing agent told it, before the launcher stops the run."""
GRACE_S = 10.0
"""How long the run may take to end by itself after a child failed or a stop was asked for."""
END_S = 60.0
"""How long a coordinator that ends by itself may take to write the results."""


class Launcher:
    """Runs ``run`` under ``out``; ``on_status`` gets the coordinator's status a few times a second, ``say`` a line
    for each process that was started again (``restart`` False: none is).  ``places``: of processes that do not live
    just anywhere on the loopback.  ``watched``: where they serve their pages.
    """

    def __init__(
        self,
        run: RunConfig,
        out: OutDir,
        *,
        restart: bool = True,
        durability: Literal["process", "power"] = "process",
        test_keystream: str | None = None,
        places: Places | None = None,
        watched: Watched | None = None,
        on_status: Callable[[m.StatusReply], None] | None = None,
        say: Callable[[str], None] = print,
        log_level: str = "info",
        log_format: str = "text",
    ) -> None:
        self._run = run
        self._out = out
        self._insecure = run.runtime.channel == "plain"
        self._durability = durability
        self._places = {} if places is None else places
        self._say = say
        self._watched = watched or Watched()
        self._on_status = on_status
        self._tls = out.path / "tls"
        self._interrupts = 0
        self._wake = asyncio.Event()
        self._security = Security()
        self._nursery: Nursery | None = None
        self._children = Supervisor(
            out.path,
            [] if test_keystream is None else ["--test-keystream", test_keystream],
            log_level=log_level,
            log_format=log_format,
            restart=restart,
            ended=self._wake.set,
            say=say,
        )

    async def run(self) -> Ended:
        """Start everything, wait for the end, leave nothing behind."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup and a script's & mean it; without SIGTERM nothing would end a run
            if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._interrupt)
        patience_s = 0.0  # nobody has told them to end yet
        try:
            with held_port() as port, taking_turns(self._run.n + 1):
                if self._run.n >= SEVERAL and not self._places:  # it imports while the coordinator does
                    self._nursery = await Nursery.open(self._out.path / RUN_FILE, self._out.path / NURSERY_LOG)
                coordinator = await self._start_coordinator(port)
                address = await self._address(coordinator)
                if address is None:
                    return self._early_end(coordinator)
                for i, name in enumerate(self._run.graph.agents):
                    if self._interrupts:
                        break  # nobody waits for the rest
                    await self._start_node(i, name, address)
                await self._close_nursery()
                if (found := read_address(self._out.path)) is not None and found.http is not None:
                    stays = f" (stays {OPEN_S:g} s at least)" if self._watched.waits else ""
                    self._say(f"live page: {found.http}{stays}")
                patience_s = PATIENCE_S
                return await self._watch(coordinator, address)
        finally:
            await self._close_nursery()
            await self._children.end(at_once=lambda: self._interrupts > 1, patience_s=patience_s)

    @property
    def interrupted(self) -> bool:
        """Whether a signal asked for an end, perhaps when the run was over already."""
        return self._interrupts > 0

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._nursery is not None:
            self._nursery.kill()
        if self._interrupts > 1:
            for child in self._children.children.values():
                child.signal(signal.SIGKILL)
        self._wake.set()

    # --- start --------------------------------------------------------------------------------------------------

    async def _start_coordinator(self, port: int) -> Child:
        out = self._out.path
        with blamed(out / ADDRESS_FILE):
            (out / ADDRESS_FILE).unlink(missing_ok=True)
        if not self._insecure:
            self._mint()
        self._security = Security.from_folder(None if self._insecure else self._tls / "coordinator")
        place = self._place("coordinator")
        arguments = ["coordinator", "--config", str(out / RUN_FILE), "--listen", place.listen or f"{LOOPBACK}:{port}"]
        arguments += ["--out", str(out)]
        arguments += self._watched.of_coordinator()
        arguments += ["--insecure"] if self._insecure else ["--tls", str(self._tls / "coordinator")]
        return await self._children.start("coordinator", arguments, out / "coordinator.log", enter=place.enter)

    def _place(self, name: str) -> Place:
        return self._places.get(name, Place())

    async def _address(self, coordinator: Child) -> str | None:
        """Where the coordinator listens, once it does; None when it ended, in time or not at all."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + START_TIMEOUT_S
        while loop.time() < end_s and not self._interrupts:
            await self._children.revive()
            if coordinator.exited.done() and not self._children.may_return(coordinator):
                break
            found = read_address(self._out.path)
            if found is not None and found.pid == coordinator.process.pid:
                return found.address
            await asyncio.sleep(0.02)
        return None

    def _early_end(self, coordinator: Child) -> Ended:
        if self._interrupts:
            return Ended(ExitCode.STOPPED, "interrupted")
        if not coordinator.exited.done():
            return Ended(ExitCode.REFUSED, f"the coordinator did not start within {START_TIMEOUT_S:g} s")
        return self._children.verdict(coordinator, name_it=False)

    async def _close_nursery(self) -> None:
        if self._nursery is not None:
            await self._nursery.close()
            self._nursery = None

    async def _start_node(self, i: int, name: str, address: str) -> None:
        folder = self._out.path / "agents" / name
        config = folder / "node.toml"
        node = self._node(i, name, folder, address)
        if config.exists():  # an earlier start's: what its owner wrote there about the data stays
            kept = load_node(config)
            node = replace(node, policy=kept.policy, data_id=kept.data_id)
        with blamed(config):
            write_text(config, node_to_toml(node))
        place = self._place(name)
        arguments = ["node", "--config", str(config), *self._watched.of_node(i)]
        for peer, there in place.dial.items():
            arguments += ["--dial", f"{peer}={there}"]
        log, pid = folder / "node.log", folder / "node.pid"
        await self._children.start(name, arguments, log, pid, enter=place.enter, nursery=self._nursery)

    def _mint(self) -> None:
        """A fresh authority for this start; its key is never written, so no later certificate can join this run."""
        authority = CertificateAuthority.create()
        folders = {COORDINATOR_IDENTITY: self._tls / "coordinator"}
        for name in self._run.graph.agents:
            folders[agent_identity(name)] = self._tls / "agents" / name
        for identity, folder in folders.items():
            with blamed(folder):
                authority.write_folder(folder, identity, [LOOPBACK])

    def _node(self, i: int, name: str, folder: Path, address: str) -> NodeConfig:
        tls = NodeTls(insecure=True)
        if not self._insecure:
            pem = (self._tls / "agents" / name).resolve()
            security = Security.from_folder(pem)
            tls = NodeTls(False, security.ca, security.cert, security.key, COORDINATOR_IDENTITY)
        return NodeConfig(
            name=name,
            run=(self._out.path / RUN_FILE).resolve(),
            listen=self._place(name).listen or f"{LOOPBACK}:0",
            advertise=None,
            coordinator=self._place(name).coordinator or address,
            state_dir=(folder / "state").resolve(),
            tls=tls,
            shard=i + 1,
            durability=self._durability,
        )

    # --- watch --------------------------------------------------------------------------------------------------

    async def _watch(self, coordinator: Child, address: str) -> Ended:
        children, loop = self._children, asyncio.get_running_loop()
        nodes = [child for child in children.children.values() if child is not coordinator]
        failed: Child | None = None
        told_s = deadline_s = float("inf")  # when to ask whether the run goes on without it; when to wait no longer
        stopping = asked = False
        reason = "interrupted at the launcher"
        async with self._security.opener(COORDINATOR_IDENTITY)(address) as channel:
            while True:
                self._wake.clear()
                if self._interrupts and not stopping:
                    stopping, deadline_s = True, loop.time() + GRACE_S
                if not stopping:
                    await children.revive()
                elif not asked:  # until it hears: it may be coming back
                    asked = await self._ask_stop(channel, reason)
                if coordinator.exited.done() and (stopping or not children.may_return(coordinator)):
                    break
                if failed is None and (failed := next((c for c in nodes if children.failed(c)), None)):
                    told_s, deadline_s = loop.time() + TELL_S, min(deadline_s, loop.time() + END_S)
                if loop.time() > told_s and not stopping:
                    assert failed is not None
                    goes_on = await self._goes_on(channel)
                    if goes_on:  # it could not tell the coordinator why it left; the rest must not wait for it
                        stopping, deadline_s = True, loop.time() + GRACE_S
                        reason = children.verdict(failed, name_it=True).reason
                        asked = await self._ask_stop(channel, reason)
                    elif goes_on is False:  # it left because the run ends; the coordinator is writing the results
                        told_s, deadline_s = float("inf"), loop.time() + END_S
                if loop.time() > deadline_s:
                    break
                await self._poll(channel)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), POLL_S)
        if self._interrupts and not (coordinator.exited.done() and coordinator.exited.result() == 0):
            return Ended(ExitCode.STOPPED, "interrupted")  # else the run was over before anybody heard of it
        if failed is not None and (stopping or not children.failed(coordinator)):
            return children.verdict(failed, name_it=True)
        if not coordinator.exited.done():
            return Ended(ExitCode.BUG, "the coordinator did not end")
        return self._in_full(children.verdict(coordinator, name_it=False), nodes)

    def _in_full(self, ended: Ended, nodes: Sequence[Child]) -> Ended:
        """What an agent keeps from other hosts is the user's own here: with what its own log says."""
        if SAYS_MORE not in ended.reason:
            return ended
        blamed_ = (
            child
            for child in nodes
            if re.search(rf"\b{re.escape(child.name)}\b", ended.reason) and self._children.failed(child)
        )
        said = next((f"{child.name}: {line}" for child in blamed_ if (line := last_line(child.log_path))), None)
        return ended if said is None else replace(ended, reason=f"{said}\n{ended.reason}")

    async def _poll(self, channel: grpc.aio.Channel) -> None:
        if self._on_status is None:
            return
        with contextlib.suppress(PeerError):
            self._on_status(await services.status(channel, timeout_s=2.0))

    async def _goes_on(self, channel: grpc.aio.Channel) -> bool | None:
        """Whether the coordinator still means to make rounds; None: it does not answer, perhaps it is coming back."""
        with contextlib.suppress(PeerError):
            return (await services.status(channel, timeout_s=3.0)).state in ("waiting", "running", "paused")
        return None

    async def _ask_stop(self, channel: grpc.aio.Channel, reason: str) -> bool:
        """Whether the coordinator heard it."""
        with contextlib.suppress(PeerError):
            await services.control(channel, m.ControlRequest("stop", reason[:1000]), timeout_s=3.0)
            return True
        return False


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A free port of the loopback that the kernel gives to nobody else, while it is free for whoever asks for it by
    number: bound here, never listened on.  Where the system knows no such thing it is only free right now.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((LOOPBACK, 0))
        port = int(held.getsockname()[1])
        if sys.platform != "linux":
            held.close()
        yield port
