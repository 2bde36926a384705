"""What takes long at one agent, in threads: nobody misses its heartbeats, whatever d is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpgt_node.errors import ExitCode, StoreError
from dpgt_node.runtime.agent.node import Node
from tests.runtime.cluster import LIMIT_S, Cluster, cluster, eventually, make_run
from tests.runtime.test_liveness import timed

SLOW = "agent-2"


class Held:
    """``method`` of ``owner``, whose first call waits until ``go`` is set."""

    def __init__(self, owner: Any, method: str) -> None:
        self.go = threading.Event()
        self.began = threading.Event()
        self.in_time = True
        self._call: Callable[..., Any] = getattr(owner, method)
        setattr(owner, method, self)

    def __call__(self, *arguments: Any) -> Any:
        if not self.began.is_set():
            self.began.set()
            self.in_time = self.go.wait(LIMIT_S / 3)
        return self._call(*arguments)


class Slow:
    """The work of an agent's own module: it has no closed form, and one ``method`` takes for ever the first time."""

    def __init__(self, work: Any, method: str) -> None:
        self._work = work
        self.closed_form = False
        self.held = Held(self, method)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def start(c: Cluster, node: Node) -> None:
    """``node`` as the slow agent, then the others."""
    c.nodes[SLOW] = node
    c.agents[SLOW] = asyncio.ensure_future(node.serve())
    for name in ("agent-1", "agent-3"):
        c.start(name)


@pytest.mark.parametrize("method", ["advance", pytest.param("release", marks=pytest.mark.long)])
async def test_a_slow_model_is_slow_and_not_lost(method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """d = 3, on_agent_loss = "stop": a loop that is blocked for T would end the run."""
    async with cluster(tmp_path, timed(make_run(3), 2.0, "stop")) as c:
        node = c.node(SLOW)
        slow = Slow(node._work, method)
        node._work = slow  # type: ignore[assignment]
        start(c, node)
        await eventually("it takes more than T", lambda: f"for {SLOW}: alive, but not done" in caplog.text)
        slow.held.go.set()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE and slow.held.in_time
        c.assert_simulators_bits()


async def test_a_slow_metric_is_slow_and_not_lost(tmp_path: Path) -> None:
    async with cluster(tmp_path, timed(make_run(15), 2.0, "stop")) as c:
        node = c.node(SLOW)
        slow = Slow(node._work, "evaluate")
        node._work = slow  # type: ignore[assignment]
        start(c, node)
        await c.reached(10)
        assert slow.held.began.is_set() and not slow.held.go.is_set(), "rounds go on"
        slow.held.go.set()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE and slow.held.in_time


@pytest.mark.parametrize("method", ["read", "begin"])
async def test_a_large_state_directory_is_read_beside_the_event_loop(method: str, tmp_path: Path) -> None:
    async with cluster(tmp_path, make_run(3)) as c:
        node = c.node(SLOW)
        held = Held(node._opening, method)
        start(c, node)
        await eventually("it reads", held.began.is_set)
        await eventually("the others are here", lambda: all(c.nodes[n].session is not None for n in c.nodes))
        held.go.set()
        assert (await c.end()).conclude.exit_code is ExitCode.DONE
        assert held.in_time, "the loop went on meanwhile"
        c.assert_simulators_bits()


@pytest.mark.parametrize("method", ["held", "read", "begin"])
async def test_no_store_is_closed_under_a_thread_that_reads_it(method: str, tmp_path: Path) -> None:
    """SQLite would read what is freed.  An agent that is cancelled, twice even, waits for the thread."""
    async with cluster(tmp_path, make_run(3)) as c:
        node = c.node(SLOW)
        held = Held(node._opening, method)
        start(c, node)
        await eventually("it reads", held.began.is_set)
        for _ in range(2):
            c.agents[SLOW].cancel()
            await asyncio.sleep(0.05)
        assert not c.agents[SLOW].done() and node._store.runs() is not None
        held.go.set()
        with pytest.raises(asyncio.CancelledError):
            await c.agents[SLOW]
        with pytest.raises(StoreError, match="closed"):
            node._store.runs()
