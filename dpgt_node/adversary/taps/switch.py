"""A switch in user space: it forwards, delays, drops, reorders and slows frames, and writes down what it delivers.

A frame is in the recording before it is delivered, in the order of delivery, so nothing that arrived is missing.  What
the switch drops (``loss``) the hosts send again, and that is recorded; ``tap_loss`` is a tap that misses frames which
arrived.  The kernel's netem does the same but is often not there.
"""

from __future__ import annotations

import heapq
import math
import os
import random
import select
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import field

from dpgt_node.adversary.decode.packets import PcapWriter
from dpgt_node.adversary.taps.proxy import AGENT_PORT
from dpgt_node.values import dataclass

_MAX_FRAME = 1 << 17
_BATCH = 64
_BACKLOG_NS = 2_000_000_000
"""A link that is this far behind drops, as a full router does."""
_IPV4 = b"\x08\x00"
_TCP = 6
_REORDER_NS = 2_000_000
Pair = tuple[bytes, bytes]
"""Packed IPv4 addresses of who dials and who is dialled."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``delay_ms``, ``loss`` (up to 1: nothing passes) and ``reorder`` of the frames that the first of ``pair`` sends
    to the second over the link that it dialled, from ``first_s`` to ``last_s`` seconds after the switch began.
    """

    pair: Pair
    delay_ms: float = 0.0
    loss: float = 0.0
    reorder: float = 0.0
    first_s: float = 0.0
    last_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Impairment:
    """What happens to each frame.  ``delay_ms``: one way.  ``loss``, ``reorder``, ``tap_loss``: probabilities in
    [0, 1).  ``rate_mbit``: of each host's line out, 10^6 bits a second; None: no limit.  ``seed``: of the dice.
    ``rules``: what differs on single links; the first one that fits counts.
    """

    delay_ms: float = 0.0
    loss: float = 0.0
    reorder: float = 0.0
    rate_mbit: float | None = None
    tap_loss: float = 0.0
    seed: int = 0
    rules: tuple[Rule, ...] = ()


@dataclass(slots=True)
class Switched:
    """Frames so far: ``delivered`` to a host; ``recorded``, and their bytes; ``lost`` by the dice; ``overflowed``:
    dropped because a line was too slow; ``unseen`` by the tap.
    """

    delivered: int = 0
    recorded: int = 0
    recorded_bytes: int = 0
    lost: int = 0
    overflowed: int = 0
    unseen: int = 0


@dataclass(order=True, slots=True)
class _Waiting:
    due_ns: int
    number: int
    port: int = field(compare=False)
    frame: bytes = field(compare=False)


