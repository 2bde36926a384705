"""A coordinator and its agents as objects in one event loop, over real gRPC on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from dpgt_node.config import NodeConfig, NodeTls, Policy, RunConfig, parse_run
from dpgt_node.durable import Durability
from dpgt_node.errors import ExitCode
from dpgt_node.learning.common import Oracle
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.runtime.agent.node import Node, NodeSetup
from dpgt_node.runtime.coordinator.daemon import Outcome
from dpgt_node.runtime.coordinator.outdir import read_address
from dpgt_node.runtime.coordinator.serve import serve
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, Security, agent_identity
from dpgt_node.runtime.trust.tls import CertificateAuthority
from dpgt_node.runtime.watching.sites import Sites
from dpgt_node.sim.simulate import simulate

LIMIT_S = 60.0
KEY = "a5"
T = TypeVar("T")

# agent-1 -> agent-2 and agent-2 -> agent-1 carry only X, agent-3 -> agent-1 only Y; agent-3 -> agent-2 is no edge.
RUN = """
name = "cluster"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.2
gamma = 0.02
p_m = 1.0
[noise]
scale_zeta = 0.1
scale_eta = 0.01
[graph]
agents = 3
R = [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
C = [[0, 0, 1], [0, 0, 0], [0.5, 1, 0]]
[data]
dataset = "quadratic"
dimension = 3
[evaluate]
every = 10
metrics = "study"
[runtime]
round_timeout = 20
register_timeout = 30
"""


def make_run(K: int = 30) -> RunConfig:
    """The run above."""
    return parse_run(RUN.format(K=K), "run.toml", Path("/"))


async def eventually(what: str, probe: Callable[[], T | None]) -> T:
    """The first result of ``probe`` that is not None or False; the event loop runs on meanwhile."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        found = probe()
        if found is not None and found is not False:
            return found
        await asyncio.sleep(0.002)
    raise AssertionError(f"it never came about that {what}")


class Counted:
    """``oracle``, which says that it has ``samples``."""

    def __init__(self, oracle: Oracle, samples: int) -> None:
        self._oracle, self.samples = oracle, samples

    def __getattr__(self, name: str) -> object:
        return getattr(self._oracle, name)


@dataclass
class Cluster:
    """``serving`` resolves with the coordinator's outcome; ``agents`` holds the tasks of ``start``."""

    run: RunConfig
    folder: Path
    authority: CertificateAuthority | None
    address: str = ""
    keystream: str | None = "test"
    sites: Sites | None = None
    serving: asyncio.Task[Outcome] | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    nodes: dict[str, Node] = field(default_factory=dict)
    agents: dict[str, asyncio.Task[ExitCode]] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def security(self, identity: str) -> Security:
        """Start-up files of ``identity``, made when first asked for; no TLS in a plain cluster."""
        if self.authority is None:
            return Security()
        folder = self.folder / "tls" / identity.replace(":", "-")
        if not folder.exists():
            self.authority.write_folder(folder, identity)
        return Security.from_folder(folder)

    async def coordinate(self, listen: str = "127.0.0.1:0") -> None:
        """Start the coordinator."""
        (self.out / "coordinator.json").unlink(missing_ok=True)
        tls = self.security(COORDINATOR_IDENTITY)
        folder = None if tls.cert is None else tls.cert.parent
        self.stop = asyncio.Event()
        self.serving = asyncio.ensure_future(
            serve(self.run, self.out, listen, folder, keystream=self.keystream, stop=self.stop, sites=self.sites)
        )
        serving = self.serving

        def listening() -> str | None:
            if serving.done():
                serving.result()
            found = read_address(self.out)
            return None if found is None else found.address

        self.address = await eventually("the coordinator listens", listening)

    def node(
        self,
        name: str,
        *,
        run: RunConfig | None = None,
        state: str = "",
        row: int | None = None,
        policy: Policy | None = None,
        data_id: str = "default",
        durability: Durability = "process",
        listen: str = "127.0.0.1:0",
        keystream: str | None = KEY,
        shard_sha256: bytes = b"",
        samples: int | None = None,
        sites: Sites | None = None,
        dial: Mapping[str, str] | None = None,
    ) -> Node:
        """An agent; ``run``: another copy of the run file, ``state``: another state directory, ``samples``: D.

        A policy refuses a test keystream, so an agent with one draws its noise from the system.
        """
        run = self.run if run is None else run
        config = replace(
            self.config(name, listen=listen),
            state_dir=self.folder / "state" / (state or name),
            policy=policy or Policy(),
            data_id=data_id,
            durability=durability,
        )
        index = run.graph.agents.index(name) if row is None else row
        oracle = build_oracle(run, index, data_root=None)
        if samples is not None:
            oracle = Counted(oracle, samples)
        key, security = None if config.policy.limits else keystream, self.security(agent_identity(name))
        return Node(NodeSetup(config, run, index, oracle, security, key, dial or {}, shard_sha256, sites or Sites({})))

    def config(self, name: str, *, listen: str = "127.0.0.1:0") -> NodeConfig:
        """What NODE.toml of ``name`` says."""
        security = self.security(agent_identity(name))
        return NodeConfig(
            name=name,
            run=self.folder / f"{name}.toml",
            listen=listen,
            advertise=None,
            coordinator=self.address,
            state_dir=self.folder / "state" / name,
            tls=NodeTls(security.cert is None, security.ca, security.cert, security.key, COORDINATOR_IDENTITY),
            durability="process",
        )

    def start(self, name: str, **options: object) -> asyncio.Task[ExitCode]:
        """Start an agent in the background."""
        node = self.nodes[name] = self.node(name, **options)  # type: ignore[arg-type]
        task = self.agents[name] = asyncio.ensure_future(node.serve())
        return task

    def start_all(self) -> None:
        for name in self.run.graph.agents:
            self.start(name)

    async def end(self) -> Outcome:
        """Wait until the coordinator and every agent ended well."""
        assert self.serving is not None
        async with asyncio.timeout(LIMIT_S):
            codes = await asyncio.gather(*self.agents.values())
            outcome = await self.serving
        assert set(codes) == {ExitCode.DONE}
        return outcome

    def round(self, name: str) -> int:
        """The round an agent is in; -1 before Welcome."""
        session = self.nodes[name].session
        return -1 if session is None or session.agent is None else session.agent.k

    def all_reported(self) -> bool:
        """Whether every agent has sent its last report."""
        return all(node.session is not None and node.session.reported for node in self.nodes.values())

    async def reached(self, k: int, name: str = "agent-1") -> None:
        await eventually(f"{name} is in round {k}", lambda: self.round(name) >= k)

    def assert_simulators_bits(self) -> None:
        """What the agents hold is what the simulator computes of the same run under the same keystream."""
        folder = self.folder / "simulated"
        simulate(self.run, folder, os.urandom(16), test_keystream=KEY)
        for name in self.run.graph.agents:
            expected = np.load(folder / "agents" / name / "state" / "x_final.npy")
            found = np.load(self.folder / "state" / name / "x_final.npy")
            assert found.tobytes() == expected.tobytes(), name


@contextlib.asynccontextmanager
async def cluster(
    folder: Path, run: RunConfig | None = None, *, secure: bool = False, test: bool = True, sites: Sites | None = None
) -> AsyncIterator[Cluster]:
    """A coordinator that waits for its agents.  Whatever still runs at the end is cancelled.

    ``test``: it believes that they draw from the test keystream.
    """
    run = make_run() if run is None else run
    run = replace(run, runtime=replace(run.runtime, channel="mtls" if secure else "plain"))
    made = Cluster(run, folder, CertificateAuthority.create() if secure else None, keystream="test" if test else None)
    made.sites = sites
    try:
        await made.coordinate()
        yield made
    finally:
        tasks: list[asyncio.Task[object]] = [*made.agents.values(), *([made.serving] if made.serving else [])]  # type: ignore[list-item]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
