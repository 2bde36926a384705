"""What an agent reports: to the coordinator in study runs, beside its state in local ones."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from dpgt_node.agent.work import AgentWork
from dpgt_node.learning.oracle import Metrics
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.types import ReportStall
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.metrics import MetricsRow, MetricsStore
from dpgt_node.record.recorder import STUDY_DIMENSION_MAX
from dpgt_node.runtime.agent.study import StudyUploader
from dpgt_node.types import F64

log = logging.getLogger(__name__)

REPEATED = 2
"""So many evaluations are kept to be reported again, with their states."""


class Reporter:
    """The driver's upward side for agent ``names[index]`` of a run with last round ``last_round``.

    ``say`` sends to the coordinator.  Exactly one of ``uploader`` (study) and ``local`` (metrics stay here) is given.
    ``releases`` and ``bytes_sent`` are asked for at the end; ``failed`` hears what broke the last report, ``stalled``
    which inputs are late.
    """

    def __init__(
        self,
        names: Sequence[str],
        index: int,
        last_round: int,
        work: AgentWork,
        say: Callable[[m.AgentMessage], None],
        *,
        uploader: StudyUploader | None,
        local: MetricsStore | None,
        releases: Callable[[], int],
        bytes_sent: Callable[[], int],
        failed: Callable[[BaseException], None],
        stalled: Callable[[ReportStall, float], None],
    ) -> None:
        assert (uploader is None) != (local is None), "metrics go to exactly one place"
        self._names = names
        self._name = names[index]
        self._K = last_round
        self._work = work
        self._say = say
        self._uploader = uploader
        self._local = local
        self._releases = releases
        self._bytes_sent = bytes_sent
        self._failed = failed
        self.stalled = stalled
        self._last: Metrics | None = None
        self._recent: deque[tuple[m.MetricsReport, F64 | None]] = deque(maxlen=REPEATED)
        self._evaluated_all = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.final: m.FinishedReport | None = None
        """The last report, from when it was sent; sent again to a coordinator that came back."""

    def done(self, k: int, durable_through: int, head: bytes) -> None:
        """Round ``k`` is done here; ``head``: of the ledger after it, if it is the last one there."""
        self._say(m.Done(k, durable_through, self._bytes_sent(), head))
        if k == self._K and self._task is None:
            self._task = asyncio.ensure_future(self._finish())
            self._task.add_done_callback(self._ended)

    def evaluated(self, k: int, x: F64, metrics: Metrics) -> None:
        """Study runs send metrics to the coordinator, local runs write them beside the state."""
        last = k == self._K + 1
        costs = self._work.epsilon_after(k - 1)
        if self._uploader is not None:
            state = x if self._work.dimension <= STUDY_DIMENSION_MAX else None
            if last or state is not None:
                self._uploader.put(k, x)
            if not last:
                report = _report(k, metrics, costs)
                self._say(report)
                self._recent.append((report, state))
        elif self._local is not None:
            row = MetricsRow(
                self._name,
                k,
                None,
                metrics.loss_train,
                metrics.accuracy_train,
                metrics.accuracy_test,
                metrics.grad_norm,
                epsilon=Epsilon.of(costs),
            )
            self._local.append([row])
        if last:
            self._last = metrics
            self._evaluated_all.set()

    def repeat(self, *, metrics: bool) -> None:
        """Say the last report again, and with ``metrics`` those of the last evaluations: a coordinator that came back
        lacks what the one before had not written.
        """
        for report, state in tuple(self._recent) if metrics else ():
            if self._uploader is not None and state is not None:
                self._uploader.put(report.k, state)
            self._say(report)
        if self.final is not None:
            self._say(self.final)

    async def close(self) -> None:
        """Stop reporting."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._uploader is not None:
            await self._uploader.cancel()
        if self._local is not None:
            self._local.close()

    async def _finish(self) -> None:
        await self._evaluated_all.wait()
        if self._uploader is not None:
            await self._uploader.finish()
        assert self._last is not None
        costs = self._work.epsilon_after(self._K)
        metrics = self._last if self._uploader is not None else Metrics()
        report = _report(self._K + 1, metrics, costs)
        self.final = m.FinishedReport("finished", self._releases(), self._bytes_sent(), costs, report)
        self._say(self.final)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)


def _report(k: int, metrics: Metrics, costs: dict[str, float | None]) -> m.MetricsReport:
    return m.MetricsReport(
        k, metrics.loss_train, metrics.accuracy_train, metrics.accuracy_test, metrics.grad_norm, costs
    )
