"""What an operator sees of a run that goes on: once a second a sample, now and then a line of the log, and events.

Nothing here feeds back into the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from dpgt_node import figures
from dpgt_node.config import RunConfig
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.documents import parse_json
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.pace import Pace, Slowest, slowest, speed
from dpgt_node.record import epsilons
from dpgt_node.runtime.watching.rhythm import Rhythm
from dpgt_node.values import dataclass

log = logging.getLogger("dpgt_node.progress")

EVENTS_FILE = "events.jsonl"
EVENTS_KEPT = 200
SAMPLE_S = 1.0
_ENDS = frozenset({"finished", "stopped", "refused", "budget", "lost", "failed"})
"""How the event of an end begins: the status of Conclude."""
WINDOW_S = 5.0
"""Phases are compared over at least so many seconds, or over the last round where it takes longer."""


@dataclass(frozen=True, slots=True)
class Event:
    """``wall_s``: seconds since the epoch.  ``level``: info, warning or error."""

    wall_s: float
    level: str
    text: str


class Events:
    """What happened, in ``OUT/events.jsonl``: a coordinator that is started again goes on with it."""

    def __init__(self, out: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._file: IO[str] | None = None
        path = out / EVENTS_FILE
        self.kept = deque(_held(path), EVENTS_KEPT)
        self.noted: Counter[str] = Counter()
        """How many of each level, in this life of the process."""
        with contextlib.suppress(OSError):  # a log, and the run's own says why it stops
            self._file = path.open("a", encoding="utf-8")

    def note(self, level: str, text: str) -> None:
        event = Event(self._clock(), level, text)
        self.kept.append(event)
        self.noted[level] += 1
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.write(json.dumps([round(event.wall_s, 3), level, text]) + "\n")
                self._file.flush()

    def close(self) -> None:
        """May be called twice; nothing is kept after it."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


def _held(path: Path) -> list[Event]:
    """The last events in ``path``; what is torn or no event is passed over."""
    found: list[Event] = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines()[-EVENTS_KEPT:]:
            with contextlib.suppress(ValueError, TypeError):
                wall_s, level, text = parse_json(line)
                found.append(Event(float(wall_s), str(level), str(text)))
    return found


def noted_end(out: Path) -> tuple[str, str] | None:
    """How the last start of the run in ``out`` that came to an end did so, and why; None: none did."""
    for event in reversed(_held(out / EVENTS_FILE)):
        status, _, reason = event.text.partition(": ")
        if status in _ENDS:
            return status, reason
    return None


class Recent:
    """What the rounds of the last seconds took, by agent."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._samples: deque[tuple[float, dict[str, tuple[int, tuple[int, ...]]]]] = deque()

    def sample(self, now_s: float) -> None:
        totals = {name: (took.rounds, tuple(took.total_us)) for name, took in self._pace.agents.items()}
        self._samples.append((now_s, totals))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    def rounds(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """By agent: how many rounds took how many microseconds by phase; the last report's where none is newer."""
        before: Mapping[str, tuple[int, Sequence[int]]] = self._samples[0][1] if self._samples else {}
        found = {}
        for name, took in self._pace.agents.items():
            made, was = before.get(name, (0, (0,) * len(took.total_us)))
            if took.rounds > made:
                spans = tuple(now - then for now, then in zip(took.total_us, was, strict=True))
                found[name] = (took.rounds - made, spans)
            elif took.last_us:
                found[name] = (took.last_rounds, took.last_us)
        return found

    def slowest(self) -> Slowest | None:
        return slowest(self.rounds())


class Watch:
    """Samples the run once a second and logs where it stands.

    ``unknown``: as in :func:`line`.  ``reply``: the status as an operator gets it.  ``flush``: lets readers see the
    rows that wait.
    """

    def __init__(
        self, unknown: str, recent: Recent, reply: Callable[[], m.StatusReply], flush: Callable[[], None]
    ) -> None:
        self._unknown = unknown
        self._recent = recent
        self._reply = reply
        self._flush = flush
        self._rhythm = Rhythm(time.monotonic())
        self._task = asyncio.ensure_future(self._go_on())

    def end(self) -> None:
        """The run is over: say how."""
        self.close()
        self._say(time.monotonic(), last=True)

    def close(self) -> None:
        """Sample no more; may be called twice."""
        self._task.cancel()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            now_s = time.monotonic()
            self._recent.sample(now_s)
            self._flush()
            self._say(now_s)

    def _say(self, now_s: float, *, last: bool = False) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        reply = self._reply()
        if self._rhythm.due(reply.state, reply.k, now_s, last=last):
            log.info("%s", line(reply, self._unknown), extra={"fields": fields(reply)})


