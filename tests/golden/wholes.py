"""Whole runs of real agents and a real coordinator, with a recorder on every connection.

The recorder stands between: agents find the coordinator and one another at its addresses.  What crossed each link in
one direction is one section, in the order in which it crossed; which link was first is nobody's business and not
written down.  A stream that never came to a first answer left no line: how often a dead address is tried is a matter
of time.  Study vectors are listed once each: how often one is sent, and in which call, is a matter of time as well.
So is what a heartbeat acknowledges; in runs this short nothing else is acknowledged.  And so is which reports of rounds
share a message: each has a line.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np

from tests.golden.adapter import (
    Cluster,
    RunConfig,
    agent_pb2,
    claim,
    coordinator_pb2,
    digest,
    eventually,
    outcome_text,
)
from tests.golden.agent_scene import run
from tests.golden.wires import AGENT, COORDINATOR, RUN_ID, SERVER_OPTIONS, UNTIMED, Message, Script, kind_of, played

NAMES = ("agent-1", "agent-2", "agent-3")
LEFT_OUT = (*UNTIMED, "received")


class Recorder:
    """Passes every call on and keeps what it carried."""

    def __init__(self, script: Script, cluster: Cluster) -> None:
        self.script, self.cluster = script, cluster
        self.upstream = ""
        """Where the coordinator listens now."""
        self.sections: dict[str, list[str]] = {}
        self.seen: list[tuple[str, Message]] = []
        """(link, message) of all that crossed."""
        self.away: set[str] = set()
        """Agents whose connections are cut."""
        self.gate = asyncio.Event()
        self.held_from: int | None = None
        """Go through this round or a later one waits for ``gate``."""
        self.dropping = False
        """What waited is lost then."""
        self._calls: dict[asyncio.Future[None], frozenset[str]] = {}
        self._fronts: dict[str, tuple[str, grpc.aio.Server]] = {}
        self._dead: set[str] = set()
        self._opening = asyncio.Lock()
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self.address = ""

    async def start(self) -> None:
        """The coordinator's front."""
        self.address = self._serve(self._server, COORDINATOR, {"Join": self._join, "Upload": self._upload})
        await self._server.start()

    async def stop(self) -> None:
        self.cut(*NAMES)
        for _, server in self._fronts.values():
            await server.stop(grace=0)
        await self._server.stop(grace=0)

    @staticmethod
    def _serve(server: grpc.aio.Server, service: str, methods: dict[str, Any]) -> str:
        handlers = {m: grpc.stream_stream_rpc_method_handler(handler) for m, handler in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        return f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"

    async def _front(self, receiver: str, address: str) -> str:
        """Where others find the agent that listens at ``address``."""
        async with self._opening:
            return await self._opened(receiver, address)

    async def _opened(self, receiver: str, address: str) -> str:
        if address not in self._fronts:
            server = grpc.aio.server(options=SERVER_OPTIONS)

            async def exchange(_: object, context: Any) -> None:
                if address in self._dead:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
                sender = caller_of(context)
                links = (f"{sender} to {receiver}", f"{receiver} answers {sender}")
                kinds = (agent_pb2.Frame, agent_pb2.ExchangeReply)
                await self._pass(context, address, AGENT, "Exchange", {sender, receiver}, links, kinds)

            front = self._serve(server, AGENT, {"Exchange": exchange})
            await server.start()
            self._fronts[address] = (front, server)
        return self._fronts[address][0]

    async def _join(self, _: object, context: Any) -> None:
        name = caller_of(context)
        links = (f"{name} to coordinator", f"coordinator to {name}")
        kinds = (coordinator_pb2.AgentMessage, coordinator_pb2.CoordinatorMessage)
        await self._pass(context, self.upstream, COORDINATOR, "Join", {name, "coordinator"}, links, kinds)

    async def _upload(self, _: object, context: Any) -> None:
        links = (f"{caller_of(context)} uploads", "")  # how often it is acknowledged is a matter of time
        kinds = (agent_pb2.Frame, coordinator_pb2.UploadReply)
        await self._pass(context, self.upstream, COORDINATOR, "Upload", set(), links, kinds)

    async def _pass(
        self,
        context: Any,
        address: str,
        service: str,
        method: str,
        ends: set[str],
        links: tuple[str, str],
        kinds: tuple[Any, Any],
    ) -> None:
        if ends & self.away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        cut: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls[cut] = frozenset(ends)
        waiting: list[Message] = []
        """What the caller said before the first answer; None of it is written down if there is no answer."""
        answered = False

        async def there(call: Any) -> None:
            while (data := await context.read()) is not grpc.aio.EOF:
                message = kinds[0].FromString(data)
                if answered:
                    self._keep(links[0], message)
                else:
                    waiting.append(message)
                await call.write(data)
            await call.done_writing()

        async def back(call: Any) -> None:
            nonlocal answered
            while (data := await call.read()) is not grpc.aio.EOF:
                message = await self._told(kinds[1].FromString(data))
                if message is None:
                    continue
                if not answered:
                    answered = True
                    self._opens(links[0])
                    for earlier in waiting:
                        self._keep(links[0], earlier)
                    self._opens(links[1])
                self._keep(links[1], message)
                await context.write(message.SerializeToString())

        status: tuple[grpc.StatusCode, str] | None = None
        async with grpc.aio.insecure_channel(address) as channel:
            call: Any = channel.stream_stream(f"/{service}/{method}")(metadata=(("dpgt-agent", caller_of(context)),))
            jobs = [asyncio.ensure_future(there(call)), asyncio.ensure_future(back(call))]
            try:
                await asyncio.wait([jobs[1], cut], return_when=asyncio.FIRST_COMPLETED)
                if cut.done():
                    status = (grpc.StatusCode.UNAVAILABLE, "cut")
                elif jobs[1].exception() is not None:
                    status = (await call.code(), await call.details() or "")
            finally:
                for job in jobs:
                    job.cancel()
                await asyncio.gather(*jobs, return_exceptions=True)
                call.cancel()
                del self._calls[cut]
        if status is not None:
            await context.abort(*status)

    async def _told(self, message: Message) -> Message | None:
        """What the coordinator says, with the recorder's addresses, when it may pass; None: it is lost."""
        kind = kind_of(message)
        if kind == "go" and self.held_from is not None and message.go.through >= self.held_from:
            self.seen.append(("held", message))
            await self.gate.wait()
            if self.dropping:
                return None
        if kind == "start":
            for name, address in tuple(message.start.peers.items()):
                front = await self._front(name, address)
                message.start.peers[name] = front
                self.script.names.places[front] = name
        return message

    def _opens(self, link: str) -> None:
        if link and not link.endswith("uploads"):
            self.sections.setdefault(link, []).append("-- a stream opens")

    def _keep(self, link: str, message: Message) -> None:
        self.seen.append((link, message))
        if link and kind_of(message) not in LEFT_OUT:
            reports = message.dones.done if kind_of(message) == "dones" else ()
            parts = [coordinator_pb2.AgentMessage(done=done) for done in reports] or [message]
            self.sections.setdefault(link, []).extend(map(self.script.names.message, parts))

    def cut(self, *names: str) -> None:
        """Break every connection of these; nothing new comes through until they are off ``away``."""
        self.away.update(names)
        for cut, ends in self._calls.items():
            if ends & set(names) and not cut.done():
                cut.set_result(None)

    def bury(self, name: str) -> None:
        """Where this agent listened nobody listens any more."""
        fronts = {front: address for address, (front, _) in self._fronts.items()}
        self._dead.update(fronts[front] for front, who in self.script.names.places.items() if who == name)


def caller_of(context: Any) -> str:
    return str(dict(context.invocation_metadata() or ()).get("dpgt-agent"))


class Scene:
    """A run of three agents behind a recorder."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.script = Script(config, folder)
        self.cluster = Cluster(config, folder, None)
        self.recorder = Recorder(self.script, self.cluster)

    async def __aenter__(self) -> Scene:
        claim(self.cluster.out, self.script.run, RUN_ID)
        await self.recorder.start()
        await self.coordinate()
        return self

    async def __aexit__(self, *_: object) -> None:
        c = self.cluster
        tasks = [*c.agents.values(), *([c.serving] if c.serving else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.recorder.stop()

    async def coordinate(self) -> None:
        """Start the coordinator; agents find it where they always did."""
        await self.cluster.coordinate()
        self.recorder.upstream, self.cluster.address = self.cluster.address, self.recorder.address

    def hold(self, k: int) -> None:
        """Nobody hears of a barrier beyond round k."""
        self.recorder.gate = asyncio.Event()
        self.recorder.held_from = k + 1

    def release(self, *, drop: bool = False) -> None:
        """Let what was held back pass, or lose it."""
        self.recorder.held_from, self.recorder.dropping = None, drop
        self.recorder.gate.set()

    async def stands(self, k: int) -> None:
        """Everybody is through round k, and the next Go waits at each link: nothing moves."""
        await eventually(f"round {k + 1} is held back", lambda: self._held(k + 1) == len(NAMES))

    def _held(self, k: int) -> int:
        return sum(link == "held" and message.go.through >= k for link, message in self.recorder.seen)

    async def said(self, link: str, kind: str, times: int) -> None:
        """So many messages of a kind have crossed a link."""
        probe = lambda: sum(a == link and kind_of(b) == kind for a, b in self.recorder.seen) >= times  # noqa: E731
        await eventually(f"{link}: {kind}", probe)

    async def kill(self, name: str) -> None:
        self.recorder.cut(name)
        self.recorder.bury(name)
        task = self.cluster.agents.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.recorder.away.discard(name)

    async def kill_coordinator(self) -> None:
        self.recorder.cut("coordinator")
        assert self.cluster.serving is not None
        self.cluster.serving.cancel()
        await asyncio.gather(self.cluster.serving, return_exceptions=True)
        self.recorder.away.discard("coordinator")

    async def ends(self) -> None:
        """Every process ends of itself."""
        for name, task in sorted(self.cluster.agents.items()):
            await self.script.end_of(name, task)
        assert self.cluster.serving is not None
        self.script.note(f"coordinator ends: {outcome_text(await self.cluster.serving)}")

    def told(self) -> list[str]:
        """The script: how it ended, results, then link by link."""
        for name in NAMES:
            final = self.cluster.folder / "state" / name / "x_final.npy"
            self.script.note(f"x_final of {name}: {digest(np.load(final)) if final.exists() else 'none'}")
        for link in sorted(self.recorder.sections):
            self.script.title(link)
            lines = self.recorder.sections[link]
            self.script.lines += sorted(set(lines)) if link.endswith("uploads") else lines
        return self.script.lines


# --- scenes ---------------------------------------------------------------------------------------------------------


async def undisturbed(s: Scene) -> None:
    """From the first registration to the farewell."""
    s.cluster.start_all()
    await s.ends()


async def crash(s: Scene) -> None:
    """agent-2 is killed when everybody has finished round 1, and comes back: what it lacks is sent again."""
    s.hold(1)
    s.cluster.start_all()
    await s.stands(1)
    await s.kill("agent-2")
    s.cluster.start("agent-2")
    await s.said("coordinator to agent-2", "start", 2)
    s.release()
    await s.ends()


async def coordinator_restarts(s: Scene) -> None:
    """The coordinator is killed after round 1; the next one learns from the agents where they are."""
    s.hold(1)
    s.cluster.start_all()
    await s.stands(1)
    await s.kill_coordinator()
    s.release()
    await s.coordinate()
    await s.ends()


async def everything_restarts(s: Scene) -> None:
    """Stopped by the operator after round 1, gone on with later."""
    s.hold(1)
    s.cluster.start_all()
    await s.stands(1)
    s.cluster.stop.set()
    s.release(drop=True)
    await s.ends()
    s.script.title("everything is started again")
    await s.coordinate()
    s.cluster.start_all()
    await s.ends()


async def twin(s: Scene) -> None:
    """A copy of agent-1's state directory is started while agent-1 lives: it is turned away, the run goes on."""
    s.hold(1)
    s.cluster.start_all()
    await s.stands(1)
    state = s.cluster.folder / "state"
    shutil.copytree(state / "agent-1", state / "twin")
    node = s.cluster.node("agent-1", state="twin")
    await s.script.end_of("the twin", asyncio.ensure_future(node.serve()))
    s.release()
    await s.ends()


def script(scene: Callable[[Scene], Awaitable[None]], config: Callable[[], RunConfig]) -> Callable[[], list[str]]:
    """A scene as a function that makes its lines."""

    async def play(folder: Path) -> list[str]:
        async with Scene(config(), folder) as s:
            await played(s.script, scene(s))
            return s.told()

    def made() -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(play(Path(folder).resolve()))

    return made


SCRIPTS: dict[str, Callable[[], list[str]]] = {
    "whole-start-to-farewell": script(undisturbed, lambda: run(3, metrics="study", every=2)),
    "whole-barrier": script(undisturbed, lambda: run(5, barrier_every=3)),
    "whole-crash": script(crash, lambda: run(3, metrics="study")),
    "whole-coordinator-restarts": script(coordinator_restarts, lambda: run(3, metrics="study")),
    "whole-everything-restarts": script(everything_restarts, lambda: run(3)),
    "whole-twin": script(twin, lambda: run(3, round_timeout=16)),
}
