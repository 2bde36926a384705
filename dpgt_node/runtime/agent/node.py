"""One agent daemon: serves its in-neighbours, dials its out-neighbours, follows the coordinator, and ends with the
run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpgt_node import __version__
from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import (
    NodeConfig,
    RunConfig,
    canonical_json,
    format_address,
    is_wildcard,
    parse_address,
    run_sha256,
)
from dpgt_node.errors import (
    BudgetReached,
    ConfigError,
    DpgtError,
    ExitCode,
    PeerError,
    PeerLost,
    RefusedError,
    StoreError,
)
from dpgt_node.learning.oracle import Oracle
from dpgt_node.privacy.laws.keystream import AesCtrKeystream, TestKeystream
from dpgt_node.privacy.laws.noise import Keystream
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent import AgentMachine
from dpgt_node.protocol.types import (
    AllDurable,
    Dismissed,
    Finish,
    Go,
    Payload,
    Recovered,
    Started,
    StopRequested,
)
from dpgt_node.record.metrics import MetricsStore
from dpgt_node.record.recording import Recording, wanted
from dpgt_node.record.released import window_start
from dpgt_node.runtime.agent.budget import obey, terms_of
from dpgt_node.runtime.agent.driver import CHECKPOINT_ROUNDS, NOT_RECORDED, AgentDriver
from dpgt_node.runtime.agent.edge_watch import EdgeWatch
from dpgt_node.runtime.agent.inbound import Inbound, Session
from dpgt_node.runtime.agent.links import Link
from dpgt_node.runtime.agent.reporting import Reporter
from dpgt_node.runtime.agent.study import StudyUploader
from dpgt_node.runtime.agent.uplink import Uplink
from dpgt_node.runtime.clock import heartbeat_s
from dpgt_node.runtime.store.disk import agent_need, require_room, still_needed, used_bytes
from dpgt_node.runtime.store.faults import blamed
from dpgt_node.runtime.store.ledger import Charge
from dpgt_node.runtime.store.store import Store
from dpgt_node.runtime.trust.channels import Security, agent_identity
from dpgt_node.wire import services
from dpgt_node.wire.health import serve_health

log = logging.getLogger(__name__)

FAREWELL_S = 2.0


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """Everything a daemon is built from, checked.  ``oracle`` was built from this host's own shard.  ``dial``: where
    peers are dialled that are not dialled where they say they listen.
    """

    config: NodeConfig
    run: RunConfig
    index: int
    oracle: Oracle
    security: Security
    test_keystream: str | None = None
    dial: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.config.name


class Node:
    """Runs one agent through one run.  ``serve`` returns the exit code; errors of the operator and of peers are
    raised.
    """

    def __init__(self, setup: NodeSetup) -> None:
        self._setup = setup
        self._run = setup.run
        self._topology = Topology.from_config(setup.run.graph)
        self._schedule = Schedule.from_config(setup.run)
        self._network = network_of(setup.run, self._topology)
        self._study = setup.run.evaluate.metrics == "study"
        self._store = Store(setup.config.state_dir, setup.config.durability)
        self._work = AgentWork(
            setup.run,
            self._topology,
            self._schedule,
            setup.index,
            setup.oracle,
            self._keystream(),
            sampler_for(setup.run),
        )
        self._inbound = Inbound(self._network, setup.index)
        self._instance = os.urandom(16)
        self._sha256 = run_sha256(setup.run)
        self._json = canonical_json(setup.run)
        try:
            self._run_id: bytes | None = self._store.find_run(self._sha256, setup.name)
            if setup.config.disk_check:
                self._require_room()
        except DpgtError:
            self._store.close()
            raise
        self._advertise = ""
        self._driver: AgentDriver | None = None
        self._links: dict[int, Link] = {}
        self._link_tasks: list[asyncio.Task[None]] = []
        self._edges: EdgeWatch | None = None
        self._reporter: Reporter | None = None
        self._welcome_again = False
        self._stop_code = ExitCode.STOPPED
        self._stop_heard = asyncio.Event()
        self._charges: tuple[Charge, ...] = ()
        self._refusal: m.Refusal | None = None
        self._shortfall: str | None = None
        self._failure: asyncio.Future[ExitCode] = asyncio.get_running_loop().create_future()
        self._interrupted = asyncio.Event()
        open_coordinator = setup.security.dialler(setup.config.tls.coordinator_id)
        self._open_coordinator = lambda: open_coordinator(setup.config.coordinator)
        self._uplink = Uplink(
            self._open_coordinator,
            setup.config.coordinator,
            setup.name,
            self._register,
            self._received,
            # With its result saved it comes back only in case somebody still needs it.
            first_patience_s=setup.run.runtime.round_timeout_s
            if self._saved()
            else setup.run.runtime.register_timeout_s,
            patience_s=setup.run.runtime.round_timeout_s,
            heartbeat_s=heartbeat_s(setup.run.runtime.round_timeout_s),
        )

    def _require_room(self) -> None:
        """Before anything is drawn: a disk that fills up in mid-run stops everybody."""
        setup, K = self._setup, self._run.K
        oracle = setup.oracle
        batch = None if oracle.samples is None else self._schedule.m_for(oracle.samples)
        need = agent_need(self._run, setup.name, oracle.dimension, batch, oracle.sample_size)
        released = next((run.last_durable_round for run in self._store.runs() if run.run_id == self._run_id), -1)
        held = used_bytes(setup.config.state_dir / "blobs")
        require_room(
            setup.config.state_dir,
            still_needed(need, K, released, held),
            source=setup.name,
            key="state_dir",
            hint="free some, give another state_dir, or set disk_check = false in NODE.toml to try all the same",
        )

    def _keystream(self) -> Keystream:
        if self._setup.test_keystream is not None:
            return TestKeystream(self._setup.test_keystream, self._setup.index)
        return AesCtrKeystream(*_fresh_key(), rekey=_fresh_key, process=os.getpid)

    def interrupt(self) -> None:
        """The operator wants this process to end; its state stays as it is and the run may go on with a restart."""
        self._interrupted.set()

    # --- life ---------------------------------------------------------------------------------------------------

    async def serve(self) -> ExitCode:
        """Register, take part, write the result."""
        try:
            return await self._serve()
        finally:
            self._store.close()

    async def _serve(self) -> ExitCode:
        await asyncio.to_thread(self._work.prepare)
        self._charges = await asyncio.to_thread(self._store.charges)
        server = services.server(self._topology.n)
        server.add_generic_rpc_handlers((services.agent_handler(self._inbound, self._setup.security.guard),))
        config = self._setup.config
        host, _ = parse_address(config.listen)
        port = services.bind(server, config.listen, self._setup.security.server_credentials(), "NODE.toml")
        self._advertise = self._advertised(host, port)
        await serve_health(server, services.AGENT_SERVICE)
        await server.start()
        log.info("%s listens on %s, advertised as %s", config.name, format_address(host, port), self._advertise)
        uplink = asyncio.ensure_future(self._uplink.run())
        trust = asyncio.ensure_future(self._setup.security.watch())
        outcome = asyncio.ensure_future(self._outcome())
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        waiting: list[asyncio.Future[Any]] = [uplink, outcome, interrupted, self._failure]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return await self._conclude(uplink, outcome)
        finally:
            tasks: list[asyncio.Future[Any]] = [*waiting, trust, *self._link_tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._driver is not None:
                await self._driver.close()
            if self._reporter is not None:
                await self._reporter.close()
            await self._inbound.drained(FAREWELL_S)
            await self._inbound.close(FAREWELL_S)
            await server.stop(grace=0)

    async def _conclude(self, uplink: asyncio.Future[None], outcome: asyncio.Future[Finish]) -> ExitCode:
        if outcome.done():
            try:
                finish = outcome.result()
                if finish.status == "budget":
                    raise BudgetReached(f"{finish.reason}: {self._shortfall}")
            except DpgtError as error:
                # The others must know why they wait in vain.
                await self._tell(m.Failed(int(error.exit_code), str(error)[:1000] or type(error).__name__))
                raise
            if finish.status == "finished":
                return ExitCode.DONE
            log.warning("stopped: %s", finish.reason)
            return self._stop_code
        if self._failure.done():
            if self._refusal is not None:
                await self._tell(self._refusal)
            elif isinstance(lost := self._failure.exception(), PeerLost):
                await self._tell(m.Failed(int(lost.exit_code), str(lost)[:1000]))
            return self._failure.result()
        if uplink.done():
            try:
                uplink.result()
            except PeerError as error:
                if not self._saved():
                    raise
                # Nobody asks for more than a saved result; whoever still waits for this agent's payloads names it.
                log.warning("%s; the result is saved (start this node again if the others have to go on)", error)
                return ExitCode.DONE
        log.warning("interrupted in round %s", self._driver.machine.k if self._driver else "-")
        return ExitCode.STOPPED

    async def _tell(self, last_word: m.Failed | m.Refusal) -> None:
        """Say why this agent leaves, and wait until the coordinator acts on it: it then stops everybody."""
        self._uplink.send(last_word)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stop_heard.wait(), FAREWELL_S)

    async def _outcome(self) -> Finish:
        while self._driver is None:
            await asyncio.sleep(0.01)
        return await self._driver.outcome

    def _advertised(self, host: str, port: int) -> str:
        if self._setup.config.advertise is not None:
            advertised_host, advertised_port = parse_address(self._setup.config.advertise)
            return format_address(advertised_host, advertised_port or port)
        if is_wildcard(host):
            raise ConfigError.one(
                str(self._setup.config.name), "advertise", f"is needed: peers cannot dial the wildcard address {host}"
            )
        return format_address(host, port)

    # --- the coordinator's messages -----------------------------------------------------------------------------

    def _register(self) -> m.Register:
        machine = self._driver.machine if self._driver else None
        released, done, durable = self._progress()
        return m.Register(
            name=self._setup.name,
            run_sha256=self._sha256,
            run_json=self._json,
            advertise=self._advertise,
            samples=self._setup.oracle.samples,
            dimension=self._setup.oracle.dimension,
            shape_sha256=self._setup.oracle.shape_sha256,
            last_released_round=released,
            last_done_round=done,
            last_durable_round=durable,
            finished=machine is not None and machine.done_through == self._run.K,
            run_id=self._run_id or b"",
            instance=self._instance,
            package_version=__version__,
        )

    def _progress(self) -> tuple[int, int, int]:
        """Last round (released, mixed, never asked for again), from the machine or from the store."""
        if self._driver is not None:
            machine = self._driver.machine
            return machine.released_through, machine.done_through, machine.durable_through
        if self._run_id is None:
            return -1, -1, -1
        if self._store.is_finished(self._run_id):
            return self._run.K, self._run.K, self._run.K
        recovered = self._store.recover(self._run_id)
        if recovered is None:
            return -1, -1, -1
        k = recovered.checkpoint.k
        return k + len(recovered.records) - 1, k - 1, k - 1

    def _received(self, message: m.CoordinatorMessage) -> None:
        try:
            self._handle(message)
        except Exception as error:  # becomes the outcome of the process, whatever it is
            if not self._failure.done():
                self._failure.set_exception(error)

    def _handle(self, message: m.CoordinatorMessage) -> None:
        match message:
            case m.GoMessage(through):
                self._need_driver().feed(Go(through))
            case m.AllDurableMessage(through):
                self._need_driver().feed(AllDurable(through))
            case m.Welcome():
                self._welcome(message)
            case m.Refused(kind, reason):
                error = RefusedError(f"the coordinator refused {self._setup.name}: {reason}")
                error.exit_code = ExitCode.CONFIG if kind == "run-hash" else ExitCode.REFUSED
                raise error
            case m.Start(peers, go_through):
                self._start(dict(peers), go_through)
            case m.StopMessage(reason, exit_code):
                self._stop_code = self._code_of(exit_code)
                self._stop_heard.set()
                if self._driver is None:
                    raise RefusedError(f"the run does not begin: {reason}")
                self._driver.feed(StopRequested(reason))
            case m.Goodbye():
                if not self._saved():
                    raise PeerError("the coordinator said goodbye before the result was saved")
                if self._driver is not None:
                    self._driver.feed(Dismissed())
                elif not self._failure.done():  # it came back for nothing: the run was over
                    self._failure.set_result(ExitCode.DONE)
            case _:
                raise PeerError("the coordinator sent an unexpected message")

    def _saved(self) -> bool:
        """Whether this agent's x_final is durable."""
        if self._driver is not None:
            return self._driver.machine.durable_through == self._run.K
        return self._run_id is not None and self._store.is_finished(self._run_id)

    def _code_of(self, stop: int) -> ExitCode:
        """How to exit after Stop: no coordinator can make an unfinished run look done, nor this process buggy."""
        code = next((code for code in ExitCode if code == stop), ExitCode.STOPPED)
        mistaken = code is ExitCode.BUG or (code is ExitCode.DONE and not self._saved())
        return ExitCode.STOPPED if mistaken else code

    def _need_driver(self) -> AgentDriver:
        if self._driver is None:
            raise PeerError("the coordinator spoke of rounds before Welcome")
        return self._driver

    def _welcome(self, welcome: m.Welcome) -> None:
        if welcome.protocol_version != m.PROTOCOL_VERSION or welcome.package_version != __version__:
            raise RefusedError(f"the coordinator runs dpgt-node {welcome.package_version}, this is {__version__}")
        if welcome.run_json != self._json:
            # The owner of the data decides: nothing is released under a run this host has no copy of.
            raise ConfigError.one(str(self._setup.config.run), "", "the coordinator's run differs from this copy")
        if self._driver is not None:
            if welcome.run_id != self._run_id:
                raise PeerError("the coordinator came back with another run")
            self._welcome_again = True
            self._uplink.send(m.Ready(), first=True)
            return
        self._open_session(welcome)
        self._uplink.send(m.Ready(), first=True)

    def _open_session(self, welcome: m.Welcome) -> None:
        setup, run, run_id = self._setup, self._run, welcome.run_id
        self._run_id = run_id
        try:
            if welcome.ledger_head and not self._store.passed_through(
                run_id, welcome.ledger_round, welcome.ledger_head
            ):
                raise StoreError(
                    f"{setup.config.state_dir}: an old state directory or another one: the coordinator remembers a "
                    f"ledger of {setup.name} through round {welcome.ledger_round} that this one never was; nothing was "
                    "drawn again. Put the newest state directory back, or start a new run"
                )
            recovered = self._store.recover(run_id)
            finished = self._store.final(run_id) if self._store.is_finished(run_id) else None
            budget_through = None
            if finished is None:  # whoever has the result releases nothing new
                verdict = obey(setup.config, run, self._work.account, setup.oracle.samples, self._charges, run_id)
                budget_through, self._shortfall = verdict.budget_through, verdict.shortfall
            terms = terms_of(setup.config.data_id, run)
            self._store.begin_run(run_id, self._sha256, setup.name, terms, average_from=window_start(run.K))
            recording = self._recording(run_id, recovered) if finished is None else None
        except (StoreError, RefusedError) as error:
            kind: m.RefusalKind = "policy" if isinstance(error, RefusedError) else "data"
            self._refusal = m.Refusal(kind, str(error)[:1000])
            raise
        if recovered is not None:
            log.info("going on from round %d of run %s", recovered.checkpoint.k, run_id.hex())
        machine = AgentMachine(
            self._network.edges(self._setup.index),
            run.K,
            evaluate_every=run.evaluate.every,
            checkpoint_every=CHECKPOINT_ROUNDS,
            run_ahead=run.runtime.barrier_every,
            stall_ns=int(2e9 * heartbeat_s(run.runtime.round_timeout_s)),
            budget_through=budget_through,
            recovered=recovered,
            finished=finished,
        )
        for index in machine.peers:
            name = self._topology.names[index]
            self._links[index] = Link(
                index,
                name,
                setup.name,
                run_id,
                setup.security.dialler(agent_identity(name)),
                lambda event: self._need_driver().feed(event),
                self._read_payloads,
                patience_s=run.runtime.register_timeout_s,
                silence_s=run.runtime.round_timeout_s,
            )
        self._edges = EdgeWatch(
            self._topology.names,
            machine,
            self._links,
            self._inbound,
            self._uplink.send,
            heartbeat_s=heartbeat_s(run.runtime.round_timeout_s),
            patience_s=run.runtime.round_timeout_s,
        )
        local = None if self._study else MetricsStore(setup.config.state_dir)
        if local is not None:
            log.info("metrics stay on this host: %s", local.path)
        self._reporter = Reporter(
            self._topology.names,
            setup.index,
            run.K,
            self._work,
            self._uplink.send,
            uploader=StudyUploader(self._open_coordinator, run_id, setup.name) if self._study else None,
            local=local,
            releases=lambda: self._store.releases(run_id),
            bytes_sent=lambda: sum(link.bytes_sent for link in self._links.values()),
            failed=self._fail,
            stalled=self._edges.stalled,
        )
        self._driver = AgentDriver(
            machine,
            self._work,
            self._store,
            run_id,
            self._links,
            self._reporter,
            commit_inline=setup.config.durability == "process",
            recording=recording,
        )
        self._inbound.begin(Session(run_id, self._driver, self._work.wire_dtype, self._work.dimension, run.K))

    def _recording(self, run_id: bytes, recovered: Recovered | None) -> Recording | None:
        setup, state_dir = self._setup, self._setup.config.state_dir
        if not wanted(setup.run, setup.name):
            return None
        recording = Recording(
            state_dir,
            setup.run,
            self._topology,
            setup.index,
            run_id,
            self._work,
            source=f"{setup.name}, dpgt node",
            sync=setup.config.durability == "power",
            now_ns=time.time_ns,
        )
        with blamed(state_dir, NOT_RECORDED):
            recording.begin(recovered)
        log.info("recording in %s", state_dir)
        return recording

    def _start(self, peers: dict[str, str], go_through: int) -> None:
        driver = self._need_driver()
        for index, link in self._links.items():
            name = self._topology.names[index]
            if name not in peers:
                raise PeerError(f"the coordinator gave no address of {name}")
            link.dial(self._setup.dial.get(name, peers[name]))
        if not self._link_tasks:
            assert self._edges is not None
            jobs = [*(link.run() for link in self._links.values()), self._edges.run()]
            self._link_tasks = [asyncio.ensure_future(job) for job in jobs]
            for task in self._link_tasks:
                task.add_done_callback(self._link_ended)
        driver.feed(Started(go_through))
        if self._reporter is not None:
            # A coordinator that came back takes results once everybody is here again, which is what Start says.
            self._reporter.repeat(metrics=self._welcome_again)
            self._welcome_again = False

    def _link_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def _read_payloads(self, k: int) -> tuple[Payload, ...]:
        assert self._run_id is not None
        return await self._need_driver().in_store_thread(lambda: self._store.payloads(self._run_id or b"", k))


def _fresh_key() -> tuple[bytes, bytes]:
    return os.urandom(16), os.urandom(16)


async def say_refusal(setup_name: str, coordinator: str, security: Security, coordinator_id: str, reason: str) -> None:
    """Tell the coordinator that this agent cannot take part; silence when it cannot be reached."""
    with contextlib.suppress(PeerError, asyncio.TimeoutError):
        async with security.dialler(coordinator_id)(coordinator) as channel:
            call = services.join(channel, setup_name)
            async with asyncio.timeout(FAREWELL_S):
                await call.write(m.Refusal("data", reason[:1000]))
                await call.done_writing()
                await call.read()