def eta_s(reply: m.StatusReply) -> float | None:
    """Seconds until the last round at the present speed; None while it is not known."""
    if reply.k < 0 or reply.rounds_per_second <= 0 or reply.state != "running":
        return None
    return max(0, reply.K - reply.k) / reply.rounds_per_second


def no_accuracy(run: RunConfig) -> str:
    """Why the coordinator of ``run`` never hears of an accuracy; empty where it does."""
    if run.data.dataset in TOYS:
        return f'no accuracy: "{run.data.dataset}" is a formula'
    return "" if run.evaluate.metrics == "study" else "accuracy: local"


def line(reply: m.StatusReply, unknown: str = "") -> str:
    """``round 120 of 200, 85.3 rounds/s, ETA 1 s, worst test accuracy 0.861 (agent-3), epsilon ...``.

    ``unknown``: what is said where no accuracy is known; nothing where it is empty.
    """
    here = sum(agent.connected for agent in reply.agents)
    parts = [f"{reply.state}: round {reply.k} of {reply.K}" if reply.k >= 0 else reply.state]
    if here < len(reply.agents) and not reply.over:
        parts.append(f"{here} of {len(reply.agents)} agents connected")
    if reply.state == "running" and reply.k >= 0 and reply.rounds_per_second > 0:
        parts.append(f"{speed(reply.rounds_per_second)} rounds/s")
    if (left := eta_s(reply)) is not None:
        parts.append(f"ETA {left:.0f} s")
    if reply.k >= 0:
        worst = _worst(reply)
        if worst is None:
            parts += [unknown] if unknown else []
        else:
            parts.append(f"worst test accuracy {worst.accuracy_test:.3f} ({worst.name})")
    if (spent := _most(reply)) is not None and reply.accountant is not None:
        head = epsilons.head(reply.accountant, reply.delta or 0.0)
        parts.append(f"{head} {figures.epsilon(spent.epsilon)} ({spent.strength})")
    if reply.slowest is not None:
        parts.append(reply.slowest.line())
    if late := late_agents(reply):
        parts.append(f"late: {figures.some(late)}")
    return ", ".join(parts)


def fields(reply: m.StatusReply) -> dict[str, object]:
    """The same for ``--log-format json``."""
    worst, spent, slow = _worst(reply), _most(reply), reply.slowest
    return {
        "event": "progress",
        "state": reply.state,
        "k": reply.k,
        "K": reply.K,
        "rounds_per_second": round(reply.rounds_per_second, 3),
        "eta_s": None if (left := eta_s(reply)) is None else round(left, 1),
        "worst_accuracy_test": None if worst is None else worst.accuracy_test,
        "worst_agent": None if worst is None else worst.name,
        "accountant": reply.accountant,
        "epsilon": None if spent is None else spent.epsilon,
        "slowest": None if slow is None else {"agent": slow.agent, "phase": slow.phase, "seconds": slow.seconds},
        "late": late_agents(reply),
    }


def late_agents(reply: m.StatusReply) -> list[str]:
    """Who is missing, cut off or slow, or never came."""
    return [] if reply.over else [agent.name for agent in reply.agents if agent.state != "here"]


def _worst(reply: m.StatusReply) -> m.AgentStatus | None:
    known = [agent for agent in reply.agents if agent.accuracy_test is not None]
    return min(known, key=lambda agent: agent.accuracy_test or 0.0, default=None)


def _most(reply: m.StatusReply) -> m.AgentStatus | None:
    """Who has spent most."""
    known = [agent for agent in reply.agents if agent.epsilon is not None]
    return max(known, key=lambda agent: agent.epsilon or 0.0, default=None)
