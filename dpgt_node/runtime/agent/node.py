"""One agent daemon: serves its in-neighbours, dials its out-neighbours, follows the coordinator, and ends with the
run.

What it does and when is its session's (``protocol.agent.session``); here it gets its sockets, threads, files and clock.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import field
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
)
from dpgt_node.errors import ConfigError, DpgtError, ExitCode
from dpgt_node.learning.common import Metrics, Oracle
from dpgt_node.privacy.laws.keystream import AesCtrKeystream, TestKeystream
from dpgt_node.privacy.laws.noise import Keystream
from dpgt_node.privacy.laws.pairs import PairKeys, TestPairKeys
from dpgt_node.protocol import calls as c
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.phase import Phase
from dpgt_node.protocol.agent.session import Session
from dpgt_node.protocol.clock import SECOND, heartbeat_ns
from dpgt_node.protocol.types import Advance, DrawRelease, Persist
from dpgt_node.record.metrics import MetricsStore
from dpgt_node.runtime import process
from dpgt_node.runtime.agent.driver import AgentDriver
from dpgt_node.runtime.agent.opening import Opening
from dpgt_node.runtime.agent.refusal import FAREWELL_S
from dpgt_node.runtime.agent.reporting import Reporter
from dpgt_node.runtime.agent.sharing import agreement_of, require_means
from dpgt_node.runtime.agent.standing import Watch
from dpgt_node.runtime.agent.streams import Dialler, Edges, Neighbours
from dpgt_node.runtime.agent.study import StudyUploader
from dpgt_node.runtime.calls import Calls
from dpgt_node.runtime.interpreter import Asides, Interpreter, carried_through
from dpgt_node.runtime.pacing import Ticks
from dpgt_node.runtime.store.keyed import OwnerKey
from dpgt_node.runtime.store.ledger import SYSTEM, TEST
from dpgt_node.runtime.store.limits import CHECKPOINT_ROUNDS
from dpgt_node.runtime.store.store import Store
from dpgt_node.runtime.trust.channels import Security
from dpgt_node.runtime.watching.sites import HEALTH, METRICS, Sites
from dpgt_node.types import F64
from dpgt_node.values import dataclass
from dpgt_node.wire import services
from dpgt_node.wire.health import Health, serve_health
from dpgt_node.wire.traffic.padding import reply_unit, report_unit

log = logging.getLogger(__name__)
_OF_A_ROUND = frozenset({Advance, DrawRelease, Persist})


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """Everything a daemon is built from, checked.  ``oracle`` was built from this host's own shard.  ``dial``: where
    peers are dialled that are not dialled where they say they listen.  ``shard_sha256``: of the shard, empty without
    data; PRIVATE.  ``sites``: for metrics.
    """

    config: NodeConfig
    run: RunConfig
    index: int
    oracle: Oracle
    security: Security
    test_keystream: str | None = None
    dial: Mapping[str, str] = field(default_factory=dict)
    shard_sha256: bytes = field(default=b"", repr=False)
    sites: Sites = field(default_factory=lambda: Sites({}))

    @property
    def name(self) -> str:
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
        if setup.test_keystream is None:
            source, durability = str(setup.config.name), setup.config.durability
            require_means(setup.run, source, secure=setup.security.secure, durability=durability)
        state_dir, key = setup.config.state_dir, setup.config.ledger_key
        self._store = Store(state_dir, setup.config.durability, None if key is None else OwnerKey.read(key, state_dir))
        self._work = AgentWork(
            setup.run,
            self._topology,
            self._schedule,
            setup.index,
            setup.oracle,
            self._keystream(),
            sampler_for(setup.run),
            self._pair_keys(),
        )
        self._agreement = agreement_of(setup.config, setup.run, setup.security, self._store)
        self._opening = Opening(
            setup.config,
            setup.run,
            self._topology,
            setup.index,
            self._work,
            self._store,
            shard_sha256=setup.shard_sha256,
            keystream=SYSTEM if setup.test_keystream is None else TEST,
            agreement=self._agreement,
        )
        try:
            if setup.config.disk_check:
                self._require_room()
        except DpgtError:
            self._store.close()
            raise
        self._edges = Edges(setup.run, self._network, setup.index, self._work)
        self._run_id = b""
        self._advertise = ""
        self._interrupted = False
        self._asides = Asides(self._broken)
        self._driver: AgentDriver | None = None
        self._reporter: Reporter | None = None
        self._uploader: StudyUploader | None = None
        self._ended: asyncio.Future[ExitCode] = asyncio.get_running_loop().create_future()
        setup.security.patience_s = setup.run.runtime.round_timeout_s
        coordinator, unit = setup.config.tls.coordinator_id, report_unit(setup.run)
        self._vector_bytes = 8 * self._work.dimension
        self._dial = Dialler(setup.name, setup.security, coordinator, setup.dial, self._vector_bytes, unit)
        interval_ms = setup.run.traffic.interval_ms
        ticks = None if interval_ms is None else Ticks(interval_ms / 1000)
        self._calls = Calls(setup.name, self._feed, self._broken, self._dial, self._edges.framing, ticks)
        self._interpreter: Interpreter | None = None
        self.session: Session | None = None
        """What this process does, once it serves."""

    def _require_room(self) -> None:
        """Before anything is drawn: a disk that fills up in mid-run stops everybody."""
        oracle = self._setup.oracle
        batch = None if oracle.samples is None else self._schedule.m_for(oracle.samples)
        self._opening.require_room(batch, oracle.sample_size)

    def _keystream(self) -> Keystream:
        if self._setup.test_keystream is not None:
            return TestKeystream(self._setup.test_keystream, self._setup.index)
        return AesCtrKeystream(*_fresh_key(), rekey=_fresh_key, process=os.getpid)

    def _pair_keys(self) -> PairKeys:
        test = self._setup.test_keystream
        return self._store.pairs if test is None else TestPairKeys(test, self._setup.index)

    def interrupt(self) -> None:
        """The operator wants this process to end; its state stays as it is and the run may go on with a restart."""
        self._interrupted = True
        self._feed(s.Interrupted())

    # --- life ---------------------------------------------------------------------------------------------------

    async def serve(self) -> ExitCode:
        """Register, take part, write the result."""
        try:
            return await self._serve()
        finally:
            self._store.close()

    async def _serve(self) -> ExitCode:
        await carried_through(asyncio.to_thread(self._work.prepare))
        held = await carried_through(asyncio.to_thread(self._opening.held))
        partners = () if self._agreement is None else self._agreement.partners
        peers = s.Peers(self._network.names, self._setup.index, self._edges.streams_in, partners, self._edges.covered)
        self.session = Session(self._terms(), peers, held, self._make_agent)
        self._interpreter = Interpreter(self.session, self._carry_out, self._broken)
        server = services.server(self._topology.n, self._run.runtime.round_timeout_s, vector_bytes=self._vector_bytes)
        config, setup, health = self._setup.config, self._setup, None
        samples, free = setup.oracle.samples, setup.test_keystream is not None
        watch = Watch(self._run, self._work, self.session, self._edges.carried, samples, free=free)
        trust = asyncio.ensure_future(setup.security.watch())
        try:
            neighbours, unit = Neighbours(self._calls), reply_unit(self._run)
            server.add_generic_rpc_handlers((services.agent_handler(neighbours, setup.security.guard, unit),))
            host, _ = parse_address(config.listen)
            port = services.bind(server, config.listen, setup.security.server_credentials(), "NODE.toml")
            await setup.sites.open()
            self._advertise = self._advertised(host, port)
            health = await serve_health(server, services.AGENT_SERVICE)
            await server.start()
            log.info("%s listens on %s, advertised as %s", config.name, format_address(host, port), self._advertise)
            self._open_pages(self.session, watch, health)
            process.give_back()
            self._feed(s.Begin(self._advertise))
            if self._interrupted:
                self._feed(s.Interrupted())
            return await self._ended
        finally:
            if health is not None:
                health.leave()
            self._interpreter.stop()
            watch.close()
            trust.cancel()
            try:
                await carried_through(self._leave(trust))  # the store is closed next: no thread may be at it
            finally:
                await carried_through(server.stop(grace=0))

    async def _leave(self, trust: asyncio.Future[None]) -> None:
        await self._asides.over()
        await asyncio.gather(trust, return_exceptions=True)
        if self._driver is not None:
            agent = None if self.session is None else self.session.agent
            await self._driver.close(ended=agent is not None and agent.phase is Phase.ENDED)
            self._opening.ended(self._run_id)
        if self._uploader is not None:
            await self._uploader.close()
        if self._reporter is not None:
            self._reporter.close()
        await self._calls.close(FAREWELL_S)
        await self._setup.sites.close()

    def _open_pages(self, session: Session, watch: Watch, health: Health) -> None:
        sites = self._setup.sites
        if sites.wants(METRICS):
            from dpgt_node.runtime.agent import exported
            from dpgt_node.runtime.watching.exposition import PATH, metrics_page

            name, run = self._setup.name, self._run.name
            page = metrics_page(exported.FAMILIES, lambda: exported.samples(name, run, watch, session))
            sites.add(METRICS, {PATH: page}, PATH)
        if sites.wants(HEALTH):
            from dpgt_node.runtime.watching.probes import READY, probe_pages

            sites.add(HEALTH, probe_pages(health), READY)

    def _terms(self) -> s.Terms:
        setup, runtime = self._setup, self._run.runtime
        return s.Terms(
            coordinator=setup.config.coordinator,
            run_json=canonical_json(setup.run),
            run_sha256=self._opening.sha256,
            run_source=str(setup.config.run),
            state_source=str(setup.config.state_dir),
            package_version=__version__,
            instance=os.urandom(16),
            last_round=self._run.K,
            samples=setup.oracle.samples,
            dimension=setup.oracle.dimension,
            shape_sha256=setup.oracle.shape_sha256,
            heartbeat_ns=heartbeat_ns(runtime.round_timeout_s),
            first_patience_ns=int(runtime.register_timeout_s * SECOND),
            patience_ns=int(runtime.round_timeout_s * SECOND),
            distrust_ns=int(runtime.register_timeout_s * SECOND),
            farewell_ns=int(FAREWELL_S * SECOND),
        )

    def _advertised(self, host: str, port: int) -> str:
        if self._setup.config.advertise is not None:
            advertised_host, advertised_port = parse_address(self._setup.config.advertise)
            return format_address(advertised_host, advertised_port or port)
        if is_wildcard(host):
            raise ConfigError.one(
                str(self._setup.config.name), "advertise", f"is needed: peers cannot dial the wildcard address {host}"
            )
        return format_address(host, port)

    # --- the session's interpreter ------------------------------------------------------------------------------

    def _feed(self, event: Any) -> None:
        if self._interpreter is not None:
            self._interpreter.feed(event)

    def _broken(self, error: BaseException) -> None:
        """A bug, here or in a machine: it becomes the outcome of the process, whatever it is."""
        if not self._ended.done():
            self._ended.set_exception(error)
        elif not isinstance(error, asyncio.CancelledError):
            log.error("after the run ended: %s", error)

    def _carry_out(self, effect: Any) -> None:
        if type(effect) in _OF_A_ROUND and self._driver is not None:
            self._driver.carry_out(effect)
            return
        match effect:
            case c.Write() | c.Dial() | c.Hold() | c.ReadOn() | c.End():
                self._calls.carry_out(effect)
            case c.Note(level, text):
                log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)
            case s.ReadRun():
                self._asides.do(lambda: self._opening.read(effect), self._feed)
            case s.BeginRun():
                samples = self._setup.oracle.samples
                self._asides.do(lambda: self._opening.begin(effect, samples), lambda begun: self._begin(effect, begun))
            case s.CheckRing() if self._agreement is not None:
                self._feed(self._agreement.check(effect))
            case s.KeepKeys() if self._agreement is not None:
                self._feed(self._agreement.keep())
            case s.Upload(k, x):
                if self._uploader is not None:
                    self._uploader.put(k, x)
            case s.MakeReport(bytes_sent):
                if self._reporter is not None:
                    self._feed(self._reporter.result(bytes_sent))
            case s.Exit(code, error):
                self._exit(code, error)
            case _:
                if self._driver is not None:
                    self._driver.carry_out(effect)

    def _exit(self, code: ExitCode, error: DpgtError | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(code)
        else:
            self._ended.set_exception(error)

    def _begin(self, effect: s.BeginRun, begun: s.RunBegun | s.RunRefused) -> None:
        setup, run_id = self._setup, effect.run_id
        if isinstance(begun, s.RunBegun):
            self._run_id = self._edges.run_id = run_id
            local = None
            if self._run.evaluate.metrics == "study":
                open_channel = setup.security.dialler(setup.config.tls.coordinator_id)
                self._uploader = StudyUploader(
                    lambda: open_channel(setup.config.coordinator),
                    run_id,
                    setup.name,
                    taken=lambda: self._feed(s.UploadsTaken()),
                    failed=self._failed,
                )
            else:
                local = MetricsStore(setup.config.state_dir)
                log.info("metrics stay on this host: %s", local.path)
            self._reporter = Reporter(setup.name, self._run.K, self._work, local, self._releases)
            self._driver = AgentDriver(
                self._work,
                self._store,
                run_id,
                self._feed,
                self._broken,
                self._evaluated,
                commit_inline=setup.config.durability == "process",
                recording=self._opening.recording,
            )
        self._feed(begun)

    def _releases(self) -> int:
        return self._store.releases(self._run_id)

    def _evaluated(self, k: int, x: F64, metrics: Metrics) -> None:
        if self._reporter is not None:
            self._feed(self._reporter.evaluated(k, x, metrics))

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DpgtError):
            self._feed(s.Broke(error))
        else:
            self._broken(error)

    def _make_agent(self, read: s.RunRead, begun: s.RunBegun) -> AgentMachine:
        runtime = self._run.runtime
        return AgentMachine(
            self._network.edges(self._setup.index),
            self._run.K,
            evaluate_every=self._run.evaluate.every,
            checkpoint_every=CHECKPOINT_ROUNDS,
            beside=self._driver is not None and self._driver.beside,
            run_ahead=runtime.barrier_every,
            stall_ns=2 * heartbeat_ns(runtime.round_timeout_s),
            budget_through=begun.budget_through,
            recovered=read.recovered,
            finished=read.final,
        )


def _fresh_key() -> tuple[bytes, bytes]:
    return os.urandom(16), os.urandom(16)
