"""The stage of one real agent: its coordinator and its neighbours are the script's.

``<`` is what the script says to the agent, ``>`` what the agent says.  agent-1 sends X to agent-2 and Y to agent-3, and
receives the same streams from them.  Where the agent is "killed", its connections break and its process ends without a
word; its state directory stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden import wires, words
from tests.golden.adapter import Cluster, RunConfig, command, digest, run_of
from tests.golden.wires import AGENT, Caller, Connection, Message, Script
from tests.golden.words import go, pb, resume, vector

RUN = """
name = "conversations"
[algorithm]
iterations = {K}
mechanism = "{mechanism}"
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.2
gamma = 0.02
p_m = 1.0
[noise]
scale_zeta = 0.1
scale_eta = 0.5
[graph]
agents = 3
R = [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
C = [[0, 0, 1], [0, 0, 0], [0.5, 1, 0]]
[data]
dataset = "quadratic"
dimension = 3
[evaluate]
every = {every}
metrics = "{metrics}"
{privacy}
[runtime]
round_timeout = {round_timeout}
register_timeout = {register_timeout}
barrier_every = {barrier_every}
on_agent_loss = "{on_agent_loss}"
channel = "plain"
"""
ME, RECEIVERS, SENDERS = "agent-1", ("agent-2", "agent-3"), {"agent-2": "X", "agent-3": "Y"}


def run(K: int = 2, **changes: object) -> RunConfig:
    """The run of all conversations."""
    values: dict[str, object] = {
        "mechanism": "paper",
        "every": 10,
        "metrics": "local",
        "privacy": "",
        "round_timeout": 400,
        "register_timeout": 60,
        "barrier_every": 1,
        "on_agent_loss": "wait",
        **changes,
    }
    return run_of(RUN.format(K=K, **values))


def private(K: int = 6) -> RunConfig:
    """One that costs epsilon 1 a round under the tight accountant."""
    return run(K, mechanism="noise-once", privacy="[privacy]\nC = 1.0")


class Scene:
    """An agent, a coordinator and its neighbours."""

    def __init__(self, config: RunConfig, folder: Path, *, heads: bool = True) -> None:
        self.run = config
        self.script = Script(config, folder, heads=heads)
        self.desk = wires.coordinator_server(self.script)
        self.neighbours = {name: wires.agent_server(self.script, name) for name in RECEIVERS}
        self.cluster = Cluster(config, folder, None)
        self.join: Connection | None = None
        self.address = ""
        self.head = b""
        """The ledger's head that the agent last reported."""
        self.out: dict[str, Connection] = {}
        self.into: dict[str, Caller] = {}

    @property
    def state(self) -> Path:
        return self.cluster.folder / "state" / ME

    async def __aenter__(self) -> Scene:
        for server in (self.desk, *self.neighbours.values()):
            await server.start()
        self.cluster.address = self.desk.address
        return self

    async def __aexit__(self, *_: object) -> None:
        for caller in self.into.values():
            await caller.close()
        for task in self.cluster.agents.values():
            task.cancel()
        await asyncio.gather(*self.cluster.agents.values(), return_exceptions=True)
        for server in (self.desk, *self.neighbours.values()):
            await server.stop()

    # --- steps that many scenes share ---------------------------------------------------------------------------

    async def start(self, **options: object) -> Connection:
        """Start the agent; it registers."""
        self.cluster.start(ME, **options)
        return await self.registers()

    async def registers(self) -> Connection:
        """Hear the agent's next registration."""
        self.join = await self.desk.accept("Join", "coordinator")
        message = await self.join.until("register")
        self.address = message.register.advertise
        return self.join

    async def admit(self, **changes: Any) -> None:
        """Welcome it, hear Ready."""
        assert self.join is not None
        await self.join.say(words.welcome(self.run, **changes))
        await self.join.until("ready")

    async def begin(self, through: int = 0) -> None:
        """Start: where everybody listens, and how far to go."""
        assert self.join is not None
        peers = {ME: self.address, **{name: server.address for name, server in self.neighbours.items()}}
        await self.join.say(words.down(start=pb.Start(peers=peers, go_through=through)))

    async def receive(self, name: str, x_from: int = 0, y_from: int = 0, mixed_before: int = 0) -> None:
        """Take the agent's stream to out-neighbour ``name`` and say what is lacking."""
        stream = self.out[name] = await self.neighbours[name].accept("Exchange", f"to {name}")
        await stream.say(resume(name, x_from, y_from, mixed_before))

    async def dial(self, name: str) -> Message:
        """Open in-neighbour ``name``'s stream and hear what the agent lacks."""
        stream = self.into[name] = self.caller(name)
        return await stream.hear()

    def caller(self, name: str) -> Caller:
        reply = wires.agent_pb2.ExchangeReply
        return Caller(self.script, f"from {name}", self.address, AGENT, "Exchange", name, reply)

    async def streams(self, x_from: int = 0, y_from: int = 0, mixed_before: int = 0) -> None:
        """Every stream opens."""
        for name in RECEIVERS:
            await self.receive(name, x_from, y_from, mixed_before)
        for name in SENDERS:
            await self.dial(name)

    async def give(self, k: int, names: tuple[str, ...] = tuple(SENDERS)) -> None:
        """The in-neighbours' vectors of round k."""
        for name in names:
            await self.into[name].say(vector(name, SENDERS[name], k))

    async def released(self) -> None:
        """The agent's vectors of one round."""
        for name in RECEIVERS:
            await self.out[name].until("Frame")

    async def done(self) -> None:
        assert self.join is not None
        message = await self.join.until("done")
        self.head = message.done.ledger_head or self.head

    async def rounds(self, first: int, last: int, *, opened: bool = False) -> None:
        """Whole rounds; ``opened``: the barrier is open for the first already."""
        assert self.join is not None
        for k in range(first, last + 1):
            if k > first or not opened:
                await self.join.say(go(k))
            await self.released()
            await self.give(k)
            await self.done()

    async def up_to(self, last: int) -> None:
        """A fresh agent, through round ``last``."""
        await self.start()
        await self.admit()
        await self.begin()
        await self.streams()
        await self.rounds(0, last, opened=True)

    async def kill(self) -> None:
        """The agent's host is gone."""
        self.script.note(f"{ME} is killed")
        for caller in self.into.values():
            await caller.close()
        self.into.clear()
        task = self.cluster.agents.pop(ME)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def ends(self) -> None:
        """The agent's process ends of itself; its in-neighbours let it go."""
        for caller in self.into.values():
            await caller.close()
        await self.script.end_of(ME, self.cluster.agents[ME])

    def disk(self) -> None:
        """What the agent left: its ledger as the command line shows it, its result."""
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert command("ledger", self.state, "--format", "json") == 0
        ledger = json.loads(output.getvalue())
        rows = " ".join(f"{row['stream']}{row['k']}" for row in _rows(ledger))
        self.script.note(f"ledger: {rows or 'empty'}")
        final = self.state / "x_final.npy"
        self.script.note(f"x_final: {digest(np.load(final)) if final.exists() else 'none'}")


def _rows(document: Any) -> list[Any]:
    """The rows of a ledger's document, wherever it has them."""
    if isinstance(document, list):
        return document if document and "stream" in document[0] else []
    return [row for value in document.values() for row in (_rows(value) if isinstance(value, dict | list) else [])]
