"""Hostile peers at real servers while an honest run goes on: what must hold, measured from outside the process.

The run ends with the simulator's bits; its process grows by no more than ``RSS_MIB`` and holds no more than ``FDS``
more descriptors, which are back at the end; its log holds no traceback and does not grow with the attack.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, agent_identity
from tests.fuzz import attacks
from tests.fuzz.attacks import ATTACKS, Target

ROOT = Path(__file__).resolve().parents[2]
RSS_MIB = 150.0
LOG_BYTES = 2_000_000
WORKERS = 4
LIMIT_S = 600.0


@dataclass
class Figures:
    """What an attack came to.  ``sent`` by kind of attack; memory in MiB; descriptors as counts."""

    sent: Counter[str] = field(default_factory=Counter)
    rss: list[float] = field(default_factory=list)
    fds: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    seconds: float = 0.0
    log_bytes: int = 0
    fds_after: int = 0

    def line(self) -> str:
        """For people."""
        kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(self.sent.items()))
        return (
            f"{self.sent.total():,} inputs ({kinds}) in {self.seconds:.0f} s; honest rounds {self.rounds[0]:,} to "
            f"{self.rounds[1]:,} meanwhile; RSS {self.rss[0]:.0f} MiB +{max(self.rss) - self.rss[0]:.0f}; descriptors "
            f"{self.fds[0]}, at most {max(self.fds)}, {self.fds_after} after; log {self.log_bytes:,} bytes"
        )


async def attack(folder: Path, inputs: int, *, secure: bool, rounds: int, connections: int, seed: int = 1) -> Figures:
    """Run ``inputs`` hostile inputs against an honest run of ``rounds``; AssertionError when something gave way."""
    figures = Figures()
    log = folder / "world.log"
    command = [sys.executable, "-m", "tests.fuzz.world", str(folder / "world"), "--rounds", str(rounds)]
    quiet = {**os.environ, "GRPC_VERBOSITY": "NONE"}
    with log.open("wb") as err:
        world = await asyncio.create_subprocess_exec(
            *command, *(["--secure"] if secure else []), cwd=ROOT, stderr=err, env=quiet,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
    try:
        where = await _said(world, log)
        targets = _targets(where, folder / "world" / "tls" if secure else None)
        process = psutil.Process(world.pid)
        watch = asyncio.ensure_future(_watch(process, figures))
        begin = time.monotonic()
        await _wave(targets, inputs, connections, seed, figures, world)
        figures.seconds = time.monotonic() - begin
        assert world.stdin is not None
        world.stdin.write(b"enough\n")
        figures.rounds = [where["round"], (await _said(world, log))["round"]]
        figures.fds_after = await _settled(process, figures.fds[0])
        assert (await _said(world, log))["finished"]
        watch.cancel()
        assert await asyncio.wait_for(world.wait(), LIMIT_S) == 0
    finally:
        if world.returncode is None:
            world.kill()
            await world.wait()
    text = log.read_text(errors="replace")
    figures.log_bytes = len(text)
    assert "Traceback" not in text, text[max(0, text.index("Traceback") - 500) :][:4000]
    assert figures.log_bytes < LOG_BYTES
    assert max(figures.rss) - figures.rss[0] < RSS_MIB, figures.line()
    return figures


async def _said(world: asyncio.subprocess.Process, log: Path) -> dict[str, object]:
    assert world.stdout is not None
    line = await asyncio.wait_for(world.stdout.readline(), LIMIT_S)
    assert line, log.read_text(errors="replace")[-4000:]
    return dict(json.loads(line))


def _targets(where: dict[str, object], folders: Path | None) -> list[Target]:
    agents = where["agents"]
    assert isinstance(agents, dict)
    servers = {COORDINATOR_IDENTITY: str(where["coordinator"])}
    servers |= {agent_identity(name): str(address) for name, address in agents.items()}
    split = ((identity, *address.rsplit(":", 1)) for identity, address in servers.items())
    return [Target(host, int(port), identity, folders) for identity, host, port in split]


async def _watch(process: psutil.Process, figures: Figures) -> None:
    while True:
        figures.rss.append(process.memory_info().rss / 2**20)
        figures.fds.append(process.num_fds())
        await asyncio.sleep(0.1)


async def _settled(process: psutil.Process, before: int) -> int:
    """Descriptors when the attacker has left, at most a few more than before; waits for it."""
    end = time.monotonic() + LIMIT_S
    while (count := process.num_fds()) > before + 16 and time.monotonic() < end:
        await asyncio.sleep(0.1)
    return count


async def _wave(
    targets: list[Target], inputs: int, connections: int, seed: int, figures: Figures,
    world: asyncio.subprocess.Process,
) -> None:  # fmt: skip
    """Idle and slow connections all along; the other attacks, a few at a time, until enough was sent."""
    chosen = [job for job, weight in ATTACKS for _ in range(weight)]

    async def worker(rng: Random) -> None:
        while figures.sent.total() < inputs:
            job, target = rng.choice(chosen), rng.choice(targets)
            figures.sent[job.__name__] += await asyncio.wait_for(job(target, rng), LIMIT_S)
            assert world.returncode is None, "the honest process ended under attack"

    for job in (
        attacks.impostor,
        *(job for job, _ in ATTACKS),
    ):  # each at least once at each server, while there is room
        for target in targets:
            figures.sent[job.__name__] += await asyncio.wait_for(job(target, Random(seed)), LIMIT_S)
    over = asyncio.Event()
    each = max(1, connections // len(targets))
    standing = {
        name: asyncio.gather(*(job(target, count, over) for target in targets))
        for name, job, count in (
            ("idle connections", attacks.hold, each),
            ("slow connections", attacks.drip, 1 + each // 20),
            ("idle streams", attacks.idle_streams, 4 + each // 10),
        )
    }
    try:
        await asyncio.gather(*(worker(Random(f"{seed}-{n}")) for n in range(WORKERS)))
    finally:
        over.set()
        for name, held in standing.items():
            figures.sent[name] += sum(await held)
