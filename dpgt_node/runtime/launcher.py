"""A whole run on this machine's loopback: one coordinator process, n node processes, fresh certificates.

An owner's [policy] and data-set id, written into an agent's node.toml after a first start, hold from the next one on.

Children live in sessions of their own, so a Ctrl-C in the terminal reaches only the launcher, which then stops the
run in order; and each child dies with the launcher, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

import grpc.aio

from dpgt_node.config import NodeConfig, NodeTls, RunConfig, load_node, node_to_toml
from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.report.summary import write_atomically
from dpgt_node.runtime.channels import COORDINATOR_IDENTITY, Security, agent_identity
from dpgt_node.runtime.outdir import ADDRESS_FILE, RUN_FILE, OutDir, blamed, read_address
from dpgt_node.runtime.tls import CertificateAuthority
from dpgt_node.wire import messages as m
from dpgt_node.wire import services

LOOPBACK = "127.0.0.1"
POLL_S = 0.25
START_TIMEOUT_S = 60.0
TELL_S = 1.5
"""How long a coordinator may take to act on what a failing agent told it, before the launcher stops the run."""
GRACE_S = 10.0
"""How long the run may take to end by itself after a child failed or a stop was asked for."""
END_S = 60.0
"""How long a coordinator that ends by itself may take to write the results."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a launch ended: its exit code and, unless it is 0, one line that says why."""

    exit_code: ExitCode
    reason: str


@dataclass(slots=True)
class _Child:
    name: str
    process: asyncio.subprocess.Process
    log_path: Path
    exited: asyncio.Task[int]


