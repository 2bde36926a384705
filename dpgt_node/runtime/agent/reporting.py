"""What an agent's evaluations become: reports and states for the coordinator in study runs, rows on the host else."""

from __future__ import annotations

from collections.abc import Callable

from dpgt_node.agent.work import AgentWork
from dpgt_node.learning.common import Metrics
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent.session_types import Evaluated, ReportMade
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.metrics import STUDY_DIMENSION_MAX, MetricsRow, MetricsStore
from dpgt_node.types import F64


class Reporter:
    """Agent ``name`` of a run with last round ``last_round``.

    ``local``: where metrics stay, None in a study.  ``releases()``: drawn in this run so far.
    """

    def __init__(
        self, name: str, last_round: int, work: AgentWork, local: MetricsStore | None, releases: Callable[[], int]
    ) -> None:
        self._name = name
        self._K = last_round
        self._work = work
        self._local = local
        self._releases = releases
        self._last = Metrics()

    def evaluated(self, k: int, x: F64, metrics: Metrics) -> Evaluated:
        """What the session hears of x_{i,k}.  Of a study's last state only the result's report tells."""
        if self._local is not None:
            costs = self._work.epsilon_after(k - 1)
            self._local.append([_row(self._name, k, metrics, costs)])
            return Evaluated(k)
        last = k > self._K
        if last:
            self._last = metrics
        report = None if last else self._report(k, metrics)
        return Evaluated(k, report, x if last or self._work.dimension <= STUDY_DIMENSION_MAX else None)

    def result(self, bytes_sent: int) -> ReportMade:
        report = self._report(self._K + 1, self._last)
        return ReportMade(m.FinishedReport("finished", self._releases(), bytes_sent, report.epsilon, report))

    def close(self) -> None:
        if self._local is not None:
            self._local.close()

    def _report(self, k: int, metrics: Metrics) -> m.MetricsReport:
        costs = self._work.epsilon_after(k - 1)
        return m.MetricsReport(
            k, metrics.loss_train, metrics.accuracy_train, metrics.accuracy_test, metrics.grad_norm, costs
        )


def _row(name: str, k: int, metrics: Metrics, costs: dict[str, float | None]) -> MetricsRow:
    return MetricsRow(
        name,
        k,
        None,
        metrics.loss_train,
        metrics.accuracy_train,
        metrics.accuracy_test,
        metrics.grad_norm,
        epsilon=Epsilon.of(costs),
    )
