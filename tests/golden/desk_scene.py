"""The stage of a real coordinator: its three agents and its operator are the script's.

``<`` is what the script says to the coordinator, ``>`` what the coordinator says.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden import wires, words
from tests.golden.adapter import Cluster, RunConfig, claim, costs, digest, outcome_text
from tests.golden.wires import COORDINATOR, RUN_ID, Caller, Message, Script
from tests.golden.words import pb, up

NAMES = ("agent-1", "agent-2", "agent-3")
HEAD = b"\x1d" * 32


def done(k: int, durable: int = -1, head: bytes = b"") -> Message:
    return up(done=pb.Done(round=k, durable_through=durable, ledger_head=head))


def ready() -> Message:
    return up(ready=pb.Ready())


def finished(k: int) -> Message:
    epsilon = costs(tight=1.5)
    metrics = pb.Metrics(round=k, loss_train=0.25, epsilon=epsilon)
    return up(finished=pb.Finished(status="finished", releases=2 * k, epsilon=epsilon, metrics=metrics))


class Scene:
    """A coordinator and the connections that the script has with it."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.run = config
        self.script = Script(config, folder)
        self.cluster = Cluster(config, folder, None)
        self.hands: dict[str, Caller] = {}
        self._callers: list[Caller] = []

    async def __aenter__(self) -> Scene:
        claim(self.cluster.out, self.run, RUN_ID)
        await self.cluster.coordinate()
        return self

    async def __aexit__(self, *_: object) -> None:
        for caller in self._callers:
            await caller.close()
        if self.cluster.serving is not None:
            self.cluster.serving.cancel()
            await asyncio.gather(self.cluster.serving, return_exceptions=True)

    def call(self, who: str, method: str, reply: Any = pb.CoordinatorMessage, name: str | None = None) -> Caller:
        caller = Caller(self.script, who, self.cluster.address, COORDINATOR, method, name or who, reply)
        self._callers.append(caller)
        return caller

    def registration(self, name: str, **changes: Any) -> Message:
        return words.register(self.run, name, **changes)

    async def registers(self, name: str, *, who: str | None = None, **changes: Any) -> Caller:
        """A new connection's first word."""
        hand = self.hands[name] = self.call(who or name, "Join", name=name)
        await hand.say(self.registration(name, **changes))
        return hand

    async def welcome(self, name: str, **changes: Any) -> Caller:
        """It registers, is welcome and ready."""
        hand = await self.registers(name, **changes)
        await hand.until("welcome")
        await hand.say(ready())
        return hand

    async def start(self, **changes: Any) -> None:
        """All three, to Start."""
        for name in NAMES:
            await self.welcome(name, **changes)
        await self.all("start")

    async def all(self, kind: str) -> None:
        """Everybody hears a message of this kind."""
        for name in NAMES:
            await self.hands[name].until(kind)

    async def done(self, k: int, durable: int = -1, names: tuple[str, ...] = NAMES, head: bytes = b"") -> None:
        for name in names:
            await self.hands[name].say(done(k, durable, head))

    async def close(self, *names: str) -> None:
        for name in names or tuple(self.hands):
            await self.hands.pop(name).hang_up()

    async def upload(self, name: str, message: Message) -> None:
        call = self.call(f"{name} uploads", "Upload", pb.UploadReply, name)
        await call.say(message)
        await call.last()
        await call.ends()

    async def control(self, action: int, reason: str = "") -> None:
        call = self.call("operator", "Control", pb.ControlReply)
        await call.say(pb.ControlRequest(action=action, reason=reason))
        await call.last()
        await call.ends()

    async def status(self, until: Callable[[Message], bool] | None = None) -> None:
        """Print the status; ``until``: asked again before, silently, for what a connection that ended says late."""
        async with asyncio.timeout(wires.LIMIT_S):
            while True:
                lines = len(self.script.lines)
                call = self.call("operator", "Status", pb.StatusReply)
                await call.say(pb.StatusRequest())
                await call.last()
                message = await call.hear()
                if until is None or until(message):
                    return
                del self.script.lines[lines:]
                await asyncio.sleep(0.01)

    async def all_hear_why(self, *names: str) -> None:
        """After a refusal that somebody did not hear, each agent comes once more and hears the last word."""
        await self.status(lambda reply: reply.state == "refused")
        for name in names or NAMES:
            await (await self.registers(name)).ends()

    async def kill(self) -> None:
        """The coordinator's host is gone; everybody's connection breaks."""
        self.script.note("coordinator is killed")
        for hand in self._callers:
            await hand.close()
        self.hands.clear()
        assert self.cluster.serving is not None
        self.cluster.serving.cancel()
        await asyncio.gather(self.cluster.serving, return_exceptions=True)

    async def again(self) -> None:
        """It is started on the same folder."""
        self.script.note("coordinator starts on the same folder")
        await self.cluster.coordinate()

    async def ends(self) -> None:
        """How it ended, and what it left."""
        assert self.cluster.serving is not None
        async with asyncio.timeout(wires.LIMIT_S):
            self.script.note(f"coordinator ends: {outcome_text(await self.cluster.serving)}")

    def disk(self) -> None:
        """What is in the output folder."""
        with (self.cluster.out / "metrics.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                known = {
                    key: value for key, value in row.items() if value and key not in ("agent", "k", "wall_seconds")
                }
                numbers = " ".join(f"{key}={float(value):.9g}" for key, value in known.items())
                self.script.note(f"metrics: {row['agent']} k={row['k']} {numbers}")
        for path in sorted(self.cluster.out.glob("agents/*/x_final.npy")):
            self.script.note(f"x_final of {path.parts[-2]}: {digest(np.load(path))}")