class Launcher:
    """Runs ``run`` under ``out``; ``on_status`` gets the coordinator's status a few times a second."""

    def __init__(
        self,
        run: RunConfig,
        out: OutDir,
        *,
        durability: Literal["process", "power"] = "process",
        test_keystream: str | None = None,
        on_status: Callable[[m.StatusReply], None] | None = None,
        log_level: str = "info",
    ) -> None:
        self._run = run
        self._out = out
        self._insecure = run.runtime.channel == "plain"
        self._durability = durability
        self._test_keystream = test_keystream
        self._on_status = on_status
        self._log_level = log_level
        self._tls = out.path / "tls"
        self._coordinator: _Child | None = None
        self._nodes: dict[str, _Child] = {}
        self._interrupts = 0
        self._wake = asyncio.Event()
        self._security = Security()

    async def run(self) -> Ended:
        """Start everything, wait for the end, leave nothing behind."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt)
        try:
            address = await self._start()
            if address is None:
                return await self._early_end()
            return await self._watch(address)
        finally:
            await self._reap()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            for child in self._children():
                _signal(child, signal.SIGKILL)
        self._wake.set()

    # --- start --------------------------------------------------------------------------------------------------

    async def _start(self) -> str | None:
        out = self._out.path
        with blamed(out / ADDRESS_FILE):
            (out / ADDRESS_FILE).unlink(missing_ok=True)
        if not self._insecure:
            self._mint()
        self._security = Security.from_folder(None if self._insecure else self._tls / "coordinator")
        arguments = ["coordinator", "--config", str(out / RUN_FILE), "--listen", f"{LOOPBACK}:0", "--out", str(out)]
        arguments += ["--insecure"] if self._insecure else ["--tls", str(self._tls / "coordinator")]
        self._coordinator = await self._spawn("coordinator", arguments, out / "coordinator.log")
        address = await self._coordinator_address()
        if address is None:
            return None
        for i, name in enumerate(self._run.graph.agents):
            folder = out / "agents" / name
            config = folder / "node.toml"
            node = self._node(i, name, folder, address)
            if config.exists():  # an earlier start's: what its owner wrote there about the data stays
                kept = load_node(config)
                node = replace(node, policy=kept.policy, data_id=kept.data_id)
            with blamed(config):
                write_atomically(config, node_to_toml(node))
            child = await self._spawn(name, ["node", "--config", str(config)], folder / "node.log")
            self._nodes[name] = child
            with blamed(folder / "node.pid"):
                (folder / "node.pid").write_text(f"{child.process.pid}\n", encoding="utf-8")
        return address

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
            listen=f"{LOOPBACK}:0",
            advertise=None,
            coordinator=address,
            state_dir=(folder / "state").resolve(),
            tls=tls,
            shard=i + 1,
            durability=self._durability,
        )

    async def _spawn(self, name: str, arguments: list[str], log_path: Path) -> _Child:
        with blamed(log_path):
            log_path.parent.mkdir(parents=True, exist_ok=True)
            output: IO[bytes] = log_path.open("ab")
        command = [sys.executable, "-m", "dpgt_node", "--log-level", self._log_level, *arguments]
        command += ["--die-with-parent", str(os.getpid())]
        if self._test_keystream is not None:
            command += ["--test-keystream", self._test_keystream]
        with output:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        exited = asyncio.ensure_future(process.wait())
        exited.add_done_callback(lambda _: self._wake.set())
        return _Child(name, process, log_path, exited)

    async def _coordinator_address(self) -> str | None:
        assert self._coordinator is not None
        end = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while asyncio.get_running_loop().time() < end and not self._interrupts and not self._coordinator.exited.done():
            found = read_address(self._out.path)
            if found is not None and found.pid == self._coordinator.process.pid:
                return found.address
            await asyncio.sleep(0.02)
        return None

    async def _early_end(self) -> Ended:
        assert self._coordinator is not None
        if self._interrupts:
            return Ended(ExitCode.STOPPED, "interrupted")
        if not self._coordinator.exited.done():
            return Ended(ExitCode.REFUSED, f"the coordinator did not start within {START_TIMEOUT_S:g} s")
        return self._verdict(self._coordinator)

    # --- watch --------------------------------------------------------------------------------------------------

    async def _watch(self, address: str) -> Ended:
        assert self._coordinator is not None
        loop = asyncio.get_running_loop()
        failed: _Child | None = None
        failed_at = float("inf")
        stopping = False
        deadline = float("inf")
        async with self._security.opener(COORDINATOR_IDENTITY)(address) as channel:
            while not self._coordinator.exited.done():
                self._wake.clear()
                if self._interrupts and not stopping:
                    stopping, deadline = True, loop.time() + GRACE_S
                    await self._ask_stop(channel, "interrupted at the launcher")
                if failed is None and (failed := next((c for c in self._nodes.values() if _failed(c)), None)):
                    failed_at = loop.time()
                if loop.time() > failed_at + TELL_S and not stopping:
                    assert failed is not None
                    if await self._goes_on(channel):
                        # It could not tell the coordinator why it left; the rest must not wait for it.
                        stopping, deadline = True, loop.time() + GRACE_S
                        await self._ask_stop(channel, self._verdict(failed).reason)
                    else:  # it left because the run ends; the coordinator is writing the results
                        failed_at, deadline = float("inf"), min(deadline, loop.time() + END_S)
                if loop.time() > deadline:
                    break
                await self._poll(channel)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), POLL_S)
        if self._interrupts:
            return Ended(ExitCode.STOPPED, "interrupted")
        if failed is not None and (stopping or not _failed(self._coordinator)):
            return self._verdict(failed)
        if not self._coordinator.exited.done():
            return Ended(ExitCode.BUG, "the coordinator did not end")
        return self._verdict(self._coordinator)

    async def _poll(self, channel: grpc.aio.Channel) -> None:
        if self._on_status is None:
            return
        with contextlib.suppress(PeerError):
            self._on_status(await services.status(channel, timeout_s=2.0))

    async def _goes_on(self, channel: grpc.aio.Channel) -> bool:
        """Whether the coordinator still means to make rounds."""
        with contextlib.suppress(PeerError):
            return (await services.status(channel, timeout_s=3.0)).state in ("waiting", "running", "paused")
        return False

    async def _ask_stop(self, channel: grpc.aio.Channel, reason: str) -> None:
        with contextlib.suppress(PeerError):
            await services.control(channel, m.ControlRequest("stop", reason[:1000]), timeout_s=3.0)

    def _verdict(self, child: _Child) -> Ended:
        code = child.exited.result() if child.exited.done() else None
        line = _last_line(child.log_path)
        if code == 0:
            return Ended(ExitCode.DONE, "")
        if code is None:
            return Ended(ExitCode.PEER_LOST, f"{child.name} hangs")
        if code < 0:
            number = signal.Signals(-code).name
            return Ended(ExitCode.PEER_LOST, f"{child.name} was lost: killed by {number} (log: {child.log_path})")
        try:
            return Ended(
                ExitCode(code), self._said(child, line) or f"{child.name} exited {code} (log: {child.log_path})"
            )
        except ValueError:
            return Ended(ExitCode.BUG, f"{child.name} exited {code} (log: {child.log_path})")

    def _said(self, child: _Child, line: str) -> str:
        return f"{child.name}: {line}" if line and child is not self._coordinator else line

    # --- end ----------------------------------------------------------------------------------------------------

    def _children(self) -> list[_Child]:
        return [*self._nodes.values(), *([self._coordinator] if self._coordinator else [])]

    async def _reap(self) -> None:
        """Every child is gone when this returns."""
        for number, patience_s in ((None, 3.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
            alive = [child for child in self._children() if not child.exited.done()]
            if not alive:
                break
            if number is not None:
                for child in alive:
                    _signal(child, number)
            await asyncio.wait([child.exited for child in alive], timeout=0.0 if self._interrupts > 1 else patience_s)


def _signal(child: _Child, number: signal.Signals) -> None:
    if not child.exited.done():
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(number)


def _failed(child: _Child) -> bool:
    return child.exited.done() and child.exited.result() != 0


def _last_line(path: Path) -> str:
    """The last line a child printed that says a cause: by house rule ``dpgt VERB: cause``, else its last warning."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return ""
    said = [line.partition(": ")[2] for line in lines if line.startswith("dpgt ")]
    warned = [line for line in lines if " INFO " not in line]
    return (said or warned or lines or [""])[-1]
