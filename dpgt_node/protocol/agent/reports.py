"""What an agent reports of its results, in which order.

    phase      waits for                                      then
    ------------------------------------------------------------------------------------------------------
    ROUNDS     ReportDone(K), the evaluation of x_{i,K+1},    MakeReport: MAKING
               and that the coordinator took every x
    MAKING     ReportMade                                     the last report is said: SAID
    SAID       Repeat                                         it is said again

``Repeat`` comes when a coordinator came back: it lacks what the one before had not written, so the last evaluations are
reported again too, with their states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import auto
from typing import Any

from dpgt_node.protocol.agent.session_types import Evaluated, MakeReport, Repeat, ReportMade, Say, Upload, UploadsTaken
from dpgt_node.protocol.phases import Phases
from dpgt_node.protocol.types import ReportDone

REPEATED = 2
"""So many evaluations are kept to be reported again."""


class ReportsPhase(Phases):
    ROUNDS = auto()
    MAKING = auto()
    SAID = auto()


class Reports:
    """Reports of a run with last round ``last_round``.  ``bytes_sent()``: to neighbours so far."""

    def __init__(self, last_round: int, bytes_sent: Callable[[], int]) -> None:
        self._K = last_round
        self._bytes_sent = bytes_sent
        self._phase = ReportsPhase.ROUNDS
        self._mixed = self._evaluated = False
        self._uploading = False
        self._recent: deque[Evaluated] = deque(maxlen=REPEATED)
        self._final: tuple[Say, ...] = ()

    @property
    def phase(self) -> ReportsPhase:
        return self._phase

    def step(self, event: Any, now_ns: int) -> tuple[Any, ...]:
        """Take what happened.  ``Say`` is for the coordinator."""
        out: list[Any] = []
        match event:
            case Evaluated():
                self._report(event, out)
                if event.k <= self._K:
                    self._recent.append(event)
                self._evaluated |= event.k > self._K
            case ReportDone(k):
                self._mixed |= k == self._K
            case UploadsTaken():
                self._uploading = False
            case Repeat(metrics):
                for recent in self._recent if metrics else ():
                    self._report(recent, out)
                out += self._final
            case ReportMade(report):
                self._phase, self._final = ReportsPhase.SAID, (Say(report),)
                out += self._final
        if self._phase is ReportsPhase.ROUNDS and self._mixed and self._evaluated and not self._uploading:
            self._phase = ReportsPhase.MAKING
            out.append(MakeReport(self._bytes_sent()))
        return tuple(out)

    def _report(self, event: Evaluated, out: list[Any]) -> None:
        if event.state is not None:
            self._uploading = True
            out.append(Upload(event.k, event.state))
        if event.report is not None:
            out.append(Say(event.report))
