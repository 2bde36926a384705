"""The live page of a coordinator: fixed files, where the run stands, and what was appended to its tables.

The tables are read when a page asks for their end, so a page survives a coordinator that is started again, a
coordinator keeps nothing for it, and a run that nobody looks at pays nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpgt_node.config import RunConfig
from dpgt_node.record import epsilons
from dpgt_node.record.lines import plain
from dpgt_node.record.metrics import METRICS_FILE
from dpgt_node.record.phases import PHASES_FILE
from dpgt_node.report.rendering import FOLDER as REPORT
from dpgt_node.runtime.watching.httpd import Answer, Page, Query, Refused
from dpgt_node.runtime.watching.sites import OPEN_S

if TYPE_CHECKING:
    from dpgt_node.protocol.messages import StatusReply
    from dpgt_node.runtime.coordinator.daemon import Coordinator

FOLDER: Final = Path(__file__).with_name("templates")
_FILES: Final = {
    "/": (FOLDER / "live.html", "text/html; charset=utf-8"),
    "/live.js": (FOLDER / "live.js", "text/javascript; charset=utf-8"),
    "/live.css": (FOLDER / "live.css", "text/css; charset=utf-8"),
    "/report.css": (REPORT / "report.css", "text/css; charset=utf-8"),
    "/icon.svg": (FOLDER / "icon.svg", "image/svg+xml"),
}
PIECE_BYTES: Final = 1 << 18
EVENTS_SHOWN: Final = 60
NAME_MAX: Final = 32
SAME_S: Final = 0.4
"""Pages that ask within so much time get the same answer: any number of them costs what one does."""
EVERY_S: Final = 1.0
"""How often a page asks that does not say."""
TABLES_S: Final = 0.4
"""A page that was told the end has so long to ask for the ends of the tables."""


class LivePage:
    """Pages of ``coordinator`` of ``run``, whose outputs are in ``out``."""

    def __init__(self, run: RunConfig, coordinator: Coordinator, out: Path) -> None:
        self._run = run
        self._coordinator = coordinator
        self._out = out
        self._made_s = -1e9
        self._state = b""
        self._over = self._told = False
        self._began_s = time.monotonic()
        self._opened = asyncio.Event()

    def pages(self) -> dict[str, Page]:
        """By path."""
        return {
            **{path: _file(file, kind) for path, (file, kind) in _FILES.items()},
            "/graph.json": self._graph,
            "/state.json": self._stands,
            f"/{METRICS_FILE}": _table(self._out / METRICS_FILE),
            f"/{PHASES_FILE}": _table(self._out / PHASES_FILE),
        }

    async def latecomer(self, leave: asyncio.Event) -> None:
        """The run is over: where nobody opened a page yet, wait for the first until ``OPEN_S``, or ``leave`` is set."""
        left_s = self._began_s + OPEN_S - time.monotonic()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._opened, leave)]
        await asyncio.wait(waits, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def farewell(self, leave: asyncio.Event) -> None:
        """All pages know the end: let them fetch the ends of the tables, unless ``leave`` is set."""
        if self._told and not leave.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(leave.wait(), TABLES_S)

    async def _graph(self, _: Query) -> Answer:
        run, graph = self._run, self._run.graph
        return _json(
            {
                "name": run.name,
                "K": run.K,
                "method": run.algorithm.method,
                "mechanism": run.algorithm.mechanism,
                "channel": run.runtime.channel,
                "study": run.evaluate.metrics == "study",
                "agents": list(graph.agents),
                "R": _edges(graph.R),
                "C": _edges(graph.C),
            }
        )

    async def _stands(self, query: Query) -> Answer:
        now_s = time.monotonic()
        every_ms = _number(query, "every", int(1e3 * EVERY_S))
        if now_s - self._made_s > SAME_S:
            reply = self._coordinator.stands()
            self._made_s, self._state, self._over = now_s, _json(self._document(reply)).body, reply.over
        if (page := query.get("page", "")) and len(page) <= NAME_MAX:
            self._coordinator.watchers.asked(f"page {page}", every_ms / 1e3, told=self._over)
            self._told |= self._over
            self._opened.set()
        return Answer(self._state, "application/json")

    def _document(self, reply: StatusReply) -> dict[str, Any]:
        recorder = self._coordinator.recorder
        head = "" if reply.accountant is None else epsilons.head(reply.accountant, reply.delta or 0.0)
        slow = reply.slowest
        return {
            "state": reply.state,
            "over": reply.over,
            "reason": reply.reason,
            "k": reply.k,
            "K": reply.K,
            "rounds_per_second": reply.rounds_per_second,
            "accountant": reply.accountant,
            "head": head,
            "adjacency": reply.adjacency,
            "delta_warning": reply.delta_warning,
            "gives_up_s": reply.gives_up_s,
            "slowest": None if slow is None else {"agent": slow.agent, "phase": slow.phase, "seconds": slow.seconds},
            "agents": [
                {
                    "name": agent.name,
                    "connected": agent.connected,
                    "state": agent.state,
                    "k": agent.k,
                    "missing_s": agent.missing_s,
                    "waits_for": agent.waits_for,
                    "accuracy_test": agent.accuracy_test,
                    "epsilon": agent.epsilon,
                    "epsilon_of_run": None if recorder is None else recorder.spent(agent.name, self._run.K),
                    "strength": agent.strength,
                }
                for agent in reply.agents
            ],
            "phases": self._coordinator.recent.rounds(),
            "events": [(event.wall_s, event.level, event.text) for event in self._coordinator.events.kept][
                -EVENTS_SHOWN:
            ],
        }


def _edges(weights: Any) -> list[list[int]]:
    """[j, i] for every edge from j to i."""
    return [[int(j), int(i)] for i, j in np.argwhere(np.asarray(weights) > 0)]


def _json(document: Any) -> Answer:
    return Answer(json.dumps(plain(document), allow_nan=False).encode(), "application/json")


def _file(path: Path, kind: str) -> Page:
    async def page(_: Query) -> Answer:
        return Answer(await asyncio.to_thread(path.read_bytes), kind)

    return page


def _table(path: Path) -> Page:
    async def page(query: Query) -> Answer:
        start, limit = _number(query, "from", 0), _number(query, "limit", PIECE_BYTES)
        text, after, size = await asyncio.to_thread(piece, path, start, min(limit, PIECE_BYTES))
        return Answer(text, "text/csv; charset=utf-8", headers=(("X-Next", str(after)), ("X-Size", str(size))))

    return page


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Refused(400, f"{name} is a number of bytes")
    return int(text)


def piece(path: Path, start: int, limit: int) -> tuple[bytes, int, int]:
    """Whole lines of ``path`` from byte ``start`` on, at most ``limit`` bytes of it; where the next ones begin; its
    size.  A start within a line moves on to the next.  Nothing where there is no file.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return b"", 0, 0
    with file:
        size = os.fstat(file.fileno()).st_size
        if start >= size:
            return b"", size, size
        file.seek(max(0, start - 1))
        read = file.read(limit + 1)
    if start:
        skipped = read.find(b"\n") + 1
        if not skipped:
            return b"", start, size
        start, read = start - 1 + skipped, read[skipped:]
    text = read[: read.rfind(b"\n") + 1]
    return text, start + len(text), size