class Switch:
    """Between the lines ``lines``: (file descriptor that gives and takes Ethernet frames, MAC address of the host).

    ``links``: record only TCP to agents' port on these, dialling and dialled; None: whatever is delivered.
    Descriptors stay the caller's.
    """

    def __init__(
        self,
        lines: Sequence[tuple[int, bytes]],
        recording: PcapWriter,
        impairment: Impairment = Impairment(),  # frozen
        links: frozenset[Pair] | None = None,
    ) -> None:
        self._lines = [fd for fd, _ in lines]
        self._port: Mapping[bytes, int] = {mac: i for i, (_, mac) in enumerate(lines)}
        self._recording = recording
        self._impairment = impairment
        self._links = links
        self._dice = random.Random(impairment.seed)
        self._began_ns = time.monotonic_ns()
        self._waiting: list[_Waiting] = []
        self._number = 0
        self._free_ns = [0] * len(lines)
        self.counts = Switched()
        self.failure: OSError | None = None
        """Why the recording ended before the network did; from then on nothing is forwarded."""
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask :meth:`run`, in another thread, to deliver what is waiting and to return."""
        self._stop.set()

    def run(self) -> None:
        """Forward until ``stop``, and until nothing more comes or waits."""
        poll = select.poll()
        for fd in self._lines:
            os.set_blocking(fd, False)
            poll.register(fd, select.POLLIN)
        port = {fd: i for i, fd in enumerate(self._lines)}
        quiet = 0
        while quiet < 2:
            events = poll.poll(self._patience_ms())
            for fd, _ in events:
                self._read(fd, port[fd])
            self._deliver_due()
            quiet = quiet + 1 if self._stop.is_set() and not events and not self._waiting else 0

    def _patience_ms(self) -> float:
        if not self._waiting:
            return 20.0
        return max(0.0, min(20.0, (self._waiting[0].due_ns - time.monotonic_ns()) / 1e6))

    def _read(self, fd: int, source: int) -> None:
        for _ in range(_BATCH):
            try:
                frame = os.read(fd, _MAX_FRAME)
            except OSError:  # nothing more; or the host is gone
                return
            self._accept(frame, source)

    def _accept(self, frame: bytes, source: int) -> None:
        target = self._port.get(frame[:6])
        if target is None or self.failure is not None:  # to all, or to nobody here
            return
        rate_mbit, how = self._impairment.rate_mbit, self._how(frame)
        if how.loss and self._dice.random() < how.loss:
            self.counts.lost += 1
            return
        now_ns = time.monotonic_ns()
        due_ns = now_ns
        if rate_mbit is not None:
            due_ns = max(now_ns, self._free_ns[source]) + int(len(frame) * 8000 / rate_mbit)
            if due_ns - now_ns > _BACKLOG_NS:
                self.counts.overflowed += 1
                return
            self._free_ns[source] = due_ns
        due_ns += int(1e6 * how.delay_ms)
        if how.reorder and self._dice.random() < how.reorder:
            due_ns += max(_REORDER_NS, int(5e5 * how.delay_ms))
        if due_ns == now_ns:
            self._deliver(target, frame)
        else:
            self._number += 1
            heapq.heappush(self._waiting, _Waiting(due_ns, self._number, target, frame))

    def _how(self, frame: bytes) -> Impairment | Rule:
        """What happens to ``frame`` now."""
        if self._impairment.rules and (link := _link(frame)) is not None and link[1]:
            elapsed_s = (time.monotonic_ns() - self._began_ns) / 1e9
            for rule in self._impairment.rules:
                if rule.pair == link[0] and rule.first_s <= elapsed_s <= rule.last_s:
                    return rule
        return self._impairment

    def _deliver_due(self) -> None:
        while self._waiting and self._waiting[0].due_ns <= time.monotonic_ns():
            waiting = heapq.heappop(self._waiting)
            self._deliver(waiting.port, waiting.frame)

    def _deliver(self, target: int, frame: bytes) -> None:
        if self._wanted(frame):
            if self._impairment.tap_loss and self._dice.random() < self._impairment.tap_loss:
                self.counts.unseen += 1
            else:
                try:
                    self._recording.write(time.time_ns(), frame)
                except OSError as error:
                    self.failure = error
                    return
                self.counts.recorded += 1
                self.counts.recorded_bytes += len(frame)
        try:
            os.write(self._lines[target], frame)
        except OSError:  # the host was switched off
            return
        self.counts.delivered += 1

    def _wanted(self, frame: bytes) -> bool:
        if self._links is None:
            return True
        link = _link(frame)
        return link is not None and link[0] in self._links


def _link(frame: bytes) -> tuple[Pair, bool] | None:
    """Of which link between agents it is, and whether who dialled sends it; None: of none."""
    if frame[12:14] != _IPV4 or frame[23] != _TCP:
        return None
    ports = 14 + 4 * (frame[14] & 15)
    source, target = frame[26:30], frame[30:34]
    if int.from_bytes(frame[ports + 2 : ports + 4], "big") == AGENT_PORT:
        return (source, target), True
    return ((target, source), False) if int.from_bytes(frame[ports : ports + 2], "big") == AGENT_PORT else None
